//! Finds objects of the inventory by the words that people use for them.
//!
//! A word is a name (`k8s`), a path from the folder of its kind (`DC0_C0/Resources`), a whole path
//! (`/DC0/host/DC0_C0/Resources`), or a managed object ID (`resgroup-8`). Names and paths may be patterns, as in the tools of vSphere
//! ([`words`](crate::words)). Exactly one object must match.

use cloudprovider::{Error, ErrorKind, Result, uuids::parse_uuid};

use crate::{
    inventory::Inventory,
    moref::MoRef,
    vm::VirtualMachine,
    words::{Named, could_mean, listed, meant},
};

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
        let all: Vec<_> = all.map(|entity| self.named(entity, entity.clone())).collect();
        let word = word.unwrap_or_default();
        if word.is_empty() || word == "*" {
            return self.one("datacenter", "*", None, &all.iter().collect::<Vec<_>>(), &[]);
        }
        self.one("datacenter", word, None, &meant(word, &[], &all), &all)
    }

    /// The folder that `spec.folder` means. Without a word it is the one for all machines of the datacenter.
    ///
    /// # Errors
    /// As [`datacenter`](Self::datacenter).
    pub(crate) fn folder(self, datacenter: &MoRef, word: Option<&str>) -> Result<MoRef> {
        let all = self.below(datacenter, "vm", |entity| entity.kind() == "Folder");
        let word = word.unwrap_or_default();
        if word.is_empty() {
            let root = self.root(datacenter, "vm");
            let found: Vec<_> = all.iter().filter(|one| one.path == root).collect();
            return self.one("folder", "", Some(datacenter), &found, &[]);
        }
        self.one("folder", word, Some(datacenter), &meant(word, &self.root(datacenter, "vm"), &all), &all)
    }

    /// The resource pool that `spec.resourcePool` means. Without a word it is that of the only cluster or host. A word for a cluster or a
    /// host means the pool that has all others of it.
    ///
    /// # Errors
    /// As [`datacenter`](Self::datacenter).
    pub(crate) fn resource_pool(self, datacenter: &MoRef, word: Option<&str>) -> Result<MoRef> {
        let all = self.below(datacenter, "host", |entity| entity.kind() == "ResourcePool");
        let owner = |pool: &MoRef| self.inventory.parents().get(pool).filter(|parent| is_compute(parent));
        let word = word.unwrap_or_default();
        if word.is_empty() {
            let found: Vec<_> = all.iter().filter(|one| owner(&one.moref).is_some()).collect();
            return self.one("resourcePool", "", Some(datacenter), &found, &[]);
        }
        let root = self.root(datacenter, "host");
        let found = meant(word, &root, &all);
        if !found.is_empty() {
            return self.one("resourcePool", word, Some(datacenter), &found, &all);
        }
        let owners = all.iter().filter_map(|one| Some(self.named(owner(&one.moref)?, one.object.clone())));
        let owners: Vec<_> = owners.collect();
        self.one("resourcePool", word, Some(datacenter), &meant(word, &root, &owners), &all)
    }

    /// The cluster of hosts that `computeCluster` means.
    ///
    /// # Errors
    /// As [`datacenter`](Self::datacenter).
    pub(crate) fn compute_cluster(self, datacenter: &MoRef, word: &str) -> Result<MoRef> {
        let all = self.below(datacenter, "host", |entity| entity.kind() == "ClusterComputeResource");
        let found = meant(word, &self.root(datacenter, "host"), &all);
        self.one("computeCluster", word, Some(datacenter), &found, &all)
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
        Ok(self.named(pool, ()).escaped())
    }

    /// The folders of a datacenter and its datastore clusters: what may contain networks and datastores.
    pub(crate) fn containers(self, datacenter: &MoRef) -> Vec<Named<MoRef>> {
        let kinds = |entity: &MoRef| matches!(entity.kind(), "Folder" | "StoragePod");
        let mut found = self.below(datacenter, "network", kinds);
        found.extend(self.below(datacenter, "datastore", kinds));
        found
    }

    /// The names that lead to a datacenter.
    pub(crate) fn path_to(self, datacenter: &MoRef) -> Vec<String> {
        self.path(datacenter)
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
        let named = |vm: &'a VirtualMachine| Named {
            path: self.machine_path(vm),
            moref: vm.moref.clone(),
            object: vm,
        };
        let is_possible = |vm: &&'a VirtualMachine| match uuid {
            Some(uuid) => vm.instance_uuid == Some(uuid),
            None => could_mean(word, &vm.name, &vm.moref),
        };
        let all: Vec<_> = self.inventory.machines().filter(is_possible).filter(here).map(named).collect();
        let found = match uuid {
            Some(_) => all.iter().collect(),
            None => meant(word, &self.root(datacenter, "vm"), &all),
        };
        let templates: Vec<_> = found.iter().filter(|one| one.object.is_template).copied().collect();
        // a template is meant rather than a machine of the same name
        let found = if templates.is_empty() { found } else { templates };
        let others: Vec<_> = if found.is_empty() {
            self.inventory.machines().filter(|vm| vm.is_template).filter(here).map(named).collect()
        } else {
            Vec::new()
        };
        self.one("template", word, Some(datacenter), &found, &others)
    }

    fn machine_path(self, vm: &VirtualMachine) -> Vec<String> {
        let mut path = vm.folder.as_ref().map(|folder| self.path(folder)).unwrap_or_default();
        path.push(vm.name.to_string());
        path
    }

    fn named<T>(self, entity: &MoRef, object: T) -> Named<T> {
        Named { path: self.path(entity), moref: entity.clone(), object }
    }

    /// The names that lead to a folder of a datacenter.
    fn root(self, datacenter: &MoRef, folder: &str) -> Vec<String> {
        let mut path = self.path(datacenter);
        path.push(folder.to_owned());
        path
    }

    /// The names from the root to an object, without that of the root.
    fn path(self, entity: &MoRef) -> Vec<String> {
        self.inventory.path_of(entity)
    }

    /// The objects below the folder `root` of the datacenter, itself included.
    fn below(self, datacenter: &MoRef, root: &str, is_kind: impl Fn(&MoRef) -> bool) -> Vec<Named<MoRef>> {
        let root = self.root(datacenter, root);
        let mut found: Vec<_> = self
            .inventory
            .entities()
            .filter(|entity| is_kind(entity) && self.inventory.path_up(entity).contains(datacenter))
            .map(|entity| self.named(entity, entity.clone()))
            .filter(|one| one.path.starts_with(&root))
            .collect();
        found.sort_by(|one, other| (&one.path, &one.moref).cmp(&(&other.path, &other.moref)));
        found
    }

    /// The only one of those found in a datacenter, or in all of them. An error about a word that none has lists what there is.
    fn one<T: Clone>(
        self,
        field: &str,
        word: &str,
        datacenter: Option<&MoRef>,
        found: &[&Named<T>],
        all: &[Named<T>],
    ) -> Result<T> {
        if let [only] = found {
            return Ok(only.object.clone());
        }
        let (field, place) = (self.field(field), self.place(datacenter));
        let several = || listed(found.iter().copied());
        let (kind, words) = match (found.is_empty(), word) {
            (true, "" | "*") => (ErrorKind::NotFound, format!("there is none in {place}")),
            (true, word) if all.is_empty() || !self.lists_others => {
                (ErrorKind::NotFound, format!("there is no {word:?} in {place}"))
            }
            (true, word) => {
                (ErrorKind::NotFound, format!("there is no {word:?} in {place}; it has {}", listed(all)))
            }
            (false, "" | "*") if !self.lists_others => {
                (ErrorKind::InvalidInput, "there are several, so one must be named".to_owned())
            }
            (false, word) if !self.lists_others => {
                (ErrorKind::InvalidInput, format!("{word:?} means several; name one by its whole path"))
            }
            (false, "" | "*") => {
                let words = format!("there are several, so one must be named: {}", several());
                (ErrorKind::InvalidInput, words)
            }
            (false, word) => (ErrorKind::InvalidInput, format!("{word:?} means several: {}", several())),
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

/// Whether an object is a cluster of hosts, or a host on its own.
fn is_compute(object: &MoRef) -> bool {
    matches!(object.kind(), "ClusterComputeResource" | "ComputeResource")
}

#[cfg(test)]
mod tests;
