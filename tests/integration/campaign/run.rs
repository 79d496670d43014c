//! The course of a campaign: all parts are started, then faults and settling alternate.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{Event, Node};
use kube::{Api, api::ListParams};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    DAEMONS, Options,
    api_server::ApiServer,
    cloud::Cloud,
    daemons::{self, Common, Daemon},
    faults::{Focus, Sequence, Shape},
    inject::Stage,
    kubelets, observer,
    proxy::Proxy,
    report::Report,
    world::{self, Micros, World, now},
};
use crate::{api, support::nodes};

/// The memory limit of a daemon's process, in KiB.
const MEMORY_LIMIT: u64 = 100 * 1024;

pub(super) struct Campaign {
    options: Options,
    pub(super) stage: Stage,
    pub(super) common: Arc<Common>,
    pub(super) proxy: Proxy,
    calm: watch::Sender<bool>,
    /// Faults that the watch of the Nodes found.
    pub(super) observed: Arc<Mutex<Vec<String>>>,
    pub(super) stop: CancellationToken,
    pub(super) tasks: JoinSet<anyhow::Result<()>>,
    pub(super) report: Report,
    begin: Instant,
    told: Instant,
    pub(super) looked: Micros,
    /// How long the leader has been without a watch of Nodes although its requests succeed.
    pub(super) without_watch: Micros,
    /// Process and Node -> since when its writes to the Node are refused as invalid.
    pub(super) refused: HashMap<(u32, String), Micros>,
}

impl Campaign {
    pub(super) async fn start(
        options: Options,
        folder: &TempDir,
        api_server: Arc<ApiServer>,
    ) -> anyhow::Result<Self> {
        let client = api::client(api_server.kubeconfig()).await?;
        let world = World::new(options.nodes);
        let cloud = Cloud::start(world.clone()).await?;
        let proxy = Proxy::start(api_server.kubeconfig(), DAEMONS, world.clone()).await?;
        let common = Arc::new(Common {
            world: world.clone(),
            folder: folder.path().to_owned(),
            cloud_port: cloud.port,
            token: api_server.token(),
            password: format!("secret-{:016x}", fastrand::u64(..)),
            lives: AtomicU32::new(0),
            rules: Mutex::default(),
            faults: Mutex::default(),
            most_memory: Mutex::default(),
            keep_logs: AtomicBool::new(false),
            timings: match options.focus {
                Focus::Freezes => daemons::LASTING,
                _ if options.is_short => daemons::SHORT,
                _ => daemons::MIXED,
            },
            rng: Mutex::new(fastrand::Rng::with_seed(options.seed)),
        });
        let daemons: Vec<_> = proxy.ways.iter().map(|way| Daemon::new(way.clone(), common.clone())).collect();
        let (calm, calm_seen) = watch::channel(true);
        let stage = Stage::new(world, cloud, daemons, api_server, client, calm_seen);
        let mut campaign = Self {
            options,
            stage,
            common,
            proxy,
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
        self.tasks.spawn({
            let (stage, stop) = (self.stage.clone(), self.stop.clone());
            async move {
                stop.run_until_cancelled(stage.operate()).await;
                Ok(())
            }
        });
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

    pub(super) async fn run(mut self) -> anyhow::Result<Report> {
        self.settle("at the start").await?;
        let shape = Shape {
            nodes: self.options.nodes,
            daemons: DAEMONS,
            rate: (f64::from(u32::try_from(self.options.nodes)?) / 40.0).max(6.0),
            is_short: self.options.is_short,
            focus: self.options.focus,
        };
        let mut sequence = Sequence::new(self.options.seed, shape).peekable();
        // The time with faults, without the pauses for settling.
        let mut done = Duration::ZERO;
        let mut disturbing = JoinSet::new();
        while done < self.options.time {
            let epoch = self.options.epoch.min(self.options.time.saturating_sub(done));
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
                self.look()?;
                self.progress("");
            }
            done += epoch;
            self.calm_down().await?;
            self.settle(&format!("after {} s of faults", done.as_secs())).await?;
        }
        self.end().await
    }

    /// Ends all faults that affect more than single Nodes.
    async fn calm_down(&mut self) -> anyhow::Result<()> {
        self.calm.send_replace(true);
        self.proxy.clear();
        sleep(Duration::from_secs(1)).await;
        self.stage.api_server.run_again().await?;
        self.proxy.clear();
        Ok(())
    }

    /// Waits until everything is in its final state, and judges meanwhile.
    pub(super) async fn settle(&mut self, when: &str) -> anyhow::Result<()> {
        let begin = Instant::now();
        let mut rest;
        loop {
            sleep(Duration::from_millis(500)).await;
            self.look()?;
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

    /// Places that are not in their final state, and why.
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

    /// Prints the progress at intervals.
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
        self.report.memory = *self.common.most_memory.lock();
        self.report.processes = self.common.lives.load(std::sync::atomic::Ordering::SeqCst);
        self.report.time = self.begin.elapsed();
    }

    async fn end(mut self) -> anyhow::Result<Report> {
        // Judge requests that are still in progress, too.
        sleep(Duration::from_secs(3)).await;
        self.look()?;
        self.common.look_at_logs()?;
        self.no_secret_in_the_cluster().await?;
        self.look()?;
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

    /// Checks that neither Nodes nor events contain a secret.
    async fn no_secret_in_the_cluster(&mut self) -> anyhow::Result<()> {
        let all = ListParams::default();
        let events: Api<Event> = Api::all(self.stage.client.clone());
        let text = format!(
            "{}{}",
            serde_json::to_string(&nodes(&self.stage.client).list(&all).await?.items)?,
            serde_json::to_string(&events.list(&all).await?.items)?
        );
        for (what, secret) in [("token", &self.common.token), ("password", &self.common.password)] {
            if text.contains(secret.as_str()) {
                self.report.fault(format!("the {what} is in a Node or an event"));
            }
        }
        Ok(())
    }
}
