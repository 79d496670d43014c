//! The real thing on both sides: Cluster API's own managers, and guests that QEMU runs under a real libvirtd. Our daemon is
//! the binary, as a process with the roles that it prints.

mod guests;
pub(super) mod hypervisor;
mod life;
mod moving;

use test_env::PATIENCE;

use crate::{scenarios::Trials, trial::LIMIT};

pub(super) fn trials() -> Trials {
    Trials::new()
        .trial("cluster_api::qemu::machines_live_and_die", life::whole)
        .trial("cluster_api::qemu::machines_live_and_die_without_managers", life::whole_without_managers)
        .trial("cluster_api::qemu::clusterctl_moves_running_machines", moving::whole)
}
