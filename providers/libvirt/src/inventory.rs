//! The in-memory inventory of one hypervisor's domains. Pure state, no libvirt.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
};

use cloudprovider::{InstanceRef, NodeAddress, PowerState};
use uuid::Uuid;

use crate::{
    addresses::{self, AddressRules, AgentInterface, Family, Lease, Leases},
    domain::{AgentChannel, Domain, Nic},
    mac::Mac,
    provider_id::format_provider_id,
};

/// How long an expired lease still counts, in seconds: enough time to check whether it was renewed.
pub(crate) const LEASE_GRACE: i64 = 30;

/// A full listing of a hypervisor.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) domains: Vec<Domain>,
    /// Known domains that are missing in the list, although libvirt does not confirm that they do not exist,
    /// and why.
    pub(crate) unreadable: Vec<(Uuid, String)>,
    pub(crate) leases: NetworkLeases,
}

/// Leases by network, or by the UUID of their domain after a slash, which is not valid in a network's name.
pub(crate) type NetworkLeases = HashMap<String, Vec<(Mac, Lease)>>;

/// The domains of a hypervisor and their addresses.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    domains: HashMap<Uuid, Domain>,
    /// libvirt keeps names unique within a hypervisor.
    names: HashMap<String, Uuid>,
    /// The machines that were made here, by the name of their Node. Namespaces may have machines of one name.
    machines: HashMap<String, BTreeSet<Uuid>>,
    network_leases: NetworkLeases,
    /// `network_leases` by network and MAC.
    leases: Leases,
    /// The last reports of the guest agents.
    agents: HashMap<Uuid, Vec<AgentInterface>>,
    /// Domains with a connected agent that has not answered yet.
    unheard: HashSet<Uuid>,
    /// How many times known domains may have been dropped.
    removals: u64,
}

impl Inventory {
    pub(crate) fn by_uuid(&self, uuid: Uuid) -> Option<&Domain> {
        self.domains.get(&uuid)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Domain> {
        self.domains.get(self.names.get(name)?)
    }

    /// The machines that were made here whose Node has this name. Their domains are called otherwise.
    pub(crate) fn machines_of_node<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Domain> + use<'a> {
        let machines = self.machines.get(node).into_iter().flatten();
        machines.filter_map(|uuid| self.domains.get(uuid))
    }

