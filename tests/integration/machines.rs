//! The kinds of Cluster API's machines and clusters, on the real API server, and the controller of their objects.

mod auxiliary;
mod core;
mod crashes;
mod definitions;
mod histories;
mod hostile;
mod kinds;
pub(crate) mod libvirt;
pub(crate) mod libvirt_many;
mod life;
mod many;
mod moves;
mod others;
mod provider;
mod providers;
mod reboots;
mod scope;
mod status_only;
mod tape;
mod tenants;
mod vsphere;
mod world;

use crate::scenarios::Trials;

pub(crate) fn trials() -> Trials {
    Trials::new()
        .api_server("machines::the_api_server_checks_objects_of_the_kinds", definitions::checked)
        .and(libvirt::trials())
        .and(life::trials())
        .and(scope::trials())
        .and(auxiliary::trials())
        .and(status_only::trials())
        .and(reboots::trials())
        .and(vsphere::trials())
        .and(moves::trials())
        .and(tenants::trials())
        .and(hostile::trials())
        .and(others::trials())
        .and(providers::trials())
        .and(crashes::trials())
        .and(many::trials())
        .and(histories::trials())
}

/// Those that count writes, which are more where other tests keep the machine busy: a wait of more than five seconds is told.
pub(crate) fn alone() -> Trials {
    libvirt_many::trials()
}
