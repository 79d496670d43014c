//! The machines and their indexes. An index holds positions only; the keys are in the machines themselves.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
};

use uuid::Uuid;

use super::metadata::Metadata;
use crate::{moref::MoRef, vm::VirtualMachine};

/// A machine, with what is needed to apply updates.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) vm: VirtualMachine,
    /// `guestinfo.metadata` and its encoding, which may be updated separately. Few machines have them.
    pub(super) metadata: Option<Box<Metadata>>,
}

/// The indexed properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Unique among machines.
    Reference,
    BiosUuid,
    InstanceUuid,
    /// In any letter case.
    GuestHostName,
    /// In any letter case.
    Name,
}

impl By {
    const ALL: [Self; 5] =
        [Self::Reference, Self::BiosUuid, Self::InstanceUuid, Self::GuestHostName, Self::Name];

    /// The machine's key in this index. A template is found by its reference only: it never runs, and shares
    /// many properties with the machines made from it.
    fn key_of(self, vm: &VirtualMachine) -> Option<Key<'_>> {
        if vm.is_template && self != Self::Reference {
            return None;
        }
        match self {
            Self::Reference => Some(Key::Reference(&vm.moref)),
            Self::BiosUuid => vm.bios_uuid.map(Key::Uuid),
            Self::InstanceUuid => vm.instance_uuid.map(Key::Uuid),
            Self::GuestHostName => vm.guest_host_name.as_deref().map(Key::word),
            Self::Name => Some(Key::word(&vm.name)),
        }
    }
}

/// A key of an index.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Key<'a> {
    Reference(&'a MoRef),
    Uuid(Uuid),
    /// In lower case.
    Word(Cow<'a, str>),
}

impl<'a> Key<'a> {
    /// The key for a word in any letter case.
    pub(super) fn word(word: &'a str) -> Self {
        // nearly all words are in lower case already
        let is_lower = word.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase());
        Self::Word(if is_lower { word.into() } else { word.to_lowercase().into() })
    }
}

/// All machines of a vCenter.
#[derive(Debug, Default)]
pub(super) struct Machines {
    #[expect(clippy::vec_box, reason = "a vector keeps room for up to twice what it has")]
    all: Vec<Box<Machine>>,
    /// For each of [`By::ALL`], pairs of a key's hash and a machine's position in the vector.
    indexes: [BTreeSet<(u32, u32)>; By::ALL.len()],
    hasher: RandomState,
}

impl Machines {
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Machine> {
        self.all.iter().map(|machine| &**machine)
    }

    /// The machine with this reference.
    pub(super) fn get(&self, reference: &MoRef) -> Option<&Machine> {
        self.find(By::Reference, Key::Reference(reference)).next()
    }

    /// The machines with this key, in no particular order.
    pub(super) fn find(&self, by: By, key: Key<'_>) -> impl Iterator<Item = &Machine> {
        let hash = self.hash(&key);
        self.indexes[by as usize]
            .range((hash, 0)..=(hash, u32::MAX))
            .filter_map(|(_, place)| self.all.get(*place as usize))
            .map(|machine| &**machine)
            .filter(move |machine| by.key_of(&machine.vm).as_ref() == Some(&key))
    }

    /// Adds a machine, or replaces the one with the same reference.
    pub(super) fn insert(&mut self, machine: Machine) {
        self.remove(&machine.vm.moref);
        // no vCenter has even a thousandth of `u32::MAX` machines
        let Ok(place) = u32::try_from(self.all.len()) else { return };
        self.all.push(Box::new(machine));
        self.index(place, place);
    }

    /// Removes the machine with this reference. The last machine takes its position.
    pub(super) fn remove(&mut self, reference: &MoRef) -> Option<Machine> {
        let hash = self.hash(&Key::Reference(reference));
        let place = self.indexes[By::Reference as usize]
            .range((hash, 0)..=(hash, u32::MAX))
            .map(|(_, place)| *place)
            .find(|place| self.all.get(*place as usize).is_some_and(|one| one.vm.moref == *reference))?;
        let last = u32::try_from(self.all.len() - 1).ok()?;
        self.unindex(place);
        if last != place {
            self.unindex(last);
            self.index(last, place);
        }
        Some(*self.all.swap_remove(place as usize))
    }

