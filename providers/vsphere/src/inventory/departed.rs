//! Machines that are no longer shown, by the UUIDs that they had.
//!
//! vCenter does not tell why a machine is no longer shown. A removed machine and one that may no longer be
//! read look alike, also to a search for the UUID. Only a read of the machine itself tells them apart.

use std::collections::HashMap;

use uuid::Uuid;

use crate::{moref::MoRef, provider_id::byte_orders, vm::VirtualMachine};

/// At this number the older half is forgotten.
const MOST: usize = 16_384;

/// The machines that left; of very many, the last ones.
#[derive(Debug, Default)]
pub(super) struct Departed {
    machines: HashMap<MoRef, Trace>,
    /// How many machines ever left.
    count: usize,
}

/// What is kept of a machine.
#[derive(Debug)]
struct Trace {
    bios_uuid: Option<Uuid>,
    instance_uuid: Option<Uuid>,
    /// How many machines had left before this one.
    place: usize,
}

impl Departed {
    /// Keeps the UUIDs of a machine. Templates never are Nodes, and are skipped.
    pub(super) fn add(&mut self, vm: &VirtualMachine) {
        if vm.is_template || (vm.bios_uuid.is_none() && vm.instance_uuid.is_none()) {
            return;
        }
        if self.machines.len() >= MOST {
            let oldest = self.count.saturating_sub(MOST / 2);
            self.machines.retain(|_, trace| trace.place >= oldest);
        }
        let trace = Trace { bios_uuid: vm.bios_uuid, instance_uuid: vm.instance_uuid, place: self.count };
        self.machines.insert(vm.moref.clone(), trace);
        self.count += 1;
    }

    /// Forgets a machine that is shown again, or is known to be removed.
    pub(super) fn remove(&mut self, machine: &MoRef) {
        self.machines.remove(machine);
    }

    /// The machines that had this UUID: as their BIOS UUID in either byte order, or as their instance UUID.
    pub(super) fn with(&self, uuid: Uuid) -> Vec<MoRef> {
        let orders = byte_orders(uuid).map(Some);
        let had = |trace: &Trace| orders.contains(&trace.bios_uuid) || trace.instance_uuid == Some(uuid);
        self.machines.iter().filter(|(_, trace)| had(trace)).map(|(machine, _)| machine.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(number: usize) -> VirtualMachine {
        let mut vm = VirtualMachine::new(MoRef::new("VirtualMachine", &format!("vm-{number}")), "a");
        vm.bios_uuid = Some(Uuid::from_u128(number as u128));
        vm
    }

    #[test]
    fn the_last_ones_of_very_many_are_kept() {
        let mut departed = Departed::default();
        for number in 0..3 * MOST {
            departed.add(&machine(number));
            assert!(departed.machines.len() <= MOST);
        }
        let is_known = |number| !departed.with(Uuid::from_u128(number as u128)).is_empty();
        assert!(is_known(3 * MOST - 1) && is_known(3 * MOST - MOST / 2) && !is_known(MOST));
    }

    #[test]
    fn by_every_uuid_that_a_node_may_know() {
        let mut departed = Departed::default();
        let mut vm = machine(1);
        vm.instance_uuid = Some(Uuid::from_u128(7));
        departed.add(&vm);
        departed.add(&vm);
        for uuid in byte_orders(Uuid::from_u128(1)).into_iter().chain([Uuid::from_u128(7)]) {
            assert_eq!(departed.with(uuid), std::slice::from_ref(&vm.moref), "{uuid}");
        }
        assert!(departed.with(Uuid::from_u128(2)).is_empty());
        departed.remove(&vm.moref);
        assert!(departed.with(Uuid::from_u128(1)).is_empty());
        departed.add(&VirtualMachine { is_template: true, ..machine(2) });
        assert!(departed.machines.is_empty());
    }
}
