//! Resolves a Node to its domain, from memory: pure rules over the inventories of all hypervisors.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Instance, InstanceLookup, InstanceMetadata, NodeAddress, NodeAddressType, NodeIdentity,
    PowerState, label_key_fault, label_value_fault,
    ties::{Activity, Contender, Evidence, LastSeen, Meant, NameFound, the_meant_one},
    uuids::{identifying_uuid, swapped},
};
use jiff::Timestamp;
use parking_lot::RwLockReadGuard;
use uuid::Uuid;

use crate::{
    addresses::AddressRules,
    config::is_label_value,
    domain::{AgentChannel, Domain, Nic},
    hypervisor::{Hypervisor, State, Status},
    provider_id::{DomainId, format_provider_id, is_domain_name, parse_provider_id},
};

/// When to look up a domain without an address again.
const ADDRESS_RETRY: Duration = Duration::from_secs(1);

/// All hypervisors as they are at one moment.
pub(crate) struct View<'a> {
    hosts: Vec<HypervisorView<'a>>,
    rules: &'a AddressRules,
    last_seen: &'a LastSeen<Box<str>>,
    now: i64,
}

/// One hypervisor in a [`View`].
pub(crate) struct HypervisorView<'a> {
    pub(crate) hypervisor: &'a Hypervisor,
    pub(crate) state: RwLockReadGuard<'a, State>,
}

/// A domain and its host.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    host: &'a HypervisorView<'a>,
    domain: &'a Domain,
}

/// Every UUID and name by which the domain of a node could be found; empty if the node has no usable one.
pub(crate) fn domain_ids(node: &NodeIdentity) -> Vec<DomainId> {
    if let Some(id) = node.provider_id.as_deref().filter(|id| !id.is_empty()) {
        return match parse_provider_id(id) {
            Ok(id) => vec![id],
            Err(_) => Vec::new(),
        };
    }
    let machine_id = node.machine_id.as_deref().and_then(identifying_uuid);
    let uuids = match firmware_uuid(node, machine_id) {
        Some(uuid) if swapped(uuid) != uuid => vec![uuid, swapped(uuid)],
        Some(uuid) => vec![uuid],
        None => machine_id.into_iter().collect(),
    };
    let name = Some(&node.name).filter(|name| is_domain_name(name));
    uuids.into_iter().map(DomainId::Uuid).chain(name.cloned().map(DomainId::Name)).collect()
}

/// How a Node is resolved from memory.
pub(crate) enum Resolution {
    /// The answer is final.
    Settled(InstanceLookup),
    /// All hypervisors are live, and none lists such a domain. The Node is absent once they confirm it.
    NotListed,
    /// A hypervisor that is still starting may have the domain. Until then this error is the answer.
    Starting(Error),
}

impl<'a> View<'a> {
    pub(crate) fn new(
        hypervisors: &'a [Arc<Hypervisor>],
        rules: &'a AddressRules,
        last_seen: &'a LastSeen<Box<str>>,
    ) -> Self {
        let hosts = hypervisors
            .iter()
            .map(|hypervisor| HypervisorView { hypervisor, state: hypervisor.state() })
            .collect();
        Self { hosts, rules, last_seen, now: Timestamp::now().as_second() }
    }

    pub(crate) fn hosts(&self) -> &[HypervisorView<'a>] {
        &self.hosts
    }

    /// Resolves one node.
    pub(crate) fn resolve(&self, node: &NodeIdentity) -> Resolution {
        match self.find(node) {
            // A domain that does not run may be left from a migration, so wait for hypervisors that are still
            // starting. Do not wait for unreachable ones: Nodes on other hypervisors must not depend on them.
            // The only effect of "off" is the shutdown taint, which is removed again.
            Ok(Some(found)) => match self.starting().filter(|_| !found.domain.is_running()) {
                Some(error) => Resolution::Starting(error),
                None => {
                    self.note(node, found);
                    Resolution::Settled(instance(found, node, self.rules, self.now))
                }
            },
            Ok(None) => match self.staleness() {
                None => Resolution::NotListed,
                Some(staleness) => {
                    let error = Error::new(
                        staleness.kind(),
                        format!("cannot tell whether there is a domain for this node: {staleness}"),
                    );
                    self.starting_or_settled(retrying_like(error, &staleness))
                }
            },
            Err(error) => self.starting_or_settled(error),
        }
    }

