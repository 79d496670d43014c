//! Machines whose addresses come from a pool, with Cluster API's own managers and kinds of claims.

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use test_env::ControlPlane;

use super::datacenter::Datacenter;
use crate::{
    cluster_api::{
        installed::beside_the_daemon,
        objects::{Objects, is},
    },
    ipam::{Ipam, pool},
    trial::Outcome,
    vsphere::SOON,
};

const NAMESPACE: &str = "pools";

const NAMES: [&str; 3] = ["a", "b", "c"];

pub(super) fn whole() -> Outcome {
    let datacenter = Datacenter::start("")?;
    let story = async |api: &ControlPlane, objects: &Objects| life(objects, api, &datacenter).await;
    beside_the_daemon("vsphere", "VSphere", datacenter.config(), &SOON, NAMESPACE, story)
}

async fn life(
    objects: &Objects,
    control_plane: &ControlPlane,
    datacenter: &Datacenter,
) -> anyhow::Result<()> {
    let ipam = Ipam::follow(&objects.client, NAMESPACE);
    let cluster = json!({"spec": datacenter.cluster()});
    objects.apply_cluster("prod", control_plane, cluster).await?;
    let mut spec = Datacenter::machine(2048);
    spec["network"] = json!({"devices": [{"networkName": "VM Network", "addressesFromPools": [pool()]}]});
    for name in NAMES {
        objects.apply_machine_of("prod", name, spec.clone(), &json!({})).await?;
    }
    let is_provisioned = |machine: &Value| is(machine, "InfrastructureReady", "True");
    for name in NAMES {
        objects.becomes("Machine", name, "has infrastructure", is_provisioned).await?;
        let address = ipam.given().remove(&format!("{name}-0-0")).context("no address")?;
        // the core may have read the addresses before the last one came
        let has = |machine: &Value| machine["status"]["addresses"].to_string().contains(&address);
        objects.becomes("Machine", name, "has its address", has).await?;
        let infra = objects.get("VSphereMachine", name).await?.context("no VSphereMachine")?;
        ensure!(is(&infra, "IPAddressClaimsFulfilled", "True"), "{infra}");
    }
    datacenter.runs(&NAMES.map(str::to_owned).into())?;
    for name in NAMES {
        objects.delete("Machine", name).await?;
    }
    for name in NAMES {
        objects.vanishes("Machine", name).await?;
    }
    let left = ipam.given();
    ensure!(left.is_empty(), "{left:?}");
    datacenter.is_empty()
}
