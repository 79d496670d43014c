//! Injected faults on a real API server: a seeded sequence of faults affects the cloud, the API server, the
//! connection to it, the daemons and the Nodes. A judge that knows the true state checks every deletion and
//! every write.
//!
//! ```text
//!   faults (seed) ──> inject ──> world (what is true) <── kubelets, cloud
//!                        │                  │
//!         daemons ── proxy ── API server    └──> judge <── proxy, audit log, watch of the Nodes
//! ```
//!
//! `make soak` runs it for minutes or hours; a short campaign is among the other tests. docs/explanation/reliability.md
//! lists the faults and the checks.

mod api_server;
mod audit;
mod cloud;
mod daemons;
mod faults;
mod inject;
mod judge;
mod judge_tests;
mod kubelets;
mod look;
mod observer;
mod on_nodes;
mod provider;
mod proxy;
mod report;
mod run;
mod world;

use std::{process::ExitCode, time::Duration};

use anyhow::Context as _;
use tempfile::TempDir;
use test_env::StartError;

use crate::{api::Target, scenarios::Trials, trial::Outcome};
use api_server::ApiServer;
use faults::Focus;
use report::Report;
use run::Campaign;

/// The defaults of `--node-deletion-breaker-count` and `--node-deletion-breaker-percent`.
const BREAKER_COUNT: usize = 3;
const BREAKER_PERCENT: usize = 20;

const DAEMONS: usize = 3;

/// The length of a campaign, and the seed that makes it reproducible.
#[derive(Clone, Copy, Debug)]
struct Options {
    target: Target,
    seed: u64,
    nodes: usize,
    /// How long faults are injected.
    time: Duration,
    /// After this time the faults stop until everything has settled.
    epoch: Duration,
    /// The time limit for settling.
    settles_within: Duration,
    is_short: bool,
    focus: Focus,
}

pub(crate) fn trials() -> Trials {
    let name = |target: Target| format!("{}::campaign::a_short_one_deletes_nothing_wrong", target.as_str());
    Trials::new()
        .trial(&name(Target::ApiServer), || run_short(Target::ApiServer))
        .trial(&name(Target::Sandbox), || run_short(Target::Sandbox))
        .and(judge_tests::trials())
}

fn run_short(target: Target) -> Outcome {
    let options = Options {
        target,
        // A seed whose 20 s contain every kind of fault of a short campaign.
        seed: 341,
        nodes: 40,
        time: Duration::from_secs(20),
        epoch: Duration::from_secs(20),
        settles_within: test_env::PATIENCE,
        is_short: true,
        focus: Focus::Everything,
    };
    let report = run(options)?;
    println!("{}", report.in_one_line());
    report.verdict()?;
    Ok(())
}

/// Runs this binary as a campaign's daemon or as a long campaign, if it was started as one.
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

/// `soak [seconds=N] [seed=N] [nodes=N] [focus=freezes|leaders] [on=sandbox]`
fn soak(arguments: impl Iterator<Item = String>) -> Result<(), StartError> {
    let mut options = Options {
        target: Target::ApiServer,
        seed: fastrand::u64(..1_000_000),
        nodes: 200,
        time: Duration::from_secs(600),
        epoch: Duration::from_secs(150),
        settles_within: Duration::from_secs(240),
        is_short: false,
        focus: Focus::Everything,
    };
    for argument in arguments {
        let number = |text: &str| {
            let what = || {
                format!(
                    "{argument:?}: want seconds=N, seed=N, nodes=N, focus=freezes, focus=leaders or on=sandbox"
                )
            };
            text.parse::<u64>().with_context(what)
        };
        match argument.split_once('=') {
            Some(("seconds", value)) => options.time = Duration::from_secs(number(value)?),
            Some(("seed", value)) => options.seed = number(value)?,
            Some(("nodes", value)) => {
                options.nodes = usize::try_from(number(value)?).context("so many nodes")?;
            }
            Some(("on", "sandbox")) => options.target = Target::Sandbox,
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
    // Leave the cores to the daemons and the API server.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(anyhow::Error::from)?.block_on(campaign(options))
}

async fn campaign(options: Options) -> Result<Report, StartError> {
    let folder = TempDir::new().map_err(anyhow::Error::from)?;
    let api_server = ApiServer::start(options.target, folder.path()).await?;
    let outcome = Campaign::start(options, &folder, api_server).await?.run().await;
    if outcome.as_ref().map_or(true, |report| !report.is_good()) {
        println!("the logs are in {}", folder.keep().display());
    }
    Ok(outcome?)
}
