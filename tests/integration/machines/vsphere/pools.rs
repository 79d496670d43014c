//! Addresses of pools: claims, which a provider of addresses fulfils.

use anyhow::{Context, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{KINDS, World, definition_of, install};
use crate::{
    api::Api,
    ipam::{GATEWAY, IPAM, Ipam, pool},
    machines::world::{NAMESPACE, condition, is_ready},
    stage::at_every_step,
};

/// The finalizer that holds a claim, as Cluster API Provider vSphere sets it.
const HOLD: &str = "vspherevm.infrastructure.cluster.x-k8s.io/ip-claim-protection";

const FULFILLED: &str = "IPAddressClaimsFulfilled";

impl World<'_> {
    async fn with_pools(api: &Api) -> anyhow::Result<(World<'_>, Ipam)> {
        for kind in KINDS.into_iter().filter(|kind| kind.0 == IPAM) {
            install(api, &definition_of(kind, &["v1beta2"])?).await?;
        }
        let world = World::new(api).await?;
        world.add_cluster().await?;
        Ok((world, Ipam::follow(&api.client, NAMESPACE)))
    }

    async fn add_machine_of_pool(&self, name: &str) -> anyhow::Result<Value> {
        let device = json!({"networkName": "VM Network", "addressesFromPools": [pool()]});
        self.add_machine_with(name, json!({"network": {"devices": [device]}})).await
    }

    /// Checks that a machine has the address of its claim.
    async fn has_its_address(&self, name: &str, ipam: &Ipam) -> anyhow::Result<()> {
        let machine = self.becomes("VSphereMachine", name, "is ready", is_ready).await?;
        let address = ipam.given().remove(&format!("{name}-0-0")).context("no address")?;
        ensure!(machine["status"]["addresses"].to_string().contains(&address), "{address}: {machine}");
        ensure!(condition(&machine, FULFILLED)["status"] == "True", "{machine}");
        let vm = self.becomes("VSphereVM", name, "is ready", is_ready).await?;
        ensure!(condition(&vm, FULFILLED)["status"] == "True", "{vm}");
        let claim = self.get("IPAddressClaim", &format!("{name}-0-0")).await?;
        ensure!(claim["spec"]["poolRef"] == pool(), "{claim}");
        let metadata = &claim["metadata"];
        ensure!(metadata["ownerReferences"][0]["uid"] == machine["metadata"]["uid"], "{claim}");
        ensure!(metadata["labels"]["cluster.x-k8s.io/cluster-name"] == "prod", "{claim}");
        ensure!(metadata["finalizers"].to_string().contains(HOLD), "{claim}");
        Ok(())
    }

    async fn begin_to_delete(&self, name: &str) -> anyhow::Result<()> {
        self.objects("VSphereMachine").delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn is_gone(&self, name: &str) -> anyhow::Result<()> {
        self.becomes("VSphereMachine", name, "is gone", Value::is_null).await?;
        self.becomes("IPAddressClaim", &format!("{name}-0-0"), "is gone", Value::is_null).await.map(drop)
    }
}

/// A machine waits for its address, keeps it as long as it is there, and gives it back.
pub(super) async fn addressed(api: &Api) -> anyhow::Result<()> {
    let (world, ipam) = World::with_pools(api).await?;
    ipam.gives(false);
    let daemon = world.start()?;
    world.add_machine_of_pool("worker-0").await?;
    let waits = |machine: &Value| condition(machine, "Ready")["reason"] == "WaitingForIPAddressClaims";
    let machine = world.becomes("VSphereMachine", "worker-0", "waits", waits).await?;
    let words = condition(&machine, FULFILLED)["message"].to_string();
    ensure!(words.contains("worker-0-0-0") && words.contains("workers"), "{machine}");
    ensure!(world.vcsim.inventory()?.len() == 1, "nothing is made yet");
    ipam.gives(true);
    world.has_its_address("worker-0", &ipam).await?;
    let sent = world.vcsim.last_requests()?.remove("soap:CloneVM_Task").context("a clone")?;
    ensure!(metadata_of(&sent)?.contains(&format!("\"gateway4\":\"{GATEWAY}\"")), "{sent}");
    let given = ipam.given();

    // Somebody deletes the claim. The address stays that of the machine.
    world.objects("IPAddressClaim").delete("worker-0-0-0", &DeleteParams::default()).await?;
    let is_told = |machine: &Value| condition(machine, FULFILLED)["status"] == "False";
    let told = world.becomes("VSphereMachine", "worker-0", "says that its claim goes", is_told).await?;
    ensure!(condition(&told, FULFILLED)["message"].to_string().contains("is being deleted"), "{told}");
    ensure!(is_ready(&told) && ipam.given() == given, "{told}");
    world.begin_to_delete("worker-0").await?;
    world.is_gone("worker-0").await?;
    let left = ipam.given();
    ensure!(left.is_empty(), "{left:?}");
    world.end(&[], daemon).await
}

/// The daemon is killed before and after each of its writes of claims.
pub(super) async fn killed(api: &Api) -> anyhow::Result<()> {
    let (world, ipam) = World::with_pools(api).await?;
    world.tape.counts_only("ipaddressclaims");
    for part in ["made", "deleted"] {
        let mut lives = 0;
        let writes = at_every_step(async |at, side| {
            let name = format!("{part}-{lives}");
            lives += 1;
            let daemon = world.start()?;
            let is_caught = if part == "made" {
                let act = Box::pin(async { world.add_machine_of_pool(&name).await.map(drop) });
                let settles = Box::pin(world.has_its_address(&name, &ipam));
                world.tape.trap.catches((at, side), act, settles).await?
            } else {
                world.add_machine_of_pool(&name).await?;
                world.has_its_address(&name, &ipam).await?;
                let act = Box::pin(world.begin_to_delete(&name));
                world.tape.trap.catches((at, side), act, Box::pin(world.is_gone(&name))).await?
            };
            daemon.crash().await;
            world.tape.trap.remove();
            let daemon = world.start()?;
            if part == "made" {
                world.has_its_address(&name, &ipam).await?;
                world.begin_to_delete(&name).await?;
            }
            world.is_gone(&name).await?;
            let (given, left) = (ipam.given(), world.vcsim.inventory()?);
            ensure!(given.is_empty() && left.len() == 1, "{name}: {given:?} {left:?}");
            daemon.stop().await?;
            Ok(is_caught)
        });
        let writes = writes.await.with_context(|| format!("a machine is {part}"))?;
        ensure!(writes > 0, "no write of a claim while a machine is {part}");
        println!(
            "vsphere: killed before and after each of {writes} writes of claims while a machine is {part}"
        );
    }
    let daemon = world.start()?;
    world.end(&[], daemon).await
}

/// What the guest is told in the call that makes it.
fn metadata_of(call: &str) -> anyhow::Result<String> {
    let after = call.split("<key>guestinfo.metadata</key>").nth(1).context("no metadata")?;
    let value = after.split('>').nth(1).and_then(|rest| rest.split('<').next()).context("no value")?;
    Ok(String::from_utf8(STANDARD.decode(value)?)?)
}
