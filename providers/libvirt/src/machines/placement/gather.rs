//! What the provider knows of its hypervisors, as places for machines.

use std::sync::Arc;

use cloudprovider::machines::Mark;

use super::choice::{Host, Kin, Resident};
use crate::{
    domain::Domain,
    hypervisor::{Hypervisor, State},
    size::Size,
};

/// All hypervisors, from memory, for a machine with this mark.
pub(crate) fn gather(hypervisors: &[Arc<Hypervisor>], mark: &Mark) -> Vec<Host> {
    hypervisors.iter().map(|hypervisor| host(hypervisor, &hypervisor.state(), mark)).collect()
}

/// A hypervisor that is unreachable keeps its residents, since they count when machines are spread.
fn host(hypervisor: &Hypervisor, state: &State, mark: &Mark) -> Host {
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
    Host {
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
