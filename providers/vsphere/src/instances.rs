//! Looks up the machines of Nodes in a snapshot of the inventories of all vCenters.

use std::{net::IpAddr, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Instance, InstanceLookup, InstanceMetadata, NodeIdentity, PowerState,
    ties::{Activity, Contender, Evidence, LastSeen, Meant, NameFound, the_meant_one},
    uuids::{identifying_uuid, swapped},
};
use uuid::Uuid;

use crate::{
    addresses::{self, AddressRules, Family, NoAddress},
    config::ZoneLabels,
    instance_type::instance_type,
    moref::MoRef,
    provider_id::{byte_orders, format_provider_id, parse_provider_id},
    vcenter::{State, VCenter},
    vm::{VirtualMachine, VmPower},
    zones,
};

/// When to look up a missing address again. A change is reported anyway.
const ADDRESS_RETRY: Duration = Duration::from_secs(5);

/// When to look up a missing tag again. Tags are not pushed.
const TAG_RETRY: Duration = Duration::from_secs(30);

/// The rules for turning a machine into a Node.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) addresses: AddressRules,
    pub(crate) labels: ZoneLabels,
    pub(crate) skip_node_deletion: bool,
}

impl Rules {
    /// Whether zones or regions are read from tags.
    pub(crate) fn wants_tags(&self) -> bool {
        self.labels.zone.is_some() || self.labels.region.is_some()
    }
}

/// A vCenter and its state.
pub(crate) struct Site<'a> {
    pub(crate) vcenter: &'a VCenter,
    pub(crate) families: &'a [Family],
    pub(crate) state: parking_lot::RwLockReadGuard<'a, State>,
}

/// The result of a look-up in memory.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The final answer.
    Settled(InstanceLookup),
    /// An answer that may change when all vCenters have been listed for the first time.
    Starting(Error),
    /// No inventory has the machine, and all inventories are complete. The vCenters remain to be asked for
    /// these UUIDs.
    Nowhere(Vec<Uuid>),
    /// No inventory has a machine with this UUID, and all inventories are complete, but a machine with
    /// another UUID has the node's name. The error is the answer unless vCenter, when asked, has a machine
    /// with the UUID.
    Misnamed(Uuid, Error),
}

/// The machines that were last found for Nodes: the names of their vCenters and their references.
pub(crate) type Seen = LastSeen<(Box<str>, MoRef)>;

/// A snapshot of all vCenters.
pub(crate) struct View<'a> {
    sites: Vec<Site<'a>>,
    rules: &'a Rules,
    seen: &'a Seen,
}

#[derive(Clone, Copy)]
struct Candidate<'a> {
    site: &'a Site<'a>,
    vm: &'a VirtualMachine,
    /// Another one could be meant as well, and vCenter cannot tell whether that runs.
    may_run_elsewhere: bool,
}

impl<'a> View<'a> {
    /// A view of these vCenters.
    pub(crate) fn new(sites: Vec<Site<'a>>, rules: &'a Rules, seen: &'a Seen) -> Self {
        Self { sites, rules, seen }
    }

    /// Looks up the machine of a node.
    pub(crate) fn look_up(&self, node: &NodeIdentity) -> Answer {
        match self.find(node) {
            Ok(Some(found)) => match found.site.vcenter.trouble(&found.site.state) {
                Some(trouble) => self.starting_or_settled(trouble),
                None => match contradicted(node, found) {
                    Some((uuid, error)) => Answer::Misnamed(uuid, error),
                    None => {
                        self.note(node, found);
                        Answer::Settled(self.instance(found, node))
                    }
                },
            },
            Ok(None) => self.nowhere(node),
            Err(error) => self.starting_or_settled(error),
        }
    }

    fn nowhere(&self, node: &NodeIdentity) -> Answer {
        if let Some(doubt) = self.doubt() {
            return self.starting_or_settled(doubt);
        }
        if self.rules.skip_node_deletion {
            let words =
                "no vCenter has a virtual machine for this node; SKIP_NODE_DELETION is set, so it is kept";
            return Answer::Settled(Error::new(ErrorKind::NotFound, words).into());
        }
        Answer::Nowhere(uuid_of(node).into_iter().collect())
    }

