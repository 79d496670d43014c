//! A machine goes in order: hooks hold its deletion, a disruption budget holds its drain, and rules say which pods go when.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};

use super::{LIMIT, world::World};
use crate::{
    cluster_api::{
        libvirt::hypervisor::{Domain, Hypervisor},
        life::Life,
        objects::{Objects, condition},
    },
    manifest,
    support::{eventually, node_vanishes, nodes},
};

const PRE_DRAIN: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup";
const PRE_TERMINATE: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/backup";

/// What runs on the machine: a budget keeps `guarded`, a rule has `later` evicted after it, and another rule leaves `stays` alone.
const PODS: [&str; 3] = ["guarded", "later", "stays"];

const BUDGET: &str = "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: one-is-needed, namespace: default}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: guarded}}
";

/// A scale-down takes the machine that is marked.
pub(super) async fn one_is_drained(
    world: &World,
    life: &Life<'_, Hypervisor>,
    machines: &BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let objects = life.objects;
    let going = machines.last().context("a machine")?;
    for (name, drain) in
        [("later", json!({"behavior": "Drain", "order": 10})), ("stays", json!({"behavior": "Skip"}))]
    {
        let pods = json!([{"selector": {"matchLabels": {"app": name}}}]);
        objects.apply("MachineDrainRule", name, json!({"spec": {"drain": drain, "pods": pods}})).await?;
    }
    pods_run_on(objects, going).await?;
    let marks = json!({"cluster.x-k8s.io/delete-machine": "", PRE_DRAIN: "test", PRE_TERMINATE: "test"});
    objects.merge("Machine", going, json!({"metadata": {"annotations": marks}})).await?;
    let version =
        pods(objects).list(&ListParams::default()).await?.metadata.resource_version.context("a version")?;
    let replicas = json!({"spec": {"replicas": machines.len() - 1}});
    objects.merge("MachineDeployment", "workers", replicas).await?;

    is_at(objects, going, "WaitingForPreDrainHook", PRE_DRAIN).await?;
    ensure!(!is_cordoned(objects, going).await?, "{going} is cordoned before its hook is gone");
    life.note("a hook holds a deletion");

    remove(objects, going, PRE_DRAIN).await?;
    let refusal = "Pod default/guarded: cannot evict pod as it would violate the pod's disruption budget. \
                   The disruption budget one-is-needed needs 1 healthy pods";
    let machine = is_at(objects, going, "DrainingNode", refusal).await?;
    let later =
        "After above Pods have been removed from the Node, the following Pods will be evicted: default/later";
    ensure!(
        condition(&machine, "Deleting")["message"].as_str().is_some_and(|text| text.contains(later)),
        "{machine}"
    );
    ensure!(is_cordoned(objects, going).await?, "{going} is drained, and takes new pods");
    for pod in PODS {
        let there = pods(objects).get(pod).await?;
        ensure!(there.metadata.deletion_timestamp.is_none(), "{pod} is deleted");
    }
    life.note("a disruption budget holds a drain");

    let budgets: Api<PodDisruptionBudget> = Api::namespaced(objects.client.clone(), &objects.namespace);
    budgets.delete("one-is-needed", &DeleteParams::default()).await?;
    is_at(objects, going, "WaitingForPreTerminateHook", PRE_TERMINATE).await?;
    let left: BTreeSet<_> =
        pods(objects).list(&ListParams::default()).await?.iter().map(Pod::name_any).collect();
    ensure!(left.contains("stays") && !left.contains("guarded") && !left.contains("later"), "{left:?}");
    went_in_order(objects, &version).await?;
    let domains = world.hypervisor.domains()?;
    ensure!(domains.get(going).is_some_and(Domain::runs), "{domains:?}");
    life.note("a machine is drained, and another hook holds its deletion");

    remove(objects, going, PRE_TERMINATE).await?;
    objects.vanishes("Machine", going).await?;
    node_vanishes(&objects.client, going, LIMIT).await?;
    let left = life.running(machines.len() - 1).await?;
    ensure!(left.is_subset(machines) && !left.contains(going), "{left:?} of {machines:?}");
    life.note("a scale-down has taken the machine that was marked");
    Ok(left)
}

/// Waits until a deletion is at this stage, with these words.
async fn is_at(objects: &Objects, machine: &str, stage: &str, words: &str) -> Result<Value> {
    let is_there = |one: &Value| {
        let deleting = condition(one, "Deleting");
        deleting["reason"] == stage && deleting["message"].as_str().is_some_and(|text| text.contains(words))
    };
    objects.becomes("Machine", machine, &format!("{stage}: {words}"), is_there).await
}

async fn remove(objects: &Objects, machine: &str, annotation: &str) -> Result<()> {
    objects.merge("Machine", machine, json!({"metadata": {"annotations": {annotation: null}}})).await
}

async fn is_cordoned(objects: &Objects, node: &str) -> Result<bool> {
    let node = nodes(&objects.client).get(node).await?;
    Ok(node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default())
}

fn pods(objects: &Objects) -> Api<Pod> {
    Api::namespaced(objects.client.clone(), &objects.namespace)
}

/// All pods run on this machine, and the budget knows its pod.
async fn pods_run_on(objects: &Objects, machine: &str) -> Result<()> {
    let mut documents = vec![BUDGET.to_owned()];
    documents.extend(PODS.map(|name| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": objects.namespace, "labels": {"app": name}},
            "spec": {
                "nodeName": machine, "hostNetwork": true, "automountServiceAccountToken": false,
                // process 1 of a container ignores SIGTERM unless it handles it
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "sleep", "image": "localhost/sleep:1", "imagePullPolicy": "Never"}],
            },
        })
        .to_string()
    }));
    manifest::apply(&objects.client, &documents.join("\n---\n")).await?;
    for name in PODS {
        eventually(LIMIT, &format!("the pod {name} runs"), || async {
            let pod = pods(objects).get(name).await?;
            let phase = pod.status.and_then(|status| status.phase);
            Ok((phase.as_deref() == Some("Running")).then_some(()))
        })
        .await?;
    }
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(objects.client.clone(), &objects.namespace);
    eventually(LIMIT, "the budget counts its pod", || async {
        let budget = budgets.get("one-is-needed").await?;
        Ok(budget.status.is_some_and(|status| status.current_healthy == Some(1)).then_some(()))
    })
    .await
}

/// `later` began to go when `guarded` had gone, as a watch from this version on shows.
async fn went_in_order(objects: &Objects, version: &str) -> Result<()> {
    let mut events = Box::pin(pods(objects).watch(&WatchParams::default(), version).await?);
    let mut is_gone = false;
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Deleted(pod) if pod.name_any() == "guarded" => is_gone = true,
            WatchEvent::Modified(pod)
                if pod.name_any() == "later" && pod.metadata.deletion_timestamp.is_some() =>
            {
                ensure!(is_gone, "a pod is evicted before those with a lower order are gone");
                return Ok(());
            }
            _ => {}
        }
    }
    bail!("the watch has ended")
}
