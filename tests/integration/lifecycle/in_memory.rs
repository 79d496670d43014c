//! Another author's provider under our controllers: Cluster API's in-memory one, whose machines, Nodes and API servers of workload
//! clusters are in the memory of its manager. The control plane is a Machine without a control-plane object, as its users have it.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use test_env::{
    ClusterApi, ClusterApiManager, ControlPlane, ControlPlaneOptions, PATIENCE, authority_of_rsa,
};
use tokio::time::timeout;

use crate::{
    api,
    cluster_api::{
        installed::printed,
        management::{apply, nothing_was_refused},
        objects::{Objects, is, reference},
        workload::VERSION,
    },
    daemon::{DaemonProcess, LONG_TERM},
    shipped_roles,
    support::tail,
    trial::{LIMIT, Outcome, runtime},
};

const NAMESPACE: &str = "in-memory";

/// The version to which the machines are upgraded.
const NEXT_VERSION: &str = "v1.36.4";

pub(super) fn whole() -> Outcome {
    let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
    let manifests = printed(&["manifests", "--lifecycle", "--set=controllers=lifecycle"])?;
    apply(&control_plane, "manifests.yaml", &manifests)?;
    let provider = ClusterApi::start(&control_plane, &[ClusterApiManager::InMemory])?;
    control_plane.kubectl_output(&["create", "namespace", NAMESPACE])?;
    let folder = tempfile::tempdir().context("a folder")?;
    let kubeconfig =
        control_plane.kubeconfig_for_service_account("kube-system", "cloud-controller-manager")?;
    let mut flags = vec![
        "--controllers=lifecycle".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--workload-cluster-cidrs=127.0.0.0/8".to_owned(),
        "-v=4".to_owned(),
    ];
    flags.extend(LONG_TERM.map(str::to_owned));
    let daemon = DaemonProcess::start_beside(&provider, &flags, &folder.path().join("daemon.log"))?;
    let outcome = runtime(false)?.block_on(async {
        let client = api::client(control_plane.kubeconfig()).await?;
        let objects = Objects::new(client, NAMESPACE).on("Dev", PATIENCE);
        timeout(LIMIT, life(&objects)).await.with_context(|| format!("not done within {LIMIT:?}"))?
    });
    outcome.with_context(|| {
        let log = provider.log(ClusterApiManager::InMemory);
        format!("the daemon said: {}\nthe provider said: {}", tail(&daemon.log()), tail(&log))
    })?;
    daemon.terminate()?;
    Ok(nothing_was_refused(&control_plane, shipped_roles::USER)?)
}

/// A machine that is there at once.
fn in_memory() -> Value {
    json!({"backend": {"inMemory": {}}})
}

async fn life(objects: &Objects) -> Result<()> {
    control_plane(objects).await?;
    objects.apply_template("small", &in_memory()).await?;
    objects.apply_workers("prod", "workers", 3, "small").await?;
    let first = workers(objects, 3).await?;

    objects.merge("MachineDeployment", "workers", json!({"spec": {"replicas": 5}})).await?;
    let five = workers(objects, 5).await?;
    ensure!(first.is_subset(&five), "{five:?} after {first:?}");

    let version = json!({"spec": {"template": {"spec": {"version": NEXT_VERSION}}}});
    objects.merge("MachineDeployment", "workers", version).await?;
    let is_new = |all: &[Value]| {
        let new = all.iter().filter(|one| one["spec"]["version"] == NEXT_VERSION).count();
        // With the machine of the control plane.
        all.len() == 6 && new == 5
    };
    objects.all_become("Machine", "of the next version", is_new).await?;
    let upgraded = workers(objects, 5).await?;
    ensure!(upgraded.is_disjoint(&five), "{upgraded:?} after {five:?}");

    let gone = upgraded.first().context("a machine")?;
    objects.delete("Machine", gone).await?;
    objects.vanishes("Machine", gone).await?;
    let replaced = workers(objects, 5).await?;
    ensure!(replaced.intersection(&upgraded).count() == 4, "{replaced:?} after {upgraded:?}");

    objects.merge("MachineDeployment", "workers", json!({"spec": {"replicas": 2}})).await?;
    let left = workers(objects, 2).await?;
    ensure!(left.is_subset(&replaced), "{left:?} of {replaced:?}");

    objects.delete("Cluster", "prod").await?;
    objects.vanishes("Cluster", "prod").await?;
    objects.none_are_left(&["DevMachine", "DevCluster"]).await
}

/// A Cluster with one machine of the control plane, which initializes it.
async fn control_plane(objects: &Objects) -> Result<()> {
    // The provider reads no other keys. Those of the front proxy and of service accounts are made by the daemon.
    for name in ["prod-ca", "prod-etcd"] {
        let [certificate, key] = authority_of_rsa()?;
        let data = json!({"tls.crt": certificate, "tls.key": key});
        let secret = json!({"type": "cluster.x-k8s.io/secret", "stringData": data});
        objects.apply("Secret", name, secret).await?;
    }
    // The provider writes into the annotations, and panics where there are none.
    let metadata = json!({"annotations": {"example.org/of": "a test"}});
    objects.apply("DevCluster", "prod", json!({"metadata": metadata, "spec": in_memory()})).await?;
    let spec = json!({"spec": {"infrastructureRef": reference("DevCluster", "prod")}});
    objects.apply("Cluster", "prod", spec).await?;
    let registration = json!({"nodeRegistration": {"criSocket": "unix:///run/containerd/containerd.sock"}});
    let config = json!({"clusterConfiguration": {"imageRepository": "example.org"}, "initConfiguration": registration});
    objects.apply("KubeadmConfig", "control-plane", json!({"spec": config})).await?;
    objects.apply("DevMachine", "control-plane", json!({"spec": in_memory()})).await?;
    let spec = json!({
        "clusterName": "prod", "version": VERSION,
        "bootstrap": {"configRef": reference("KubeadmConfig", "control-plane")},
        "infrastructureRef": reference("DevMachine", "control-plane"),
    });
    let labels = json!({"cluster.x-k8s.io/cluster-name": "prod", "cluster.x-k8s.io/control-plane": ""});
    objects.apply("Machine", "control-plane", json!({"metadata": {"labels": labels}, "spec": spec})).await?;
    let is_up =
        |one: &Value| is(one, "ControlPlaneInitialized", "True") && is(one, "RemoteConnectionProbe", "True");
    objects.becomes("Cluster", "prod", "has a control plane", is_up).await.map(drop)
}

/// Waits until so many machines beside that of the control plane run, each with a Node of its name, and the deployment says so.
async fn workers(objects: &Objects, count: usize) -> Result<BTreeSet<String>> {
    let mut machines = objects.machines_run(count + 1).await?;
    machines.remove("control-plane").context("the machine of the control plane")?;
    for (name, machine) in &machines {
        ensure!(machine["status"]["nodeRef"]["name"] == **name, "{machine}");
        ensure!(machine["spec"]["providerID"] == format!("in-memory://{name}"), "{machine}");
    }
    let is_deployed = |one: &Value| {
        is(one, "Available", "True")
            && ["availableReplicas", "upToDateReplicas", "replicas"]
                .iter()
                .all(|of| one["status"][of] == count)
    };
    objects.becomes("MachineDeployment", "workers", "available", is_deployed).await?;
    Ok(machines.into_keys().collect())
}
