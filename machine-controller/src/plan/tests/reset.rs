//! Which machines may be reset.

use super::*;
use crate::{index::Rival, reboot::Target};

#[tokio::test]
async fn only_a_machine_whose_object_is_in_order_is_reset() {
    let made = || World::new(machine_object(json!({"spec": {"providerID": "my://1"}})));
    let of = |world: &World| world.context().reset_target(&world.scope());
    let changed = |mut change: Value| {
        if change.get("spec").is_none() {
            change["spec"] = json!({"providerID": "my://1"});
        }
        of(&World::new(machine_object(change)))
    };
    assert_eq!(of(&made()), Target::Ready);
    assert_eq!(changed(json!({"spec": {"providerID": null}})), Target::Unprovisioned);
    let paused = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    assert_eq!(changed(paused), Target::Paused);
    let cluster = Cluster { is_paused: true, is_infrastructure_provisioned: true, ..Cluster::default() };
    assert_eq!(of(&made().with(|world| world.cluster = Some(cluster))), Target::Paused);
    // Another controller's, on its way out, not taken over, or perhaps a copy.
    assert_eq!(of(&made().with(|world| world.watch_filter = Some("other"))), Target::Held);
    for change in [
        deleting(),
        json!({"metadata": {"finalizers": null}}),
        json!({"metadata": {"annotations": {"infrastructure.cluster.x-k8s.io/uid": null}}}),
        json!({"metadata": {"annotations": {"infrastructure.cluster.x-k8s.io/cluster-name": null}}}),
        json!({"metadata": {
            "annotations": {
                "infrastructure.cluster.x-k8s.io/cluster-name": "other",
                "infrastructure.cluster.x-k8s.io/uid": "u-2",
            },
        }}),
    ] {
        assert_eq!(changed(change.clone()), Target::Held, "{change}");
    }
    let rival = Rival { key: "default/two".into(), is_foreign: false, has_same_mark: false };
    for without in [
        made().with(|world| world.rival = Some(rival)),
        made().with(|world| world.machine = None),
        made().with(|world| world.cluster = None),
        made().with(|world| world.infra_cluster = None),
    ] {
        assert_eq!(of(&without), Target::Held);
    }
}
