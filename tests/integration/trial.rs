//! Turns a test into a trial: its runtime, its time limit, and the handling of missing peers.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use futures::future::LocalBoxFuture;
use libtest_mimic::{Completion, Failed, Trial};
use parking_lot::Mutex;
use test_env::StartError;
use tokio::runtime::{Builder, Runtime};

use crate::{admission, cpu};

pub(crate) type Outcome = Result<(), StartError>;

/// Longer than any trial takes on a machine with much else to do. It only ends a hang.
pub(crate) const LIMIT: Duration = test_env::PATIENCE.saturating_mul(2);

static SKIPPED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A trial that has run.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Took {
    time: Duration,
    /// What its own thread computed: the test, and the daemon and the sandbox if they run in it.
    computed: Duration,
    name: String,
}

/// The trials so far.
static TOOK: Mutex<Vec<Took>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether the clock of this thread's runtime is paused.
    static IS_PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the scenario of this thread runs on a paused clock.
pub(crate) fn is_paused() -> bool {
    IS_PAUSED.get()
}

/// A test that is not a scenario.
pub(crate) fn trial(name: &str, body: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    let title = name.to_owned();
    let timed = move || {
        IS_PAUSED.set(false);
        let _admitted = admission::admit(&title);
        let (began, before) = (Instant::now(), cpu::of_this_thread());
        let outcome = body();
        let time = began.elapsed().saturating_sub(admission::was_aside());
        let computed = cpu::of_this_thread().saturating_sub(before);
        let took = Took { time, computed, name: title.clone() };
        TOOK.lock().push(took);
        (outcome, title)
    };
    Trial::ignorable_test(name, move || match timed() {
        (Ok(()), _) => Ok(Completion::Completed),
        (Err(StartError::Unavailable(reason)), _) if std::env::var("CI").as_deref() == Ok("true") => {
            Err(Failed::from(format!("a peer is missing, which CI does not accept: {reason}")))
        }
        (Err(StartError::Unavailable(reason)), title) => {
            let line = format!("{title}: {reason}");
            SKIPPED.lock().push(line);
            Ok(Completion::ignored_with(reason))
        }
        (Err(StartError::Failed(error)), _) => Err(Failed::from(format!("{error:#}"))),
    })
}

/// A runtime for one trial.
pub(crate) fn runtime(paused: bool) -> anyhow::Result<Runtime> {
    IS_PAUSED.set(paused);
    Ok(Builder::new_current_thread().enable_all().start_paused(paused).build()?)
}

/// Limits a scenario in real time, even if tokio's clock is paused.
pub(crate) async fn within(scenario: LocalBoxFuture<'_, anyhow::Result<()>>) -> anyhow::Result<()> {
    let (late, is_late) = tokio::sync::oneshot::channel::<()>();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        if is_done.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = late.send(());
        }
    });
    let outcome = tokio::select! {
        outcome = scenario => outcome,
        Ok(()) = is_late => Err(anyhow!("not done within {LIMIT:?}")),
    };
    drop(done);
    outcome
}

/// Lists the trials that ran longest, and says how much all of them computed.
pub(crate) fn report_slowest() {
    const MANY: usize = 20;
    let mut took = TOOK.lock();
    // A run of one trial has no need for it.
    if took.len() > MANY {
        took.sort();
        println!("the slowest {MANY} of {} trials, and the CPU seconds of their own thread:", took.len());
        for Took { time, computed, name } in took.iter().rev().take(MANY) {
            println!("{:7.1} s {:7.1} s  {name}", time.as_secs_f64(), computed.as_secs_f64());
        }
        let all: Duration = took.iter().map(|took| took.computed).sum();
        println!(
            "CPU seconds: {:.0} of this process, {:.0} of them of the trials' own threads, and {:.0} of its processes that ended",
            cpu::of_this_process().as_secs_f64(),
            all.as_secs_f64(),
            cpu::of_children().as_secs_f64()
        );
    }
}

/// Lists the skipped tests once more at the end of the run.
pub(crate) fn report_skipped() {
    let skipped = SKIPPED.lock();
    if !skipped.is_empty() {
        eprintln!("SKIPPED {} tests, because their peers are missing:", skipped.len());
        for line in skipped.iter() {
            eprintln!("SKIPPED {line}");
        }
    }
}
