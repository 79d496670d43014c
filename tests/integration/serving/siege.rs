//! The daemon as a process, with an election, while its port is attacked by clients without credentials.

use std::{cell::Cell, fs, net::SocketAddr, time::Duration};

use anyhow::{Context, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api as KubeApi;
use libtest_mimic::Trial;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{
    attackers::{Attack, Siege},
    curl::Curl,
    free_port,
    process::arguments,
};
use crate::{
    api::{Api, Target},
    daemon::{DaemonProcess, binary},
    support::eventually,
    trial::{runtime, trial},
};

/// How long each attack takes in a soak.
const SECONDS: &str = "CCM_SOAK_SECONDS";

/// And in a test.
const SHORT: Duration = Duration::from_secs(4);

/// MiB of the whole daemon. The manifests allow 512.
const MEMORY: u64 = 128;

/// The longest time between two renewals: a pause of two seconds, and five for a machine that has much to do.
const RENEWAL: Duration = Duration::from_secs(7);

/// How long Prometheus waits, and less than a kubelet's failed probes take that restart a daemon. A debug build beside
/// other tests has no better claim.
const ANSWER: Duration = Duration::from_secs(10);

pub(super) fn trials() -> Vec<Trial> {
    // Without the deadline of scenarios: a soak takes longer, and all that it waits for has one.
    vec![trial("apiserver::serving::a_leader_under_siege_leads_and_answers", || {
        runtime(false)?.block_on(async {
            let api = Api::connect(Target::ApiServer).await?;
            siege(&api).await?;
            Ok(())
        })
    })]
}

/// What was seen of the daemon.
#[derive(Debug, Default)]
struct Seen {
    probe: Duration,
    scrape: Duration,
    probes: usize,
    renewal: Duration,
    /// MiB.
    memory: u64,
}

async fn siege(api: &Api) -> anyhow::Result<()> {
    const ATTACKS: [(Attack, usize); 9] = [
        (Attack::ManyCertificates, 16),
        (Attack::EqualCertificates, 16),
        (Attack::Fields(1900), 128),
        (Attack::Fields(450), 128),
        (Attack::Unread, 128),
        (Attack::Pings, 128),
        (Attack::Requests, 128),
        (Attack::Tokens, 128),
        (Attack::Silence, 300),
    ];
    binary()?;
    let limit = std::env::var(SECONDS).ok().and_then(|seconds| seconds.parse().ok());
    let limit = limit.map_or(SHORT, Duration::from_secs);
    let folder = TempDir::new()?;
    let port = free_port()?;
    let arguments = arguments(api, &folder, port)?;
    let mut daemon = DaemonProcess::start(&arguments, &folder.path().join("log"))?;
    let leases: KubeApi<Lease> = KubeApi::namespaced(api.client.clone(), "kube-system");
    eventually(Duration::from_secs(30), "it leads", || async {
        let ready = Curl::get(&format!("https://127.0.0.1:{port}/readyz")).send().await?.status == 200;
        Ok((ready && daemon.log().contains("became leader")).then_some(()))
    })
    .await
    .with_context(|| daemon.log())?;
    let pid = daemon.process().id();
    let holder = spec(&leases).await?.holder_identity;
    for (attack, connections) in ATTACKS {
        let attackers = Siege::begin(SocketAddr::from(([127, 0, 0, 1], port)), attack, connections)?;
        let seen = watch(api, &leases, port, pid, limit).await;
        let seen = seen.with_context(|| format!("{attack:?}: {}", daemon.log()))?;
        println!("{attack:?}: {seen:?}, {} answers to attackers", attackers.answers());
        drop(attackers);
        ensure!(daemon.process().is_running(), "{attack:?}: {}", daemon.log());
        let now = spec(&leases).await?;
        ensure!(
            now.holder_identity == holder && now.lease_transitions.unwrap_or_default() == 0,
            "{attack:?}: it does not lead any more: {}",
            daemon.log()
        );
        ensure!(seen.renewal < RENEWAL, "{attack:?}: a renewal took {:?}", seen.renewal);
        ensure!(seen.memory < MEMORY, "{attack:?}: {} MiB", seen.memory);
    }
    daemon.terminate()
}

async fn spec(leases: &KubeApi<Lease>) -> anyhow::Result<k8s_openapi::api::coordination::v1::LeaseSpec> {
    leases.get("cloud-controller-manager").await?.spec.context("a lease")
}

/// Asks as the kubelet and Prometheus do, and looks at the lease meanwhile. Each answer must be there in time.
async fn watch(
    api: &Api,
    leases: &KubeApi<Lease>,
    port: u16,
    pid: u32,
    limit: Duration,
) -> anyhow::Result<Seen> {
    let longest = Cell::new(Duration::ZERO);
    let renewals = async {
        let (mut renewed, mut since) = (spec(leases).await?.renew_time, Instant::now());
        loop {
            sleep(Duration::from_millis(250)).await;
            let time = spec(leases).await?.renew_time;
            longest.set(longest.get().max(since.elapsed()));
            if time != renewed {
                (renewed, since) = (time, Instant::now());
            }
        }
    };
    tokio::select! {
        seen = ask(api, port, pid, limit) => Ok(Seen { renewal: longest.get(), ..seen? }),
        error = renewals => error,
    }
}

async fn ask(api: &Api, port: u16, pid: u32, limit: Duration) -> anyhow::Result<Seen> {
    let token = api.control_plane.as_ref().context("the control plane")?.admin_token();
    let url = |path: &str| format!("https://127.0.0.1:{port}{path}");
    let start = Instant::now();
    let mut seen = Seen::default();
    while start.elapsed() < limit {
        let began = Instant::now();
        Curl::get(&url("/livez")).expect(200).await?;
        seen.probe = seen.probe.max(began.elapsed());
        let began = Instant::now();
        let metrics = Curl::get(&url("/metrics")).token(token).expect(200).await?.text();
        seen.scrape = seen.scrape.max(began.elapsed());
        ensure!(metrics.contains("leader_election_master_status"), "{metrics}");
        seen.probes += 1;
        ensure!(seen.probe.max(seen.scrape) < ANSWER, "too slow: {seen:?}");
        seen.memory = seen.memory.max(memory(pid)?);
        sleep(Duration::from_millis(200)).await;
    }
    Ok(seen)
}

/// MiB that a process had in memory at most.
fn memory(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024)
}
