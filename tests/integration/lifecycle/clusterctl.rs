//! `clusterctl` with the lifecycle controllers as its core and its bootstrap provider: init, describe, the kubeconfig, and a move to
//! a management cluster that Cluster API's managers serve, and back.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;
use tempfile::TempDir;
use test_env::{ClusterApi, ControlPlane, ControlPlaneOptions, PATIENCE};
use tokio::time::timeout;

use crate::{
    api,
    cluster_api::{
        clusterctl::{Tool, daemon, generate, identities, nothing_was_changed, running},
        kubelets::Kubelets,
        management::{MANAGERS, nothing_was_refused},
        objects::Objects,
        workload::VERSION,
    },
    daemon::{DaemonProcess, InProcess, LONG_TERM},
    fake_cloud::FakeCloud,
    support::tail,
    trial::{LIMIT, Outcome, runtime},
};

/// What of a provider runs: the namespace of its Deployment, and the Deployment, which has the name of its account.
const PARTS: [(&str, &str); 2] = [
    ("capi-system", "cloud-controller-manager-lifecycle-core"),
    ("capi-kubeadm-bootstrap-system", "cloud-controller-manager-lifecycle-bootstrap"),
];

/// The users of the accounts of [`PARTS`].
const USERS: &str = ":cloud-controller-manager-lifecycle-";

pub(super) fn moves() -> Outcome {
    let (ours, theirs) = (Tool::with_lifecycle()?, Tool::new()?);
    // One provider of control planes alone has objects here, which is none of Cluster API's.
    let source = ours.init(&[], &["--core=cluster-api", "--bootstrap=kubeadm", "--control-plane=-"])?;
    let target = theirs.init(&[], &["--core=cluster-api", "--bootstrap=kubeadm", "--control-plane=-"])?;
    let managers = ClusterApi::start_installed(&target, &MANAGERS)?;
    let folder = tempfile::tempdir().context("a folder")?;
    let parts = PARTS.map(|(namespace, name)| start(&source, namespace, name, &folder));
    let [core, bootstrap] = parts;
    let (core, bootstrap) = (core?, bootstrap?);
    let outcome = runtime(false)?.block_on(async {
        let story = story(&ours, &source, &target, &managers);
        timeout(LIMIT, story).await.with_context(|| format!("not done within {LIMIT:?}"))?
    });
    outcome
        .with_context(|| format!("the daemons said: {}\n{}", tail(&core.log()), tail(&bootstrap.log())))?;
    core.terminate()?;
    bootstrap.terminate()?;
    Ok(nothing_was_refused(&source, USERS)?)
}

/// What the Deployment of a provider would run, as its account.
fn start(
    control_plane: &ControlPlane,
    namespace: &str,
    name: &str,
    folder: &TempDir,
) -> Result<DaemonProcess> {
    let deployment =
        control_plane.kubectl_output(&["get", "deployment", "-n", namespace, name, "-o", "json"])?;
    let deployment: Value = serde_json::from_str(&deployment)?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let mut flags: Vec<String> = serde_json::from_value(container["args"].clone())?;
    let kubeconfig = control_plane.kubeconfig_for_service_account(namespace, name)?;
    flags.push(format!("--kubeconfig={}", kubeconfig.display()));
    flags.push("--workload-cluster-cidrs=127.0.0.0/8".to_owned());
    flags.extend(LONG_TERM.map(str::to_owned));
    flags.push("--secure-port=0".to_owned());
    DaemonProcess::start(&flags, &folder.path().join(format!("{name}.log")))
}

async fn story(
    tool: &Tool,
    source: &ControlPlane,
    target: &ControlPlane,
    managers: &ClusterApi,
) -> Result<()> {
    let cloud = FakeCloud::new().with_machines();
    let at_source = objects(source).await?;
    let at_target = objects(target).await?;
    let workload = ControlPlane::start(&ControlPlaneOptions::default()).map_err(anyhow::Error::from)?;
    managers.reach(&workload)?;
    let nodes = api::client(workload.kubeconfig()).await?;
    let ccm = InProcess::start(&nodes, cloud.provider(), &["--controllers=cloud-node-controller"])?;
    let _kubelets = Kubelets::start(&nodes, &cloud);
    let at_both = [daemon(source, &cloud).await?, daemon(target, &cloud).await?];

    generate(tool, source, &workload)?;
    at_source.apply_secrets("prod", &workload).await?;
    at_source.control_plane_is_there("prod", VERSION).await?;
    let machines = running(&at_source).await?;
    let before = identities(&at_source).await?;
    reads(tool, source.kubeconfig(), &at_source).await?;

    cloud.forget_calls();
    for (from, to, objects) in [(source, target, &at_target), (target, source, &at_source)] {
        let kubeconfig = format!("--to-kubeconfig={}", to.kubeconfig().display());
        tool.run(from.kubeconfig(), &["move", "--namespace=default", &kubeconfig])?;
        objects.control_plane_is_there("prod", VERSION).await?;
        ensure!(running(objects).await? == machines, "other machines");
        ensure!(identities(objects).await? == before, "other provider IDs");
        nothing_was_changed(&cloud)?;
    }
    at_target.none_are_left(&["FakeMachine", "FakeCluster"]).await?;

    at_source.delete("Cluster", "prod").await?;
    at_source.vanishes("Cluster", "prod").await?;
    ensure!(cloud.objects().is_empty(), "{:?}", cloud.objects());
    for daemon in at_both.into_iter().chain([ccm]) {
        daemon.stop().await?;
    }
    Ok(())
}

async fn objects(control_plane: &ControlPlane) -> Result<Objects> {
    let client = api::client(control_plane.kubeconfig()).await?;
    Ok(Objects::new(client, "default").on("Fake", PATIENCE))
}

/// What the tool prints of a cluster.
async fn reads(tool: &Tool, kubeconfig: &Path, objects: &Objects) -> Result<()> {
    let described = tool.run(
        kubeconfig,
        &["describe", "cluster", "prod", "--show-conditions=all", "--echo", "--grouping=false"],
    )?;
    for kind in ["Cluster", "FakeCluster", "MachineDeployment", "Machine", "FakeMachine", "KubeadmConfig"] {
        let words = format!("{kind} default/prod");
        ensure!(described.contains(&words), "{words} is not in {described}");
    }
    let printed = tool.run(kubeconfig, &["get", "kubeconfig", "prod"])?;
    let secret = objects.get("Secret", "prod-kubeconfig").await?.context("a Secret")?;
    let value = BASE64_STANDARD.decode(secret["data"]["value"].as_str().context("a value")?)?;
    ensure!(printed.trim() == String::from_utf8(value)?.trim(), "{printed}");
    Ok(())
}
