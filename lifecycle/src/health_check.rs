//! Decisions of a `MachineHealthCheck`: which machines are unhealthy, since when, and whether they may be remediated.
//!
//! Source of the rules: `core/reconcilers/machinehealthcheck` of Cluster API 1.14.2.

use std::fmt;
use std::time::Duration;

use crate::conditions::{Condition, Status};
use crate::rollout::Bound;

/// `spec.checks` of a `MachineHealthCheck`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checks {
    /// `nodeStartupTimeoutSeconds`: a machine without a Node is unhealthy after it. None where it is 0, which switches it off.
    pub node_startup: Option<Duration>,
    /// `unhealthyMachineConditions`
    pub machine: Vec<ConditionCheck>,
    /// `unhealthyNodeConditions`
    pub node: Vec<ConditionCheck>,
}

/// A condition that has a status for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionCheck {
    /// The condition's type.
    pub kind: String,
    /// The status that is unhealthy.
    pub status: Status,
    /// For more than this time.
    pub timeout: Duration,
}

/// What a check reads of a Machine, its Cluster and its Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The annotation `cluster.x-k8s.io/remediate-machine`: a user asks for its remediation, whatever its health.
    pub requested: bool,
    /// It is one of the control plane.
    pub control_plane: bool,
    /// `ControlPlaneInitialized` of the Cluster is `True`, since this time.
    pub control_plane_initialized: Option<i64>,
    /// `InfrastructureReady` of the Cluster is `True`, since this time.
    pub cluster_infrastructure: Option<i64>,
    /// `InfrastructureReady` of the Machine is `True`, since this time.
    pub machine_infrastructure: Option<i64>,
    /// `metadata.creationTimestamp` of the Machine in seconds since 1970.
    pub created: i64,
    /// `status.conditions` of the Machine.
    pub conditions: &'a [Condition],
    /// Its Node.
    pub node: Node<'a>,
}

/// The Node of a Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    /// There was none yet, or the cluster cannot be asked.
    None,
    /// The Machine has a `nodeRef`, and the cluster says that there is no such Node.
    Deleted {
        /// `status.nodeRef.name`
        name: &'a str,
    },
    /// It is there.
    Exists {
        /// Its `status.conditions`.
        conditions: &'a [Condition],
    },
}

/// How a Machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// `HealthCheckSucceeded` is `True`.
    Healthy,
    /// Nothing is wrong yet. Look again after this time, if nothing changes before; None: a change is needed.
    Undecided {
        /// The first time limit that may pass.
        again: Option<Duration>,
    },
    /// `HealthCheckSucceeded` is `False`.
    Unhealthy {
        /// The condition's reason.
        reason: Reason,
        /// The condition's message.
        message: String,
    },
}

/// The reason of `HealthCheckSucceeded` where it is `False`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A user asked for it.
    HasRemediateAnnotation,
    /// A condition of the Machine.
    UnhealthyMachine,
    /// A condition of the Node.
    UnhealthyNode,
    /// The Node is gone.
    NodeDeleted,
    /// No Node came in time.
    NodeStartupTimeout,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HasRemediateAnnotation => "HasRemediateAnnotation",
            Self::UnhealthyMachine => "UnhealthyMachine",
            Self::UnhealthyNode => "UnhealthyNode",
            Self::NodeDeleted => "NodeDeleted",
            Self::NodeStartupTimeout => "NodeStartupTimeout",
        })
    }
}

/// What one kind of checks found.
#[derive(Default)]
struct Found {
    messages: Vec<String>,
    again: Option<Duration>,
}

impl Found {
    /// Whether a time limit that began at `since` is over at `now`. One that is not is looked at again.
    fn over(&mut self, since: i64, limit: Duration, now: i64) -> bool {
        let lasted = now.saturating_sub(since);
        let limit = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
        if lasted > limit {
            return true;
        }
        // Over means more than the limit: a second later.
        let again = Duration::from_secs(limit.saturating_sub(lasted).saturating_add(1).unsigned_abs());
        self.again = Some(self.again.map_or(again, |first| first.min(again)));
        false
    }

