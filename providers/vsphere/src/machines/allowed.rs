//! What the objects of a namespace may name, as the configuration lists it. Pure.
//!
//! The objects themselves are compared, by reference and inventory path, once the words of a spec have led to them. So neither a pattern
//! nor another spelling leads further than the list, whoever wrote the word: a machine, its template, or its failure domain.
//!
//! With an `identityRef`, the privileges of those credentials decide about the inventory. What vCenter has no privilege for is listed for
//! them too: the keys of `customVMXKeys`, servers, and whether a virtual machine counts as a template.

use cloudprovider::{Error, ErrorKind, Result};

use super::spec::{MAX_VMX_KEYS, MAX_VMX_VALUE, PciDeviceSpec, VirtualMachineCloneSpec, invalid};
use crate::{
    config::{ALLOW, AllowEntry, ObjectPattern, WordPattern},
    moref::MoRef,
};

/// Keys of `customVMXKeys` that need no entry: they concern the own guest alone, or are what a device needs that has an entry.
const OPEN_VMX_KEYS: [&str; 4] =
    ["guestinfo.*", "disk.enableuuid", "pcipassthru.use64bitmmio", "pcipassthru.64bitmmiosizegb"];

/// What the keys of the extra configuration begin with that this program sets or reads itself.
const OWN_VMX_KEYS: [&str; 4] = [
    "cloud-controller-manager.",
    "guestinfo.userdata",
    "guestinfo.metadata",
    "guestinfo.ignition.config.data",
];

const TEMPLATE: &str = "spec.template";

/// An object of the inventory that a field has led to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Located<'a> {
    pub(crate) object: &'a MoRef,
    /// The names from the root on, without that of the root.
    pub(crate) path: &'a [String],
    /// Whether it is the one without a word.
    pub(crate) is_default: bool,
}

/// What the objects of one namespace may name on one vCenter.
#[derive(Clone, Debug)]
pub(crate) struct Allowed<'a> {
    namespace: &'a str,
    entries: Vec<&'a AllowEntry>,
    has_identity: bool,
}

impl<'a> Allowed<'a> {
    /// What these entries list for a namespace on a vCenter, by its name in the configuration. `has_identity`: its cluster names
    /// credentials.
    pub(crate) fn new(
        entries: &'a [AllowEntry],
        namespace: &'a str,
        vcenter: &str,
        has_identity: bool,
    ) -> Self {
        let is_of = |entry: &&AllowEntry| {
            entry.vcenters.is_empty() || entry.vcenters.iter().any(|one| one == vcenter)
        };
        let entries = entries.iter().filter(|entry| is_for(entry, namespace)).filter(is_of).collect();
        Self { namespace, entries, has_identity }
    }

    /// The template at this place.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] with the name of the field and the key of the configuration, as for all others.
    pub(crate) fn template(&self, word: &str, at: Located<'_>) -> Result<()> {
        self.object(TEMPLATE, word, "templates", |entry| &entry.templates, at)
    }

    /// A virtual machine that is no template, in the place of one. Also with credentials that a cluster names.
    pub(crate) fn machine_as_template(&self, word: &str) -> Result<()> {
        if self.entries.iter().any(|entry| entry.machines_as_templates) {
            return Ok(());
        }
        let what = format!("{word:?}, a virtual machine that is no template,");
        Err(self.denied(TEMPLATE, word, &what, "machinesAsTemplates: true"))
    }

    /// The folder of a machine.
    pub(crate) fn folder(&self, word: Option<&str>, at: Located<'_>) -> Result<()> {
        self.object("spec.folder", word.unwrap_or_default(), "folders", |entry| &entry.folders, at)
    }

    /// The resource pool of a machine.
    pub(crate) fn resource_pool(&self, word: Option<&str>, at: Located<'_>) -> Result<()> {
        let list = |entry: &'a AllowEntry| &entry.resource_pools;
        self.object("spec.resourcePool", word.unwrap_or_default(), "resourcePools", list, at)
    }

