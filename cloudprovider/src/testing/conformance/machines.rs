//! Rules about machines and clusters.

mod clusters;
mod deletion;
mod driver;
mod interrupted;
mod made;
mod others;
mod reset;
mod seen;
mod trouble;

use futures::FutureExt as _;

use super::check::Check;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "made",
        says: "Steps make a machine that runs and has a provider ID; with it gone, nothing is left.",
        look: |run| made::made(run).boxed(),
    },
    Check {
        name: "again",
        says: "Further steps of a machine that exists say the same and make nothing.",
        look: |run| made::again(run).boxed(),
    },
    Check {
        name: "bootstrap",
        says: "A machine is not made before its bootstrap data are there, and says so.",
        look: |run| made::bootstrap(run).boxed(),
    },
    Check {
        name: "many",
        says: "Very many machines are made and deleted at the same time, each with its own provider ID.",
        look: |run| made::many(run).boxed(),
    },
    Check {
        name: "restart",
        says: "Another provider finds the machine that the one before made, also without its status.",
        look: |run| interrupted::restart(run).boxed(),
    },
    Check {
        name: "status-lost",
        says: "With an empty status before each step, the same machine is made, and all of it is deleted.",
        look: |run| interrupted::status_lost(run).boxed(),
    },
    Check {
        name: "cut-off",
        says: "After a step that was cut off anywhere, another provider makes one machine, and deletes all of it.",
        look: |run| interrupted::cut_off(run).boxed(),
    },
    Check {
        name: "deletion-cut-off",
        says: "After a step towards gone that was cut off anywhere, another provider deletes the rest.",
        look: |run| interrupted::deletion_cut_off(run).boxed(),
    },
    Check {
        name: "deleted",
        says: "A machine that was deleted is gone with all its parts, others stay, and deleting it again succeeds.",
        look: |run| deletion::deleted(run).boxed(),
    },
    Check {
        name: "never-made",
        says: "Deleting a machine that never was succeeds and makes nothing.",
        look: |run| deletion::never_made(run).boxed(),
    },
    Check {
        name: "deleted-early",
        says: "A machine that is deleted while it is made is gone for good, also without its status.",
        look: |run| deletion::deleted_early(run).boxed(),
    },
    Check {
        name: "forgotten",
        says: "That an object is gone changes nothing in the cloud, and its machine is found again if the object comes back.",
        look: |run| deletion::forgotten(run).boxed(),
    },
    Check {
        name: "foreign",
        says: "A machine of this name that nobody made for us is an error that names it, and is left alone.",
        look: |run| others::foreign(run).boxed(),
    },
    Check {
        name: "marks",
        says: "A machine of another cluster, or with a copied identity, is not adopted, changed or deleted.",
        look: |run| others::marks(run).boxed(),
    },
    Check {
        name: "vanished",
        says: "A machine that was destroyed behind our back is lost, and is not made again.",
        look: |run| trouble::vanished(run).boxed(),
    },
    Check {
        name: "powered-off",
        says: "A machine that was powered off behind our back still exists.",
        look: |run| trouble::powered_off(run).boxed(),
    },
    Check {
        name: "reset",
        says: "A machine that is reset stays what it is and runs, also one that was off. No other machine is reset.",
        look: |run| reset::reset_machine(run).boxed(),
    },
    Check {
        name: "failed-task",
        says: "Work that fails is an error with the cloud's own words, and is begun again.",
        look: |run| trouble::failed_task(run).boxed(),
    },
    Check {
        name: "disconnected",
        says: "While the cloud cannot be reached no machine is made, lost or gone.",
        look: |run| trouble::disconnected(run).boxed(),
    },
    Check {
        name: "provider-id",
        says: "The provider ID of a machine is, byte for byte, that of its Node.",
        look: |run| seen::provider_id(run).boxed(),
    },
    Check {
        name: "addresses",
        says: "A machine has the IP addresses of its Node, and none of another machine.",
        look: |run| seen::addresses(run).boxed(),
    },
    Check {
        name: "failure-domain",
        says: "A machine is in the failure domain that was asked for, or is not made.",
        look: |run| seen::failure_domain(run).boxed(),
    },
    Check {
        name: "told",
        says: "All that a step waits for is told with the identity of its object, and so are changes behind our back.",
        look: |run| seen::told(run).boxed(),
    },
    Check {
        name: "told-after-restart",
        says: "What a step of another process waits for is told too.",
        look: |run| seen::told_after_restart(run).boxed(),
    },
    Check {
        name: "capacity",
        says: "The capacity of a spec is told the same each time, in quantities.",
        look: |run| seen::capacity(run).boxed(),
    },
    Check {
        name: "cluster",
        says: "Steps of a cluster make it once, keep its endpoint, and delete all of it.",
        look: |run| clusters::cluster(run).boxed(),
    },
];
