//! How often objects are converted while a machine lives, by the API server's own count.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use ccm::daemon::Parts;
use k8s_openapi::{
    api::core::v1::Secret,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, WebhookClientConfig},
};
use kube::api::{DeleteParams, DynamicObject, PostParams};
use machine_controller::crds::Definitions;
use serde_json::json;
use test_env::ControlPlane;

use super::{ONLY, SELDOM, World};
use crate::{
    api::Api,
    daemon::InProcess,
    machines::{core::INFRASTRUCTURE, world::is_ready},
    support::eventually,
    vsphere::{
        self,
        kinds::{install, rules, uninstall},
        versions::{NEW, OLD, types},
    },
    webhook::Webhook,
};

/// The metric with the conversions, by the kind's definition and the versions.
const METRIC: &str = "apiserver_crd_conversion_webhook_duration_seconds_count";

const SECRET: &str = "cloud-controller-manager-webhook-ca";

/// How the kinds are defined, and who converts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    /// As the manifests have them.
    Shipped,
    /// As they have them, while nobody converts.
    NobodyConverts,
    /// Nobody can read v1beta1.
    OnlyNewer,
    /// With `--stored-version v1beta1`.
    OlderStored,
}

/// A machine is made, lives and is deleted, in each case.
pub(super) async fn counted(api: &Api) -> anyhow::Result<()> {
    for case in [Case::Shipped, Case::NobodyConverts, Case::OnlyNewer, Case::OlderStored] {
        let found = Box::pin(life(api, case)).await.with_context(|| format!("{case:?}"))?;
        println!("vsphere: conversions to each version, {case:?}: {found:?}");
        let to = |version: &str| found.get(version).copied().unwrap_or_default();
        match case {
            // The API server keeps each version that is served in a cache of its own, and has changes converted for it. No request waits
            // for that, and nothing is converted back.
            Case::Shipped | Case::NobodyConverts => ensure!(to(NEW) == 0, "{found:?}"),
            Case::OnlyNewer => ensure!(found.is_empty(), "{found:?}"),
            Case::OlderStored => ensure!(to(NEW) > 0 && to(OLD) > 0, "{found:?}"),
        }
    }
    Ok(())
}

/// How many conversions to each version it takes.
async fn life(api: &Api, case: Case) -> anyhow::Result<BTreeMap<String, u64>> {
    let control_plane = api.control_plane.as_ref().context("a real API server")?;
    // It empties the caches of definitions that are gone at its leisure, and has their objects converted for that.
    control_plane.stop_api_server()?;
    control_plane.start_api_server()?;
    let webhook = Webhook::new()?;
    let types = types(if case == Case::OlderStored { OLD } else { NEW })?;
    let mut definitions = Definitions::of("vsphere", &types)?;
    let url = Some(webhook.url());
    definitions.set_conversion(&WebhookClientConfig { url, ..WebhookClientConfig::default() });
    let mut crds: Vec<CustomResourceDefinition> = definitions.crds().into_iter().cloned().collect();
    for version in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        version.served = case != Case::OnlyNewer || version.name == NEW;
    }
    let policies: Vec<_> = definitions
        .policies()
        .into_iter()
        .map(|(policy, binding)| (policy.clone(), binding.clone()))
        .collect();
    install(api, &crds).await?;
    rules::install(api, &policies).await?;
    let world = World::on(api).await?;
    let [bind, port] = webhook.flags();
    let port = if case == Case::NobodyConverts { "--webhook-secure-port=0".to_owned() } else { port };
    let provider = vsphere::provider(&vsphere::config(&[&world.vcsim])?)?;
    let parts = Parts { machine_types: vec![types], ..Parts::new(world.tape.client(&api.client), provider)? };
    let before = conversions(control_plane)?;
    let daemon = InProcess::start_parts(parts, &[ONLY, SELDOM, &bind, &port])?;
    if case == Case::OlderStored {
        world.is_converted().await?;
    }
    world.add_cluster().await?;
    world.becomes("VSphereCluster", "prod", "is ready", is_ready).await?;
    let names = ["worker-0", "worker-1"];
    for name in names {
        world.add_machine(name).await?;
    }
    for name in names {
        world.becomes("VSphereMachine", name, "is ready", is_ready).await?;
        world.becomes("VSphereVM", name, "is ready", is_ready).await?;
    }
    world.delete(&names).await?;
    let after = conversions(control_plane)?;
    rules::remove(api, &policies).await?;
    uninstall(api, &crds).await?;
    daemon.stop().await?;
    kube::Api::<Secret>::namespaced(api.client.clone(), "kube-system")
        .delete(SECRET, &DeleteParams::default())
        .await
        .map(drop)
        .or_else(|error| if case == Case::NobodyConverts { Ok(()) } else { Err(error) })?;
    let more = after.into_iter().map(|(version, count)| {
        let before = before.get(&version).copied().unwrap_or_default();
        (version, count - before)
    });
    Ok(more.filter(|(_, count)| *count > 0).collect())
}

/// How many conversions of the kinds to each version the API server has asked for so far.
fn conversions(control_plane: &ControlPlane) -> anyhow::Result<BTreeMap<String, u64>> {
    let text = control_plane.get("/metrics")?;
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with(METRIC) && line.contains("vsphere")) {
        let (labels, count) = line.rsplit_once(' ').context("a metric")?;
        let (_, version) = labels.split_once("to_version=\"").context("a version")?;
        let version = version.split('"').next().unwrap_or_default().to_owned();
        *found.entry(version).or_default() += count.parse::<u64>()?;
    }
    Ok(found)
}

impl World<'_> {
    /// Waits until an object of each kind that is made could be stored in another version.
    async fn is_converted(&self) -> anyhow::Result<()> {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let machine = json!({"template": "t", "network": {"devices": [{"networkName": "n", "dhcp4": true}]}});
        for (kind, spec) in [
            ("VSphereCluster", json!({"server": "vc"})),
            ("VSphereMachine", machine.clone()),
            ("VSphereVM", machine),
        ] {
            let object = json!({
                "apiVersion": format!("{INFRASTRUCTURE}/{NEW}"), "kind": kind, "metadata": {"name": "dry"}, "spec": spec,
            });
            let object: DynamicObject = serde_json::from_value(object)?;
            eventually(vsphere::LIMIT, &format!("{kind} is converted"), || async {
                Ok(self.objects(kind).create(&dry, &object).await.ok().map(drop))
            })
            .await?;
        }
        Ok(())
    }
}
