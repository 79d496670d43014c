//! The daemon with pools on the real API server: claims are objects there.

use std::time::Duration;

use anyhow::ensure;
use controller_kit::cloud::CloudMetrics;
use k8s_openapi::api::{
    core::v1::{Event, Namespace, Service},
    networking::v1::IPAddress,
};
use kube::{
    Api as Kube, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
};
use sandbox::kubelet;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    api::Api,
    daemon::InProcess,
    hypervisors::provider,
    support::{event, eventually, uuid},
};

const LIMIT: Duration = Duration::from_secs(40);
const NAMESPACE: &str = "pools-daemon";
/// Of the scenario that counts calls.
const COUNTED: &str = "pools-counted";
/// Time in which a second call would have come.
const SETTLED: Duration = Duration::from_secs(3);
const PICKED: &str = "service.cloudprovider.kubernetes.io/picked-ips";
const CONFIG: &str = "hypervisors: [{name: test, uri: 'test:///default'}]\n\
                      addressPools: {pools: [{name: main, addresses: [10.9.0.1-10.9.0.2]}]}\n";

/// Services get addresses, a daemon that takes over keeps them, a full pool is told, and nothing is left behind.
pub(super) async fn claims_are_objects(api: &Api) -> anyhow::Result<()> {
    let client = &api.client;
    make_namespace(client, NAMESPACE).await?;
    let start = || InProcess::start(client, provider(CONFIG)?, &["--controllers=service-lb-controller"]);
    let daemon = start()?;
    create(client, "a").await?;
    ensure!(address(client, "a").await? == "10.9.0.1");
    create(client, "b").await?;
    ensure!(address(client, "b").await? == "10.9.0.2");
    ensure!(claimed(client).await? == ["10.9.0.1", "10.9.0.2"]);
    // It dies, and another one knows nothing but what is in the cluster.
    daemon.crash().await;
    let daemon = start()?;
    create(client, "c").await?;
    let refused = event(client, NAMESPACE, "c", "SyncLoadBalancerFailed").await?.message.unwrap_or_default();
    let expected = "the pool \"main\" (2 addresses) has no free IPv4 address; held by pools-daemon/a, pools-daemon/b; \
                    delete a Service or add addresses";
    ensure!(refused.contains(expected), "{refused}");
    delete(client, "a").await?;
    ensure!(address(client, "c").await? == "10.9.0.1", "the Service that waited");
    ensure!(address(client, "b").await? == "10.9.0.2", "an address that stays");
    for name in ["b", "c"] {
        delete(client, name).await?;
    }
    ensure!(claimed(client).await?.is_empty());
    daemon.stop().await
}

/// Each Service costs one call, whoever announces: what the provider writes is no change. And no Node costs an event.
pub(super) async fn one_call_for_each_service(api: &Api) -> anyhow::Result<()> {
    let client = &api.client;
    make_namespace(client, COUNTED).await?;
    for announcer in ["kube-vip", "metallb", "cilium", "none"] {
        let config = format!(
            "hypervisors: [{{name: test, uri: 'test:///default'}}]\n\
             addressPools: {{announcedBy: {announcer}, pools: [{{name: main, addresses: [10.9.1.0/28]}}]}}\n"
        );
        let daemon = InProcess::start(client, provider(&config)?, &["--controllers=service-lb-controller"])?;
        let names = [1, 2, 3].map(|number| format!("{announcer}-{number}"));
        for name in &names {
            create_in(client, COUNTED, name).await?;
        }
        for name in &names {
            let is_done = async || {
                let service = Kube::<Service>::namespaced(client.clone(), COUNTED).get(name).await?;
                let has_status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
                let has_status = has_status.is_some_and(|status| status.ingress.is_some());
                Ok((has_status || service.annotations().contains_key(PICKED)).then_some(()))
            };
            eventually(LIMIT, &format!("Service {name} has an address"), is_done).await?;
        }
        kubelet::register(client, &kubelet::node(&format!("node-{announcer}"), &uuid(1))).await?;
        let metrics = daemon.counted::<CloudMetrics>();
        let metrics = metrics.of(cloudprovider_libvirt::NAME);
        let calls = |operation: &str, result: &str| metrics.calls(operation, result).get();
        let is_own = announcer == "none";
        let updates = if is_own { 3 } else { 0 };
        let told = || calls("update_load_balancer", "implemented_elsewhere");
        eventually(LIMIT, "the Node is told", async || Ok((told() >= updates).then_some(()))).await?;
        sleep(SETTLED).await;
        let ensured = calls("ensure_load_balancer", if is_own { "ok" } else { "implemented_elsewhere" });
        ensure!(ensured == 3, "{announcer}: {ensured} calls for three Services");
        ensure!(told() == updates, "{announcer}: {} calls for one Node", told());
        let events = Kube::<Event>::namespaced(client.clone(), COUNTED).list(&ListParams::default()).await?;
        let reasons: Vec<_> = events.into_iter().filter_map(|event| event.reason).collect();
        ensure!(!reasons.iter().any(|reason| reason == "UpdatedLoadBalancer"), "{reasons:?}");
        for name in &names {
            delete_in(client, COUNTED, name).await?;
        }
        daemon.stop().await?;
    }
    Ok(())
}

async fn make_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    Kube::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

async fn create(client: &Client, name: &str) -> anyhow::Result<()> {
    create_in(client, NAMESPACE, name).await
}

async fn create_in(client: &Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    let service =
        json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    let services = Kube::<Service>::namespaced(client.clone(), namespace);
    services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    Ok(())
}

async fn delete(client: &Client, name: &str) -> anyhow::Result<()> {
    delete_in(client, NAMESPACE, name).await
}

async fn delete_in(client: &Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    let services = Kube::<Service>::namespaced(client.clone(), namespace);
    services.delete(name, &DeleteParams::default()).await?;
    let gone = async || Ok(services.get_opt(name).await?.is_none().then_some(()));
    eventually(LIMIT, &format!("Service {name} is deleted"), gone).await
}

fn services(client: &Client) -> Kube<Service> {
    Kube::namespaced(client.clone(), NAMESPACE)
}

/// The address in the status, once there is one.
async fn address(client: &Client, name: &str) -> anyhow::Result<String> {
    let look = async || {
        let status = services(client).get(name).await?.status;
        let ingress = status.and_then(|status| status.load_balancer?.ingress?.into_iter().next());
        Ok(ingress.and_then(|ingress| ingress.ip))
    };
    eventually(LIMIT, &format!("Service {name} has an address"), look).await
}

/// The addresses of the pool that are claimed.
async fn claimed(client: &Client) -> anyhow::Result<Vec<String>> {
    let all = Kube::<IPAddress>::all(client.clone()).list(&ListParams::default()).await?;
    let names = all.into_iter().map(|object| object.name_any());
    Ok(names.filter(|name| name.starts_with("10.9.0.")).collect())
}