    fn starting_or_settled(&self, error: Error) -> Resolution {
        // waiting resolves neither two matches nor a malformed ID
        let can_change = !matches!(error.kind(), ErrorKind::Ambiguous | ErrorKind::InvalidInput);
        if can_change && self.starting().is_some() {
            Resolution::Starting(error)
        } else {
            Resolution::Settled(error.into())
        }
    }

    /// The error of a hypervisor that has not finished its first listing.
    fn starting(&self) -> Option<Error> {
        self.hosts.iter().find(|host| matches!(host.state.status, Status::Starting))?.staleness()
    }

    /// The error of a hypervisor that was never listed, because it is still starting or could not be reached.
    fn unlisted(&self) -> Option<Error> {
        self.hosts.iter().find(|host| !host.state.is_listed)?.staleness()
    }

    /// Why the view is stale: the errors of all hypervisors that are not live, as one.
    pub(crate) fn staleness(&self) -> Option<Error> {
        let mut stale = self.hosts.iter().filter_map(HypervisorView::staleness);
        let first = stale.next()?;
        let rest: Vec<_> = stale.map(|error| error.to_string()).collect();
        if rest.is_empty() {
            return Some(first);
        }
        let all = Error::new(first.kind(), format!("{first}; {}", rest.join("; ")));
        Some(retrying_like(all, &first))
    }

