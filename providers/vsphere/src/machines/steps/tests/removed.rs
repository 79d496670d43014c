//! Steps of machines that vCenter has not any more, while the inventory still shows them. The vCenter is a scripted one: the simulator
//! cannot be made to hold a change back for long.

use cloudprovider::machines::{Deletion, MachineReport};
use tokio::time::advance;

use super::{
    rig::{BIOS_UUID, machine, rig},
    *,
};
use crate::{
    moref::MoRef,
    tasks::TASK,
    testing::scripted::{node, reference, text},
    vim::property_collector::UpdateKind,
};

#[tokio::test(start_paused = true)]
async fn what_was_destroyed_is_not_asked_for_again() {
    let mut rig = rig().await;
    rig.begins("PowerOffVM_Task", "task-1");
    rig.waits_for_deletion().await;
    rig.succeeds("task-1");
    rig.is_read();
    rig.begins("Destroy_Task", "task-2");
    rig.waits_for_deletion().await;
    rig.succeeds("task-2");
    let expected = ["PowerOffVM_Task", "RetrievePropertiesEx", "Destroy_Task"];
    for _ in 0..3 {
        let wait = rig.waits_for_deletion().await;
        assert!(wait.message.contains("is removed"), "{wait:?}");
        assert_eq!(rig.calls(), expected);
        advance(wait.look_again_after.expect("a time")).await;
    }
    // the inventory is lost, and shows it no more when it is back
    rig.shown(false);
    rig.delete().await.expect_err("nothing is known");
    rig.leave();
    rig.delete().await.expect_err("nothing is known yet");
    advance(Duration::from_secs(600)).await;
    rig.shown(true);
    // Its object may stay for a while after it was told.
    for _ in 0..3 {
        assert_eq!(rig.delete().await.expect("gone"), Deletion::Gone);
        assert_eq!(rig.calls(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_have_removed_is_asked_for_once_and_then_confirmed() {
    let mut rig = rig().await;
    rig.transport.fault("PowerOffVM_Task", "ManagedObjectNotFound");
    for _ in 0..3 {
        let wait = rig.waits_for_deletion().await;
        assert_eq!(rig.calls(), ["PowerOffVM_Task"]);
        advance(wait.look_again_after.expect("a time")).await;
    }
    rig.leave();
    // no clone is under way, and there is no such object
    rig.transport.answer("RetrievePropertiesEx", Ok(node("returnval", Vec::new())));
    rig.transport.fault("RetrievePropertiesEx", "ManagedObjectNotFound");
    assert_eq!(rig.delete().await.expect("gone"), Deletion::Gone);
    assert!(rig.calls().contains(&"FindAllByUuid"), "{:?}", rig.calls());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_leaves_while_a_step_reads_it_is_no_failure() {
    let mut rig = rig().await;
    rig.begins("PowerOffVM_Task", "task-1");
    rig.waits_for_deletion().await;
    rig.succeeds("task-1");
    rig.transport.fault("RetrievePropertiesEx", "ManagedObjectNotFound");
    rig.waits_for_deletion().await;
    rig.waits_for_deletion().await;
    assert_eq!(rig.calls(), ["PowerOffVM_Task", "RetrievePropertiesEx"]);
}

#[tokio::test(start_paused = true)]
async fn machines_whose_tasks_are_not_told_share_an_answer() {
    let rig = rig().await;
    let vcenter = rig.machines.configured_vcenter("spec.server", None).expect("the only one");
    let task = |number: usize| MoRef::new(TASK, &format!("task-{number}"));
    let listed = |number: usize, state: &str| {
        let property = node("propSet", vec![text("name", "info.state"), text("val", state)]);
        node("objects", vec![reference("obj", &task(number)), property])
    };
    let listing = |objects| Ok(node("returnval", objects));
    rig.transport.answer("RetrievePropertiesEx", listing(vec![listed(1, "success"), listed(2, "running")]));
    for (number, has_ended) in [(1, true), (2, false), (1, true)] {
        let found = rig.machines.task(&vcenter, &task(number)).await.expect("told").expect("known");
        assert_eq!(found.has_ended(), has_ended, "task-{number}");
    }
    assert_eq!(rig.calls().len(), 1);
    // vCenter lists the last ones only
    rig.transport.answer("RetrievePropertiesEx", listing(vec![listed(3, "success")]));
    assert!(rig.machines.task(&vcenter, &task(3)).await.expect("told").expect("known").has_ended());
    assert_eq!(rig.calls().len(), 2);
    advance(Duration::from_secs(5)).await;
    rig.transport.answer("RetrievePropertiesEx", listing(vec![listed(2, "success")]));
    assert!(rig.machines.task(&vcenter, &task(2)).await.expect("told").expect("known").has_ended());
    assert_eq!(rig.calls().len(), 3);
}

/// Work may also fail since a datastore or a host is not there.
#[tokio::test(start_paused = true)]
async fn a_task_that_misses_something_may_mean_the_machine() {
    for is_removed in [true, false] {
        let mut rig = rig().await;
        rig.begins("PowerOffVM_Task", "task-1");
        rig.waits_for_deletion().await;
        let mut fault = node("fault", Vec::new());
        fault.kind = Some("ManagedObjectNotFound".into());
        let error = node("val", vec![fault]);
        rig.tell(&MoRef::new(TASK, "task-1"), UpdateKind::Enter, &[("info.error", error)]);
        if is_removed {
            rig.transport.fault("RetrievePropertiesEx", "ManagedObjectNotFound");
            let wait = rig.waits_for_deletion().await;
            assert!(wait.message.contains("is removed"), "{wait:?}");
        } else {
            rig.is_read();
            let error = rig.delete().await.expect_err("it has failed").report();
            assert!(error.contains("the power-off of \"worker-1\" has failed (task-1)"), "{error}");
        }
        assert_eq!(rig.calls(), ["PowerOffVM_Task", "RetrievePropertiesEx"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_powered_on_is_waited_for() {
    let mut rig = rig().await;
    rig.has_made_it();
    rig.tell(&machine(), UpdateKind::Modify, &[("runtime.powerState", text("val", "poweredOff"))]);
    rig.begins("PowerOnVM_Task", "task-1");
    rig.ensure(None).await.expect("begun");
    rig.succeeds("task-1");
    for _ in 0..20 {
        rig.ensure(None).await.expect("it waits");
        assert_eq!(rig.calls(), ["PowerOnVM_Task"]);
        advance(Duration::from_secs(1)).await;
    }
    // somebody may have powered it off again
    advance(Duration::from_secs(20)).await;
    rig.begins("PowerOnVM_Task", "task-2");
    rig.ensure(None).await.expect("begun");
    assert_eq!(rig.calls(), ["PowerOnVM_Task", "PowerOnVM_Task"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_leaves_before_its_power_on_is_looked_at_again() {
    for provider_id in [None, Some(format!("vsphere://{BIOS_UUID}"))] {
        let mut rig = rig().await;
        rig.has_made_it();
        rig.tell(&machine(), UpdateKind::Modify, &[("runtime.powerState", text("val", "poweredOff"))]);
        rig.transport.fault("PowerOnVM_Task", "ManagedObjectNotFound");
        for _ in 0..3 {
            let report = rig.ensure(provider_id.clone()).await.expect("no failure");
            assert_eq!(report.present().is_some(), provider_id.is_some(), "{report:?}");
            let wait = report.wait().expect("it waits").clone();
            assert!(wait.message.contains("was removed"), "{wait:?}");
            assert_eq!(rig.calls(), ["PowerOnVM_Task"]);
            advance(wait.look_again_after.expect("a time")).await;
        }
        rig.leave();
        rig.transport.fault("RetrievePropertiesEx", "ManagedObjectNotFound");
        if provider_id.is_some() {
            let report = rig.ensure(provider_id).await.expect("it is known");
            assert!(matches!(report, MachineReport::Lost { .. }), "{report:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_task_that_is_not_told_is_found_in_the_inventory() {
    let mut rig = rig().await;
    rig.begins("PowerOffVM_Task", "task-1");
    rig.waits_for_deletion().await;
    rig.tell(&MoRef::new(TASK, "task-1"), UpdateKind::Enter, &[("info.state", text("val", "running"))]);
    rig.tell(&machine(), UpdateKind::Modify, &[("runtime.powerState", text("val", "poweredOff"))]);
    // vCenter may refuse another task until this one has ended
    assert_eq!(rig.waits_for_deletion().await.look_again_after, Some(Duration::from_secs(2)));
    assert_eq!(rig.calls(), ["PowerOffVM_Task"]);
    tokio::time::advance(Duration::from_secs(2)).await;
    rig.is_read();
    rig.begins("Destroy_Task", "task-2");
    rig.waits_for_deletion().await;
    assert_eq!(rig.calls(), ["PowerOffVM_Task", "RetrievePropertiesEx", "Destroy_Task"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_runs_for_long_is_asked_for() {
    let mut rig = rig().await;
    rig.begins("PowerOffVM_Task", "task-1");
    rig.waits_for_deletion().await;
    rig.tell(&MoRef::new(TASK, "task-1"), UpdateKind::Enter, &[("info.state", text("val", "running"))]);
    assert_eq!(rig.waits_for_deletion().await.look_again_after, Some(Duration::from_secs(10)));
    assert_eq!(rig.calls(), ["PowerOffVM_Task"]);
    tokio::time::advance(Duration::from_secs(10)).await;
    let state = |state: &str| {
        let property = node("propSet", vec![text("name", "info.state"), text("val", state)]);
        let object = node("objects", vec![reference("obj", &MoRef::new(TASK, "task-1")), property]);
        Ok(node("returnval", vec![object]))
    };
    rig.transport.answer("RetrievePropertiesEx", state("running"));
    assert_eq!(rig.waits_for_deletion().await.look_again_after, Some(Duration::from_secs(60)));
    tokio::time::advance(Duration::from_secs(60)).await;
    rig.transport.answer("RetrievePropertiesEx", state("success"));
    rig.is_read();
    rig.begins("Destroy_Task", "task-2");
    rig.waits_for_deletion().await;
    assert_eq!(rig.transport.count("Destroy_Task"), 1, "it was asked for, and has ended");
    assert_eq!(rig.transport.count("PowerOffVM_Task"), 1);
}
