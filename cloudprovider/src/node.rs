//! What a provider sees of a Node.

use std::collections::BTreeMap;

use crate::NodeAddress;

/// What identifies a Kubernetes Node, free of Kubernetes' client types.
///
/// Look-ups go by [`provider_id`](Self::provider_id) when it is set; a Node that is not initialised yet has none,
/// and is found by its system UUID or its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeIdentity {
    /// `metadata.name`, a DNS-1123 subdomain.
    pub name: String,
    /// `metadata.uid`: tells a Node from a later one of the same name.
    pub uid: String,
    /// `spec.providerID` as it stands in the Node, whoever wrote it. `None` where it is empty.
    pub provider_id: Option<String>,
    /// `status.nodeInfo.systemUUID`, as the kubelet read it from DMI (or, where there is none, the machine ID).
    /// Byte order and letter case differ between platforms.
    pub system_uuid: Option<String>,
    /// `status.nodeInfo.machineID`, 32 hexadecimal digits.
    pub machine_id: Option<String>,
    /// `status.addresses` as they are now.
    pub addresses: Vec<NodeAddress>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
}
