//! What happens in the demo, in order.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context as _, anyhow, bail, ensure};
use ccm::api_client;
use cloudprovider_libvirt::HypervisorHandle;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::{Api, Client, api::ListParams};
use sandbox::{Sandbox, Server};
use tempfile::TempDir;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{
    cloud::{self, DOMAINS_EACH, HYPERVISORS, Machine},
    control_plane,
    daemon::Daemon,
    kubelets::Kubelets,
    nodes::{self, Seen, address, condition, provider_id},
    screen::Screen,
};

const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// How long any step may take before the demo gives up: much more than it needs, for machines that are busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a kubelet stays silent in the demo. kube-controller-manager waits for the better part of a
/// minute.
const SILENCE: Duration = Duration::from_secs(1);

/// Everything that runs. Dropping it ends everything and removes the temporary files.
pub(crate) struct Stage {
    pub daemon: Daemon,
    machines: Vec<Machine>,
    client: Client,
    seen: watch::Receiver<Seen>,
    kubelets: Option<Kubelets>,
    kubeconfig: PathBuf,
    server: Server,
    _folder: TempDir,
}

impl Stage {
    /// Ends everything in the right order.
    pub(crate) async fn stop(self) {
        self.daemon.stop().await;
        drop((self.kubelets, self.seen, self.client));
        self.server.shutdown().await;
    }

    fn hypervisor_of(&self, machine: &Machine) -> anyhow::Result<HypervisorHandle> {
        let handle = self.daemon.provider().hypervisor(machine.hypervisor);
        handle.with_context(|| format!("there is no hypervisor {}", machine.hypervisor))
    }

    /// Waits until the Nodes are as wanted; the daemon must not end meanwhile.
    async fn until(&mut self, what: &str, is_so: impl FnMut(&Seen) -> bool) -> anyhow::Result<()> {
        tokio::select! {
            outcome = timeout(PATIENCE, self.seen.wait_for(is_so)) => match outcome {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(_)) => bail!("the watch of the Nodes ended while waiting for {what}"),
                Err(_) => bail!("{what}: not within {} s", PATIENCE.as_secs()),
            },
            error = self.daemon.ended() => Err(error),
        }
    }
}

/// Starts the API, the cloud and the daemon.
pub(crate) async fn set_the_stage(screen: &Screen) -> anyhow::Result<Stage> {
    let machines = cloud::machines();
    let folder = tempfile::Builder::new()
        .prefix("ccm-demo-")
        .tempdir()
        .context("cannot make a folder for temporary files")?;
    let server = Sandbox::new()
        .serve(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .context("cannot listen on a loopback port")?;
    let write = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        anyhow::Ok(path)
    };
    let kubeconfig = write("kubeconfig", &server.kubeconfig())?;
    let cloud_config = write("libvirt.yaml", &cloud::write_hypervisors(folder.path(), &machines)?)?;

    screen.line(format_args!(
        "cloud-controller-manager: {} virtual machines in {} zones\n",
        machines.len(),
        HYPERVISORS.len()
    ));
    screen.line(format_args!(
        "   API     {}, a Kubernetes API in this process; no cluster of yours is touched",
        server.url()
    ));
    let clouds: Vec<String> = HYPERVISORS.iter().map(|one| format!("{} ({})", one.name, one.zone)).collect();
    screen.line(format_args!(
        "   cloud   libvirt's own test driver: {} with {DOMAINS_EACH} running domains each",
        clouds.join(" and ")
    ));
    let daemon = Daemon::start(&cloud_config, &kubeconfig)?;
    screen.line(format_args!("   daemon  {}\n", daemon.command_line()));

    let (client, _) = api_client::connect(Some(&kubeconfig), "").await?;
    let seen = nodes::watch(client.clone());
    Ok(Stage { daemon, machines, client, seen, kubelets: None, kubeconfig, server, _folder: folder })
}

/// Plays the story.
pub(crate) async fn tell(screen: &Screen, stage: &mut Stage) -> anyhow::Result<()> {
    let began = Instant::now();
    nodes_come(screen, stage).await?;
    nodes_go(screen, stage).await?;
    screen.line(format_args!("\nDone in {:.1} s.", began.elapsed().as_secs_f64()));
    Ok(())
}

