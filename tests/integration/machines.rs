//! The kinds of Cluster API's machines and clusters, on the real API server.

mod definitions;
mod kinds;
mod provider;

use libtest_mimic::Trial;

use crate::{api::Target, trial::on};

pub(crate) fn trials() -> Vec<Trial> {
    vec![on(Target::ApiServer, "machines::the_api_server_checks_objects_of_the_kinds", |api| {
        Box::pin(definitions::checked(api))
    })]
}