    fn conditions(&mut self, checks: &[ConditionCheck], conditions: &[Condition], object: &str, now: i64) {
        for check in checks {
            let condition = conditions.iter().find(|condition| condition.kind == check.kind);
            let Some(condition) = condition.filter(|condition| condition.status == check.status) else {
                continue;
            };
            if self.over(condition.since, check.timeout, now) {
                self.messages.push(format!(
                    "Condition {} on {object} is reporting status {} with reason {} for more than {}",
                    check.kind,
                    check.status,
                    condition.reason,
                    go_duration(check.timeout)
                ));
            }
        }
    }
}

/// Evaluates one Machine at `now`, in seconds since 1970.
///
/// Machines of a cluster whose infrastructure is not ready are not evaluated, and workers not before the control plane is
/// initialised: their Nodes cannot come.
#[must_use]
pub fn evaluate(checks: &Checks, target: &Target<'_>, now: i64) -> Health {
    if target.requested {
        return Health::Unhealthy {
            reason: Reason::HasRemediateAnnotation,
            message: "Health check failed: marked for remediation via cluster.x-k8s.io/remediate-machine annotation".into(),
        };
    }
    if (target.control_plane_initialized.is_none() && !target.control_plane)
        || target.cluster_infrastructure.is_none()
    {
        return Health::Undecided { again: None };
    }
    let mut machine = Found::default();
    machine.conditions(&checks.machine, target.conditions, "Machine", now);
    let mut node = Found::default();
    let reason = node.check_node(checks, target, now);
    if machine.messages.is_empty() && node.messages.is_empty() {
        let again = machine.again.into_iter().chain(node.again).min();
        return match (again, target.node) {
            (None, Node::Exists { .. }) => Health::Healthy,
            _ => Health::Undecided { again },
        };
    }
    let reason = if machine.messages.is_empty() { reason } else { Reason::UnhealthyMachine };
    let messages: Vec<String> =
        machine.messages.into_iter().chain(node.messages).map(|message| format!("  * {message}")).collect();
    Health::Unhealthy { reason, message: format!("Health check failed:\n{}", messages.join("\n")) }
}

impl Found {
    /// The reason is that of the messages, if there are some.
    fn check_node(&mut self, checks: &Checks, target: &Target<'_>, now: i64) -> Reason {
        match target.node {
            Node::Deleted { name } => {
                self.messages.push(format!("Node {name} has been deleted"));
                Reason::NodeDeleted
            }
            Node::None => {
                // What a Node needs first does not count against it.
                let since = [
                    target.control_plane_initialized,
                    target.cluster_infrastructure,
                    target.machine_infrastructure,
                ]
                .into_iter()
                .flatten()
                .fold(target.created, i64::max);
                if let Some(limit) = checks.node_startup.filter(|limit| self.over(since, *limit, now)) {
                    self.messages.push(format!("Node failed to report startup in {}", go_duration(limit)));
                }
                Reason::NodeStartupTimeout
            }
            Node::Exists { conditions } => {
                self.conditions(&checks.node, conditions, "Node", now);
                Reason::UnhealthyNode
            }
        }
    }
}

/// As Go writes whole seconds: `10m0s`.
fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// `spec.remediation.triggerIf`: beyond it something larger than a machine is broken, and no machine is remediated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// `unhealthyLessThanOrEqualTo`; a percentage of the machines that the check selects rounds down.
    AtMost(Bound),
    /// `unhealthyInRange`, such as `[3-5]`.
    Within {
        /// Fewer are left alone.
        from: i64,
        /// More are left alone.
        to: i64,
    },
}

impl Trigger {
    /// What holds where nothing is set: all may be unhealthy.
    pub const DEFAULT: Self = Self::AtMost(Bound::Percent(100));

    /// How many more machines may become unhealthy before remediation stops: `status.remediationsAllowed`. None: it is stopped,
    /// and `RemediationAllowed` is `False`.
    #[must_use]
    pub fn allowed(self, expected: i64, healthy: i64) -> Option<i64> {
        let unhealthy = expected - healthy;
        let (from, to) = match self {
            Self::AtMost(bound) => (i64::MIN, bound.down(expected)),
            Self::Within { from, to } => (from, to),
        };
        (from..=to).contains(&unhealthy).then(|| to - unhealthy)
    }
}

#[cfg(test)]
mod tests;
