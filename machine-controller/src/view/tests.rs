use cloudprovider::machines::Kind;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::names::WAITING_FOR_MACHINES;

const KINDS: Kinds =
    Kinds::new("v1", Kind::new("MyMachine", "mymachines"), Kind::new("MyCluster", "myclusters"));

fn object(name: &str, finalizer: &str, deleted: Option<&str>) -> InfraObject {
    let value: Value = json!({"metadata": {
        "name": name, "namespace": "default", "uid": name, "deletionTimestamp": deleted,
        "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
        "annotations": {
            "infrastructure.cluster.x-k8s.io/uid": name,
            "infrastructure.cluster.x-k8s.io/cluster-name": "prod",
        },
        "finalizers": [finalizer],
    }});
    serde_json::from_value(value).expect("an object")
}

/// A write that is stale has the object read again, while the view stays as it is.
#[tokio::test]
async fn a_cluster_that_is_deleted_after_its_view_was_made_waits_for_its_machines() {
    let cluster = |deleted| object("prod", "mycluster.infrastructure.cluster.x-k8s.io", deleted);
    let machine = object("one", "mymachine.infrastructure.cluster.x-k8s.io", None);
    let object_key = ObjectKey::new(ObjectKind::Cluster, "default/prod");
    let (stores, mut index) = (Stores::default(), Index::default());
    index.update(&object_key, Some(&cluster(None)), &KINDS);
    index.update(&ObjectKey::new(ObjectKind::Machine, "default/one"), Some(&machine), &KINDS);
    stores.clusters.replace(vec![cluster(None).into()]);
    stores.machines.replace(vec![machine.into()]);
    let view = View::of(&object_key, &stores, &index, None, &KINDS).expect("a view");
    let scope = Scope { kinds: &KINDS, watch_filter: None, provider: 1, now: Instant::now() };
    let next = view.next(&cluster(Some("2026-01-01T00:00:00Z")), &Bootstrap::Missing, &scope);
    let Next::Say(told) = next else { panic!("{next:?}") };
    assert_eq!((&*told.reason, &*told.message), (WAITING_FOR_MACHINES, "1 machine is left: one"));
}
