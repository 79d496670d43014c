//! The in-memory inventory of one vCenter: machines with their identifying properties, and the objects above
//! them.

mod departed;
mod machines;
mod metadata;
mod properties;
mod shared;

use std::collections::{HashMap, HashSet};

use cloudprovider::InstanceRef;
use uuid::Uuid;

use crate::{
    moref::MoRef,
    provider_id::{byte_orders, format_provider_id},
    vim::{
        element::Element,
        property_collector::{ObjectUpdate, UpdateKind},
    },
    vm::VirtualMachine,
    words::{Named, meant},
    zones::Parents,
};

pub(crate) use crate::glob::unescaped;
use departed::Departed;
use machines::{By, Key, Machine, Machines};
use metadata::Metadata;
#[cfg(feature = "machines")]
pub(crate) use properties::parse_mac;
pub(crate) use properties::{ENTITY_PATHS, machine_paths};
use shared::SharedTexts;

/// The types that are read beside machines: everything that may contain a machine.
pub(crate) const ENTITY_KINDS: [&str; 5] =
    ["HostSystem", "ComputeResource", "ResourcePool", "Folder", "Datacenter"];

/// More changes than this at once are reported as one.
pub(crate) const MANY_CHANGES: usize = 512;

/// The limit on the length of a chain of parents.
const DEEPEST: usize = 64;

/// The changes to report.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The machines that appeared, changed or vanished: all of them, or more than [`MANY_CHANGES`].
    pub(crate) instances: Vec<InstanceRef>,
    /// Whether an object above machines appeared, moved or vanished.
    pub(crate) is_moved: bool,
}

impl Changes {
    /// Adds machines. Once there are more than [`MANY_CHANGES`], no more are kept: a listing would be a
    /// second inventory.
    pub(crate) fn add(&mut self, instances: Vec<InstanceRef>) {
        let room = (MANY_CHANGES + 1).saturating_sub(self.instances.len());
        self.instances.extend(instances.into_iter().take(room));
    }
}

/// The machines of a vCenter and the objects above them.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    machines: Machines,
    /// Texts that machines have in common.
    texts: SharedTexts,
    /// All objects other than machines, with their names, unescaped.
    entities: HashMap<MoRef, Box<str>>,
    /// The parent of each of those objects.
    parents: Parents,
    departed: Departed,
}

