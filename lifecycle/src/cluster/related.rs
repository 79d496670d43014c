//! What a Cluster says of its infrastructure cluster and of its control plane.

use crate::{
    conditions::{Condition, Statement, Status, mirror},
    machine::{Related, SEE_LOG},
};

/// One of the references of a Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference<'a> {
    /// It is empty, and `spec.topology` is to fill it in.
    Expected,
    /// It is empty.
    Empty,
    /// It names an object of this kind.
    To {
        /// Its kind.
        kind: &'a str,
        /// What it is. Its condition is `Ready` of an infrastructure cluster, and `Available` of a control plane.
        related: Related<'a>,
    },
}

/// The condition that is mirrored from the object, and the words of one that has none.
struct Mirrored {
    condition: &'static str,
    good: &'static str,
    bad: &'static str,
    /// The field of `status.initialization` of the object.
    field: &'static str,
}

const INFRASTRUCTURE: Mirrored =
    Mirrored { condition: "Ready", good: "Ready", bad: "NotReady", field: "provisioned" };
const CONTROL_PLANE: Mirrored = Mirrored {
    condition: "Available",
    good: "Available",
    bad: "NotAvailable",
    field: "controlPlaneInitialized",
};

/// `InfrastructureReady`. `is_done` is `status.initialization.infrastructureProvisioned` of the Cluster. A Cluster without an
/// infrastructure cluster has all that it needs; upstream calls it unknown for ever.
#[must_use]
pub fn infrastructure_ready(infrastructure: Reference<'_>, is_done: bool, is_deleting: bool) -> Statement {
    match infrastructure {
        Reference::Expected => expected(Status::False, is_deleting),
        Reference::Empty => Statement::new(Status::True, INFRASTRUCTURE.good, ""),
        Reference::To { kind, related } => of(&INFRASTRUCTURE, kind, related, is_done, is_deleting),
    }
}

/// Machines that are the control plane of a Cluster without a control plane object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StandAlone {
    /// One of them has a Node.
    pub has_node: bool,
    /// One of them is available.
    pub is_available: bool,
}

/// `ControlPlaneAvailable`. `is_done` is `status.initialization.controlPlaneInitialized` of the Cluster. Machines that stand alone are
/// available if one of them is; upstream calls them unknown for ever.
#[must_use]
pub fn control_plane_available(
    control_plane: Reference<'_>,
    machines: StandAlone,
    is_done: bool,
    is_deleting: bool,
) -> Statement {
    match control_plane {
        Reference::Expected => expected(Status::False, is_deleting),
        Reference::Empty if machines.is_available => Statement::new(Status::True, CONTROL_PLANE.good, ""),
        Reference::Empty => {
            Statement::new(Status::False, CONTROL_PLANE.bad, "No control plane Machine is available")
        }
        Reference::To { kind, related } => of(&CONTROL_PLANE, kind, related, is_done, is_deleting),
    }
}

/// `ControlPlaneInitialized`, which is asked for until it is `True`. `is_initialized`: the control plane object says so.
#[must_use]
pub fn control_plane_initialized(
    control_plane: Reference<'_>,
    is_initialized: bool,
    machines: StandAlone,
    is_deleting: bool,
) -> Statement {
    let initialized = || Statement::new(Status::True, "Initialized", "");
    let not_yet = |message: &str| Statement::new(Status::False, "NotInitialized", message);
    match control_plane {
        Reference::Expected => expected(Status::Unknown, is_deleting),
        Reference::Empty if machines.has_node => initialized(),
        Reference::Empty => not_yet("Waiting for the first control plane machine to have status.nodeRef set"),
        Reference::To { related: Related::There { .. } | Related::Invalid { .. }, .. } if is_initialized => {
            initialized()
        }
        Reference::To { related: Related::There { .. } | Related::Invalid { .. }, .. } => {
            not_yet("Control plane not yet initialized")
        }
        Reference::To { kind, related: Related::Missing } => {
            Statement::new(Status::Unknown, "ObjectDoesNotExist", format!("{kind} does not exist"))
        }
        Reference::To { related: Related::Unknown, .. } => {
            Statement::new(Status::Unknown, "InternalError", SEE_LOG)
        }
        Reference::To { related: Related::Refused { why }, .. } => {
            Statement::new(Status::Unknown, "InternalError", why)
        }
    }
}

fn expected(status: Status, is_deleting: bool) -> Statement {
    let message = if is_deleting { "" } else { "Waiting for cluster topology to be reconciled" };
    Statement::new(status, "ObjectDoesNotExist", message)
}

fn of(mirrored: &Mirrored, kind: &str, related: Related<'_>, is_done: bool, is_deleting: bool) -> Statement {
    match related {
        Related::There { ready } => there(mirrored, kind, ready, is_done),
        Related::Invalid { why } => Statement::new(Status::Unknown, "InvalidConditionReported", why),
        Related::Missing if is_done => {
            let still = if is_deleting { "" } else { " while the cluster still exists" };
            Statement::new(Status::False, "ObjectDeleted", format!("{kind} has been deleted{still}"))
        }
        Related::Missing => {
            Statement::new(Status::False, "ObjectDoesNotExist", format!("{kind} does not exist"))
        }
        Related::Unknown => Statement::new(Status::Unknown, "InternalError", SEE_LOG),
        Related::Refused { why } => Statement::new(Status::Unknown, "InternalError", why),
    }
}

fn there(mirrored: &Mirrored, kind: &str, condition: Option<&Condition>, is_done: bool) -> Statement {
    let otherwise = if is_done {
        Statement::new(Status::True, mirrored.good, "")
    } else {
        let field = mirrored.field;
        let message = format!("{kind} status.initialization.{field} is false");
        Statement::new(Status::False, mirrored.bad, message)
    };
    let mut said = mirror(condition, mirrored.condition, Some(otherwise));
    // A condition of the contract v1beta1 has no reason where all is well.
    if said.status == Status::True && (said.reason.is_empty() || said.reason == "NoReasonReported") {
        said.reason = mirrored.good.into();
    }
    said
}
