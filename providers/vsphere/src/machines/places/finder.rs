//! Finds objects of the inventory by the words that people use for them.
//!
//! A word is a name (`k8s`), a path from the datacenter (`DC0_C0/Resources`), a whole path
//! (`/DC0/host/DC0_C0/Resources`), or a managed object ID (`resgroup-8`). Names and paths may have `*` and `?`, as
//! in the tools of vSphere. Exactly one object must match.

use cloudprovider::{Error, ErrorKind, Result, uuids::parse_uuid};

use crate::{glob, inventory::Inventory, moref::MoRef, vm::VirtualMachine};

/// How many objects an error lists.
const MAX_LISTED: usize = 5;

/// Objects with their whole paths.
type Paths<T> = Vec<(String, T)>;

/// Finds objects in one inventory.
#[derive(Clone, Copy)]
pub(crate) struct Finder<'a> {
    /// Host and port of the vCenter, for errors.
    vcenter: &'a str,
    inventory: &'a Inventory,
    /// Only these datacenters are used; all if empty.
    datacenters: &'a [MoRef],
    /// What the names of fields begin with, for errors.
    prefix: &'a str,
    /// Whether the error about a word that nothing has says what there is.
    lists_others: bool,
}

impl<'a> Finder<'a> {
    /// A finder in the inventory of the vCenter at this host and port, of which only these datacenters are used, or all.
    pub(crate) fn new(vcenter: &'a str, inventory: &'a Inventory, datacenters: &'a [MoRef]) -> Self {
        Self { vcenter, inventory, datacenters, prefix: "spec.", lists_others: true }
    }

    /// The same for the fields of a zone, whose names begin with `prefix`. More people may read a zone than know the inventory, so an
    /// error says no more than whether what the zone names is there.
    #[must_use]
    pub(crate) fn for_zone(self, prefix: &'a str) -> Self {
        Self { prefix, lists_others: false, ..self }
    }

    /// The same, but errors do not say what there is: people may read them who may not name all of it.
    #[must_use]
    pub(crate) fn discreet(self, is_discreet: bool) -> Self {
        Self { lists_others: self.lists_others && !is_discreet, ..self }
    }

    fn field(self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The datacenter that `spec.datacenter` means. Without a word, or with `*`, it is the only one.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], or [`ErrorKind::InvalidInput`] where several match, with the name of the field.
    pub(crate) fn datacenter(self, word: Option<&str>) -> Result<MoRef> {
        let all = self.inventory.entities().filter(|entity| entity.kind() == "Datacenter");
        let all = all.filter(|entity| self.datacenters.is_empty() || self.datacenters.contains(entity));
        let all: Vec<_> = all.map(|entity| (self.path(entity).join("/"), entity.clone())).collect();
        let word = word.unwrap_or_default();
        if word.is_empty() || word == "*" {
            return self.one("datacenter", "*", None, (all, Vec::new()));
        }
        let wanted = word.trim_matches('/');
        let is_meant = |(path, entity): &(String, MoRef)| {
            entity.id() == word
                || word.strip_prefix("Datacenter:") == Some(entity.id())
                || glob(wanted, path)
                || (!wanted.contains('/') && path.rsplit('/').next().is_some_and(|name| glob(wanted, name)))
        };
        let (found, others) = all.into_iter().partition(is_meant);
        self.one("datacenter", word, None, (found, others))
    }

    /// The folder that `spec.folder` means. Without a word it is the one for all machines of the datacenter.
    ///
    /// # Errors
    /// As [`datacenter`](Self::datacenter).
    pub(crate) fn folder(self, datacenter: &MoRef, word: Option<&str>) -> Result<MoRef> {
        let found = self.below(datacenter, "vm", |entity| entity.kind() == "Folder");
        let word = word.unwrap_or_default();
        if word.is_empty() {
            // the folder for all machines has no path below itself
            let found = found.into_iter().filter(|(path, _)| path.ends_with("/vm")).collect();
            return self.one("folder", "", Some(datacenter), (found, Vec::new()));
        }
        self.choose("folder", word, datacenter, "vm", found)
    }