    /// The datastore or datastore cluster of a machine.
    pub(crate) fn datastore(&self, word: Option<&str>, at: Located<'_>) -> Result<()> {
        let list = |entry: &'a AllowEntry| &entry.datastores;
        self.object("spec.datastore", word.unwrap_or_default(), "datastores", list, at)
    }

    /// Whether the datastores of a storage policy are limited to those of a list.
    pub(crate) fn limits_datastores(&self) -> bool {
        !self.has_identity && self.entries.iter().any(|entry| !entry.datastores.is_empty())
    }

    /// The network of the device `field`.
    pub(crate) fn network(&self, field: &str, word: &str, at: Located<'_>) -> Result<()> {
        self.object(field, word, "networks", |entry| &entry.networks, at)
    }

    /// A virtual machine that Cluster API Provider vSphere has made.
    pub(crate) fn take_over(&self, at: Located<'_>) -> Result<()> {
        let list = |entry: &'a AllowEntry| &entry.take_over;
        if self.has_identity || self.lists(list, at) {
            return Ok(());
        }
        let words = format!(
            "virtual machines of Cluster API Provider vSphere are taken over where {ALLOW} of the controller's configuration lists them \
             for the namespace {} under takeOver, or the cluster has an identityRef",
            self.namespace
        );
        Err(Error::new(ErrorKind::PermissionDenied, words))
    }

    /// What a spec names by words alone.
    pub(crate) fn words(&self, spec: &VirtualMachineCloneSpec) -> Result<()> {
        let policy = spec.storage_policy_name.as_deref().filter(|name| !name.is_empty());
        if let Some(policy) = policy {
            self.word("spec.storagePolicyName", policy, "storagePolicies", |entry| &entry.storage_policies)?;
        }
        for (number, device) in spec.network.devices.iter().enumerate() {
            if let Some(mac) = device.mac_addr.as_deref().filter(|mac| !mac.is_empty()) {
                let field = format!("spec.network.devices[{number}].macAddr");
                self.word(&field, &mac.replace('-', ":"), "macAddresses", |entry| &entry.mac_addresses)?;
            }
        }
        for (number, device) in spec.pci_devices.iter().enumerate() {
            if let Some(word) = word_of(device) {
                let field = format!("spec.pciDevices[{number}]");
                self.word(&field, &word, "pciDevices", |entry| &entry.pci_devices)?;
            }
        }
        self.tags(spec)?;
        let count = spec.custom_vmx_keys.len();
        if count > MAX_VMX_KEYS {
            let words = format!("spec.customVMXKeys: there are {count} keys; give at most {MAX_VMX_KEYS}");
            return Err(invalid(words));
        }
        spec.custom_vmx_keys.iter().try_for_each(|(key, value)| self.vmx_key(key, value))
    }

    /// The tags of a machine.
    pub(crate) fn tags(&self, spec: &VirtualMachineCloneSpec) -> Result<()> {
        let one = |(number, tag): (usize, &String)| {
            self.word(&format!("spec.tagIDs[{number}]"), tag, "tags", |entry| &entry.tags)
        };
        spec.tag_ids.iter().enumerate().try_for_each(one)
    }

