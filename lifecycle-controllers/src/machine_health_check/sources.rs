//! What a pass over a `MachineHealthCheck` is made for.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use cluster_api::{Cluster, Machine, MachineHealthCheck, names::conditions as types};
use kube::ResourceExt as _;

use super::{request::template_kind, targets::true_since};
use crate::{
    core::{Core, is_cluster_paused},
    engine::{
        conditions::read,
        control::{Source, source},
        external::GroupKind,
        object::{Meta as _, Stored, key, split_key},
    },
    replicas::{selector, selects},
    sources::{external_source, is_news, paced, workload_source},
    template::made_of,
    workload::{ClusterChange, ClusterKey},
};

/// After a change of Nodes. A pass looks at all Machines of a check, and a workload cluster says what changes and how often.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) fn of(core: &Arc<Core>) -> Vec<Source> {
    let own = source(core.stores.machine_health_checks.subscribe(), |keys| keys);
    let of_machines = {
        let core = Arc::clone(core);
        source(core.stores.machines.subscribe(), move |keys| checks_of_machines(&core, &keys))
    };
    let of_clusters = {
        let (core, mut known) = (Arc::clone(core), HashMap::new());
        source(core.stores.clusters.subscribe(), move |keys| {
            let changed = keys.iter().filter(|key| {
                is_news(&mut known, key, core.stores.clusters.get(key).map(|cluster| digest(&cluster)))
            });
            let of_cluster = |of: &String| {
                let (namespace, name) = split_key(of);
                keys_of(&core, namespace, |check| check.spec.cluster_name == name)
            };
            changed.flat_map(of_cluster).collect()
        })
    };
    let of_requests = {
        let core = Arc::clone(core);
        external_source(&core.externals.clone(), move |kind, keys| {
            let namespaces: HashSet<_> = keys.iter().map(|key| split_key(key).0).collect();
            let is_of_kind = |check: &MachineHealthCheck| names(check, kind);
            namespaces.into_iter().flat_map(|namespace| keys_of(&core, namespace, is_of_kind)).collect()
        })
    };
    let of_workload = {
        let core = Arc::clone(core);
        let of_workload = workload_source(&core.workload.clone(), move |changes| {
            changes.iter().flat_map(|(cluster, change)| checks_of_nodes(&core, cluster, change)).collect()
        });
        paced(of_workload, PAUSE)
    };
    vec![own, of_machines, of_clusters, of_requests, of_workload]
}

fn keys_of(core: &Core, namespace: &str, is_chosen: impl Fn(&MachineHealthCheck) -> bool) -> HashSet<String> {
    let checks = core.stores.machine_health_checks.read();
    let chosen = checks.values().filter(|one| one.namespace_or_empty() == namespace && is_chosen(one));
    chosen.map(|one| key(one.namespace_or_empty(), one.name_or_empty())).collect()
}

/// What a check reads of its Cluster.
fn digest(cluster: &Cluster) -> (String, bool, [Option<i64>; 2]) {
    let conditions = cluster.status.as_ref().map(|status| read(&status.conditions)).unwrap_or_default();
    let since = [types::CONTROL_PLANE_INITIALIZED, types::INFRASTRUCTURE_READY]
        .map(|kind| true_since(&conditions, kind));
    (cluster.uid_or_empty().to_owned(), is_cluster_paused(Some(cluster)), since)
}

/// Whether the check makes objects of this kind, or from templates of it.
fn names(check: &MachineHealthCheck, kind: &GroupKind) -> bool {
    let template = template_kind(check);
    template == *kind || made_of(&template).as_ref() == Some(kind)
}

/// The name of a Machine, and the Machine unless it is gone.
type Named<'a> = (&'a str, Option<Arc<Stored<Machine>>>);

/// The checks of these Machines: those that select them now, and those that did when they were last looked at.
fn checks_of_machines(core: &Core, keys: &HashSet<String>) -> HashSet<String> {
    let mut by_namespace: HashMap<&str, Vec<Named<'_>>> = HashMap::new();
    for of in keys {
        let (namespace, name) = split_key(of);
        by_namespace.entry(namespace).or_default().push((name, core.stores.machines.get(of)));
    }
    let of_namespace = |(namespace, machines): (&str, Vec<Named<'_>>)| {
        keys_of(core, namespace, |check| {
            let selector = selector(&check.spec.selector).ok();
            let status = check.status.as_ref();
            let targets = status.map(|status| status.targets.as_slice()).unwrap_or_default();
            machines.iter().any(|(name, machine)| {
                let is_selected = machine.as_ref().is_some_and(|machine| {
                    machine.spec.cluster_name == check.spec.cluster_name
                        && selector.as_ref().is_some_and(|selector| selects(selector, machine.labels()))
                });
                // The status has the names in order.
                is_selected || targets.binary_search_by(|target| target.as_str().cmp(name)).is_ok()
            })
        })
    };
    by_namespace.into_iter().flat_map(of_namespace).collect()
}

fn checks_of_nodes(core: &Core, cluster: &ClusterKey, change: &ClusterChange) -> HashSet<String> {
    match change {
        ClusterChange::Everything => {
            keys_of(core, &cluster.namespace, |check| check.spec.cluster_name == cluster.name)
        }
        ClusterChange::Nodes(nodes) => {
            let machines = core.machines_in(&cluster.namespace, |machine| {
                let status = machine.status.as_ref();
                machine.spec.cluster_name == cluster.name
                    && status.is_some_and(|status| nodes.contains_key(&status.node_ref.name))
            });
            let keys = machines.iter().map(|machine| key(&cluster.namespace, machine.name_or_empty()));
            checks_of_machines(core, &keys.collect())
        }
    }
}
