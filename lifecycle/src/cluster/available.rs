//! Whether a Cluster is available.

#[cfg(test)]
mod tests;

use crate::{
    conditions::{Condition, Merge, Part, Polarity, Reasons, Statement, Status, summary},
    machine::{Gate, SEE_LOG},
};

/// Reasons of a condition about an object that is gone, which is no issue while the Cluster is being deleted.
const GONE: &[&str] = &["ObjectDeleted", "ObjectDoesNotExist"];

/// The reasons of `TopologyReconciled` that are an issue. All others tell how far a change has come.
const TOPOLOGY_ISSUES: [&str; 2] = ["ReconcileFailed", "ClusterClassNotReconciled"];

/// `TopologyReconciled` of a Cluster with `spec.topology`: nothing of it is done here.
#[must_use]
pub fn topology_reconciled() -> Statement {
    let message = "ClusterClass is not supported: spec.topology has no effect. \
                   Infrastructure, control plane and MachineDeployments stay as they are";
    Statement::new(Status::False, TOPOLOGY_ISSUES[0], message)
}

/// `Available`, from the other conditions of the Cluster and those that `spec.availabilityGates` names.
#[must_use]
pub fn available(
    conditions: &[Condition],
    gates: &[Gate<'_>],
    has_topology: bool,
    is_deleting: bool,
) -> Statement {
    let gone = if is_deleting { GONE } else { &[] };
    let topology = conditions.iter().find(|condition| {
        condition.kind == "TopologyReconciled"
            && condition.status == Status::False
            && !TOPOLOGY_ISSUES.contains(&condition.reason.as_str())
    });
    let progress: Vec<_> = topology.map(|condition| condition.reason.as_str()).into_iter().collect();
    let positive = |kind| Part::new(kind, Polarity::Positive);
    let own = [
        Part::new("Deleting", Polarity::Negative),
        positive("RemoteConnectionProbe"),
        Part { harmless_reasons: gone, ..positive("InfrastructureReady") },
        Part { harmless_reasons: gone, ..positive("ControlPlaneAvailable") },
        positive("WorkersAvailable"),
        Part { is_optional: !has_topology, harmless_reasons: &progress, ..positive("TopologyReconciled") },
    ];
    let parts: Vec<_> =
        own.into_iter().chain(gates.iter().map(|gate| Part::new(gate.kind, gate.polarity))).collect();
    let reasons = Reasons { issue: "NotAvailable", unknown: "AvailableUnknown", info: "Available" };
    summary(&parts, conditions, &Merge::positive(reasons))
        .unwrap_or_else(|| Statement::new(Status::Unknown, "InternalError", SEE_LOG))
}
