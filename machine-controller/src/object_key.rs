//! What the controller works on: one object of one of the provider's kinds.

use std::fmt;

use cloudprovider::machines::{Kind, Kinds};

use super::names::auxiliary_kinds;

/// Which of the provider's kinds an object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A machine.
    Machine,
    /// A cluster.
    Cluster,
    /// A template of machines.
    Template,
    /// An object of the [auxiliary kind](auxiliary_kinds) with this number. The controller writes its status
    /// alone.
    StatusOnly(u8),
}

/// How the names of the last ones begin in the queue.
const STATUS_ONLY: &str = "status-only-";

impl ObjectKind {
    /// Those whose objects the controller makes steps for, or describes.
    pub const ALL: [Self; 3] = [Self::Machine, Self::Cluster, Self::Template];

    /// The word for it in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Cluster => "cluster",
            Self::Template => "template",
            Self::StatusOnly(_) => "told",
        }
    }

    /// Its kind in the API, such as `LibvirtMachineTemplate`.
    pub fn kind(self, kinds: &Kinds) -> String {
        match self {
            Self::Machine => kinds.machine.kind.to_owned(),
            Self::Cluster => kinds.cluster.kind.to_owned(),
            Self::Template => format!("{}Template", kinds.machine.kind),
            Self::StatusOnly(number) => auxiliary_kinds(kinds)
                .nth(number.into())
                .map_or_else(String::new, |kind| kind.kind.to_owned()),
        }
    }

    /// Its resource in the API, such as `libvirtmachinetemplates`.
    pub fn plural(self, kinds: &Kinds) -> String {
        match self {
            Self::Machine => kinds.machine.plural.to_owned(),
            Self::Cluster => kinds.cluster.plural.to_owned(),
            Self::Template => format!("{}templates", kinds.machine.kind.to_ascii_lowercase()),
            Self::StatusOnly(number) => auxiliary_kinds(kinds)
                .nth(number.into())
                .map_or_else(String::new, |kind| kind.plural.to_owned()),
        }
    }

    /// The kind whose finalizer it has. A template has none, and neither has a status-only object.
    pub(super) fn own_kind(self, kinds: &Kinds) -> Kind {
        match self {
            Self::Machine | Self::Template | Self::StatusOnly(_) => kinds.machine,
            Self::Cluster => kinds.cluster,
        }
    }
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its namespace and name: `default/node-1`.
    pub key: String,
}

impl ObjectKey {
    /// The object of this kind with this key.
    pub fn new(kind: ObjectKind, key: impl Into<String>) -> Self {
        Self { kind, key: key.into() }
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The namespace in a name in the queue.
    pub(super) fn namespace_in(name: &str) -> &str {
        let key = name.split_once(' ').map_or(name, |(_, key)| key);
        key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The object with this name in the queue.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let (word, key) = name.split_once(' ')?;
        let kind = match word.strip_prefix(STATUS_ONLY) {
            Some(number) => ObjectKind::StatusOnly(number.parse().ok()?),
            None => ObjectKind::ALL.into_iter().find(|kind| kind.as_str() == word)?,
        };
        Some(Self::new(kind, key))
    }
}

impl fmt::Display for ObjectKey {
    /// Its name in the queue: `machine default/node-1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ObjectKind::StatusOnly(number) => write!(f, "{STATUS_ONLY}{number} {}", self.key),
            kind => write!(f, "{} {}", kind.as_str(), self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_queue_are_read_as_they_are_written() {
        for kind in ObjectKind::ALL.into_iter().chain([ObjectKind::StatusOnly(7)]) {
            let object_key = ObjectKey::new(kind, "default/one");
            assert_eq!(
                (object_key.namespace(), ObjectKey::namespace_in(&object_key.to_string())),
                ("default", "default")
            );
            assert_eq!(ObjectKey::of_name(&object_key.to_string()), Some(object_key));
        }
        let zone = ObjectKey::new(ObjectKind::StatusOnly(0), "west");
        assert_eq!((zone.namespace(), ObjectKey::of_name(&zone.to_string())), ("", Some(zone.clone())));
        assert_eq!(ObjectKey::of_name("node default/one"), None);
    }
}
