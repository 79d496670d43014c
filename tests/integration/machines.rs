//! The kinds of Cluster API's machines and clusters, on the real API server, and the controller of their objects.

mod core;
mod crashes;
mod definitions;
mod histories;
mod kinds;
mod libvirt;
mod life;
mod many;
mod moves;
mod provider;
mod scope;
mod tape;
mod world;

use libtest_mimic::Trial;

use crate::{api::Target, trial::on};

pub(crate) fn trials() -> Vec<Trial> {
    let definitions = on(Target::ApiServer, "machines::the_api_server_checks_objects_of_the_kinds", |api| {
        Box::pin(definitions::checked(api))
    });
    let parts = [
        libvirt::trials(),
        life::trials(),
        scope::trials(),
        moves::trials(),
        crashes::trials(),
        many::trials(),
        histories::trials(),
    ];
    std::iter::once(definitions).chain(parts.into_iter().flatten()).collect()
}
