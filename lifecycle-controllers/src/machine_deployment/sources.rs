//! What a pass over a `MachineDeployment` is made for.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use cluster_api::{MachineDeployment, names::labels};

use crate::{
    core::Core,
    engine::{
        control::{Source, source},
        object::{Meta as _, key, split_key},
    },
    kept,
    sources::external_source,
};

pub(super) fn of(core: &Arc<Core>) -> Vec<Source> {
    let own = source(core.stores.machine_deployments.subscribe(), |keys| keys);
    let of_sets = {
        let core = Arc::clone(core);
        source(core.stores.machine_sets.subscribe(), move |keys| {
            keys.iter().flat_map(|of| deployments_of_set(&core, of)).collect()
        })
    };
    let of_machines = {
        // The deployment of a Machine that is gone is known from before.
        let (core, mut deployments) = (Arc::clone(core), HashMap::new());
        source(core.stores.machines.subscribe(), move |keys| {
            keys.iter().flat_map(|of| deployments_of_machine(&core, of, &mut deployments)).collect()
        })
    };
    let of_clusters = {
        let core = Arc::clone(core);
        source(core.stores.clusters.subscribe(), move |keys| {
            let of_cluster = |of: &String| {
                let (namespace, name) = split_key(of);
                let name = name.to_owned();
                keys_of(&core, namespace, move |deployment| deployment.spec.cluster_name == name)
            };
            keys.iter().flat_map(of_cluster).collect()
        })
    };
    let of_templates = {
        let core = Arc::clone(core);
        external_source(&core.externals.clone(), move |kind, keys| {
            let of_template = |of: &String| {
                let (namespace, name) = split_key(of);
                let spec = |deployment: &MachineDeployment| {
                    let spec = &deployment.spec.template.spec;
                    [&spec.infrastructure_ref, &spec.bootstrap.config_ref]
                        .iter()
                        .any(|of| of.name == name && of.kind == kind.kind && of.api_group == kind.group)
                };
                keys_of(&core, namespace, spec)
            };
            keys.iter().flat_map(of_template).collect()
        })
    };
    vec![own, of_sets, of_machines, of_clusters, of_templates]
}

fn keys_of(core: &Core, namespace: &str, is_chosen: impl Fn(&MachineDeployment) -> bool) -> HashSet<String> {
    let all = core.stores.machine_deployments.all();
    let chosen = all.iter().filter(|one| one.namespace_or_empty() == namespace && is_chosen(one));
    chosen.map(|one| key(one.namespace_or_empty(), one.name_or_empty())).collect()
}

/// The deployment of a set. One that is gone, or that nothing controls, may be of any of the namespace.
fn deployments_of_set(core: &Core, of: &str) -> HashSet<String> {
    let (namespace, _) = split_key(of);
    let found = core.stores.machine_sets.get(of);
    match found.as_ref().and_then(|set| set.controller()) {
        Some(owner) => HashSet::from([key(namespace, &owner.name)]),
        None => keys_of(core, namespace, |_| true),
    }
}

/// The deployment of a Machine, and the one that it had before.
fn deployments_of_machine(core: &Core, of: &str, known: &mut HashMap<String, String>) -> HashSet<String> {
    let machine = core.stores.machines.get(of);
    // The names of deployments are short enough to be labels.
    let name = machine.as_ref().and_then(|machine| match machine.label(labels::DEPLOYMENT_NAME) {
        Some(name) => Some(name.to_owned()),
        // An old set stays while one of its Machines is kept.
        None => kept::set_of(core, machine)?.controller().map(|owner| owner.name.clone()),
    });
    let now = name.map(|name| key(split_key(of).0, &name));
    let before = match &now {
        Some(now) => known.insert(of.to_owned(), now.clone()),
        None => known.remove(of),
    };
    before.into_iter().chain(now).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt as _;
    use serde_json::json;
    use tokio::time::timeout;

    use super::*;
    use crate::testing::{NAMESPACE, Stage, delete, object};

    /// The Machine comes and goes, and both are changes of the deployment `d`.
    async fn concerns_the_deployment(stage: &Stage, mut of_machines: Source, machine: serde_json::Value) {
        let mut next = async || timeout(Duration::from_secs(60), of_machines.next()).await.ok().flatten();
        let deployment = Some(HashSet::from([format!("{NAMESPACE}/d")]));
        stage.create(machine.clone()).await;
        assert_eq!(next().await, deployment);
        delete(&stage.sandbox, &machine).await;
        assert_eq!(next().await, deployment);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_machine_concerns_its_deployment() {
        let stage = Stage::new().await;
        let of_machines = of(&stage.core).swap_remove(2);
        let mut machine = object("cluster.x-k8s.io/v1beta2", "Machine", "m");
        machine["metadata"]["labels"] = json!({labels::DEPLOYMENT_NAME: "d"});
        machine["spec"] = json!({
            "clusterName": "c", "bootstrap": {"dataSecretName": "s"},
            "infrastructureRef": {"apiGroup": "infra.example", "kind": "Box", "name": "m"},
        });
        concerns_the_deployment(&stage, of_machines, machine).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_machine_that_is_kept_concerns_the_deployment_of_its_set() {
        let stage = Stage::new().await;
        let mut set = object("cluster.x-k8s.io/v1beta2", "MachineSet", "s");
        let owner = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": "d", "uid": "u", "controller": true});
        set["metadata"]["ownerReferences"] = json!([owner]);
        let reference = json!({"apiGroup": "infra.example", "kind": "Box", "name": "m"});
        let of_machine =
            json!({"clusterName": "c", "bootstrap": {"dataSecretName": "s"}, "infrastructureRef": reference});
        set["spec"] = json!({"clusterName": "c", "selector": {}, "template": {"spec": of_machine}});
        stage.create(set).await;
        stage.until(&stage.core.stores.machine_sets, "s", |_| true).await;
        let of_machines = of(&stage.core).swap_remove(2);
        let mut machine = object("cluster.x-k8s.io/v1beta2", "Machine", "m");
        machine["metadata"]["labels"] = json!({kept::KEPT_OF: "s"});
        machine["spec"] = of_machine;
        concerns_the_deployment(&stage, of_machines, machine).await;
    }
}
