//! Steps of machines of which there is a copy: a replica of a backup tool, or an entry that vCenter has kept. A copy has the BIOS UUID of
//! its machine, and may have its mark. Its instance UUID is another one.

use cloudprovider::machines::{Deletion, MachineReport};

use super::{
    rig::{BIOS_UUID, Rig, deletion, machine, mark, rig},
    *,
};
use crate::{
    mark::{self as marks, MARK_PATH},
    moref::MoRef,
    testing::scripted::{node, reference, text},
    vim::property_collector::UpdateKind,
};

fn copy() -> MoRef {
    MoRef::new("VirtualMachine", "vm-2")
}

fn provider_id() -> String {
    format!("vsphere://{BIOS_UUID}")
}

/// The inventory shows a copy.
fn has_copy(rig: &Rig, power: &str, is_marked: bool) {
    let mut properties = vec![
        ("name", text("val", "worker-1_replica")),
        ("runtime.powerState", text("val", power)),
        ("runtime.connectionState", text("val", "connected")),
        ("config.uuid", text("val", BIOS_UUID)),
        ("config.instanceUuid", text("val", "50110000-0000-4000-8000-000000000002")),
    ];
    if is_marked {
        properties.push((MARK_PATH, text("val", &marks::write(&mark()))));
    }
    rig.tell(&copy(), UpdateKind::Enter, &properties);
}

#[tokio::test(start_paused = true)]
async fn a_machine_with_a_copy_is_followed() {
    for power in ["poweredOff", "poweredOn"] {
        let mut rig = rig().await;
        rig.has_made_it();
        has_copy(&rig, power, true);
        let nic =
            vec![text("network", "n"), text("ipAddress", "2001:db8::1"), text("deviceConfigId", "4000")];
        let net = node("val", vec![node("GuestNicInfo", nic)]);
        rig.tell(&machine(), UpdateKind::Modify, &[("guest.net", net)]);
        let report = rig.ensure(Some(provider_id())).await.expect("there");
        let present = report.present().expect("present");
        let addresses = &present.instance.metadata.addresses;
        assert!(addresses.iter().any(|one| one.address == "2001:db8::1"), "{addresses:?}");
        assert!(report.wait().is_none(), "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_machine_with_a_copy_ends_and_the_copy_stays() {
    for (power, is_marked) in
        [("poweredOff", false), ("poweredOff", true), ("poweredOn", false), ("poweredOn", true)]
    {
        let mut rig = rig().await;
        has_copy(&rig, power, is_marked);
        let request = deletion().with_provider_id(provider_id());
        let step = async |rig: &mut Rig| {
            rig.machines.delete_machine(&request, &mut rig.record).await.expect("a step")
        };
        rig.begins("PowerOffVM_Task", "task-1");
        assert!(matches!(step(&mut rig).await, Deletion::Deleting(_)));
        rig.succeeds("task-1");
        rig.is_read();
        rig.begins("Destroy_Task", "task-2");
        assert!(matches!(step(&mut rig).await, Deletion::Deleting(_)));
        rig.succeeds("task-2");
        rig.leave();
        for _ in 0..2 {
            assert_eq!(step(&mut rig).await, Deletion::Gone, "{power} {is_marked}");
        }
        assert_eq!(rig.calls(), ["PowerOffVM_Task", "RetrievePropertiesEx", "Destroy_Task"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_others_have_destroyed_is_lost_though_there_is_a_copy() {
    for power in ["poweredOff", "poweredOn"] {
        let mut rig = rig().await;
        has_copy(&rig, power, false);
        rig.leave();
        rig.transport.answer("FindAllByUuid", Ok(reference("returnval", &copy())));
        rig.transport.fault("RetrievePropertiesEx", "ManagedObjectNotFound");
        let report = rig.ensure(Some(provider_id())).await.expect("it is known");
        assert!(matches!(report, MachineReport::Lost { .. }), "{report:?}");
    }
}

/// Of one entry that is left of a machine nothing else can be done.
#[tokio::test(start_paused = true)]
async fn an_entry_that_cannot_be_reached_is_not_the_machine() {
    let mut rig = rig().await;
    let entry = [
        ("name", text("val", "worker-1 (orphaned)")),
        ("runtime.connectionState", text("val", "orphaned")),
        ("config.uuid", text("val", BIOS_UUID)),
        ("config.instanceUuid", text("val", &mark().uid)),
        (MARK_PATH, text("val", &marks::write(&mark()))),
    ];
    rig.tell(&copy(), UpdateKind::Enter, &entry);
    rig.begins("PowerOffVM_Task", "task-1");
    rig.waits_for_deletion().await;
    rig.succeeds("task-1");
    rig.is_read();
    rig.begins("Destroy_Task", "task-2");
    rig.waits_for_deletion().await;
    rig.succeeds("task-2");
    rig.leave();
    assert_eq!(rig.delete().await.expect("gone"), Deletion::Gone);
    assert_eq!(rig.transport.count("Destroy_Task"), 1);
}
