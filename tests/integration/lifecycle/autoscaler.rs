//! A program that sends the requests of cluster-autoscaler's provider for Cluster API, in the middle of rollouts: only the machines that it
//! chose go.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use k8s_openapi::api::core::v1::Taint;
use kube::{
    ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};
use test_env::PATIENCE;

use super::site::Site;
use crate::{
    cluster_api::{
        kubelets::{Kubelets, Seen, machines},
        objects::{Objects, is, name, reference},
    },
    daemon::InProcess,
    fake_cloud::FakeCloud,
    support::{eventually, nodes},
    trial::Outcome,
};

const NAMESPACE: &str = "autoscaler";

/// Both roles of the daemon of the machines, with short times.
const FLAGS: [&str; 5] = [
    "--controllers=cloud-node-controller,cloud-node-lifecycle-controller,machine-controller",
    "--namespace=autoscaler",
    "--node-monitor-period=500ms",
    "--node-deletion-grace-period=1s",
    "--node-deletion-minimum-age=0s",
];

/// How many machines there are before the autoscaler comes, and what a rollout may add and take away.
const MOST: usize = 6;
const SURGE: usize = 2;
const UNAVAILABLE: usize = 1;

/// The templates that take turns.
const TEMPLATES: [&str; 2] = ["small", "big"];

/// How many rollouts there are among the tests. `CCM_AUTOSCALER_ROUNDS` says another number.
const ROUNDS: usize = 2;

pub(super) fn chooses() -> Outcome {
    let cloud = FakeCloud::new().with_machines();
    let provider = cloud.provider();
    Site::run(&*provider, "Fake", NAMESPACE, async |site, objects| story(site, objects, &cloud).await)
}

