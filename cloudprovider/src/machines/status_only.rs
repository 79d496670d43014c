//! What a provider says about an object that users make beside machines and clusters.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{AuxiliaryKind, AuxiliaryObject, Condition, Objects};

/// What a provider gets of an object whose status it is to say.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObserveRequest {
    /// One of the [kinds](super::Kinds::auxiliary) that are [status-only](AuxiliaryKind::status_only).
    pub kind: AuxiliaryKind,
    /// The object.
    pub object: Arc<AuxiliaryObject>,
    /// Reads objects of the [auxiliary kinds](super::Kinds::auxiliary).
    pub objects: Objects,
}

impl ObserveRequest {
    /// A request about this object.
    pub fn new(kind: AuxiliaryKind, object: impl Into<Arc<AuxiliaryObject>>) -> Self {
        Self { kind, object: object.into(), objects: Objects::default() }
    }

    /// Sets what reads auxiliary objects.
    #[must_use]
    pub fn with_objects(mut self, objects: Objects) -> Self {
        self.objects = objects;
        self
    }
}

/// What a provider says about an object.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StatusReport {
    /// Its whole status, without conditions. Null leaves the status as it is. A field that is null is left
    /// out.
    pub status: Value,
    /// All conditions of its status. The controller keeps the times of their transitions.
    pub conditions: Vec<Condition>,
    /// When to look again at the latest. `None` if the stream of changes tells when something is new.
    pub look_again_after: Option<Duration>,
}

impl StatusReport {
    /// This status.
    pub fn new(status: Value, conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self { status, conditions: conditions.into_iter().collect(), look_again_after: None }
    }

    /// Sets when to look again at the latest.
    #[must_use]
    pub fn look_again_after(mut self, after: impl Into<Option<Duration>>) -> Self {
        self.look_again_after = after.into();
        self
    }
}
