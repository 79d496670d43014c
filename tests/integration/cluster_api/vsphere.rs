//! Machines on vSphere: Cluster API's own managers, and a simulated vCenter whose guests boot. Our daemon is the binary, as a
//! process with the roles that it prints.

mod compared;
mod crashes;
mod datacenter;
mod life;
mod pools;
mod shipped;
mod swap;
mod topology;
mod zones;

use test_env::PATIENCE;

use crate::{scenarios::Trials, trial::LIMIT};

pub(super) fn trials() -> Trials {
    Trials::new()
        .trial("cluster_api::vsphere::machines_get_addresses_of_pools", pools::whole)
        .trial("cluster_api::vsphere::a_cluster_of_the_shipped_template", shipped::whole)
        .trial("cluster_api::vsphere::a_cluster_of_a_class_of_capv", topology::whole)
        .trial("cluster_api::vsphere::swapped", swap::whole)
        .trial("cluster_api::vsphere::swapped_while_the_older_version_is_stored", swap::older_stored)
        .trial("cluster_api::vsphere::machines_beside_those_of_capv", compared::whole)
        .trial("cluster_api::vsphere::machines_live_and_die", life::whole)
        .trial("cluster_api::vsphere::machines_live_and_die_without_managers", life::whole_without_managers)
        .trial("cluster_api::vsphere::a_killed_daemon_leaves_nothing", crashes::whole)
}
