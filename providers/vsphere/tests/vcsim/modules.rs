//! Cluster modules, which keep machines that are alike on different hosts. The simulator keeps them, and moves nothing.

mod killed;

use std::{collections::BTreeSet, sync::Arc};

use cloudprovider::{
    CloudProvider as _, InstanceChange,
    machines::{ClusterRequest, ConditionStatus, Deletion, MachineReport, Mark, Record},
};
use futures::{StreamExt as _, future::join_all};
use parking_lot::Mutex;
use serde_json::{Value, json};
use test_env::{Vcsim, VcsimOptions};

use crate::{controller::*, support::*, zones};

const CLUSTER_UID: &str = "4d3c2b1a-0000-4000-8000-00000000ffff";
const MODULES: &str = "/vcenter/cluster/modules";
const WAITING: &str = "WaitingForClusterModule";

/// What the API has of the object of a cluster.
#[derive(Clone)]
struct Cluster {
    spec: Arc<Mutex<Value>>,
    /// Two steps of it are never made at the same time.
    turn: Arc<tokio::sync::Mutex<Record<Value>>>,
}

impl Cluster {
    fn new(vcsim: &Vcsim, more: &Value) -> Self {
        let spec = merged(cluster_spec(vcsim), more);
        Self { spec: Arc::new(Mutex::new(spec)), turn: Arc::default() }
    }

    fn spec(&self) -> Value {
        self.spec.lock().clone()
    }

    fn recorded(&self) -> Vec<Value> {
        self.spec()["clusterModules"].as_array().cloned().unwrap_or_default()
    }

    fn request(&self) -> ClusterRequest<Value> {
        ClusterRequest::new(Mark::cluster(CLUSTER_UID, "default", "prod"), self.spec())
    }

    /// A step, and what the controller writes after it. Returns what it told.
    async fn step(&self, running: &Running) -> cloudprovider::Result<Record<Value>> {
        let part = running.provider.machines().expect("machines");
        let mut record = self.turn.lock().await;
        let report = part.ensure_cluster(&self.request(), &mut record).await?;
        for (field, value) in report.spec {
            self.spec.lock()[&field] = value;
        }
        Ok(record.clone())
    }

    async fn delete(&self, running: &Running) {
        let part = running.provider.machines().expect("machines");
        let mut record = self.turn.lock().await;
        let answer = part.delete_cluster(&self.request(), &mut record).await;
        assert_eq!(answer.expect("deleted"), Deletion::Gone);
    }

    /// Steps of a machine and of its cluster until the machine is complete.
    async fn make(&self, running: &Running, controller: &mut Controller<'_>, object: &mut Object) {
        loop {
            object.request.cluster.spec = self.spec();
            match controller.step(object).await {
                Ok(MachineReport::Present(machine)) if machine.wait.is_none() => return,
                Ok(report) if report.wait().is_some_and(|wait| wait.reason == WAITING) => {
                    self.step(running).await.expect("a step of the cluster");
                }
                Ok(report) => controller.wait(object, report.wait()).await,
                Err(error) => {
                    // what was lost is looked at again
                    let _ = (error, self.step(running).await);
                }
            }
        }
    }
}

/// A provider that keeps machines apart.
async fn keeping_apart(vcsim: &Vcsim) -> Running {
    started_with(vcsim, "machines: {nodeAntiAffinity: true}\n").await
}

/// A machine of a `MachineDeployment`.
fn worker(vcsim: &Vcsim, number: usize) -> Object {
    let mut object = Object::new(vcsim, number, &json!({}));
    object.request.group = Some("workers".to_owned());
    object
}

/// The machines of each module in vCenter, and the cluster of hosts that it is in.
fn found(vcsim: &Vcsim) -> Vec<(String, Vec<String>)> {
    let one = |module: &Value| {
        let machines = module["machines"].as_array().expect("machines").iter();
        let machines = machines.map(|one| one.as_str().unwrap_or_default().to_owned()).collect();
        (module["cluster"].as_str().unwrap_or_default().to_owned(), machines)
    };
    vcsim.cluster_modules().expect("modules").iter().map(one).collect()
}

