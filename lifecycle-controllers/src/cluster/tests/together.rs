//! All controllers of the core part, and a provider that is played by the test.

use super::*;
use crate::{
    machine::MachineController, machine_deployment::MachineDeploymentController,
    machine_set::MachineSetController,
};

const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";

async fn run_all(stage: &Stage) {
    let core = &stage.core;
    run(stage).await;
    let machines = MachineController::new(Arc::clone(core));
    let sources = machines.sources();
    stage.run(machines, sources);
    let sets = MachineSetController::new(Arc::clone(core));
    let sources = sets.sources();
    stage.run(sets, sources);
    let deployments = MachineDeploymentController::new(Arc::clone(core));
    let sources = deployments.sources();
    stage.run(deployments, sources);
}

/// Installs the kinds of the provider.
async fn install(stage: &Stage) {
    for kind in ["FakeMachine", "FakeMachineTemplate"] {
        stage.serve(INFRASTRUCTURE, kind, true).await;
    }
    for kind in ["FakeConfig", "FakeConfigTemplate"] {
        stage.serve(BOOTSTRAP, kind, true).await;
    }
    for of in [template(INFRASTRUCTURE, "FakeMachineTemplate"), template(BOOTSTRAP, "FakeConfigTemplate")] {
        stage.create(of).await;
    }
}

fn template(group: &str, kind: &str) -> Value {
    let mut template = object(&format!("{group}/v1"), kind, "t");
    template["spec"] = json!({"template": {"spec": {}}});
    template
}

/// The provider of what a Machine refers to.
async fn provide(stage: &Stage, name: &str) {
    let config = object(&format!("{BOOTSTRAP}/v1"), "FakeConfig", name);
    let status = json!({"status": {
        "initialization": {"dataSecretCreated": true}, "dataSecretName": name,
    }});
    crate::testing::patch(&stage.sandbox, &config, &status).await;
    let machine = object(&format!("{INFRASTRUCTURE}/v1"), "FakeMachine", name);
    let spec = json!({"spec": {"providerID": format!("fake:///{name}")}});
    crate::testing::patch(&stage.sandbox, &machine, &spec).await;
    let status = json!({"status": {"initialization": {"provisioned": true}}});
    crate::testing::patch(&stage.sandbox, &machine, &status).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_with_workers_comes_and_goes() {
    let stage = Stage::new().await;
    run_all(&stage).await;
    let mut infrastructure = infrastructure();
    infrastructure["spec"] = json!({"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}});
    infrastructure["status"] = json!({"initialization": {"provisioned": true}});
    stage.create(infrastructure.clone()).await;
    let mut control_plane = control_plane();
    control_plane["status"] = json!({"initialization": {"controlPlaneInitialized": true}});
    stage.create(control_plane.clone()).await;
    create(&stage, full()).await;
    let mut deployment = machine_deployment("md");
    deployment["metadata"]["labels"] = Value::Null;
    deployment["spec"]["replicas"] = json!(2);
    deployment["spec"]["template"]["spec"] = json!({
        "clusterName": "c", "version": "v1.37.1",
        "bootstrap": {"configRef": {"apiGroup": BOOTSTRAP, "kind": "FakeConfigTemplate", "name": "t"}},
        "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "FakeMachineTemplate", "name": "t"},
    });
    stage.create(deployment).await;
    // The provider is installed last, as by a tool that sorts by name.
    let store = &stage.core.stores.machine_deployments;
    stage.until(store, "md", |deployment| deployment.status.is_some()).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    install(&stage).await;
    let replicas = |cluster: &Cluster| cluster.status.as_ref().and_then(|status| status.workers.replicas);
    until(&stage, |cluster| replicas(cluster) == Some(2)).await;
    let machines = stage.core.machines_in(NAMESPACE, |_| true);
    let names: Vec<_> = machines.iter().filter_map(|machine| machine.metadata.name.clone()).collect();
    for name in &names {
        provide(&stage, name).await;
        let is_provisioned = |machine: &cluster_api::Machine| machine.spec.provider_id.is_some();
        stage.until(&stage.core.stores.machines, name, is_provisioned).await;
    }

    // Nothing happens, so nothing is written.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    stage.sandbox.reset_requests();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let writes = stage.sandbox.requests_matching(&Matcher::any().verb("patch"));
    assert!(writes.is_empty(), "{writes:#?}");

    delete(&stage.sandbox, &object(CORE, "Cluster", "c")).await;
    stage.until_gone(&stage.core.stores.clusters, "c").await;
    stage.until_gone(&stage.core.stores.machine_deployments, "md").await;
    let of_machines = names.iter().flat_map(|name| {
        [
            object(CORE, "Machine", name),
            object(&format!("{INFRASTRUCTURE}/v1"), "FakeMachine", name),
            object(&format!("{BOOTSTRAP}/v1"), "FakeConfig", name),
        ]
    });
    for of in of_machines.chain([infrastructure, control_plane]) {
        assert_eq!(crate::testing::get(&stage.sandbox, &of).await, None, "{of}");
    }
}
