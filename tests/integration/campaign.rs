//! Faults without end on a real API server: a seeded sequence of them meets the cloud, the API server, the way to it,
//! the daemons and the Nodes, and a judge that knows what is true looks at every deletion and every write.
//!
//! ```text
//!   faults (seed) ──> inject ──> world (what is true) <── kubelets, cloud
//!                        │                  │
//!         daemons ── proxy ── API server    └──> judge <── proxy, audit log, watch of the Nodes
//! ```
//!
//! `make soak` runs it for minutes or hours; a short one is a test among the others. docs/reliability.md says what is
//! injected and what is checked.

mod audit;
mod cloud;
mod daemons;
mod faults;
mod inject;
mod judge;
mod judge_tests;
mod kubelets;
mod observer;
mod provider;
mod proxy;
mod report;
mod world;

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU32},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use ccm::{manifests::ManifestOptions, permissions};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use libtest_mimic::Trial;
use tempfile::TempDir;
use test_env::{ControlPlane, ControlPlaneOptions, StartError};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    api,
    daemon::parse,
    shipped_roles,
    support::nodes,
    trial::{Outcome, trial},
};
use audit::{Answered, AuditLog};
use cloud::Cloud;
use daemons::{Common, Daemon};
use faults::{Focus, Sequence, Shape};
use inject::Stage;
use judge::Deletion;
use proxy::Proxy;
use report::Report;
use world::{Micros, SECOND, World, now};

/// The defaults of `--node-deletion-breaker-count` and `--node-deletion-breaker-percent`.
const BREAKER_COUNT: usize = 3;
const BREAKER_PERCENT: usize = 20;

const DAEMONS: usize = 3;

/// What a process of the daemon may allocate, in KiB.
const MEMORY_LIMIT: u64 = 100 * 1024;

/// How long a leader may be without a watch of Nodes while its other requests are answered.
const WITHOUT_WATCH: Micros = 15 * SECOND;

/// How long writes to one Node may be refused as invalid.
const REFUSED: Micros = 8 * SECOND;

/// How long a campaign is, and what repeats it.
#[derive(Clone, Copy, Debug)]
struct Options {
    seed: u64,
    nodes: usize,
    /// How long faults come.
    time: Duration,
    /// After so long nothing is disturbed until all is as it is to be.
    epoch: Duration,
    /// How long that may take.
    settles_within: Duration,
    is_short: bool,
    focus: Focus,
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![trial("apiserver::campaign::a_short_one_deletes_nothing_wrong", short)];
    trials.extend(judge_tests::trials());
    trials
}

fn short() -> Outcome {
    let options = Options {
        seed: 14,
        nodes: 40,
        time: Duration::from_secs(20),
        epoch: Duration::from_secs(20),
        settles_within: Duration::from_secs(150),
        is_short: true,
        focus: Focus::Everything,
    };
    let report = run(options)?;
    println!("{}", report.in_one_line());
    report.verdict()?;
    Ok(())
}

/// What this binary is when it is not the tests: the daemon of a campaign, or a long campaign.
pub(crate) fn other_main() -> Option<ExitCode> {
    if let Some(code) = daemons::main_of_process() {
        return Some(code);
    }
    let mut arguments = std::env::args().skip(1);
    (arguments.next().as_deref() == Some("soak")).then(|| match soak(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartError::Unavailable(why)) => {
            eprintln!("soak: it cannot run on this machine: {why}");
            ExitCode::from(3)
        }
        Err(StartError::Failed(error)) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    })
}

/// `soak [seconds=N] [seed=N] [nodes=N] [focus=freezes|leaders]`
fn soak(arguments: impl Iterator<Item = String>) -> Result<(), StartError> {
    let mut options = Options {
        seed: fastrand::u64(..1_000_000),
        nodes: 200,
        time: Duration::from_secs(600),
        epoch: Duration::from_secs(240),
        settles_within: Duration::from_secs(240),
        is_short: false,
        focus: Focus::Everything,
    };
    for argument in arguments {
        let number = |text: &str| {
            let what =
                || format!("{argument:?}: want seconds=N, seed=N, nodes=N, focus=freezes or focus=leaders");
            text.parse::<u64>().with_context(what)
        };
        match argument.split_once('=') {
            Some(("seconds", value)) => options.time = Duration::from_secs(number(value)?),
            Some(("seed", value)) => options.seed = number(value)?,
            Some(("nodes", value)) => {
                options.nodes = usize::try_from(number(value)?).context("so many nodes")?;
            }
            Some(("focus", "freezes")) => options.focus = Focus::Freezes,
            Some(("focus", "leaders")) => options.focus = Focus::Leaders,
            _ => drop(number("")?),
        }
    }
    if !(20..=5000).contains(&options.nodes) {
        return Err(anyhow::anyhow!("nodes={}: 20 to 5000 make sense", options.nodes).into());
    }
    let report = run(options)?;
    println!("{report}");
    Ok(report.verdict()?)
}

