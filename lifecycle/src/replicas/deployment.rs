//! What a `MachineDeployment` alone says.

use std::{cmp::Ordering, collections::BTreeSet, fmt};

use super::{Replica, Scale, without_replicas};
use crate::{
    conditions::{Statement, Status},
    rollout::{Deployment, Strategy},
};

/// `status.phase` of a `MachineDeployment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There are as many Machines as it wants.
    Running,
    /// There are too few.
    ScalingUp,
    /// There are too many.
    ScalingDown,
    /// It does not say how many it wants.
    Unknown,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The phase.
#[must_use]
pub fn phase(scale: &Scale) -> Phase {
    let Some(replicas) = scale.replicas else { return Phase::Unknown };
    match replicas.cmp(&scale.current) {
        _ if scale.is_deleting => Phase::ScalingDown,
        Ordering::Equal => Phase::Running,
        Ordering::Less => Phase::ScalingDown,
        Ordering::Greater => Phase::ScalingUp,
    }
}

/// `Available`: at least as many Machines are available as a rollout must leave. `deployment`: `None` while `spec.replicas` is not
/// set. `available`: `status.availableReplicas`, `None` while no `MachineSet` says so.
#[must_use]
pub fn available(deployment: Option<&Deployment>, available: Option<i64>, is_deleting: bool) -> Statement {
    let Some(deployment) = deployment else { return without_replicas() };
    let Some(available) = available else {
        let message = "Waiting for status.availableReplicas set";
        return Statement::new(Status::Unknown, "WaitingForAvailableReplicasSet", message);
    };
    let needed = deployment.replicas - deployment.max_unavailable();
    if available >= needed {
        return Statement::new(Status::True, "Available", "");
    }
    let mut message = format!("{available} available replicas, at least {needed} required");
    if let Strategy::RollingUpdate { max_unavailable, .. } = deployment.strategy {
        let replicas = deployment.replicas;
        message = format!(
            "{message} (spec.strategy.rollout.maxUnavailable is {max_unavailable}, spec.replicas is {replicas})"
        );
    }
    let message = if is_deleting { "Deletion in progress".into() } else { message };
    Statement::new(Status::False, "NotAvailable", message)
}

/// `RollingOut`: why Machines are replaced. A new version comes first.
#[must_use]
pub fn rolling_out(machines: &[Replica<'_>]) -> Statement {
    let old: Vec<_> = machines
        .iter()
        .flat_map(|machine| machine.conditions)
        .filter(|condition| condition.kind == "UpToDate" && condition.status == Status::False)
        .collect();
    if old.is_empty() {
        return Statement::new(Status::False, "NotRollingOut", "");
    }
    let causes = old.iter().filter(|condition| !condition.message.is_empty());
    let causes: BTreeSet<_> = causes
        .flat_map(|condition| condition.message.split('\n'))
        .map(|cause| (!cause.starts_with("* Version"), cause))
        .collect();
    let first = format!("Rolling out {} not up-to-date replicas", old.len());
    let lines: Vec<_> =
        std::iter::once(first.as_str()).chain(causes.iter().map(|(_, cause)| *cause)).collect();
    Statement::new(Status::True, "RollingOut", lines.join("\n"))
}
