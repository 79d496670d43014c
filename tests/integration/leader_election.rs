//! Two daemons, one leader: which one leads, which one takes over, and when.

mod go;
mod go_binary;
mod migration;
mod never_two;
mod process;
mod second_signal;
pub(crate) mod timeline;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use ccm::{
    events::{EventMetrics, EventObject, event_recorder},
    leader_election::{ElectionMetrics, Elector, LeaderElectionOptions, Leadership, Lost, Record},
    metrics::MetricSet as _,
};
use cloudprovider::CloudProvider;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Client,
    api::{ObjectMeta, PostParams},
};
use sandbox::{Action, Fault, Matcher, kubelet};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    api::Api,
    daemon::InProcess,
    fake_cloud::{FakeCloud, Lookups, running},
    scenarios::Trials,
    support::*,
    trial,
};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "cloud-controller-manager";

/// Short terms, so that a crash does not cost a test on the real API server a minute. In real time a leader that has much beside it
/// must be able to renew.
fn terms() -> Terms {
    let seconds = if trial::is_paused() { (4, 3) } else { (10, 8) };
    Terms { lease: Duration::from_secs(seconds.0), renew: Duration::from_secs(seconds.1) }
}

/// Terms that do not expire while a test runs: where another candidate leads, the Lease was released or taken.
const ENDLESS: Terms = Terms { lease: Duration::from_hours(2), renew: Duration::from_hours(1) };

#[derive(Clone, Copy)]
struct Terms {
    lease: Duration,
    renew: Duration,
}

impl Terms {
    fn flags(self) -> [String; 3] {
        [
            format!("--leader-elect-lease-duration={}s", self.lease.as_secs()),
            format!("--leader-elect-renew-deadline={}s", self.renew.as_secs()),
            "--leader-elect-retry-period=500ms".to_owned(),
        ]
    }

    /// A daemon in this process with these terms.
    fn start(
        self,
        client: &Client,
        provider: Arc<dyn CloudProvider>,
        more: &[&str],
    ) -> anyhow::Result<InProcess> {
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        InProcess::start_elected(client, provider, &flags)
    }

    /// Longer than a term.
    fn and_some(self) -> Duration {
        self.lease + Duration::from_secs(2)
    }
}

pub(crate) fn trials() -> Trials {
    Trials::new()
        .both("leader_election::one_of_two_leads_and_hands_over_within_a_second", hand_over)
        .previous("leader_election::one_of_two_leads_and_hands_over_within_a_second", hand_over)
        .sandbox("leader_election::after_a_crash_the_lease_has_to_expire", crash)
        .both("leader_election::a_leader_whose_lease_is_taken_ends", taken)
        .sandbox("leader_election::the_wall_clock_of_a_rival_does_not_matter", skewed)
        .both("leader_election::a_deleted_lease_is_made_again", deleted)
        .sandbox("leader_election::a_short_outage_is_survived_a_long_one_is_not", outage)
        .sandbox("leader_election::work_under_way_ends_before_the_lease_is_given_back", slow_work)
        .sandbox("leader_election::a_lost_answer_is_found_out", lost_answers)
        .and(never_two::trials())
        .and(process::trials())
        .and(second_signal::trials())
        .and(go::trials())
        .and(go_binary::trials())
        .and(migration::trials())
}

fn leases(client: &Client) -> kube::Api<Lease> {
    kube::Api::namespaced(client.clone(), NAMESPACE)
}

pub(crate) async fn record(client: &Client) -> anyhow::Result<Record> {
    record_of(client, NAME).await
}

async fn record_of(client: &Client, name: &str) -> anyhow::Result<Record> {
    Ok(Record::read(leases(client).get(name).await?.spec.as_ref()))
}

fn options(identity: &str) -> LeaderElectionOptions {
    options_with(identity, terms())
}

fn options_with(identity: &str, terms: Terms) -> LeaderElectionOptions {
    LeaderElectionOptions {
        identity: identity.to_owned(),
        namespace: NAMESPACE.to_owned(),
        name: NAME.to_owned(),
        lease_duration: terms.lease,
        renew_deadline: terms.renew,
        retry_period: Duration::from_millis(500),
    }
}

/// A candidate without the rest of a daemon.
fn elector(client: &Client, options: LeaderElectionOptions) -> anyhow::Result<Elector> {
    // The recorder has no client, so it drops the events.
    let daemon = EventObject::lease(NAMESPACE, NAME, "");
    let (events, _) = event_recorder("ccm", client.clone(), daemon, EventMetrics::unregistered()?);
    Ok(Elector::new(client.clone(), options, &events, ElectionMetrics::unregistered()?))
}

