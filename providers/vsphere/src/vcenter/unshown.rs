//! What vCenter says it has done to machines, and what its changes do not show yet. Pure.

use std::collections::HashMap;

use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    inventory::Inventory,
    vm::{VirtualMachine, VmPower},
};

/// What a task that has succeeded did to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It was made.
    Made,
    PoweredOn,
    /// It was powered off, or shut down.
    PoweredOff,
    Destroyed,
}

impl Change {
    /// Whether its task has nothing to do any more once it is shown. A machine that is being cloned is shown before the end, and one
    /// that is not shown need not be destroyed.
    pub(crate) fn ends_its_task(self) -> bool {
        matches!(self, Self::PoweredOn | Self::PoweredOff)
    }

    /// Whether the machines with the UUID show it.
    pub(crate) fn is_shown<'a>(self, mut machines: impl Iterator<Item = &'a VirtualMachine>) -> bool {
        let is_on = |vm: &VirtualMachine| vm.power == VmPower::On;
        match self {
            Self::Made => machines.next().is_some(),
            Self::PoweredOn => machines.any(is_on),
            Self::PoweredOff => machines.all(|vm| vm.power == VmPower::Off),
            Self::Destroyed => machines.next().is_none(),
        }
    }
}

/// The last change of each machine that is not shown, and when its task had ended.
#[derive(Debug, Default)]
pub(crate) struct Unshown {
    by_uuid: HashMap<Uuid, (Change, Instant)>,
}

impl Unshown {
    /// Notes what was done to the machine with this instance UUID.
    pub(crate) fn note(&mut self, instance_uuid: Uuid, change: Change, now: Instant) {
        self.by_uuid.insert(instance_uuid, (change, now));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_uuid.is_empty()
    }

    /// Forgets what the inventory shows by now, and returns since when the oldest of the rest is missing.
    pub(crate) fn oldest(&mut self, inventory: &Inventory) -> Option<Instant> {
        self.by_uuid.retain(|uuid, (change, _)| !change.is_shown(inventory.with_instance_uuid(*uuid)));
        self.by_uuid.values().map(|(_, since)| *since).min()
    }

    /// Forgets what was done before a listing began: if the listing does not show it, it is true no longer.
    pub(crate) fn forget_before(&mut self, listing: Instant) {
        self.by_uuid.retain(|_, (_, since)| *since >= listing);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::moref::MoRef;

    fn vm(power: VmPower) -> VirtualMachine {
        VirtualMachine { power, ..VirtualMachine::new(MoRef::new("VirtualMachine", "vm-1"), "a") }
    }

    #[test]
    fn what_shows_a_change() {
        let (on, off) = (vm(VmPower::On), vm(VmPower::Off));
        for (change, absent, is_off, is_on) in [
            (Change::Made, false, true, true),
            (Change::PoweredOn, false, false, true),
            (Change::PoweredOff, true, true, false),
            (Change::Destroyed, true, false, false),
        ] {
            let found = [change.is_shown([].iter()), change.is_shown([&off].into_iter())];
            assert_eq!((found, change.is_shown([&on].into_iter())), ([absent, is_off], is_on), "{change:?}");
        }
        let suspended = vm(VmPower::Suspended);
        assert!(!Change::PoweredOff.is_shown([&suspended].into_iter()));
    }

    #[test]
    fn only_what_is_missing_is_kept() {
        let [first, second] = [1, 2].map(Uuid::from_u128);
        let began = Instant::now();
        let later = began + Duration::from_secs(2);
        let (mut unshown, nothing) = (Unshown::default(), Inventory::default());
        unshown.note(first, Change::Made, began);
        unshown.note(second, Change::PoweredOn, later);
        assert_eq!(unshown.oldest(&nothing), Some(began));
        // a machine that is not there is as good as destroyed
        unshown.note(first, Change::Destroyed, later);
        assert_eq!(unshown.oldest(&nothing), Some(later));
        unshown.forget_before(later);
        assert!(!unshown.is_empty(), "a listing that began at this moment may lack it");
        unshown.forget_before(later + Duration::from_millis(1));
        assert!(unshown.is_empty());
    }
}