    fn starting_or_settled(&self, error: Error) -> Answer {
        // waiting resolves neither two matches nor a malformed ID
        let can_change = !matches!(error.kind(), ErrorKind::Ambiguous | ErrorKind::InvalidInput);
        let is_starting = self.sites.iter().any(|site| !site.state.is_listed && site.state.trouble.is_none());
        if can_change && is_starting { Answer::Starting(error) } else { Answer::Settled(error.into()) }
    }

    /// Why a missing machine may exist after all: the reasons of all vCenters whose inventories are not
    /// reliable now.
    fn doubt(&self) -> Option<Error> {
        let doubts: Vec<_> = self.sites.iter().filter_map(|site| site.vcenter.doubt(&site.state)).collect();
        let kind = doubts.first()?.kind();
        let words: Vec<_> = doubts.iter().map(ToString::to_string).collect();
        let words =
            format!("cannot tell whether there is a virtual machine for this node: {}", words.join("; "));
        Some(Error::new(kind, words))
    }

    fn find(&self, node: &NodeIdentity) -> Result<Option<Candidate<'_>>, Error> {
        if let Some(id) = node.provider_id.as_deref().filter(|id| !id.is_empty()) {
            return self.find_by_uuid(node, parse_provider_id(id)?, false);
        }
        if let Some(uuid) = node.system_uuid.as_deref().and_then(identifying_uuid)
            && let Some(found) = self.find_by_uuid(node, uuid, true)?
        {
            return Ok(Some(found));
        }
        let named = self.candidates(|state| state.inventory.with_guest_host_name(&node.name).collect());
        let mut found = self.choose(node, named, "has the node's name as the host name of its guest")?;
        if found.is_none() {
            // A machine whose guest reports nothing cannot become a Node yet, but an error can name it.
            let silent = self.candidates(|state| {
                let called = state.inventory.with_name(&node.name);
                called.filter(|vm| vm.guest_host_name.is_none() && !vm.has_guest_nics).collect()
            });
            found = self.choose(node, silent, "has the node's name, and a guest that tells none")?;
        }
        let Some(found) = found else { return Ok(None) };
        // The node's own machine may be in a vCenter that cannot be read now. Another machine that merely has
        // the node's name must not become its provider ID, which cannot be changed later.
        match self.doubt() {
            Some(doubt) => Err(doubt),
            None => Ok(Some(found)),
        }
    }

    /// The machine with this UUID. A UUID that a guest showed may be in either byte order, and so may a
    /// provider ID that was made from it. For a provider ID, the order as written is preferred.
    fn find_by_uuid(
        &self,
        node: &NodeIdentity,
        uuid: Uuid,
        by_guest: bool,
    ) -> Result<Option<Candidate<'_>>, Error> {
        let what = format!("has the UUID {uuid}");
        let with = |uuid| self.candidates(|state| state.inventory.with_bios_uuid(uuid).collect());
        if !by_guest {
            let as_it_stands = with(uuid);
            let found = if as_it_stands.is_empty() { with(swapped(uuid)) } else { as_it_stands };
            if !found.is_empty() {
                return self.choose(node, found, &what);
            }
            // Provider IDs by other tools may hold the instance UUID, which identifies a machine as well.
            let found = self.candidates(|state| state.inventory.with_instance_uuid(uuid).collect());
            return self.choose(node, found, &format!("has the instance UUID {uuid}"));
        }
        let mut orders = byte_orders(uuid).to_vec();
        orders.dedup();
        self.choose(node, orders.into_iter().flat_map(with).collect(), &what)
    }

    /// The candidate that a node means.
    ///
    /// # Errors
    /// [`ErrorKind::Ambiguous`], with all of them, if nothing that is known tells them apart.
    fn choose<'s>(
        &self,
        node: &NodeIdentity,
        candidates: Vec<Candidate<'s>>,
        what: &str,
    ) -> Result<Option<Candidate<'s>>, Error> {
        if let [only] = candidates[..] {
            // if its vCenter cannot be read, that is told
            return Ok(Some(only));
        }
        let contender = |one: &Candidate<'s>| Contender {
            instance: *one,
            evidence: self.evidence(node, *one),
            is_read: one.site.vcenter.trouble(&one.site.state).is_none(),
        };
        match the_meant_one(&candidates.iter().map(contender).collect::<Vec<_>>()) {
            Meant::None => Ok(None),
            // the trouble of its vCenter is told
            Meant::Unread(one) => Ok(Some(one)),
            Meant::One(one) => {
                let may_run_elsewhere = candidates.iter().any(|other| !other.vm.is_connected());
                Ok(Some(Candidate { may_run_elsewhere, ..one }))
            }
            Meant::Tie => Err(ambiguous(&candidates, what)),
        }
    }

    /// What is known of a machine that may be the one of a node.
    fn evidence(&self, node: &NodeIdentity, Candidate { site, vm, .. }: Candidate<'_>) -> Evidence {
        let is_name = |name: &str| is_same_host(name, &node.name);
        let has = |text: &str| {
            let ip = text.parse().ok().map(|ip: IpAddr| ip.to_canonical());
            ip.is_some_and(|ip| vm.addresses().any(|address| address.ip.to_canonical() == ip))
        };
        Evidence {
            is_marked: false,
            is_connected: vm.is_connected(),
            activity: match vm.power {
                VmPower::On => Activity::Running,
                VmPower::Suspended => Activity::Held,
                VmPower::Off => Activity::Off,
            },
            name: match vm.guest_host_name.as_deref() {
                Some(name) if is_name(name) => NameFound::InGuest,
                _ if is_name(&vm.name) => NameFound::InCloud,
                _ => NameFound::Nowhere,
            },
            has_address: node.addresses.iter().any(|address| has(&address.address))
                || addresses::provided_node_ips(&node.annotations).iter().any(|ip| has(&ip.to_string())),
            was_last_seen: self
                .seen
                .is(&node.name, |(vcenter, moref)| **vcenter == *site.vcenter.name() && *moref == vm.moref),
        }
    }

    fn note(&self, node: &NodeIdentity, Candidate { site, vm, .. }: Candidate<'_>) {
        let is_known =
            |(vcenter, moref): &(Box<str>, MoRef)| **vcenter == *site.vcenter.name() && *moref == vm.moref;
        if !self.seen.is(&node.name, is_known) {
            self.seen.note(&node.name, (site.vcenter.name().into(), vm.moref.clone()));
        }
    }

    fn candidates<'s>(&'s self, get: impl Fn(&'s State) -> Vec<&'s VirtualMachine>) -> Vec<Candidate<'s>> {
        let mut found: Vec<Candidate<'s>> = Vec::new();
        for site in &self.sites {
            for vm in get(&site.state) {
                if site.vcenter.counts(&site.state, vm) && !found.iter().any(|one| one.is_same(site, vm)) {
                    found.push(Candidate { site, vm, may_run_elsewhere: false });
                }
            }
        }
        found
    }

    fn instance(&self, at: Candidate<'_>, node: &NodeIdentity) -> InstanceLookup {
        let Candidate { site, vm, may_run_elsewhere } = at;
        let Some(uuid) = vm.bios_uuid else {
            let words = format!("vCenter does not tell the UUID of {}", at.describe());
            return Error::new(ErrorKind::Unavailable, words).into();
        };
        let mut incomplete = None;
        let mut metadata =
            InstanceMetadata { instance_type: instance_type(vm), ..InstanceMetadata::default() };
        let provided = addresses::provided_node_ips(&node.annotations);
        match addresses::select(vm, &self.rules.addresses, site.families, &provided) {
            Ok(addresses) => metadata.addresses = addresses,
            Err(why) => incomplete = Some(missing_address(at, &why)),
        }
        // A vCenter that only machines of clusters are on has no Nodes that get zones.
        if self.rules.wants_tags() && site.vcenter.tag_refresh().is_some() {
            match &site.state.tag_trouble {
                _ if site.state.has_tags => {
                    let ways = zones::ancestors(vm, site.state.inventory.parents());
                    let found = zones::find(&ways, &site.state.tags, &self.rules.labels);
                    let found = found.kept_by(node, &self.rules.labels);
                    if let Some(missing) = found.missing(&self.rules.labels) {
                        let words = format!("{}: {missing}", at.describe());
                        incomplete.get_or_insert(Error::in_progress(TAG_RETRY, words));
                    }
                    metadata.zone = found.zone.map(String::from);
                    metadata.region = found.region.map(String::from);
                }
                Some(error) => {
                    let error = site.vcenter.error_of(error);
                    let words = format!("zone and region are not known: {error}");
                    incomplete.get_or_insert(Error::in_progress(TAG_RETRY, words));
                }
                None => {
                    let words = format!("vCenter {:?}: tags are being read", site.vcenter.name());
                    incomplete.get_or_insert(Error::in_progress(Duration::from_secs(1), words));
                }
            }
        }
        // Its Node must not be marked as shut down while the other one may run.
        let power = if may_run_elsewhere { PowerState::Running } else { vm.power_state() };
        let instance = Instance::new(format_provider_id(uuid), power).with_metadata(metadata);
        match incomplete {
            Some(why) => instance.with_incomplete(why).into(),
            None => instance.into(),
        }
    }
}

