//! In place of the server where the feature `serving` is off.

use std::net::SocketAddr;

use anyhow::bail;

use super::{ServingOptions, Shown};
use crate::reload::ReloadReporter;

/// A server that runs; there is none without the feature `serving`.
#[derive(Debug)]
pub enum Serving {}

impl Serving {
    /// Starts nothing. `None`: the options say that there is no server.
    ///
    /// # Errors
    /// The options say that there is one.
    #[expect(clippy::unused_async, reason = "the server's is")]
    pub async fn start(
        options: &ServingOptions,
        _shown: Shown,
        _reporter: &ReloadReporter,
    ) -> anyhow::Result<Option<Self>> {
        match options.secure_port {
            0 => Ok(None),
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
