//! Which virtual machine is that of an object on which Cluster API Provider vSphere (CAPV) has worked. Pure.
//!
//! CAPV makes a `VSphereVM` for each `VSphereMachine` before it clones anything. The name of the virtual machine is that of the
//! `VSphereVM`, and its instance UUID is the UID of the `VSphereVM`. Its BIOS UUID is in `spec.biosUUID` of the `VSphereVM` once it is
//! there, and in `spec.providerID` of the `VSphereMachine` once it is complete.
//!
//! All that is known has to agree. `clusterctl move` makes the `VSphereVM` anew, with another UID, and the virtual machine keeps its
//! instance UUID. So the UID of the `VSphereVM` is not compared if both objects name the same BIOS UUID, and the name is right. That is as
//! safe as CAPV is, which finds a virtual machine by its BIOS UUID alone, to change it and to destroy it. Whoever may write both
//! objects can name any virtual machine that has no mark: docs/explanation/security.md says so.

use cloudprovider::{machines::AuxiliaryObject, ties::Evidence, uuids::parse_uuid};
use uuid::Uuid;

use crate::{provider_id::parse_provider_id, vm::VirtualMachine};

/// What the objects of the API say of a virtual machine that CAPV may have made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedVm {
    /// The UID of the `VSphereVM`.
    pub(crate) vm_uid: Uuid,
    /// The name of the `VSphereVM`.
    pub(crate) name: String,
    /// Its task, if one ran when it was written last.
    pub(crate) task: Option<String>,
    /// Its server and the reference of its virtual machine there, once that was seen.
    seen: Option<(String, String)>,
    /// The BIOS UUID in the `VSphereVM`.
    of_vm: Option<Uuid>,
    /// The BIOS UUID in the provider ID.
    of_machine: Option<Uuid>,
}

impl ExpectedVm {
    /// What these objects say.
    ///
    /// # Errors
    /// What cannot be true.
    pub(crate) fn new(vm: &AuxiliaryObject, provider_id: Option<&str>) -> Result<Self, String> {
        let name = vm.name.clone();
        let text = |of: &serde_json::Value| of.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let uuid = |what: &str, text: String| {
            parse_uuid(text.trim())
                .ok_or_else(|| format!("{what} of VSphereVM {name:?}, {text:?}, is not a UUID"))
        };
        let expected = Self {
            vm_uid: uuid("the UID", vm.uid.clone())?,
            task: text(&vm.status["taskRef"]),
            // CAPV writes the kind before it
            seen: text(&vm.status["vmRef"]).map(|reference| {
                let id = reference.rsplit(':').next().unwrap_or_default().to_owned();
                (text(&vm.spec["server"]).unwrap_or_default(), id)
            }),
            of_vm: text(&vm.spec["biosUUID"]).map(|text| uuid("spec.biosUUID", text)).transpose()?,
            of_machine: provider_id
                .map(|id| parse_provider_id(id).map_err(|error| error.report()))
                .transpose()?,
            name: name.clone(),
        };
        match (expected.of_vm, expected.of_machine) {
            (Some(of_vm), Some(of_machine)) if of_vm != of_machine => Err(format!(
                "spec.biosUUID of VSphereVM {name:?} is {of_vm}, and spec.providerID names {of_machine}: \
                 one of the objects belongs to another virtual machine"
            )),
            _ => Ok(expected),
        }
    }

    /// The BIOS UUID, if it is known.
    pub(crate) fn bios_uuid(&self) -> Option<Uuid> {
        self.of_machine.or(self.of_vm)
    }

    /// Whether another virtual machine than this one was seen as the object's own. `is_here` says whether a server is the one that has
    /// this one.
    pub(crate) fn is_another(&self, vm: &VirtualMachine, is_here: impl FnOnce(&str) -> bool) -> bool {
        self.seen
            .as_ref()
            .is_some_and(|(server, id)| *id != vm.moref.id() || !(server.is_empty() || is_here(server)))
    }

    /// What is known of one of several virtual machines with the BIOS UUID. `None` if it is not the one, or does not tell its instance
    /// UUID.
    pub(crate) fn evidence(
        &self,
        vm: &VirtualMachine,
        is_here: impl FnOnce(&str) -> bool,
    ) -> Option<Evidence> {
        self.check(vm).ok()?;
        let instance_uuid = vm.instance_uuid?;
        Some(Evidence {
            is_marked: instance_uuid == self.vm_uid,
            is_connected: vm.is_connected(),
            was_last_seen: self.seen.is_some() && !self.is_another(vm, is_here),
            ..Evidence::default()
        })
    }

