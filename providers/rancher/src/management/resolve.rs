//! Resolves a Node to its machine, from memory: pure rules.

use std::time::Duration;

use cloudprovider::{
    Error, ErrorKind, Instance, InstanceLookup, InstanceMetadata, NodeIdentity, PowerState, ProviderId,
    Result, label_value_fault,
};

use super::{
    addresses::{has_ip, node_addresses},
    inventory::{Missing, SourceOfTruth, State},
    machine::{Machine, is_same_name},
    nodes::SHOWS_NODES,
};
use crate::{
    config::{AddressRules, ZoneRules},
    lookups,
    provider_id::{format_machine_id, is_machine_id, parse_machine_id},
    zones::zone_of,
};

/// The label of a Node that Rancher provisions: the UID of its Machine. The kubelet writes it, so it is
/// checked.
const MACHINE_LABEL: &str = "rke.cattle.io/machine";

/// The instance type of a machine whose infrastructure has no kind.
const INSTANCE_TYPE: &str = "rancher";

/// When to look up a missing address again. A change is reported anyway.
const ADDRESS_RETRY: Duration = Duration::from_secs(10);

/// The length of what Rancher appends to a host name that it cuts: `-` and five hexadecimal digits.
const CUT_SUFFIX: usize = 6;

/// How a Node is resolved from memory.
pub(super) type Resolution = lookups::Resolution<Missing>;

/// What the configuration says of Nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) zones: ZoneRules,
    pub(super) addresses: AddressRules,
}

/// Resolves a node to its machine.
pub(super) fn resolve(node: &NodeIdentity, state: &State, rules: &Rules) -> Resolution {
    let id = node.provider_id.as_deref().filter(|id| !id.is_empty());
    let parsed = match id.map(parse_machine_id).transpose() {
        Ok(parsed) => parsed,
        Err(error) => return error.into(),
    };
    if let Some((staleness, _)) = &state.staleness {
        let words = format!("cannot tell whether there is a machine for this node: {}", staleness.report());
        let error = Error::new(staleness.kind(), words);
        return staleness.retry_after().into_iter().fold(error, Error::with_retry_after).into();
    }
    if state.listed.is_none() {
        return Resolution::Starting(Error::new(
            ErrorKind::Unavailable,
            "the machines have not been listed yet",
        ));
    }
    let found = match (id, &parsed) {
        (Some(id), Some((cluster, key))) => with_id(node, state, id, (cluster, key)),
        _ => without_id(node, state),
    };
    match found {
        Ok(Found::Machine(machine, matched_by)) => match instance(node, &machine, state, rules) {
            Ok(instance) => Resolution::Settled(instance.with_matched_by(matched_by).into()),
            Err(error) => error.into(),
        },
        Ok(Found::Absent) => Resolution::Settled(InstanceLookup::Absent),
        Ok(Found::NotListed(missing)) => Resolution::NotListed(missing),
        Err(error) => error.into(),
    }
}