    /// The domain of a node and its host; `None` if it is on no hypervisor, as far as is known.
    fn find(&self, node: &NodeIdentity) -> Result<Option<Candidate<'_>>, Error> {
        if let Some(id) = node.provider_id.as_deref().filter(|id| !id.is_empty()) {
            return match parse_provider_id(id)? {
                DomainId::Uuid(uuid) => self.choose(node, &self.with_uuid(uuid)),
                DomainId::Name(name) => self.find_by_name_in_id(&name, node),
            };
        }
        let machine_id = node.machine_id.as_deref().and_then(identifying_uuid);
        let Some(system_uuid) = firmware_uuid(node, machine_id) else {
            return self.find_without_firmware(node, machine_id);
        };
        // SMBIOS stores the first three fields in little-endian order, and not all programs convert them.
        let mut candidates = self.with_uuid(system_uuid);
        if swapped(system_uuid) != system_uuid {
            candidates.extend(self.with_uuid(swapped(system_uuid)));
        }
        if let Some(found) = self.choose(node, &candidates)? {
            return Ok(Some(found));
        }
        let Some(found) = self.choose(node, &self.with_name(&node.name))? else { return Ok(None) };
        if let Some(error) = self.unlisted() {
            // that hypervisor may have a domain with this name or UUID
            return Err(error);
        }
        // The node's own domain may be on a hypervisor that cannot be read now. Another domain that merely
        // has the node's name must not become its provider ID, which cannot be changed later.
        match self.staleness() {
            Some(staleness) => Err(Self::may_be_elsewhere(found, "name but not its system UUID", &staleness)),
            None => Ok(Some(found)),
        }
    }

    /// The domain of a node whose firmware has no UUID: found by machine ID and name.
    ///
    /// On a fresh disk, systemd makes the machine ID from the domain's UUID, and clones of that disk carry it
    /// into other domains. So it is used only while all hypervisors can be read and nothing contradicts it.
    fn find_without_firmware(
        &self,
        node: &NodeIdentity,
        machine_id: Option<Uuid>,
    ) -> Result<Option<Candidate<'_>>, Error> {
        let mut candidates = machine_id.map_or(Vec::new(), |uuid| self.with_uuid(uuid));
        let is_by_machine_id = !candidates.is_empty();
        let seen: Vec<_> =
            candidates.iter().map(|one| (one.host.hypervisor.name(), one.domain.uuid)).collect();
        candidates.extend(
            self.with_name(&node.name)
                .into_iter()
                .filter(|one| !seen.contains(&(one.host.hypervisor.name(), one.domain.uuid))),
        );
        let Some(found) = self.choose(node, &candidates)? else { return Ok(None) };
        if let Some(error) = self.unlisted() {
            return Err(error);
        }
        match self.staleness().filter(|_| is_by_machine_id) {
            Some(staleness) => Err(Self::may_be_elsewhere(
                found,
                "machine ID, which a cloned disk carries as well",
                &staleness,
            )),
            None => Ok(Some(found)),
        }
    }

    /// The domain of a node whose provider ID contains a name, as other components write it.
    fn find_by_name_in_id(&self, name: &str, node: &NodeIdentity) -> Result<Option<Candidate<'_>>, Error> {
        let Some(found) = self.choose(node, &self.with_name(name))? else { return Ok(None) };
        if let Some(error) = self.unlisted() {
            return Err(error);
        }
        let machine_id = node.machine_id.as_deref().and_then(identifying_uuid);
        let is_other = firmware_uuid(node, machine_id)
            .is_some_and(|uuid| uuid != found.domain.uuid && swapped(uuid) != found.domain.uuid);
        match self.staleness().filter(|_| is_other) {
            Some(staleness) => Err(Self::may_be_elsewhere(found, "name but not its system UUID", &staleness)),
            None => Ok(Some(found)),
        }
    }

    fn may_be_elsewhere(found: Candidate<'_>, what: &str, staleness: &Error) -> Error {
        let words = format!(
            "domain {} has the node's {what}; the node's own domain may be elsewhere: {staleness}",
            found.describe()
        );
        retrying_like(Error::new(staleness.kind(), words), staleness)
    }

    fn with_uuid(&self, uuid: Uuid) -> Vec<Candidate<'_>> {
        self.candidates(|host| host.state.inventory.by_uuid(uuid))
    }

    /// The domains of this name, else the machines that were made here for a Node of this name. Domains come
    /// first: a tenant chooses what its machines are called.
    fn with_name(&self, name: &str) -> Vec<Candidate<'_>> {
        let domains = self.candidates(|host| host.state.inventory.by_name(name));
        if !domains.is_empty() {
            return domains;
        }

        self.hosts
            .iter()
            .flat_map(|host| {
                let machines = host.state.inventory.machines_of_node(name);
                machines.map(move |domain| Candidate { host, domain })
            })
            .collect()
    }

    fn candidates<'s>(
        &'s self,
        get: impl Fn(&'s HypervisorView<'a>) -> Option<&'s Domain>,
    ) -> Vec<Candidate<'s>> {
        self.hosts.iter().filter_map(|host| Some(Candidate { host, domain: get(host)? })).collect()
    }

    /// The domain that is meant by these candidates.
    ///
    /// The same UUID on two hypervisors is a domain that is being migrated, one that left its definition
    /// behind, or a copy. What is known of them decides. Domains with different UUIDs are an error, which a
    /// person has to resolve.
    fn choose<'s>(
        &self,
        node: &NodeIdentity,
        candidates: &[Candidate<'s>],
    ) -> Result<Option<Candidate<'s>>, Error> {
        let Some(first) = candidates.first() else { return Ok(None) };
        if candidates.iter().any(|candidate| candidate.domain.uuid != first.domain.uuid) {
            return Err(ambiguous(candidates));
        }
        let contender = |one: &Candidate<'s>| Contender {
            instance: *one,
            evidence: self.evidence(node, *one),
            is_read: one.host.staleness().is_none(),
        };
        let meant = match candidates {
            [only] if only.host.staleness().is_none() => Meant::One(*only),
            [only] => Meant::Unread(*only),
            _ => the_meant_one(&candidates.iter().map(contender).collect::<Vec<_>>()),
        };
        match meant {
            Meant::None => Ok(None),
            Meant::One(one) => Ok(Some(one)),
            Meant::Tie => Err(ambiguous(candidates)),
            Meant::Unread(lost) => match lost.host.staleness() {
                None => Ok(Some(lost)),
                Some(staleness) => {
                    let words = format!("domain {:?} was last seen there: {staleness}", lost.domain.name);
                    Err(retrying_like(Error::new(staleness.kind(), words), &staleness))
                }
            },
        }
    }

    /// What is known of a domain that may be the one of a node.
    fn evidence(&self, node: &NodeIdentity, Candidate { host, domain }: Candidate<'_>) -> Evidence {
        let has_address = !node.addresses.is_empty() && {
            let own = host.state.inventory.addresses(domain, &AddressRules::default(), self.now);
            own.iter().any(|own| node.addresses.iter().any(|address| address.address == own.address))
        };
        Evidence {
            has_address,
            was_last_seen: self.last_seen.is(&node.name, |name| **name == *host.hypervisor.name()),
            ..evidence(domain, &node.name)
        }
    }

    fn note(&self, node: &NodeIdentity, Candidate { host, .. }: Candidate<'_>) {
        let hypervisor = host.hypervisor.name();
        if !self.last_seen.is(&node.name, |name| **name == *hypervisor) {
            self.last_seen.note(&node.name, hypervisor.into());
        }
    }
}

