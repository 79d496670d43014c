//! `clusterctl move` of a cluster whose guests run, as it is done once a cluster shall manage itself: from the management
//! cluster that made it to its own API server. Seen from libvirt, nothing happens.

use std::{path::Path, sync::Arc};

use anyhow::{Context, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::ControlPlane;
use tokio::time::{Instant, timeout};

use super::{LIMIT, PATIENCE, guests, hypervisor::Hypervisor};
use crate::{
    api,
    cluster_api::{
        clusterctl::Tool,
        management::{MANAGERS, Management, nothing_was_refused},
        objects::{Objects, is, name},
        shipped::{ACCOUNT, SYSTEM, shipped},
        workload::VERSION,
    },
    daemon::DaemonProcess,
    guest::command_line,
    support::tail,
    trial::{Outcome, runtime},
};

const MACHINES: usize = 2;

pub(super) fn whole() -> Outcome {
    let hypervisor = Arc::new(Hypervisor::start()?);
    let tool = Tool::with_provider("libvirt", &shipped("libvirt")?)?;
    let variables = [("LIBVIRT_CONFIG_B64", BASE64_STANDARD.encode(hypervisor.config_text()))];
    let source = tool.install(&MANAGERS, &variables)?;
    let target = tool.install(&MANAGERS, &variables)?;
    // The target's API server is that of the workload cluster too: its Nodes are there.
    source.managers.reach(&target.control_plane)?;
    let folder = TempDir::new().context("a folder")?;
    let log = |name: &str| folder.path().join(name);
    let config = hypervisor.config().display().to_string();
    let nodes = DaemonProcess::start(&command_line(&target.control_plane, &config)?, &log("nodes.log"))?;
    let at_source = machine_daemon(&source.control_plane, &config, &log("source.log"))?;
    let at_target = machine_daemon(&target.control_plane, &config, &log("target.log"))?;
    let outcome = runtime(false)?.block_on(async {
        let outcome = timeout(LIMIT, moves(&tool, &source, &target, &hypervisor, folder.path())).await;
        outcome.with_context(|| format!("not done within {LIMIT:?}"))?
    });
    outcome
        .with_context(|| format!("at the source: {}", tail(&at_source.log())))
        .with_context(|| format!("at the target: {}", tail(&at_target.log())))
        .with_context(|| format!("the target's managers: {}", target.words_about("prod")))?;
    for daemon in [at_source, at_target, nodes] {
        daemon.terminate()?;
    }
    for management in [&source, &target] {
        nothing_was_refused(&management.control_plane, SYSTEM)?;
    }
    Ok(())
}

/// The daemon that the components have, with their service account and their roles.
fn machine_daemon(control_plane: &ControlPlane, config: &str, log: &Path) -> anyhow::Result<DaemonProcess> {
    let kubeconfig = control_plane.kubeconfig_for_service_account(SYSTEM, ACCOUNT)?;
    let flags = [
        "--cloud-provider=libvirt".to_owned(),
        "--controllers=machine-controller".to_owned(),
        format!("--leader-elect-resource-namespace={SYSTEM}"),
        format!("--cloud-config={config}"),
        format!("--kubeconfig={}", kubeconfig.display()),
        "-v=4".to_owned(),
    ];
    DaemonProcess::start(&flags, log)
}

async fn moves(
    tool: &Tool,
    source: &Management,
    target: &Management,
    hypervisor: &Arc<Hypervisor>,
    folder: &Path,
) -> anyhow::Result<()> {
    let (at_source, at_target) = (objects(source).await?, objects(target).await?);
    let _guests = guests::start(&at_target.client, hypervisor);
    let began = Instant::now();
    let told = |what: &str| println!("{what} after {:.1?}", began.elapsed());

    at_source.apply_cluster("prod", &target.control_plane, json!({"spec": {}})).await?;
    at_source.apply_template("small", &hypervisor.machine(160)?).await?;
    at_source.apply_workers("prod", "workers", MACHINES, "small").await?;
    let names = running(&at_source).await?;
    hypervisor.runs(&names)?;
    let (domains, before) = (hypervisor.domains()?, statuses(&at_source).await?);
    told("the machines run");

    let events = hypervisor.record_events(&folder.join("events.log"))?;
    let to = format!("--to-kubeconfig={}", target.control_plane.kubeconfig().display());
    tool.run(source.control_plane.kubeconfig(), &["move", "--namespace=default", &to])?;
    told("they have moved");
    // whoever hosts the control plane says so again: no status is moved
    at_target.control_plane_is_there("prod", VERSION).await?;
    ensure!(running(&at_target).await? == names, "other machines");
    let after = statuses(&at_target).await?;
    ensure!(after == before, "the status is {after:?}, it was {before:?}");
    for kind in ["Cluster", "Machine", "LibvirtMachine", "LibvirtCluster"] {
        let left = at_source.list(kind).await?;
        ensure!(left.is_empty(), "{kind}: {left:?}");
    }
    hypervisor.runs(&names)?;
    ensure!(hypervisor.domains()? == domains, "{:?}, before {domains:?}", hypervisor.domains()?);
    ensure!(events.so_far()?.is_empty(), "{}", events.so_far()?);
    told("they are taken over");

    at_target.delete("Cluster", "prod").await?;
    at_target.vanishes("Cluster", "prod").await?;
    hypervisor.is_empty()?;
    // what recorded nothing would have recorded something
    let events = events.so_far()?;
    ensure!(names.iter().all(|name| events.contains(name.as_str())), "{events}");
    told("everything is gone");
    Ok(())
}

async fn objects(management: &Management) -> anyhow::Result<Objects> {
    let client = api::client(management.control_plane.kubeconfig()).await?;
    Ok(Objects::new(client, "default").on("Libvirt", PATIENCE))
}

/// Waits until all machines run. Returns their names.
async fn running(objects: &Objects) -> anyhow::Result<Vec<String>> {
    let run = |one: &Value| one["status"]["phase"] == "Running" && is(one, "InfrastructureReady", "True");
    let machines =
        objects.all_become("Machine", "running", |all| all.len() == MACHINES && all.iter().all(run)).await?;
    let mut names: Vec<_> = machines.iter().map(|one| name(one).to_owned()).collect();
    names.sort();
    Ok(names)
}

/// Of each machine what libvirt says of it, and the UID that its object had first.
async fn statuses(objects: &Objects) -> anyhow::Result<Vec<Value>> {
    let mut machines = objects.list("LibvirtMachine").await?;
    machines.sort_by(|a, b| name(a).cmp(name(b)));
    let told = |one: &Value| {
        let status = &one["status"];
        // An IPv6 address can come at any time.
        let addresses = status["addresses"].as_array().into_iter().flatten();
        let of_ipv4: Vec<_> =
            addresses.filter(|one| !one["address"].as_str().unwrap_or_default().contains(':')).collect();
        json!({
            "identity": one["metadata"]["annotations"]["infrastructure.cluster.x-k8s.io/uid"],
            "providerID": one["spec"]["providerID"],
            "addresses": of_ipv4,
            "failureDomain": status["failureDomain"],
            "hypervisor": status["hypervisor"],
            "initialization": status["initialization"],
        })
    };
    Ok(machines.iter().map(told).collect())
}
