//! An address that a Service shows is claimed by that Service, after every single write of the daemon.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use http::{Method, Request};
use k8s_openapi::api::{core::v1::Service, networking::v1::IPAddress};
use kube::{
    Api as Kube, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    client::Body,
};
use parking_lot::Mutex;
use sandbox::{Action, Fault, Matcher};
use serde_json::json;
use tokio::time::sleep;

use crate::{api::Api, daemon::InProcess, faults::faults, hypervisors::provider, support::eventually};

/// Fewer addresses than Services, so that each one is wanted by somebody.
const CONFIG: &str = "hypervisors: [{name: test, uri: 'test:///default'}]\n\
                      addressPools: {pools: [{name: main, addresses: [10.9.2.1-10.9.2.3]}]}\n";
const ADDRESSES: [&str; 3] = ["10.9.2.1", "10.9.2.2", "10.9.2.3"];
const SERVICES: usize = 5;
const ACTS: usize = 120;
const LIMIT: Duration = Duration::from_secs(60);

/// Services come, go and move, calls fail, and the daemon is killed.
pub(super) async fn what_is_shown_is_claimed(api: &Api) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(7);
    let wrong = Arc::<Mutex<Vec<String>>>::default();
    let client = checked_client(&api.daemon_client, &api.client, &wrong);
    let start = || InProcess::start(&client, provider(CONFIG)?, &["--controllers=service-lb-controller"]);
    let services = Kube::<Service>::default_namespaced(api.client.clone());
    let mut daemon = start()?;
    for _ in 0..ACTS {
        let name = format!("web-{}", random.usize(0..SERVICES));
        let exists =
            services.get_opt(&name).await?.is_some_and(|one| one.metadata.deletion_timestamp.is_none());
        match random.u8(0..10) {
            // The one before may not be gone yet.
            0..4 if !exists => drop(create(&services, &name).await),
            0..2 => drop(services.delete(&name, &DeleteParams::default()).await),
            2..6 if exists => {
                let wish = json!({"spec": {"loadBalancerIP": random.choice(ADDRESSES)}});
                // It may be gone by now.
                drop(services.patch(&name, &PatchParams::default(), &Patch::Merge(&wish)).await);
            }
            6 => {
                daemon.crash().await;
                daemon = start()?;
            }
            7 => fail(api, Matcher::any().verb("patch").resource("services"), random.bool())?,
            8 => fail(api, Matcher::any().verb("delete").resource("ipaddresses"), random.bool())?,
            _ => {}
        }
        sleep(Duration::from_millis(random.u64(0..80))).await;
    }
    faults(api)?.clear();
    for service in services.list(&ListParams::default()).await? {
        services.delete(&service.name_any(), &DeleteParams::default()).await?;
    }
    let is_empty = async || Ok(services.list(&ListParams::default()).await?.items.is_empty().then_some(()));
    eventually(LIMIT, "all Services are deleted", is_empty).await?;
    daemon.stop().await?;
    let claims = Kube::<IPAddress>::all(api.client.clone()).list(&ListParams::default()).await?;
    ensure!(claims.items.is_empty(), "claims are left: {:?}", claims.items);
    let wrong = wrong.lock();
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

async fn create(services: &Kube<Service>, name: &str) -> anyhow::Result<()> {
    let service =
        json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    Ok(())
}

/// Lets one request fail, without or after its effect.
fn fail(api: &Api, requests: Matcher, has_effect: bool) -> anyhow::Result<()> {
    let action = if has_effect { Action::LoseResponse } else { Action::InternalError };
    faults(api)?.inject(Fault::new(requests, action).times(1));
    Ok(())
}

/// The daemon's client. Its writes come one after the other, and `observer` looks after each.
fn checked_client(client: &Client, observer: &Client, wrong: &Arc<Mutex<Vec<String>>>) -> Client {
    let turn = Arc::new(tokio::sync::Mutex::new(()));
    let parts = (client.clone(), observer.clone(), Arc::clone(wrong), turn);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, observer, wrong, turn) = parts.clone();
        async move {
            if request.method() == Method::GET {
                return client.send(request).await;
            }
            let _turn = turn.lock().await;
            let what = format!("{} {}", request.method(), request.uri().path());
            let answer = client.send(request).await;
            let found = match shown_without_claim(&observer).await {
                Ok(found) => found,
                Err(error) => vec![format!("{error:#}")],
            };
            let found = found.into_iter().map(|one| format!("after {what}: {one}"));
            wrong.lock().extend(found);
            answer
        }
    });
    Client::new(service, "default")
}

/// The addresses that a Service shows and has not claimed.
async fn shown_without_claim(observer: &Client) -> anyhow::Result<Vec<String>> {
    let services = Kube::<Service>::all(observer.clone()).list(&ListParams::default()).await?;
    let claims = Kube::<IPAddress>::all(observer.clone()).list(&ListParams::default()).await?;
    let mut found = Vec::new();
    for service in services {
        let name = service.name_any();
        let status = service.status.and_then(|status| status.load_balancer?.ingress).unwrap_or_default();
        for address in status.into_iter().filter_map(|ingress| ingress.ip) {
            let claim = claims.items.iter().find(|claim| claim.name_any() == address);
            let holder = claim.map(|claim| claim.spec.parent_ref.name.clone());
            if holder.as_ref() != Some(&name) {
                found.push(format!("{name} shows {address}, which {holder:?} has claimed"));
            }
        }
    }
    Ok(found)
}
