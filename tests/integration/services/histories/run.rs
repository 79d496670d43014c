//! One history.

use std::time::Duration;

use anyhow::{bail, ensure};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::ListParams;
use sandbox::kubelet;
use serde_json::json;

use super::{
    acts::{Act, DAEMONS, next},
    model::difference,
};
use crate::{
    api::Api,
    services::world::{EXCLUDED, TO_BE_DELETED, World, load_balancer_name, name_of},
    stage::{Chronicle, Settling},
    support::nodes,
};

const ACTS: usize = 60;
const SETTLING: Settling = Settling {
    // Longer than the longest pause between tries and a verification
    within: Duration::from_secs(900),
    stays_for: Duration::from_secs(65),
    look_every: [Duration::from_secs(2); 2],
    may_relapse: false,
};
/// A short period makes a lost load balancer come back soon.
const FLAGS: [&str; 1] = ["--service-verification-period=60s"];

struct History<'a> {
    world: World<'a>,
    chronicle: Chronicle,
}

pub(super) async fn run(api: &Api, seed: u64) -> anyhow::Result<()> {
    let mut history = History { world: World::new(api), chronicle: Chronicle::new(api, seed, DAEMONS)? };
    let outcome = Box::pin(history.live()).await;
    history.chronicle.told(outcome)
}

