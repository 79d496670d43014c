//! Services whose load balancers are those of Rancher 1.6.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use cloudprovider::{FactoryInput, default_load_balancer_name};
use cloudprovider_rancher::{Config, Environment, RancherProvider};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use sandbox::kubelet;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    LIMIT, SOON,
    fake_cattle::{FakeCattle, Fault},
};
use crate::{api::Api, daemon::InProcess, support::*};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// How long the server wants to be left alone.
const PAUSE: Duration = Duration::from_secs(4);

/// How long the server is away.
const OUTAGE: Duration = Duration::from_secs(60);

/// A cluster whose Nodes are hosts of the server.
struct Cluster<'a> {
    api: &'a Api,
    server: FakeCattle,
    hosts: Vec<String>,
}

impl<'a> Cluster<'a> {
    /// With hosts and Nodes called `node-0` and so on.
    async fn new(api: &'a Api, nodes: usize) -> anyhow::Result<Self> {
        let server = FakeCattle::start().await;
        let mut hosts = Vec::new();
        for number in 0..nodes {
            let name = format!("node-{number}");
            hosts.push(server.add_host(&name, &format!("10.0.0.{number}")));
            kubelet::register(&api.client, &kubelet::node(&name, &uuid(number))).await?;
        }
        Ok(Self { api, server, hosts })
    }

    fn daemon(&self) -> anyhow::Result<InProcess> {
        let more = "loadBalancer: {retryInterval: 1s}\npollInterval: 5s\n";
        let config = Config::read(&FactoryInput::new(self.server.config(more)), &Environment::default())?;
        InProcess::start(&self.api.daemon_client, Arc::new(RancherProvider::new(&config)?), &SOON)
    }

    fn services(&self) -> kube::Api<Service> {
        kube::Api::default_namespaced(self.api.client.clone())
    }

    async fn create(&self, name: &str, port: u16) -> anyhow::Result<Service> {
        let service = json!({
            "metadata": {"name": name},
            "spec": {"type": "LoadBalancer", "ports": [{"name": "a", "port": port}]},
        });
        Ok(self.services().create(&PostParams::default(), &serde_json::from_value(service)?).await?)
    }

    /// Gives a Service these ports.
    async fn set_ports(&self, name: &str, ports: &[u16]) -> anyhow::Result<()> {
        let ports: Vec<_> =
            ports.iter().map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
        let patch = Patch::Merge(json!({"spec": {"ports": ports}}));
        self.services().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until the status of a Service shows that there is a load balancer.
    async fn is_balanced(&self, name: &str) -> anyhow::Result<Service> {
        eventually(LIMIT, &format!("{name} has addresses"), || async {
            let service = self.services().get(name).await?;
            Ok((addresses_of(&service) == ["10.0.0.0", "10.0.0.1"]).then_some(service))
        })
        .await
    }

    /// The load balancer of a Service.
    fn balancer(&self, service: &Service) -> Option<Value> {
        let name = balancer_name(service);
        let cloud = self.server.cloud();
        let mut found = cloud.objects.iter().filter(|((kind, _), _)| *kind == "loadBalancerService");
        found.find(|(_, one)| one["name"] == name).map(|(_, one)| one.clone())
    }

    /// What the load balancer of a Service does: its ports, and the external services that it sends to.
    fn ports_and_targets(&self, service: &Service) -> Option<(Value, BTreeSet<String>)> {
        let balancer = self.balancer(service)?;
        let cloud = self.server.cloud();
        let name = |id: &Value| {
            let id = id.as_str().unwrap_or_default().to_owned();
            cloud.objects.get(&("externalService", id))?["name"].as_str().map(str::to_owned)
        };
        let rules = balancer["lbConfig"]["portRules"].as_array().cloned().unwrap_or_default();
        let targets =
            rules.iter().map(|rule| name(&rule["serviceId"]).unwrap_or("gone".to_owned())).collect();
        Some((balancer["launchConfig"]["ports"].clone(), targets))
    }

    /// Waits until the load balancer of a Service has these ports and sends to these Nodes.
    async fn sends(&self, service: &Service, ports: &[u16], nodes: &[&str]) -> anyhow::Result<()> {
        let ports: Vec<_> = ports.iter().map(|port| format!("{port}:{port}/tcp")).collect();
        let wanted = Some((json!(ports), nodes.iter().map(|name| (*name).to_owned()).collect()));
        let outcome = eventually(LIMIT, "the load balancer does what it should", || async {
            Ok((self.ports_and_targets(service) == wanted).then_some(()))
        });
        outcome.await.with_context(|| format!("{:?} and not {wanted:?}", self.ports_and_targets(service)))
    }

    fn external_services(&self) -> BTreeSet<String> {
        let cloud = self.server.cloud();
        let found = cloud.objects.iter().filter(|((kind, _), _)| *kind == "externalService");
        found.filter_map(|(_, one)| one["name"].as_str().map(str::to_owned)).collect()
    }

    /// A load balancer as rancher-cloud-controller-manager left it, with an outdated address. Returns its ID.
    fn add_balancer_of_the_old_manager(&self, service: &Service) -> String {
        let mut cloud = self.server.cloud();
        let stack = json!({
            "name": "kubernetes-loadbalancers", "externalId": "kubernetes-loadbalancers://", "state": "active",
        });
        let stack = cloud.create("stack", stack);
        let external = json!({
            "name": "node-0", "stackId": stack, "externalIpAddresses": ["192.0.2.1"], "state": "active",
        });
        let external = cloud.create("externalService", external);
        let rule = json!({
            "sourcePort": 80, "targetPort": 30080, "serviceId": external, "protocol": "tcp", "priority": 1,
        });
        let balancer = json!({
            "name": balancer_name(service), "stackId": stack, "state": "active",
            "launchConfig": {"ports": ["80:80/tcp"], "imageUuid": "docker:rancher/lb-service-haproxy:v0.7.6"},
            "lbConfig": {"portRules": [rule]},
        });
        cloud.create("loadBalancerService", balancer)
    }

    async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.services().delete(name, &DeleteParams::default()).await?;
        eventually(LIMIT, &format!("{name} is gone"), || async {
            Ok(self.services().get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }
}

fn balancer_name(service: &Service) -> String {
    format!("lb-{}", default_load_balancer_name(service.metadata.uid.as_deref().unwrap_or_default()))
}

fn addresses_of(service: &Service) -> Vec<String> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.clone()).unwrap_or_default();
    ingress.into_iter().filter_map(|one| one.ip).collect()
}

/// A load balancer of the old manager is taken over, another one is made, and both follow their Services and the Nodes.
pub(super) async fn life(api: &Api) -> anyhow::Result<()> {
    let cluster = Cluster::new(api, 3).await?;
    let old = cluster.create("old", 80).await?;
    let adopted = cluster.add_balancer_of_the_old_manager(&old);
    let daemon = cluster.daemon()?;
    let all = ["node-0", "node-1", "node-2"];
    cluster.is_balanced("old").await?;
    cluster.sends(&old, &[80], &all).await?;
    ensure!(cluster.balancer(&old).is_some_and(|one| one["id"] == adopted), "taken over");

    let web = cluster.create("web", 8080).await?;
    let balanced = cluster.is_balanced("web").await?;
    ensure!(balanced.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER));
    cluster.sends(&web, &[8080], &all).await?;
    let made = cluster.balancer(&web).context("a load balancer")?["id"].clone();
    ensure!(cluster.external_services().len() == 3, "the Nodes' external services are shared");

