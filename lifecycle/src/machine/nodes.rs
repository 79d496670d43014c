//! What a Machine says of its Node.

use std::time::Duration;

use jiff::Timestamp;

use super::SEE_LOG;
use crate::conditions::{Condition, Statement, Status};

/// So many failed probes in a row say that a cluster cannot be reached which never could.
const MANY_FAILURES: u32 = 5;

/// What is known of the Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterState {
    /// `status.initialization.infrastructureProvisioned`
    pub is_provisioned: bool,
    /// Since when `ControlPlaneInitialized` is `True`, in seconds since 1970.
    pub control_plane_initialized: Option<i64>,
}

/// The probes of the connection to the workload cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// When the last one succeeded, in seconds since 1970.
    pub last_success: Option<i64>,
    /// How many failed since then.
    pub failures: u32,
    /// For how long the conditions of Nodes stay after the last success.
    pub grace: Duration,
}

/// What the workload cluster says of the Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedNode<'a> {
    /// It is there.
    There {
        /// Its `status.conditions`.
        conditions: &'a [Condition],
    },
    /// There is none.
    Missing,
    /// There is no connection to the cluster.
    NotConnected,
    /// The cluster did not say.
    Unknown,
}

/// What is known of the Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOwner<'a> {
    /// `status.nodeRef.name`
    pub node: Option<&'a str>,
    /// `spec.providerID`
    pub provider_id: Option<&'a str>,
    /// The kind of the infrastructure machine.
    pub infrastructure_kind: &'a str,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Whether its status has both conditions already.
    pub has_conditions: bool,
}

/// `NodeReady` and `NodeHealthy`. `None`: they stay as they are, since a cluster that cannot be reached for a moment says nothing new.
#[must_use]
pub fn node_conditions(
    machine: &NodeOwner<'_>,
    cluster: &ClusterState,
    probe: &Probe,
    node: ObservedNode<'_>,
    now: i64,
) -> Option<[Statement; 2]> {
    let both = |statement: Statement| Some([statement.clone(), statement]);
    let waiting = |what: String| both(Statement::new(Status::Unknown, "InspectionFailed", what));
    let no_connection = |message: String| both(Statement::new(Status::Unknown, "ConnectionDown", message));
    if !cluster.is_provisioned {
        return waiting(
            "Waiting for Cluster status.initialization.infrastructureProvisioned to be true".into(),
        );
    }
    let Some(initialized) = cluster.control_plane_initialized else {
        return waiting("Waiting for Cluster control plane to be initialized".into());
    };
    if probe.last_success.is_none() && probe.failures < MANY_FAILURES {
        if machine.has_conditions {
            return None;
        }
        return no_connection("Remote connection not established yet".into());
    }
    let known = probe.last_success.map_or(initialized, |success| success.max(initialized));
    if now.saturating_sub(known) > i64::try_from(probe.grace.as_secs()).unwrap_or(i64::MAX) {
        return no_connection(last_success(probe));
    }
    match node {
        ObservedNode::There { conditions } => Some([node_ready(conditions), node_healthy(conditions)]),
        ObservedNode::NotConnected if machine.has_conditions => None,
        ObservedNode::NotConnected => no_connection(last_success(probe)),
        ObservedNode::Unknown => both(Statement::new(Status::Unknown, "InternalError", SEE_LOG)),
        ObservedNode::Missing => both(missing(machine)),
    }
}

fn missing(machine: &NodeOwner<'_>) -> Statement {
    let NodeOwner { node, provider_id, infrastructure_kind, is_deleting, .. } = machine;
    match (is_deleting, node, provider_id) {
        (true, Some(name), _) => {
            Statement::new(Status::False, "NodeDeleted", format!("Node {name} has been deleted"))
        }
        (true, None, _) => Statement::new(Status::Unknown, "NodeDoesNotExist", "Node does not exist"),
        (false, Some(name), _) => Statement::new(
            Status::False,
            "NodeDeleted",
            format!("Node {name} has been deleted while the Machine still exists"),
        ),
        (false, None, Some(id)) => Statement::new(
            Status::Unknown,
            "InspectionFailed",
            format!("Waiting for a Node with spec.providerID {id} to exist"),
        ),
        (false, None, None) => Statement::new(
            Status::Unknown,
            "InspectionFailed",
            format!("Waiting for {infrastructure_kind} to report spec.providerID"),
        ),
    }
}

fn last_success(probe: &Probe) -> String {
    let time = probe.last_success.and_then(|time| Timestamp::from_second(time).ok());
    time.map_or_else(String::new, |time| format!("Last successful probe at {time}"))
}

fn node_ready(conditions: &[Condition]) -> Statement {
    let Some(ready) = conditions.iter().find(|condition| condition.kind == "Ready") else {
        return Statement::new(
            Status::Unknown,
            "NodeReadyUnknown",
            "* Node.Ready: Condition not yet reported",
        );
    };
    let reason = match ready.status {
        Status::True => "NodeReady",
        Status::False => "NodeNotReady",
        Status::Unknown => "NodeReadyUnknown",
    };
    let says = ready.status != Status::True && !ready.message.is_empty();
    let message = if says { format!("* Node.Ready: {}", ready.message) } else { String::new() };
    Statement { since: Some(ready.since), ..Statement::new(ready.status, reason, message) }
}

/// The conditions of a Node that count, each with its good status.
const OF_HEALTH: [(&str, Status); 4] = [
    ("Ready", Status::True),
    ("MemoryPressure", Status::False),
    ("DiskPressure", Status::False),
    ("PIDPressure", Status::False),
];

fn node_healthy(conditions: &[Condition]) -> Statement {
    let (mut lines, mut messages) = (Vec::new(), Vec::new());
    let (mut issues, mut unknown) = (0, 0);
    for (kind, good) in OF_HEALTH {
        let Some(condition) = conditions.iter().find(|condition| condition.kind == kind) else {
            lines.push(format!("* Node.{kind}: Condition not yet reported"));
            unknown += 1;
            continue;
        };
        if condition.status == good {
            continue;
        }
        let message = match condition.message.as_str() {
            "" => format!("Condition is {}", condition.status),
            message => message.to_owned(),
        };
        lines.push(format!("* Node.{kind}: {message}"));
        messages.push(message);
        *(if condition.status == Status::Unknown { &mut unknown } else { &mut issues }) += 1;
    }
    // A silent kubelet makes all of them unknown, with the same words.
    if let [first, rest @ ..] = messages.as_slice()
        && !rest.is_empty()
        && rest.iter().all(|message| message == first)
    {
        lines = vec![format!("* Node.AllConditions: {first}")];
    }
    match (issues, unknown) {
        (0, 0) => Statement::new(Status::True, "NodeHealthy", ""),
        (0, _) => Statement::new(Status::Unknown, "NodeHealthyUnknown", lines.join("\n")),
        _ => Statement::new(Status::False, "NodeNotHealthy", lines.join("\n")),
    }
}
