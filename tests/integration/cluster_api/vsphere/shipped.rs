//! What the repository ships for `clusterctl` and vSphere: a cluster of the template, with its credentials in a Secret, is accepted and
//! taken up on a simulated vCenter.

use std::{fs, path::Path};

use anyhow::{Context, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{ClusterApiManager, ControlPlane};
use tokio::time::timeout;

use super::{LIMIT, PATIENCE, datacenter::Datacenter};
use crate::{
    cluster_api::{
        clusterctl::{Tool, said},
        management::{Management, apply, nothing_was_refused},
        objects::{Objects, condition, is, name},
        shipped::{dry_run, shipped},
        workload::VERSION,
    },
    daemon::{DaemonProcess, LONG_TERM},
    support::tail,
    trial::{Outcome, runtime},
    vsphere::machine,
    webhook::Webhook,
};

/// The namespace and the account of the daemon in the components.
pub(super) const SYSTEM: &str = "vsphere-infrastructure-system";
const ACCOUNT: &str = "cloud-controller-manager-vsphere";

/// The address of the cluster's API server. Nobody is there.
pub(super) const ENDPOINT: &str = "192.168.122.10";

const WORKERS: usize = 2;

/// What stands in the quick start for all variables, with our values.
pub(super) fn variables(datacenter: &Datacenter) -> anyhow::Result<Vec<(&'static str, String)>> {
    let vcsim = &datacenter.vcsim;
    Ok(vec![
        ("CONTROL_PLANE_ENDPOINT_IP", ENDPOINT.to_owned()),
        ("VSPHERE_SERVER", format!("127.0.0.1:{}", vcsim.port())),
        ("VSPHERE_TLS_THUMBPRINT", vcsim.thumbprint("sha1")?),
        ("VSPHERE_USERNAME", vcsim.user().to_owned()),
        ("VSPHERE_PASSWORD", vcsim.password().to_owned()),
        ("VSPHERE_RESOURCE_POOL", "/DC0/host/DC0_C0/Resources".to_owned()),
        ("VSPHERE_TEMPLATE", machine(0)),
        ("VSPHERE_NETWORK", "VM Network".to_owned()),
        ("VSPHERE_SSH_AUTHORIZED_KEY", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== me@home".to_owned()),
    ])
}

pub(super) fn whole() -> Outcome {
    let datacenter = Datacenter::start("")?;
    let tool = Tool::with_provider("vsphere", &shipped("vsphere")?)?;
    let config = BASE64_STANDARD.encode(fs::read(datacenter.config()).context("the configuration")?);
    let management = tool.install(&ClusterApiManager::ALL, &[("VSPHERE_CONFIG_B64", config)])?;
    let folder = TempDir::new().context("a folder")?;
    let daemon = daemon(&management.control_plane, &datacenter, &folder.path().join("daemon.log"))?;
    let outcome = runtime(false)?.block_on(async {
        let objects = Objects::new(management.client().await?, "default").on("VSphere", PATIENCE);
        let cluster = cluster(&tool, &management, &datacenter, &objects);
        timeout(LIMIT, cluster).await.with_context(|| format!("not done within {LIMIT:?}"))?
    });
    outcome
        .with_context(|| management.managers.log(ClusterApiManager::KubeadmControlPlane))
        .with_context(|| format!("the daemon said: {}", tail(&daemon.log())))?;
    daemon.terminate()?;
    Ok(nothing_was_refused(&management.control_plane, SYSTEM)?)
}

/// The daemon of the components. Nothing runs their Deployment, and nothing is behind their Service.
pub(super) fn daemon(
    control_plane: &ControlPlane,
    datacenter: &Datacenter,
    log: &Path,
) -> anyhow::Result<DaemonProcess> {
    let webhook = Webhook::new()?;
    let definitions = control_plane.kubectl_output(&["get", "customresourcedefinitions", "--output=json"])?;
    let definitions: Value = serde_json::from_str(&definitions)?;
    let client = json!([
        {"op": "replace", "path": "/spec/conversion/webhook/clientConfig", "value": {"url": webhook.url()}},
    ]);
    let patch = format!("--patch={client}");
    for definition in definitions["items"].as_array().into_iter().flatten() {
        let service = &definition["spec"]["conversion"]["webhook"]["clientConfig"]["service"];
        if service["namespace"] == SYSTEM {
            let what = ["patch", "customresourcedefinition", name(definition), "--type=json", &patch];
            control_plane.kubectl_output(&what)?;
        }
    }
    let kubeconfig = control_plane.kubeconfig_for_service_account(SYSTEM, ACCOUNT)?;
    let mut flags = vec![
        "--cloud-provider=vsphere".to_owned(),
        format!("--cloud-config={}", datacenter.config().display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--controllers=machine-controller".to_owned(),
        format!("--leader-elect-resource-namespace={SYSTEM}"),
        "--authentication-skip-lookup=true".to_owned(),
    ];
    flags.extend(webhook.flags());
    flags.extend(LONG_TERM.map(str::to_owned));
    DaemonProcess::start(&flags, log)
}

async fn cluster(
    tool: &Tool,
    management: &Management,
    datacenter: &Datacenter,
    objects: &Objects,
) -> anyhow::Result<()> {
    let control_plane = &management.control_plane;
    let workers = format!("--worker-machine-count={WORKERS}");
    let version = format!("--kubernetes-version={VERSION}");
    let arguments = [
        "generate",
        "cluster",
        "prod",
        "--target-namespace=default",
        "--control-plane-machine-count=1",
        &workers,
        &version,
    ];
    let variables = variables(datacenter)?;
    let mut command = tool.command(control_plane.kubeconfig(), &arguments);
    command.envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
    let text = said(&arguments, &command.output()?)?;
    ensure!(!text.contains("${"), "{text}");
    dry_run(control_plane, &text)?;
    apply(control_plane, "cluster.yaml", &text)?;

    objects.becomes("VSphereCluster", "prod", "ready", |one| is(one, "Ready", "True")).await?;
    let is_first = |one: &Value| name(one).starts_with("prod-control-plane-");
    let is_provisioned = |one: &Value| one["status"]["initialization"]["provisioned"] == true;
    let waits = |one: &Value| condition(one, "Ready")["reason"] == "WaitingForBootstrapData";
    let all = objects
        .all_become("VSphereMachine", "taken up", |all| {
            all.len() == 1 + WORKERS
                && all.iter().all(|one| if is_first(one) { is_provisioned(one) } else { waits(one) })
        })
        .await?;
    let first = all.into_iter().find(|one| is_first(one)).context("a machine of the control plane")?;
    let machines = datacenter.machines()?;
    let vm = machines.get(name(&first)).with_context(|| format!("{machines:?}"))?;
    ensure!(first["spec"]["providerID"] == format!("vsphere://{}", vm.uuid), "{first}");

    objects.delete("Cluster", "prod").await?;
    objects.vanishes("Cluster", "prod").await?;
    datacenter.is_empty()
}
