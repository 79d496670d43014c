//! An object of an auxiliary kind.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An object of an [auxiliary kind](crate::machines::AuxiliaryKind), as a step reads it. Two are equal if
/// they say the same, whatever their versions are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuxiliaryObject {
    /// Its namespace, if its kind is in namespaces.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The UIDs of its owners.
    pub owners: Vec<String>,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Its spec. Null if it has none.
    pub spec: Value,
    /// Its status. Null if it has none.
    pub status: Value,
}

impl AuxiliaryObject {
    /// An object in no namespace that says nothing.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets the namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the UID.
    #[must_use]
    pub fn with_uid(mut self, uid: impl Into<String>) -> Self {
        self.uid = uid.into();
        self
    }

    /// Sets the labels.
    #[must_use]
    pub fn with_labels(mut self, labels: BTreeMap<String, String>) -> Self {
        self.labels = labels;
        self
    }

    /// Sets the annotations.
    #[must_use]
    pub fn with_annotations(mut self, annotations: BTreeMap<String, String>) -> Self {
        self.annotations = annotations;
        self
    }

    /// Sets the UIDs of its owners.
    #[must_use]
    pub fn with_owners(mut self, uids: impl IntoIterator<Item = String>) -> Self {
        self.owners = uids.into_iter().collect();
        self
    }

    /// Whether the object with this UID is one of its owners.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.owners.iter().any(|owner| owner == uid)
    }

    /// Sets whether it is being deleted.
    #[must_use]
    pub fn deleting(mut self, is_deleting: bool) -> Self {
        self.is_deleting = is_deleting;
        self
    }

    /// Sets the spec.
    #[must_use]
    pub fn with_spec(mut self, spec: Value) -> Self {
        self.spec = spec;
        self
    }

    /// Sets the status.
    #[must_use]
    pub fn with_status(mut self, status: Value) -> Self {
        self.status = status;
        self
    }
}
