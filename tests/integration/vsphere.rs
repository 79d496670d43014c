//! The vSphere provider on the vCenter simulator.

mod beside_cpi;
mod credentials;
mod follow;
pub(crate) mod kinds;
mod outage;
mod process;
mod scale;
mod sessions;
mod several;
pub(crate) mod stored;
pub(crate) mod versions;

use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use cloudprovider::CloudProvider;
use cloudprovider_vsphere::{Config, Environment, VSphereProvider};
use k8s_openapi::api::core::v1::Node;
use test_env::{Vcsim, VcsimOptions};

use crate::{api::Api, scenarios::Trials, support::*};

pub(crate) const LIMIT: Duration = test_env::PATIENCE;

pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const REGION: &str = "topology.kubernetes.io/region";

/// Flags for quick deletions.
pub(crate) const SOON: [&str; 3] =
    ["--node-monitor-period=500ms", "--node-deletion-grace-period=1s", "--node-deletion-minimum-age=0s"];

pub(crate) fn trials() -> Trials {
    Trials::new()
        .and(beside_cpi::trials())
        .and(scale::trials())
        .and(outage::trials())
        .and(follow::trials())
        .and(kinds::trials())
        .and(versions::trials())
        .and(several::trials())
        .and(credentials::trials())
        .and(sessions::trials())
        .and(process::trials())
}

/// The section that lets the objects of every namespace name everything: most tests are about something else.
const OPEN: &str = r#"machines:
  allow:
  - servers: ["*"]
    templates: ["*"]
    machinesAsTemplates: true
    folders: ["*"]
    resourcePools: ["*"]
    datastores: ["*"]
    networks: ["*"]
    takeOver: ["*"]
    storagePolicies: ["*"]
    tags: ["*"]
    pciDevices: ["*"]
    macAddresses: ["*"]
    vmxKeys: ["*"]
"#;

/// The configuration for these simulators, called `vc0`, `vc1`, ..., in CPI's format.
pub(crate) fn config(simulators: &[&Vcsim]) -> anyhow::Result<String> {
    Ok(vcenters(simulators)? + OPEN)
}

/// The section of the configuration with these simulators, called `vc0`, `vc1`, ...
pub(crate) fn vcenters(simulators: &[&Vcsim]) -> anyhow::Result<String> {
    let mut text = String::from("vcenter:\n");
    for (number, vcsim) in simulators.iter().enumerate() {
        write!(
            text,
            "  vc{number}:\n    server: 127.0.0.1\n    port: {}\n    user: {:?}\n    password: {:?}\n    caFile: {}\n",
            vcsim.port(),
            vcsim.user(),
            vcsim.password(),
            vcsim.ca_file().display()
        )?;
    }
    Ok(text)
}

/// Adds the tag categories for zones and regions.
pub(crate) fn with_zones(config: &str) -> String {
    format!("{config}labels:\n  zone: k8s-zone\n  region: k8s-region\n")
}

pub(crate) fn provider(config: &str) -> anyhow::Result<Arc<VSphereProvider>> {
    Ok(Arc::new(VSphereProvider::new(Config::parse(config, &Environment::default())?)))
}

/// The provider in the type that the daemon needs.
pub(crate) fn shared(provider: &Arc<VSphereProvider>) -> Arc<dyn CloudProvider> {
    Arc::<VSphereProvider>::clone(provider)
}

/// A simulator with a zone for the cluster and a region for the datacenter.
pub(crate) fn simulator(options: &VcsimOptions) -> Result<Vcsim, test_env::StartError> {
    let vcsim = Vcsim::start(options)?;
    tag(&vcsim)?;
    Ok(vcsim)
}

pub(crate) fn tag(vcsim: &Vcsim) -> anyhow::Result<()> {
    vcsim.attach_tag("k8s-zone", "z0", "ClusterComputeResource", "DC0_C0")?;
    vcsim.attach_tag("k8s-region", "r0", "Datacenter", "DC0")
}

/// The Node of the simulator's machine with this number.
pub(crate) fn name(number: usize) -> String {
    format!("node-{number}")
}

/// The name of the machine with this number in the simulator.
pub(crate) fn machine(number: usize) -> String {
    format!("DC0_C0_RP0_VM{number}")
}

/// Makes a change, waits until the Node shows it, and prints how long that took.
pub(crate) async fn followed(
    api: &Api,
    node: &str,
    what: &str,
    change: impl FnOnce() -> anyhow::Result<()>,
    check: impl Fn(&Node) -> bool,
) -> anyhow::Result<Node> {
    let began = Instant::now();
    change()?;
    let node = node_becomes(&api.client, node, LIMIT, what, check).await?;
    println!("{what}: the Node shows it after {} ms", began.elapsed().as_millis());
    Ok(node)
}
