//! The machines of a vCenter that it has not any more, while the inventory may still show them.
//!
//! A busy vCenter may take a minute to report a change. Meanwhile each call to such a machine would fail, so none is made. What
//! becomes of its object is decided once the inventory has moved on.

use std::{collections::HashMap, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::{
    moref::MoRef,
    vim::{Call, CallError, Value},
};

/// For how long vCenter's word is taken. After that, a step asks again.
const LASTS: Duration = Duration::from_secs(120);

const MACHINE: &str = "VirtualMachine";

/// Its methods read other objects. It is there as long as its session.
const COLLECTOR: &str = "PropertyCollector";

/// The machines that vCenter has said it has not, or has destroyed, and when it said so last.
#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    since: Mutex<HashMap<MoRef, Instant>>,
}

impl Tombstones {
    /// Notes that vCenter has destroyed a machine, or says that there is no such machine.
    pub(crate) fn note(&self, machine: &MoRef) {
        let mut since = self.since();
        since.retain(|_, since| since.elapsed() < LASTS);
        since.insert(machine.clone(), Instant::now());
    }

    /// Notes what an error says of the machine that a call was about.
    pub(crate) fn note_error(&self, call: &Call, error: &CallError) {
        if error.is_fault("ManagedObjectNotFound")
            && let Some(machine) = machine_of(call)
        {
            self.note(machine);
        }
    }

    /// Whether vCenter has said so a moment ago.
    pub(crate) fn has(&self, machine: &MoRef) -> bool {
        self.since().get(machine).is_some_and(|since| since.elapsed() < LASTS)
    }

    fn since(&self) -> MutexGuard<'_, HashMap<MoRef, Instant>> {
        self.since.lock()
    }
}

/// The machine that a call is about. `None` if the call names anything else too: the fault does not say which of them there is not.
fn machine_of(call: &Call) -> Option<&MoRef> {
    let mut named = Vec::new();
    if call.this.kind() != COLLECTOR {
        named.push(&call.this);
    }
    call.arguments.iter().for_each(|(_, value)| add_references(value, &mut named));
    match named[..] {
        [only] if only.kind() == MACHINE => Some(only),
        _ => None,
    }
}

fn add_references<'a>(value: &'a Value, into: &mut Vec<&'a MoRef>) {
    match value {
        Value::Ref(object) => into.push(object),
        Value::Object(_, fields) => fields.iter().for_each(|(_, value)| add_references(value, into)),
        Value::Text(_) | Value::Secret(_) | Value::AnyString(_) | Value::AnySecret(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        machines::template,
        vim::{
            machines::{DestroyVm, PowerOnVm},
            objects::{RetrieveOptions, RetrievePropertiesEx},
        },
    };

    fn machine(number: usize) -> MoRef {
        MoRef::new(MACHINE, &format!("vm-{number}"))
    }

    fn read(machines: &[MoRef]) -> Call {
        let spec_set = machines.iter().map(template::selection).collect();
        let options = RetrieveOptions { max_objects: None };
        RetrievePropertiesEx { spec_set, options }.of(&MoRef::new(COLLECTOR, "1"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_is_about_the_only_object_of_its_call() {
        let host = Some(MoRef::new("HostSystem", "host-1"));
        for (call, kind, expected) in [
            (DestroyVm {}.of(&machine(1)), "ManagedObjectNotFound", true),
            (PowerOnVm { host: None }.of(&machine(1)), "ManagedObjectNotFound", true),
            (read(&[machine(1)]), "ManagedObjectNotFound", true),
            (DestroyVm {}.of(&machine(1)), "NoPermission", false),
            (DestroyVm {}.of(&machine(2)), "ManagedObjectNotFound", false),
            // it may be the host
            (PowerOnVm { host }.of(&machine(1)), "ManagedObjectNotFound", false),
            (read(&[machine(1), machine(2)]), "ManagedObjectNotFound", false),
        ] {
            let removed = Tombstones::default();
            let error = CallError::Fault { method: call.method, kind: kind.into(), message: "".into() };
            removed.note_error(&call, &error);
            assert_eq!(removed.has(&machine(1)), expected, "{call:?} {kind}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_while_vcenter_is_asked_again() {
        let removed = Tombstones::default();
        removed.note(&machine(1));
        tokio::time::advance(LASTS / 2).await;
        removed.note(&machine(2));
        tokio::time::advance(LASTS / 2).await;
        assert!(!removed.has(&machine(1)) && removed.has(&machine(2)));
        removed.note(&machine(3));
        assert_eq!(removed.since().len(), 2, "what is old is forgotten");
    }
}
