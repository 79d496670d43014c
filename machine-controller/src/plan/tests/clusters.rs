//! What to do next about clusters.

use super::*;

#[tokio::test]
async fn clusters() {
    let cluster = Cluster::default();
    let paused = Cluster { is_paused: true, ..Cluster::default() };
    let managed = |place: &str| json!({"metadata": {place: {"cluster.x-k8s.io/managed-by": "x"}}});
    let ready = said("Ready", "True", READY_REASON, "");
    for (what, object, cluster, machines, expected) in [
        ("everything is there", json!({}), Some(&cluster), 0, Next::Ensure),
        ("no Cluster owns it", json!({}), None, 0, Next::Rest),
        ("somebody else's", managed("annotations"), Some(&cluster), 0, Next::Ignore),
        ("the same as a label", managed("labels"), Some(&cluster), 0, Next::Ignore),
        ("paused", json!({}), Some(&paused), 0, Next::SayPaused),
        ("no finalizer", json!({"metadata": {"finalizers": null}}), Some(&cluster), 0, Next::Adopt),
        ("ready", json!({"status": {"conditions": [ready]}}), Some(&cluster), 3, Next::Ensure),
        ("deletion", deleting(), Some(&cluster), 0, Next::Delete),
        ("deletion without the Cluster", deleting(), None, 0, Next::Delete),
        (
            "machines go first",
            deleting(),
            Some(&cluster),
            1,
            waits("WaitingForMachinesDeletion", "1 machine is left: m-1"),
        ),
        (
            "not all of them are named",
            deleting(),
            Some(&cluster),
            5,
            waits("WaitingForMachinesDeletion", "5 machines are left: m-1, m-2, m-3 and 2 more"),
        ),
    ] {
        let object = cluster_object(object);
        let machines: Vec<_> = (1..=machines).map(|number| format!("m-{number}")).collect();
        let situation = InfraClusterContext {
            object: &object,
            cluster,
            machines: &machines,
            rival: None,
            reads: None,
            memory: None,
        };
        let scope = Scope { kinds: &KINDS, watch_filter: None, provider: 1, now: Instant::now() };
        assert_eq!(situation.next(&scope), expected, "{what}");
    }
    let object = cluster_object(json!({}));
    let endpoint = cloudprovider::ControlPlaneEndpoint { host: "a".into(), port: 6443 };
    let cluster = Cluster { endpoint: Some(endpoint.clone()), ..Cluster::default() };
    let situation = InfraClusterContext {
        object: &object,
        cluster: Some(&cluster),
        machines: &[],
        rival: None,
        reads: None,
        memory: None,
    };
    let scope = Scope { kinds: &KINDS, watch_filter: None, provider: 1, now: Instant::now() };
    let request = situation.request(&scope);
    assert_eq!(request.control_plane_endpoint, Some(endpoint));
    assert_eq!(request.mark, cloudprovider::machines::Mark::cluster("c-1", "default", "prod"));
}

/// What lets a machine go may change where nothing wakes the cluster.
#[tokio::test]
async fn a_cluster_that_waits_for_machines_counts_them_again() {
    let conditions = [
        said("Ready", "False", "WaitingForMachinesDeletion", "1 machine is left: one"),
        said("Paused", "False", "NotPaused", ""),
    ];
    let mut change = deleting();
    merge(&mut change, json!({"status": {"conditions": conditions}}));
    let (object, now) = (cluster_object(change), Instant::now());
    let scope = Scope { kinds: &KINDS, watch_filter: None, provider: 1, now };
    for (machines, expected) in
        [(&["one".to_owned()][..], Next::At(now + MACHINES_INTERVAL)), (&[], Next::Delete)]
    {
        let situation = InfraClusterContext {
            object: &object,
            cluster: None,
            machines,
            rival: None,
            reads: None,
            memory: None,
        };
        assert_eq!(situation.next(&scope), expected);
    }
}
