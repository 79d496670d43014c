//! Kubernetes clusters that the cloud knows of.

use std::fmt;

use async_trait::async_trait;

use crate::Result;

/// The clusters whose machines this cloud runs. No controller needs this part; tools do.
#[async_trait]
pub trait Clusters: fmt::Debug + Send + Sync {
    /// Names of all clusters, sorted, each once.
    async fn list(&self) -> Result<Vec<String>>;

    /// The address of the API server of `cluster`, or `None` while the cluster has no running control plane.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if the cloud does not know the cluster.
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
