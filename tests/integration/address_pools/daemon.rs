//! The daemon with pools on the real API server: claims are objects there.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::{core::v1::Service, networking::v1::IPAddress};
use kube::{
    Api as Kube, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use crate::{
    api::Api,
    daemon::InProcess,
    hypervisors::provider,
    support::{event, eventually},
};

const LIMIT: Duration = Duration::from_secs(40);
const NAMESPACE: &str = "pools-daemon";
const CONFIG: &str = "hypervisors: [{name: test, uri: 'test:///default'}]\n\
                      addressPools: {pools: [{name: main, addresses: [10.9.0.1-10.9.0.2]}]}\n";

/// Services get addresses, a daemon that takes over keeps them, a full pool is told, and nothing is left behind.
pub(super) async fn claims_are_objects(api: &Api) -> anyhow::Result<()> {
    let client = &api.client;
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    Kube::<k8s_openapi::api::core::v1::Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
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

async fn create(client: &Client, name: &str) -> anyhow::Result<()> {
    let service =
        json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    services(client).create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    Ok(())
}

async fn delete(client: &Client, name: &str) -> anyhow::Result<()> {
    services(client).delete(name, &DeleteParams::default()).await?;
    let gone = async || Ok(services(client).get_opt(name).await?.is_none().then_some(()));
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