fn missing_address(found: Candidate<'_>, why: &NoAddress) -> Error {
    Error::in_progress(ADDRESS_RETRY, format!("{} has no address yet: {why}", found.describe()))
}

/// Whether two names are those of one host, in any letter case. Either may be without its domain.
fn is_same_host(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    let is_within = |short: &str, long: &str| {
        !short.contains('.') && long.strip_prefix(short).is_some_and(|rest| rest.starts_with('.'))
    };
    one == other || is_within(&one, &other) || is_within(&other, &one)
}

/// What is said of a machine of any cluster, for the object that asks for it. The rules for Nodes are those of the own cluster.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if vCenter does not tell its UUID.
pub(crate) fn instance_of(vcenter: &VCenter, vm: &VirtualMachine) -> Result<Instance, Error> {
    let place = format!("{:?} ({} in vCenter {:?})", vm.name, vm.moref.id(), vcenter.name());
    let Some(uuid) = vm.bios_uuid else {
        let words = format!("vCenter does not tell the UUID of {place}");
        return Err(Error::new(ErrorKind::Unavailable, words));
    };
    let (addresses, incomplete) = match addresses::of_machine(vm) {
        Ok(addresses) => (addresses, None),
        Err(why) => {
            let words = format!("{place} has no address yet: {why}");
            (Vec::new(), Some(Error::in_progress(ADDRESS_RETRY, words)))
        }
    };
    let metadata =
        InstanceMetadata { instance_type: instance_type(vm), addresses, ..InstanceMetadata::default() };
    let instance = Instance::new(format_provider_id(uuid), vm.power_state()).with_metadata(metadata);
    Ok(match incomplete {
        Some(why) => instance.with_incomplete(why),
        None => instance,
    })
}

