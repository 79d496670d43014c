//! The flags of the controller of Clusters.

use std::time::Duration;

/// The flags of the controller of Clusters.
#[derive(Clone, Copy, Debug)]
pub struct ClusterOptions {
    /// After so long without a successful probe, `RemoteConnectionProbe` is `False`: upstream's `--remote-connection-grace-period`.
    pub connection_grace: Duration,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { connection_grace: Duration::from_secs(50) }
    }
}