impl History<'_> {
    async fn live(&mut self) -> anyhow::Result<()> {
        for _ in 0..ACTS {
            self.keep_daemons().await?;
            let act = next(&mut self.chronicle.random);
            self.chronicle.note(&format!("{act:?}"));
            self.act(act).await?;
        }
        self.chronicle.calm(self.world.api, &self.world.cloud)?;
        self.settle("after the history").await?;
        self.chronicle.note("every Service is deleted");
        for service in self.services().await? {
            self.world.delete(&name_of(&service)).await?;
        }
        self.settle("after the end").await?;
        ensure!(self.services().await?.is_empty(), "there are Services left");
        ensure!(
            self.world.tape.overlaps().is_empty(),
            "two calls at once for {:?}",
            self.world.tape.overlaps()
        );
        ensure!(
            self.world.tape.unprotected().is_empty(),
            "ensured without a finalizer: {:?}",
            self.world.tape.unprotected()
        );
        ensure!(
            self.world.tape.shown().is_empty(),
            "deleted while the status had addresses: {:?}",
            self.world.tape.shown()
        );
        self.chronicle.daemons.end().await
    }

    async fn services(&self) -> anyhow::Result<Vec<Service>> {
        Ok(self.world.services().list(&ListParams::default()).await?.items)
    }

    async fn service(&self, number: usize) -> anyhow::Result<Option<Service>> {
        let found = self.world.services().get_opt(&service_name(number)).await?;
        Ok(found.filter(|service| service.metadata.deletion_timestamp.is_none()))
    }

    async fn node(&self, number: usize) -> anyhow::Result<Option<Node>> {
        Ok(nodes(&self.world.api.client).get_opt(&node_name(number)).await?)
    }

    async fn keep_daemons(&mut self) -> anyhow::Result<()> {
        self.chronicle.daemons.keep(|| self.world.start_elected(&FLAGS)).await
    }

    async fn act(&mut self, act: Act) -> anyhow::Result<()> {
        match act {
            // The test's own writes may be among those that fail
            Act::Trouble(trouble) => self.chronicle.happens(trouble, self.world.api, &self.world.cloud).await,
            Act::AddNode { .. }
            | Act::DeleteNode { .. }
            | Act::Drain { .. }
            | Act::Exclude { .. }
            | Act::Heartbeat { .. } => self.act_on_node(act).await,
            _ => self.act_on_service(act).await,
        }
    }

    async fn act_on_node(&mut self, act: Act) -> anyhow::Result<()> {
        let (Act::AddNode { node }
        | Act::DeleteNode { node }
        | Act::Drain { node, .. }
        | Act::Exclude { node, .. }
        | Act::Heartbeat { node }) = act
        else {
            return Ok(());
        };
        let (name, exists) = (node_name(node), self.node(node).await?.is_some());
        match act {
            Act::AddNode { .. } if !exists => self.world.add_node(&name).await,
            _ if !exists => Ok(()),
            Act::DeleteNode { .. } => self.world.delete_node(&name).await,
            Act::Drain { drains, .. } => {
                let taint = json!([{"key": TO_BE_DELETED, "effect": "NoSchedule"}]);
                let taints = if drains { taint } else { json!([]) };
                self.world.change_node(&name, json!({"spec": {"taints": taints}})).await
            }
            Act::Exclude { value, .. } => {
                self.world.change_node(&name, json!({"metadata": {"labels": {EXCLUDED: value}}})).await
            }
            Act::Heartbeat { .. } => {
                let is_ready = self.chronicle.random.bool();
                kubelet::heartbeat(&self.world.api.client, &name, is_ready).await?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn act_on_service(&mut self, act: Act) -> anyhow::Result<()> {
        let (Act::Create { service: number, .. }
        | Act::Delete { service: number }
        | Act::ChangeType { service: number, .. }
        | Act::TakeClass { service: number }
        | Act::Annotate { service: number, .. }
        | Act::ChangePort { service: number, .. }
        | Act::WipeStatus { service: number }
        | Act::LoseLoadBalancer { service: number }) = act
        else {
            return Ok(());
        };
        let name = service_name(number);
        if let Act::Create { kind, has_class, .. } = act {
            if self.world.services().get_opt(&name).await?.is_none() {
                let mut spec = json!({"type": kind});
                if kind == "LoadBalancer" && has_class {
                    spec["loadBalancerClass"] = "example.com/other".into();
                }
                self.world.create(&name, spec).await?;
            }
            return Ok(());
        }
        let Some(service) = self.service(number).await? else { return Ok(()) };
        if matches!(act, Act::TakeClass { .. })
            && self.world.change(&name, json!({"spec": {"type": "ClusterIP"}})).await.is_err()
        {
            return Ok(());
        }
        let patch = match act {
            Act::TakeClass { .. } => {
                json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/other"}})
            }
            Act::Delete { .. } => return self.world.delete(&name).await,
            Act::LoseLoadBalancer { .. } => {
                self.world.cloud.lose_load_balancer(&load_balancer_name(&service));
                return Ok(());
            }
            Act::ChangeType { kind, .. } => json!({"spec": {"type": kind}}),
            Act::Annotate { value, .. } => {
                json!({"metadata": {"annotations": {"example.com/a": value.to_string()}}})
            }
            Act::ChangePort { port, .. } => json!({"spec": {"ports": [{"port": port}]}}),
            _ => json!({"status": {"loadBalancer": {"ingress": []}}}),
        };
        // The injected faults may hit this write instead of the daemon's: then it does not happen
        let written = if matches!(act, Act::WipeStatus { .. }) {
            self.world.change_status(&name, patch).await
        } else {
            self.world.change(&name, patch).await
        };
        if let Err(error) = written {
            self.chronicle.note(&format!("    it did not happen: {error:#}"));
        }
        Ok(())
    }

    /// Waits until everything is as the objects ask for, and stays so.
    async fn settle(&mut self, when: &str) -> anyhow::Result<()> {
        let wrong = SETTLING.wait(async || {
            self.keep_daemons().await?;
            let all_nodes = nodes(&self.world.api.client).list(&ListParams::default()).await?.items;
            Ok(difference(&self.services().await?, &all_nodes, &self.world.cloud.load_balancers()))
        });
        let Some(wrong) = wrong.await? else { return Ok(()) };
        let mut words = wrong.split(|c: char| !c.is_alphanumeric() && c != '-');
        let name = words.find(|word| word.starts_with("web-")).unwrap_or_default();
        bail!("{when}: {wrong}; {}", self.world.describe(name).await)
    }
}

fn service_name(number: usize) -> String {
    format!("web-{number}")
}

fn node_name(number: usize) -> String {
    format!("n{number}")
}
