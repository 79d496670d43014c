//! Turns a test into a trial: its runtime, its time limit, and the handling of missing peers.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::anyhow;
use futures::future::LocalBoxFuture;
use libtest_mimic::{Completion, Failed, Trial};
use test_env::StartError;
use tokio::runtime::{Builder, Runtime};

use crate::api::{Api, Target};

pub(crate) type Outcome = Result<(), StartError>;

static SKIPPED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A scenario, which can run on any API server.
pub(crate) type Scenario = fn(&Api) -> LocalBoxFuture<'_, anyhow::Result<()>>;

/// The scenario on the sandbox and on the real API server.
pub(crate) fn on_both(name: &str, scenario: Scenario) -> Vec<Trial> {
    [Target::Sandbox, Target::ApiServer].map(|target| on(target, name, scenario)).into()
}

/// The scenario on one of the two.
pub(crate) fn on(target: Target, name: &str, scenario: Scenario) -> Trial {
    trial(&format!("{}::{name}", target.as_str()), move || {
        let runtime = runtime(target == Target::Sandbox)?;
        runtime.block_on(async {
            let api = Api::connect(target).await?;
            within(scenario(&api)).await?;
            api.nothing_was_refused()?;
            Ok(())
        })
    })
}

/// A test that is not a scenario.
pub(crate) fn trial(name: &str, body: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    let title = name.to_owned();
    Trial::ignorable_test(name, move || match body() {
        Ok(()) => Ok(Completion::Completed),
        Err(StartError::Unavailable(reason)) if std::env::var("CI").as_deref() == Ok("true") => {
            Err(Failed::from(format!("a peer is missing, which CI does not accept: {reason}")))
        }
        Err(StartError::Unavailable(reason)) => {
            let line = format!("{title}: {reason}");
            SKIPPED.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            Ok(Completion::ignored_with(reason))
        }
        Err(StartError::Failed(error)) => Err(Failed::from(format!("{error:#}"))),
    })
}

/// A runtime for one trial.
pub(crate) fn runtime(paused: bool) -> anyhow::Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().start_paused(paused).build()?)
}

/// Limits a scenario in real time, even if tokio's clock is paused.
async fn within(scenario: LocalBoxFuture<'_, anyhow::Result<()>>) -> anyhow::Result<()> {
    /// Longer than any scenario takes.
    const LIMIT: Duration = Duration::from_secs(300);
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

/// Lists the skipped tests once more at the end of the run.
pub(crate) fn report_skipped() {
    let skipped = SKIPPED.lock().unwrap_or_else(PoisonError::into_inner);
    if !skipped.is_empty() {
        eprintln!("SKIPPED {} tests, because their peers are missing:", skipped.len());
        for line in skipped.iter() {
            eprintln!("SKIPPED {line}");
        }
    }
}
