//! Node addresses and the helper that keeps a list of them free of duplicates.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of a node address, spelt as in `status.addresses[].type`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum NodeAddressType {
    /// The node's name as the kubelet reports it.
    Hostname,
    /// An IP address that is reachable inside the cluster.
    InternalIp,
    /// An IP address that is reachable from outside the cluster.
    ExternalIp,
    /// A DNS name that resolves inside the cluster.
    InternalDns,
    /// A DNS name that resolves outside the cluster.
    ExternalDns,
    /// Any other type. Kubernetes does not limit the list of types.
    Other(String),
}

impl NodeAddressType {
    /// The word used in the API, such as `InternalIP`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Hostname => "Hostname",
            Self::InternalIp => "InternalIP",
            Self::ExternalIp => "ExternalIP",
            Self::InternalDns => "InternalDNS",
            Self::ExternalDns => "ExternalDNS",
            Self::Other(other) => other,
        }
    }
}

impl From<String> for NodeAddressType {
    fn from(text: String) -> Self {
        match text.as_str() {
            "Hostname" => Self::Hostname,
            "InternalIP" => Self::InternalIp,
            "ExternalIP" => Self::ExternalIp,
            "InternalDNS" => Self::InternalDns,
            "ExternalDNS" => Self::ExternalDns,
            _ => Self::Other(text),
        }
    }
}

impl From<NodeAddressType> for String {
    fn from(kind: NodeAddressType) -> Self {
        match kind {
            NodeAddressType::Other(other) => other,
            known => known.as_str().to_owned(),
        }
    }
}

impl fmt::Display for NodeAddressType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One entry of `status.addresses`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeAddress {
    /// What kind of address it is.
    #[serde(rename = "type")]
    pub address_type: NodeAddressType,
    /// An IP address or a DNS name, as text.
    pub address: String,
}

impl NodeAddress {
    /// An address of this type.
    pub fn new(address_type: NodeAddressType, address: impl Into<String>) -> Self {
        Self { address_type, address: address.into() }
    }

    /// An [`InternalIP`](NodeAddressType::InternalIp).
    pub fn internal_ip(address: impl fmt::Display) -> Self {
        Self::new(NodeAddressType::InternalIp, address.to_string())
    }

    /// An [`ExternalIP`](NodeAddressType::ExternalIp).
    pub fn external_ip(address: impl fmt::Display) -> Self {
        Self::new(NodeAddressType::ExternalIp, address.to_string())
    }

    /// A [`Hostname`](NodeAddressType::Hostname).
    pub fn hostname(name: impl Into<String>) -> Self {
        Self::new(NodeAddressType::Hostname, name)
    }
}

/// Appends those of `additions` that `addresses` does not contain yet, compared by exact type and text. The
/// order is kept (upstream's `AddToNodeAddresses`).
pub fn append_missing_addresses(
    addresses: &mut Vec<NodeAddress>,
    additions: impl IntoIterator<Item = NodeAddress>,
) {
    for addition in additions {
        if !addresses.contains(&addition) {
            addresses.push(addition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_keep_the_words_of_the_api() {
        for word in ["Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS", "Moon"] {
            let kind = NodeAddressType::from(word.to_owned());
            assert_eq!(kind.as_str(), word);
            assert_eq!(String::from(kind), word);
        }
    }

    #[test]
    fn appending_skips_exact_duplicates_only() {
        let mut addresses = vec![NodeAddress::internal_ip("10.0.0.1")];
        append_missing_addresses(
            &mut addresses,
            [
                NodeAddress::internal_ip("10.0.0.1"),
                NodeAddress::external_ip("10.0.0.1"),
                NodeAddress::hostname("a"),
            ],
        );
        assert_eq!(
            addresses,
            [
                NodeAddress::internal_ip("10.0.0.1"),
                NodeAddress::external_ip("10.0.0.1"),
                NodeAddress::hostname("a")
            ]
        );
    }
}