async fn lead(client: &Client, options: LeaderElectionOptions) -> anyhow::Result<Leadership> {
    let never = CancellationToken::new();
    let limit = patience(Duration::from_secs(30));
    let acquired = timeout(limit, elector(client, options)?.acquire(&never)).await;
    acquired.context("not acquired in time")?.context("stopped")
}

/// Writes the Lease as a rival with this wall clock would, whatever its holder.
async fn write(client: &Client, record: &Record) -> anyhow::Result<()> {
    write_to(client, NAME, record).await
}

async fn write_to(client: &Client, name: &str, record: &Record) -> anyhow::Result<()> {
    let api = leases(client);
    let (spec, params) = (Some(record.write()), PostParams::default());
    match api.get_opt(name).await? {
        Some(lease) => api.replace(name, &params, &Lease { spec, ..lease }).await?,
        None => {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            api.create(&params, &Lease { metadata, spec }).await?
        }
    };
    Ok(())
}

fn rivals(renewed: Timestamp) -> Record {
    Record {
        holder: "rival".to_owned(),
        duration_seconds: i32::try_from(terms().lease.as_secs()).unwrap_or(i32::MAX),
        acquired: Some(renewed),
        renewed: Some(renewed),
        transitions: 7,
    }
}

async fn leads(daemon: &InProcess, limit: Duration) -> anyhow::Result<()> {
    let limit = patience(limit);
    let deadline = Instant::now() + limit;
    while !daemon.leads() {
        ensure!(Instant::now() < deadline, "does not lead within {limit:?}");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn initialized(api: &Api, number: usize) -> anyhow::Result<()> {
    let name = format!("n{number}");
    kubelet::register(&api.client, &kubelet::node(&name, &uuid(number))).await?;
    node_becomes(&api.client, &name, Duration::from_secs(20), "initialized", is_initialized).await?;
    Ok(())
}

/// Asserts that a whole term passed between the last renewal and the take-over. For real time only: a paused
/// clock does not pause the wall clock.
fn expired(left: &Record, taken: &Record) -> anyhow::Result<()> {
    unchanged_for(f64::from(left.duration_seconds), left, taken)
}

/// The same for a take-over by client-go. It compares records with times in whole seconds, so it does not
/// notice a renewal in the same second as the one before.
fn expired_for_go(left: &Record, taken: &Record) -> anyhow::Result<()> {
    unchanged_for(f64::from(left.duration_seconds - 1), left, taken)
}

fn unchanged_for(seconds: f64, left: &Record, taken: &Record) -> anyhow::Result<()> {
    let (renewed, acquired) = (left.renewed.context("renewed")?, taken.acquired.context("acquired")?);
    ensure!(left.holder != taken.holder && !left.holder.is_empty(), "{left:?} {taken:?}");
    ensure!(acquired.duration_since(renewed).as_secs_f64() >= seconds, "{left:?} {taken:?}");
    Ok(())
}

async fn hand_over(api: &Api) -> anyhow::Result<()> {
    let (cloud, idle) = (FakeCloud::new(), FakeCloud::new());
    for number in 0..3 {
        cloud.put(&uuid(number), running(number));
        idle.put(&uuid(number), running(number));
    }
    let first = ENDLESS.start(&api.client, cloud.provider(), &[])?;
    leads(&first, Duration::from_secs(5)).await?;
    let second = ENDLESS.start(&api.daemon_client, idle.provider(), &[])?;
    initialized(api, 0).await?;
    eventually(Duration::from_secs(6), "the leader renews, and the standby watches", || async {
        let held = record(&api.client).await?;
        Ok((held.renewed > held.acquired && api.requests.of("GET nodes") > 0).then_some(()))
    })
    .await?;
    ensure!(first.leads() && !second.leads());
    ensure!(idle.lookups() == 0 && api.requests.writes().is_empty(), "a standby only looks");

    // The Lease as client-go would write it.
    let held = record(&api.client).await?;
    ensure!(held.holder.split_once('_').is_some_and(|(_, uuid)| uuid.len() == 36), "{held:?}");
    ensure!(held.duration_seconds == 7200 && held.transitions == 0, "{held:?}");
    ensure!(held.acquired.is_some(), "{held:?}");
    let became = event(&api.client, NAMESPACE, NAME, "LeaderElection").await?;
    ensure!(became.message == Some(format!("{} became leader", held.holder)), "{:?}", became.message);
    ensure!(became.source.and_then(|s| s.component).as_deref() == Some(NAME));
    ensure!(became.involved_object.kind.as_deref() == Some("Lease") && became.involved_object.uid.is_some());

    let start = Instant::now();
    let stopped = tokio::spawn(first.stop());
    leads(&second, Duration::from_secs(5)).await?;
    let took = start.elapsed();
    println!("hand-over after a clean stop took {took:?}");
    // In real time the machine decides. That it leads at all shows the release.
    ensure!(api.sandbox.is_none() || took < Duration::from_secs(1), "hand-over took {took:?}");
    stopped.await??;
    initialized(api, 1).await?;
    ensure!(idle.lookups() > 0, "the second one works now");
    let taken = record(&api.client).await?;
    ensure!(taken.transitions == 1 && taken.holder != held.holder, "{taken:?}");

    second.stop().await?;
    let released = record(&api.client).await?;
    ensure!(released.holder.is_empty() && released.duration_seconds == 1, "{released:?}");
    ensure!(released.transitions == 1 && released.renewed == released.acquired, "{released:?}");
    Ok(())
}

async fn slow_work(api: &Api) -> anyhow::Result<()> {
    let faults = api.sandbox.as_ref().context("the sandbox")?.faults();
    let cloud = FakeCloud::new();
    // A write that ends in time, and one that does not: then the Lease must expire.
    for (number, slow, expected) in [(0, 5, 4.8..5.2), (1, 60, 12.0..15.5)] {
        cloud.put(&uuid(number), running(number));
        let first = terms().start(&api.client, cloud.provider(), &[])?;
        leads(&first, Duration::from_secs(10)).await?;
        let idle = FakeCloud::new();
        let second = terms().start(&api.client, idle.provider(), &[])?;
        let patches = Matcher::any().verb("patch").resource("nodes").subresource("status");
        let delay = Action::Delay(Duration::from_secs(slow));
        faults.inject(Fault::new(patches, delay));
        let node = kubelet::node(&format!("n{number}"), &uuid(number));
        kubelet::register(&api.client, &node).await?;
        sleep(Duration::from_millis(100)).await;
        let start = Instant::now();
        let stopping = tokio::spawn(first.stop());
        leads(&second, Duration::from_secs(30)).await?;
        let took = start.elapsed().as_secs_f64();
        ensure!(expected.contains(&took), "{slow} s: handed over after {took}");
        ensure!(is_initialized(&nodes(&api.client).get(&format!("n{number}")).await?) == (slow == 5));
        faults.clear();
        stopping.await??;
        second.stop().await?;
    }
    Ok(())
}

async fn crash(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    cloud.put(&uuid(0), running(0));
    let first = terms().start(&api.client, cloud.provider(), &[])?;
    leads(&first, Duration::from_secs(5)).await?;
    let second = terms().start(&api.client, cloud.provider(), &[])?;
    // In the middle of a term.
    sleep(Duration::from_millis(2750)).await;
    let start = Instant::now();
    first.crash().await;
    let left = record(&api.client).await?;
    leads(&second, Duration::from_secs(20)).await?;
    let took = start.elapsed();
    println!("take-over after a crash took {took:?} with a lease of {:?}", terms().lease);
    if api.sandbox.is_some() {
        // The last renewal was up to one retry period before the crash; the standby noticed it up to 2.2 of
        // those periods later.
        let expected = Duration::from_millis(3_450)..Duration::from_millis(5_200);
        ensure!(expected.contains(&took), "took {took:?}");
    } else {
        expired(&left, &record(&api.client).await?)?;
    }
    initialized(api, 0).await?;
    second.stop().await
}

async fn taken(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    let daemon = ENDLESS.start(&api.client, cloud.provider(), &[])?;
    leads(&daemon, Duration::from_secs(5)).await?;
    let metrics = daemon.counted::<ElectionMetrics>();
    write(&api.client, &rivals(Timestamp::now())).await?;
    let limit = patience(Duration::from_secs(5));
    let error = timeout(limit, daemon.ended()).await?.expect_err("it has to end");
    ensure!(error.is::<Lost>() && format!("{error:#}") == "leaderelection lost", "{error:#}");
    ensure!(metrics.leader_election_master_status.with_label_values(&[NAME]).get() == 0);
    ensure!(record(&api.client).await?.holder == "rival", "the rival's lease is left alone");
    let events: kube::Api<k8s_openapi::api::core::v1::Event> =
        kube::Api::namespaced(api.client.clone(), NAMESPACE);
    let all = events.list(&kube::api::ListParams::default()).await?.items;
    let said = |end: &str| all.iter().any(|e| e.message.as_deref().is_some_and(|m| m.ends_with(end)));
    ensure!(said(" became leader") && said(" stopped leading"));
    Ok(())
}

async fn skewed(api: &Api) -> anyhow::Result<()> {
    let hour = jiff::SignedDuration::from_hours(1);
    for (identity, skew) in [("late", -hour), ("early", hour)] {
        // On a machine that is late, the rival may be too.
        while !rival_renews(api, identity, skew).await? {
            println!("{identity}: the rival did not renew in time, so it begins again");
        }
    }
    Ok(())
}

/// A rival with this wall clock renews for more than a term, then stops. `false`: it was so late that the candidate had to take over
/// before.
async fn rival_renews(api: &Api, identity: &str, skew: jiff::SignedDuration) -> anyhow::Result<bool> {
    let wall = || Timestamp::now() + skew;
    write(&api.client, &rivals(wall())).await?;
    let candidate = elector(&api.client, options(identity))?;
    let acquiring = tokio::spawn(async move {
        let leadership = candidate.acquire(&CancellationToken::new()).await;
        leadership.map(|leadership| (leadership, Instant::now()))
    });
    let (mut renewed, end) = (Instant::now(), Instant::now() + terms().and_some());
    while Instant::now() < end && !acquiring.is_finished() {
        sleep(Duration::from_secs(1)).await;
        let now = Instant::now();
        if record(&api.client).await?.holder == "rival" && write(&api.client, &rivals(wall())).await.is_ok() {
            renewed = now;
        }
    }
    let was_late = acquiring.is_finished();
    let limit = patience(Duration::from_secs(10));
    let (leadership, since) = timeout(limit, acquiring).await??.context("stopped")?;
    let waited = since - renewed;
    ensure!(waited >= terms().lease, "{identity}: took over after {waited:?}");
    ensure!(record(&api.client).await?.transitions == 8);
    leadership.release().await;
    ensure!(!was_late || !trial::is_paused(), "{identity}: took over from a rival that renews");
    Ok(!was_late)
}

async fn deleted(api: &Api) -> anyhow::Result<()> {
    let mut leadership = lead(&api.client, options_with("a", ENDLESS)).await?;
    leases(&api.client).delete(NAME, &kube::api::DeleteParams::default()).await?;
    let made_again = eventually(Duration::from_secs(3), "the Lease is made again", || async {
        Ok(leases(&api.client).get_opt(NAME).await?.is_some().then_some(()))
    });
    tokio::select! {
        lost = leadership.renew() => bail!("nobody else led: {lost:?}"),
        made = made_again => made?,
    }
    let again = record(&api.client).await?;
    ensure!(again.holder == "a" && again.transitions == 0, "{again:?}");
    leadership.release().await;
    Ok(())
}

async fn outage(api: &Api) -> anyhow::Result<()> {
    let faults = api.sandbox.as_ref().context("the sandbox")?.faults();
    // With upstream's default timing.
    let options = LeaderElectionOptions {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
        ..options("a")
    };
    let never = CancellationToken::new();
    for action in [
        Action::ServiceUnavailable,
        Action::ResetConnection,
        Action::TooManyRequests(1),
        Action::Delay(Duration::from_secs(60)),
    ] {
        let candidate = elector(&api.client, options.clone())?;
        let mut leadership = candidate.acquire(&never).await.context("stopped")?;
        let out = || faults.inject(Fault::new(Matcher::any().resource("leases"), action.clone()));
        out();
        ensure!(timeout(Duration::from_secs(9), leadership.renew()).await.is_err(), "{action:?}: 9 s");
        faults.clear();
        ensure!(timeout(Duration::from_secs(60), leadership.renew()).await.is_err(), "{action:?}: healed");
        out();
        let start = Instant::now();
        timeout(Duration::from_secs(60), leadership.renew()).await.context("it has to give up")?;
        let took = start.elapsed().as_secs_f64();
        ensure!((10.0..=12.1).contains(&took), "{action:?}: gave up after {took}");
        faults.clear();
        leadership.release().await;
    }
    Ok(())
}

async fn lost_answers(api: &Api) -> anyhow::Result<()> {
    let faults = api.sandbox.as_ref().context("the sandbox")?.faults();
    let lose = |verb: &str| {
        faults
            .inject(Fault::new(Matcher::any().resource("leases").verb(verb), Action::LoseResponse).times(1));
    };
    lose("create");
    let mut leadership = lead(&api.client, options("a")).await?;
    ensure!(record(&api.client).await?.transitions == 0, "our own lease is not taken over");
    lose("update");
    ensure!(timeout(Duration::from_secs(20), leadership.renew()).await.is_err());
    lose("update");
    leadership.release().await;
    ensure!(record(&api.client).await?.holder.is_empty());
    Ok(())
}
