//! What the API tells of vCenter's tasks.

use anyhow::{Context, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::World;
use crate::{
    api::Api,
    machines::{
        core::INFRASTRUCTURE,
        world::{condition, events, is_ready},
    },
};

/// How long the tasks take. A wait is told once it has lasted five seconds.
const SLOW: &str = "CloneVm:8000,Destroy:8000";

/// How often a clone fails: what the status says is to be there for a while.
const FAILURES: usize = 3;

/// The words of the simulator for a full datastore.
const FAULT: &str = "NoDiskSpace";

fn told(object: &Value) -> String {
    condition(object, "Ready")["message"].as_str().unwrap_or_default().to_owned()
}

/// A clone that fails is told by the machine and its `VSphereVM`, if there is one, and by an event. It is tried again.
pub(super) async fn failed(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    let daemon = world.start()?;
    world.add_cluster().await?;
    world.becomes("VSphereCluster", "prod", "is ready", is_ready).await?;
    for (name, has_vm) in [("worker-0", false), ("worker-1", true)] {
        for _ in 0..FAILURES {
            world.vcsim.fail_next_task("CloneVM_Task", FAULT)?;
        }
        let machine = world.add_machine(name).await?;
        if has_vm {
            // as another program has left it
            let owner = json!({
                "apiVersion": format!("{INFRASTRUCTURE}/v1beta2"), "kind": "VSphereMachine", "name": name,
                "uid": machine["metadata"]["uid"],
            });
            let spec = json!({"template": "as it was", "network": {"devices": []}});
            let object = json!({"metadata": {"ownerReferences": [owner]}, "spec": spec});
            world.create("VSphereVM", name, object).await?;
        }
        let begin = format!("the clone of {name:?} has failed (task-");
        let has_failed = |object: &Value| told(object).contains(&begin) && told(object).contains(FAULT);
        let machine = world.becomes("VSphereMachine", name, "tells the fault", has_failed).await?;
        let ready = condition(&machine, "Ready");
        ensure!(ready["status"] == "False" && ready["reason"] == "ProviderUnavailable", "{ready}");
        ensure!(machine["status"]["taskRef"].is_null(), "{machine}");
        let words = told(&machine);
        let (_, fault) = words.split_once("): ").with_context(|| words.clone())?;
        ensure!(fault.starts_with(&format!("{FAULT} (")), "its type, and vCenter's words: {fault}");
        if has_vm {
            let vm = world.becomes("VSphereVM", name, "tells the fault", has_failed).await?;
            let made = condition(&vm, "VirtualMachineProvisioned");
            ensure!(
                made["status"] == "False" && made["message"] == condition(&vm, "Ready")["message"],
                "{vm}"
            );
        }
        world.becomes("VSphereMachine", name, "is ready", is_ready).await?;
        world.becomes("VSphereVM", name, "is ready", is_ready).await?;
        let all = events(&api.client, name).await?;
        let of_fault = |(reason, message): &(String, String)| {
            reason == "ProviderUnavailable" && message.contains(&begin) && message.contains(fault)
        };
        ensure!(all.iter().any(of_fault), "{all:?}");
    }
    world.end(&["worker-0", "worker-1"], daemon).await
}

/// A task that runs is in the status, and goes from there when it has ended.
pub(super) async fn named(api: &Api) -> anyhow::Result<()> {
    let world = World::with_tasks(api, SLOW).await?;
    let daemon = world.start()?;
    world.add_cluster().await?;
    world.add_machine("worker-0").await?;
    let names_task = |object: &Value| object["status"]["taskRef"].is_string();
    let machine = world.becomes("VSphereMachine", "worker-0", "names its task", names_task).await?;
    let clone = machine["status"]["taskRef"].as_str().unwrap_or_default().to_owned();
    ensure!(clone.starts_with("task-"), "{machine}");
    let ready = condition(&machine, "Ready");
    ensure!(ready["reason"] == "WaitingForClone" && told(&machine).contains(&clone), "{ready}");
    ensure!(world.vcsim.inventory()?.len() == 1, "it is not there yet");
    let machine = world.becomes("VSphereMachine", "worker-0", "is ready", is_ready).await?;
    ensure!(machine["status"]["taskRef"].is_null(), "{machine}");
    let vm = world.becomes("VSphereVM", "worker-0", "is ready", is_ready).await?;
    ensure!(vm["status"]["taskRef"].is_null(), "{vm}");

    world.objects("VSphereMachine").delete("worker-0", &DeleteParams::default()).await?;
    let machine = world.becomes("VSphereMachine", "worker-0", "names its task", names_task).await?;
    let destroy = machine["status"]["taskRef"].as_str().unwrap_or_default();
    ensure!(destroy != clone && told(&machine).contains(destroy), "{machine}");
    world.becomes("VSphereMachine", "worker-0", "is gone", Value::is_null).await?;
    world.remove_owner("worker-0").await?;
    world.end(&[], daemon).await
}
