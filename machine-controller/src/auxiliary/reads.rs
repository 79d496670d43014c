//! What a step has read, and what it has seen there.

use std::{collections::BTreeMap, fmt, sync::Arc};

use cloudprovider::machines::{AuxiliaryKind, AuxiliaryObject};

use crate::packed::Text;

/// Where something can be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The kind.
    pub kind: AuxiliaryKind,
    /// The namespace. `None` for kinds that are in none, and for a list of all namespaces.
    pub namespace: Option<String>,
    /// The name of an object. `None` for a list.
    pub name: Option<String>,
}

/// What is in a [`Place`]. The caches share the texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// These objects, sorted by namespace and name.
    Objects(Vec<Arc<Text<AuxiliaryObject>>>),
    /// The API server does not serve the kind.
    NotServed,
    /// The objects have not arrived yet.
    NotListed,
}

/// What was seen where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads(pub(super) Arc<BTreeMap<Place, Seen>>);

impl Reads {
    /// The places.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.0.keys()
    }

    /// What is seen in the same places by `look`.
    pub(super) fn map(&self, look: impl Fn(&Place) -> Seen) -> Self {
        if self.0.is_empty() {
            return self.clone();
        }
        Self(Arc::new(self.0.keys().map(|place| (place.clone(), look(place))).collect()))
    }
}

impl fmt::Display for Place {
    /// For people: `VSphereVM default/one`, or `all Zone in default`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.kind;
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(f, "{kind} {namespace}/{name}"),
            (None, Some(name)) => write!(f, "{kind} {name}"),
            (Some(namespace), None) => write!(f, "all {kind} in {namespace}"),
            (None, None) => write!(f, "all {kind}"),
        }
    }
}

impl Place {
    /// That of one object.
    pub fn object(kind: &AuxiliaryKind, namespace: Option<&str>, name: &str) -> Self {
        Self { kind: *kind, namespace: namespace.map(str::to_owned), name: Some(name.to_owned()) }
    }

    /// That of a list.
    pub fn list(kind: &AuxiliaryKind, namespace: Option<&str>) -> Self {
        Self { kind: *kind, namespace: namespace.map(str::to_owned), name: None }
    }

    /// All places in which the object with this key is seen.
    pub fn with_key(kind: &AuxiliaryKind, key: &str) -> Vec<Self> {
        match key.split_once('/') {
            Some((namespace, name)) => vec![
                Self::object(kind, Some(namespace), name),
                Self::list(kind, Some(namespace)),
                Self::list(kind, None),
            ],
            None => vec![Self::object(kind, None, key), Self::list(kind, None)],
        }
    }
}