/// The IDs of all modules in vCenter.
fn ids(vcsim: &Vcsim) -> BTreeSet<String> {
    let all = vcsim.cluster_modules().expect("modules");
    all.iter().map(|one| id(&one["module"])).collect()
}

fn id(value: &Value) -> String {
    value.as_str().expect("an ID").to_owned()
}

fn count(vcsim: &Vcsim, call: &str) -> u64 {
    calls(vcsim).get(call).copied().unwrap_or_default()
}

fn condition(record: &Record<Value>, name: &str) -> Option<(ConditionStatus, String)> {
    let found = record.conditions.iter().find(|one| one.condition_type == name)?;
    Some((found.status, found.reason.to_string()))
}

#[tokio::test]
async fn machines_of_one_deployment_share_one_module() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = keeping_apart(&vcsim).await;
    let cluster = Cluster::new(&vcsim, &json!({}));
    let record = cluster.step(&running).await.expect("a step");
    assert_eq!(condition(&record, "ClusterModulesReady"), Some((ConditionStatus::True, "Ready".to_owned())));
    assert_eq!(found(&vcsim), [], "nobody wants one yet");
    vcsim.reset_counts().expect("reset");

    let mut all: Vec<_> = (1..=6).map(|number| (Controller::new(&running), worker(&vcsim, number))).collect();
    join_all(all.iter_mut().map(|(controller, object)| cluster.make(&running, controller, object))).await;
    let names: Vec<_> = all.iter().map(|(_, object)| object.name()).collect();
    assert_eq!(found(&vcsim), [("DC0_C0".to_owned(), names)]);
    let module = vcsim.cluster_modules().expect("modules")[0]["module"].clone();
    let expected = json!({"controlPlane": false, "targetObjectName": "workers", "moduleUUID": module});
    assert_eq!(cluster.recorded(), [expected]);
    assert_eq!(count(&vcsim, &format!("rest:POST {MODULES}")), 1);
    assert!(count(&vcsim, &format!("rest:POST {MODULES}/vm/ID/members?add")) <= 6);
    for (controller, object) in &all {
        assert!(controller.errors.is_empty(), "{:?}", controller.errors);
        assert_eq!(object.record.status["moduleUUID"], module);
        let vm = object.record.wanted().iter().find(|one| one.kind.kind == "VSphereVM").expect("a VSphereVM");
        assert_eq!(vm.status.as_ref().map(|status| &status["moduleUUID"]), Some(&module));
    }

    // they leave it before they are destroyed, also where nothing remembers in which one they are
    all[0].1.record = Record::default();
    join_all(all.iter_mut().map(|(controller, object)| controller.delete(object))).await;
    assert_eq!(found(&vcsim), [("DC0_C0".to_owned(), Vec::new())]);
    cluster.delete(&running).await;
    assert_eq!(found(&vcsim), []);
    running.stop().await;
}

/// A machine of a group that has its module takes one call more.
#[tokio::test]
async fn a_further_machine_takes_one_call_more() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = keeping_apart(&vcsim).await;
    let cluster = Cluster::new(&vcsim, &json!({}));
    let mut controller = Controller::new(&running);
    for number in 1..=2 {
        vcsim.reset_counts().expect("reset");
        cluster.make(&running, &mut controller, &mut worker(&vcsim, number)).await;
    }
    let made = calls(&vcsim);
    assert_eq!(made.values().sum::<u64>(), 4, "{made:?}");
    running.stop().await;
}