    /// Whether this is the virtual machine.
    ///
    /// # Errors
    /// What speaks against it.
    pub(crate) fn check(&self, vm: &VirtualMachine) -> Result<(), String> {
        if vm.is_template {
            return Err("it is a template".to_owned());
        }
        if *vm.name != *self.name {
            return Err(format!("its VSphereVM is called {:?}", self.name));
        }
        if let Some(wanted) = self.bios_uuid()
            && vm.bios_uuid != Some(wanted)
        {
            return Err(format!("its BIOS UUID is not {wanted}"));
        }
        let is_named_twice = self.of_vm.is_some() && self.of_machine.is_some();
        if vm.instance_uuid != Some(self.vm_uid) && !is_named_twice {
            return Err(format!("its instance UUID is not {}, the UID of its VSphereVM", self.vm_uid));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::moref::MoRef;

    const UID: &str = "4d3c2b1a-0000-4000-8000-000000000001";
    const BIOS: &str = "42015e4c-0000-4000-8000-000000000001";
    const OTHER: &str = "42015e4c-0000-4000-8000-000000000002";

    fn expected(bios: &str, provider_id: Option<&str>) -> Result<ExpectedVm, String> {
        let vm = AuxiliaryObject::new("worker-1").with_uid(UID);
        let vm = vm.with_spec(json!({"biosUUID": bios})).with_status(json!({"taskRef": "task-7"}));
        ExpectedVm::new(&vm, provider_id.map(|uuid| format!("vsphere://{uuid}")).as_deref())
    }

    fn vm(name: &str, bios: &str, instance: &str) -> VirtualMachine {
        let mut vm = VirtualMachine::new(MoRef::new("VirtualMachine", "vm-1"), name);
        vm.bios_uuid = Uuid::parse_str(bios).ok();
        vm.instance_uuid = Uuid::parse_str(instance).ok();
        vm
    }

    #[test]
    fn everything_that_is_known_has_to_agree() {
        let check = |bios: &str, provider_id: Option<&str>, vm: &VirtualMachine| {
            expected(bios, provider_id).expect("nothing contradicts").check(vm)
        };
        let its_own = vm("worker-1", BIOS, UID);
        for (bios, provider_id) in
            [("", None), (BIOS, None), ("", Some(BIOS)), (BIOS, Some(BIOS)), (&*BIOS.to_uppercase(), None)]
        {
            assert_eq!(check(bios, provider_id, &its_own), Ok(()), "{bios} {provider_id:?}");
        }
        // after a move, which gives the VSphereVM another UID
        let moved = vm("worker-1", BIOS, OTHER);
        assert_eq!(check(BIOS, Some(BIOS), &moved), Ok(()));
        for (bios, provider_id) in [("", None), (BIOS, None), ("", Some(BIOS))] {
            let why = check(bios, provider_id, &moved).expect_err("one object alone says it");
            assert!(why.contains("instance UUID"), "{why}");
        }
        let mut template = its_own.clone();
        template.is_template = true;
        for (vm, part) in [
            (vm("worker-2", BIOS, UID), "called \"worker-1\""),
            (vm("worker-1", OTHER, UID), "BIOS UUID is not"),
            (vm("worker-1", "", UID), "BIOS UUID is not"),
            (template, "template"),
        ] {
            let why = check(BIOS, Some(BIOS), &vm).expect_err(part);
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn of_several_the_one_is_meant_that_the_objects_know() {
        let object = |vm_ref: &str| {
            let vm = AuxiliaryObject::new("worker-1").with_uid(UID);
            let vm = vm.with_spec(json!({"biosUUID": BIOS, "server": "one"}));
            ExpectedVm::new(&vm.with_status(json!({"vmRef": vm_ref})), Some(&format!("vsphere://{BIOS}")))
                .expect("right")
        };
        let moved = vm("worker-1", BIOS, OTHER);
        for (vm_ref, server, is_another) in [
            ("", "one", false),
            ("vm-1", "one", false),
            ("VirtualMachine:vm-1", "one", false),
            ("VirtualMachine:vm-2", "one", true),
            ("vm-1", "two", true),
        ] {
            assert_eq!(
                object(vm_ref).is_another(&moved, |name| name == server),
                is_another,
                "{vm_ref} {server}"
            );
        }
        let known = |vm_ref: &str, vm: &VirtualMachine| object(vm_ref).evidence(vm, |_| true);
        assert!(known("", &vm("worker-1", BIOS, UID)) > known("vm-1", &moved), "the identity says it");
        assert!(known("vm-1", &moved) > known("vm-2", &moved), "it was seen");
        assert_eq!(known("vm-1", &vm("worker-1_replica", BIOS, UID)), None);
    }

    #[test]
    fn objects_that_contradict_each_other_are_refused() {
        let why = expected(BIOS, Some(OTHER)).expect_err("two machines");
        assert!(why.contains(BIOS) && why.contains(OTHER), "{why}");
        let why = expected("no UUID", None).expect_err("no UUID");
        assert!(why.contains("spec.biosUUID of VSphereVM \"worker-1\", \"no UUID\""), "{why}");
        expected("", Some("")).expect_err("no provider ID");
        let expected = expected(BIOS, None).expect("nothing contradicts");
        assert_eq!(
            (expected.bios_uuid(), expected.task.as_deref()),
            (Uuid::parse_str(BIOS).ok(), Some("task-7"))
        );
    }
}
