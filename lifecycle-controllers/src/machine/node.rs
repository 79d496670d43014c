//! The Node of a Machine.

use std::sync::Arc;

use cluster_api::{
    Cluster, Machine, MachineDeployment, MachineSet,
    names::{annotations, conditions as types},
};
use component::events::EventType;
use kube::ResourceExt as _;
use lifecycle::{
    conditions::{Statement, Status},
    machine::{ClusterState, NodeOwner, ObservedNode, node_conditions},
};

use crate::{
    core::{Core, workload_key},
    engine::{
        conditions::{Conditions, read},
        control::Failure,
        external::External,
        object::Meta as _,
    },
    workload::{
        Node, WorkloadCluster,
        node_sync::{MachineFacts, is_outdated, sync},
    },
};

/// What is known of the Node.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// It is there.
    There(Arc<Node>),
    /// The cluster has none with the Machine's provider ID, or the Machine has none yet.
    Missing,
    /// There is no connection to the cluster.
    NotConnected,
    /// Several Nodes have the provider ID.
    Ambiguous(String),
}

impl Found {
    pub(super) fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Self::There(node) => Some(node),
            Self::Missing | Self::NotConnected | Self::Ambiguous(_) => None,
        }
    }
}

/// Finds it. `provider_id` is that of the Machine.
pub(super) fn find(connected: Option<&WorkloadCluster>, provider_id: Option<&str>) -> Found {
    let (Some(connected), Some(provider_id)) = (connected, provider_id) else {
        return if connected.is_none() { Found::NotConnected } else { Found::Missing };
    };
    match connected.nodes().by_provider_id(provider_id) {
        Ok(Some(node)) => Found::There(node),
        Ok(None) => Found::Missing,
        Err(duplicate) => Found::Ambiguous(duplicate.to_string()),
    }
}

/// Writes labels, annotations and taints of the Machine to its Node.
pub(super) async fn write(
    core: &Core,
    connected: &WorkloadCluster,
    node: &Node,
    machine: &Machine,
    infrastructure: Option<&External>,
    owners: Option<(&MachineSet, &MachineDeployment)>,
) -> Result<(), Failure> {
    let revision = |of: &std::collections::BTreeMap<String, String>| of.get(annotations::REVISION).cloned();
    let is_outdated = owners.is_some_and(|(set, deployment)| {
        let (own, newest) = (revision(set.annotations()), revision(deployment.annotations()));
        is_outdated(own.as_deref(), newest.as_deref())
    });
    let owner = machine.controller().map(|owner| (owner.kind.as_str(), owner.name.as_str()));
    let facts = MachineFacts {
        cluster: &machine.spec.cluster_name,
        namespace: machine.namespace_or_empty(),
        name: machine.name_or_empty(),
        owner,
        labels: machine.labels(),
        annotations: machine.annotations(),
        taints: Some(&machine.spec.taints),
        is_interruptible: infrastructure.is_some_and(|infrastructure| infrastructure.interruptible),
        is_outdated,
    };
    if let Some(patch) = sync(node, &facts, &core.options.additional_keys()) {
        connected.patch_node(node, &patch).await?;
    }
    Ok(())
}

/// `NodeReady` and `NodeHealthy`.
pub(super) fn conditions(
    core: &Core,
    machine: &Machine,
    cluster: &Cluster,
    found: &Found,
    now: i64,
) -> Option<[Statement; 2]> {
    let of_cluster = cluster.status.as_ref().map(|status| read(&status.conditions)).unwrap_or_default();
    let initialized = of_cluster
        .iter()
        .find(|one| one.kind == types::CONTROL_PLANE_INITIALIZED && one.status == Status::True);
    let initialization = cluster.status.as_ref().map(|status| &status.initialization);
    let state = ClusterState {
        is_provisioned: initialization.and_then(|one| one.infrastructure_provisioned).unwrap_or_default(),
        control_plane_initialized: initialized.map(|condition| condition.since),
    };
    let status = machine.status.as_ref();
    let own = status.map(|status| Conditions::of(&status.conditions, None));
    let has = |kind| own.as_ref().is_some_and(|conditions| conditions.get(kind).is_some());
    let owner = NodeOwner {
        node: status.map(|status| status.node_ref.name.as_str()).filter(|name| !name.is_empty()),
        provider_id: machine.spec.provider_id.as_deref(),
        infrastructure_kind: &machine.spec.infrastructure_ref.kind,
        is_deleting: machine.is_deleting(),
        has_conditions: has(types::NODE_READY) && has(types::NODE_HEALTHY),
    };
    let observed = match found {
        Found::There(node) => ObservedNode::There { conditions: &node.conditions },
        Found::Missing => ObservedNode::Missing,
        Found::NotConnected => ObservedNode::NotConnected,
        Found::Ambiguous(_) => ObservedNode::Unknown,
    };
    let probe = core.workload.probe(&workload_key(machine.namespace_or_empty(), &machine.spec.cluster_name));
    node_conditions(&owner, &state, &probe, observed, now)
}

/// Says once that the Node came.
pub(super) fn announce(core: &Core, machine: &Machine, node: &str) {
    let is_known = machine.status.as_ref().is_some_and(|status| !status.node_ref.name.is_empty());
    if !is_known {
        core.record(machine, EventType::Normal, "SuccessfulSetNodeRef", node.to_owned());
    }
}
