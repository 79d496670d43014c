//! Services whose load balancers are Harvester's: a real API server with its kind, and a script for its controller.

#[path = "../../../providers/rancher/tests/harvester/harvester.rs"]
#[allow(dead_code, reason = "the provider's own tests use the rest")]
mod testing;

use std::fs;

use anyhow::{Context, ensure};
use cloudprovider::Registry;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use sandbox::kubelet;
use serde_json::json;
use tempfile::TempDir;

use self::testing::{Harvester, STRANGER, USER};
use super::{LIMIT, SOON, fake_cattle::FakeCattle};
use crate::{api::Api, daemon::InProcess, scenarios::Trials, support::*};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// What kube-vip reads.
const ADDRESSES: &str = "kube-vip.io/loadbalancerIPs";

pub(super) fn trials() -> Trials {
    Trials::in_real_time()
        .sandbox("rancher::services_have_addresses_of_harvester", async |api: &Api| {
            on_harvester(api, life).await
        })
        .sandbox("rancher::the_kubeconfig_of_harvester_is_followed", async |api: &Api| {
            on_harvester(api, reload).await
        })
}

/// A scenario whose Services are on one API server and whose load balancers are on another.
async fn on_harvester(
    api: &Api,
    scenario: impl AsyncFnOnce(&Guest<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Says itself why it cannot run here.
    let Some(harvester) = Harvester::start().await else { return Ok(()) };
    scenario(&Guest::new(api, harvester).await?).await
}

/// A cluster whose machines run on Harvester.
struct Guest<'a> {
    api: &'a Api,
    harvester: Harvester,
    rancher: FakeCattle,
    folder: TempDir,
}

impl<'a> Guest<'a> {
    async fn new(api: &'a Api, harvester: Harvester) -> anyhow::Result<Self> {
        let rancher = FakeCattle::start().await;
        for number in 0..2 {
            let name = format!("node-{number}");
            rancher.add_host(&name, &format!("10.0.0.{number}"));
            kubelet::register(&api.client, &kubelet::node(&name, &uuid(number))).await?;
        }
        Ok(Self { api, harvester, rancher, folder: tempfile::tempdir()? })
    }

    /// Writes the configuration, with further keys of Harvester.
    fn configure(&self, more: &str) -> anyhow::Result<()> {
        let text = format!(
            "loadBalancer: {{mode: harvester, retryInterval: 1s, harvester: {{kubeconfig: harvester.kubeconfig{more}}}}}\n"
        );
        Ok(fs::write(self.folder.path().join("config.yaml"), self.rancher.config(&text))?)
    }

    /// Writes the kubeconfig of Harvester, with the token of a user.
    fn authorize(&self, user: &str) -> anyhow::Result<()> {
        let server = self.harvester.control_plane;
        let ca = fs::read_to_string(server.ca_pem())?;
        self.harvester.kubeconfig(self.folder.path(), &server.url(), &ca, self.harvester.token(user));
        Ok(())
    }

    fn daemon(&self) -> anyhow::Result<InProcess> {
        let mut registry = Registry::new();
        registry.register("test", cloudprovider_rancher::factory)?;
        let path = format!("--cloud-config={}", self.folder.path().join("config.yaml").display());
        // Harvester's webhook finds the machines of the cluster by this name.
        let flags: Vec<_> = SOON.iter().copied().chain([path.as_str(), "--cluster-name=guest"]).collect();
        InProcess::start_configured(&self.api.daemon_client, &registry, &flags, false)
    }

    fn services(&self) -> kube::Api<Service> {
        kube::Api::default_namespaced(self.api.client.clone())
    }

    async fn create(&self, name: &str) -> anyhow::Result<Service> {
        let spec = json!({"type": "LoadBalancer", "ports": [{"name": "web", "port": 80}]});
        let service = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        Ok(self.services().create(&PostParams::default(), &service).await?)
    }

    /// Waits until the status of a Service shows an address. Returns it.
    async fn is_balanced(&self, name: &str) -> anyhow::Result<String> {
        eventually(LIMIT, &format!("{name} has an address"), || async {
            Ok(address_of(&self.services().get(name).await?))
        })
        .await
    }

    /// Waits until an event of a Service has these words.
    async fn is_told(&self, name: &str, words: &str) -> anyhow::Result<()> {
        let events: kube::Api<Event> = kube::Api::default_namespaced(self.api.client.clone());
        eventually(LIMIT, &format!("an event of {name} says {words:?}"), || async {
            let all = events.list(&ListParams::default()).await?.items;
            let is_it = |event: &Event| {
                event.involved_object.name.as_deref() == Some(name)
                    && event.message.as_deref().is_some_and(|message| message.contains(words))
            };
            Ok(all.iter().any(is_it).then_some(()))
        })
        .await
    }

