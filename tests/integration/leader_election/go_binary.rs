//! The binary and a Go cloud-controller-manager on one Lease, while kubelets register all the time: which one
//! holds the Lease, and which one initialises the Nodes. The two give Nodes different zones.

use std::{fs, ops::Range, path::PathBuf, process::ExitStatus, time::Duration};

use anyhow::{Context, ensure};
use sandbox::kubelet;
use serde_json::json;
use tempfile::TempDir;
use test_env::{FrameworkCcm, PATIENCE, Process, Signal, StartError};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{ENDLESS, Terms, expired, expired_for_go, record, terms, timeline::Timeline};
use crate::{
    api::Api,
    daemon::{DaemonProcess, binary},
    hypervisors::{name, test_driver_file},
    scenarios::Trials,
    support::*,
};

/// Zones, which show which daemon initialised a Node.
const GO: &str = "by-go";
const OURS: &str = "by-us";
/// Machines that both daemons know. A kubelet registers every now and then, for longer than the test takes.
const MACHINES: Range<usize> = 0..3000;
/// A machine that only our daemon knows.
const ONLY_OURS: usize = 3500;

pub(crate) fn trials() -> Trials {
    Trials::new()
        .api_server("leader_election::beside_a_go_binary_that_ends", async |api: &Api| {
            Both::new(api).await?.take_turns().await
        })
        .api_server("leader_election::beside_a_go_binary_that_freezes", async |api: &Api| {
            Both::new(api).await?.freeze().await
        })
}

/// Waits until a process ends, without blocking other tasks.
async fn end_of(process: &mut Process) -> anyhow::Result<ExitStatus> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = process.end_status() {
            return Ok(status);
        }
        ensure!(Instant::now() < deadline, "still runs after {PATIENCE:?}: {}", process.log_tail());
        sleep(Duration::from_millis(20)).await;
    }
}

/// What both kinds of daemons need to start.
struct Both<'a> {
    api: &'a Api,
    folder: TempDir,
    kubeconfig: PathBuf,
    timeline: Timeline,
    kubelets: JoinHandle<()>,
}

impl Drop for Both<'_> {
    fn drop(&mut self) {
        self.kubelets.abort();
    }
}

impl<'a> Both<'a> {
    async fn new(api: &'a Api) -> anyhow::Result<Self> {
        binary()?;
        let folder = TempDir::new()?;
        let kubeconfig = api.control_plane.as_ref().context("the control plane")?.kubeconfig().to_owned();
        let machines = folder.path().join("machines.xml");
        fs::write(&machines, test_driver_file(MACHINES.chain([ONLY_OURS]))?)?;
        let config = format!(
            "hypervisors:\n- {{name: kvm1, uri: 'test://{}', zone: {OURS}, region: lab}}\n",
            machines.display()
        );
        fs::write(folder.path().join("cloud.yaml"), config)?;
        let timeline = Timeline::record(&api.client).await?;
        let client = api.client.clone();
        let kubelets = tokio::spawn(async move {
            for number in MACHINES {
                if kubelet::register(&client, &kubelet::node(&name(number), &uuid(number))).await.is_err() {
                    return;
                }
                sleep(Duration::from_millis(200)).await;
            }
        });
        Ok(Self { api, folder, kubeconfig, timeline, kubelets })
    }

    fn go(&self) -> Result<FrameworkCcm, StartError> {
        let instance = |number: usize| {
            json!({
                "providerID": format!("libvirt:///{}", uuid(number)), "type": "t", "zone": GO, "region": "lab",
                "addresses": [{"type": "InternalIP", "address": format!("10.0.{}.{}", number / 250, number % 250 + 1)}],
            })
        };
        let instances: serde_json::Map<_, _> =
            MACHINES.map(|number| (name(number), instance(number))).collect();
        let cloud = json!({"instances": instances}).to_string();
        let flags = terms().flags();
        FrameworkCcm::start(&self.kubeconfig, &cloud, &flags.each_ref().map(String::as_str))
    }

    fn ours(&self, title: &str, terms: Terms) -> anyhow::Result<DaemonProcess> {
        let mut arguments = vec![
            "--cloud-provider=libvirt".to_owned(),
            format!("--cloud-config={}", self.folder.path().join("cloud.yaml").display()),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            "--secure-port=0".to_owned(),
        ];
        arguments.extend(terms.flags());
        DaemonProcess::start(&arguments, &self.folder.path().join(title))
    }

    /// Waits until the holder of the Lease is not `before`, and Nodes with this zone appear. Returns the
    /// holder.
    async fn led_by(&self, zone: &str, before: &str) -> anyhow::Result<String> {
        let held = eventually(PATIENCE, &format!("{zone}: holds the lease"), || async {
            let found = record(&self.api.client).await.ok();
            Ok(found.filter(|record| !record.holder.is_empty() && record.holder != before))
        })
        .await?;
        self.fills_in(zone).await?;
        Ok(held.holder)
    }

    /// Waits until newly registered Nodes are initialised with this zone.
    async fn fills_in(&self, zone: &str) -> anyhow::Result<()> {
        let before = self.timeline.filled_in_by(zone);
        eventually(PATIENCE, &format!("{zone}: fills Nodes in"), || async {
            Ok((self.timeline.filled_in_by(zone) > before + 2).then_some(()))
        })
        .await
    }