    fn vmx_key(&self, key: &str, value: &str) -> Result<()> {
        let field = format!("spec.customVMXKeys[{key}]");
        let lower = key.to_lowercase();
        if OWN_VMX_KEYS.iter().any(|own| lower.starts_with(own)) {
            return Err(invalid(format!("{field}: this key is set by the controller")));
        }
        // anything else could end the line in the file of the machine
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || ".:_-".contains(c)) {
            return Err(invalid(format!("{field}: a key has letters, digits, and . : _ - alone")));
        }
        let length = value.chars().count();
        if length > MAX_VMX_VALUE {
            let words = format!("{field}: the value has {length} characters; give at most {MAX_VMX_VALUE}");
            return Err(invalid(words));
        }
        let open = OPEN_VMX_KEYS.iter().filter_map(|open| WordPattern::read(open));
        let mut listed = self.entries.iter().flat_map(|entry| &entry.vmx_keys).cloned().chain(open);
        if listed.any(|pattern| pattern.matches(key)) {
            return Ok(());
        }
        Err(self.denied(&field, key, "this key", "vmxKeys"))
    }

    fn object(
        &self,
        field: &str,
        word: &str,
        key: &'static str,
        list: impl Fn(&'a AllowEntry) -> &'a Vec<ObjectPattern>,
        at: Located<'_>,
    ) -> Result<()> {
        let is_listed = self.entries.iter().any(|entry| !list(entry).is_empty());
        if self.has_identity
            || (at.is_default && !is_listed && !self.entries.is_empty())
            || self.lists(list, at)
        {
            return Ok(());
        }
        let what =
            if word.is_empty() { "what stands for a missing word".to_owned() } else { format!("{word:?}") };
        Err(self.denied(field, word, &what, key))
    }

    fn lists(&self, list: impl Fn(&'a AllowEntry) -> &'a Vec<ObjectPattern>, at: Located<'_>) -> bool {
        self.entries.iter().flat_map(|entry| list(entry)).any(|pattern| pattern.matches(at.object, at.path))
    }

    fn word(
        &self,
        field: &str,
        word: &str,
        key: &'static str,
        list: impl Fn(&'a AllowEntry) -> &'a Vec<WordPattern>,
    ) -> Result<()> {
        if self.has_identity || self.entries.iter().flat_map(|entry| list(entry)).any(|one| one.matches(word))
        {
            return Ok(());
        }
        Err(self.denied(field, word, &format!("{word:?}"), key))
    }

    fn denied(&self, field: &str, word: &str, what: &str, key: &str) -> Error {
        let namespace = self.namespace;
        tracing::debug!(%namespace, field, word, key, "a machine names what its namespace may not name");
        let none = if self.entries.is_empty() { ": no entry is for this namespace and vCenter" } else { "" };
        let words = format!(
            "{field}: {what} is not permitted: {ALLOW} of the controller's configuration does not list it for the namespace {namespace} \
             under {key}{none}"
        );
        Error::new(ErrorKind::PermissionDenied, words)
    }
}

/// Whether the objects of a namespace may name a server with an `identityRef`. Those of the configuration need no entry.
pub(crate) fn allows_server(entries: &[AllowEntry], namespace: &str, authority: &str) -> bool {
    let mut servers =
        entries.iter().filter(|entry| is_for(entry, namespace)).flat_map(|entry| &entry.servers);
    servers.any(|server| server.matches(authority))
}

/// The error about a server that may not be named.
pub(crate) fn server_denied(field: &str, namespace: &str, authority: &str) -> Error {
    let words = format!(
        "{field}: {authority:?} is no vCenter of the controller's configuration, and {ALLOW} there does not list it for the namespace \
         {namespace} under servers"
    );
    Error::new(ErrorKind::PermissionDenied, words)
}

fn is_for(entry: &AllowEntry, namespace: &str) -> bool {
    entry.namespaces.is_empty() || entry.namespaces.iter().any(|one| one == namespace)
}

/// How the configuration writes a PCI device. `None` for one that is none.
fn word_of(device: &PciDeviceSpec) -> Option<String> {
    let profile = device.vgpu_profile.clone().filter(|profile| !profile.is_empty());
    // an ID of 16 bits may be written as a negative number
    let id = |number: i32| format!("{:04x}", if number < 0 { number & 0xffff } else { number });
    profile.or_else(|| Some(format!("{}:{}", id(device.vendor_id?), id(device.device_id?))))
}

#[cfg(test)]
mod tests;
