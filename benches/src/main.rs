//! Measures this project and what a user would run instead, in one run on one machine.
//!
//! `bench run` measures and adds to a file of results. `bench report` makes `docs/explanation/performance.md` and
//! its plots from that file. `make bench` does both, after it has built all that is needed.

mod cases;
mod cluster;
mod managers;
mod report;
mod results;
mod say;
mod statistics;
mod suite;
mod usage;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{results::Results, say::say, suite::Amount};

/// Measures this project beside the Go framework and the vSphere CPI.
#[derive(Debug, Parser)]
struct Arguments {
    /// The file of results: one line of JSON for each run.
    #[arg(long, global = true, default_value = "target/bench/results.jsonl")]
    results: PathBuf,
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Measure, and add to the results.
    Run {
        /// Only what holds one of these texts: `initialize` or `initialize 1000 Nodes, ours`.
        only: Vec<String>,
        /// Everything once, and small: whether it works, not how fast it is.
        #[arg(long)]
        quick: bool,
        /// At most so many runs of each.
        #[arg(long, value_name = "NUMBER")]
        runs: Option<usize>,
    },
    /// Write the report of the results.
    Report {
        /// The folder for `performance.md` and its plots.
        #[arg(long, default_value = "docs/explanation")]
        folder: PathBuf,
        /// What a reader has to know about these runs: what was measured beside what, or apart.
        #[arg(long, default_value = "")]
        remark: String,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    match work(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("Error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn work(arguments: &Arguments) -> Result<()> {
    let results = Results::at(&arguments.results);
    match &arguments.command {
        Task::Run { only, quick, runs } => {
            let amount = if *quick { Amount::Quick } else { Amount::Full };
            let most = runs.unwrap_or(usize::MAX);
            tokio::runtime::Runtime::new()?.block_on(suite::run(amount, only, most, &results))
        }
        Task::Report { folder, remark } => report::write(&results.read()?, folder, remark),
    }
}
