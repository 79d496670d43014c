//! What a machine of a template will have, for scaling from zero.

use std::collections::BTreeMap;

/// What a machine made from a spec will have: `status.capacity` and `status.nodeInfo` of its template. Empty
/// where the provider cannot know. The cluster autoscaler needs it to add the first machine of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capacity {
    /// Quantities by the name of the resource, as Kubernetes writes both: `cpu: "4"`, `memory: "8Gi"`.
    pub resources: BTreeMap<String, String>,
    /// What its Node will report.
    pub node_info: NodeInfo,
}

/// What a Node reports about its system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// The architecture in Go's words, such as `amd64` or `arm64`.
    pub architecture: Option<String>,
    /// The operating system in Go's words, such as `linux`.
    pub operating_system: Option<String>,
}

impl Capacity {
    /// Adds a resource with its quantity.
    #[must_use]
    pub fn with_resource(mut self, name: impl Into<String>, quantity: impl Into<String>) -> Self {
        self.resources.insert(name.into(), quantity.into());
        self
    }

    /// Sets what the Node will report.
    #[must_use]
    pub fn with_node_info(mut self, node_info: NodeInfo) -> Self {
        self.node_info = node_info;
        self
    }
}
