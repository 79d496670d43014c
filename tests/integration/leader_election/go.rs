//! client-go's own elector on the same Lease: the two never lead at the same time, and each takes over from
//! the other.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, ensure};
use ccm::leader_election::Leadership;
use futures::FutureExt;
use libtest_mimic::Trial;
use tempfile::TempDir;
use test_env::{ControlPlane, Process, StartError, built};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{elector, expired, expired_for_go, lead, options, record};
use crate::{
    api::{Api, Target},
    support::eventually,
    trial::{Outcome, runtime, trial},
};

const LIMIT: Duration = Duration::from_secs(20);
/// The lease duration of all candidates.
const LEASE: Duration = Duration::from_secs(4);

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("apiserver::leader_election::beside_client_go", beside)]
}

fn beside() -> Outcome {
    let program = built("leader")?.join("leader");
    runtime(false)?.block_on(async {
        let api = Api::connect(Target::ApiServer).await?;
        take_turns(&api, program).boxed_local().await.map_err(StartError::from)
    })
}

/// client-go's elector as a process.
struct Go {
    process: Process,
}

impl Go {
    fn start(
        program: &PathBuf,
        control_plane: &ControlPlane,
        identity: &str,
        folder: &TempDir,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command
            .arg(format!("-kubeconfig={}", control_plane.kubeconfig().display()))
            .args([&format!("-identity={identity}"), "-release"])
            .args(["-lease-duration=4s", "-renew-deadline=3s", "-retry-period=500ms"]);
        Ok(Self { process: Process::spawn(identity, &command, folder.path().join(identity))? })
    }

    /// Whether it reports that it leads.
    fn leads(&self) -> bool {
        let log = std::fs::read_to_string(self.process.log()).unwrap_or_default();
        log.lines().rfind(|line| ["leading", "stopped"].contains(line)) == Some("leading")
    }

    async fn leads_soon(&self) -> anyhow::Result<()> {
        eventually(LIMIT, "client-go leads", || async { Ok(self.leads().then_some(())) }).await
    }
}

fn acquire(api: &Api, identity: &str) -> anyhow::Result<JoinHandle<Option<Leadership>>> {
    let candidate = elector(&api.client, options(identity))?;
    Ok(tokio::spawn(async move { candidate.acquire(&CancellationToken::new()).await }))
}

async fn take_turns(api: &Api, program: PathBuf) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let folder = TempDir::new()?;
    let start_go = |identity| Go::start(&program, control_plane, identity, &folder);
    let two_terms = 2 * LEASE;

    // It leads, and we stand by. It releases the Lease, and we lead.
    let mut go = start_go("go-1")?;
    go.leads_soon().await?;
    let ours = acquire(api, "ours-1")?;
    sleep(two_terms).await;
    ensure!(go.leads() && !ours.is_finished(), "client-go leads and renews");
    let start = Instant::now();
    go.process.stop()?;
    let mut ours = timeout(LIMIT, ours).await??.context("stopped")?;
    println!("from client-go, released, to us: {:?}", start.elapsed());
    ensure!(start.elapsed() < LEASE, "a release is no crash");
    ensure!(record(&api.client).await?.transitions == 1);

    // We lead, and it stands by. We release the Lease, and it leads.
    let mut go = start_go("go-2")?;
    ensure!(timeout(two_terms, ours.renew()).await.is_err() && !go.leads(), "we lead and renew");
    let start = Instant::now();
    ours.release().await;
    ensure!(!go.leads(), "not before we have stopped");
    go.leads_soon().await?;
    println!("from us, released, to client-go: {:?}", start.elapsed());
    ensure!(start.elapsed() < LEASE, "a release is no crash");
    let held = record(&api.client).await?;
    ensure!(held.transitions == 2 && held.holder == "go-2", "{held:?}");

    // It crashes, and we have to wait.
    let ours = acquire(api, "ours-2")?;
    sleep(LEASE).await;
    let start = Instant::now();
    go.process.kill()?;
    let left = record(&api.client).await?;
    let ours = timeout(LIMIT, ours).await??.context("stopped")?;
    println!("from client-go, crashed, to us: {:?}", start.elapsed());
    expired(&left, &record(&api.client).await?)?;

    // We crash, and it has to wait.
    let go = start_go("go-3")?;
    let start = Instant::now();
    drop(ours);
    let left = record(&api.client).await?;
    go.leads_soon().await?;
    println!("from us, crashed, to client-go: {:?}", start.elapsed());
    expired_for_go(&left, &record(&api.client).await?)?;

    // Another one of our candidates stands by again.
    let late = timeout(two_terms, lead(&api.client, "ours-3")).await;
    ensure!(late.is_err() && go.leads(), "client-go leads and renews");
    Ok(())
}
