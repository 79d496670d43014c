//! What is read from an image.

use bytes::Bytes;
use cloudprovider::{Result, async_trait};

/// An image that is being read.
#[async_trait]
pub(in super::super) trait Source: Send {
    /// Its length, if that is known before its end.
    fn length(&self) -> Option<u64>;

    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>>;
}
