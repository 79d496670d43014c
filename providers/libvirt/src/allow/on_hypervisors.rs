//! What an object may name of a hypervisor: networks, bridges, devices, pools, and the hypervisor itself.

use cloudprovider::{Error, ErrorKind, Result};

use super::{
    Allowed,
    places::{DEFAULT_NETWORK, DEFAULT_POOL, Places},
    refused,
};

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