fn run(options: Options) -> Result<Report, StartError> {
    // Daemons and API server want the cores.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(anyhow::Error::from)?.block_on(campaign(options))
}

async fn campaign(options: Options) -> Result<Report, StartError> {
    let folder = TempDir::new().map_err(anyhow::Error::from)?;
    let (audit_log, flags) = AuditLog::new(folder.path())?;
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    let control_plane = flags
        .iter()
        .fold(ControlPlaneOptions::default(), |options, flag| options.api_server_flag(flag))
        .user(shipped_roles::USER, &groups);
    let started = tokio::task::spawn_blocking(move || ControlPlane::start(&control_plane)).await;
    let control_plane = Arc::new(started.map_err(anyhow::Error::from)??);
    let outcome = Campaign::start(options, &folder, audit_log, control_plane).await?.run().await;
    if outcome.as_ref().map_or(true, |report| !report.is_good()) {
        println!("the logs are in {}", folder.keep().display());
    }
    Ok(outcome?)
}

struct Campaign {
    options: Options,
    stage: Stage,
    common: Arc<Common>,
    proxy: Proxy,
    audit_log: AuditLog,
    calm: watch::Sender<bool>,
    /// What the watch of the Nodes found.
    observed: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
    tasks: JoinSet<anyhow::Result<()>>,
    report: Report,
    begin: Instant,
    told: Instant,
    looked: Micros,
    /// How long the leader has been without a watch of Nodes though its requests are answered.
    without_watch: Micros,
    /// Process and Node -> since when its writes there are refused as invalid.
    refused: HashMap<(u32, String), Micros>,
}

impl Campaign {
    async fn start(
        options: Options,
        folder: &TempDir,
        audit_log: AuditLog,
        control_plane: Arc<ControlPlane>,
    ) -> anyhow::Result<Self> {
        shipped_roles::bind(
            &control_plane,
            &ManifestOptions::new("libvirt"),
            &permissions::needed(&parse(&[])?),
        )
        .await?;
        let client = api::client(control_plane.kubeconfig()).await?;
        let world = World::new(options.nodes);
        let cloud = Cloud::start(world.clone()).await?;
        let proxy = Proxy::start(control_plane.kubeconfig(), DAEMONS, world.clone()).await?;
        let common = Arc::new(Common {
            world: world.clone(),
            folder: folder.path().to_owned(),
            cloud_port: cloud.port,
            token: control_plane.token_for(shipped_roles::USER)?.to_owned(),
            password: format!("secret-{:016x}", fastrand::u64(..)),
            lives: AtomicU32::new(0),
            rules: Mutex::default(),
            faults: Mutex::default(),
            most_memory: Mutex::default(),
            is_short: options.is_short,
            rng: Mutex::new(fastrand::Rng::with_seed(options.seed)),
        });
        let daemons: Vec<_> = proxy.ways.iter().map(|way| Daemon::new(way.clone(), common.clone())).collect();
        let (calm, calm_seen) = watch::channel(true);
        let stage = Stage::new(world, cloud, daemons, control_plane, client, calm_seen);
        let mut campaign = Self {
            options,
            stage,
            common,
            proxy,
            audit_log,
            calm,
            observed: Arc::default(),
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
            report: Report::new(options.seed, options.nodes),
            begin: Instant::now(),
            told: Instant::now(),
            looked: now(),
            without_watch: 0,
            refused: HashMap::new(),
        };
        campaign.start_tasks();
        Ok(campaign)
    }

    fn start_tasks(&mut self) {
        let Stage { world, client, daemons, .. } = self.stage.clone();
        for number in 0..self.options.nodes {
            let (world, client, stop) = (world.clone(), client.clone(), self.stop.clone());
            self.tasks.spawn(async move {
                kubelets::run(number, world, client, stop).await;
                Ok(())
            });
        }
        for daemon in daemons {
            self.tasks.spawn(daemon.keep(self.stop.clone()));
        }
        let (stop, observed) = (self.stop.clone(), self.observed.clone());
        self.tasks.spawn({
            let (world, client, stop) = (world.clone(), client.clone(), stop.clone());
            async move {
                observer::run(world, client, observed, stop).await;
                Ok(())
            }
        });
        self.tasks.spawn({
            let (world, stop) = (world.clone(), stop.clone());
            async move {
                kubelets::controller_manager(world, client, stop).await;
                Ok(())
            }
        });
        self.tasks.spawn(async move {
            while stop.run_until_cancelled(sleep(Duration::from_millis(100))).await.is_some() {
                world.lock().watch_limit();
            }
            Ok(())
        });
    }

