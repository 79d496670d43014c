//! What passes over `ClusterResourceSet`s and their bindings are made for.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use cluster_api::Cluster;
use kube::{Client, ResourceExt as _};

use super::{pass::selects, watch};
use crate::{
    core::Core,
    engine::{
        control::{Source, source},
        object::{Meta as _, key, split_key},
    },
    sources::{is_news, workload_source},
    workload::{ClusterChange, ClusterKey},
};

pub(super) fn of(core: &Arc<Core>, client: &Client) -> Vec<Source> {
    let own = source(core.stores.cluster_resource_sets.subscribe(), |keys| keys);
    let of_clusters = {
        let (core, mut known) = (Arc::clone(core), HashMap::new());
        source(core.stores.clusters.subscribe(), move |keys| {
            let changed = keys.iter().filter(|key| {
                is_news(&mut known, key, core.stores.clusters.get(key).map(|cluster| digest(&cluster)))
            });
            changed.flat_map(|of| sets_of(&core, of)).collect()
        })
    };
    let of_connections = {
        let core = Arc::clone(core);
        workload_source(&core.workload.clone(), move |changes| connected(&core, changes))
    };
    let mut all = vec![own, of_clusters, of_connections];
    all.extend(watch::sources(core, client));
    all
}

/// What a set reads of a Cluster.
fn digest(cluster: &Cluster) -> (String, bool, BTreeMap<String, String>) {
    (cluster.uid_or_empty().to_owned(), cluster.is_deleting(), cluster.labels().clone())
}

/// The sets that select a Cluster.
fn sets_of(core: &Core, of: &str) -> HashSet<String> {
    let Some(cluster) = core.stores.clusters.get(of) else { return HashSet::new() };
    let namespace = cluster.namespace_or_empty();
    let sets = core.stores.cluster_resource_sets.read();
    let of_cluster = sets.values().filter(|set| {
        set.namespace_or_empty() == namespace && selects(set, &cluster).is_ok_and(|is_selected| is_selected)
    });
    of_cluster.map(|set| key(namespace, set.name_or_empty())).collect()
}

/// The sets of Clusters whose connection came or went. Their Nodes do not matter.
fn connected(core: &Core, changes: &BTreeMap<ClusterKey, ClusterChange>) -> HashSet<String> {
    let connections = changes.iter().filter(|(_, change)| matches!(change, ClusterChange::Everything));
    connections.flat_map(|(cluster, _)| sets_of(core, &key(&cluster.namespace, &cluster.name))).collect()
}

pub(super) fn of_bindings(core: &Arc<Core>) -> Vec<Source> {
    let own = source(core.stores.cluster_resource_set_bindings.subscribe(), |keys| keys);
    let of_clusters = {
        let core = Arc::clone(core);
        source(core.stores.clusters.subscribe(), move |keys| {
            let goes =
                |of: &&String| core.stores.clusters.get(of).is_none_or(|cluster| cluster.is_deleting());
            let gone: HashSet<_> = keys.iter().filter(goes).map(|of| split_key(of)).collect();
            let bindings = core.stores.cluster_resource_set_bindings.read();
            let of_gone = bindings.values().filter(|binding| {
                gone.contains(&(binding.namespace_or_empty(), binding.spec.cluster_name.as_str()))
            });
            of_gone.map(|binding| key(binding.namespace_or_empty(), binding.name_or_empty())).collect()
        })
    };
    vec![own, of_clusters]
}
