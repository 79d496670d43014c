//! Cluster API's own kinds, definitions and controllers are ours: none of its managers runs. The daemon is the binary, as the account
//! that its manifests give it.

mod autoscaler;
mod clusterctl;
mod example;
mod gate;
mod in_memory;
mod life;
mod reboots;
mod site;
mod takeover;
mod turns;

use crate::scenarios::Trials;

pub(crate) fn trials() -> Trials {
    Trials::new()
        .trial("lifecycle::a_deployment_from_its_beginning_to_its_end", life::whole)
        .trial("lifecycle::machines_of_cluster_apis_in_memory_provider", in_memory::whole)
        .trial("lifecycle::the_example_of_the_guide_begins", example::begins)
        .trial("lifecycle::a_machine_is_rebooted_before_it_is_replaced", reboots::rebooted)
        .trial("lifecycle::nothing_is_written_while_another_manager_holds_the_lease", gate::held)
        .trial("lifecycle::cluster_apis_managers_and_ours_take_turns", turns::alternate)
        .trial(
            "lifecycle::a_cluster_of_cluster_apis_managers_is_taken_over_and_given_back",
            takeover::there_and_back,
        )
        .trial(
            "lifecycle::an_autoscaler_in_rollouts_loses_what_it_chose_and_nothing_else",
            autoscaler::chooses,
        )
        .trial("lifecycle::clusterctl_installs_describes_and_moves", clusterctl::moves)
}
