//! The example of the guide, as a user applies it. On libvirt's test driver no guest boots, so it goes as far as the first machine's data.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{life::TestDriver, site::Site};
use crate::{
    cluster_api::objects::{Objects, condition, is},
    daemon::InProcess,
    trial::Outcome,
};

/// The namespace in the example.
const NAMESPACE: &str = "team-a";

const FLAGS: [&str; 2] = ["--controllers=machine-controller", "--namespace=team-a"];

pub(super) fn begins() -> Outcome {
    let driver = TestDriver::new()?;
    Site::run(&*driver.provider, "Libvirt", NAMESPACE, async |site, objects| {
        begin(site, objects, &driver).await
    })
}

async fn begin(site: &Site, objects: &Objects, driver: &TestDriver) -> Result<()> {
    let hypervisors = InProcess::start(&objects.client, Arc::clone(&driver.provider) as _, &FLAGS)?;
    let lifecycle = site.start().await?;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/examples/cluster-without-cluster-api.yaml");
    site.control_plane.kubectl_output(&["apply", "--validate=strict", "--filename", file])?;

    let has_data = |one: &Value| is(one, "DataSecretAvailable", "True");
    objects.becomes("KubeadmConfig", "prod-control-plane", "has its data", has_data).await?;
    let waits_for_image = |one: &Value| {
        condition(one, "Ready")["message"].as_str().is_some_and(|text| text.contains("kubernetes.qcow2"))
    };
    objects.becomes("LibvirtMachine", "prod-control-plane", "has no image here", waits_for_image).await?;
    // The daemon of the test may reach 127.0.0.0/8 alone.
    let is_told = |one: &Value| {
        let probe = condition(one, "RemoteConnectionProbe")["message"].as_str();
        probe.is_some_and(|text| text.ends_with(": the server's address is not permitted"))
    };
    objects.becomes("Cluster", "prod", "says why it is not connected", is_told).await?;
    for purpose in ["ca", "etcd", "proxy", "sa", "kubeconfig"] {
        let name = format!("prod-{purpose}");
        ensure!(objects.get("Secret", &name).await?.is_some(), "{name} is made");
    }
    let is_checked = |one: &Value| one["status"]["expectedMachines"] == 2;
    objects.becomes("MachineHealthCheck", "prod-workers", "checks the two workers", is_checked).await?;
    lifecycle.process.terminate()?;
    hypervisors.stop().await
}
