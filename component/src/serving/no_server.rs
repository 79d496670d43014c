//! Replaces the server when the feature `serving` is off.

use std::net::SocketAddr;

use anyhow::bail;

use super::{ServingOptions, Shown};
use crate::reload::ReloadReporter;

/// A running server. Without the feature `serving` no value of this type exists.
#[derive(Debug)]
pub enum Serving {}

impl Serving {
    /// Starts nothing. `None`: the options disable the server.
    ///
    /// # Errors
    /// The options enable the server.
    #[expect(clippy::unused_async, reason = "the server's is")]
    pub async fn start(
        options: &ServingOptions,
        _shown: Shown,
        _reporter: &ReloadReporter,
    ) -> anyhow::Result<Option<Self>> {
        match options.secure_port {
            0 => {
                tracing::info!("--secure-port=0: no health, metrics or debugging is served");
                Ok(None)
            }
            port => bail!(
                "--secure-port={port}: this program is built without the secure port (feature `serving`); \
                 --secure-port=0 serves nothing"
            ),
        }
    }

    /// Never called.
    #[expect(clippy::unused_async, reason = "the server's is")]
    pub async fn knows_the_cluster(&mut self) -> anyhow::Result<()> {
        match *self {}
    }

    /// Never called.
    pub fn address(&self) -> SocketAddr {
        match *self {}
    }

    /// Never called.
    #[expect(clippy::unused_async, reason = "the server's is")]
    pub async fn failed(&mut self) -> Option<anyhow::Error> {
        match *self {}
    }

    /// Never called.
    #[expect(clippy::unused_async, reason = "the server's is")]
    pub async fn stop(self) {
        match self {}
    }
}
