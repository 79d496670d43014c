//! Reads the responses of the property collector.

use crate::{
    moref::MoRef,
    vim::{CallError, element::Element},
};

/// A property with its value; `None` where it is not set.
pub(crate) type Property<'a> = (&'a str, Option<&'a Element>);

/// An update about an object.
#[derive(Debug)]
pub(crate) struct ObjectUpdate<'a> {
    /// The object.
    pub(crate) object: MoRef,
    /// The kind of change.
    pub(crate) kind: UpdateKind,
    /// The properties in the update.
    pub(crate) properties: Vec<Property<'a>>,
}

/// A kind of change to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateKind {
    /// The object exists, and the update has all its properties. It may be known already.
    Enter,
    /// These properties changed.
    Modify,
    /// The object no longer exists, or is no longer visible.
    Leave,
}

/// A page of updates.
#[derive(Debug, Default)]
pub(crate) struct Page<'a> {
    /// The updates, in order. An object may occur several times.
    pub(crate) objects: Vec<ObjectUpdate<'a>>,
    /// The token for the next page of a listing.
    pub(crate) token: Option<String>,
    /// The version to pass to the next wait.
    pub(crate) version: Option<String>,
    /// Whether more updates are available at once.
    pub(crate) is_truncated: bool,
}

/// Reads a `RetrieveResult`.
///
/// # Errors
/// `NotAuthenticated` if the session has ended, which vCenter reports in the objects, with HTTP status 200.
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

/// Reads an `UpdateSet`. An empty one means that the wait timed out.
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

/// The value, if it is not empty.
fn set(value: &Element) -> Option<&Element> {
    (!value.is_empty()).then_some(value)
}

/// Checks for properties that could not be read. One that may not be read, or that this object lacks, is not
/// an error.
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
