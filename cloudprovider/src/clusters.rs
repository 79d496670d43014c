//! Kubernetes clusters that the cloud knows of.

use std::fmt;

use async_trait::async_trait;

use crate::Result;

/// The clusters whose machines this cloud runs. No controller needs it; tools do.
#[async_trait]
pub trait Clusters: fmt::Debug + Send + Sync {
    /// Names of all clusters, sorted, each once.
    async fn list(&self) -> Result<Vec<String>>;

    /// Where the API server of `cluster` is reached, `None` while the cluster has no running control plane.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) where the cloud knows no such cluster.
    async fn control_plane_endpoint(&self, cluster: &str) -> Result<Option<ControlPlaneEndpoint>>;
}

/// Host and port of an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlaneEndpoint {
    /// An IP address, IPv6 without brackets, or a DNS name.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl fmt::Display for ControlPlaneEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
