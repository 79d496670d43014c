//! What a provider sees of a Node.

use std::{collections::BTreeMap, time::SystemTime};

use crate::NodeAddress;

/// What identifies a Kubernetes Node, without Kubernetes' client types.
///
/// A Node is looked up by its [`provider_id`](Self::provider_id) if that is set. A Node that is not
/// initialised yet has none. It is found by its system UUID or its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeIdentity {
    /// `metadata.name`, a DNS-1123 subdomain.
    pub name: String,
    /// `metadata.uid`: distinguishes a Node from a later one with the same name.
    pub uid: String,
    /// `metadata.creationTimestamp`: when the Node joined, by the clock of the API server. `None` if that is not known.
    pub created: Option<SystemTime>,
    /// `spec.providerID` as the Node has it, whoever wrote it. `None` if it is empty.
    pub provider_id: Option<String>,
    /// `status.nodeInfo.systemUUID`, as the kubelet read it from DMI (or the machine ID, if DMI has none).
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
