//! An object that a step wants to have.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{AuxiliaryKind, Condition};

/// An object that a step [wants](super::Record::want) to have beside its own one. The controller makes it, in
/// the namespace of the step's object and owned by it, writes what differs, and deletes it when no step wants
/// it any more.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DesiredObject {
    /// One of the [kinds](super::Kinds::auxiliary) that are [made](AuxiliaryKind::made), in namespaces.
    pub kind: AuxiliaryKind,
    /// Its name.
    pub name: String,
    /// Labels that it has. Others stay. The label with the name of the Cluster comes by itself.
    pub labels: BTreeMap<String, String>,
    /// Fields that its spec has. A null removes a field, and those that are not here stay as they are, also
    /// in objects inside. Lists are written whole, if an item lacks something or has a field that is null
    /// here.
    pub spec: Value,
    /// Its whole status, without conditions. `None` leaves the status to another program.
    pub status: Option<Value>,
    /// All conditions of its status. The controller keeps the times of their transitions. They are written
    /// only with a status.
    pub conditions: Vec<Condition>,
}

impl DesiredObject {
    /// An object with this spec, whose status another program writes.
    pub fn new(kind: AuxiliaryKind, name: impl Into<String>, spec: Value) -> Self {
        Self { kind, name: name.into(), labels: BTreeMap::new(), spec, status: None, conditions: Vec::new() }
    }

    /// Sets a label.
    #[must_use]
    pub fn with_label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// Sets the status and its conditions.
    #[must_use]
    pub fn with_status(mut self, status: Value, conditions: impl IntoIterator<Item = Condition>) -> Self {
        self.status = Some(status);
        self.conditions = conditions.into_iter().collect();
        self
    }
}