    async fn run(mut self) -> anyhow::Result<Report> {
        self.settle("at the start").await?;
        let shape = Shape {
            nodes: self.options.nodes,
            daemons: DAEMONS,
            rate: (self.options.nodes as f64 / 40.0).max(5.0),
            is_short: self.options.is_short,
            focus: self.options.focus,
        };
        let mut sequence = Sequence::new(self.options.seed, shape).peekable();
        // The time of the faults, without the pauses in which all has to settle.
        let mut done = Duration::ZERO;
        let mut disturbing = JoinSet::new();
        while done < self.options.time {
            let epoch = self.options.epoch.min(self.options.time - done);
            self.calm.send_replace(false);
            let begin = Instant::now();
            while begin.elapsed() < epoch {
                let next_look = Instant::now() + Duration::from_secs(1);
                while let Some(planned) =
                    sequence.next_if(|planned| begin + planned.at.saturating_sub(done) < next_look)
                {
                    sleep_until(begin + planned.at.saturating_sub(done)).await;
                    self.stage.inject(planned, &mut disturbing);
                    while disturbing.try_join_next().is_some() {}
                }
                sleep_until(next_look).await;
                self.look().await?;
                self.progress("");
            }
            done += epoch;
            self.calm_down().await?;
            self.settle(&format!("after {} s of faults", done.as_secs())).await?;
        }
        self.end().await
    }

    /// Ends what disturbs more than single Nodes.
    async fn calm_down(&mut self) -> anyhow::Result<()> {
        self.calm.send_replace(true);
        self.proxy.clear();
        sleep(Duration::from_secs(1)).await;
        let control_plane = self.stage.control_plane.clone();
        tokio::task::spawn_blocking(move || {
            let started = (0..4).map(|_| control_plane.start_api_server()).find(Result::is_ok);
            started.context("the API server does not start again")??;
            control_plane.thaw_api_server()?;
            control_plane.thaw_etcd()
        })
        .await??;
        self.proxy.clear();
        Ok(())
    }

    /// Waits until all is as it is to be, and judges meanwhile.
    async fn settle(&mut self, when: &str) -> anyhow::Result<()> {
        let begin = Instant::now();
        let mut rest;
        loop {
            sleep(Duration::from_millis(500)).await;
            self.look().await?;
            rest = self.unsettled().await;
            let Some((number, why)) = rest.first() else { break };
            self.progress(&format!("{} Nodes have not settled, {}: {why}", rest.len(), world::name(*number)));
            if begin.elapsed() > self.options.settles_within {
                let mut text = format!("not settled within {:?} {when}:", self.options.settles_within);
                for (number, why) in rest.iter().take(10) {
                    let _ =
                        write!(text, "\n  {}: {why}{}", world::name(*number), self.history(*number, now()));
                }
                let _ = write!(text, "\n  ({} in all)", rest.len());
                self.report.fault(text);
                break;
            }
        }
        self.report.settled.push(begin.elapsed());
        Ok(())
    }

    /// Places that are not as they are to be, and why.
    async fn unsettled(&self) -> Vec<(usize, String)> {
        let listed =
            timeout(Duration::from_secs(10), nodes(&self.stage.client).list(&ListParams::default())).await;
        let Ok(Ok(listed)) = listed else {
            return vec![(0, "the API server does not list Nodes".to_owned())];
        };
        let by_name: BTreeMap<String, Node> =
            listed.into_iter().filter_map(|node| Some((node.metadata.name.clone()?, node))).collect();
        let state = self.stage.world.lock();
        state
            .slots
            .iter()
            .filter_map(|slot| {
                let why = observer::unsettled(slot, by_name.get(&slot.name()))?;
                Some((slot.number, why))
            })
            .collect()
    }