enum Found {
    Machine(std::sync::Arc<Machine>, &'static str),
    Absent,
    NotListed(Missing),
}

/// Looks for the machine of a provider ID. The Node's name and labels make no machine its own, but they can
/// make the absence of its machine doubtful.
fn with_id(node: &NodeIdentity, state: &State, id: &str, (cluster, key): (&str, &str)) -> Result<Found> {
    if cluster != state.cluster {
        let words =
            format!("the provider ID is of cluster {cluster}, and this daemon serves {}", state.cluster);
        return Err(Error::new(ErrorKind::InvalidInput, words));
    }
    if let Some(machine) = state.inventory.get(key) {
        return Ok(Found::Machine(machine.clone(), "provider ID"));
    }
    // A restored management cluster has new UIDs, and still the old provider IDs.
    if let Some(machine) = state.inventory.with_id(id)? {
        return Ok(Found::Machine(machine.clone(), "provider ID that Rancher has"));
    }
    if state.source_of_truth == SourceOfTruth::Mirror {
        let words = "the server does not list this node. It only mirrors the cluster's own Nodes, so that proves nothing";
        return Err(Error::new(ErrorKind::Unavailable, words));
    }
    check_not_empty(state)?;
    if let Some(name) = state.infrastructure.get(key) {
        let words = format!("the Machine is gone, and its CustomMachine {name} is still there");
        return Err(Error::in_progress(ADDRESS_RETRY, words));
    }
    if !is_uid(key) {
        let words = "the provider ID names a node of the server and no Machine, and no Machine has it";
        return Err(Error::new(ErrorKind::Conflict, words));
    }
    if let Some(machine) = state.inventory.with_node(&node.name)? {
        let words =
            format!("{} is bound to this node, and is not the machine of its provider ID", machine.shown);
        return Err(Error::new(ErrorKind::Conflict, words));
    }
    // A restored management cluster has new UIDs, and may not know yet whose Machine is whose.
    if let Some(machine) = state.inventory.all().find(|machine| agrees(&node.name, machine)) {
        let words = format!(
            "{} may be this node's, by its name, and is not the machine of its provider ID; if it is another machine, delete the Node yourself",
            machine.shown
        );
        return Err(Error::new(ErrorKind::Conflict, words));
    }
    if state.gone.contains(key) {
        return Ok(Found::Absent);
    }
    state.history.check_proof(node)?;
    Ok(Found::NotListed(Missing::Machine(key.to_owned())))
}

/// Finds the machine of a Node that has no provider ID yet. No such Node is ever deleted.
fn without_id(node: &NodeIdentity, state: &State) -> Result<Found> {
    if let Some(uid) =
        node.labels.get(MACHINE_LABEL).filter(|_| state.source_of_truth == SourceOfTruth::Machines)
    {
        let Some(machine) = state.inventory.get(uid) else {
            // A restored management cluster has new UIDs, and the labels are old.
            if let Some(machine) = state.inventory.with_node(&node.name)? {
                return Ok(Found::Machine(machine.clone(), "Node that Rancher has"));
            }
            let words = format!("label {MACHINE_LABEL}: there is no Machine with this UID in the cluster");
            return Err(Error::new(ErrorKind::Conflict, words));
        };
        if !agrees(&node.name, machine) {
            let words = format!("label {MACHINE_LABEL} names {}, which is another node's", machine.shown);
            return Err(Error::new(ErrorKind::Conflict, words));
        }
        return Ok(Found::Machine(machine.clone(), "label rke.cattle.io/machine"));
    }
    if let Some(machine) = state.inventory.with_node(&node.name)? {
        return Ok(Found::Machine(machine.clone(), "Node that Rancher has"));
    }
    if let Some(machine) = state.inventory.unbound_with_name(&node.name)? {
        return Ok(Found::Machine(machine.clone(), "name"));
    }
    check_not_empty(state)?;
    if state.source_of_truth == SourceOfTruth::Mirror && !state.is_active {
        let words = "the server does not reach the cluster, so it does not know new nodes";
        return Err(Error::new(ErrorKind::Unavailable, words));
    }
    let name = node.name.to_ascii_lowercase();
    Ok(if state.absences.are_known_of(&name) { Found::Absent } else { Found::NotListed(Missing::Name(name)) })
}

/// A token without rights sees empty lists, and so does one for another cluster.
fn check_not_empty(state: &State) -> Result<()> {
    if !state.inventory.is_empty() {
        return Ok(());
    }
    let words = "the server lists no machine at all for this cluster; check what the token may see";
    let role = match state.source_of_truth {
        SourceOfTruth::Machines => String::new(),
        SourceOfTruth::Mirror => {
            format!(": its user needs a role on the cluster in Rancher that {SHOWS_NODES}")
        }
    };
    Err(Error::new(ErrorKind::Unavailable, format!("{words}{role}")))
}

/// Whether a Node of this name may be that of this machine.
fn agrees(node: &str, machine: &Machine) -> bool {
    match &machine.node {
        Some(name) => is_same_name(name, node),
        None => machine.names.iter().any(|name| is_same_name(name, node) || is_cut(node, name)),
    }
}

/// Whether `node` is `name` as Rancher cuts it to a length: its beginning, and a hash.
fn is_cut(node: &str, name: &str) -> bool {
    let node = node.split('.').next().unwrap_or_default();
    let Some(at) = node.len().checked_sub(CUT_SUFFIX) else { return false };
    let (Some(begin), Some(hash)) = (node.get(..at), node.get(at..).and_then(|end| end.strip_prefix('-')))
    else {
        return false;
    };
    !begin.is_empty()
        && name.len() > node.len()
        && name.get(..at).is_some_and(|same| same.eq_ignore_ascii_case(begin))
        && hash.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether a key is the UID of an object, and not the name of a management node.
fn is_uid(key: &str) -> bool {
    key.len() == 36 && key.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// The instance that a machine is for its Node.
fn instance(node: &NodeIdentity, machine: &Machine, state: &State, rules: &Rules) -> Result<Instance> {
    let id = provider_id(node, machine, state)?;
    let mut zone = zone_of(&machine.labels, &rules.zones);
    if !machine.labels.contains_key(&rules.zones.zone_label) {
        let domain = machine.failure_domain.clone().filter(|domain| label_value_fault(domain).is_none());
        zone.zone = domain.or(zone.zone);
    }
    let is_machine = state.source_of_truth == SourceOfTruth::Machines;
    let addresses = node_addresses(node, &machine.addresses, &rules.addresses);
    let has_ip = has_ip(&addresses);
    let metadata = InstanceMetadata {
        // Of a mirrored node nothing is known that the Node does not say itself.
        instance_type: is_machine
            .then(|| machine.instance_type.clone().unwrap_or_else(|| INSTANCE_TYPE.to_owned())),
        addresses,
        zone: zone.zone,
        region: zone.region,
        ..InstanceMetadata::default()
    };
    // Rancher 2.x knows no power state.
    let power = if machine.is_leaving { PowerState::ShuttingDown } else { PowerState::Running };
    let instance = Instance::new(id, power).with_metadata(metadata);
    Ok(if has_ip {
        instance
    } else {
        let words = format!("neither {} nor the node itself has an IP address yet", machine.shown);
        instance.with_incomplete(Error::in_progress(ADDRESS_RETRY, words))
    })
}

/// The provider ID of a machine. One that Rancher has already is followed: Cluster API finds the Node by it.
fn provider_id(node: &NodeIdentity, machine: &Machine, state: &State) -> Result<ProviderId> {
    let own = format_machine_id(&state.cluster, &machine.key);
    let known = machine.provider_id.as_deref().filter(|known| *known != own.as_str());
    let followed = match (node.provider_id.as_deref().filter(|id| !id.is_empty()), known) {
        (Some(id), Some(known)) if id == known => known,
        (Some(_), _) | (None, None) => return Ok(own),
        (None, Some(known)) => known,
    };
    let parsed = is_machine_id(followed).then(|| followed.parse::<ProviderId>().ok()).flatten();
    parsed.ok_or_else(|| {
        let words = format!(
            "Rancher has the provider ID {followed:?} for {}, which this provider does not write; another one would not fit",
            machine.shown
        );
        Error::new(ErrorKind::Conflict, words)
    })
}

#[cfg(test)]
mod tests;
