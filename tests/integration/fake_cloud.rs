//! The machines of the scenarios, in the fake cloud of the contract's crate.

use cloudprovider::{
    Error, ErrorKind, InstanceChange, NodeAddress,
    testing::{FakeInstance, Operation},
};

pub(crate) use cloudprovider::testing::{FakeCloud, Fault};

/// A running machine with an address of each family, type, zone and region.
pub(crate) fn running(number: usize) -> FakeInstance {
    let mut machine = FakeInstance::running(format!("10.0.{}.{}", number / 250, number % 250 + 1));
    machine.metadata.addresses.push(NodeAddress::internal_ip(format!("fd00::{:x}", number + 1)));
    machine
}

/// The cloud cannot be reached, in these words.
pub(crate) fn unavailable(words: &'static str) -> Fault {
    Fault::Error(Error::new(ErrorKind::Unavailable, words))
}

/// What scenarios do to look-ups.
pub(crate) trait Lookups {
    /// Makes all of them fail from now on, or work again, and tells to look at everything.
    fn fail_lookups(&self, fault: impl Into<Option<Fault>>);

    /// How many batches were looked up.
    fn lookups(&self) -> usize;
}

impl Lookups for FakeCloud {
    fn fail_lookups(&self, fault: impl Into<Option<Fault>>) {
        self.fail(Operation::Lookup, fault);
        self.push(InstanceChange::Resync);
    }

    fn lookups(&self) -> usize {
        self.count(Operation::Lookup)
    }
}
