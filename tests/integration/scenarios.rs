//! The table of trials of a module: the name of each, where it runs, and its function.
//!
//! | Word | Where the scenario runs |
//! |---|---|
//! | `both` | on the sandbox and on the real API server: it is about what an API server decides, such as validation, defaults, conflicts, finalizers, permissions, watches, patches and Leases. The real one shows what is true, and the sandbox that it says the same |
//! | `sandbox` | on the sandbox alone, whose clock is paused: it is about time, counts, faults or the cloud, with objects and writes that other scenarios have on both |
//! | `api_server` | on the real API server alone: its peer is another process in real time, such as a simulator. The sandbox takes as long, and shows less |
//! | `previous` | on an API server of the previous minor version |

use anyhow::anyhow;
use futures::future::LocalBoxFuture;
use libtest_mimic::Trial;
use test_env::StartError;

use crate::{
    api::{Api, Target},
    evidence::{ServerLog, Warnings, explained},
    trial::{Outcome, runtime, trial, within},
};

/// A scenario, which can run on any API server.
pub(crate) trait Scenario: AsyncFn(&Api) -> anyhow::Result<()> + Copy + Send + 'static {}

impl<F: AsyncFn(&Api) -> anyhow::Result<()> + Copy + Send + 'static> Scenario for F {}

type BoxedScenario = Box<dyn FnOnce(&Api) -> LocalBoxFuture<'_, anyhow::Result<()>> + Send>;

/// The trials of a module.
#[derive(Default)]
pub(crate) struct Trials {
    all: Vec<Trial>,
    is_in_real_time: bool,
}

impl Trials {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Its scenarios run in real time on the sandbox too, since their peers do.
    pub(crate) fn in_real_time() -> Self {
        Self { is_in_real_time: true, ..Self::default() }
    }

    pub(crate) fn both(self, name: &str, scenario: impl Scenario) -> Self {
        self.sandbox(name, scenario).api_server(name, scenario)
    }

    pub(crate) fn sandbox(self, name: &str, scenario: impl Scenario) -> Self {
        self.on(Target::Sandbox, name, scenario)
    }

    pub(crate) fn api_server(self, name: &str, scenario: impl Scenario) -> Self {
        self.on(Target::ApiServer, name, scenario)
    }

    pub(crate) fn previous(self, name: &str, scenario: impl Scenario) -> Self {
        self.on(Target::PreviousApiServer, name, scenario)
    }

    fn on(self, target: Target, name: &str, scenario: impl Scenario) -> Self {
        self.boxed(target, name, Box::new(move |api| Box::pin(async move { scenario(api).await })))
    }

    /// Compiled once for all scenarios.
    fn boxed(self, target: Target, name: &str, scenario: BoxedScenario) -> Self {
        let is_paused = target == Target::Sandbox && !self.is_in_real_time;
        self.trial(&format!("{}::{name}", target.as_str()), move || run(target, is_paused, scenario))
    }

    /// A test that is not a scenario.
    pub(crate) fn trial(mut self, name: &str, body: impl FnOnce() -> Outcome + Send + 'static) -> Self {
        self.all.push(trial(name, body));
        self
    }

    /// Those of another module.
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.all.extend(others);
        self
    }
}

impl IntoIterator for Trials {
    type Item = Trial;
    type IntoIter = std::vec::IntoIter<Trial>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.into_iter()
    }
}

/// Runs a scenario on one API server.
fn run(target: Target, is_paused: bool, scenario: BoxedScenario) -> Outcome {
    let (warnings, _guard) = Warnings::collect();
    runtime(is_paused)?.block_on(async {
        let api = Api::connect(target).await?;
        let log = api.control_plane.as_deref().map(ServerLog::of);
        let outcome = within(scenario(&api)).await.and_then(|()| api.nothing_was_refused());
        outcome.map_err(|error| match error.downcast_ref() {
            Some(StartError::Unavailable(reason)) => StartError::Unavailable(reason.clone()),
            _ => StartError::Failed(anyhow!(explained(&error, &warnings, log.as_ref(), &api.requests))),
        })
    })
}