async fn story(site: &Site, objects: &Objects, cloud: &FakeCloud) -> Result<()> {
    let rounds = std::env::var("CCM_AUTOSCALER_ROUNDS").ok().map(|text| text.parse()).transpose();
    let rounds = rounds.context("CCM_AUTOSCALER_ROUNDS")?.unwrap_or(ROUNDS);
    let infrastructure = InProcess::start(&objects.client, cloud.provider(), &FLAGS)?;
    let lifecycle = site.start().await?;
    let holds = Arc::new(AtomicBool::new(false));
    let _kubelets = kubelets(objects, cloud, &holds);
    objects.apply_cluster("prod", &site.control_plane, json!({"spec": {}})).await?;
    for (template, cpus) in TEMPLATES.iter().zip([2, 4]) {
        objects.apply_template(template, &json!({"cpus": cpus})).await?;
    }
    objects.apply_workers("prod", "workers", MOST, TEMPLATES[0]).await?;
    let rolling = json!({"maxSurge": SURGE, "maxUnavailable": UNAVAILABLE});
    let strategy = json!({"rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}});
    objects.merge("MachineDeployment", "workers", json!({"spec": strategy})).await?;
    let deployment = Deployment { objects };
    deployment.is_complete(MOST, TEMPLATES[0]).await?;

    let mut random = Rng::with_seed(4);
    for round in 0..rounds {
        // New machines come up without Nodes, so the rollout stays where it is.
        holds.store(true, Ordering::SeqCst);
        let template = TEMPLATES[(round + 1) % 2];
        let change = json!({"infrastructureRef": reference("FakeMachineTemplate", template)});
        objects
            .merge("MachineDeployment", "workers", json!({"spec": {"template": {"spec": change}}}))
            .await?;
        let mut left = deployment.stays().await?;
        let position = site.control_plane.audit_position();
        let (mut replicas, mut chosen) = (MOST, BTreeSet::new());
        for _ in 0..random.usize(1..4) {
            let candidates: Vec<_> = left.iter().filter(|(_, has_node)| *has_node).collect();
            let (one, _) = candidates[random.usize(..candidates.len())].clone();
            replicas -= 1;
            deployment.loses(&one, replicas).await?;
            left.retain(|(name, _)| *name != one);
            chosen.insert(one);
            let left: BTreeSet<_> = left.iter().map(|(name, _)| name.clone()).collect();
            eventually(PATIENCE, &format!("round {round}: {chosen:?} are gone"), || async {
                let there = deployment.machines().await?;
                ensure!(
                    there.is_superset(&left),
                    "round {round}: {there:?} without {chosen:?}, wanted {left:?}"
                );
                Ok((there == left).then_some(()))
            })
            .await?;
        }
        deployment.has_settled(round).await?;
        let writes = site.control_plane.accepted_after(position)?.into_iter();
        let deleted: BTreeSet<_> =
            writes.filter(|one| one.what == "delete machines").map(|one| one.name).collect();
        ensure!(deleted == chosen, "round {round}: {deleted:?} were deleted, {chosen:?} were chosen");
        println!("round {round}: {} chosen", chosen.len());
        holds.store(false, Ordering::SeqCst);
        deployment.is_complete(replicas, template).await?;
        deployment.scales(MOST).await?;
        deployment.is_complete(MOST, template).await?;
    }

    objects.delete("Cluster", "prod").await?;
    objects.vanishes("Cluster", "prod").await?;
    ensure!(cloud.objects().is_empty(), "left in the cloud: {:?}", cloud.objects());
    lifecycle.process.terminate()?;
    infrastructure.stop().await
}

/// Posts a Node for each machine that runs, but for those that come while this is held.
fn kubelets(objects: &Objects, cloud: &FakeCloud, holds: &Arc<AtomicBool>) -> Kubelets {
    let (cloud, holds) = (cloud.clone(), Arc::clone(holds));
    Kubelets::follow(&objects.client, move || {
        // In this order: a machine that came after the flag was set is not among those of a look before.
        let all = machines(&cloud);
        let are_held = holds.load(Ordering::SeqCst);
        let there = all.keys().cloned().collect();
        Ok(Seen { joined: if are_held { BTreeMap::default() } else { all }, there })
    })
}

/// The deployment `workers`.
struct Deployment<'a> {
    objects: &'a Objects,
}

impl Deployment<'_> {
    fn api(&self, kind: &str) -> kube::Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", kind));
        kube::Api::namespaced_with(self.objects.client.clone(), &self.objects.namespace, &resource)
    }

    async fn machines(&self) -> Result<BTreeSet<String>> {
        Ok(self.objects.list("Machine").await?.iter().map(|one| name(one).to_owned()).collect())
    }

    /// Waits until so many machines of this template run, and there are no others.
    async fn is_complete(&self, replicas: usize, template: &str) -> Result<()> {
        let is_of =
            |one: &Value| one["metadata"]["annotations"]["cluster.x-k8s.io/cloned-from-name"] == template;
        let is_right = |all: &[Value]| all.len() == replicas && all.iter().all(is_of);
        self.objects.all_become("FakeMachine", template, is_right).await?;
        self.objects.machines_run(replicas).await?;
        let is_seen = |one: &Value| {
            is(one, "RollingOut", "False")
                && one["status"]["observedGeneration"] == one["metadata"]["generation"]
                && ["replicas", "availableReplicas", "upToDateReplicas"]
                    .iter()
                    .all(|field| one["status"][field] == replicas)
        };
        self.objects.becomes("MachineDeployment", "workers", "complete", is_seen).await?;
        self.objects.all_become("MachineSet", "one is left", |all| all.len() == 1).await.map(drop)
    }

    /// Waits until the rollout can do nothing more without new Nodes. Gives the machines, and which have Nodes.
    async fn stays(&self) -> Result<Vec<(String, bool)>> {
        let has_node = |one: &Value| one["status"]["nodeRef"]["name"].is_string();
        let is_still = |all: &[Value]| {
            all.len() == MOST + SURGE && all.iter().filter(|one| has_node(one)).count() == MOST - UNAVAILABLE
        };
        let all = self.objects.all_become("Machine", "the rollout stays", is_still).await?;
        Ok(all.iter().map(|one| (name(one).to_owned(), has_node(one))).collect())
    }

    /// What the autoscaler does with a machine that it does not need: it taints the Node, marks the Machine, and takes one replica away.
    async fn loses(&self, machine: &str, replicas: usize) -> Result<()> {
        let taint = Taint {
            key: "ToBeDeletedByClusterAutoscaler".to_owned(),
            value: Some(jiff::Timestamp::now().as_second().to_string()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        };
        let of_workload = nodes(&self.objects.client);
        let what = format!("{machine} is tainted");
        eventually(PATIENCE, &what, || async {
            let mut node = of_workload.get(machine).await?;
            node.spec.get_or_insert_default().taints.get_or_insert_default().push(taint.clone());
            unless_stale(of_workload.replace(machine, &PostParams::default(), &node).await)
        })
        .await?;
        let api = self.api("Machine");
        eventually(PATIENCE, &format!("{machine} is marked"), || async {
            let mut marked = api.get(machine).await?;
            let now = jiff::Timestamp::now().to_string();
            marked.annotations_mut().insert("cluster.x-k8s.io/delete-machine".to_owned(), now);
            unless_stale(api.replace(machine, &PostParams::default(), &marked).await)
        })
        .await?;
        self.scales(replicas).await
    }

    /// Reads the scale of the deployment and writes another one.
    async fn scales(&self, replicas: usize) -> Result<()> {
        let api = self.api("MachineDeployment");
        eventually(PATIENCE, &format!("a scale of {replicas}"), || async {
            let mut scale = api.get_scale("workers").await?;
            scale.spec.get_or_insert_default().replicas = Some(i32::try_from(replicas)?);
            unless_stale(api.replace_scale("workers", &PostParams::default(), &scale).await)
        })
        .await
    }

    /// Waits until the controllers have handled what was written before.
    async fn has_settled(&self, round: usize) -> Result<()> {
        let round = round.to_string();
        let annotation = json!({"metadata": {"annotations": {"round": round}}});
        self.objects.merge("MachineDeployment", "workers", annotation).await?;
        let is_settled = |set: &Value| {
            set["metadata"]["annotations"]["round"] == round
                && set["status"]["observedGeneration"] == set["metadata"]["generation"]
                && set["status"]["replicas"] == set["spec"]["replicas"]
        };
        let are_settled = |all: &[Value]| all.len() == 2 && all.iter().all(is_settled);
        self.objects.all_become("MachineSet", "settled", are_settled).await.map(drop)
    }
}

/// `None` for a write that came too late: the autoscaler reads again in its next loop.
fn unless_stale<T>(written: kube::Result<T>) -> Result<Option<()>> {
    match written {
        Ok(_) => Ok(Some(())),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error.into()),
    }
}