    async fn take_turns(&self) -> anyhow::Result<()> {
        // The Go daemon leads, and ours stands by.
        let mut go = self.go()?;
        let first = self.led_by(GO, "").await?;
        let ours = self.ours("ours-1", ENDLESS)?;
        self.fills_in(GO).await?;
        ensure!(self.timeline.filled_in_by(OURS) == 0, "a standby fills nothing in");

        // SIGTERM ends the Go daemon at once, and it does not release the Lease.
        let start = Instant::now();
        go.process().signal(Signal::Term)?;
        go.process().wait(PATIENCE)?;
        let left = record(&self.api.client).await?;
        let second = self.led_by(OURS, &first).await?;
        println!("SIGTERM to the Go binary: we work after {:?}", start.elapsed());
        expired(&left, &record(&self.api.client).await?)?;

        // After SIGTERM to our daemon, the Lease is free at once.
        let mut go = self.go()?;
        self.fills_in(OURS).await?;
        let start = Instant::now();
        tokio::task::spawn_blocking(move || ours.terminate()).await??;
        // Our term would not have ended.
        let third = self.led_by(GO, &second).await?;
        println!("SIGTERM to us: the Go binary works after {:?}", start.elapsed());

        // Both crash, one after the other.
        let mut ours = self.ours("ours-2", terms())?;
        self.fills_in(GO).await?;
        let start = Instant::now();
        go.process().kill()?;
        let left = record(&self.api.client).await?;
        let fourth = self.led_by(OURS, &third).await?;
        println!("SIGKILL to the Go binary: we work after {:?}", start.elapsed());
        expired(&left, &record(&self.api.client).await?)?;

        let _go = self.go()?;
        self.fills_in(OURS).await?;
        let start = Instant::now();
        ours.process().kill()?;
        let left = record(&self.api.client).await?;
        self.led_by(GO, &fourth).await?;
        println!("SIGKILL to us: the Go binary works after {:?}", start.elapsed());
        expired_for_go(&left, &record(&self.api.client).await?)?;

        let strangers = self.timeline.filled_in_by_others(&[OURS, GO]);
        ensure!(strangers.is_empty(), "filled in by one that did not lead: {strangers:?}");
        Ok(())
    }

    async fn freeze(&self) -> anyhow::Result<()> {
        // The Go daemon freezes, and finds another holder on the Lease when it resumes.
        let mut go = self.go()?;
        let first = self.led_by(GO, "").await?;
        let mut ours = self.ours("ours-1", terms())?;
        self.fills_in(GO).await?;
        let start = Instant::now();
        go.process().signal(Signal::Stop)?;
        let left = record(&self.api.client).await?;
        let second = self.led_by(OURS, &first).await?;
        println!("SIGSTOP to the Go binary: we work after {:?}", start.elapsed());
        expired(&left, &record(&self.api.client).await?)?;
        let by_go = self.timeline.filled_in_by(GO);
        go.process().signal(Signal::Cont)?;
        let ended = end_of(go.process()).await?;
        ensure!(ended.code() == Some(1) && go.log().contains("leaderelection lost"), "{ended}: {}", go.log());
        // It works until its renew deadline, as every client-go leader does.
        let late = self.timeline.filled_in_by(GO) - by_go;
        println!("the Go binary, awake again, filled in {late} Nodes beside us");
        let held = record(&self.api.client).await?;
        ensure!(held.holder == second && held.transitions == 1, "{held:?}");

        // Our daemon freezes. It misses the registration of a Node that only it can initialise.
        let go = self.go()?;
        self.fills_in(OURS).await?;
        let start = Instant::now();
        ours.process().signal(Signal::Stop)?;
        let left = record(&self.api.client).await?;
        let third = self.led_by(GO, &second).await?;
        println!("SIGSTOP to us: the Go binary works after {:?}", start.elapsed());
        expired_for_go(&left, &record(&self.api.client).await?)?;
        kubelet::register(&self.api.client, &kubelet::node("trap", &uuid(ONLY_OURS))).await?;
        kubelet::heartbeat(&self.api.client, "trap", true).await?;
        let by_us = self.timeline.filled_in_by(OURS);
        ours.process().signal(Signal::Cont)?;
        let ended = end_of(ours.process()).await?;
        ensure!(
            ended.code() == Some(1) && ours.log().contains("leaderelection lost"),
            "{ended}: {}",
            ours.log()
        );
        self.fills_in(GO).await?;
        ensure!(self.timeline.filled_in_by(OURS) == by_us, "we filled Nodes in without leading");
        ensure!(!is_initialized(&nodes(&self.api.client).get("trap").await?), "we wrote without leading");
        let held = record(&self.api.client).await?;
        ensure!(held.holder == third && held.transitions == 2, "{held:?}");
        drop(go);
        let strangers = self.timeline.filled_in_by_others(&[OURS, GO]);
        ensure!(strangers.iter().all(|line| line.contains(GO)), "{strangers:?}");
        Ok(())
    }
}