async fn nodes_come(screen: &Screen, stage: &mut Stage) -> anyhow::Result<()> {
    let total = stage.machines.len();
    screen.line(format_args!(
        "1. {total} kubelets with --cloud-provider=external register. Their Nodes carry the uninitialized taint, so no pod\n\
         \x20  goes there yet. The daemon finds the domain with a Node's system UUID, writes addresses, provider ID,\n\
         \x20  type and zone, and takes the taint away last."
    ));
    let began = Instant::now();
    let mut kubelets = Kubelets::start(&stage.client, &stage.machines);
    let mut posted = BTreeMap::new();
    let mut progress = screen.progress(total, "Nodes initialised");
    let all = async {
        let mut all_registered = false;
        loop {
            let done = stage.seen.borrow_and_update().initialized.len();
            progress.set(done);
            if all_registered && done == total {
                return anyhow::Ok(());
            }
            tokio::select! {
                registered = kubelets.registered(), if !all_registered => match registered {
                    Some(registered) => posted.extend([registered?]),
                    None => all_registered = true,
                },
                changed = stage.seen.changed() => changed.context("the watch of the Nodes ended")?,
                error = stage.daemon.ended() => return Err(error),
            }
        }
    };
    let outcome = timeout(PATIENCE, all).await;
    drop(progress);
    match outcome {
        Ok(outcome) => outcome?,
        Err(_) => return Err(not_all_initialized(&stage.seen.borrow(), total)),
    }
    let took = began.elapsed();
    stage.kubelets = Some(kubelets);

    let seen = stage.seen.borrow();
    let mut rows = Vec::new();
    for machine in &stage.machines {
        let node = seen.nodes.get(&machine.name).with_context(|| format!("{} is gone", machine.name))?;
        let seconds = match (posted.get(&machine.name), seen.initialized.get(&machine.name)) {
            (Some(posted), Some(initialized)) => initialized.duration_since(*posted).as_secs_f64(),
            _ => bail!("{} was not seen", machine.name),
        };
        rows.push(row(machine, node, seconds)?);
    }
    screen.table(["node", "provider ID", "address", "zone", "seconds"], 4, rows);
    screen.line(format_args!(
        "   {total} Nodes initialised in {:.2} s, counted from the first kubelet's start. \"seconds\" is from a Node's POST to\n\
         \x20  the end of its taint.\n",
        took.as_secs_f64()
    ));
    Ok(())
}

/// The table's row for a Node. An error if the Node is not as the cloud reports.
fn row(machine: &Machine, node: &Node, seconds: f64) -> anyhow::Result<[String; 5]> {
    let name = &machine.name;
    let provider_id = provider_id(node).with_context(|| format!("{name} has no provider ID"))?;
    let address = address(node).with_context(|| format!("{name} has no address"))?;
    let zone = node.metadata.labels.as_ref().and_then(|labels| labels.get(ZONE_LABEL));
    let zone = zone.with_context(|| format!("{name} has no zone"))?;
    ensure!(
        provider_id == format!("libvirt:///{}", machine.uuid),
        "{name} has the provider ID {provider_id}"
    );
    ensure!(zone == machine.zone, "{name} is in zone {zone}, its hypervisor in {}", machine.zone);
    Ok([name.clone(), provider_id.to_owned(), address.to_owned(), zone.clone(), format!("{seconds:.3}")])
}

fn not_all_initialized(seen: &Seen, total: usize) -> anyhow::Error {
    let waiting = seen.nodes.iter().find(|(name, _)| !seen.initialized.contains_key(*name));
    let why = waiting.map_or_else(
        || "Nodes are missing".to_owned(),
        |(name, node)| {
            let why = condition(node, "CloudProviderInitialized");
            format!("{name}: {}", why.unwrap_or_else(|| "no CloudProviderInitialized condition".to_owned()))
        },
    );
    anyhow!("{} of {total} Nodes were initialised in {} s; {why}", seen.initialized.len(), PATIENCE.as_secs())
}

