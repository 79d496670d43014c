//! When a step of a machine is due, and what it gets.

use super::*;

#[tokio::test]
async fn a_step_is_due_when_something_changed_or_its_time_has_come() {
    let world = || World::new(machine_object(json!({})));
    let now = world().now;
    let minute = Duration::from_secs(60);
    for (what, world, expected) in [
        ("nothing is left", world().remembering(Due::WhenChanged), Next::Rest),
        ("the cloud said so", world().remembering(Due::Now), Next::Ensure),
        (
            "the spec changed",
            world().remembering(Due::WhenChanged).with(|world| world.object.metadata.generation = Some(2)),
            Next::Ensure,
        ),
        (
            "another object has the name now",
            world()
                .remembering(Due::WhenChanged)
                .with(|world| world.object.metadata.uid = Some("u-2".into())),
            Next::Ensure,
        ),
        (
            "its own status does not count",
            world().remembering(Due::WhenChanged).with(|world| {
                world.object.metadata.resource_version = Some("2".into());
                world.object.status.insert("ready".into(), json!(true));
            }),
            Next::Rest,
        ),
        (
            "the Machine changed",
            world().remembering(Due::WhenChanged).with(|world| {
                world.machine = Some(Machine { failure_domain: Some("b".into()), ..Machine::default() });
            }),
            Next::Ensure,
        ),
        (
            "the infrastructure of the Cluster changed",
            world().remembering(Due::WhenChanged).with(|world| {
                world.infra_cluster = Some(cluster_object(json!({"metadata": {"generation": 2}})));
            }),
            Next::Ensure,
        ),
        (
            "it is to be deleted",
            world().remembering(Due::WhenChanged).with(|world| world.object = machine_object(deleting())),
            Next::Delete,
        ),
    ] {
        assert_eq!(world.next(), expected, "{what}");
    }
    let at = |at: Instant| {
        let world = World { now, ..world() };
        world.remembering(Due::At(at)).next()
    };
    assert_eq!(at(now + minute), Next::At(now + minute));
    assert_eq!(at(now), Next::Ensure);
    let other_provider = world().remembering(Due::WhenChanged);
    let scope = Scope { provider: 2, ..other_provider.scope() };
    assert_eq!(other_provider.context().next(&scope), Next::Ensure);
}

#[tokio::test]
async fn a_step_gets_what_it_needs() {
    let owner = |kind: &str, name: &str| json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "uid": name});
    let change = json!({
        "metadata": {
            "uid": "u-2", "annotations": {"infrastructure.cluster.x-k8s.io/uid": "u-1"},
            "ownerReferences": [owner("MachineSet", "a-set"), owner("Machine", "a-machine")],
        },
        "spec": {"providerID": "my:///1"},
    });
    let world = World::new(machine_object(change)).with(|world| {
        let endpoint = json!({"spec": {"controlPlaneEndpoint": {"host": "a", "port": 6443}}});
        world.infra_cluster = Some(cluster_object(endpoint));
        world.machine = Some(Machine {
            failure_domain: Some("b".into()),
            bootstrap_secret: None,
            is_control_plane: true,
            group: Some("masters".into()),
            has_node: true,
            cluster: Some("prod".into()),
            ..Machine::default()
        });
    });
    let request = world.context().request(&world.scope());
    assert_eq!(request.mark, cloudprovider::machines::Mark::machine("u-1", "default", "prod", "one"));
    assert_eq!(request.machine_name, "a-machine");
    assert_eq!(request.provider_id.as_deref(), Some("my:///1"));
    assert!(request.has_node);
    assert_eq!(request.spec, json!({"cpus": 2, "providerID": "my:///1"}));
    assert_eq!(request.cluster.spec["pool"], "fast");
    assert_eq!(request.cluster.control_plane_endpoint.map(|endpoint| endpoint.port), Some(6443));
    assert!(request.cluster.is_reconciled);
    assert!(request.is_control_plane && !request.is_provisioned);
    assert_eq!(request.failure_domain.as_deref(), Some("b"));
    assert_eq!(request.group.as_deref(), Some("masters"));
    assert!(request.bootstrap.is_some());
    for change in [deleting(), json!({"status": {"initialization": {"provisioned": true}}})] {
        let world = World::new(machine_object(change));
        let request = world.context().request(&world.scope());
        assert!(request.bootstrap.is_none());
        assert_eq!(request.machine_name, "one", "its own name, as long as it has no Machine");
    }
}

#[tokio::test]
async fn a_step_is_told_that_nobody_takes_care_of_its_cluster() {
    let filtered = |cluster| {
        World::new(machine_object(json!({"metadata": {"labels": {"cluster.x-k8s.io/watch-filter": "a"}}})))
            .with(|world| {
                world.watch_filter = Some("a");
                world.infra_cluster = Some(cluster_object(cluster));
            })
    };
    for (change, expected) in [
        (json!({"metadata": {"labels": {"cluster.x-k8s.io/watch-filter": "a"}}}), true),
        (json!({}), false),
        (
            json!({"metadata": {
                "labels": {"cluster.x-k8s.io/watch-filter": "a"}, "deletionTimestamp": "2026-01-01T00:00:00Z",
            }}),
            false,
        ),
        (
            json!({"metadata": {
                "labels": {"cluster.x-k8s.io/watch-filter": "a"}, "annotations": {"cluster.x-k8s.io/managed-by": "x"},
            }}),
            false,
        ),
    ] {
        let world = filtered(change.clone());
        let request = world.context().request(&world.scope());
        assert_eq!(request.cluster.is_reconciled, expected, "{change}");
    }
}

#[tokio::test]
async fn a_secret_is_read_only_where_it_decides_something() {
    let unread = || World::new(machine_object(json!({}))).with(|world| world.bootstrap = Bootstrap::Unread);
    let provisioned =
        || json!({"spec": {"providerID": "my:///1"}, "status": {"initialization": {"provisioned": true}}});
    let without = |world: &mut World| world.memory.as_mut().expect("a step").needs_no_bootstrap = true;
    let (now, minute) = (Instant::now(), Duration::from_secs(60));
    for (what, world, expected) in [
        ("before the first step", unread(), Next::ReadBootstrap),
        ("nothing is due", unread().remembering(Due::At(now + minute)), Next::At(now + minute)),
        ("something is due", unread().remembering(Due::Now), Next::ReadBootstrap),
        ("the step can do without", unread().remembering(Due::Now).with(without), Next::Ensure),
        (
            "another object of this name cannot",
            unread().remembering(Due::Now).with(without).with(|world| {
                world.object.metadata.uid = Some("another".to_owned());
            }),
            Next::ReadBootstrap,
        ),
        (
            "nobody needs it any more",
            unread().with(|world| world.object = machine_object(provisioned())),
            Next::Ensure,
        ),
        (
            "nor for a deletion",
            unread().with(|world| world.object = machine_object(deleting())),
            Next::Delete,
        ),
    ] {
        assert_eq!(World { now, ..world }.next(), expected, "{what}");
    }
    // What was read counts as what the step got, until somebody reads it again.
    let read = World::new(machine_object(json!({}))).remembering(Due::WhenChanged);
    assert_eq!(read.with(|world| world.bootstrap = Bootstrap::Unread).next(), Next::Rest);
}
