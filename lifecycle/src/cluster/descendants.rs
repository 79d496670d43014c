//! What a Cluster says of its control plane, its `MachineDeployment`s, `MachineSet`s and Machines together.

use crate::{
    conditions::{Condition, Merge, Polarity, Reasons, Source, Statement, Status, aggregate},
    machine::SEE_LOG,
    replicas::are,
};

/// `WorkersAvailable`
#[must_use]
pub fn workers_available(deployments: &[Source<'_>]) -> Statement {
    let reasons = Reasons { issue: "NotAvailable", unknown: "AvailableUnknown", info: "Available" };
    aggregate(deployments, "Available", Polarity::Positive, &Merge::positive(reasons))
        .unwrap_or_else(|| Statement::new(Status::True, "NoWorkers", ""))
}

/// A change that may be in progress. The objects below the Cluster have the condition of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// `RollingOut`
    RollingOut,
    /// `ScalingUp`
    ScalingUp,
    /// `ScalingDown`
    ScalingDown,
}

impl Change {
    /// The type of the condition.
    #[must_use]
    pub const fn condition(self) -> &'static str {
        match self {
            Self::RollingOut => "RollingOut",
            Self::ScalingUp => "ScalingUp",
            Self::ScalingDown => "ScalingDown",
        }
    }

    const fn reasons(self) -> Reasons {
        match self {
            Self::RollingOut => {
                Reasons { issue: "RollingOut", unknown: "RollingOutUnknown", info: "NotRollingOut" }
            }
            Self::ScalingUp => {
                Reasons { issue: "ScalingUp", unknown: "ScalingUpUnknown", info: "NotScalingUp" }
            }
            Self::ScalingDown => {
                Reasons { issue: "ScalingDown", unknown: "ScalingDownUnknown", info: "NotScalingDown" }
            }
        }
    }
}

/// `RollingOut`, `ScalingUp` or `ScalingDown`.
///
/// `control_plane`: the control plane object, if there is one; it counts only with the condition, which the contract does not ask for.
/// `Err`: whether there is one is not known. `others`: the `MachineDeployment`s and, unless `change` is `RollingOut`, the `MachineSet`s
/// of the Cluster itself.
#[must_use]
pub fn in_progress(
    change: Change,
    control_plane: Result<Option<Source<'_>>, ()>,
    others: &[Source<'_>],
) -> Statement {
    let Ok(control_plane) = control_plane else {
        return Statement::new(Status::Unknown, "InternalError", SEE_LOG);
    };
    let kind = change.condition();
    let reports = |source: &Source<'_>| source.conditions.iter().any(|condition| condition.kind == kind);
    let sources: Vec<_> = control_plane.into_iter().filter(reports).chain(others.iter().copied()).collect();
    let merge = Merge { polarity: Polarity::Negative, reasons: change.reasons() };
    aggregate(&sources, kind, Polarity::Negative, &merge)
        .unwrap_or_else(|| Statement::new(Status::False, merge.reasons.info, ""))
}

/// `Remediating`
#[must_use]
pub fn remediating(machines: &[Source<'_>]) -> Statement {
    let is_false = |of: &Source<'_>, kind: &str| {
        let said = |condition: &Condition| condition.kind == kind && condition.status == Status::False;
        of.conditions.iter().any(said)
    };
    let unhealthy: Vec<_> =
        machines.iter().filter(|machine| is_false(machine, "HealthCheckSucceeded")).copied().collect();
    let waiting: Vec<_> =
        unhealthy.iter().filter(|machine| is_false(machine, "OwnerRemediated")).copied().collect();
    let merge = Merge::positive(Reasons::default());
    if let Some(said) = aggregate(&waiting, "OwnerRemediated", Polarity::Positive, &merge) {
        return Statement::new(Status::True, "Remediating", said.message);
    }
    let mut names: Vec<_> = unhealthy.iter().map(|machine| machine.name).collect();
    names.sort_unstable();
    Statement::new(Status::False, "NotRemediating", are(&names, "not healthy (not to be remediated)"))
}
