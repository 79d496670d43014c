//! Whether Machines come or go.

use super::{Owner, Replica, machines::with_stale, without_replicas};
use crate::conditions::{Statement, Status};

/// How many Machines there are to be, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// `spec.replicas`
    pub replicas: Option<i64>,
    /// So many there are now: the Machines of a `MachineSet`, or `status.replicas` of all `MachineSets` together.
    pub current: i64,
    /// Whether the owner is being deleted. Then none is wanted.
    pub is_deleting: bool,
}

impl Scale {
    fn desired(&self) -> Option<i64> {
        self.replicas.map(|replicas| if self.is_deleting { 0 } else { replicas })
    }
}

/// `ScalingUp`. `missing` are the kinds of templates that do not exist, and `held` what else keeps Machines
/// from being made: what the preflight checks of a `MachineSet` say, and templates that cannot be used.
#[must_use]
pub fn scaling_up(scale: &Scale, missing: &[&str], held: &[String], owner: Owner) -> Statement {
    let Some(desired) = scale.desired() else { return without_replicas() };
    let missing = match missing {
        [] => None,
        [one] => Some(format!("{one} does not exist")),
        many => Some(format!("{} do not exist", many.join(" and "))),
    };
    if scale.current >= desired {
        let message = missing.filter(|_| !scale.is_deleting);
        let message = message.map(|missing| format!("Scaling up would be blocked because {missing}"));
        return Statement::new(Status::False, "NotScalingUp", message.unwrap_or_default());
    }
    let mut message = format!("Scaling up from {} to {desired} replicas", scale.current);
    match (owner, missing) {
        (Owner::MachineDeployment, None) if held.is_empty() => {}
        (Owner::MachineDeployment, Some(missing)) if held.is_empty() => {
            message.push_str(" is blocked because ");
            message.push_str(&missing);
        }
        (_, missing) => {
            let lines: Vec<_> = held.iter().chain(&missing).map(|line| format!("* {line}")).collect();
            if !lines.is_empty() {
                message.push_str(" is blocked because:\n");
                message.push_str(&lines.join("\n"));
            }
        }
    }
    Statement::new(Status::True, "ScalingUp", message)
}

/// `ScalingDown`
#[must_use]
pub fn scaling_down(scale: &Scale, machines: &[Replica<'_>], owner: Owner, now: i64) -> Statement {
    let Some(desired) = scale.desired() else { return without_replicas() };
    let leaving = machines.iter().filter(|machine| owner == Owner::MachineSet && machine.is_moving).count();
    let current = scale.current - i64::try_from(leaving).unwrap_or(i64::MAX);
    if current <= desired {
        return Statement::new(Status::False, "NotScalingDown", "");
    }
    let message = format!("Scaling down from {current} to {desired} replicas");
    Statement::new(Status::True, "ScalingDown", with_stale(message, machines, now))
}
