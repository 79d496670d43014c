//! Runs many seeded random histories on the sandbox.

mod random;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use anyhow::Context;
use futures::future::LocalBoxFuture;

use crate::{
    api::{Api, Target},
    trial::{Outcome, runtime},
};

pub(crate) use self::random::{ApiTrouble, pick, short_time};

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
    pub(crate) history: for<'a> fn(&'a Api, u64) -> LocalBoxFuture<'a, anyhow::Result<()>>,
}

impl Histories {
    pub(crate) fn run(&self) -> Outcome {
        let seeds = match number(self.seed)? {
            Some(seed) => seed..seed + 1,
            None => 0..number(self.count)?.unwrap_or(self.few),
        };
        let next = AtomicU64::new(seeds.start);
        let work = || {
            while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end)
            {
                self.one(seed)?;
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

    fn one(&self, seed: u64) -> anyhow::Result<()> {
        let outcome = runtime(true)?.block_on(async {
            let api = Api::connect(Target::Sandbox).await.map_err(|why| anyhow::anyhow!("{why:?}"))?;
            (self.history)(&api, seed).await
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

fn number(variable: &str) -> anyhow::Result<Option<u64>> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    let number = text.parse().with_context(|| format!("{variable}={text:?}: want a number"))?;
    Ok(Some(number))
}
