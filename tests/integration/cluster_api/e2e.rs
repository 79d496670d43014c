//! From `kubectl apply` of a machine to a Node that takes pods, with nothing simulated: the daemon in both of its roles, virtual machines on
//! libvirt with containerd and a kubelet, which join with kubeadm. Machines and their bootstrap data are made by Cluster API's own
//! managers, or by the daemon. `make e2e` runs these alone.

mod alone;
mod arrival;
mod drain;
mod failures;
mod manifest;
mod with_managers;
mod world;

use std::time::Duration;

use crate::scenarios::Trials;

/// How long a single step may take: an emulated machine boots a kubelet on what other tests leave of the cores. It only ends a hang.
const LIMIT: Duration = Duration::from_mins(15);

pub(super) fn trials() -> Trials {
    Trials::new()
        .trial("e2e::from_kubectl_apply_to_a_pod_that_runs", with_managers::whole)
        .trial("e2e::without_cluster_apis_managers", alone::whole)
}
