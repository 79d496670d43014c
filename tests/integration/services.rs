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

use crate::scenarios::Trials;

pub(crate) fn trials() -> Trials {
    Trials::new()
        .and(histories::trials())
        .and(crashes::trials())
        .and(many::trials())
        .and(lifecycle::trials())
        .and(changes::trials())
        .and(nodes::trials())
        .and(errors::trials())
        .and(reports::trials())
        .and(verification::trials())
}
