//! What the property collector answers.

use crate::{
    moref::MoRef,
    vim::{CallError, element::Element},
};

/// A property with its value; `None` where it is not set.
pub(crate) type Property<'a> = (&'a str, Option<&'a Element>);

/// What is told of an object.
#[derive(Debug)]
pub(crate) struct ObjectUpdate<'a> {
    /// The object.
    pub(crate) object: MoRef,
    /// What happened to it.
    pub(crate) kind: UpdateKind,
    /// The properties that are told.
    pub(crate) properties: Vec<Property<'a>>,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateKind {
    /// It is there, with all properties. May be told of objects that are known already.
    Enter,
    /// These properties changed.
    Modify,
    /// It is there no more, or not to be seen any more.
    Leave,
}

/// A page of what the property collector tells.
#[derive(Debug, Default)]
pub(crate) struct Page<'a> {
    /// The objects, in order: an object may come several times.
    pub(crate) objects: Vec<ObjectUpdate<'a>>,
    /// What asks for the next page of a listing.
    pub(crate) token: Option<String>,
    /// The version that the next wait begins with.
    pub(crate) version: Option<String>,
    /// Whether more is to be had at once.
    pub(crate) is_truncated: bool,
}

/// Reads a `RetrieveResult`.
///
/// # Errors
/// `NotAuthenticated` where the session is gone, which vCenter tells in the objects, under HTTP status 200.
pub(crate) fn read_listing<'a>(method: &'static str, result: &'a Element) -> Result<Page<'a>, CallError> {
    let mut page = Page { token: result.text_of("token").map(str::to_owned), ..Page::default() };
    for content in result.all("objects") {
        check_missing(method, content)?;
        let Some(object) = content.moref_of("obj") else { continue };
        let properties = content
            .all("propSet")
            .filter_map(|property| Some((property.text_of("name")?, property.child("val").and_then(set))))
            .collect();
        page.objects.push(ObjectUpdate { object, kind: UpdateKind::Enter, properties });
    }
    Ok(page)
}

/// Reads an `UpdateSet`. An empty one is a wait that ran out.
///
/// # Errors
/// As [`read_listing`].
pub(crate) fn read_updates<'a>(method: &'static str, result: &'a Element) -> Result<Page<'a>, CallError> {
    let mut page = Page {
        version: result.text_of("version").map(str::to_owned),
        is_truncated: result.child("truncated").is_some_and(Element::is_true),
        ..Page::default()
    };
    for filter in result.all("filterSet") {
        check_missing(method, filter)?;
        for update in filter.all("objectSet") {
            check_missing(method, update)?;
            let Some(object) = update.moref_of("obj") else { continue };
            let kind = match update.text_of("kind") {
                Some("leave") => UpdateKind::Leave,
                Some("enter") => UpdateKind::Enter,
                _ => UpdateKind::Modify,
            };
            let properties = update
                .all("changeSet")
                .filter_map(|change| {
                    let value = change.child("val").and_then(set);
                    let is_removed = matches!(change.text_of("op"), Some("remove" | "indirectRemove"));
                    Some((change.text_of("name")?, value.filter(|_| !is_removed)))
                })
                .collect();
            page.objects.push(ObjectUpdate { object, kind, properties });
        }
    }
    Ok(page)
}

/// A value that holds something.
fn set(value: &Element) -> Option<&Element> {
    (!value.is_empty()).then_some(value)
}

/// Looks for what could not be read. A property that may not be read, or that this object lacks, is only missing.
fn check_missing(method: &'static str, content: &Element) -> Result<(), CallError> {
    for missing in content.all("missingSet") {
        let Some(fault) = missing.child("fault").and_then(|localized| localized.child("fault")) else {
            continue;
        };
        if fault.kind.as_deref() == Some("NotAuthenticated") {
            return Err(CallError::Fault {
                method,
                kind: "NotAuthenticated".into(),
                message: "told of a property".into(),
            });
        }
    }
    Ok(())
}
