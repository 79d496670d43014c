//! Objects as Cluster API Provider vSphere (CAPV) writes them, without that program.

use anyhow::ensure;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::World;
use crate::{
    api::Api,
    machines::{
        core::INFRASTRUCTURE,
        world::{IDENTITY, is_ready},
    },
    vsphere,
};

/// What CAPV, and somebody else, may have left in a status.
fn last_words() -> Value {
    let condition = |name: &str, status: &str| json!({"type": name, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({
        "conditions": [condition("VMProvisioned", "False"), condition("OfOthers", "True")],
        "failureReason": "CreateError", "failureMessage": "given up",
    })
}

impl World<'_> {
    /// A machine that CAPV has made. In older clusters its `VSphereMachine` has another name than everything else.
    async fn add_machine_of_capv(&self, name: &str, vm_name: &str, number: usize) -> anyhow::Result<String> {
        let bios_uuid = format!("42015e4c-0000-4000-8000-{number:012}");
        let machine = self.add_machine(name).await?;
        let change = json!({
            "metadata": {"finalizers": [format!("vspheremachine.{INFRASTRUCTURE}")]},
            "spec": {"providerID": format!("vsphere://{bios_uuid}")},
        });
        self.objects("VSphereMachine").patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
        let status =
            json!({"initialization": {"provisioned": true}, "deprecated": {"v1beta1": last_words()}});
        self.set_status("VSphereMachine", name, status).await?;
        let metadata = json!({
            "finalizers": [format!("vspherevm.{INFRASTRUCTURE}")],
            "ownerReferences": [{
                "apiVersion": format!("{INFRASTRUCTURE}/v1beta1"), "kind": "VSphereMachine", "name": name,
                "uid": machine["metadata"]["uid"],
            }],
        });
        let spec = json!({
            "template": vsphere::machine(0), "network": {"devices": []}, "biosUUID": bios_uuid,
        });
        let vm = self.create("VSphereVM", vm_name, json!({"metadata": metadata, "spec": spec})).await?;
        let uid = vm["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let status = json!({"retryAfter": "2026-01-01T00:00:00Z", "deprecated": {"v1beta1": last_words()}});
        self.set_status("VSphereVM", vm_name, status).await?;
        self.vcsim.act(&vsphere::machine(0), "clone", vm_name)?;
        self.vcsim.set_guest(vm_name, json!({"uuid": bios_uuid, "instanceUuid": uid}))?;
        self.vcsim.act(vm_name, "power-on", "")?;
        let nics = json!([{
            "network": "VM Network", "mac": format!("00:50:56:01:02:0{number}"), "ips": [format!("10.64.9.{number}/16")],
        }]);
        self.vcsim.set_guest(vm_name, json!({"tools": "guestToolsRunning", "nics": nics}))?;
        Ok(uid)
    }
}

/// Its machines are taken over, and one goes that was deleted while nobody worked.
pub(super) async fn taken_over(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    world.add_cluster().await?;
    let finalizer = json!({"metadata": {"finalizers": [format!("vspherecluster.{INFRASTRUCTURE}")]}});
    let patch = Patch::Merge(finalizer);
    world.objects("VSphereCluster").patch("prod", &PatchParams::default(), &patch).await?;
    let mut uids = Vec::new();
    for (number, (name, vm_name)) in
        [("worker-0", "worker-0"), ("worker-1", "node-1"), ("worker-2", "worker-2")].into_iter().enumerate()
    {
        uids.push((name, vm_name, world.add_machine_of_capv(name, vm_name, number).await?));
    }
    world.objects("VSphereMachine").delete("worker-2", &DeleteParams::default()).await?;
    let before: Vec<_> = world.vcsim.inventory()?;
    ensure!(before.len() == 4, "{before:?}");
    let daemon = world.start()?;
    world.becomes("VSphereCluster", "prod", "is ready", is_ready).await?;
    for (name, vm_name, uid) in &uids[..2] {
        let machine = world.becomes("VSphereMachine", name, "is ready", is_ready).await?;
        ensure!(machine["metadata"]["annotations"][IDENTITY] == uid.as_str(), "{machine}");
        let vm = world.becomes("VSphereVM", vm_name, "is ready", is_ready).await?;
        ensure!(vm["metadata"]["uid"] == uid.as_str(), "{vm}");
        ensure!(vm["status"].get("retryAfter").is_none(), "{vm}");
        for object in [&machine, &vm] {
            let old = &object["status"]["deprecated"]["v1beta1"];
            ensure!(old.get("failureReason").is_none() && old.get("failureMessage").is_none(), "{object}");
            let all = old["conditions"].as_array().into_iter().flatten();
            let found: Vec<_> = all.map(|one| (&one["type"], &one["status"])).collect();
            let has = |name: &str, status: &str| found.contains(&(&json!(name), &json!(status)));
            ensure!(has("VMProvisioned", "True") && has("OfOthers", "True"), "{object}");
        }
    }
    ensure!(world.get("VSphereVM", "worker-1").await?.is_null(), "its VSphereVM is called node-1");
    world.becomes("VSphereMachine", "worker-2", "is gone", Value::is_null).await?;
    world.becomes("VSphereVM", "worker-2", "is gone", Value::is_null).await?;
    let after = world.vcsim.inventory()?;
    ensure!(after[..] == before[..3], "{after:?}, before {before:?}");
    world.remove_owner("worker-2").await?;
    world.end(&["worker-0", "worker-1"], daemon).await
}