async fn nodes_go(screen: &Screen, stage: &mut Stage) -> anyhow::Result<()> {
    let (stopped, removed) = chosen(stage);
    let (off, gone) = (&stopped.name, &removed.name);
    screen.line(format_args!(
        "2. A machine is switched off and another one is removed. Only the second one's Node may go: pods of a machine that\n\
         \x20  is off may come back with it, and a cloud that errs once must not cost a Node."
    ));
    cloud::power_off(&stage.hypervisor_of(&stopped)?, &stopped).await?;
    cloud::remove(&stage.hypervisor_of(&removed)?, &removed).await?;
    if let Some(kubelets) = &mut stage.kubelets {
        kubelets.silence(off);
        kubelets.silence(gone);
    }
    let began = Instant::now();
    let say = |text: &dyn std::fmt::Display| {
        screen.line(format_args!("   {:>4.1} s  {text}", began.elapsed().as_secs_f64()));
    };
    say(&format_args!("libvirt: domain {off} is off, domain {gone} is undefined; their kubelets are silent"));

    sleep(SILENCE).await;
    for name in [off, gone] {
        control_plane::kubelet_is_silent(&stage.client, name).await?;
    }
    say(&"kube-controller-manager (played here, and sooner than it would): both Nodes are Ready=Unknown");

    stage.until(&format!("the shutdown taint of {off}"), |seen| seen.has_taint(off, SHUTDOWN_TAINT)).await?;
    say(&format_args!("{off}: taint {SHUTDOWN_TAINT}:NoSchedule; the Node stays"));
    say(&format_args!(
        "{gone}: to be deleted when libvirt has said twice, 5 s apart, that there is no such domain, when its Node is\n\
         \x20          10 s old, and when its kubelet has not renewed its lease for 12.5 s while others do"
    ));

    let waiting = screen.waiting(&format!("waiting for the deletion of {gone}"));
    stage.until(&format!("the deletion of {gone}"), |seen| !seen.nodes.contains_key(gone)).await?;
    drop(waiting);
    say(&format_args!("{gone}: the Node is deleted"));
    let event = deletion_event(&stage.client, gone).await?;
    say(&format_args!("{gone}: event DeletingNode: {event}"));

    let seen = stage.seen.borrow();
    let left = stage.machines.len() - 1;
    ensure!(seen.nodes.len() == left, "{} Nodes are left, not {left}", seen.nodes.len());
    let tainted = seen.nodes.keys().filter(|name| seen.has_taint(name, SHUTDOWN_TAINT)).count();
    ensure!(tainted == 1, "{tainted} Nodes have the shutdown taint, not 1");
    say(&format_args!("{left} Nodes are left, and {off} alone has the shutdown taint"));
    Ok(())
}

/// One machine of the first zone and one of the second.
fn chosen(stage: &Stage) -> (Machine, Machine) {
    let third_of = |zone: usize| stage.machines[zone * DOMAINS_EACH + 2].clone();
    (third_of(0), third_of(1))
}

/// The event that announces the deletion. Events are written in the background, so it may come a little
/// later.
async fn deletion_event(client: &Client, node: &str) -> anyhow::Result<String> {
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let of_node = ListParams::default().fields(&format!("involvedObject.name={node},reason=DeletingNode"));
    let found = timeout(PATIENCE, async {
        loop {
            if let Some(event) = events.list(&of_node).await?.items.pop() {
                return anyhow::Ok(event.message.unwrap_or_default());
            }
            sleep(Duration::from_millis(50)).await;
        }
    });
    match found.await {
        Ok(message) => message,
        Err(_) => bail!("no event DeletingNode for {node} within {} s", PATIENCE.as_secs()),
    }
}

/// Prints what a viewer can try while everything goes on.
pub(crate) fn say_what_to_try(screen: &Screen, stage: &Stage) {
    let (stopped, removed) = chosen(stage);
    screen.line(format_args!(
        "\nThe API, the cloud and the daemon go on until Ctrl-C, which leaves nothing behind. In another terminal:\n\n\
         \x20  export KUBECONFIG={}\n\
         \x20  kubectl get nodes -o wide\n\
         \x20  kubectl describe node {}\n\
         \x20  kubectl get events --field-selector involvedObject.name={}\n\
         \x20  kubectl label node worker-001 {ZONE_LABEL}=elsewhere --overwrite   # the daemon puts it right: at once, and within 15 s the next time\n\n\
         No kubectl? tests/env/build.sh kubernetes builds one and prints its folder.",
        stage.kubeconfig.display(),
        stopped.name,
        removed.name,
    ));
}
