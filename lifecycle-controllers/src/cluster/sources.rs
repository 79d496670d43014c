//! What a pass over a Cluster is made for.

use std::{collections::HashMap, sync::Arc, time::Duration};

use cluster_api::{Cluster, Machine, names::conditions as types};
use kube::ResourceExt as _;
use lifecycle::conditions::Condition;

use crate::{
    core::Core,
    engine::{
        conditions::read,
        control::{Source, source},
        external::GroupKind,
        object::{Kind, Meta as _, Stored, key, split_key},
        stores::Store,
    },
    sources::{external_source, is_news, paced, workload_source},
    workload::ClusterChange,
};

/// Changes of what belongs to a Cluster are taken this often at most. In a rollout there are many, and each pass counts all Machines.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) fn of(core: &Arc<Core>) -> Vec<Source> {
    let own = source(core.stores.clusters.subscribe(), |keys| keys);
    let of_objects = {
        let core = Arc::clone(core);
        external_source(&core.externals.clone(), move |kind, keys| {
            keys.iter().flat_map(|key| clusters_of_object(&core, kind, key)).collect()
        })
    };
    let of_deployments =
        descendants(&core.stores.machine_deployments, |one| (one.spec.cluster_name.clone(), version(one)));
    let of_sets = descendants(&core.stores.machine_sets, |one| (one.spec.cluster_name.clone(), version(one)));
    let of_connections = workload_source(&core.workload, |changes| {
        let of_connection = changes.iter().filter(|(_, change)| **change == ClusterChange::Everything);
        of_connection.map(|(cluster, _)| key(&cluster.namespace, &cluster.name)).collect()
    });
    vec![own, of_objects, of_deployments, of_sets, machines(core), of_connections]
}

/// The Clusters of Machines that changed.
pub(super) fn machines(core: &Core) -> Source {
    descendants(&core.stores.machines, |one| (one.spec.cluster_name.clone(), digest(one)))
}

/// The Clusters that refer to an object.
fn clusters_of_object(core: &Core, kind: &GroupKind, object_key: &str) -> Vec<String> {
    let (namespace, name) = split_key(object_key);
    let is_referenced = |cluster: &Cluster| {
        [&cluster.spec.infrastructure_ref, &cluster.spec.control_plane_ref]
            .iter()
            .any(|of| of.name == name && of.kind == kind.kind && of.api_group == kind.group)
    };
    let clusters = core.stores.clusters.read();
    let of_namespace = clusters.iter().filter(|(_, one)| one.namespace_or_empty() == namespace);
    of_namespace.filter(|(_, one)| is_referenced(one)).map(|(key, _)| key.clone()).collect()
}

/// The Clusters of changed objects. `read` gives the name of the Cluster, and what its status is made of; other changes do not count. The
/// Cluster of an object that is gone is known from before.
fn descendants<K: Kind, D: PartialEq + Send + 'static>(
    store: &Store<K>,
    read: impl Fn(&Stored<K>) -> (String, D) + Send + 'static,
) -> Source {
    let (store, mut known) = (store.clone(), HashMap::<String, (String, D)>::new());
    let changed = source(store.subscribe(), move |keys| {
        let cluster_of = |of: &String| {
            let new = store.get(of).map(|object| read(&object));
            let before = known.get(of).map(|(cluster, _)| cluster.clone());
            let cluster = new.as_ref().map(|(cluster, _)| cluster.clone()).or(before)?;
            is_news(&mut known, of, new).then(|| key(split_key(of).0, &cluster))
        };
        keys.iter().filter_map(cluster_of).collect()
    });
    paced(changed, PAUSE)
}

fn version<K: Kind>(object: &Stored<K>) -> String {
    object.meta().resource_version.clone().unwrap_or_default()
}

/// The conditions of a Machine that a status of a Cluster is made of.
const CONDITIONS: [&str; 5] = [
    types::READY,
    types::AVAILABLE,
    types::UP_TO_DATE,
    types::HEALTH_CHECK_SUCCEEDED,
    types::OWNER_REMEDIATED,
];

/// What a Cluster's status is made of. A Machine changes more often than that.
#[derive(Debug, PartialEq)]
struct MachineDigest {
    conditions: Vec<Condition>,
    labels: Vec<String>,
    owners: Vec<String>,
    has_node: bool,
    version: Option<String>,
    is_deleting: bool,
}

fn digest(machine: &Stored<Machine>) -> MachineDigest {
    let status = machine.status.as_ref();
    let mut conditions = status.map(|status| read(&status.conditions)).unwrap_or_default();
    conditions.retain(|condition| CONDITIONS.contains(&condition.kind.as_str()));
    let kubelet =
        status.and_then(|status| status.node_info.as_ref()).map(|info| info.kubelet_version.clone());
    MachineDigest {
        conditions,
        labels: machine.labels().keys().cloned().collect(),
        owners: machine.owner_references().iter().map(|owner| owner.uid.clone()).collect(),
        has_node: status.is_some_and(|status| !status.node_ref.name.is_empty()),
        version: kubelet.filter(|version| !version.is_empty()).or_else(|| machine.spec.version.clone()),
        is_deleting: machine.is_deleting(),
    }
}
