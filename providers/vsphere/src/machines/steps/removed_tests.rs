//! Steps of machines that vCenter has not any more, while the inventory still shows them. The vCenter is a scripted one: the simulator
//! cannot be made to hold a change back for long.

use std::sync::Arc;

use cloudprovider::{
    InstanceChange, Machines as _,
    machines::{ClusterContext, Deletion, MachineReport, MachineRequest, Mark},
};
use serde_json::json;
use tokio::{
    sync::{broadcast, watch},
    time::advance,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::{
    accounts::Accounts,
    addresses::{AddressRules, Family},
    config::ZoneLabels,
    endpoint::Endpoint,
    instances::Rules,
    inventory::Changes,
    machines::{OpenSites, Outside, Removed},
    mark::{self, MARK_PATH},
    moref::MoRef,
    session::{Credentials, Session},
    tasks::TASK,
    testing::scripted::{Scripted, node, reference, text},
    vcenter::{Settings, VCenter},
    vim::{
        Transport,
        element::Element,
        property_collector::{ObjectUpdate, UpdateKind},
    },
};

const UID: &str = "4d3c2b1a-0000-4000-8000-000000000001";
const BIOS_UUID: &str = "422e4956-ad22-1139-8d72-59cc8f26bc90";

/// A followed vCenter with one machine, which runs.
struct Rig {
    fleet: Fleet,
    vcenter: Arc<VCenter>,
    transport: Arc<Scripted>,
    record: MachineRecord,
}

fn mark() -> Mark {
    Mark::machine(UID, "default", "prod", "worker-1")
}

fn machine() -> MoRef {
    MoRef::new("VirtualMachine", "vm-1")
}

async fn rig() -> Rig {
    let settings = Settings {
        name: "vc".to_owned(),
        endpoint: Endpoint {
            host: "vc.example".to_owned(),
            port: 443,
            ca_files: Vec::new(),
            thumbprint: None,
            insecure: false,
        },
        datacenters: Vec::new(),
        access: Arc::new(|| Ok(Credentials::new("ccm", "hunter2").into())),
        asks_who_it_is: false,
        tag_refresh: None,
    };
    let changes = broadcast::channel::<InstanceChange>(1).0;
    let (status, stop, tasks) = (watch::channel(0).0, CancellationToken::new(), TaskTracker::new());
    let vcenter = Arc::new(VCenter::new(settings, changes.clone(), status.clone()));
    let transport = Arc::new(Scripted::default());
    let dynamic: Arc<dyn Transport> = Arc::<Scripted>::clone(&transport);
    let accounts = Arc::<Accounts>::default();
    let session = Session::new(dynamic, Arc::clone(&vcenter.settings.access), accounts, false);
    session.open(0).await.expect("a session");
    *vcenter.session() = Some(Arc::new(session));
    let open = Arc::new(OpenSites::new(Outside {
        instance_changes: changes,
        status_changes: status,
        accounts: std::collections::HashMap::new(),
        tasks: tasks.clone(),
        stop: stop.clone(),
    }));
    let site = Site {
        vcenter: Arc::clone(&vcenter),
        families: vec![Family::Ipv4],
        stop,
        number: 0,
        removed: Removed::default(),
    };
    let rules = Rules {
        addresses: AddressRules::default(),
        labels: ZoneLabels::default(),
        skip_node_deletion: false,
    };
    let fleet = Fleet::new(Arc::new(rules), vec![site], open, tasks);
    let rig = Rig { fleet, vcenter, transport, record: MachineRecord::default() };
    rig.shown(true);
    rig.tell(
        &machine(),
        UpdateKind::Enter,
        &[
            ("name", text("val", "worker-1")),
            ("runtime.powerState", text("val", "poweredOn")),
            ("runtime.connectionState", text("val", "connected")),
            ("config.uuid", text("val", BIOS_UUID)),
            ("config.instanceUuid", text("val", UID)),
            (MARK_PATH, text("val", &mark::write(&mark()))),
        ],
    );
    rig
}

impl Rig {
    /// Whether changes are followed.
    fn shown(&self, is_live: bool) {
        self.vcenter.update(|state| {
            (state.is_listed, state.is_live) = (true, is_live);
            Changes::default()
        });
    }

    fn tell(&self, object: &MoRef, kind: UpdateKind, properties: &[(&str, Element)]) {
        let properties = properties.iter().map(|(name, value)| (*name, Some(value))).collect();
        let update = [ObjectUpdate { object: object.clone(), kind, properties }];
        self.vcenter.update(|state| {
            state.tasks.apply(&update);
            state.inventory.apply(&update)
        });
    }

    fn leave(&self) {
        self.tell(&machine(), UpdateKind::Leave, &[]);
    }

    /// The next call of this method begins this task.
    fn begins(&self, method: &'static str, id: &str) {
        self.transport.answer(method, Ok(reference("returnval", &MoRef::new(TASK, id))));
    }

    fn succeeds(&self, id: &str) {
        self.tell(&MoRef::new(TASK, id), UpdateKind::Enter, &[("info.state", text("val", "success"))]);
    }

    /// The next read finds the machine, without a disk.
    fn is_read(&self) {
        let property = node("propSet", vec![text("name", "config.version"), text("val", "vmx-19")]);
        let object = node("objects", vec![reference("obj", &machine()), property]);
        self.transport.answer("RetrievePropertiesEx", Ok(node("returnval", vec![object])));
    }

    /// The calls since the session was opened.
    fn calls(&self) -> Vec<&'static str> {
        let mut calls = self.transport.calls();
        calls.retain(|call| !["RetrieveServiceContent", "Login"].contains(call));
        calls
    }

    async fn delete(&mut self) -> Result<Deletion> {
        let cluster = ClusterContext::new(Some(cluster_spec()));
        let request = MachineRequest::new(mark(), machine_spec(), cluster);
        self.fleet.delete_machine(&request, &mut self.record).await
    }

    async fn waits_for_deletion(&mut self) -> Wait {
        match self.delete().await {
            Ok(Deletion::Deleting(wait)) => wait,
            other => panic!("{other:?}"),
        }
    }

    async fn ensure(&mut self, provider_id: Option<String>) -> Result<MachineReport> {
        let request = MachineRequest::new(mark(), machine_spec(), ClusterContext::new(cluster_spec()))
            .with_provider_id(provider_id);
        self.fleet.ensure_machine(&request, &mut self.record).await
    }
}

