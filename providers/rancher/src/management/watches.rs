//! Parts that all watches of the management cluster share.

use cloudprovider::{Error, ErrorKind, Result};
use futures::{Stream, StreamExt as _, future};
use kube::{
    core::ApiResource,
    runtime::watcher::{self, Event},
};

use super::{
    inventory::Change,
    transport::{is_expired, watch_error},
};

/// How long a watch lasts before it is renewed, in seconds. A connection that has died without a word is
/// noticed then.
const WATCH_TIMEOUT: u32 = 60;

/// How objects are listed, with this many in a page, and watched.
pub(super) fn config(page_size: u32) -> watcher::Config {
    watcher::Config::default().timeout(WATCH_TIMEOUT).page_size(page_size)
}

/// The step of a listing that an event is.
pub(super) enum Step {
    /// It begins.
    Begun,
    /// It has to begin anew.
    Expired,
    /// It is complete.
    Listed,
    /// An object is there, or is gone.
    Changed(Option<Change>),
}

impl Step {
    /// The meaning of an event. `note` takes over an object and whether it is there.
    pub(super) fn of<K>(event: Event<K>, note: impl FnOnce(K, bool) -> Option<Change>) -> Self {
        match event {
            Event::Init => Self::Begun,
            Event::InitDone => Self::Listed,
            Event::InitApply(object) | Event::Apply(object) => Self::Changed(note(object, true)),
            Event::Delete(object) => Self::Changed(note(object, false)),
        }
    }
}

/// The step that follows from the error of a watch.
///
/// # Errors
/// The error in the contract's terms, with the right that is missing.
pub(super) fn ended(fault: &watcher::Error, kind: &ApiResource, namespace: &str) -> Result<Step> {
    if is_expired(fault) {
        return Ok(Step::Expired);
    }
    let error = needs_rights(watch_error(fault), kind, namespace);
    Err(error.with_operation(format!("watch {}s", kind.kind)))
}

/// A refusal names the rights that are missing.
pub(super) fn needs_rights(error: Error, kind: &ApiResource, namespace: &str) -> Error {
    if error.kind() != ErrorKind::PermissionDenied {
        return error;
    }
    error.wrap(format!(
        "the token needs the rights list and watch on {} ({}) in namespace {namespace} of the management cluster",
        kind.plural, kind.group
    ))
}

/// The stream with its first error as its end. A watcher would try again at once.
pub(super) fn until_error<T, E>(
    stream: impl Stream<Item = Result<T, E>> + Send,
) -> impl Stream<Item = Result<T, E>> + Send
where
    T: Send,
    E: Send,
{
    stream.scan(false, |has_failed, item| {
        let item = (!*has_failed).then_some(item);
        *has_failed = item.as_ref().is_some_and(Result::is_err);
        future::ready(item)
    })
}
