//! The kinds of Cluster API's machines and clusters, on the real API server, and the controller of their objects.

mod core;
mod crashes;
mod definitions;
mod further;
mod histories;
mod hostile;
mod kinds;
pub(crate) mod libvirt;
mod libvirt_many;
mod life;
mod many;
mod moves;
mod others;
mod provider;
mod providers;
mod scope;
mod tape;
mod tenants;
mod told;
mod vsphere;
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
        further::trials(),
        told::trials(),
        vsphere::trials(),
        moves::trials(),
        tenants::trials(),
        hostile::trials(),
        others::trials(),
        providers::trials(),
        crashes::trials(),
        many::trials(),
        histories::trials(),
    ];
    std::iter::once(definitions).chain(parts.into_iter().flatten()).collect()
}

/// Those that count writes, which are more where other tests keep the machine busy: a wait of more than five seconds is told.
pub(crate) fn alone() -> Vec<Trial> {
    libvirt_many::trials()
}