/// If a new node's firmware shows another UUID than the machine with the node's name has: that UUID and an
/// error. They are two machines, and one merely has the other's name.
fn contradicted(node: &NodeIdentity, found: Candidate<'_>) -> Option<(Uuid, Error)> {
    if node.provider_id.as_deref().is_some_and(|id| !id.is_empty()) {
        return None;
    }
    let uuid = node.system_uuid.as_deref().and_then(identifying_uuid)?;
    let other = found.vm.bios_uuid.filter(|other| !byte_orders(uuid).contains(other))?;
    let words = format!(
        "no virtual machine has the node's UUID {uuid}; {} has its name and the UUID {other}, so it is another one",
        found.describe()
    );
    Some((uuid, Error::new(ErrorKind::Conflict, words)))
}

/// The UUID that identifies a node's machine, if it has one.
pub(crate) fn uuid_of(node: &NodeIdentity) -> Option<Uuid> {
    match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => parse_provider_id(id).ok(),
        None => node.system_uuid.as_deref().and_then(identifying_uuid),
    }
}

/// The error about candidates that nothing tells apart.
fn ambiguous(candidates: &[Candidate<'_>], what: &str) -> Error {
    let names: Vec<_> = candidates.iter().map(Candidate::describe).collect();
    let words = format!("more than one virtual machine {what}: {}", names.join(" and "));
    let error = Error::new(ErrorKind::Ambiguous, words);
    match candidates.first() {
        Some(first) => error
            .with_operation(format!("look up a virtual machine in vCenter {:?}", first.site.vcenter.name())),
        None => error,
    }
}

impl<'a> Candidate<'a> {
    /// Whether this is the same machine, seen through another entry of the configuration for the same
    /// vCenter.
    fn is_same(&self, site: &Site<'a>, vm: &VirtualMachine) -> bool {
        self.vm.moref == vm.moref && self.site.vcenter.is_same(&self.site.state, site.vcenter, &site.state)
    }

    fn describe(&self) -> String {
        format!("{:?} ({} in vCenter {:?})", self.vm.name, self.vm.moref.id(), self.site.vcenter.name())
    }
}

#[cfg(test)]
mod tests;
