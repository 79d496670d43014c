//! What the `VSphereVM` of a machine tells of its vCenter and its guest.

use cloudprovider::machines::{AuxiliaryObject, Objects};
use tokio::time::advance;

use super::{
    rig::{Rig, deletion, machine, rig},
    *,
};
use crate::{
    machines::{kinds::VM_KIND, spec::PowerOffMode},
    testing::scripted::text,
    vim::property_collector::UpdateKind,
};

/// A step of a deletion that asks the guest. Gives the conditions of the `VSphereVM` beside `Ready`, by type and reason.
async fn step(rig: &mut Rig) -> Vec<(String, String)> {
    let mut request = deletion();
    request.spec.power_off_mode = Some(PowerOffMode::TrySoft);
    request.object_uid = "o-1".to_owned();
    let vm = AuxiliaryObject::new("worker-1")
        .in_namespace("default")
        .with_uid("v-1")
        .with_owners(["o-1".to_owned()]);
    request.objects = Objects::of([(VM_KIND, vm)]);
    let answer = rig.machines.delete_machine(&request, &mut rig.record).await;
    let own = rig.record.conditions.iter().find(|one| one.condition_type == "VirtualMachineProvisioned");
    assert_eq!(own.map(|one| &*one.reason), Some("Deleting"), "{answer:?}");
    let [wanted] = rig.record.wanted() else { panic!("{:?}", rig.record) };
    let all = wanted.conditions.iter().filter(|one| one.condition_type != "Ready");
    all.map(|one| (one.condition_type.to_string(), one.reason.to_string())).collect()
}

fn told(all: &[(&str, &str)]) -> Vec<(String, String)> {
    let deleting = ("VirtualMachineProvisioned", "Deleting");
    let all = std::iter::once(&deleting).chain(all);
    all.map(|(name, reason)| ((*name).to_owned(), (*reason).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn the_vspherevm_tells_of_the_vcenter_and_of_the_guest() {
    const HERE: (&str, &str) = ("VCenterAvailable", "Available");
    let guest = |reason: &'static str| ("GuestSoftPowerOffSucceeded", reason);
    let mut rig = rig().await;
    let tools = [
        ("guest.toolsRunningStatus", text("val", "guestToolsRunning")),
        ("guest.guestStateChangeSupported", text("val", "true")),
    ];
    rig.tell(&machine(), UpdateKind::Modify, &tools);
    for _ in 0..2 {
        assert_eq!(step(&mut rig).await, told(&[HERE, guest("InProgress")]));
    }
    assert_eq!(rig.calls(), ["ShutdownGuest"]);
    rig.shown(false);
    assert_eq!(step(&mut rig).await[1].1, "VCenterUnreachable");
    rig.shown(true);

    // The time of asking is in the status, by the clock of the machine.
    rig.record.status.soft_power_off_since = Some(1);
    rig.begins("PowerOffVM_Task", "task-1");
    assert_eq!(step(&mut rig).await, told(&[HERE, guest("Failed")]));
    assert_eq!(step(&mut rig).await, told(&[HERE, guest("Failed")]), "while it is powered off");
    advance(Duration::from_secs(1)).await;
    rig.tell(&machine(), UpdateKind::Modify, &[("runtime.powerState", text("val", "poweredOff"))]);
    rig.succeeds("task-1");
    rig.is_read();
    rig.begins("Destroy_Task", "task-2");
    assert_eq!(step(&mut rig).await, told(&[HERE, guest("Failed")]), "not by itself");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_shuts_down_is_told() {
    let mut rig = rig().await;
    rig.record.status.soft_power_off_since = Some(1);
    rig.tell(&machine(), UpdateKind::Modify, &[("runtime.powerState", text("val", "poweredOff"))]);
    rig.is_read();
    rig.begins("Destroy_Task", "task-1");
    let expected = [("VCenterAvailable", "Available"), ("GuestSoftPowerOffSucceeded", "Succeeded")];
    assert_eq!(step(&mut rig).await, told(&expected));
}
