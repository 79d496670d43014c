//! What a Machine says of its bootstrap config and of its infrastructure machine.

use super::SEE_LOG;
use crate::conditions::{Condition, Statement, Status, mirror};

/// An object that a Machine refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Related<'a> {
    /// It is there.
    There {
        /// Its condition `Ready`, if it has one.
        ready: Option<&'a Condition>,
    },
    /// Its condition `Ready` cannot be read, for this reason.
    Invalid {
        /// Why.
        why: &'a str,
    },
    /// There is no such object.
    Missing,
    /// The API server did not say.
    Unknown,
    /// It is not used, for this reason.
    Refused {
        /// Why.
        why: &'a str,
    },
}

/// `BootstrapConfigReady`. `config` is the kind of the bootstrap config, and what it is; `None`: the Machine refers to none, since a
/// user gave the data. `is_done` is `status.initialization.bootstrapDataSecretCreated` of the Machine.
#[must_use]
pub fn bootstrap_config_ready(
    config: Option<(&str, Related<'_>)>,
    is_done: bool,
    is_deleting: bool,
) -> Statement {
    let Some((kind, config)) = config else {
        return Statement::new(Status::True, "DataSecretProvided", "");
    };
    match config {
        Related::Missing if is_deleting && is_done => {
            Statement::new(Status::False, "ObjectDeleted", format!("{kind} has been deleted"))
        }
        other => of(kind, other, is_done, "dataSecretCreated"),
    }
}

/// `InfrastructureReady`. `is_done` is `status.initialization.infrastructureProvisioned` of the Machine.
#[must_use]
pub fn infrastructure_ready(
    kind: &str,
    infrastructure: Related<'_>,
    is_done: bool,
    is_deleting: bool,
) -> Statement {
    match infrastructure {
        Related::Missing if is_done => {
            let still = if is_deleting { "" } else { " while the Machine still exists" };
            Statement::new(Status::False, "ObjectDeleted", format!("{kind} has been deleted{still}"))
        }
        other => of(kind, other, is_done, "provisioned"),
    }
}

/// What both have in common. `field` of `status.initialization` says whether it is done.
fn of(kind: &str, related: Related<'_>, is_done: bool, field: &str) -> Statement {
    match related {
        Related::There { ready } => {
            let otherwise = if is_done {
                Statement::new(Status::True, "Ready", "")
            } else {
                Statement::new(
                    Status::False,
                    "NotReady",
                    format!("{kind} status.initialization.{field} is false"),
                )
            };
            let mut said = mirror(ready, "Ready", Some(otherwise));
            // A condition of the contract v1beta1 has no reason where all is well.
            if said.status == Status::True && (said.reason.is_empty() || said.reason == "NoReasonReported") {
                said.reason = "Ready".into();
            }
            said
        }
        Related::Invalid { why } => Statement::new(Status::Unknown, "InvalidConditionReported", why),
        Related::Missing => {
            Statement::new(Status::False, "ObjectDoesNotExist", format!("{kind} does not exist"))
        }
        Related::Unknown => Statement::new(Status::Unknown, "InternalError", SEE_LOG),
        Related::Refused { why } => Statement::new(Status::Unknown, "InternalError", why),
    }
}