#[tokio::test]
async fn the_object_of_the_cluster_is_woken() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = keeping_apart(&vcsim).await;
    let cluster = Cluster::new(&vcsim, &json!({}));
    cluster.step(&running).await.expect("a step");
    let instances = running.provider.instances().expect("instances");
    let mut stream = cloudprovider::Instances::changes(instances).expect("a stream");
    let (mut controller, mut object) = (Controller::new(&running), worker(&vcsim, 1));
    loop {
        object.request.cluster.spec = cluster.spec();
        let report = controller.step(&mut object).await.expect("a step");
        if report.wait().is_some_and(|wait| wait.reason == WAITING) {
            break;
        }
        controller.wait(&object, report.wait()).await;
    }
    let is_told = |change: InstanceChange| match change {
        InstanceChange::Changed(all) => all.iter().any(|one| one.machine.as_deref() == Some(CLUSTER_UID)),
        InstanceChange::Resync => false,
    };
    let told = async { while !stream.next().await.is_some_and(is_told) {} };
    tokio::time::timeout(LIMIT, told).await.expect("it is told");
    running.stop().await;
}

#[tokio::test]
async fn each_cluster_of_hosts_and_each_group_has_its_own() {
    let Some(vcsim) = simulator(&VcsimOptions { clusters: 2, ..factory_options() }) else { return };
    zones::tag(&vcsim, 2);
    let running = keeping_apart(&vcsim).await;
    let cluster = Cluster::new(&vcsim, &json!({}));
    let objects = zones::objects(&vcsim, &[("a", zones::domain(0)), ("b", zones::domain(1))]);
    let mut controller = Controller::new(&running);
    for (number, is_control_plane, zone) in [(1, true, "a"), (2, true, "b"), (3, false, "a"), (4, true, "a")]
    {
        let mut object = worker(&vcsim, number);
        object.request.spec.as_object_mut().expect("a spec").remove("resourcePool");
        object.request.is_control_plane = is_control_plane;
        object.request.failure_domain = Some(zone.to_owned());
        object.request.objects = objects.clone();
        cluster.make(&running, &mut controller, &mut object).await;
    }
    let module = |cluster: &str, machines: &[&str]| {
        (cluster.to_owned(), machines.iter().map(|&one| one.to_owned()).collect::<Vec<_>>())
    };
    let expected = [
        module("DC0_C0", &["worker-1", "worker-4"]),
        module("DC0_C0", &["worker-3"]),
        module("DC0_C1", &["worker-2"]),
    ];
    assert_eq!(found(&vcsim), expected);
    assert_eq!(cluster.recorded().len(), 3);
    running.stop().await;
}

#[tokio::test]
async fn machines_that_need_none_get_none() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let left = json!({"clusterModules": [
        {"controlPlane": false, "targetObjectName": "workers", "moduleUUID": "52d0f8a2-0000-4000-8000-000000000001"},
    ]});
    for (config, more, has_group, is_told) in [
        // what Cluster API Provider vSphere has left is no error
        ("", &left, true, true),
        ("machines: {nodeAntiAffinity: true}\n", &json!({"disableClusterModule": true}), true, false),
        ("machines: {nodeAntiAffinity: true}\n", &json!({}), false, false),
    ] {
        let running = started_with(&vcsim, config).await;
        let cluster = Cluster::new(&vcsim, more);
        let record = cluster.step(&running).await.expect("a step");
        assert_eq!(condition(&record, "FieldsIgnored").is_some(), is_told, "{config} {more}");
        let (mut controller, mut object) = (Controller::new(&running), worker(&vcsim, 1));
        object.request.cluster.spec = cluster.spec();
        if !has_group {
            object.request.group = None;
        }
        vcsim.reset_counts().expect("reset");
        controller.make(&mut object).await;
        controller.delete(&mut object).await;
        cluster.delete(&running).await;
        let made = calls(&vcsim);
        assert!(!made.keys().any(|call| call.contains(MODULES)), "{config} {more}: {made:?}");
        running.stop().await;
    }
}

