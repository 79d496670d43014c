//! References to objects of vCenter's inventory.

use std::{borrow::Cow, fmt, sync::Arc};

/// A managed object reference: the type of an object and its name in one vCenter, such as `VirtualMachine:vm-42`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MoRef {
    kind: Cow<'static, str>,
    /// Shared by all copies: an inventory has several of each.
    id: Arc<str>,
}

/// The types that this provider meets, so that a reference to one of them costs no copy of its name.
const KINDS: [&str; 12] = [
    "VirtualMachine",
    "HostSystem",
    "Folder",
    "ResourcePool",
    "ClusterComputeResource",
    "ComputeResource",
    "Datacenter",
    "VirtualApp",
    "PropertyCollector",
    "PropertyFilter",
    "ContainerView",
    "SessionManager",
];

impl MoRef {
    /// The object called `id` of the type `kind`, such as `vm-42` and `VirtualMachine`.
    pub(crate) fn new(kind: &str, id: &str) -> Self {
        let kind = KINDS
            .iter()
            .find(|known| **known == kind)
            .map_or_else(|| Cow::Owned(kind.to_owned()), |known| Cow::Borrowed(*known));
        Self { kind, id: id.into() }
    }

    /// The type, as in the WSDL.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// The name, which is unique within one vCenter and one type.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Display for MoRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}

impl fmt::Debug for MoRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_unknown_types() {
        for kind in ["VirtualMachine", "StoragePod"] {
            let object = MoRef::new(kind, "x-1");
            assert_eq!((object.kind(), object.id()), (kind, "x-1"));
            assert_eq!(object.to_string(), format!("{kind}:x-1"));
        }
    }
}
