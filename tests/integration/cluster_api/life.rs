//! The life of a cluster: machines of a deployment become Nodes, are scaled, replaced, healed and deleted, by Cluster API's own managers
//! and one daemon in both of its roles.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use test_env::PATIENCE;
use tokio::time::Instant;

use super::objects::{Objects, reference};
use crate::support::node_vanishes;

/// Where the machines are.
pub(crate) trait Infrastructure {
    /// That there are exactly these machines, they run, and nothing is there beside them.
    fn runs(&self, names: &BTreeSet<String>) -> anyhow::Result<()>;

    /// That nothing is left of any machine.
    fn is_empty(&self) -> anyhow::Result<()>;

    /// What a machine is here, as an object of the provider, as a Machine of the core, and as a Node.
    async fn check(&self, objects: &Objects, machine: &Value) -> anyhow::Result<()>;
}

/// A cluster `prod` with the deployment `workers`.
pub(crate) struct Life<'a, I> {
    pub(crate) objects: &'a Objects,
    pub(crate) infrastructure: &'a I,
    began: Instant,
}

impl<'a, I: Infrastructure> Life<'a, I> {
    pub(crate) fn new(objects: &'a Objects, infrastructure: &'a I) -> Self {
        Self { objects, infrastructure, began: Instant::now() }
    }

    pub(crate) fn note(&self, what: &str) {
        println!("{what} after {:.1?}", self.began.elapsed());
    }

    /// Waits until this many machines run, and checks everything about them. Returns their names.
    pub(crate) async fn running(&self, count: usize) -> anyhow::Result<BTreeSet<String>> {
        let all = self.objects.machines_run(count).await?;
        let names = all.keys().cloned().collect();
        self.infrastructure.runs(&names)?;
        for (name, machine) in &all {
            self.infrastructure.check(self.objects, machine).await.with_context(|| name.clone())?;
        }
        Ok(names)
    }

    /// The first machines.
    pub(crate) async fn begins(&self, count: usize, machine: &Value) -> anyhow::Result<BTreeSet<String>> {
        self.objects.apply_template("small", machine).await?;
        self.objects.apply_workers("prod", "workers", count, "small").await?;
        self.running(count).await
    }

    /// Some of them stay.
    pub(crate) async fn is_scaled(
        &self,
        before: &BTreeSet<String>,
        count: usize,
    ) -> anyhow::Result<BTreeSet<String>> {
        self.objects.merge("MachineDeployment", "workers", json!({"spec": {"replicas": count}})).await?;
        let left = self.running(count).await?;
        ensure!(left.is_subset(before), "{left:?} of {before:?}");
        self.nodes_vanish(before.difference(&left)).await?;
        self.note(&format!("{count} of them are left"));
        Ok(left)
    }

    /// Another template, in which this field differs: machines of it come first, and the old ones go then.
    pub(crate) async fn is_rolled(
        &self,
        before: &BTreeSet<String>,
        machine: &Value,
        field: &str,
    ) -> anyhow::Result<BTreeSet<String>> {
        self.objects.apply_template("big", machine).await?;
        let template = reference(&self.objects.kind("MachineTemplate"), "big");
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": before.len()}});
        let change = json!({"spec": {
            "template": {"spec": {"infrastructureRef": template}}, "rollout": {"strategy": strategy},
        }});
        self.objects.merge("MachineDeployment", "workers", change).await?;
        let is_new = |one: &Value| one["spec"][field] == machine[field];
        let is_done = |all: &[Value]| all.iter().all(is_new) && all.len() == before.len();
        self.objects.all_become(&self.objects.kind("Machine"), "all of the new template", is_done).await?;
        let after = self.running(before.len()).await?;
        ensure!(after.is_disjoint(before), "{after:?} after {before:?}");
        self.note("machines of another template run");
        Ok(after)
    }

    /// A health check, which replaces machines that are lost.
    pub(crate) async fn is_watched(&self) -> anyhow::Result<()> {
        // The Node of a lost machine is gone too, which counts at once. The condition is also false while a machine is being made.
        let spec = json!({
            "clusterName": "prod",
            "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "workers"}},
            "checks": {
                "nodeStartupTimeoutSeconds": 0,
                "unhealthyMachineConditions": [
                    {"type": "InfrastructureReady", "status": "False", "timeoutSeconds": 600},
                ],
            },
        });
        self.objects.apply("MachineHealthCheck", "workers", json!({"spec": spec})).await.map(drop)
    }

    /// These are lost, and replaced.
    pub(crate) async fn is_healed(
        &self,
        before: &BTreeSet<String>,
        lost: &BTreeSet<String>,
    ) -> anyhow::Result<BTreeSet<String>> {
        for name in lost {
            self.objects.vanishes("Machine", name).await?;
        }
        self.nodes_vanish(lost).await?;
        let after = self.running(before.len()).await?;
        let kept = before - lost;
        ensure!(kept.is_subset(&after) && after.is_disjoint(lost), "{after:?} after {before:?}");
        self.note("what was lost is replaced");
        Ok(after)
    }

    /// The cluster is deleted. Nothing of these kinds of the infrastructure is left, and no Node of these names.
    pub(crate) async fn ends(&self, kinds: &[&str], nodes: &BTreeSet<String>) -> anyhow::Result<()> {
        self.objects.delete("Cluster", "prod").await?;
        self.objects.vanishes("Cluster", "prod").await?;
        self.objects.none_are_left(kinds).await?;
        self.infrastructure.is_empty()?;
        // The core leaves the Nodes of a cluster that goes away as a whole. The lifecycle controller does not.
        self.nodes_vanish(nodes).await?;
        self.note("everything is gone");
        Ok(())
    }

    async fn nodes_vanish(&self, names: impl IntoIterator<Item = &String>) -> anyhow::Result<()> {
        for name in names {
            node_vanishes(&self.objects.client, name, PATIENCE).await?;
        }
        Ok(())
    }
}