/// An older vCenter. The answer is injected.
#[tokio::test]
async fn a_vcenter_without_modules_makes_machines_all_the_same() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    vcsim.set_rules(&json!([{"methods": [format!("rest:GET {MODULES}")], "status": 404}])).expect("a rule");
    let running = keeping_apart(&vcsim).await;
    let cluster = Cluster::new(&vcsim, &json!({}));
    let (mut controller, mut object) = (Controller::new(&running), worker(&vcsim, 1));
    cluster.make(&running, &mut controller, &mut object).await;
    assert_eq!(found(&vcsim), []);
    assert!(controller.errors.is_empty(), "{:?}", controller.errors);
    for _ in 0..2 {
        let record = cluster.step(&running).await.expect("a step");
        let expected = (ConditionStatus::False, "InvalidVCenterVersion".to_owned());
        assert_eq!(condition(&record, "ClusterModulesReady"), Some(expected));
    }
    running.stop().await;
}

#[tokio::test]
async fn a_module_that_somebody_deleted_is_made_again() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let cluster = Cluster::new(
        &vcsim,
        &json!({"clusterModules": [
            {"targetObjectName": "workers", "moduleUUID": "52d0f8a2-0000-4000-8000-000000000001"},
            {"targetObjectName": "others", "moduleUUID": "52d0f8a2-0000-4000-8000-000000000002"},
        ]}),
    );
    let running = keeping_apart(&vcsim).await;
    let (mut controller, mut object) = (Controller::new(&running), worker(&vcsim, 1));
    cluster.make(&running, &mut controller, &mut object).await;
    let names: Vec<_> = cluster.recorded().iter().map(|one| one["targetObjectName"].clone()).collect();
    assert_eq!(names, ["others", "workers"], "what is not wanted now stays recorded");
    assert_eq!(found(&vcsim), [("DC0_C0".to_owned(), vec!["worker-1".to_owned()])]);
    running.stop().await;
}

/// Two clusters whose objects name one module: somebody has copied a manifest.
#[tokio::test]
async fn a_module_with_machines_of_others_is_not_deleted() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = keeping_apart(&vcsim).await;
    let cluster = Cluster::new(&vcsim, &json!({}));
    let (mut controller, mut object) = (Controller::new(&running), worker(&vcsim, 1));
    cluster.make(&running, &mut controller, &mut object).await;
    cluster.delete(&running).await;
    assert_eq!(found(&vcsim), [("DC0_C0".to_owned(), vec!["worker-1".to_owned()])]);
    controller.delete(&mut object).await;
    cluster.delete(&running).await;
    assert_eq!(found(&vcsim), []);
    running.stop().await;
}

/// Nobody can tell a module whose making was not answered from that of somebody else. It has no machines.
#[tokio::test]
async fn of_a_making_that_was_not_answered_an_empty_module_is_left() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = keeping_apart(&vcsim).await;
    let cluster = Cluster::new(&vcsim, &json!({}));
    cluster.step(&running).await.expect("a step");
    let rule =
        json!([{"methods": [format!("rest:POST {MODULES}")], "drop": true, "after": true, "times": 1}]);
    vcsim.set_rules(&rule).expect("a rule");
    let (mut controller, mut object) = (Controller::new(&running), worker(&vcsim, 1));
    let step = async {
        loop {
            object.request.cluster.spec = cluster.spec();
            let report = controller.step(&mut object).await.expect("a step");
            if report.wait().is_some_and(|wait| wait.reason == WAITING) {
                return cluster.step(&running).await;
            }
            controller.wait(&object, report.wait()).await;
        }
    };
    let record = step.await.expect("the step goes on");
    let expected = (ConditionStatus::False, "NotReady".to_owned());
    assert_eq!(condition(&record, "ClusterModulesReady"), Some(expected), "the answer is lost");
    cluster.make(&running, &mut controller, &mut object).await;
    let all = found(&vcsim);
    assert_eq!(all.iter().map(|(_, machines)| machines.len()).collect::<Vec<_>>(), [0, 1], "{all:?}");
    running.stop().await;
}

