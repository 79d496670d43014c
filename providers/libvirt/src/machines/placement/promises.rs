//! Promises of room to machines whose domain is not defined yet.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use cloudprovider::{Result, machines::Mark};
use parking_lot::{Mutex, MutexGuard};
use uuid::Uuid;

use super::choice::{HypervisorLoad, Kin, Placement, Resident, Wanted, choose};
use crate::{config::MachineLimits, machines::identity::Identity, size::Size};

/// How long a promise lasts that no step renews. Steps come at least once a resync period.
const PROMISE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Chooses hypervisors, and keeps the room that it has given away until the domain is there.
#[derive(Debug, Default)]
pub(crate) struct Placer {
    promises: Mutex<HashMap<Identity, Promise>>,
}

#[derive(Clone, Debug)]
struct Promise {
    hypervisor: String,
    size: Size,
    cluster: String,
    is_control_plane: bool,
    renewed: Instant,
}

impl Promise {
    fn kin(&self, of: &Identity, mark: &Mark) -> Kin {
        if of.namespace != mark.namespace || self.cluster != mark.cluster {
            Kin::Stranger
        } else if self.is_control_plane {
            Kin::ControlPlane
        } else {
            Kin::Worker
        }
    }
}

impl Placer {
    /// Chooses a hypervisor and promises it the room. `hosts` reads the hypervisors, with their domains as
    /// the only residents; it is called under the lock of the promises, so a domain is counted once: as a
    /// promise before it is seen, and as a domain after.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](cloudprovider::ErrorKind::NotFound) for a hypervisor or a failure domain that
    /// the configuration does not have, and
    /// [`ErrorKind::InvalidInput`](cloudprovider::ErrorKind::InvalidInput) if no hypervisor is all that is
    /// asked for.
    pub(crate) fn place(
        &self,
        hosts: impl FnOnce() -> Vec<HypervisorLoad>,
        limits: &MachineLimits,
        wanted: &Wanted<'_>,
        now: Instant,
    ) -> Result<Placement> {
        let asking = Identity { namespace: wanted.mark.namespace.clone(), uid: wanted.domain };
        let mut promises = self.lock();
        let mut hosts = hosts();
        let defined: HashSet<Uuid> =
            hosts.iter().flat_map(|host| host.residents.iter().map(|one| one.domain)).collect();
        promises.retain(|machine, promise| {
            !defined.contains(&machine.uid)
                && now.saturating_duration_since(promise.renewed) < PROMISE_TIMEOUT
        });
        for host in &mut hosts {
            host.residents.retain(|one| one.domain != wanted.domain);
            let promised = promises.iter().filter(|(_, promise)| promise.hypervisor == host.name);
            host.residents.extend(promised.filter(|(machine, _)| **machine != asking).map(
                |(machine, promise)| Resident {
                    domain: machine.uid,
                    size: promise.size,
                    kin: promise.kin(machine, wanted.mark),
                },
            ));
        }
        let placement = match promises.get(&asking).filter(|_| wanted.bound.is_none()) {
            Some(promise) => keep_or_choose(&hosts, limits, wanted, &promise.hypervisor)?,
            None => choose(&hosts, limits, wanted)?,
        };
        if let Placement::On(hypervisor) = &placement {
            let promise = Promise {
                hypervisor: hypervisor.clone(),
                size: wanted.size,
                cluster: wanted.mark.cluster.clone(),
                is_control_plane: wanted.is_control_plane,
                renewed: now,
            };
            promises.insert(asking, promise);
        }
        Ok(placement)
    }

    /// Ends the promise to a machine that is deleted, or that has no part yet.
    pub(crate) fn release(&self, machine: &Identity) {
        self.lock().remove(machine);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identity, Promise>> {
        self.promises.lock()
    }
}

/// Stays with an earlier choice while that is possible, and while it is not known.
fn keep_or_choose(
    hosts: &[HypervisorLoad],
    limits: &MachineLimits,
    wanted: &Wanted<'_>,
    chosen: &str,
) -> Result<Placement> {
    let is_asked = wanted.hypervisor.is_none_or(|name| name == chosen);
    if let Some(host) = hosts.iter().find(|host| host.name == chosen && is_asked) {
        let there = choose(std::slice::from_ref(host), limits, wanted);
        match there {
            Ok(Placement::On(_)) => return there,
            // parts of the machine may be there
            Ok(Placement::Wait(_)) if host.total.is_err() => return there,
            _ => {}
        }
    }
    choose(hosts, limits, wanted)
}

#[cfg(test)]
mod tests;
