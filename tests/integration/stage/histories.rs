//! Runs many seeded random histories on the sandbox.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use anyhow::Context;
use cloudprovider::testing::FakeCloud;
use sandbox::Fault;
use tokio::time::{Instant, sleep};

use super::{Replicas, Trouble};
use crate::{
    api::{Api, Target},
    faults::faults,
    trial::{Outcome, runtime},
};

/// Each history is on a thread of its own with a paused clock.
const THREADS: usize = 2;

/// Histories that differ in their seeds only.
pub(crate) struct Histories {
    /// The environment variable with their number.
    pub(crate) count: &'static str,
    /// The environment variable with the one seed to run.
    pub(crate) seed: &'static str,
    /// How many are among the tests.
    pub(crate) few: u64,
    /// The name of the trial, to run one once more.
    pub(crate) trial: &'static str,
}

impl Histories {
    pub(crate) fn run(&self, history: impl AsyncFn(&Api, u64) -> anyhow::Result<()> + Sync) -> Outcome {
        let seeds = match number(self.seed)? {
            Some(seed) => seed..seed + 1,
            None => 0..number(self.count)?.unwrap_or(self.few),
        };
        let next = AtomicU64::new(seeds.start);
        let work = || {
            while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end)
            {
                self.one(seed, &history)?;
            }
            anyhow::Ok(())
        };
        let outcomes: Vec<anyhow::Result<()>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a history panicked"))))
                .collect()
        });
        outcomes.into_iter().collect::<anyhow::Result<()>>()?;
        println!("{} histories", seeds.end - seeds.start);
        Ok(())
    }

    fn one(&self, seed: u64, history: &impl AsyncFn(&Api, u64) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let outcome = runtime(true)?.block_on(async {
            let api = Api::connect(Target::Sandbox).await.map_err(|why| anyhow::anyhow!("{why:?}"))?;
            Box::pin(history(&api, seed)).await
        });
        let Self { seed: variable, trial, .. } = self;
        outcome.with_context(|| {
            format!(
                "history {seed}; once more: {variable}={seed} cargo test -p integration-tests --test integration -- \
                 {trial}"
            )
        })
    }
}

/// What every history has.
pub(crate) struct Chronicle {
    pub(crate) random: fastrand::Rng,
    pub(crate) daemons: Replicas,
    begin: Instant,
    log: String,
}

impl Chronicle {
    pub(crate) fn new(api: &Api, seed: u64, daemons: usize) -> anyhow::Result<Self> {
        // Jitter comes from the thread's generator
        fastrand::seed(seed);
        faults(api)?.seed(seed);
        Ok(Self {
            random: fastrand::Rng::with_seed(seed),
            daemons: Replicas::new(daemons),
            begin: Instant::now(),
            log: String::new(),
        })
    }

    pub(crate) fn note(&mut self, what: &str) {
        let _ = writeln!(self.log, "{:9.3} s: {what}", self.begin.elapsed().as_secs_f64());
    }

    /// The outcome, with all notes if it is a failure.
    pub(crate) fn told(&self, outcome: anyhow::Result<()>) -> anyhow::Result<()> {
        outcome.with_context(|| format!("what happened:\n{}", self.log))
    }

    pub(crate) async fn happens(
        &mut self,
        trouble: Trouble,
        api: &Api,
        cloud: &FakeCloud,
    ) -> anyhow::Result<()> {
        match trouble {
            Trouble::Wait(time) => sleep(time).await,
            Trouble::ApiFault { matcher, action, times } => {
                faults(api)?.inject(Fault::new(matcher, action).times(times));
            }
            Trouble::DropWatches { with_history } => {
                let faults = faults(api)?;
                if with_history {
                    faults.expire();
                }
                faults.drop_watches();
            }
            Trouble::CloudFault { operation, fault } => cloud.fail_next(operation, fault),
            Trouble::Latency(latency) => cloud.set_latency(latency),
            Trouble::Crash { daemon } => self.daemons.crash(daemon).await,
            Trouble::Stop { daemon } => self.daemons.stop(daemon).await,
            Trouble::Freeze { daemon, time } => self.daemons.freeze(daemon, time),
        }
        Ok(())
    }

    /// No fault goes on.
    pub(crate) fn calm(&mut self, api: &Api, cloud: &FakeCloud) -> anyhow::Result<()> {
        self.note("calm");
        faults(api)?.clear();
        cloud.mend();
        cloud.set_latency(Duration::ZERO);
        self.daemons.thaw_all();
        Ok(())
    }
}

/// When everything has settled.
pub(crate) struct Settling {
    /// It is as it should be within this time.
    pub(crate) within: Duration,
    /// It stays so for this time.
    pub(crate) stays_for: Duration,
    /// How often one looks, before it is as it should be and after.
    pub(crate) look_every: [Duration; 2],
    /// Whether it may become wrong once more.
    pub(crate) may_relapse: bool,
}

impl Settling {
    /// Waits for it. `look` says what is wrong, and so does the result if that does not end.
    pub(crate) async fn wait(
        &self,
        mut look: impl AsyncFnMut() -> anyhow::Result<Option<String>>,
    ) -> anyhow::Result<Option<String>> {
        let begin = Instant::now();
        let mut good_since = None;
        loop {
            let pause = match look().await? {
                None => {
                    let since: Instant = *good_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > self.stays_for {
                        return Ok(None);
                    }
                    self.look_every[1]
                }
                Some(wrong) if good_since.is_some() && !self.may_relapse => {
                    return Ok(Some(format!("it was right, and then {wrong}")));
                }
                Some(wrong) if begin.elapsed() > self.within => return Ok(Some(wrong)),
                Some(_) => {
                    good_since = None;
                    self.look_every[0]
                }
            };
            sleep(pause).await;
        }
    }
}

fn number(variable: &str) -> anyhow::Result<Option<u64>> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    let number = text.parse().with_context(|| format!("{variable}={text:?}: want a number"))?;
    Ok(Some(number))
}
