//! Seeded random histories against a model: users scale, roll out, pause, move and delete, machines and Nodes fail, requests and watches
//! too, and daemons die, or work on when their term is over. No write breaks a rule, and when all is quiet everything is as the objects ask
//! for.
//!
//! | File | Subject |
//! |---|---|
//! | `acts` | what can happen |
//! | `run`, `moves`, `users` | how it happens |
//! | `cloud` | the provider and the kubelets |
//! | `model`, `rules` | what no write may do |
//! | `expected` | what there is in the end |
//!
//! Some of them are among the tests. `make soak-lifecycle` runs many.

mod acts;
mod cloud;
mod expected;
mod model;
mod moves;
mod rules;
mod run;
mod users;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use model::{Counts, Model};
use parking_lot::Mutex;

/// How many histories there are to be.
const COUNT: &str = "CCM_LIFECYCLE_HISTORIES";

/// The one seed to run. With [`COUNT`], it is run so many times: the order of what happens at one moment is not the seed's.
const SEED: &str = "CCM_LIFECYCLE_HISTORY";

/// How many are among the tests.
const FEW: u64 = 40;

/// Each history is on a thread of its own with a paused clock.
const THREADS: usize = 2;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?}: want a number")))
}

/// No more histories begin after so many failures.
const MOST_FAILURES: usize = 20;

const TEST: &str = "tests::histories::rules_hold_and_all_ends_well";

/// What was wrong, and what happened.
struct Failed {
    wrong: String,
    story: String,
}

/// Runs one history. Gives what happened in it.
fn one(seed: u64) -> Result<Counts, Failed> {
    // Names and jitter come from the thread's generator.
    fastrand::seed(seed);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
    let model = runtime.block_on(async { Model::new() });
    let history = AssertUnwindSafe(run::run(seed, model.clone()));
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(history)));
    let outcome = outcome.unwrap_or_else(|_| Err("a panic".to_owned()));
    match outcome {
        Ok(()) => Ok(std::mem::take(&mut model.lock().counts)),
        Err(wrong) => Err(Failed { wrong, story: model.story() }),
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "a soak says what it did")]
fn rules_hold_and_all_ends_well() {
    let (seed, count) = (number(SEED), number(COUNT));
    let count = count.unwrap_or(if seed.is_some() { 1 } else { FEW });
    let next = AtomicU64::new(0);
    let failed: Mutex<Vec<(u64, Failed)>> = Mutex::default();
    let counts: Mutex<Counts> = Mutex::default();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let failures = failed.lock().len();
            if number >= count || failures >= MOST_FAILURES {
                return;
            }
            let seed = seed.unwrap_or(number);
            match one(seed) {
                Ok(counted) => {
                    let mut counts = counts.lock();
                    for (what, count) in counted {
                        *counts.entry(what).or_default() += count;
                    }
                }
                Err(why) => {
                    println!("history {seed}: {}", why.wrong);
                    failed.lock().push((seed, why));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner();
    println!("{} histories: {:?}", next.into_inner().min(count), counts.into_inner());
    let Some((_, Failed { story, .. })) = failed.first() else { return };
    let all: Vec<_> = failed.iter().map(|(seed, why)| format!("history {seed}: {}", why.wrong)).collect();
    panic!(
        "{story}\n{}\nThe story is that of the first one. Once more: {SEED}=SEED cargo test -p lifecycle-controllers --lib {TEST}",
        all.join("\n")
    );
}
