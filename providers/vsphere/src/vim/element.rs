//! A response of vCenter: a tree of named values.

use std::sync::Arc;

use crate::moref::MoRef;

/// A value of a response with its name, type and children. It does not depend on particular types: readers
/// take the children that they know by name, and ignore the others.
///
/// A page of a listing has some 100 of these for each machine, so names and types, of which there are few,
/// are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    /// The name without its prefix.
    pub(crate) name: Arc<str>,
    /// The type (`xsi:type`) without its prefix, if the response has it.
    pub(crate) kind: Option<Arc<str>>,
    /// If this is a reference, the type of the object that it refers to.
    pub(crate) ref_kind: Option<Arc<str>>,
    /// The text; empty if there are only children.
    pub(crate) text: Box<str>,
    /// The children, in order.
    pub(crate) children: Box<[Self]>,
}

impl Element {
    /// The first child with this name.
    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| *child.name == *name)
    }

    /// All children with this name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| *child.name == *name)
    }

    /// The text of the first child with this name.
    pub(crate) fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| &*child.text)
    }

    /// The object that this refers to. Some servers give its type in `xsi:type` only.
    pub(crate) fn moref(&self) -> Option<MoRef> {
        let kind = self.ref_kind.as_deref()?;
        (!self.text.is_empty()).then(|| MoRef::new(kind, &self.text))
    }

    /// The object that the first child with this name refers to.
    pub(crate) fn moref_of(&self, name: &str) -> Option<MoRef> {
        self.child(name)?.moref()
    }

    /// The text as a number or a boolean.
    pub(crate) fn parse<T: std::str::FromStr>(&self) -> Option<T> {
        self.text.trim().parse().ok()
    }

    /// The text as a boolean, in either of XML's spellings.
    pub(crate) fn is_true(&self) -> bool {
        matches!(self.text.trim(), "true" | "1")
    }

    /// Whether there is neither text nor a child.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.children.is_empty()
    }
}
