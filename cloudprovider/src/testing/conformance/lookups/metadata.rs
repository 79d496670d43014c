//! Rules for the metadata of an instance.

use std::net::IpAddr;

use super::super::run::{Checked, Run, Working, called, described, ensure, failed, is_present, not_checked};
use crate::{InstanceLookup, InstanceMetadata, NodeAddress, NodeAddressType, NodeIdentity};

pub(super) async fn addresses(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let mut count = 0;
    for node in &nodes {
        for NodeAddress { address_type, address } in told(&working, node).await?.addresses {
            if !matches!(address_type, NodeAddressType::InternalIp | NodeAddressType::ExternalIp) {
                continue;
            }
            ensure(address.parse::<IpAddr>().is_ok(), || {
                format!("{} has the {address_type} {address:?}, which is no IP address", called(node))
            })?;
            count += 1;
        }
    }
    if count == 0 {
        return not_checked("an IP address, which no instance has");
    }
    Ok(format!("{count} IP addresses of {} nodes", nodes.len()))
}

pub(super) async fn metadata(run: &Run<'_>) -> Checked {
    let (working, nodes) = run.start().await?;
    let mut alone = Vec::new();
    for node in &nodes {
        alone.push(told(&working, node).await?);
    }
    let forwards: Vec<_> = nodes.iter().zip(&alone).collect();
    let backwards: Vec<_> = forwards.iter().rev().copied().collect();
    for batch in [forwards, backwards] {
        let asked: Vec<_> = batch.iter().map(|(node, _)| *node).collect();
        for (answer, (node, alone)) in working.look_up(&asked).await?.into_iter().zip(&batch) {
            let beside = metadata_of(node, answer)?;
            ensure(beside == **alone, || {
                format!("{} has {beside:?} beside others and {alone:?} alone", called(node))
            })?;
        }
    }
    Ok(format!("{} nodes, forwards and backwards", nodes.len()))
}

/// The metadata from a look-up of this node alone. An incomplete instance has time to become complete, but no
/// rule requires it to.
async fn told(working: &Working<'_>, node: &NodeIdentity) -> Checked<InstanceMetadata> {
    let is_complete = |answer: &InstanceLookup| matches!(answer, InstanceLookup::Present(instance) if instance.incomplete.is_none());
    let _ = working.becomes(node, "is complete", is_complete, |answer| !is_present(answer)).await;
    metadata_of(node, working.look_up_one(node).await?)
}

fn metadata_of(node: &NodeIdentity, answer: InstanceLookup) -> Checked<InstanceMetadata> {
    match answer {
        InstanceLookup::Present(instance) => Ok(instance.metadata),
        InstanceLookup::Absent | InstanceLookup::Unknown(_) => {
            failed(format!("{} is {}", called(node), described(&answer)))
        }
    }
}
