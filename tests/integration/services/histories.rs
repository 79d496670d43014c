//! Seeded random histories against a model: Services and Nodes come, change and go; the API server and the
//! cloud fail; two daemons compete for the lease, crash, and stand still for longer than it lasts. When all
//! is quiet, the cloud has exactly the load balancers that the objects ask for.
//!
//! A short campaign is among the tests. `make soak-services` runs a long one.

mod acts;
mod model;
mod run;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use anyhow::Context;
use libtest_mimic::Trial;

use crate::{
    api::{Api, Target},
    trial::{Outcome, runtime, trial},
};

/// How many histories there are.
const COUNT: &str = "CCM_SERVICE_HISTORIES";
/// The one history to run.
const SEED: &str = "CCM_SERVICE_HISTORY";
/// How many histories are among the tests. They take half a minute.
const FEW: u64 = 200;
/// Each history is on a thread of its own with a paused clock.
const THREADS: usize = 2;

pub(super) fn trials() -> Vec<Trial> {
    vec![trial("sandbox::services::random_histories_end_as_the_model_says", histories)]
}

fn number(variable: &str) -> anyhow::Result<Option<u64>> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    let number = text.parse().with_context(|| format!("{variable}={text:?}: want a number"))?;
    Ok(Some(number))
}

fn histories() -> Outcome {
    let seeds = match number(SEED)? {
        Some(seed) => seed..seed + 1,
        None => 0..number(COUNT)?.unwrap_or(FEW),
    };
    let next = AtomicU64::new(seeds.start);
    let work = || {
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end) {
            history(seed)?;
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

fn history(seed: u64) -> anyhow::Result<()> {
    let outcome = runtime(true)?.block_on(async {
        let api = Api::connect(Target::Sandbox).await.map_err(|why| anyhow::anyhow!("{why:?}"))?;
        Box::pin(run::run(&api, seed)).await
    });
    outcome.with_context(|| {
        format!(
            "history {seed}; once more: {SEED}={seed} cargo test -p integration-tests --test integration -- \
             random_histories"
        )
    })
}
