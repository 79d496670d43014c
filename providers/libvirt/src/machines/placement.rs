//! On which hypervisor a new machine is made.
//!
//! libvirt never refuses a domain for want of room, so the provider counts itself. What counts as taken at a
//! hypervisor:
//!
//! - the vCPUs and the maximum memory of all its domains, ours or not, running or not;
//! - what was promised to machines whose domain is not defined yet. A promise is made together with the
//!   choice, under one lock, so 500 machines at once do not all choose the same hypervisor.
//!
//! A hypervisor that is unreachable, or has a domain that cannot be read, is not chosen. Among those with
//! room the choice spreads the machines of a cluster: first over failure domains, then over hypervisors,
//! machines of the control plane among themselves. Then the least loaded one is taken, then the first by
//! name. So the same input gives the same answer.
//!
//! # How a step uses it
//!
//! ```text
//! match placer.place(|| gather(hypervisors, &mark), &config.machines, &wanted, now)? {
//!     Placement::On(hypervisor) => go on there
//!     Placement::Wait(wait)     => answer MachineReport::Creating(wait)
//! }
//! ```
//!
//! - Call it in each step until the domain is defined: that renews the promise, which otherwise ends after an
//!   hour. The answer stays the same as long as it is possible.
//! - [`Wanted::bound`] is where parts of the machine (volumes, seed) are already, found by its UID. A restart
//!   loses the promises, and this brings them back: a decision whose first effect can be seen is never made
//!   anew.
//! - A promise for a hypervisor that has become unreachable stands, since parts may be there. Call
//!   [`Placer::release`] in a step towards gone, or if it is known that nothing was made.

mod choice;
mod promises;

use std::sync::Arc;

use cloudprovider::machines::Mark;

use self::choice::{HypervisorLoad, Kin, Resident};
use crate::{
    domain::Domain,
    hypervisor::{Hypervisor, State},
    size::Size,
};

pub(crate) use self::{
    choice::{Placement, Wanted},
    promises::Placer,
};

/// All hypervisors, from memory, for a machine with this mark.
pub(crate) fn gather(hypervisors: &[Arc<Hypervisor>], mark: &Mark) -> Vec<HypervisorLoad> {
    hypervisors.iter().map(|hypervisor| host(hypervisor, &hypervisor.state(), mark)).collect()
}

/// A hypervisor that is unreachable keeps its residents, since they count when machines are spread.
fn host(hypervisor: &Hypervisor, state: &State, mark: &Mark) -> HypervisorLoad {
    let domains = || state.inventory.domains();
    let residents = domains().map(|domain| resident(domain, mark)).collect();
    // one that could be read once has the size that it had then
    let unreadable = domains().filter(|domain| domain.state.is_err() && domain.memory_mib == 0);
    let unreadable = unreadable.map(|domain| domain.name.as_str()).min();
    let total = match (hypervisor.staleness(&state.status), unreadable, &state.size) {
        (Some(staleness), ..) => Err(staleness.to_string()),
        (None, Some(name), _) => {
            Err(format!("hypervisor {:?} has a domain {name:?} that cannot be read", hypervisor.name()))
        }
        (None, None, Err(why)) => {
            Err(format!("hypervisor {:?} does not tell its CPUs and memory: {why}", hypervisor.name()))
        }
        (None, None, Ok(size)) => Ok(*size),
    };
    HypervisorLoad {
        name: hypervisor.name().to_owned(),
        failure_domain: hypervisor.config.failure_domain().to_owned(),
        total,
        residents,
    }
}

fn resident(domain: &Domain, mark: &Mark) -> Resident {
    let size = Size { cpus: domain.vcpus.into(), memory_mib: domain.memory_mib };
    Resident { domain: domain.uuid, size, kin: kin(domain, mark) }
}

/// By the metadata of the domain, which name its cluster and its role.
fn kin(domain: &Domain, mark: &Mark) -> Kin {
    match domain.metadata.as_deref() {
        Some(metadata) if metadata.cluster.as_deref() == Some(mark.cluster.as_str()) => {
            if metadata.role.as_deref() == Some("control-plane") { Kin::ControlPlane } else { Kin::Worker }
        }
        _ => Kin::Stranger,
    }
}

#[cfg(test)]
mod tests;
