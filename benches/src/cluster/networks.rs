//! Services and pod CIDRs in the cluster, and what the API server counts about them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use sandbox::kubelet;
use serde_json::json;
use tokio::time::sleep;

use super::{Cluster, POSTERS, STUCK, name};

/// The namespace of the Services.
const NAMESPACE: &str = "default";
/// The pause between two reads of all Services.
const POLL_ALL: Duration = Duration::from_millis(250);

impl Cluster {
    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.0.clone(), NAMESPACE)
    }

    /// Posts Services of type `LoadBalancer`.
    pub(crate) async fn post_services(&self, count: usize) -> Result<()> {
        let services = self.services();
        stream::iter(0..count)
            .map(Ok)
            .try_for_each_concurrent(POSTERS, |number| {
                let services = services.clone();
                async move {
                    let service = serde_json::from_value(json!({
                        "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("web-{number}")},
                        "spec": {
                            "type": "LoadBalancer", "selector": {"app": format!("web-{number}")},
                            // The API server has 2,768 node ports.
                            "ports": [{"name": "http", "port": 80}],
                        },
                    }))?;
                    services.create(&PostParams::default(), &service).await?;
                    anyhow::Ok(())
                }
            })
            .await
    }

    /// Waits until every Service has an address. Returns when that was seen.
    pub(crate) async fn all_have_addresses(&self, count: usize) -> Result<Instant> {
        let (mut ready, mut changed) = (0, Instant::now());
        loop {
            // From the API server's cache: reading from etcd would slow down what is measured.
            let params = ListParams::default().match_any();
            let services = self.services().list(&params).await?;
            let now = Instant::now();
            let with_address = services.items.iter().filter(|service| has_address(service)).count();
            if with_address >= count {
                return Ok(now);
            }
            if with_address != ready {
                (ready, changed) = (with_address, now);
            }
            ensure!(changed.elapsed() < STUCK, "only {ready} of {count} Services have an address");
            sleep(POLL_ALL).await;
        }
    }

    /// Posts initialised Nodes that are Ready, each with a pod CIDR.
    pub(crate) async fn post_initialized(&self, numbers: std::ops::Range<usize>) -> Result<()> {
        stream::iter(numbers)
            .map(Ok)
            .try_for_each_concurrent(POSTERS, |number| async move {
                let mut node =
                    kubelet::node(&name(number), &format!("5a3c0de0-0000-4000-8000-{number:012x}"));
                let spec = node.spec.get_or_insert_default();
                let [_, _, b, c] = u32::try_from(number).unwrap_or_default().to_be_bytes();
                let cidr = format!("10.{b}.{c}.0/24");
                spec.taints = None;
                spec.provider_id = Some(format!("ideal:///{}", name(number)));
                (spec.pod_cidr, spec.pod_cidrs) = (Some(cidr.clone()), Some(vec![cidr]));
                kubelet::register(&self.client.0, &node).await?;
                anyhow::Ok(())
            })
            .await
    }

    /// Deletes Nodes.
    pub(crate) async fn delete_nodes(&self, numbers: std::ops::Range<usize>) -> Result<()> {
        let nodes = self.nodes();
        stream::iter(numbers)
            .map(Ok)
            .try_for_each_concurrent(POSTERS, |number| {
                let nodes = nodes.clone();
                async move {
                    nodes.delete(&name(number), &DeleteParams::default()).await?;
                    anyhow::Ok(())
                }
            })
            .await
    }

    /// Changes a label of each of these Nodes, which no load balancer depends on.
    pub(crate) async fn touch_nodes(&self, numbers: std::ops::Range<usize>) -> Result<()> {
        let patch = json!({"metadata": {"labels": {"bench.example.org/touched": "yes"}}});
        for number in numbers {
            self.nodes().patch(&name(number), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        Ok(())
    }

    /// Waits until every Node says that its routes are there. Returns when that was seen.
    pub(crate) async fn all_have_routes(&self, count: usize) -> Result<Instant> {
        let began = Instant::now();
        loop {
            let nodes = self.nodes().list(&ListParams::default().match_any()).await?;
            let now = Instant::now();
            if nodes.items.iter().filter(|node| has_route(node)).count() >= count {
                return Ok(now);
            }
            ensure!(began.elapsed() < STUCK, "not all of {count} Nodes have routes");
            sleep(POLL_ALL).await;
        }
    }

    /// How many requests the API server has answered that change a resource, such as `services`, or its status.
    pub(crate) async fn changes_of(&self, resource: &str) -> Result<f64> {
        self.requests_of(resource, &["PATCH", "PUT", "APPLY"]).await
    }

    /// How many requests the API server has answered that make one of a resource.
    pub(crate) async fn posts_of(&self, resource: &str) -> Result<f64> {
        self.requests_of(resource, &["POST"]).await
    }

    async fn requests_of(&self, resource: &str, verbs: &[&str]) -> Result<f64> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = self.client.0.request_text(request).await?;
        let resource = format!("resource=\"{resource}\"");
        let is_meant = |line: &&str| verbs.iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")));
        Ok(text
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{") && line.contains(&resource))
            .filter(is_meant)
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }
}

fn has_address(service: &Service) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty())
}

fn has_route(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "NetworkUnavailable" && condition.status == "False")
}
