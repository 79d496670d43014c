//! References to objects of vCenter's inventory.

use std::{fmt, sync::Arc};

/// A managed object reference: the type of an object and its name in one vCenter, such as `VirtualMachine:vm-42`.
///
/// Holds one text that is shared by all copies, since an inventory has several of each.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MoRef(Arc<str>);

impl MoRef {
    /// The object called `id` of the type `kind`, such as `vm-42` and `VirtualMachine`.
    pub(crate) fn new(kind: &str, id: &str) -> Self {
        // a colon in a type can only be that of a prefix
        let kind = kind.rsplit_once(':').map_or(kind, |(_, local)| local);
        Self(format!("{kind}:{id}").into())
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once(':').unwrap_or_default()
    }

    /// The type, as in the WSDL.
    pub(crate) fn kind(&self) -> &str {
        self.parts().0
    }

    /// The name, which is unique within one vCenter and one type.
    pub(crate) fn id(&self) -> &str {
        self.parts().1
    }

    /// Type and name as one text, to be shared with other references to the same object.
    pub(crate) fn text_mut(&mut self) -> &mut Arc<str> {
        &mut self.0
    }
}

impl fmt::Display for MoRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
    fn types_and_names() {
        for (kind, id) in
            [("VirtualMachine", "vm-1"), ("Unheard", "x:1"), ("", ""), ("Folder", "session[52a1]52b2")]
        {
            let object = MoRef::new(kind, id);
            assert_eq!((object.kind(), object.id()), (kind, id));
            assert_eq!(object.to_string(), format!("{kind}:{id}"));
        }
        assert_eq!(MoRef::new("vim25:Folder", "group-v1"), MoRef::new("Folder", "group-v1"));
    }
}
