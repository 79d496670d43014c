//! What fuzz targets call. No part of the interface.

use crate::machines::image_size_in_header;

/// Reads the first bytes of an image: the size of its disk, or why it cannot be used.
pub fn image_header(bytes: &[u8]) -> Result<Option<u64>, String> {
    image_size_in_header(bytes)
}
