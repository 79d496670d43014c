mod clusters;
mod marks;
mod reset;
mod steps;
mod waits;

use std::time::Duration;

use cloudprovider::machines::{BootstrapData, BootstrapFormat, Kind};
use serde_json::json;

use super::*;
use crate::names::{PAUSED_REASON, READY_REASON};

const KINDS: Kinds =
    Kinds::new("v1", Kind::new("MyMachine", "mymachines"), Kind::new("MyCluster", "myclusters"));

fn object(value: Value) -> InfraObject {
    serde_json::from_value(value).expect("an object")
}

/// A machine with everything before its first step, and with what a test changes: a merge patch.
fn machine_object(change: Value) -> InfraObject {
    let mut machine = json!({
        "metadata": {
            "name": "one", "namespace": "default", "uid": "u-1", "generation": 1,
            "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
            "annotations": {
                "infrastructure.cluster.x-k8s.io/uid": "u-1",
                "infrastructure.cluster.x-k8s.io/cluster-name": "prod",
            },
            "finalizers": ["mymachine.infrastructure.cluster.x-k8s.io"],
        },
        "spec": {"cpus": 2},
    });
    merge(&mut machine, change);
    object(machine)
}

fn cluster_object(change: Value) -> InfraObject {
    let mut cluster = json!({
        "metadata": {
            "name": "prod-infra", "namespace": "default", "uid": "c-1", "generation": 1,
            "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
            "annotations": {
                "infrastructure.cluster.x-k8s.io/uid": "c-1",
                "infrastructure.cluster.x-k8s.io/cluster-name": "prod",
            },
            "finalizers": ["mycluster.infrastructure.cluster.x-k8s.io"],
        },
        "spec": {"pool": "fast"},
    });
    merge(&mut cluster, change);
    object(cluster)
}

/// RFC 7396.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (field, value) in patch {
        if value.is_null() {
            target.as_object_mut().expect("an object").remove(&field);
        } else {
            merge(&mut target[&field], value);
        }
    }
}

fn deleting() -> Value {
    json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
}