#[tokio::test]
async fn a_cluster_of_which_no_steps_are_made_keeps_no_machine_waiting() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = keeping_apart(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut object = worker(&vcsim, 1);
    object.request.cluster.is_reconciled = false;
    controller.make(&mut object).await;
    let (status, reason) = condition(&object.record, "ClusterModuleJoined").expect("it is told");
    assert_eq!((status, &*reason), (ConditionStatus::False, "NoClusterModule"));
    assert_eq!(found(&vcsim), []);
    controller.delete(&mut object).await;

    // what was recorded there by somebody is used
    let cluster = Cluster::new(&vcsim, &json!({}));
    let mut first = worker(&vcsim, 2);
    cluster.make(&running, &mut controller, &mut first).await;
    let mut object = worker(&vcsim, 3);
    object.request.cluster.is_reconciled = false;
    cluster.make(&running, &mut controller, &mut object).await;
    assert_eq!(condition(&object.record, "ClusterModuleJoined"), None);
    let expected = vec![first.name(), object.name()];
    assert_eq!(found(&vcsim), [("DC0_C0".to_owned(), expected)]);
    controller.delete(&mut object).await;
    controller.delete(&mut first).await;
    cluster.delete(&running).await;
    running.stop().await;
}

/// A cluster of another namespace names the module of this one: it is not joined, not deleted, and nobody is kept from anything.
#[tokio::test]
async fn the_module_of_another_cluster_is_left_alone() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = keeping_apart(&vcsim).await;
    let cluster = Cluster::new(&vcsim, &json!({}));
    cluster.step(&running).await.expect("a step");
    let (mut controller, mut object) = (Controller::new(&running), worker(&vcsim, 1));
    cluster.make(&running, &mut controller, &mut object).await;
    let module = cluster.recorded()[0]["moduleUUID"].clone();
    let claimed = json!({"clusterModules": [
        {"controlPlane": false, "targetObjectName": "workers", "moduleUUID": module},
    ]});
    // as after a restart, where nothing says who has made it
    running.stop().await;
    let running = keeping_apart(&vcsim).await;
    let hostile = Cluster::new(&vcsim, &claimed);
    let mark = Mark::cluster("4d3c2b1a-0000-4000-8000-00000000beef", "other", "prod");
    let part = running.provider.machines().expect("machines");
    let step = async || {
        let request = ClusterRequest::new(mark.clone(), hostile.spec());
        let report = part.ensure_cluster(&request, &mut Record::default()).await.expect("a step");
        for (field, value) in report.spec {
            hostile.spec.lock()[&field] = value;
        }
    };
    step().await;
    let mut intruder = worker(&vcsim, 2);
    let uid = intruder.request.mark.uid.clone();
    intruder.request.mark = Mark::machine(uid, "other", "prod", "intruder-2");
    let mut controller = Controller::new(&running);
    loop {
        intruder.request.cluster.spec = hostile.spec();
        match controller.step(&mut intruder).await {
            Ok(MachineReport::Present(machine)) if machine.wait.is_none() => break,
            Ok(report) if report.wait().is_some_and(|wait| wait.reason == WAITING) => step().await,
            Ok(report) => controller.wait(&intruder, report.wait()).await,
            Err(error) => panic!("{}", error.report()),
        }
    }
    let own = ("DC0_C0".to_owned(), vec!["worker-1".to_owned()]);
    let all = found(&vcsim);
    assert!(
        all.contains(&own) && all.contains(&("DC0_C0".to_owned(), vec!["intruder-2".to_owned()])),
        "{all:?}"
    );
    assert_ne!(hostile.recorded()[0]["moduleUUID"], module, "it has got one of its own");
    // a deletion leaves it too, also once it is empty
    cluster.step(&running).await.expect("a step");
    controller.delete(&mut object).await;
    let request = ClusterRequest::new(mark.clone(), merged(hostile.spec(), &claimed));
    part.delete_cluster(&request, &mut Record::default()).await.expect("deleted");
    let ids: Vec<_> =
        vcsim.cluster_modules().expect("modules").iter().map(|one| one["module"].clone()).collect();
    assert!(ids.contains(&module), "{ids:?}");
    running.stop().await;
}