/// The evidence in a domain itself that it is the one of a Node or machine with this name.
pub(crate) fn evidence(domain: &Domain, name: &str) -> Evidence {
    Evidence {
        is_connected: domain.state.is_ok(),
        activity: domain.power().map(Activity::from).unwrap_or_default(),
        name: if domain.name == name { NameFound::InCloud } else { NameFound::Nowhere },
        ..Evidence::default()
    }
}

/// The error if nothing tells the candidates apart.
fn ambiguous(candidates: &[Candidate<'_>]) -> Error {
    let names: Vec<_> = candidates.iter().map(Candidate::describe).collect();
    let words = format!("more than one domain matches the node: {}", names.join(" and "));
    Error::new(ErrorKind::Ambiguous, words)
}

/// The instance of the domain with this UUID on this hypervisor.
pub(crate) fn instance_on(
    hypervisor: &Hypervisor,
    uuid: Uuid,
    node: &NodeIdentity,
    rules: &AddressRules,
) -> InstanceLookup {
    let host = HypervisorView { hypervisor, state: hypervisor.state() };
    match host.state.inventory.by_uuid(uuid) {
        Some(domain) => {
            instance(Candidate { host: &host, domain }, node, rules, Timestamp::now().as_second())
        }
        None => InstanceLookup::Absent,
    }
}

fn instance(found: Candidate<'_>, node: &NodeIdentity, rules: &AddressRules, now: i64) -> InstanceLookup {
    let Candidate { host, domain } = found;
    let power = match &domain.state {
        Ok(state) => state.power,
        Err(words) => {
            return Error::new(
                ErrorKind::Unavailable,
                format!("libvirt cannot tell the state of domain {}: {words}", found.describe()),
            )
            .into();
        }
    };
    let mut addresses = host.state.inventory.addresses(domain, rules, now);
    let incomplete = addresses.is_empty().then(|| missing_address(found, node, power)).flatten();
    if !addresses.is_empty() {
        addresses.push(NodeAddress::hostname(&node.name));
    }
    let metadata = InstanceMetadata {
        instance_type: Some(domain.instance_type()).filter(|text| is_label_value(text)),
        addresses,
        zone: host.hypervisor.config.zone.clone(),
        region: host.hypervisor.config.region.clone(),
        additional_labels: labels(domain),
    };
    let instance = Instance::new(format_provider_id(domain.uuid), power)
        .with_metadata(metadata)
        .with_matched_by(matched_by(domain.uuid, node));
    match incomplete {
        Some(why) => instance.with_incomplete(why).into(),
        None => instance.into(),
    }
}

/// Why a domain without an address is incomplete; `None` if no source can ever know its address, or if
/// the node has an internal address already.
fn missing_address(found: Candidate<'_>, node: &NodeIdentity, power: PowerState) -> Option<Error> {
    let has_its_own =
        node.addresses.iter().any(|address| address.address_type == NodeAddressType::InternalIp);
    if has_its_own || !found.domain.has_address_source() {
        return None;
    }
    if power != PowerState::Running {
        let words = format!("domain {} has no address yet: it is {power}", found.describe());
        return Some(Error::in_progress(ADDRESS_RETRY, words));
    }
    if found.host.state.inventory.awaits_agent(found.domain.uuid) {
        // There may be leases, but they are not reported before the agent has answered.
        let words = format!("domain {} has no address yet: guest agent being asked", found.describe());
        return Some(Error::in_progress(ADDRESS_RETRY, words));
    }
    let macs: Vec<_> = found
        .domain
        .nics
        .iter()
        .filter(|nic| nic.network().is_some())
        .map(|nic: &Nic| nic.mac.to_string())
        .collect();
    let lease = if macs.is_empty() {
        "no NIC on a network of libvirt's".to_owned()
    } else {
        format!("no DHCP lease for {}", macs.join(", "))
    };
    let agent = match found.domain.agent {
        AgentChannel::None => "no channel for a guest agent",
        AgentChannel::Disconnected => "guest agent not connected",
        AgentChannel::Connected => "guest agent knows none",
    };
    Some(Error::in_progress(
        ADDRESS_RETRY,
        format!("domain {} has no address yet: {lease}, {agent}", found.describe()),
    ))
}

impl HypervisorView<'_> {
    /// Why this hypervisor's inventory is stale; `None` while it is live.
    pub(crate) fn staleness(&self) -> Option<Error> {
        self.hypervisor.staleness(&self.state.status)
    }
}

