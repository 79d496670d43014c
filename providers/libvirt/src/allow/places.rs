//! The keys of an entry about hypervisors: networks, bridges, devices, pools, MAC addresses, and the
//! hypervisors themselves.

use provider_kit::{Fields, Findings};

/// The network and the pool of objects that name none. Objects of every namespace may use these two.
pub(crate) const DEFAULT_NETWORK: &str = "default";
pub(crate) const DEFAULT_POOL: &str = "default";

/// What one entry of the list allows of hypervisors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) networks: Vec<String>,
    pub(super) bridges: Vec<String>,
    pub(super) macvtap_devices: Vec<String>,
    /// Whether a guest may have one of these devices for itself.
    pub(super) has_macvtap_passthrough: bool,
    pub(super) pools: Vec<String>,
    pub(super) has_mac_addresses: bool,
    /// `None` if the entry says nothing of hypervisors.
    pub(super) hypervisors: Option<Vec<String>>,
}

impl Places {
    pub(super) fn read(fields: &mut Fields, problems: &mut Findings) -> Self {
        let mut names = |key: &'static str, what: &str| {
            let is_name = |text: &str| (!text.trim().is_empty()).then(|| text.to_owned());
            let had = problems.problems.len();
            let names = fields.parsed_list(key, what, is_name, problems);
            // A faulty list names nothing.
            names.or_else(|| (problems.problems.len() > had).then(Vec::new))
        };
        let places = Self {
            networks: names("networks", "the name of a libvirt network").unwrap_or_default(),
            bridges: names("bridges", "the name of a bridge").unwrap_or_default(),
            macvtap_devices: names("macvtapDevices", "the name of a device").unwrap_or_default(),
            pools: names("pools", "the name of a storage pool").unwrap_or_default(),
            hypervisors: names("hypervisors", "the name of a hypervisor"),
            ..Self::default()
        };
        Self {
            has_macvtap_passthrough: fields.boolean("macvtapPassthrough", problems).unwrap_or(false),
            has_mac_addresses: fields.boolean("macAddresses", problems).unwrap_or(false),
            ..places
        }
    }
}

impl Places {
    /// What the entry opens, for people, with the names of its keys.
    pub(super) fn open(&self) -> impl Iterator<Item = String> {
        let list =
            |key: &str, names: &[String]| (!names.is_empty()).then(|| format!("{key} {}", names.join(", ")));
        let flag = |key: &str, is_set: bool| is_set.then(|| key.to_owned());
        [
            list("networks", &self.networks),
            list("bridges", &self.bridges),
            list("macvtapDevices", &self.macvtap_devices),
            flag("macvtapPassthrough", self.has_macvtap_passthrough),
            list("pools", &self.pools),
            flag("macAddresses", self.has_mac_addresses),
            list("hypervisors", self.hypervisors.as_deref().unwrap_or_default()),
        ]
        .into_iter()
        .flatten()
    }
}
