//! Powers on by a scripted vCenter: the simulator finds a host for every machine, names the further task at once, and lets everybody do
//! everything.

use std::time::Duration;

use cloudprovider::{ErrorKind, machines::MachineReport};
use tokio::time::advance;

use crate::machines::steps::tests::rig::{BIOS_UUID, Rig, machine, rig};
use crate::{
    moref::MoRef,
    tasks::TASK,
    testing::scripted::{node, reference, text},
    vim::{element::Element, property_collector::UpdateKind},
};

const BY_DRS: &str = "PowerOnMultiVM_Task";
const PLAIN: &str = "PowerOnVM_Task";
const READ: &str = "RetrievePropertiesEx";

/// A machine that is off, in a cluster.
async fn off() -> Rig {
    let rig = rig().await;
    rig.has_made_it();
    let object = MoRef::new;
    let (datacenter, folder) = (object("Datacenter", "dc-1"), object("Folder", "group-h1"));
    let (cluster, pool) =
        (object("ClusterComputeResource", "domain-c1"), object("ResourcePool", "resgroup-1"));
    for (one, parent) in [(&folder, &datacenter), (&cluster, &folder), (&pool, &cluster)] {
        rig.tell(one, UpdateKind::Enter, &[("parent", reference("val", parent))]);
    }
    rig.tell(&datacenter, UpdateKind::Enter, &[("name", text("val", "DC0"))]);
    rig.tell(
        &machine(),
        UpdateKind::Modify,
        &[("runtime.powerState", text("val", "poweredOff")), ("resourcePool", reference("val", &pool))],
    );
    rig
}

/// The next read finds the configuration of the cluster.
fn configured(rig: &Rig, is_enabled: bool) {
    let drs = node("drsConfig", vec![text("enabled", if is_enabled { "true" } else { "false" })]);
    let property = node("propSet", vec![text("name", "configurationEx"), node("val", vec![drs])]);
    let cluster = reference("obj", &MoRef::new("ClusterComputeResource", "domain-c1"));
    rig.transport.answer(READ, Ok(node("returnval", vec![node("objects", vec![cluster, property])])));
}

fn task(id: &str) -> MoRef {
    MoRef::new(TASK, id)
}

fn fault(name: &str, kind: &str, words: &str) -> Element {
    let mut inner = node("fault", Vec::new());
    inner.kind = Some(kind.into());
    node(name, vec![inner, text("localizedMessage", words)])
}

/// A task has succeeded, with this result.
fn succeeds_with(rig: &Rig, id: &str, parts: Vec<Element>) {
    let mut result = node("val", parts);
    result.kind = Some("ClusterPowerOnVmResult".into());
    let values = [("info.state", text("val", "success")), ("info.result", result)];
    rig.tell(&task(id), UpdateKind::Enter, &values);
}

fn continued_by(rig: &Rig, id: &str, next: &str) {
    let attempted = node("attempted", vec![reference("vm", &machine()), reference("task", &task(next))]);
    succeeds_with(rig, id, vec![attempted]);
}

async fn waits(rig: &mut Rig) -> String {
    let report = rig.ensure(None).await.expect("it waits");
    report.wait().expect("it waits").message.to_string()
}

async fn fails(rig: &mut Rig) -> cloudprovider::Error {
    rig.ensure(None).await.expect_err("it has failed")
}