impl Candidate<'_> {
    fn describe(&self) -> String {
        format!("{:?} on hypervisor {:?}", self.domain.name, self.host.hypervisor.name())
    }
}

/// The property by which a Node's domain was found.
fn matched_by(domain: Uuid, node: &NodeIdentity) -> &'static str {
    if node.provider_id.as_deref().is_some_and(|id| !id.is_empty()) {
        return "provider ID";
    }
    let machine_id = node.machine_id.as_deref().and_then(identifying_uuid);
    match firmware_uuid(node, machine_id) {
        Some(uuid) if uuid == domain => "system UUID",
        Some(uuid) if swapped(uuid) == domain => "system UUID in the byte order of SMBIOS",
        None if machine_id == Some(domain) => "machine ID",
        _ => "name",
    }
}

/// The UUID of the node's firmware. Without firmware the kubelet reports the machine ID instead, written
/// without dashes. It does not identify the domain.
fn firmware_uuid(node: &NodeIdentity, machine_id: Option<Uuid>) -> Option<Uuid> {
    let text = node.system_uuid.as_deref()?;
    let uuid = identifying_uuid(text)?;
    (text.contains('-') || Some(uuid) != machine_id).then_some(uuid)
}

/// The labels in the domain's metadata that are valid in Kubernetes.
fn labels(domain: &Domain) -> BTreeMap<String, String> {
    let Some(metadata) = &domain.metadata else { return BTreeMap::new() };
    metadata
        .labels
        .iter()
        .filter(|(key, value)| label_key_fault(key).is_none() && label_value_fault(value).is_none())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// `error`, with the retry time of `cause`.
fn retrying_like(error: Error, cause: &Error) -> Error {
    match cause.retry_after() {
        Some(after) => error.with_retry_after(after),
        None => error,
    }
}

#[cfg(test)]
mod tests;
