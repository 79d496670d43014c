//! Looks up the hosts of Nodes in the inventory. Pure rules.

use std::time::Duration;

use cloudprovider::{Error, ErrorKind, Instance, InstanceLookup, InstanceMetadata, NodeIdentity, PowerState};

use super::{
    addresses::node_addresses,
    inventory::{KnownHost, Sought, State},
    model::Host,
};
use crate::{
    config::{AddressTypes, ZoneRules},
    lookups,
    provider_id::{format_provider_id, is_host_uuid},
    zones::zone_of,
};

/// The instance type of every host, as in rancher-cloud-controller-manager.
const INSTANCE_TYPE: &str = "rancher";

/// When to look up a missing address again. A change is reported anyway.
const ADDRESS_RETRY: Duration = Duration::from_secs(10);

/// The rules for turning a host into a Node.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) address_types: AddressTypes,
    pub(crate) zones: ZoneRules,
}

/// The result of a look-up in memory.
pub(super) type Answer = lookups::Resolution<Sought>;

/// Looks up the host of a node.
pub(crate) fn look_up(node: &NodeIdentity, state: &State, rules: &Rules) -> Answer {
    let sought = match Sought::of(node) {
        Ok(sought) => sought,
        Err(error) => return Answer::Settled(error.into()),
    };
    if let Some((trouble, _)) = &state.trouble {
        let words = format!("cannot tell whether there is a host for this node: {}", trouble.report());
        let error = Error::new(trouble.kind(), words);
        let error = trouble.retry_after().into_iter().fold(error, Error::with_retry_after);
        return Answer::Settled(error.into());
    }
    if state.listed.is_none() {
        return Answer::Starting(Error::new(ErrorKind::Unavailable, "the hosts have not been listed yet"));
    }
    match state.inventory.find(&sought) {
        Ok(Some(known)) => Answer::Settled(instance(&known, &sought, rules)),
        Ok(None) if state.knows_absence_of(&sought) => Answer::Settled(InstanceLookup::Absent),
        Ok(None) => Answer::NotListed(sought),
        Err(error) => Answer::Settled(error.into()),
    }
}

/// What a host is to its Node.
fn instance(known: &KnownHost, sought: &Sought, rules: &Rules) -> InstanceLookup {
    let host = &known.host;
    let matched_by = match sought {
        Sought::Uuid(_) => "provider ID",
        Sought::Name(_) => "name",
    };
    if !is_host_uuid(&host.uuid) {
        let words = format!("host {} has a UUID that cannot be part of a provider ID", host.id);
        return Error::new(ErrorKind::Internal, words).into();
    }
    let zone = zone_of(&host.labels, &rules.zones);
    let ips = known.ips.as_deref().unwrap_or_default();
    let metadata = InstanceMetadata {
        instance_type: Some(INSTANCE_TYPE.to_owned()),
        addresses: node_addresses(ips, host.hostname.as_deref(), rules.address_types),
        zone: zone.zone,
        region: zone.region,
        ..InstanceMetadata::default()
    };
    let instance = Instance::new(format_provider_id(&host.uuid), power_state(host))
        .with_metadata(metadata)
        .with_matched_by(matched_by);
    match &known.ips {
        Ok(ips) if ips.is_empty() => {
            let words = format!("host {} has no IP address yet", host.id);
            instance.with_incomplete(Error::in_progress(ADDRESS_RETRY, words))
        }
        Ok(_) => instance,
        Err(error) => {
            let error = Error::new(error.kind(), error.report()).with_retry_after(ADDRESS_RETRY);
            instance.with_incomplete(error)
        }
    }
    .into()
}

/// Cattle knows no power state. A host that was deactivated or stopped, or whose agent is away, counts as shut
/// down, and never as gone.
fn power_state(host: &Host) -> PowerState {
    match (host.state.as_deref(), host.agent_state.as_deref()) {
        (Some("inactive" | "stopped"), _) | (_, Some("disconnected")) => PowerState::Off,
        (Some("deactivating" | "stopping" | "removing"), _) => PowerState::ShuttingDown,
        _ => PowerState::Running,
    }
}

#[cfg(test)]
mod tests;
