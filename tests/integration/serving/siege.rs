//! The daemon as a process, with an election, while clients without credentials attack its port: from this
//! machine, and from many addresses in a network namespace.

use std::{
    cell::Cell,
    net::{IpAddr, Ipv4Addr},
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api as KubeApi;
use tempfile::TempDir;
use test_env::StartError;
use tokio::time::{Instant, sleep};

use super::{
    attackers::{Attack, Camp, Siege},
    curl::{Answer, Curl},
    process::arguments,
};
use crate::{
    api::{Api, Target},
    daemon::{DaemonProcess, binary, peak_memory},
    lag::Stopwatch,
    scenarios::Trials,
    support::eventually,
    trial::{Outcome, runtime},
};

/// The variable with the duration of each attack in a soak.
const SECONDS: &str = "CCM_SOAK_SECONDS";

/// The duration of each attack in a test.
const SHORT: Duration = Duration::from_secs(2);

/// The memory limit in MiB, for the daemon and for the kernel's buffers of its connections. The manifests
/// allow 512.
const MEMORY: u64 = 128;

/// The longest time between two renewals: a pause of two seconds, and five more on a busy machine.
const RENEWAL: Duration = Duration::from_secs(7);

/// Prometheus' timeout, which is less than the time in which failed probes make a kubelet restart the daemon.
/// It is not shorter, since this is a debug build that runs beside other tests.
const ANSWER: Duration = Duration::from_secs(10);

/// Set if this program runs in the namespaces for the siege from many addresses.
const INSIDE: &str = "CCM_SIEGE_INSIDE";

const FROM_HERE: &str = "apiserver::serving::a_leader_under_siege_leads_and_answers";
const FROM_MANY: &str = "apiserver::serving::a_leader_under_siege_from_many_addresses_leads_and_answers";

/// The network of the namespace, with addresses of the daemon, honest clients and attackers.
const NETWORK: &str = "198.51.100.0/24";

fn in_network(last: u8) -> IpAddr {
    Ipv4Addr::new(198, 51, 100, last).into()
}

/// All attacks, and their numbers of connections.
const ATTACKS: &[(Attack, usize)] = &[
    (Attack::ManyCertificates, 16),
    (Attack::EqualCertificates, 16),
    (Attack::TrustedName, 16),
    (Attack::Handshakes, 300),
    (Attack::Fields(1900), 128),
    (Attack::Fields(450), 128),
    (Attack::Unread, 128),
    (Attack::UnreadMetrics, 128),
    (Attack::Resets, 64),
    (Attack::Continuations, 128),
    (Attack::SlowBodies, 128),
    (Attack::Pings, 128),
    (Attack::Requests, 128),
    (Attack::Tokens, 128),
    (Attack::Silence, 300),
    (Attack::Churn, 64),
];

/// Attacks on resources that all addresses share. Where the CPU is the bottleneck, each address has one
/// connection.
const SHARED: &[(Attack, usize)] = &[
    (Attack::Handshakes, 400),
    (Attack::Fields(450), 190),
    (Attack::UnreadMetrics, 190),
    (Attack::Requests, 190),
    (Attack::Tokens, 190),
    (Attack::Silence, 400),
    (Attack::Churn, 64),
];

/// Without the time limit of scenarios: a soak takes longer, and each of its steps has a time limit.
pub(super) fn trials() -> Trials {
    Trials::new().trial(FROM_HERE, from_here).trial(FROM_MANY, from_many)
}

fn from_here() -> Outcome {
    runtime(false)?.block_on(async {
        let api = Api::connect(Target::ApiServer).await?;
        Ok(siege(&api, ATTACKS, &[], &[None]).await?)
    })
}

fn from_many() -> Outcome {
    if std::env::var_os(INSIDE).is_none() {
        return in_namespaces();
    }
    runtime(false)?.block_on(async {
        let api = Api::connect(Target::ApiServer).await?;
        // One client from an address that is not an attacker's, and one from the machine itself.
        let honest = [Some(in_network(250)), None];
        let attackers: Vec<IpAddr> = (10..200).map(in_network).collect();
        Ok(siege(&api, SHARED, &attackers, &honest).await?)
    })
}

/// Runs this trial once more, alone, in a network namespace that owns all addresses of a network: a client
/// that uses another address than the server looks like another machine.
fn in_namespaces() -> Outcome {
    let can = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        let why = "network namespaces take root, unshare and ip: no siege from many addresses".to_owned();
        return Err(StartError::Unavailable(why));
    }
    let program = std::env::current_exe().context("this program")?;
    let script = format!("ip link set lo up && ip route add local {NETWORK} dev lo && exec \"$@\"");
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", &script, "sh"])
        .arg(program)
        .args(["--nocapture", "--exact", FROM_MANY])
        .env(INSIDE, "1")
        .output()
        .context("unshare")?;
    let said = String::from_utf8_lossy(&output.stdout);
    // Omit the lines with test counts, which a reader of our output would add to ours.
    for line in said.lines().filter(|line| line.contains("Seen {")) {
        println!("{line}");
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(anyhow::anyhow!("in its namespace: {said}\n{errors}").into());
    }
    // Its peers may be unavailable there too.
    if said.contains("1 passed") { Ok(()) } else { Err(StartError::Unavailable(format!("{said}\n{errors}"))) }
}

/// Measurements of the daemon.
#[derive(Debug, Default)]
struct Seen {
    probe: Duration,
    scrape: Duration,
    probes: usize,
    /// The number of requests without a response at the first try.
    again: usize,
    renewal: Duration,
    /// Memory of the process in MiB.
    memory: u64,
    /// Kernel memory for its connections in MiB, if that can be measured.
    kernel: u64,
}

