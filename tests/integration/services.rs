//! Scenarios of the service controller, on a fake cloud that has load balancers.
//!
//! Facts are from upstream's service controller; where this one is better on purpose, the scenario says so.

mod changes;
mod crashes;
mod errors;
mod histories;
mod lifecycle;
mod many;
mod nodes;
mod objects;
mod reports;
mod tape;
mod verification;
mod world;

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    [
        histories::trials(),
        crashes::trials(),
        many::trials(),
        lifecycle::trials(),
        changes::trials(),
        nodes::trials(),
        errors::trials(),
        reports::trials(),
        verification::trials(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