#[tokio::test(start_paused = true)]
async fn the_task_that_goes_on_is_waited_for() {
    for is_restarted in [false, true] {
        let mut rig = off().await;
        configured(&rig, true);
        rig.begins(BY_DRS, "task-1");
        assert_eq!(waits(&mut rig).await, "power-on by task-1 of vCenter \"vc\"");
        let sent = crate::soap::written(&rig.transport.requests(BY_DRS)[0]);
        assert!(
            sent.contains("<_this type=\"Datacenter\">dc-1</_this><vm type=\"VirtualMachine\">vm-1</vm>"),
            "{sent}"
        );
        let calls = if is_restarted {
            // the successor knows the status alone
            let record = std::mem::take(&mut rig.record);
            rig = off().await;
            rig.record = record;
            Vec::new()
        } else {
            vec![READ, BY_DRS]
        };
        continued_by(&rig, "task-1", "task-2");
        rig.tell(&task("task-2"), UpdateKind::Enter, &[("info.state", text("val", "running"))]);
        // whoever knows the status alone does not know how old the task is, and asks
        for _ in 0..if is_restarted { 0 } else { 3 } {
            assert_eq!(waits(&mut rig).await, "power-on by task-2 of vCenter \"vc\"");
            assert_eq!(rig.record.status.task_ref.as_deref(), Some("task-2"), "vCenter forgets the first");
            advance(Duration::from_secs(3)).await;
        }
        let error = fault("val", "InsufficientResourcesFault", "no memory left");
        rig.tell(&task("task-2"), UpdateKind::Modify, &[("info.error", error)]);
        let error = fails(&mut rig).await.report();
        assert!(error.contains("the power-on of \"worker-1\" has failed (task-2): InsufficientResourcesFault (no memory left)"), "{error}");
        let told = rig.record.conditions.iter().find(|one| one.condition_type == "VirtualMachineProvisioned");
        let told = told.expect("the condition");
        assert_eq!((&*told.reason, &*told.message), ("TaskFailed", &*error));
        assert_eq!((rig.record.status.task_ref.clone(), rig.calls()), (None, calls));
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_drs_takes_care_of_is_waited_for() {
    let mut rig = off().await;
    configured(&rig, true);
    rig.begins(BY_DRS, "task-1");
    waits(&mut rig).await;
    succeeds_with(&rig, "task-1", vec![node("attempted", vec![reference("vm", &machine())])]);
    for _ in 0..20 {
        assert_eq!(waits(&mut rig).await, "the virtual machine starts");
        assert_eq!(rig.vcenter.lag(), None, "the inventory need not show it yet");
        advance(Duration::from_secs(1)).await;
    }
    assert_eq!(rig.calls(), [READ, BY_DRS]);
    rig.tell(&machine(), UpdateKind::Modify, &[("runtime.powerState", text("val", "poweredOn"))]);
    let report = rig.ensure(None).await.expect("a report");
    assert!(matches!(report, MachineReport::Present(_)), "{report:?}");
    assert_eq!(rig.calls(), [READ, BY_DRS]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_drs_does_not_power_on_is_powered_on_by_a_task_that_says_why() {
    let mut rig = off().await;
    configured(&rig, true);
    rig.begins(BY_DRS, "task-1");
    waits(&mut rig).await;
    succeeds_with(&rig, "task-1", vec![node("attempted", vec![reference("vm", &machine())])]);
    waits(&mut rig).await;
    advance(Duration::from_secs(31)).await;
    rig.begins(PLAIN, "task-2");
    assert_eq!(waits(&mut rig).await, "power-on by task-2 of vCenter \"vc\"");
    assert_eq!(rig.calls(), [READ, BY_DRS, PLAIN]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_a_host_is_told_with_the_fault() {
    let mut rig = off().await;
    let refused =
        |kind, words| node("notAttempted", vec![reference("vm", &machine()), fault("fault", kind, words)]);
    let recommended = node("recommendations", vec![text("reasonText", "power on a machine")]);
    for (number, (part, words)) in [
        (refused("NoCompatibleHost", "no host is compatible"), "NoCompatibleHost (no host is compatible)"),
        (recommended, "DRS waits until somebody applies its recommendation: power on a machine"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("task-{number}");
        if number == 0 {
            configured(&rig, true);
        }
        rig.begins(BY_DRS, &id);
        waits(&mut rig).await;
        succeeds_with(&rig, &id, vec![part]);
        let error = fails(&mut rig).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.report().contains(&format!("has failed ({id}): {words}")), "{}", error.report());
    }
    // somebody else was faster
    rig.begins(BY_DRS, "task-9");
    waits(&mut rig).await;
    succeeds_with(&rig, "task-9", vec![refused("InvalidPowerState", "it is on")]);
    assert_eq!(waits(&mut rig).await, "the virtual machine starts");
}

#[tokio::test(start_paused = true)]
async fn whom_vcenter_refuses_drs_powers_on_without_it() {
    for kind in ["NoPermission", "MethodNotFound", "NotSupported", "NotImplemented"] {
        let mut rig = off().await;
        configured(&rig, true);
        rig.transport.fault(BY_DRS, kind);
        rig.begins(PLAIN, "task-1");
        assert_eq!(waits(&mut rig).await, "power-on by task-1 of vCenter \"vc\"");
        assert_eq!(rig.calls(), [READ, BY_DRS, PLAIN]);
        // that is known for a while
        rig.succeeds("task-1");
        waits(&mut rig).await;
        advance(Duration::from_secs(40)).await;
        rig.begins(PLAIN, "task-2");
        waits(&mut rig).await;
        assert_eq!(rig.calls(), [READ, BY_DRS, PLAIN, PLAIN], "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_may_be_what_refuses_drs() {
    for is_result in [true, false] {
        let mut rig = off().await;
        configured(&rig, true);
        rig.begins(BY_DRS, "task-1");
        waits(&mut rig).await;
        if is_result {
            let why = fault("fault", "NoPermission", "");
            succeeds_with(&rig, "task-1", vec![node("notAttempted", vec![reference("vm", &machine()), why])]);
        } else {
            rig.tell(&task("task-1"), UpdateKind::Enter, &[("info.error", fault("val", "NoPermission", ""))]);
        }
        rig.begins(PLAIN, "task-2");
        assert_eq!(waits(&mut rig).await, "power-on by task-2 of vCenter \"vc\"");
        assert_eq!(rig.calls(), [READ, BY_DRS, PLAIN]);
        // and this is the last word
        rig.tell(&task("task-2"), UpdateKind::Enter, &[("info.error", fault("val", "NoPermission", ""))]);
        let error = fails(&mut rig).await;
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", error.report());
        // a failure says nothing about DRS
        rig.begins(PLAIN, "task-3");
        waits(&mut rig).await;
        assert_eq!(rig.calls(), [READ, BY_DRS, PLAIN, PLAIN]);
    }
}

#[tokio::test(start_paused = true)]
async fn without_drs_a_machine_is_powered_on_where_it_is() {
    let mut rig = off().await;
    configured(&rig, false);
    rig.begins(PLAIN, "task-1");
    waits(&mut rig).await;
    assert_eq!(rig.calls(), [READ, PLAIN]);
    // a user who may not see the cluster
    for is_fault in [false, true] {
        let mut rig = off().await;
        if is_fault {
            rig.transport.fault(READ, "NoPermission");
        }
        rig.begins(PLAIN, "task-1");
        waits(&mut rig).await;
        assert_eq!(rig.calls(), [READ, PLAIN]);
    }
}

#[tokio::test(start_paused = true)]
async fn other_faults_of_the_call_are_told() {
    let mut rig = off().await;
    configured(&rig, true);
    rig.transport.fault(BY_DRS, "InsufficientResourcesFault");
    let error = fails(&mut rig).await.report();
    assert!(error.contains("PowerOnMultiVM_Task: vCenter answers InsufficientResourcesFault"), "{error}");
    assert_eq!(rig.calls(), [READ, BY_DRS]);

    // the call names two objects: which of them is missing?
    for is_removed in [true, false] {
        let mut rig = off().await;
        configured(&rig, true);
        rig.transport.fault(BY_DRS, "ManagedObjectNotFound");
        if is_removed {
            rig.transport.fault(READ, "ManagedObjectNotFound");
            let report = rig.ensure(Some(format!("vsphere://{BIOS_UUID}"))).await.expect("no failure");
            let wait = report.wait().expect("it waits").clone();
            assert!(wait.message.contains("was removed"), "{wait:?}");
        } else {
            rig.is_read();
            let error = fails(&mut rig).await.report();
            assert!(error.contains("ManagedObjectNotFound"), "{error}");
        }
        assert_eq!(rig.calls(), [READ, BY_DRS, READ]);
    }
}
