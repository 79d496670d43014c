//! Seeded random histories against a model: Services and Nodes come, change and go; the API server and the
//! cloud fail; two daemons compete for the lease, crash, and stand still for longer than it lasts. When all
//! is quiet, the cloud has exactly the load balancers that the objects ask for.
//!
//! A short campaign is among the tests. `make soak-services` runs a long one.

mod acts;
mod model;
mod run;

use crate::{scenarios::Trials, stage::Histories};

const HISTORIES: Histories = Histories {
    count: "CCM_SERVICE_HISTORIES",
    seed: "CCM_SERVICE_HISTORY",
    few: 200,
    trial: "sandbox::services::random_histories_end_as_the_model_says",
};

pub(super) fn trials() -> Trials {
    Trials::new().trial(HISTORIES.trial, || HISTORIES.run(run::run))
}
