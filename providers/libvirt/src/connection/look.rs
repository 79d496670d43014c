//! Polls for addresses whose changes bring no event.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

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

impl Actor {
    /// Reads leases where a running domain has no address yet, or where a lease ends: neither brings an
    /// event.
    pub(super) async fn look_for_addresses(&mut self, connected: &mut Connected) -> Result<(), Failure> {
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
            connected.without_address.retain(|uuid, _| uuids.contains(uuid));
            for uuid in &uuids {
                connected.without_address.entry(*uuid).or_insert(now);
            }
            connected.settling.retain(|_, since| now.duration_since(*since) < SETTLED_AFTER);
            let settling = connected
                .settling
                .keys()
                .filter(|uuid| !uuids.contains(*uuid))
                .filter_map(|uuid| state.inventory.by_uuid(*uuid))
                .filter(|domain| domain.is_running() && domain.has_address_source())
                .filter(|domain| state.inventory.lacks_family(domain, rules, seconds));
            for domain in missing.into_iter().chain(settling) {
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
        connected.next_look = now + connected.look_pause(now);
        for uuid in agents {
            if !connected.agents.queue.contains(&uuid) {
                connected.agents.queue.push_back(uuid);
            }
        }
        if networks.is_empty() && domains.is_empty() {
            return Ok(());
        }
        let leases: NetworkLeases =
            self.on_lane(connected, move |session| session.leases(&networks, &domains)).await?;
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
            self.settling.entry(domain.uuid).or_insert(now);
        }
    }

    /// How long to wait before the next poll: a second while a domain without an address is young, then a
    /// tenth of the time that it has been without one. While a second family may come, a quarter of the time
    /// since the start.
    pub(super) fn look_pause(&self, now: Instant) -> Duration {
        let youngest =
            |times: &HashMap<Uuid, Instant>| times.values().map(|at| now.duration_since(*at)).min();
        let second = Duration::from_secs(1);
        let without = youngest(&self.without_address)
            .map(|age| if age < EAGER { second } else { (age / 10).min(PATIENT) });
        let settling = youngest(&self.settling).map(|age| (age / 4).max(second));
        without.into_iter().chain(settling).min().unwrap_or(PATIENT)
    }
}
