//! What a pass over a `MachineSet` is made for.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use cluster_api::{MachineSet, names::annotations};
use kube::ResourceExt as _;

use crate::{
    core::{Core, is_cluster_paused},
    engine::{
        control::{Source, source},
        object::{Meta as _, key, names_kind, split_key},
    },
    kept,
    sources::external_source,
};

pub(super) fn of(core: &Arc<Core>) -> Vec<Source> {
    let own = source(core.stores.machine_sets.subscribe(), |keys| keys);
    let of_machines = {
        // The set of a Machine that is gone is known from before.
        let (core, mut sets) = (Arc::clone(core), HashMap::new());
        source(core.stores.machines.subscribe(), move |keys| {
            keys.iter().flat_map(|of| sets_of_machine(&core, of, &mut sets)).collect()
        })
    };
    let of_clusters = {
        let (core, mut known) = (Arc::clone(core), HashMap::new());
        source(core.stores.clusters.subscribe(), move |keys| {
            let is_news = |of: &&String| {
                let digest = core.stores.clusters.get(of).map(|cluster| {
                    (
                        is_cluster_paused(Some(&cluster)),
                        cluster.spec.control_plane_ref.clone(),
                        cluster.uid_or_empty().to_owned(),
                    )
                });
                crate::sources::is_news(&mut known, of, digest)
            };
            let changed: Vec<_> = keys.iter().filter(is_news).cloned().collect();
            let of_cluster = |of: &String| {
                let (namespace, name) = split_key(of);
                let name = name.to_owned();
                keys_of(&core, namespace, move |set| set.spec.cluster_name == name)
            };
            changed.iter().flat_map(of_cluster).collect()
        })
    };
    let of_deployments = {
        let (core, mut known) = (Arc::clone(core), HashMap::new());
        source(core.stores.machine_deployments.subscribe(), move |keys| {
            let is_news = |of: &&String| {
                let digest = core.stores.machine_deployments.get(of).map(|deployment| {
                    let revision = deployment.annotation(annotations::REVISION).map(str::to_owned);
                    (revision, format!("{:?}", deployment.spec.remediation))
                });
                crate::sources::is_news(&mut known, of, digest)
            };
            let changed: Vec<_> = keys.iter().filter(is_news).cloned().collect();
            let of_deployment = |of: &String| {
                let (namespace, name) = split_key(of);
                let name = name.to_owned();
                keys_of(&core, namespace, move |set| set.controller().is_some_and(|owner| owner.name == name))
            };
            changed.iter().flat_map(of_deployment).collect()
        })
    };
    let of_objects = {
        let core = Arc::clone(core);
        external_source(&core.externals.clone(), move |kind, keys| {
            let of_object = |of: &String| {
                let (namespace, name) = split_key(of);
                let control_planes = control_plane_of(&core, namespace, kind, name);
                let set = |set: &MachineSet| {
                    let spec = &set.spec.template.spec;
                    control_planes.contains(&set.spec.cluster_name)
                        || [&spec.infrastructure_ref, &spec.bootstrap.config_ref]
                            .iter()
                            .any(|of| of.name == name && of.kind == kind.kind && of.api_group == kind.group)
                };
                keys_of(&core, namespace, set)
            };
            keys.iter().flat_map(of_object).collect()
        })
    };
    vec![own, of_machines, of_clusters, of_deployments, of_objects]
}

/// The names of Clusters whose control plane an object is.
fn control_plane_of(
    core: &Core,
    namespace: &str,
    kind: &crate::engine::external::GroupKind,
    name: &str,
) -> HashSet<String> {
    let clusters = core.stores.clusters.all();
    let of_object = clusters.iter().filter(|cluster| {
        let of = &cluster.spec.control_plane_ref;
        cluster.namespace_or_empty() == namespace
            && of.name == name
            && of.kind == kind.kind
            && of.api_group == kind.group
    });
    of_object.map(|cluster| cluster.name_or_empty().to_owned()).collect()
}

fn keys_of(core: &Core, namespace: &str, is_chosen: impl Fn(&MachineSet) -> bool) -> HashSet<String> {
    let all = core.stores.machine_sets.all();
    let chosen = all.iter().filter(|one| one.namespace_or_empty() == namespace && is_chosen(one));
    chosen.map(|one| key(one.namespace_or_empty(), one.name_or_empty())).collect()
}

fn sets_of_machine(core: &Core, of: &str, known: &mut HashMap<String, String>) -> HashSet<String> {
    let (namespace, _) = split_key(of);
    let Some(machine) = core.stores.machines.get(of) else { return known.remove(of).into_iter().collect() };
    let owner = machine.controller().filter(|owner| names_kind(owner, "cluster.x-k8s.io", "MachineSet"));
    match owner {
        Some(owner) => {
            let set = key(namespace, &owner.name);
            let before = known.insert(of.to_owned(), set.clone());
            before.into_iter().chain([set]).collect()
        }
        // It may be adopted. One that is kept holds the deletion of its set.
        None if machine.controller().is_none() && !machine.labels().is_empty() => {
            if let Some(set) = kept::set_of(core, &machine) {
                known.insert(of.to_owned(), key(namespace, set.name_or_empty()));
            }
            keys_of(core, namespace, |set| set.spec.cluster_name == machine.spec.cluster_name)
        }
        None => known.remove(of).into_iter().collect(),
    }
}