    cluster.set_ports("web", &[8080, 8443]).await?;
    cluster.sends(&web, &[8080, 8443], &all).await?;
    ensure!(cluster.balancer(&web).is_some_and(|one| one["id"] == made), "changed in place");

    // A host that leaves takes its Node along, and both load balancers lose it.
    cluster.server.remove_host(&cluster.hosts[2]);
    set_ready_unknown(&api.client, "node-2").await?;
    node_vanishes(&api.client, "node-2", LIMIT).await?;
    cluster.sends(&web, &[8080, 8443], &all[..2]).await?;
    cluster.sends(&old, &[80], &all[..2]).await?;
    eventually(LIMIT, "its external service is gone", || async {
        Ok((cluster.external_services().len() == 2).then_some(()))
    })
    .await?;

    cluster.delete("web").await?;
    ensure!(cluster.balancer(&web).is_none() && cluster.balancer(&old).is_some());
    ensure!(cluster.external_services().len() == 2, "the other load balancer uses them");
    cluster.delete("old").await?;
    ensure!(cluster.balancer(&old).is_none() && cluster.external_services().is_empty(), "nothing is left");
    daemon.stop().await
}

/// A server that wants to be left alone, and one that is away for a minute.
pub(super) async fn trouble(api: &Api) -> anyhow::Result<()> {
    let cluster = Cluster::new(api, 2).await?;
    let daemon = cluster.daemon()?;
    let nodes = ["node-0", "node-1"];
    let mut services = Vec::new();
    for name in ["a", "b", "c"] {
        services.push(cluster.create(name, 80).await?);
        cluster.is_balanced(name).await?;
    }

    // One refusal is enough: no Service asks again before the time.
    let pause = PAUSE.as_secs().to_string();
    let refused = Instant::now();
    cluster.server.cloud().fault = Some(Fault::error(429, "TooMany").with_header("retry-after", &pause));
    let calls = cluster.server.calls();
    for name in ["a", "b", "c"] {
        cluster.set_ports(name, &[81]).await?;
    }
    let made = || cluster.server.calls() - calls;
    eventually(LIMIT, "it asks", || async { Ok((made() > 0).then_some(())) }).await?;
    sleep(PAUSE / 2).await;
    let (made, took) = (made(), refused.elapsed());
    // Those that were on their way at the same time, in each of the pauses.
    let most = 4 * (1 + took.as_secs() / PAUSE.as_secs());
    ensure!(u64::try_from(made)? <= most, "{made} calls in {took:?}");
    cluster.server.set_fault(None);
    for service in &services {
        cluster.sends(service, &[81], &nodes).await?;
    }

    cluster.server.go_away();
    cluster.set_ports("a", &[82]).await?;
    cluster.services().delete("b", &DeleteParams::default()).await?;
    set_ready_unknown(&api.client, "node-1").await?;
    sleep(OUTAGE).await;
    for name in nodes {
        node_stays(&api.client, name, Duration::ZERO).await?;
    }
    let deleted = cluster.services().get("b").await?;
    ensure!(deleted.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER), "nobody knows yet");
    for service in &services {
        ensure!(cluster.balancer(service).is_some());
    }
    for name in ["a", "c"] {
        ensure!(addresses_of(&cluster.services().get(name).await?).len() == 2, "{name} keeps its status");
    }

    cluster.server.come_back();
    cluster.sends(&services[0], &[82], &nodes).await?;
    eventually(LIMIT, "b is gone", || async {
        Ok(cluster.services().get_opt("b").await?.is_none().then_some(()))
    })
    .await?;
    ensure!(cluster.balancer(&services[1]).is_none());
    for name in nodes {
        node_stays(&api.client, name, Duration::ZERO).await?;
    }
    for name in ["a", "c"] {
        cluster.delete(name).await?;
    }
    ensure!(cluster.external_services().is_empty(), "nothing is left");
    daemon.stop().await
}
