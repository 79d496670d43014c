//! Seeded random histories against a model: machines come, change, move and go; somebody destroys them, or has
//! something of the same name; the API server and the cloud fail; two daemons compete for the lease, crash, and
//! lose their connection for longer than it lasts. When all is quiet, the cloud has exactly the machines that the
//! objects ask for.
//!
//! A short campaign is among the tests. `make soak-machines` runs a long one.

mod acts;
mod model;
mod run;

use crate::{scenarios::Trials, stage::Histories};

const HISTORIES: Histories = Histories {
    count: "CCM_MACHINE_HISTORIES",
    seed: "CCM_MACHINE_HISTORY",
    few: 200,
    trial: "sandbox::machines::random_histories_end_as_the_model_says",
};

pub(super) fn trials() -> Trials {
    Trials::new().trial(HISTORIES.trial, || HISTORIES.run(run::run))
}
