//! client-go's own elector on the same Lease: the two never lead at the same time, and each takes over from
//! the other.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, ensure};
use ccm::leader_election::Leadership;
use tempfile::TempDir;
use test_env::{ControlPlane, PATIENCE, Process, built};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{ENDLESS, Terms, elector, expired, expired_for_go, lead, options, options_with, record, terms};
use crate::{api::Api, scenarios::Trials, support::eventually};

pub(crate) fn trials() -> Trials {
    Trials::new().api_server("leader_election::beside_client_go", take_turns)
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
        terms: Terms,
        folder: &TempDir,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command
            .arg(format!("-kubeconfig={}", control_plane.kubeconfig().display()))
            .args([&format!("-identity={identity}"), "-release"])
            .args([
                format!("-lease-duration={:?}", terms.lease),
                format!("-renew-deadline={:?}", terms.renew),
            ])
            .arg("-retry-period=500ms");
        Ok(Self { process: Process::spawn(identity, &command, folder.path().join(identity))? })
    }

    /// Whether it reports that it leads.
    fn leads(&self) -> bool {
        let log = std::fs::read_to_string(self.process.log()).unwrap_or_default();
        log.lines().rfind(|line| ["leading", "stopped"].contains(line)) == Some("leading")
    }

    async fn leads_soon(&self) -> anyhow::Result<()> {
        eventually(PATIENCE, "client-go leads", || async { Ok(self.leads().then_some(())) }).await
    }
}

fn acquire(api: &Api, identity: &str, terms: Terms) -> anyhow::Result<JoinHandle<Option<Leadership>>> {
    let candidate = elector(&api.client, options_with(identity, terms))?;
    Ok(tokio::spawn(async move { candidate.acquire(&CancellationToken::new()).await }))
}

async fn take_turns(api: &Api) -> anyhow::Result<()> {
    let program = built("leader")?.join("leader");
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let folder = TempDir::new()?;
    let start_go = |identity, terms| Go::start(&program, control_plane, identity, terms, &folder);
    let more_than_a_term = terms().and_some();

    // It leads, and we stand by. It releases the Lease, and we lead.
    let mut go = start_go("go-1", ENDLESS)?;
    go.leads_soon().await?;
    let ours = acquire(api, "ours-1", ENDLESS)?;
    sleep(more_than_a_term).await;
    ensure!(go.leads() && !ours.is_finished(), "client-go leads and renews");
    let start = Instant::now();
    go.process.stop()?;
    let mut ours = timeout(PATIENCE, ours).await??.context("stopped")?;
    println!("from client-go, released, to us: {:?}", start.elapsed());
    ensure!(record(&api.client).await?.transitions == 1);

    // We lead, and it stands by. We release the Lease, and it leads.
    let mut go = start_go("go-2", terms())?;
    ensure!(timeout(more_than_a_term, ours.renew()).await.is_err() && !go.leads(), "we lead and renew");
    let start = Instant::now();
    ours.release().await;
    ensure!(!go.leads(), "not before we have stopped");
    go.leads_soon().await?;
    println!("from us, released, to client-go: {:?}", start.elapsed());
    let held = record(&api.client).await?;
    ensure!(held.transitions == 2 && held.holder == "go-2", "{held:?}");

    // It crashes, and we have to wait.
    let ours = acquire(api, "ours-2", terms())?;
    sleep(Duration::from_secs(4)).await;
    let start = Instant::now();
    go.process.kill()?;
    let left = record(&api.client).await?;
    let ours = timeout(PATIENCE, ours).await??.context("stopped")?;
    println!("from client-go, crashed, to us: {:?}", start.elapsed());
    expired(&left, &record(&api.client).await?)?;

    // We crash, and it has to wait.
    let go = start_go("go-3", terms())?;
    let start = Instant::now();
    drop(ours);
    let left = record(&api.client).await?;
    go.leads_soon().await?;
    println!("from us, crashed, to client-go: {:?}", start.elapsed());
    expired_for_go(&left, &record(&api.client).await?)?;

    // Another one of our candidates stands by again.
    let late = timeout(more_than_a_term, lead(&api.client, options("ours-3"))).await;
    ensure!(late.is_err() && go.leads(), "client-go leads and renews");
    Ok(())
}
