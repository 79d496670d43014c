//! Names of Clusters.

use std::fmt;

use cluster_api::names::secrets;

/// The namespace and name of a Cluster of the management cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    /// `metadata.namespace`
    pub namespace: String,
    /// `metadata.name`
    pub name: String,
}

impl ClusterKey {
    /// The Cluster of this name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The Secret that has its kubeconfig, in the same namespace.
    pub fn kubeconfig_secret(&self) -> String {
        secrets::name(&self.name, secrets::KUBECONFIG)
    }

    /// The Cluster whose kubeconfig is in the Secret of this name, if its name is one of such a Secret.
    pub(super) fn of_kubeconfig_secret(namespace: &str, secret: &str) -> Option<Self> {
        let name =
            secret.strip_suffix(secrets::KUBECONFIG)?.strip_suffix('-').filter(|name| !name.is_empty())?;
        Some(Self::new(namespace, name))
    }
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
