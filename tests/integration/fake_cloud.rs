//! The machines of the scenarios, in the fake cloud of the `cloudprovider` crate.

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

/// A fault for a cloud that cannot be reached, with this message.
pub(crate) fn unavailable(words: &'static str) -> Fault {
    Fault::Error(Error::new(ErrorKind::Unavailable, words))
}

/// Controls look-ups in scenarios.
pub(crate) trait Lookups {
    /// Makes all look-ups fail from now on, or succeed again, and reports that everything may have changed.
    fn fail_lookups(&self, fault: impl Into<Option<Fault>>);

    /// The number of batches that were looked up.
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
