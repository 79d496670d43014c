//! What a provider says about an object that users make beside machines and clusters.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{Condition, FurtherKind, FurtherObject, Objects};

/// What a provider gets of an object whose status it is to say.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LookRequest {
    /// One of the [kinds](super::Kinds::further) that are [told](FurtherKind::told).
    pub kind: FurtherKind,
    /// The object.
    pub object: Arc<FurtherObject>,
    /// Reads objects of the [further kinds](super::Kinds::further).
    pub objects: Objects,
}

impl LookRequest {
    /// A request about this object.
    pub fn new(kind: FurtherKind, object: impl Into<Arc<FurtherObject>>) -> Self {
        Self { kind, object: object.into(), objects: Objects::default() }
    }

    /// Sets what reads further objects.
    #[must_use]
    pub fn with_objects(mut self, objects: Objects) -> Self {
        self.objects = objects;
        self
    }
}

/// What a provider says about an object.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Told {
    /// Its whole status, without conditions. Null leaves the status as it is. A field that is null is left out.
    pub status: Value,
    /// All conditions of its status. The controller keeps the times of their transitions.
    pub conditions: Vec<Condition>,
    /// When to look again at the latest. `None` if the stream of changes tells when something is new.
    pub look_again_after: Option<Duration>,
}

impl Told {
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
