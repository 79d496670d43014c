//! What a pass over a Machine is made for.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use cluster_api::{
    Cluster, Machine,
    names::{annotations, conditions as types},
};
use kube::ResourceExt as _;

use crate::{
    core::{Core, is_cluster_paused},
    engine::{
        control::{Source, source},
        external::GroupKind,
        object::{Meta as _, key, split_key},
    },
    rollout::template_of,
    sources::{external_source, is_news, paced, workload_source},
    workload::{ClusterChange, ClusterKey},
};

/// Changes of Nodes are looked at this often: a workload cluster decides how many there are.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) fn of(core: &Arc<Core>) -> Vec<Source> {
    let own = source(core.stores.machines.subscribe(), |keys| keys);
    let of_external = {
        let core = Arc::clone(core);
        external_source(&core.externals.clone(), move |kind, keys| {
            keys.iter().flat_map(|key| machines_of_object(&core, kind, key)).collect()
        })
    };
    let of_cluster = {
        let (core, mut known) = (Arc::clone(core), HashMap::new());
        source(core.stores.clusters.subscribe(), move |keys| changed_clusters(&core, &keys, &mut known))
    };
    let of_set = {
        let (core, mut known) = (Arc::clone(core), HashMap::new());
        source(core.stores.machine_sets.subscribe(), move |keys| changed_sets(&core, &keys, &mut known))
    };
    let of_deployment = {
        let (core, mut known) = (Arc::clone(core), HashMap::new());
        source(core.stores.machine_deployments.subscribe(), move |keys| {
            changed_deployments(&core, &keys, &mut known)
        })
    };
    let of_workload = {
        let core = Arc::clone(core);
        let of_workload = workload_source(&core.workload.clone(), move |changes| {
            changes.iter().flat_map(|(cluster, change)| machines_of_nodes(&core, cluster, change)).collect()
        });
        paced(of_workload, PAUSE)
    };
    vec![own, of_external, of_cluster, of_set, of_deployment, of_workload]
}

fn keys_of(core: &Core, namespace: &str, is_chosen: impl Fn(&Machine) -> bool) -> Vec<String> {
    let machines = core.machines_in(namespace, is_chosen);
    machines.iter().map(|machine| key(machine.namespace_or_empty(), machine.name_or_empty())).collect()
}

/// The Machine that controls an object. One that nothing controls yet is looked up in the references.
fn machines_of_object(core: &Core, kind: &GroupKind, object_key: &str) -> Vec<String> {
    let (namespace, name) = split_key(object_key);
    let is_referenced = |machine: &Machine| {
        [&machine.spec.infrastructure_ref, &machine.spec.bootstrap.config_ref]
            .iter()
            .any(|of| of.name == name && of.kind == kind.kind && of.api_group == kind.group)
    };
    // The Machine of an object usually has its name.
    match core.stores.machines.get(object_key) {
        Some(machine) if is_referenced(&machine) => vec![object_key.to_owned()],
        _ => keys_of(core, namespace, is_referenced),
    }
}

/// What Machines read of their Cluster.
type ClusterDigest = (bool, bool, Option<bool>, Option<i64>, BTreeMap<String, String>);

fn cluster_digest(cluster: &Cluster) -> ClusterDigest {
    let status = cluster.status.as_ref();
    let conditions = status.map(|status| crate::engine::conditions::read(&status.conditions));
    let initialized = conditions.and_then(|conditions| {
        let found = conditions.into_iter().find(|one| one.kind == types::CONTROL_PLANE_INITIALIZED);
        found.filter(|one| one.status == lifecycle::conditions::Status::True).map(|one| one.since)
    });
    let provisioned = status.and_then(|status| status.initialization.infrastructure_provisioned);
    (
        is_cluster_paused(Some(cluster)),
        cluster.is_deleting(),
        provisioned,
        initialized,
        cluster.labels().clone(),
    )
}

fn changed_clusters(
    core: &Core,
    keys: &HashSet<String>,
    known: &mut HashMap<String, ClusterDigest>,
) -> HashSet<String> {
    let changed = keys.iter().filter(|key| {
        let digest = core.stores.clusters.get(key).map(|cluster| cluster_digest(&cluster));
        is_news(known, key, digest)
    });
    let machines = changed.flat_map(|key| {
        let (namespace, name) = split_key(key);
        keys_of(core, namespace, |machine| machine.spec.cluster_name == name)
    });
    machines.collect()
}

