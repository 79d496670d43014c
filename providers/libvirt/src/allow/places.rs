//! What an object may name of a hypervisor: networks, bridges, devices, pools, and the hypervisor itself.

use cloudprovider::{Error, ErrorKind, Result};

use super::{Allowed, refused};
use crate::fields::{Fields, Problems};

/// The network and the pool of objects that name none. Objects of every namespace may use these two.
pub(crate) const DEFAULT_NETWORK: &str = "default";
pub(crate) const DEFAULT_POOL: &str = "default";

/// What one entry of the list allows of hypervisors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    networks: Vec<String>,
    bridges: Vec<String>,
    macvtap_devices: Vec<String>,
    /// Whether a guest may have one of these devices for itself.
    has_macvtap_passthrough: bool,
    pools: Vec<String>,
    has_mac_addresses: bool,
    /// `None` if the entry says nothing of hypervisors.
    pub(super) hypervisors: Option<Vec<String>>,
}

impl Places {
    pub(super) fn read(fields: &mut Fields, problems: &mut Problems) -> Self {
        let mut names = |key: &'static str, what: &str| {
            let is_name = |text: &str| (!text.trim().is_empty()).then(|| text.to_owned());
            let had = problems.faults.len();
            let names = fields.parsed_list(key, what, is_name, problems);
            // A faulty list names nothing.
            names.or_else(|| (problems.faults.len() > had).then(Vec::new))
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

impl Allowed<'_> {
    fn has(&self, names: fn(&Places) -> &[String], name: &str) -> bool {
        self.entries.iter().any(|entry| names(&entry.places).iter().any(|one| one == name))
    }

    /// Checks a libvirt network. `field` names the field in messages.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`], whether it exists or not.
    pub(crate) fn network(&self, field: &str, name: &str) -> Result<()> {
        if name == DEFAULT_NETWORK || self.has(|places| &places.networks, name) {
            return Ok(());
        }
        Err(refused(field, "network", "networks"))
    }

    /// Checks a bridge of a hypervisor.
    ///
    /// # Errors
    /// As for [`network`](Self::network).
    pub(crate) fn bridge(&self, field: &str, name: &str) -> Result<()> {
        if self.has(|places| &places.bridges, name) {
            Ok(())
        } else {
            Err(refused(field, "bridge", "bridges"))
        }
    }

    /// Checks a device that is shared by macvtap, or given to one guest alone.
    ///
    /// # Errors
    /// As for [`network`](Self::network).
    pub(crate) fn macvtap_device(&self, field: &str, name: &str, is_passthrough: bool) -> Result<()> {
        let of_name = |places: &&Places| places.macvtap_devices.iter().any(|one| one == name);
        let mut places = self.entries.iter().map(|entry| &entry.places).filter(of_name).peekable();
        if places.peek().is_none() {
            return Err(refused(&format!("{field}.device"), "device", "macvtapDevices"));
        }
        if is_passthrough && !places.any(|places| places.has_macvtap_passthrough) {
            return Err(refused(&format!("{field}.mode"), "mode", "macvtapPassthrough"));
        }
        Ok(())
    }

    /// Checks the pool of a disk.
    ///
    /// # Errors
    /// As for [`network`](Self::network).
    pub(crate) fn pool(&self, field: &str, name: &str) -> Result<()> {
        if name == DEFAULT_POOL || self.has(|places| &places.pools, name) {
            return Ok(());
        }
        Err(refused(field, "storage pool", "pools"))
    }

    /// Checks that an object may choose a MAC address.
    ///
    /// # Errors
    /// As for [`network`](Self::network).
    pub(crate) fn mac_address(&self, field: &str) -> Result<()> {
        if self.entries.iter().any(|entry| entry.places.has_mac_addresses) {
            return Ok(());
        }
        Err(refused(field, "MAC address", "macAddresses"))
    }

    /// Whether machines of the namespace may be on this hypervisor.
    pub(crate) fn has_hypervisor(&self, name: &str) -> bool {
        let lists = || self.entries.iter().filter_map(|entry| entry.places.hypervisors.as_ref());
        !self.are_hypervisors_listed || lists().flatten().any(|one| one == name)
    }

    /// Checks a hypervisor that a field names.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`], whether it exists or not.
    pub(crate) fn hypervisor(&self, field: &str, name: &str) -> Result<()> {
        if self.has_hypervisor(name) { Ok(()) } else { Err(refused(field, "hypervisor", "hypervisors")) }
    }

    /// The error of a namespace that has no hypervisor at all.
    pub(crate) fn no_hypervisor() -> Error {
        let words = "objects of this namespace may be on no hypervisor; which they may is in the configuration of the \
                     provider, machines.allow, under hypervisors";
        Error::new(ErrorKind::PermissionDenied, words)
    }
}