impl Inventory {
    /// Applies updates from vCenter.
    pub(crate) fn apply(&mut self, updates: &[ObjectUpdate<'_>]) -> Changes {
        let mut changes = Changes::default();
        for update in updates {
            if update.object.kind() == "VirtualMachine" {
                self.apply_to_machine(update, &mut changes);
            } else if ENTITY_KINDS.contains(&update.object.kind())
                || matches!(update.object.kind(), "ClusterComputeResource" | "VirtualApp" | "StoragePod")
            {
                self.apply_to_entity(update, &mut changes);
            }
        }
        changes
    }

    fn apply_to_machine(&mut self, update: &ObjectUpdate<'_>, changes: &mut Changes) {
        let reference = &update.object;
        let before = self.machines.remove(reference);
        if update.kind == UpdateKind::Leave {
            if let Some(machine) = before {
                changes.add(refs(&machine.vm));
                self.departed.add(&machine.vm);
            }
            return;
        }
        let (mut vm, mut metadata) = match &before {
            Some(machine) => (machine.vm.clone(), machine.metadata.clone()),
            None => (VirtualMachine::new(reference.clone(), reference.id()), None),
        };
        let mut wanted = metadata.take().map(|boxed| *boxed).unwrap_or_default();
        properties::apply(&mut vm, &mut wanted, &update.properties);
        vm.shared_texts().for_each(|text| self.texts.share(text));
        let metadata = (wanted != Metadata::default()).then(|| Box::new(wanted));
        match &before {
            Some(machine) if machine.vm == vm => {}
            Some(machine) => {
                changes.add(refs(&machine.vm));
                if identity(&machine.vm) != identity(&vm) {
                    changes.add(refs(&vm));
                }
            }
            None => changes.add(refs(&vm)),
        }
        if before.is_none() {
            self.departed.remove(reference);
        }
        self.machines.insert(Machine { vm, metadata });
    }

    fn apply_to_entity(&mut self, update: &ObjectUpdate<'_>, changes: &mut Changes) {
        let reference = &update.object;
        if update.kind == UpdateKind::Leave {
            self.parents.remove(reference);
            changes.is_moved |= self.entities.remove(reference).is_some();
            return;
        }
        changes.is_moved |= !self.entities.contains_key(reference);
        let known = self.entities.entry(reference.clone()).or_default();
        for (name, value) in &update.properties {
            match *name {
                "name" => {
                    *known = value.map(|value| unescaped(&value.text)).unwrap_or_default();
                }
                "parent" => {
                    let parent = value.and_then(Element::moref);
                    if self.parents.get(reference) != parent.as_ref() {
                        changes.is_moved = true;
                        match parent {
                            Some(parent) => drop(self.parents.insert(reference.clone(), parent)),
                            None => drop(self.parents.remove(reference)),
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Drops objects that a complete listing did not contain.
    pub(crate) fn retain(&mut self, seen: &HashSet<MoRef>) -> Changes {
        let gone: Vec<MoRef> = self
            .machines()
            .map(|vm| &vm.moref)
            .chain(self.entities.keys())
            .filter(|reference| !seen.contains(reference))
            .cloned()
            .collect();
        let gone: Vec<_> = gone
            .into_iter()
            .map(|object| ObjectUpdate { object, kind: UpdateKind::Leave, properties: Vec::new() })
            .collect();
        self.apply(&gone)
    }

    /// The machines with this BIOS UUID, in this byte order.
    pub(crate) fn with_bios_uuid(&self, uuid: Uuid) -> impl Iterator<Item = &VirtualMachine> {
        self.found(By::BiosUuid, Key::Uuid(uuid))
    }

    /// The machines with this instance UUID.
    pub(crate) fn with_instance_uuid(&self, uuid: Uuid) -> impl Iterator<Item = &VirtualMachine> {
        self.found(By::InstanceUuid, Key::Uuid(uuid))
    }

    /// The machines whose guest has this host name, in any letter case.
    pub(crate) fn with_guest_host_name(&self, name: &str) -> impl Iterator<Item = &VirtualMachine> {
        self.found(By::GuestHostName, Key::word(name))
    }

    /// The machines with this name, in any letter case. Names are unique within a folder only.
    pub(crate) fn with_name(&self, name: &str) -> impl Iterator<Item = &VirtualMachine> {
        self.found(By::Name, Key::word(name))
    }

    /// The machines with this key, in a fixed order, since errors list them.
    fn found(&self, by: By, key: Key<'_>) -> impl Iterator<Item = &VirtualMachine> {
        let mut found: Vec<_> = self.machines.find(by, key).map(|machine| &machine.vm).collect();
        found.sort_unstable_by(|one, other| one.moref.cmp(&other.moref));
        found.into_iter()
    }

    /// A machine by its reference.
    pub(crate) fn machine(&self, reference: &MoRef) -> Option<&VirtualMachine> {
        self.machines.get(reference).map(|machine| &machine.vm)
    }

    /// All machines, templates too.
    pub(crate) fn machines(&self) -> impl ExactSizeIterator<Item = &VirtualMachine> {
        self.machines.iter().map(|machine| &machine.vm)
    }

    /// The machines that had this UUID, of any kind, and are no longer shown.
    pub(crate) fn departed_with(&self, uuid: Uuid) -> Vec<MoRef> {
        self.departed.with(uuid)
    }

    /// Forgets a machine that is known to be removed.
    pub(crate) fn forget_departed(&mut self, machine: &MoRef) {
        self.departed.remove(machine);
    }

    /// All objects other than machines.
    pub(crate) fn entities(&self) -> impl ExactSizeIterator<Item = &MoRef> {
        self.entities.keys()
    }

    /// The name of an object other than a machine.
    pub(crate) fn name_of(&self, entity: &MoRef) -> Option<&str> {
        self.entities.get(entity).map(|name| &**name)
    }

    /// The parents of those objects.
    pub(crate) fn parents(&self) -> &Parents {
        &self.parents
    }

    /// An object and its ancestors, nearest first, up to the root.
    pub(crate) fn path_up(&self, from: &MoRef) -> Vec<MoRef> {
        let mut path = vec![from.clone()];
        while let Some(reference) = path.last().and_then(|last| self.parents.get(last)) {
            if path.len() >= DEEPEST || path.contains(reference) {
                break;
            }
            path.push(reference.clone());
        }
        path
    }

    /// The names that lead to an object, without that of the root. One that is not known is a question mark.
    pub(crate) fn path_of(&self, object: &MoRef) -> Vec<String> {
        let up = self.path_up(object);
        let down = up[..up.len().saturating_sub(1)].iter().rev();
        down.map(|one| self.name_of(one).unwrap_or("?").to_owned()).collect()
    }

    /// The names from the root to an object of a datacenter, without that of the root. `None` if one of them is not known, or the object is
    /// in no datacenter that is.
    pub(crate) fn names_to(&self, object: &MoRef) -> Option<Vec<String>> {
        let up = self.path_up(object);
        let down = up[..up.len().saturating_sub(1)].iter().rev();
        let name = |one: &MoRef| self.name_of(one).filter(|name| !name.is_empty()).map(str::to_owned);
        let names = down.clone().map(name).collect::<Option<Vec<_>>>()?;
        down.clone().any(|one| one.kind() == "Datacenter").then_some(names)
    }

    /// The same for a machine, whose folder has to be known.
    pub(crate) fn names_to_machine(&self, vm: &VirtualMachine) -> Option<Vec<String>> {
        let mut names = self.names_to(vm.folder.as_ref()?)?;
        names.push(vm.name.to_string());
        Some(names)
    }

    /// The datacenter that a machine is in.
    pub(crate) fn datacenter_of(&self, vm: &VirtualMachine) -> Option<MoRef> {
        [&vm.folder, &vm.vapp, &vm.resource_pool, &vm.host]
            .into_iter()
            .flatten()
            .find_map(|start| self.path_up(start).into_iter().find(|object| object.kind() == "Datacenter"))
    }

    /// The datacenters that an entry of the configuration means. Several may be meant: the list says which machines are looked at.
    pub(crate) fn datacenters_called(&self, word: &str) -> Vec<MoRef> {
        let all = self.entities.keys().filter(|reference| reference.kind() == "Datacenter");
        let named =
            |reference: &MoRef| Named { path: self.path_of(reference), moref: reference.clone(), object: () };
        let all: Vec<_> = all.map(named).collect();
        meant(word.trim(), &[], &all).into_iter().map(|one| one.moref.clone()).collect()
    }
}

fn identity(vm: &VirtualMachine) -> (Option<Uuid>, Option<&str>, &str) {
    (vm.bios_uuid, vm.guest_host_name.as_deref(), &vm.name)
}

/// The ways in which Nodes may refer to a machine. Guests show the UUID in either byte order, and a Node has
/// the name of its guest or, rarely, of its machine.
fn refs(vm: &VirtualMachine) -> Vec<InstanceRef> {
    if vm.is_template {
        return Vec::new();
    }
    let name = vm.guest_host_name.as_deref().unwrap_or(&vm.name).to_lowercase();
    // the instance UUID of our machines is the UID of the mark, which vCenter may not be able to watch
    let of_mark = vm.mark.as_ref().map(|mark| mark.uid.clone());
    let machine = of_mark.or_else(|| vm.instance_uuid.map(|uuid| uuid.hyphenated().to_string()));
    match vm.bios_uuid {
        Some(uuid) => byte_orders(uuid)
            .into_iter()
            .rev()
            .map(|order| InstanceRef {
                provider_id: Some(format_provider_id(order).as_str().to_owned()),
                system_uuid: Some(order.hyphenated().to_string()),
                name: Some(name.clone()),
                machine: machine.clone(),
            })
            .collect(),
        None => vec![InstanceRef { name: Some(name), machine, ..InstanceRef::default() }],
    }
}

#[cfg(test)]
mod tests;