    /// The resource pool that `spec.resourcePool` means. Without a word it is that of the only cluster or host.
    ///
    /// # Errors
    /// As [`datacenter`](Self::datacenter).
    pub(crate) fn resource_pool(self, datacenter: &MoRef, word: Option<&str>) -> Result<MoRef> {
        let found = self.below(datacenter, "host", |entity| entity.kind() == "ResourcePool");
        let word = word.unwrap_or_default();
        if word.is_empty() {
            let is_root = |(_, pool): &(String, MoRef)| {
                self.inventory.parents().get(pool).is_some_and(|parent| parent.kind() != "ResourcePool")
            };
            let found = found.into_iter().filter(is_root).collect();
            return self.one("resourcePool", "", Some(datacenter), (found, Vec::new()));
        }
        self.choose("resourcePool", word, datacenter, "host", found)
    }

    /// The cluster of hosts that `computeCluster` means.
    ///
    /// # Errors
    /// As [`datacenter`](Self::datacenter).
    pub(crate) fn compute_cluster(self, datacenter: &MoRef, word: &str) -> Result<MoRef> {
        let found = self.below(datacenter, "host", |entity| entity.kind() == "ClusterComputeResource");
        self.choose("computeCluster", word, datacenter, "host", found)
    }

    /// The path to the resource pool of a cluster of hosts that has all others of it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub(crate) fn root_pool(self, cluster: &MoRef) -> Result<String> {
        let parents = self.inventory.parents();
        let is_root = |pool: &&MoRef| pool.kind() == "ResourcePool" && parents.get(pool) == Some(cluster);
        let pool = self.inventory.entities().find(is_root);
        let pool = pool.ok_or_else(|| {
            let words = format!("{}: {:?} has no resource pool", self.field("computeCluster"), cluster.id());
            Error::new(ErrorKind::NotFound, words)
        })?;
        Ok(format!("/{}", self.path(pool).join("/")))
    }

    /// The datastore clusters of a datacenter, by their whole paths.
    pub(crate) fn storage_pods(self, datacenter: &MoRef) -> Paths<MoRef> {
        self.below(datacenter, "datastore", |entity| entity.kind() == "StoragePod")
    }

    /// Whether an object is below another one.
    pub(crate) fn is_below(self, object: &MoRef, above: &MoRef) -> bool {
        self.inventory.path_up(object).contains(above)
    }

    /// The machine or template that `spec.template` means. It may also be an instance UUID.
    ///
    /// # Errors
    /// As [`datacenter`](Self::datacenter).
    pub(crate) fn template(self, datacenter: &MoRef, word: &str) -> Result<&'a VirtualMachine> {
        let uuid = parse_uuid(word);
        let here = |vm: &&'a VirtualMachine| match self.inventory.datacenter_of(vm) {
            Some(at) => at == *datacenter,
            None => true,
        };
        let machines = || self.inventory.machines().filter(here);
        let (wanted, is_path) = (word.trim_start_matches('/'), word.contains('/'));
        let is_meant = |vm: &&'a VirtualMachine| match uuid {
            Some(uuid) => vm.instance_uuid == Some(uuid),
            None if is_path => {
                let path = self.machine_path(vm);
                let place = format!("{}/vm/", self.path(datacenter).join("/"));
                let short = path.strip_prefix(&place);
                glob(wanted, &path)
                    || (!word.starts_with('/') && short.is_some_and(|short| glob(wanted, short)))
            }
            None => glob(word, &vm.name) || vm.moref.id() == word,
        };
        let found: Vec<_> = machines().filter(is_meant).collect();
        let templates: Vec<_> = found.iter().filter(|vm| vm.is_template).copied().collect();
        // a template is meant rather than a machine of the same name
        let found = if templates.is_empty() { found } else { templates };
        let all_templates = || self.inventory.machines().filter(|vm| vm.is_template).filter(here).collect();
        let others = if found.is_empty() { all_templates() } else { Vec::new() };
        let with_path = |vms: Vec<&'a VirtualMachine>| {
            let vms = vms.into_iter().map(|vm| (self.machine_path(vm), vm));
            vms.collect()
        };
        self.one("template", word, Some(datacenter), (with_path(found), with_path(others)))
    }

    fn machine_path(self, vm: &VirtualMachine) -> String {
        let mut path = vm.folder.as_ref().map(|folder| self.path(folder)).unwrap_or_default();
        path.push(vm.name.to_string());
        path.join("/")
    }

    /// The names from the root to an object, without that of the root.
    fn path(self, entity: &MoRef) -> Vec<String> {
        let up = self.inventory.path_up(entity);
        let down = up[..up.len().saturating_sub(1)].iter().rev();
        down.map(|one| self.inventory.name_of(one).unwrap_or("?").to_owned()).collect()
    }

    /// The whole paths of the objects below the folder `root` of the datacenter, itself included.
    fn below(self, datacenter: &MoRef, root: &str, is_kind: impl Fn(&MoRef) -> bool) -> Paths<MoRef> {
        let place = format!("{}/{root}", self.path(datacenter).join("/"));
        let mut found: Vec<_> = self
            .inventory
            .entities()
            .filter(|entity| is_kind(entity) && self.inventory.path_up(entity).contains(datacenter))
            .map(|entity| (self.path(entity).join("/"), entity.clone()))
            .filter(|(path, _)| *path == place || path.starts_with(&format!("{place}/")))
            .collect();
        found.sort();
        found
    }

    fn choose(
        self,
        field: &str,
        word: &str,
        datacenter: &MoRef,
        root: &str,
        all: Paths<MoRef>,
    ) -> Result<MoRef> {
        let place = format!("{}/{root}/", self.path(datacenter).join("/"));
        let wanted = word.trim_matches('/');
        let is_meant = |(path, entity): &(String, MoRef)| {
            if entity.id() == word || glob(wanted, path) {
                return true;
            }
            if word.starts_with('/') {
                return false;
            }
            let short = path.strip_prefix(&place).unwrap_or(path);
            glob(wanted, short)
                || (!wanted.contains('/') && path.rsplit('/').next().is_some_and(|name| glob(wanted, name)))
        };
        let (found, others) = all.into_iter().partition(is_meant);
        self.one(field, word, Some(datacenter), (found, others))
    }

    /// The only one of those found in a datacenter, or in all of them. An error about a word that none has lists the others.
    fn one<T>(
        self,
        field: &str,
        word: &str,
        datacenter: Option<&MoRef>,
        (mut found, others): (Paths<T>, Paths<T>),
    ) -> Result<T> {
        let only = if found.len() == 1 { found.pop() } else { None };
        if let Some((_, only)) = only {
            return Ok(only);
        }
        let (field, place) = (self.field(field), self.place(datacenter));
        let (kind, words) = match (found.is_empty(), word) {
            (true, "" | "*") => (ErrorKind::NotFound, format!("there is none in {place}")),
            (true, word) if others.is_empty() || !self.lists_others => {
                (ErrorKind::NotFound, format!("there is no {word:?} in {place}"))
            }
            (true, word) => {
                let listed = listed(others);
                (ErrorKind::NotFound, format!("there is no {word:?} in {place}; it has {listed}"))
            }
            (false, "" | "*") if !self.lists_others => {
                (ErrorKind::InvalidInput, "there are several, so one must be named".to_owned())
            }
            (false, word) if !self.lists_others => {
                (ErrorKind::InvalidInput, format!("{word:?} means several; name one by its whole path"))
            }
            (false, "" | "*") => {
                let words = format!("there are several, so one must be named: {}", listed(found));
                (ErrorKind::InvalidInput, words)
            }
            (false, word) => (ErrorKind::InvalidInput, format!("{word:?} means several: {}", listed(found))),
        };
        Err(Error::new(kind, format!("{field}: {words}")))
    }

    /// Where was looked, for errors.
    fn place(self, datacenter: Option<&MoRef>) -> String {
        let vcenter = self.vcenter;
        match datacenter {
            Some(datacenter) => {
                format!("datacenter {:?} of vCenter {vcenter:?}", self.path(datacenter).join("/"))
            }
            None if self.datacenters.is_empty() => format!("vCenter {vcenter:?}"),
            None => format!("the part of vCenter {vcenter:?} that is used"),
        }
    }
}

/// The first paths of objects.
fn listed<T>(objects: Paths<T>) -> String {
    let mut paths: Vec<_> = objects.into_iter().map(|(path, _)| format!("/{path}")).collect();
    paths.sort();
    let more = if paths.len() > MAX_LISTED { ", ..." } else { "" };
    paths.truncate(MAX_LISTED);
    format!("{}{more}", paths.join(", "))
}

/// Whether a text matches a pattern with `*` and `?`, neither of which matches a slash.
fn glob(pattern: &str, text: &str) -> bool {
    let mut patterns = pattern.split('/');
    let mut texts = text.split('/');
    loop {
        match (patterns.next(), texts.next()) {
            (None, None) => return true,
            (Some(pattern), Some(text)) => {
                if !glob::matches(pattern, text) {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests;