    /// Judges what happened since the last look.
    async fn look(&mut self) -> anyhow::Result<()> {
        while let Some(ended) = self.tasks.try_join_next() {
            ended??;
            ensure!(self.stop.is_cancelled(), "a part of the campaign ended");
        }
        self.look_at_watch();
        let answered = self.audit_log.news()?;
        self.look_at_refusals(&answered);
        let rules: HashMap<_, _> = self.common.rules.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut deletions, mut lost, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        {
            let mut seen = self.proxy.seen();
            for answer in answered {
                *self.report.audited.entry(format!("{} {}", answer.verb, answer.code)).or_default() += 1;
                let sent = seen.deletions.remove(&answer.audit_id);
                if answer.verb != "delete" || answer.code >= 300 {
                    continue;
                }
                match sent {
                    Some(deletion) => deletions.push(deletion),
                    None => self.report.fault(format!("{} was deleted past the proxy", answer.node)),
                }
            }
            // An API server that is killed says nothing of what it did last.
            let old = now() - 30 * SECOND;
            let without_answer: Vec<String> = seen
                .deletions
                .iter()
                .filter(|(_, deletion)| deletion.sent < old)
                .map(|(id, _)| id.clone())
                .collect();
            lost.extend(without_answer.iter().filter_map(|id| seen.deletions.remove(id)));
            let mut terms = self.stage.terms();
            for renewal in seen.renewals.drain(..) {
                terms.add(renewal);
            }
            // A renewal that was sent before may still be on its way.
            let settled = now() - 2 * SECOND;
            let split = seen.writes.partition_point(|write| write.sent < settled);
            writes.extend(seen.writes.drain(..split));
        }
        self.judge_writes(&writes, &rules);
        self.judge_lost(lost, &mut deletions);
        for deletion in deletions {
            let Some(rules) = rules.get(&deletion.life) else { continue };
            self.judge_deletion(&deletion, *rules);
        }
        let found: Vec<String> = {
            let mut faults = self.common.faults.lock().unwrap_or_else(PoisonError::into_inner);
            let mut observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner);
            faults.drain(..).chain(observed.drain(..)).collect()
        };
        for fault in found {
            let fault = format!("{fault}{}", self.recent_faults(now()));
            self.report.fault(fault);
        }
        Ok(())
    }

    /// A leader whose requests are answered has its watch again soon.
    fn look_at_watch(&mut self) {
        let (since, now) = (self.looked, now());
        self.looked = now;
        let holder = self.stage.terms().holder();
        let leader = self.stage.daemons.iter().find(|daemon| holder.is_some() && daemon.life() == holder);
        let Some(leader) = leader else {
            self.without_watch = 0;
            return;
        };
        if leader.way.has_watch() {
            self.without_watch = 0;
        } else if leader.way.misses_watch(since) {
            let before = self.without_watch;
            self.without_watch += (now - since).min(2 * SECOND);
            self.report.longest_without_watch = self.report.longest_without_watch.max(self.without_watch);
            if before <= WITHOUT_WATCH && self.without_watch > WITHOUT_WATCH {
                let fault = format!(
                    "the leader has no watch of Nodes for {} s, though its other requests are answered{}",
                    WITHOUT_WATCH / SECOND,
                    self.recent_faults(now)
                );
                self.report.fault(fault);
            }
        }
    }

    /// What the API server finds invalid is not sent again and again.
    fn look_at_refusals(&mut self, answered: &[Answered]) {
        for answer in answered {
            let Some(life) = answer.life() else { continue };
            let key = (life, answer.node.clone());
            if answer.code != 422 {
                self.refused.remove(&key);
                continue;
            }
            let row = answer.at - *self.refused.entry(key.clone()).or_insert(answer.at);
            self.report.longest_refused = self.report.longest_refused.max(row);
            if row > REFUSED {
                self.refused.remove(&key);
                let fault = format!(
                    "daemon {life} has sent writes to {} for {} s that are refused as invalid{}",
                    answer.node,
                    REFUSED / SECOND,
                    self.recent_faults(now())
                );
                self.report.fault(fault);
            }
        }
    }

    fn judge_writes(&mut self, writes: &[proxy::Write], rules: &HashMap<u32, judge::Rules>) {
        self.report.writes += writes.len() as u64;
        let faults: Vec<(String, Micros)> = {
            let mut terms = self.stage.terms();
            let faults = writes.iter().filter_map(|write| {
                let fault = terms.fault(write, rules)?;
                let what = format!("daemon {} sent {} without leading: {fault}", write.life, write.what);
                Some((what, write.sent))
            });
            let faults = faults.collect();
            terms.forget_before(now() - 120 * SECOND);
            self.report.leader_changes = terms.changes;
            faults
        };
        for (fault, sent) in faults {
            let fault = format!("{fault}{}", self.recent_faults(sent));
            self.report.fault(fault);
        }
    }

    /// Deletions that the audit log says nothing about: they may have happened.
    fn judge_lost(&mut self, lost: Vec<Deletion>, deletions: &mut Vec<Deletion>) {
        let state = self.stage.world.lock();
        let by_campaign = self.stage.deleted();
        for deletion in lost {
            let known = self.report.deleted.contains(&deletion.uid) || by_campaign.contains(&deletion.uid);
            if !known && !state.existing.contains(&deletion.uid) {
                deletions.push(deletion);
            }
        }
    }

    fn judge_deletion(&mut self, deletion: &Deletion, rules: judge::Rules) {
        if !self.report.deleted.insert(deletion.uid.clone()) {
            return;
        }
        let faults = deletion.faults(rules);
        if faults.is_empty() {
            self.report.right_deletions += 1;
            return;
        }
        self.report.wrong_deletions += 1;
        let mut text = format!("daemon {} deleted {} ({}), and", deletion.life, deletion.name, deletion.uid);
        for fault in faults {
            let _ = write!(text, "\n    {fault}");
        }
        if let Some(slot) = &deletion.slot {
            text.push_str(&history(&slot.history, deletion.sent));
        }
        text.push_str(&self.recent_faults(deletion.sent));
        self.report.fault(text);
    }

    fn history(&self, number: usize, moment: Micros) -> String {
        self.stage.world.with(number, |slot| history(&slot.history, moment))
    }

    /// The faults before a moment that met no single Node, for people.
    fn recent_faults(&self, moment: Micros) -> String {
        let log = self.stage.log();
        let mut text = String::from("\n    faults of the last 60 s, without those of single Nodes:");
        let is_recent = |at: Micros, line: &str| at > moment - 60 * SECOND && !line.contains(" on node-");
        for (at, line) in log.lines.iter().filter(|(at, line)| is_recent(*at, line)) {
            let _ = write!(text, "\n      {:+8.2} s: {line}", (at - moment) as f64 / SECOND as f64);
        }
        text
    }

    /// Says now and then how it goes.
    fn progress(&mut self, what: &str) {
        const INTERVAL: Duration = Duration::from_secs(20);
        if self.options.is_short || self.told.elapsed() < INTERVAL {
            return;
        }
        self.told = Instant::now();
        self.take_figures();
        println!("{:5} s: {} {what}", self.begin.elapsed().as_secs(), self.report.in_one_line());
    }

    fn take_figures(&mut self) {
        let log = self.stage.log();
        self.report.faults_injected.clone_from(&log.counts);
        self.report.skipped = log.skipped;
        drop(log);
        let seen = self.proxy.seen();
        self.report.answers.clone_from(&seen.answers);
        self.report.spoiled = seen.spoiled;
        drop(seen);
        self.report.memory = *self.common.most_memory.lock().unwrap_or_else(PoisonError::into_inner);
        self.report.processes = self.common.lives.load(std::sync::atomic::Ordering::SeqCst);
        self.report.time = self.begin.elapsed();
    }

    async fn end(mut self) -> anyhow::Result<Report> {
        // What is on its way is judged too.
        sleep(Duration::from_secs(3)).await;
        self.look().await?;
        self.common.look_at_logs()?;
        self.no_secret_in_the_cluster().await?;
        self.look().await?;
        self.take_figures();
        if self.report.memory.anonymous > MEMORY_LIMIT {
            let memory = self.report.memory;
            self.report.fault(format!("a daemon had {memory:?} KiB, and {MEMORY_LIMIT} are the limit"));
        }
        self.stop.cancel();
        while let Ok(Some(ended)) = timeout(Duration::from_secs(20), self.tasks.join_next()).await {
            ended??;
        }
        Ok(self.report)
    }

    /// Neither Nodes nor events hold a secret.
    async fn no_secret_in_the_cluster(&mut self) -> anyhow::Result<()> {
        let control_plane = self.stage.control_plane.clone();
        let text = tokio::task::spawn_blocking(move || {
            control_plane.kubectl_output(&["get", "nodes,events", "--all-namespaces", "-o", "json"])
        })
        .await??;
        for (what, secret) in [("token", &self.common.token), ("password", &self.common.password)] {
            if text.contains(secret.as_str()) {
                self.report.fault(format!("the {what} is in a Node or an event"));
            }
        }
        Ok(())
    }
}

/// What happened in one place before a moment, and since.
fn history(history: &[(Micros, String)], moment: Micros) -> String {
    let mut text = String::from("\n    what happened there:");
    for (at, line) in history.iter().rev().take(12).rev() {
        let _ = write!(text, "\n      {:+8.2} s: {line}", (at - moment) as f64 / SECOND as f64);
    }
    text
}
