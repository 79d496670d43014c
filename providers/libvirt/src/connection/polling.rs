//! Polls for addresses whose changes bring no event.

use std::{collections::HashSet, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    actor::Actor,
    connected::{Connected, LEASE_CHECK, PATIENT},
};
use crate::{
    addresses::AddressRules,
    calls::Failure,
    domain::AgentChannel,
    inventory::{Inventory, NetworkLeases},
};

/// How long a domain without an address is polled every second.
const EAGER: Duration = Duration::from_secs(60);
/// How long after its start a domain may still get addresses of a second family.
const SETTLED_AFTER: Duration = Duration::from_secs(120);
/// The least time between two polls. Each may read all leases of a network, so many domains that start share
/// one.
const LEAST_PAUSE: Duration = Duration::from_millis(250);

/// The pause before the next poll for a domain that has been without an address for so long.
fn pause_without_address(age: Duration) -> Duration {
    if age < EAGER { Duration::from_secs(1) } else { (age / 10).min(PATIENT) }
}

/// The pause before the next poll for the second family of a domain that started so long ago.
fn pause_while_settling(age: Duration) -> Duration {
    (age / 4).max(Duration::from_secs(1))
}

impl Actor {
    /// Reads leases where a running domain has no address yet, or where a lease ends: neither brings an
    /// event.
    pub(super) async fn poll_addresses(&mut self, connected: &mut Connected) -> Result<(), Failure> {
        let now = Instant::now();
        let mut networks = HashSet::new();
        let mut domains = Vec::new();
        let mut agents = Vec::new();
        {
            let state = self.hypervisor.state();
            let seconds = Timestamp::now().as_second();
            let rules = &self.hypervisor.settings.addresses;
            let missing = state.inventory.without_address(rules, seconds);
            let uuids: HashSet<Uuid> = missing.iter().map(|domain| domain.uuid).collect();
            connected.without_address.keep(now, |uuid, _| uuids.contains(&uuid));
            for uuid in &uuids {
                connected.without_address.begin(*uuid, now);
            }
            let missing = connected.without_address.take_due(now, pause_without_address);
            let missing = missing.into_iter().filter_map(|uuid| state.inventory.by_uuid(uuid));
            connected.settling.keep(now, |_, age| age < SETTLED_AFTER);
            let settling = connected.settling.take_due(now, pause_while_settling);
            let settling = settling
                .into_iter()
                .filter(|uuid| !uuids.contains(uuid))
                .filter_map(|uuid| state.inventory.by_uuid(uuid))
                .filter(|domain| domain.is_running() && domain.has_address_source())
                .filter(|domain| !state.inventory.has_leases_by_domain(domain))
                .filter(|domain| state.inventory.lacks_family(domain, rules, seconds));
            let asked: Vec<Uuid> = connected.leases_wanted.drain().collect();
            let asked = asked
                .into_iter()
                .filter_map(|uuid| state.inventory.by_uuid(uuid))
                .filter(|domain| domain.is_running());
            for domain in missing.chain(settling).chain(asked) {
                networks.extend(domain.networks().map(str::to_owned));
                domains.push(domain.uuid);
                if domain.agent == AgentChannel::Connected {
                    agents.push(domain.uuid);
                }
            }
            if connected.next_lease_check <= now
                && state.inventory.next_lease_end(seconds - 60).is_some_and(|end| end <= seconds + 5)
            {
                networks.extend(state.inventory.networks_in_use());
            }
        }
        if connected.next_lease_check <= now {
            connected.next_lease_check = now + LEASE_CHECK;
        }
        if !networks.is_empty() || !domains.is_empty() {
            connected.earliest_next_poll = now + LEAST_PAUSE;
        }
        connected.next_poll = connected.next_poll_after(now);
        for uuid in agents {
            if !connected.agents.queue.contains(&uuid) {
                connected.agents.queue.push_back(uuid);
            }
        }
        if networks.is_empty() && domains.is_empty() {
            return Ok(());
        }
        let leases: NetworkLeases =
            self.on_worker(connected, move |session| session.leases(&networks, &domains)).await?;
        self.hypervisor.update(|state| state.inventory.set_leases(leases));
        Ok(())
    }
}

impl Connected {
    /// Notes domains that are newly found running and lack a wanted family: they may have just started.
    pub(super) fn note_listed(&mut self, inventory: &Inventory, rules: &AddressRules, ran: &HashSet<Uuid>) {
        let now = Instant::now();
        let seconds = Timestamp::now().as_second();
        let started = inventory.domains().filter(|domain| {
            domain.is_running()
                && !ran.contains(&domain.uuid)
                && !inventory.has_leases_by_domain(domain)
                && inventory.lacks_family(domain, rules, seconds)
        });
        for domain in started {
            self.settling.begin(domain.uuid, now);
        }
    }

    /// The next poll: when the first domain is due, but not too soon.
    fn next_poll_after(&self, now: Instant) -> Instant {
        let due = [self.without_address.next(), self.settling.next()].into_iter().flatten().min();
        due.unwrap_or(now + PATIENT).min(now + PATIENT).max(self.earliest_next_poll)
    }

    /// Polls for addresses as soon as it may: domains may have started.
    pub(super) fn poll_soon(&mut self) {
        self.next_poll = Instant::now().max(self.earliest_next_poll);
    }
}