fn cluster_spec() -> VSphereClusterSpec {
    serde_json::from_value(json!({"server": "vc.example"})).expect("a spec")
}

fn machine_spec() -> VSphereMachineSpec {
    let spec = json!({"template": "t", "powerOffMode": "hard", "network": {"devices": []}});
    serde_json::from_value(spec).expect("a spec")
}

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
    let site = rig.fleet.site("spec.server", None).expect("the only one");
    let task = |number: usize| MoRef::new(TASK, &format!("task-{number}"));
    let listed = |number: usize, state: &str| {
        let property = node("propSet", vec![text("name", "info.state"), text("val", state)]);
        node("objects", vec![reference("obj", &task(number)), property])
    };
    let listing = |objects| Ok(node("returnval", objects));
    rig.transport.answer("RetrievePropertiesEx", listing(vec![listed(1, "success"), listed(2, "running")]));
    for (number, has_ended) in [(1, true), (2, false), (1, true)] {
        let found = rig.fleet.task(&site, &task(number)).await.expect("told").expect("known");
        assert_eq!(found.has_ended(), has_ended, "task-{number}");
    }
    assert_eq!(rig.calls().len(), 1);
    // vCenter lists the last ones only
    rig.transport.answer("RetrievePropertiesEx", listing(vec![listed(3, "success")]));
    assert!(rig.fleet.task(&site, &task(3)).await.expect("told").expect("known").has_ended());
    assert_eq!(rig.calls().len(), 2);
    advance(Duration::from_secs(5)).await;
    rig.transport.answer("RetrievePropertiesEx", listing(vec![listed(2, "success")]));
    assert!(rig.fleet.task(&site, &task(2)).await.expect("told").expect("known").has_ended());
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
