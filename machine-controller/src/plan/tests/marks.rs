//! Whose what is in the cloud is, while labels change and objects are copied and moved.

use cloudprovider::machines::Mark;

use super::*;

/// Where an object has the name of a Cluster, and the UID with which it was made.
fn named(label: Option<&str>, annotation: Option<&str>, identity: &str) -> Value {
    json!({"metadata": {
        "labels": {"cluster.x-k8s.io/cluster-name": label},
        "annotations": {
            "infrastructure.cluster.x-k8s.io/cluster-name": annotation,
            "infrastructure.cluster.x-k8s.io/uid": identity,
        },
    }})
}

#[tokio::test]
async fn a_mark_stays_as_it_was_when_the_label_changes() {
    for (what, label, annotation, expected) in [
        ("as it was made", Some("prod"), Some("prod"), "prod"),
        ("another label", Some("test"), Some("prod"), "prod"),
        ("no label", None, Some("prod"), "prod"),
        ("made by an earlier version", Some("prod"), None, "prod"),
    ] {
        for deletion in [json!({}), deleting()] {
            let mut change = named(label, annotation, "u-1");
            merge(&mut change, deletion.clone());
            let world = World::new(machine_object(change));
            let mark = Mark::machine("u-1", "default", expected, "one");
            assert_eq!(world.context().request(&world.scope()).mark, mark, "{what}");
            let next = match (annotation, world.object.is_deleting()) {
                (_, true) => Next::Delete,
                (None, false) => Next::Adopt,
                (Some(_), false) => Next::Ensure,
            };
            assert_eq!(world.next(), next, "{what}");
        }
    }
    let nameless = World::new(machine_object({
        let mut change = named(None, None, "u-1");
        merge(&mut change, deleting());
        change
    }));
    assert!(matches!(nameless.next(), Next::Say(ready) if ready.reason == DELETING));
}

#[tokio::test]
async fn without_the_annotation_the_label_counts_only_if_the_owner_agrees() {
    let owned = |cluster: Option<&str>| {
        let cluster = cluster.map(str::to_owned);
        Some(Machine { bootstrap_secret: Some("one-data".into()), cluster, ..Machine::default() })
    };
    for (what, label, machine, is_told) in [
        ("another label", "test", owned(Some("prod")), true),
        ("made by an earlier version", "prod", owned(Some("prod")), false),
        ("nobody knows better", "test", owned(None), false),
        ("no owner", "test", None, false),
    ] {
        for deletion in [json!({}), deleting()] {
            let mut change = named(Some(label), None, "u-1");
            merge(&mut change, deletion);
            let world = |change: Value| {
                World::new(machine_object(change)).with(|world| world.machine.clone_from(&machine))
            };
            match world(change.clone()).next() {
                Next::Say(told) => {
                    assert_eq!((&*told.reason, is_told), (CLUSTER_NAME_MISMATCH, true), "{what}");
                    assert!(told.message.contains("belongs to \"prod\""), "{}", told.message);
                }
                next => assert!(
                    !is_told && matches!(next, Next::Adopt | Next::Delete | Next::Rest),
                    "{what}: {next:?}"
                ),
            }
            let held = json!({"metadata": {"annotations": {
                "cluster.x-k8s.io/paused": "", "clusterctl.cluster.x-k8s.io/block-move": "machine-controller",
            }}});
            merge(&mut change, held);
            if is_told {
                assert_eq!(world(change).next(), Next::SayPaused, "{what}");
            }
        }
    }
    // A cluster has its Cluster as owner.
    for (label, is_told) in [("prod", false), ("test", true)] {
        let mut change = named(Some(label), None, "c-1");
        merge(&mut change, deleting());
        merge(
            &mut change,
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "prod", "uid": "c"},
            ]}}),
        );
        let object = cluster_object(change);
        let situation = InfraClusterContext {
            object: &object,
            cluster: None,
            machines: &[],
            rival: None,
            reads: None,
            memory: None,
        };
        let scope = Scope { kinds: &KINDS, watch_filter: None, provider: 1, now: Instant::now() };
        let next = situation.next(&scope);
        let found = matches!(&next, Next::Say(ready) if ready.reason == CLUSTER_NAME_MISMATCH);
        assert_eq!(found, is_told, "{next:?}");
    }
}

/// It has another UID than the one with which it was made: it is a copy, or it has moved.
#[tokio::test]
async fn what_may_be_a_copy_for_another_cluster_does_nothing_to_what_it_was_copied_from() {
    for (label, is_told) in [(Some("prod"), false), (None, false), (Some("test"), true)] {
        for deletion in [json!({}), deleting()] {
            let mut change = named(label, Some("prod"), "u-0");
            merge(&mut change, deletion);
            let next = World::new(machine_object(change.clone())).next();
            let Next::Say(told) = next else {
                assert!(!is_told && matches!(next, Next::Ensure | Next::Delete), "{label:?}: {next:?}");
                continue;
            };
            assert_eq!((&*told.reason, is_told), (CLUSTER_NAME_MISMATCH, true));
            assert!(told.message.contains("made for the Cluster \"prod\""), "{}", told.message);

            let held = json!({"metadata": {"annotations": {
                "cluster.x-k8s.io/paused": "", "clusterctl.cluster.x-k8s.io/block-move": "machine-controller",
            }}});
            merge(&mut change, held);
            assert_eq!(World::new(machine_object(change)).next(), Next::SayPaused);
        }
    }
    let object = cluster_object(named(Some("test"), Some("prod"), "c-0"));
    let cluster = Cluster::default();
    let situation = InfraClusterContext {
        object: &object,
        cluster: Some(&cluster),
        machines: &[],
        rival: None,
        reads: None,
        memory: None,
    };
    let scope = Scope { kinds: &KINDS, watch_filter: None, provider: 1, now: Instant::now() };
    assert!(matches!(situation.next(&scope), Next::Say(ready) if ready.reason == CLUSTER_NAME_MISMATCH));
    let request = situation.request(&scope);
    assert_eq!(request.mark, Mark::cluster("c-0", "default", "prod"));
    assert_eq!(request.object_uid, "c-1", "that of the API server, whatever the annotation says");
}

#[tokio::test]
async fn a_deletion_does_not_need_the_infrastructure_of_its_cluster() {
    for (infra_cluster, expected) in [
        (Some(cluster_object(json!({}))), json!({"pool": "fast"})),
        (Some(cluster_object(json!({"spec": null}))), json!({})),
        (None, Value::Null),
    ] {
        let world = World::new(machine_object(deleting())).with(|world| {
            world.infra_cluster = infra_cluster;
            world.cluster = None;
        });
        assert_eq!(world.next(), Next::Delete);
        assert_eq!(world.context().request(&world.scope()).cluster.spec, expected);
    }
}
