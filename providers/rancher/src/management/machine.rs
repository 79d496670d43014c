//! A machine that Rancher knows, whatever says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use cloudprovider::InstanceRef;

use crate::provider_id::format_machine_id;

/// A machine of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// The last part of its provider ID: the UID of a Machine, or the name of a management Node.
    pub(super) key: String,
    /// What it is called in messages.
    pub(super) shown: String,
    /// `spec.providerID`, as Rancher has it. Rancher copies it from the Node.
    pub(super) provider_id: Option<String>,
    /// The Node that Rancher has for this machine.
    pub(super) node: Option<String>,
    /// Names that its Node may have if Rancher has none for it yet.
    pub(super) names: BTreeSet<String>,
    /// What Rancher itself knows of its addresses.
    pub(super) addresses: KnownAddresses,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) failure_domain: Option<String>,
    pub(super) instance_type: Option<String>,
    /// Whether it is being deleted.
    pub(super) is_leaving: bool,
}

/// The addresses of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownAddresses {
    pub(super) internal: Vec<IpAddr>,
    pub(super) external: Vec<IpAddr>,
}

impl Machine {
    /// What the controllers know the machine by.
    pub(super) fn references(&self, cluster: &str) -> Vec<InstanceRef> {
        let id = format_machine_id(cluster, &self.key).as_str().to_owned();
        let ids = [Some(id.clone()), self.provider_id.clone().filter(|copy| *copy != id)];
        let reference = |provider_id, name| InstanceRef { provider_id, name, ..InstanceRef::default() };
        let by_id = ids.into_iter().flatten().map(|id| reference(Some(id), None));
        by_id.chain(self.all_names().into_iter().map(|name| reference(None, Some(name)))).collect()
    }

    /// All names that its Node may have, in lower case and in both forms.
    fn all_names(&self) -> BTreeSet<String> {
        let names = self.names.iter().chain(&self.node).map(|name| name.to_ascii_lowercase());
        names.flat_map(|name| [short(&name).to_owned(), name]).filter(|name| !name.is_empty()).collect()
    }
}

/// The first label of a host name.
pub(super) fn short(name: &str) -> &str {
    name.split_once('.').map_or(name, |(first, _)| first)
}

/// Whether both are names of one machine: letter case does not matter, and if one is short, the first label
/// decides.
pub(super) fn is_same_name(a: &str, b: &str) -> bool {
    if a.contains('.') && b.contains('.') {
        a.eq_ignore_ascii_case(b)
    } else {
        short(a).eq_ignore_ascii_case(short(b))
    }
}

impl KnownAddresses {
    /// These addresses. An external address alone is the internal one too: Rancher starts the kubelet with
    /// it.
    pub(super) fn of(internal: Vec<IpAddr>, external: Vec<IpAddr>) -> Self {
        if internal.is_empty() {
            Self { internal: external, external: Vec::new() }
        } else {
            Self { internal, external }
        }
    }
}