/// The condition, as it is after it was said about generation 1.
fn said(condition_type: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": condition_type, "status": status, "reason": reason, "message": message, "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// What surrounds a machine that is to be made.
struct World {
    object: InfraObject,
    machine: Option<Machine>,
    cluster: Option<Cluster>,
    infra_cluster: Option<InfraObject>,
    bootstrap: Bootstrap,
    rival: Option<Rival>,
    memory: Option<Memory>,
    watch_filter: Option<&'static str>,
    kinds: Kinds,
    now: Instant,
}

impl World {
    fn new(object: InfraObject) -> Self {
        let data = BootstrapData::new(BootstrapFormat::CloudConfig, "#cloud-config");
        Self {
            object,
            machine: Some(Machine { bootstrap_secret: Some("one-data".into()), ..Machine::default() }),
            cluster: Some(Cluster { is_infrastructure_provisioned: true, ..Cluster::default() }),
            infra_cluster: Some(cluster_object(json!({}))),
            bootstrap: Bootstrap::Data(data),
            rival: None,
            memory: None,
            watch_filter: None,
            kinds: KINDS,
            now: Instant::now(),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn context(&self) -> MachineContext<'_> {
        MachineContext {
            object: &self.object,
            machine: self.machine.as_ref(),
            cluster: self.cluster.as_ref(),
            infra_cluster: self.infra_cluster.as_ref(),
            bootstrap: &self.bootstrap,
            rival: self.rival.as_ref(),
            reads: None,
            memory: self.memory.as_ref(),
        }
    }

    fn scope(&self) -> Scope<'_> {
        Scope { kinds: &self.kinds, watch_filter: self.watch_filter, provider: 1, now: self.now }
    }

    fn next(&self) -> Next {
        self.context().next(&self.scope())
    }

    /// After a step that got what the next one would get.
    fn remembering(mut self, due: Due) -> Self {
        let inputs = self.context().inputs(&self.scope());
        self.memory = Some(Memory { inputs, due, ..Memory::default() });
        self
    }
}

fn waits(reason: &'static str, message: &'static str) -> Next {
    Next::Say(Condition::new("Ready", ConditionStatus::False, reason).with_message(message))
}

/// The same, and the wait has just begun.
fn defers(reason: &'static str, message: &'static str) -> Next {
    Next::Defer(Condition::new("Ready", ConditionStatus::False, reason).with_message(message))
}

#[tokio::test]
async fn the_order_of_the_contract() {
    let world = |change: Value| World::new(machine_object(change));
    let secret = |bootstrap: Bootstrap| move |world: &mut World| world.bootstrap = bootstrap;
    for (what, world, expected) in vec![
        ("everything is there", world(json!({})), Next::Ensure),
        ("no Machine yet", world(json!({})).with(|world| world.machine = None), Next::Rest),
        ("no Cluster", world(json!({})).with(|world| world.cluster = None), Next::Rest),
        (
            "no name of a Cluster",
            world(json!({"metadata": {"labels": null, "annotations": null, "finalizers": null}})),
            Next::Rest,
        ),
        (
            "the Cluster is first",
            world(json!({})).with(|world| world.cluster = Some(Cluster::default())),
            defers(
                "WaitingForClusterInfrastructureReady",
                "the infrastructure of the Cluster is not provisioned yet",
            ),
        ),
        (
            "its infrastructure cannot be found",
            world(json!({})).with(|world| world.infra_cluster = None),
            waits("WaitingForClusterInfrastructureReady", "there is no MyCluster of the Cluster"),
        ),
        (
            "no Secret yet",
            world(json!({}))
                .with(secret(Bootstrap::Missing))
                .with(|world| world.machine = Some(Machine::default())),
            defers("WaitingForBootstrapData", "spec.bootstrap.dataSecretName of the Machine is not set yet"),
        ),
        (
            "the Secret is not there",
            world(json!({})).with(secret(Bootstrap::Missing)),
            defers("WaitingForBootstrapData", "the Secret \"one-data\" with the bootstrap data is not there"),
        ),
        (
            "the Secret is something else",
            world(json!({})).with(secret(Bootstrap::Unusable("why".into()))),
            defers("WaitingForBootstrapData", "the Secret \"one-data\" has no bootstrap data: why"),
        ),
        ("no finalizer", world(json!({"metadata": {"finalizers": null}})), Next::Adopt),
        ("no identity", world(json!({"metadata": {"finalizers": null, "annotations": null}})), Next::Adopt),
        (
            "nothing is written before everything is there",
            world(json!({"metadata": {"finalizers": null}}))
                .with(|world| world.cluster = Some(Cluster::default())),
            defers(
                "WaitingForClusterInfrastructureReady",
                "the infrastructure of the Cluster is not provisioned yet",
            ),
        ),
        (
            "what exists is followed without bootstrap data and without the Cluster's word",
            world(json!({"spec": {"providerID": "my:///1"}}))
                .with(secret(Bootstrap::Missing))
                .with(|world| world.cluster = Some(Cluster::default())),
            Next::Ensure,
        ),
        ("deletion", world(deleting()), Next::Delete),
        (
            "deletion waits for nothing",
            world(deleting()).with(secret(Bootstrap::Missing)).with(|world| {
                (world.machine, world.cluster, world.infra_cluster) = (None, None, None);
            }),
            Next::Delete,
        ),
        (
            "deletion of what never was ours",
            world(deleting()).with(|world| world.object.metadata.finalizers = None),
            Next::Ignore,
        ),
        (
            "deletion without a name of its Cluster",
            world(deleting()).with(|world| {
                world.object.metadata.labels = None;
                world
                    .object
                    .metadata
                    .annotations
                    .as_mut()
                    .expect("annotations")
                    .remove(&cluster_annotation(&KINDS));
            }),
            waits("Deleting", "the label cluster.x-k8s.io/cluster-name is missing"),
        ),
    ] {
        assert_eq!(world.next(), expected, "{what}");
    }
}

#[tokio::test]
async fn a_pause_stops_everything_and_is_said_once() {
    let paused = || json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    let by_cluster = |world: &mut World| {
        world.cluster =
            Some(Cluster { is_paused: true, is_infrastructure_provisioned: true, ..Cluster::default() });
    };
    let mut told = paused();
    let message = crate::conditions::paused().message;
    told["status"] = json!({"conditions": [said("Paused", "True", PAUSED_REASON, &message)]});
    let mut paused_deletion = paused();
    merge(&mut paused_deletion, deleting());
    for (what, world, expected) in [
        ("by annotation", World::new(machine_object(paused())), Next::SayPaused),
        ("by the Cluster", World::new(machine_object(json!({}))).with(by_cluster), Next::SayPaused),
        ("also a deletion", World::new(machine_object(paused_deletion)), Next::SayPaused),
        ("said already", World::new(machine_object(told.clone())), Next::Rest),
        (
            "before the owner is known",
            World::new(machine_object(paused())).with(|world| world.machine = None),
            Next::SayPaused,
        ),
    ] {
        assert_eq!(world.next(), expected, "{what}");
    }
    // After a pause a step looks at everything, and its status takes the condition back.
    told["metadata"] = json!({});
    let resumed = World::new(machine_object(told)).remembering(Due::WhenChanged);
    assert_eq!(resumed.next(), Next::Ensure);
}

#[tokio::test]
async fn what_holds_a_move_comes_to_its_end_in_a_pause() {
    let held = |paused: Value| {
        let mut object = json!({"metadata": {"annotations": {
            "cluster.x-k8s.io/paused": "",
            "clusterctl.cluster.x-k8s.io/block-move": "machine-controller",
        }}});
        merge(&mut object, paused);
        World::new(machine_object(object))
    };
    assert_eq!(held(json!({})).next(), Next::Ensure);
    assert_eq!(held(json!({})).remembering(Due::WhenChanged).next(), Next::Rest, "the cloud tells");
    assert_eq!(held(deleting()).next(), Next::SayPaused);
    assert_eq!(held(json!({})).with(|world| world.machine = None).next(), Next::SayPaused);
    let foreign = json!({"metadata": {"annotations": {"clusterctl.cluster.x-k8s.io/block-move": "me"}}});
    assert_eq!(held(foreign).next(), Next::SayPaused);
}

#[tokio::test]
async fn without_its_identity_nothing_is_made_or_deleted() {
    for change in [json!({}), deleting()] {
        let mut object = json!({"metadata": {"annotations": null}});
        merge(&mut object, change);
        let Next::Say(told) = World::new(machine_object(object)).next() else { panic!("it is not told") };
        assert_eq!(told.reason, IDENTITY_MISSING);
        assert!(told.message.contains("infrastructure.cluster.x-k8s.io/uid"), "{}", told.message);
    }
}

#[tokio::test]
async fn of_what_another_program_has_made_the_provider_says_whose_it_is() {
    let without = |change: Value| {
        let mut object = json!({"metadata": {"annotations": null}});
        merge(&mut object, change);
        machine_object(object)
    };
    let next = |object: InfraObject| World::new(object).with(|world| world.kinds = KINDS.shared()).next();
    let with_id = || json!({"spec": {"providerID": "fake:///1"}});
    assert_eq!(next(without(json!({}))), Next::Identify, "it has the finalizer");
    assert_eq!(next(without(deleting())), Next::Identify, "a deletion too has to know");
    assert_eq!(next(without(with_id())), Next::Identify);
    let bare = |change: Value| {
        let mut object = json!({"metadata": {"annotations": null, "finalizers": null}});
        merge(&mut object, change);
        machine_object(object)
    };
    assert_eq!(next(bare(with_id())), Next::Identify);
    assert_eq!(next(bare(json!({}))), Next::Adopt, "a new one");
    // one of the two was removed
    let ours = json!({"metadata": {"annotations": {"infrastructure.cluster.x-k8s.io/uid": null}}});
    let Next::Say(told) = next(machine_object(ours)) else { panic!("it is not told") };
    assert_eq!(told.reason, IDENTITY_MISSING);
    assert_eq!(next(machine_object(json!({}))), Next::Ensure);
}

#[tokio::test]
async fn a_cluster_of_another_program_gets_a_mark() {
    for change in [json!({}), deleting()] {
        let mut object = json!({"metadata": {"annotations": null}});
        merge(&mut object, change);
        let object = cluster_object(object);
        let kinds = KINDS.shared();
        let situation = InfraClusterContext {
            object: &object,
            cluster: Some(&Cluster::default()),
            machines: &[],
            rival: None,
            reads: None,
            memory: None,
        };
        let scope = Scope { kinds: &kinds, watch_filter: None, provider: 1, now: Instant::now() };
        assert_eq!(situation.next(&scope), Next::Adopt);
    }
}

#[tokio::test]
async fn what_others_look_after_is_left_alone() {
    let labelled = json!({"metadata": {"labels": {"cluster.x-k8s.io/watch-filter": "a"}}});
    for (object, filter, expected) in [
        (json!({}), Some("a"), Next::Ignore),
        (labelled.clone(), Some("b"), Next::Ignore),
        (labelled.clone(), Some("a"), Next::Ensure),
        (labelled, None, Next::Ensure),
    ] {
        let world = World::new(machine_object(object)).with(|world| world.watch_filter = filter);
        assert_eq!(world.next(), expected, "{filter:?}");
    }
}

#[tokio::test]
async fn of_two_objects_with_one_identity_one_is_told_and_left_alone() {
    let near = Rival { key: "default/two".into(), is_foreign: false, has_same_mark: false };
    let copy = |rival: &Rival, change: Value| {
        World::new(machine_object(change)).with(|world| world.rival = Some(rival.clone()))
    };
    let Next::Say(told) = copy(&near, json!({})).next() else { panic!("it is not told") };
    assert_eq!((&*told.reason, told.status), ("IdentityInUse", ConditionStatus::False));
    assert!(told.message.contains("\"default/two\" has the same identity"), "{}", told.message);
    // Whatever was made for it, before or after somebody gave it the identity of another one.
    let made = json!({"metadata": deleting()["metadata"], "spec": {"providerID": "my:///1"}});
    assert_eq!(copy(&near, deleting()).next(), Next::Delete);
    assert_eq!(copy(&near, made).next(), Next::Delete);

    let far = Rival { key: "team-b/secret".into(), is_foreign: true, ..near };
    let Next::Say(told) = copy(&far, json!({})).next() else { panic!("it is not told") };
    assert_eq!(told.reason, IDENTITY_IN_USE);
    assert!(told.message.starts_with("another object has the same identity"), "{}", told.message);
    assert!(!told.message.contains("team-b") && !told.message.contains("secret"), "{}", told.message);
    assert_eq!(copy(&far, deleting()).next(), Next::Delete, "the cloud is asked");
}

/// The mark of a cluster does not have the name of the object: a step for the copy would delete what the
/// other one has.
#[tokio::test]
async fn a_copy_of_a_cluster_is_let_go() {
    for (has_same_mark, expected) in [(true, Next::Release), (false, Next::Delete)] {
        let rival = Rival { key: "default/b".into(), is_foreign: false, has_same_mark };
        let object = cluster_object(deleting());
        let situation = InfraClusterContext {
            object: &object,
            cluster: None,
            machines: &[],
            rival: Some(&rival),
            reads: None,
            memory: None,
        };
        let scope = Scope { kinds: &KINDS, watch_filter: None, provider: 1, now: Instant::now() };
        assert_eq!(situation.next(&scope), expected);
    }
}