    /// Adds the machine at `at` to the indexes, under the position `entered`.
    fn index(&mut self, at: u32, entered: u32) {
        for (by, hash) in self.hashes(at).into_iter().flatten() {
            self.indexes[by as usize].insert((hash, entered));
        }
    }

    fn unindex(&mut self, place: u32) {
        for (by, hash) in self.hashes(place).into_iter().flatten() {
            self.indexes[by as usize].remove(&(hash, place));
        }
    }

    fn hashes(&self, place: u32) -> [Option<(By, u32)>; By::ALL.len()] {
        let machine = self.all.get(place as usize);
        By::ALL.map(|by| Some((by, self.hash(&by.key_of(&machine?.vm)?))))
    }

    /// Half of the hash is enough: the keys of machines with the same hash are compared anyway.
    fn hash(&self, key: &Key<'_>) -> u32 {
        u32::try_from(self.hasher.hash_one(key) >> 32).unwrap_or_default()
    }

    /// The number of entries in all indexes.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.indexes.iter().map(BTreeSet::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn machine(number: u8, value: u8) -> VirtualMachine {
        let mut vm = VirtualMachine::new(reference(number), format!("Name-{}", value % 4));
        vm.bios_uuid = (!value.is_multiple_of(5)).then(|| Uuid::from_u128(u128::from(value % 3)));
        vm.instance_uuid = (!value.is_multiple_of(7)).then(|| Uuid::from_u128(u128::from(value)));
        vm.guest_host_name = (!value.is_multiple_of(2)).then(|| format!("\u{c4}-Host-{}", value % 6).into());
        vm.is_template = value.is_multiple_of(11);
        vm
    }

    fn reference(number: u8) -> MoRef {
        MoRef::new("VirtualMachine", &format!("vm-{number}"))
    }

    proptest! {
        /// After any sequence of changes, an index finds the same machines as a scan of all of them.
        #[test]
        fn an_index_finds_what_a_search_finds(
            steps in prop::collection::vec((any::<bool>(), 0..24u8, any::<u8>()), 0..120)
        ) {
            let mut machines = Machines::default();
            let mut expected: BTreeMap<MoRef, VirtualMachine> = BTreeMap::new();
            for (is_there, number, value) in steps {
                let vm = machine(number, value);
                if is_there {
                    machines.insert(Machine { vm: vm.clone(), metadata: None });
                    expected.insert(vm.moref.clone(), vm);
                } else {
                    let removed = machines.remove(&vm.moref).map(|machine| machine.vm);
                    prop_assert_eq!(removed, expected.remove(&vm.moref));
                }
            }
            prop_assert_eq!(machines.iter().len(), expected.len());
            for number in 0..24 {
                let found = machines.get(&reference(number)).map(|machine| &machine.vm);
                prop_assert_eq!(found, expected.get(&reference(number)));
            }
            for by in By::ALL {
                for wanted in expected.values() {
                    let Some(key) = by.key_of(wanted) else { continue };
                    let mut found: Vec<_> = machines.find(by, key).map(|machine| &machine.vm.moref).collect();
                    found.sort_unstable();
                    let same = expected.values().filter(|vm| by.key_of(vm) == by.key_of(wanted));
                    prop_assert_eq!(found, same.map(|vm| &vm.moref).collect::<Vec<_>>());
                }
            }
            let keys = |vm: &VirtualMachine| By::ALL.iter().filter(|by| by.key_of(vm).is_some()).count();
            prop_assert_eq!(machines.entries(), expected.values().map(keys).sum::<usize>());
        }
    }

    #[test]
    fn letter_case_does_not_count() {
        assert_eq!(Key::word("Node-\u{c4}"), Key::word("node-\u{e4}"));
        assert_ne!(Key::word("node-a"), Key::word("node-b"));
    }
}