    /// Deletes a Service, and waits until it is gone.
    async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.services().delete(name, &DeleteParams::default()).await?;
        eventually(LIMIT, &format!("{name} is gone"), || async {
            Ok(self.services().get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    /// The load balancer of a Service.
    async fn balancer(&self, service: &Service) -> anyhow::Result<Option<DynamicObject>> {
        let all = self.harvester.objects.list(&ListParams::default()).await?.items;
        let is_its = |one: &DynamicObject| {
            let labels = one.metadata.labels.as_ref();
            labels.and_then(|all| all.get("service.cloudprovider.kubernetes.io/uid"))
                == service.metadata.uid.as_ref()
        };
        Ok(all.into_iter().find(is_its))
    }
}

fn address_of(service: &Service) -> Option<String> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    ingress.first()?.ip.clone()
}

fn has_finalizer(service: &Service) -> bool {
    service.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER)
}

/// A load balancer is made, changes in place, waits while Harvester has no address, and goes.
async fn life(guest: &Guest<'_>) -> anyhow::Result<()> {
    guest.authorize(USER)?;
    guest.configure(", announcedBy: none, ipPool: public")?;
    let daemon = guest.daemon()?;
    let web = guest.create("web").await?;
    let address = guest.is_balanced("web").await?;
    ensure!(address.starts_with("192.0.2."), "{address}");
    ensure!(has_finalizer(&guest.services().get("web").await?));
    let made = guest.balancer(&web).await?.context("a load balancer")?;
    ensure!(made.data["spec"]["ipPool"] == "public" && made.data["spec"]["workloadType"] == "cluster");
    ensure!(made.data["status"]["allocatedAddress"]["ip"] == address.as_str());

    let ports = json!([{"name": "web", "port": 80}, {"name": "tls", "port": 443}]);
    let patch = Patch::Merge(json!({"spec": {"ports": ports}}));
    guest.services().patch("web", &PatchParams::default(), &patch).await?;
    let changed = eventually(LIMIT, "the load balancer has both ports", || async {
        let balancer = guest.balancer(&web).await?.context("a load balancer")?;
        let listeners = balancer.data["spec"]["listeners"].as_array().map_or(0, Vec::len);
        Ok((listeners == 2).then_some(balancer))
    })
    .await?;
    ensure!(changed.metadata.uid == made.metadata.uid, "changed in place");
    ensure!(address_of(&guest.services().get("web").await?).as_ref() == Some(&address), "the address stays");

    // The event has Harvester's words, and the address comes as soon as there is one.
    guest.harvester.script().trouble = Some("no matched IPPool");
    guest.create("later").await?;
    guest.is_told("later", "no matched IPPool").await?;
    ensure!(address_of(&guest.services().get("later").await?).is_none());
    guest.harvester.script().trouble = None;
    guest.is_balanced("later").await?;

    // A Service goes only after its load balancer.
    guest.harvester.script().keeps_deleted = true;
    guest.services().delete("web", &DeleteParams::default()).await?;
    eventually(LIMIT, "the load balancer is being deleted", || async {
        let balancer = guest.balancer(&web).await?.context("a load balancer")?;
        Ok(balancer.metadata.deletion_timestamp.map(drop))
    })
    .await?;
    ensure!(has_finalizer(&guest.services().get("web").await?), "it waits");
    guest.harvester.script().keeps_deleted = false;
    eventually(LIMIT, "web is gone", || async {
        Ok(guest.services().get_opt("web").await?.is_none().then_some(()))
    })
    .await?;
    ensure!(guest.balancer(&web).await?.is_none());
    guest.delete("later").await?;
    ensure!(guest.harvester.only().await.is_none(), "nothing is left");
    daemon.stop().await
}

/// The token of Harvester and the configuration change while the daemon runs.
async fn reload(guest: &Guest<'_>) -> anyhow::Result<()> {
    guest.authorize(STRANGER)?;
    guest.configure(", announcedBy: none")?;
    let daemon = guest.daemon()?;
    let web = guest.create("web").await?;
    guest.is_told("web", "403").await?;
    ensure!(guest.balancer(&web).await?.is_none(), "the user may not make it");
    guest.authorize(USER)?;
    let address = guest.is_balanced("web").await?;
    let made = guest.balancer(&web).await?.context("a load balancer")?;

    // From now on kube-vip announces, and is told by annotations.
    guest.configure(", interface: eth1")?;
    let shop = eventually(LIMIT, "kube-vip is told", || async {
        if guest.services().get_opt("shop").await?.is_none() {
            guest.create("shop").await?;
        }
        let shop = guest.services().get("shop").await?;
        let is_told = shop.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(ADDRESSES));
        Ok(is_told.then_some(shop))
    })
    .await?;
    let balancer = guest.balancer(&shop).await?.context("a load balancer")?;
    let told = json!(shop.metadata.annotations);
    ensure!(told[ADDRESSES] == balancer.data["status"]["allocatedAddress"]["ip"], "{told}");
    ensure!(told["kube-vip.io/serviceInterface"] == "eth1" && told[ADDRESSES] != json!(address), "{told}");

    let still = guest.balancer(&web).await?.map(|one| one.metadata.uid);
    ensure!(still == Some(made.metadata.uid), "{still:?}");
    guest.delete("shop").await?;
    guest.delete("web").await?;
    ensure!(guest.harvester.only().await.is_none(), "nothing is left");
    daemon.stop().await
}