fn changed_sets(core: &Core, keys: &HashSet<String>, known: &mut HashMap<String, String>) -> HashSet<String> {
    let changed = keys.iter().filter(|key| {
        let digest = core.stores.machine_sets.get(key).map(|set| {
            let revision = set.annotation(annotations::REVISION).unwrap_or_default().to_owned();
            format!("{revision} {:?}", template_of(&set.spec.template.spec))
        });
        is_news(known, key, digest)
    });
    let machines = changed.flat_map(|key| {
        let (namespace, name) = split_key(key);
        keys_of(core, namespace, |machine| machine.controller().is_some_and(|owner| owner.name == name))
    });
    machines.collect()
}

fn changed_deployments(
    core: &Core,
    keys: &HashSet<String>,
    known: &mut HashMap<String, String>,
) -> HashSet<String> {
    let changed = keys.iter().filter(|key| {
        let digest = core.stores.machine_deployments.get(key).map(|deployment| {
            let revision = deployment.annotation(annotations::REVISION).unwrap_or_default().to_owned();
            let template = template_of(&deployment.spec.template.spec);
            format!("{revision} {template:?} {:?}", deployment.spec.rollout.after)
        });
        is_news(known, key, digest)
    });
    let machines = changed.flat_map(|key| {
        let (namespace, name) = split_key(key);
        let label = cluster_api::names::labels::value_of(name);
        keys_of(core, namespace, |machine| {
            machine.label(cluster_api::names::labels::DEPLOYMENT_NAME) == Some(label.as_str())
        })
    });
    machines.collect()
}

fn machines_of_nodes(core: &Core, cluster: &ClusterKey, change: &ClusterChange) -> Vec<String> {
    let ids: HashSet<&String> = match change {
        ClusterChange::Nodes(nodes) => nodes.values().flatten().collect(),
        ClusterChange::Everything => HashSet::new(),
    };
    keys_of(core, &cluster.namespace, |machine| {
        if machine.spec.cluster_name != cluster.name {
            return false;
        }
        let ClusterChange::Nodes(nodes) = change else { return true };
        let status = machine.status.as_ref();
        let has_name = status.is_some_and(|status| nodes.contains_key(&status.node_ref.name));
        let id = machine.spec.provider_id.as_ref();
        has_name || id.is_some_and(|id| ids.contains(id))
    })
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use k8s_openapi::api::core::v1::Node;
    use kube::{
        Api,
        api::{Patch, PatchParams},
    };
    use sandbox::kubelet;
    use serde_json::json;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::testing::{Stage, object};

    #[tokio::test(start_paused = true)]
    async fn a_node_that_changes_without_end_is_looked_at_once_a_second() {
        let stage = Stage::new().await;
        let workload = stage.workload("c").await;
        let mut machine = object("cluster.x-k8s.io/v1beta2", "Machine", "m");
        machine["spec"] = json!({"clusterName": "c", "bootstrap": {}, "infrastructureRef": {"name": "m", "kind": "X", "apiGroup": "x"}});
        machine["status"] = json!({"nodeRef": {"name": "n"}});
        stage.create(machine).await;
        let has_node =
            |machine: &Machine| machine.status.as_ref().is_some_and(|one| one.node_ref.name == "n");
        stage.until(&stage.core.stores.machines, "m", has_node).await;
        let mut of_workload = of(&stage.core).pop().expect("a source");
        kubelet::register(&workload.client(), &kubelet::node("n", "n")).await.expect("registered");
        let nodes: Api<Node> = Api::all(workload.client());
        let flood = async {
            for number in 0..100 {
                let patch = json!({"metadata": {"labels": {"l": number.to_string()}}});
                nodes.patch("n", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
                sleep(PAUSE / 10).await;
            }
        };
        let mut batches = 0;
        let count = async {
            while let Ok(Some(keys)) = timeout(100 * PAUSE, of_workload.next()).await {
                assert_eq!(keys, HashSet::from(["default/m".to_owned()]));
                batches += 1;
            }
        };
        tokio::join!(flood, count);
        assert!((5..=11).contains(&batches), "{batches}");
    }
}