    pub(crate) fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.domains.len()
    }

    /// Applies a listing, and returns the changes.
    pub(crate) fn replace(&mut self, listing: Listing) -> Vec<InstanceRef> {
        let mut changed = Vec::new();
        self.removals += 1;
        let unreadable = listing.unreadable.iter().map(|(uuid, _)| *uuid);
        let listed: HashSet<Uuid> =
            listing.domains.iter().map(|domain| domain.uuid).chain(unreadable).collect();
        let gone: Vec<Uuid> = self.domains.keys().filter(|uuid| !listed.contains(uuid)).copied().collect();
        for uuid in gone {
            changed.extend(self.update(uuid, None));
        }
        for domain in listing.domains {
            changed.extend(self.update(domain.uuid, Some(domain)));
        }
        for (uuid, why) in listing.unreadable {
            changed.extend(self.set_unreadable(uuid, why));
        }
        // a network that the listing lacks is gone, and so are its leases
        self.network_leases.clear();
        merge(&mut changed, self.set_leases(listing.leases));
        changed
    }

    /// How many times known domains may have been dropped so far.
    pub(crate) fn removals(&self) -> u64 {
        self.removals
    }

    /// Marks a known domain as unreadable: it still exists, but its state is not known.
    pub(crate) fn set_unreadable(&mut self, uuid: Uuid, why: String) -> Option<InstanceRef> {
        let known = self.domains.get(&uuid)?;
        self.update(uuid, Some(Domain { state: Err(why), ..known.clone() }))
    }

    /// Applies the result of reading a domain again; `None` if it is gone.
    pub(crate) fn update(&mut self, uuid: Uuid, domain: Option<Domain>) -> Option<InstanceRef> {
        let old = self.domains.get(&uuid);
        if old == domain.as_ref() {
            return None;
        }
        let changed = domain.as_ref().or(old).map(reference);
        if let Some(old) = self.domains.remove(&uuid) {
            if self.names.get(&old.name) == Some(&uuid) {
                self.names.remove(&old.name);
            }
            if let Some(machines) = self.machines.get_mut(old.node_name()) {
                machines.remove(&uuid);
                if machines.is_empty() {
                    self.machines.remove(old.node_name());
                }
            }
        }
        match domain {
            Some(domain) => {
                if domain.agent == AgentChannel::Connected && domain.is_running() {
                    if !self.agents.contains_key(&uuid) {
                        self.unheard.insert(uuid);
                    }
                } else {
                    self.unheard.remove(&uuid);
                }
                if matches!(domain.power(), Some(PowerState::Off | PowerState::Crashed)) {
                    // the addresses may be different after the next start
                    self.agents.remove(&uuid);
                }
                self.names.insert(domain.name.clone(), uuid);
                if domain.has_node_name() {
                    self.machines.entry(domain.node_name().to_owned()).or_default().insert(uuid);
                }
                self.domains.insert(uuid, domain);
            }
            None => {
                self.removals += 1;
                self.agents.remove(&uuid);
                self.unheard.remove(&uuid);
            }
        }
        changed
    }

    /// Applies the leases of these networks, and returns the domains whose addresses changed. A renewal is
    /// not a change.
    pub(crate) fn set_leases(&mut self, leases: NetworkLeases) -> Vec<InstanceRef> {
        self.network_leases.extend(leases);
        let mut by_mac = Leases::new();
        for (source, leases) in &self.network_leases {
            let domain = source.strip_prefix('/').and_then(|uuid| self.domains.get(&uuid.parse().ok()?));
            for (mac, lease) in leases {
                let network = match domain {
                    Some(domain) => domain.nics.iter().find(|nic| nic.mac == *mac).and_then(Nic::network),
                    None => Some(source.as_str()),
                };
                if let Some(network) = network {
                    let of_network = by_mac.entry(network.to_owned()).or_default();
                    of_network.entry(*mac).or_default().push(*lease);
                }
            }
        }
        let old = std::mem::replace(&mut self.leases, by_mac);
        let ips = |nic: &Nic, leases: &Leases| -> BTreeSet<IpAddr> {
            addresses::leases_of(nic, leases).iter().map(|lease| lease.ip).collect()
        };
        let differs = |nic: &Nic| ips(nic, &old) != ips(nic, &self.leases);
        self.domains.values().filter(|domain| domain.nics.iter().any(differs)).map(reference).collect()
    }

    /// Applies a guest agent's report. `None` if there was none; then the last one is kept.
    pub(crate) fn set_agent(
        &mut self,
        uuid: Uuid,
        heard: Option<Vec<AgentInterface>>,
    ) -> Option<InstanceRef> {
        let domain = self.domains.get(&uuid)?;
        let was_unheard = self.unheard.remove(&uuid);
        let Some(interfaces) = heard else { return was_unheard.then(|| reference(domain)) };
        let ours: HashSet<Mac> = domain.nics.iter().map(|nic| nic.mac).collect();
        // The guest may have thousands of pod interfaces. Only those of the domain's NICs are used.
        let interfaces: Vec<_> = interfaces
            .into_iter()
            .filter(|interface| interface.mac.is_some_and(|mac| ours.contains(&mac)))
            .collect();
        let changed = was_unheard || self.agents.get(&uuid) != Some(&interfaces);
        let reference = changed.then(|| reference(domain));
        self.agents.insert(uuid, interfaces);
        reference
    }

    /// Running domains with a connected guest agent.
    pub(crate) fn with_agent(&self) -> impl Iterator<Item = Uuid> {
        self.domains
            .values()
            .filter(|domain| domain.agent == AgentChannel::Connected && domain.is_running())
            .map(|domain| domain.uuid)
    }

    /// Whether the domain's guest agent is connected and has not answered yet.
    pub(crate) fn awaits_agent(&self, uuid: Uuid) -> bool {
        self.unheard.contains(&uuid)
    }

    /// The addresses of a domain, without its host name. Empty while it does not run, and until its guest
    /// agent has answered once: otherwise the Node would first get only some of its addresses.
    pub(crate) fn addresses(&self, domain: &Domain, rules: &AddressRules, now: i64) -> Vec<NodeAddress> {
        let is_up =
            domain.power().is_some_and(|power| !matches!(power, PowerState::Off | PowerState::Crashed));
        if !is_up || self.awaits_agent(domain.uuid) {
            return Vec::new();
        }
        let agent = self.agents.get(&domain.uuid).map_or(&[][..], Vec::as_slice);
        addresses::select(&domain.nics, &self.leases, agent, rules, now - LEASE_GRACE)
    }

    /// The IPv4 address that a DHCP server has given to the domain's NIC with this MAC address.
    pub(crate) fn leased_ipv4(&self, domain: &Domain, mac: Mac, now: i64) -> Option<IpAddr> {
        let nic = domain.nics.iter().find(|nic| nic.mac == mac)?;
        addresses::leased(nic, Family::Ipv4, &self.leases, now - LEASE_GRACE)
    }

    /// Running domains without an address that could have one.
    pub(crate) fn without_address(&self, rules: &AddressRules, now: i64) -> Vec<&Domain> {
        self.domains
            .values()
            .filter(|domain| domain.is_running() && domain.has_address_source())
            .filter(|domain| self.addresses(domain, rules, now).is_empty())
            .collect()
    }

    /// Whether a domain has no address of one of the wanted families.
    pub(crate) fn lacks_family(&self, domain: &Domain, rules: &AddressRules, now: i64) -> bool {
        let addresses = self.addresses(domain, rules, now);
        let has = |family: &Family| {
            addresses.iter().any(|one| (*family == Family::Ipv6) == one.address.contains(':'))
        };
        !rules.families.iter().all(has)
    }

    /// Whether the driver lists leases by domain instead of by network, which takes one call for each domain.
    /// Only libvirt's test driver does, and its leases do not change.
    pub(crate) fn has_leases_by_domain(&self, domain: &Domain) -> bool {
        self.network_leases.contains_key(&format!("/{}", domain.uuid))
    }

    /// When the first NIC of a running domain loses its last lease, in seconds since 1970. Ends up to `after`
    /// are skipped.
    pub(crate) fn next_lease_end(&self, after: i64) -> Option<i64> {
        self.domains
            .values()
            .filter(|domain| domain.is_running())
            .flat_map(|domain| &domain.nics)
            .map(|nic| addresses::leases_of(nic, &self.leases))
            .filter_map(|leases| leases.iter().filter_map(|lease| lease.expires).max())
            .filter(|end| *end > after)
            .min()
    }

    /// The libvirt networks that running domains are on.
    pub(crate) fn networks_in_use(&self) -> HashSet<String> {
        self.domains
            .values()
            .filter(|domain| domain.is_running())
            .flat_map(Domain::networks)
            .map(str::to_owned)
            .collect()
    }

    /// The UUIDs that are not the same in this list as in the inventory.
    pub(crate) fn differences(&self, listed: &[(Uuid, String)]) -> Vec<Uuid> {
        let mut differences: Vec<Uuid> = listed
            .iter()
            .filter(|(uuid, name)| self.domains.get(uuid).is_none_or(|domain| domain.name != *name))
            .map(|(uuid, _)| *uuid)
            .collect();
        let listed: HashSet<&Uuid> = listed.iter().map(|(uuid, _)| uuid).collect();
        differences.extend(self.domains.keys().filter(|uuid| !listed.contains(uuid)));
        differences
    }
}

/// The controllers' reference to a domain.
pub(crate) fn reference(domain: &Domain) -> InstanceRef {
    InstanceRef {
        provider_id: Some(format_provider_id(domain.uuid).as_str().to_owned()),
        system_uuid: Some(domain.uuid.hyphenated().to_string()),
        name: Some(domain.node_name().to_owned()),
        machine: domain.mark().map(|mark| mark.uid.clone()),
    }
}

/// Adds references that are not in the list yet.
fn merge(list: &mut Vec<InstanceRef>, more: Vec<InstanceRef>) {
    let known: HashSet<Option<String>> = list.iter().map(|one| one.provider_id.clone()).collect();
    list.extend(more.into_iter().filter(|one| !known.contains(&one.provider_id)));
}

#[cfg(test)]
mod tests;