/// How the daemon is asked.
#[derive(Clone, Copy)]
struct Asked<'a> {
    port: u16,
    pid: u32,
    token: &'a str,
    /// The addresses of honest clients; `None` means loopback.
    honest: &'a [Option<IpAddr>],
    attack: Attack,
}

/// `attackers`: their addresses. If empty, they use loopback.
async fn siege(
    api: &Api,
    attacks: &[(Attack, usize)],
    attackers: &[IpAddr],
    honest: &[Option<IpAddr>],
) -> anyhow::Result<()> {
    binary()?;
    let limit = std::env::var(SECONDS).ok().and_then(|seconds| seconds.parse().ok());
    let limit = limit.map_or(SHORT, Duration::from_secs);
    let folder = TempDir::new()?;
    let port = test_env::free_port()?;
    let mut arguments = arguments(api, &folder, port)?;
    arguments.retain(|argument| !argument.starts_with("--bind-address"));
    arguments.push(format!("--bind-address={}", if attackers.is_empty() { "127.0.0.1" } else { "0.0.0.0" }));
    arguments.push("--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics".to_owned());
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
    let target = if attackers.is_empty() { Ipv4Addr::LOCALHOST.into() } else { in_network(1) };
    let camp = Camp {
        target: (target, port).into(),
        addresses: attackers.to_vec(),
        authority: "test-env-ca".to_owned(),
    };
    let token = api.control_plane.as_ref().context("the control plane")?.admin_token();
    for &(attack, connections) in attacks {
        let attackers = Siege::begin(&camp, attack, connections)?;
        let stopwatch = Stopwatch::start();
        let seen = watch(&leases, Asked { port, pid, token, honest, attack }, limit).await;
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
        stopwatch.judge(seen.renewal, RENEWAL, &format!("{attack:?}: a renewal"))?;
        stopwatch.judge(seen.probe.max(seen.scrape), ANSWER, &format!("{attack:?}: an answer"))?;
        ensure!(seen.memory + seen.kernel < MEMORY, "{attack:?}: {seen:?}");
    }
    daemon.terminate()
}

async fn spec(leases: &KubeApi<Lease>) -> anyhow::Result<k8s_openapi::api::coordination::v1::LeaseSpec> {
    leases.get("cloud-controller-manager").await?.spec.context("a lease")
}

/// Sends requests as the kubelet and Prometheus do, and watches the lease. The caller judges how long the responses took.
async fn watch(leases: &KubeApi<Lease>, asked: Asked<'_>, limit: Duration) -> anyhow::Result<Seen> {
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
        seen = ask(asked, limit) => Ok(Seen { renewal: longest.get(), ..seen? }),
        error = renewals => error,
    }
}

async fn ask(asked: Asked<'_>, limit: Duration) -> anyhow::Result<Seen> {
    let start = Instant::now();
    let mut seen = Seen::default();
    while start.elapsed() < limit {
        for from in asked.honest {
            let (_, took, again) = answered(asked, *from, "/livez").await?;
            seen.probe = seen.probe.max(took);
            seen.again += again;
            let (metrics, took, again) = answered(asked, *from, "/metrics").await?;
            ensure!(metrics.contains("leader_election_master_status"), "{metrics}");
            seen.scrape = seen.scrape.max(took);
            seen.again += again;
            seen.probes += 1;
        }
        seen.memory = seen.memory.max(peak_memory(asked.pid)?);
        seen.kernel = seen.kernel.max(kernel_memory(asked.port));
        sleep(Duration::from_millis(200)).await;
    }
    Ok(seen)
}

/// The body of a successful response, the time that it took, and the number of failed tries before. A
/// connection that was closed before the end of the response is tried again, as the kubelet and Prometheus do:
/// the server cannot tell honest clients from attackers with the same address.
async fn answered(
    asked: Asked<'_>,
    from: Option<IpAddr>,
    path: &str,
) -> anyhow::Result<(String, Duration, usize)> {
    let Asked { port, token, attack, .. } = asked;
    let (began, mut failures) = (Instant::now(), Vec::new());
    loop {
        let sent = Instant::now();
        let curl = match from {
            Some(from) => Curl::get(&format!("https://{}:{port}{path}", in_network(1)))
                .args(["--interface", &from.to_string()]),
            None => Curl::get(&format!("https://127.0.0.1:{port}{path}")),
        };
        let curl = if path == "/metrics" { curl.token(token) } else { curl };
        let answer = curl.send().await?;
        let took = began.elapsed();
        if answer.status == 200 && answer.is_whole {
            return Ok((answer.text(), took, failures.len()));
        }
        let Answer { status, error, .. } = &answer;
        let (at, error) = (sent - began, error.trim());
        failures.push(format!(
            "sent at {at:?}, after {:?}: {status} {error} {}",
            sent.elapsed(),
            answer.text()
        ));
        if took >= test_env::PATIENCE || (status != &0 && answer.is_whole) {
            let from = from.map_or("loopback".to_owned(), |from| from.to_string());
            bail!("{attack:?}: {path} from {from} is not answered 200: {failures:#?}");
        }
    }
}

/// Kernel memory in MiB for connections to this port: received data, and data that waits to be sent. 0 if
/// `ss` is missing.
fn kernel_memory(port: u16) -> u64 {
    let filter = format!("sport = :{port}");
    let output = Command::new("ss").args(["--tcp", "--memory", "--numeric", "--no-header", &filter]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let of = |kind: &str| -> u64 {
        let parts = text.split(['(', ',', ')']);
        let counts = parts.filter_map(|part| part.strip_prefix(kind)?.parse::<u64>().ok());
        counts.sum()
    };
    // Received data, data to be sent, and memory reserved for more.
    (of("r") + of("w") + of("f")) >> 20
}
