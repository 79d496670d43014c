//! Watches: a stream of changes from a resourceVersion on.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{
    faults::{Spoil, Spoils},
    list::{invalid_options, revision},
    render::{Renderer, frame},
    request::Target,
    selector::Selector,
    status::{ApiError, ApiResult, FieldError},
    store::{Change, Event, Store, Version},
};

/// The interval of bookmarks, for a watch that asked for them.
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);
/// How long before its end a watch gets the last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// The minimum duration of a watch without `timeoutSeconds`. The maximum is twice as long.
const MIN_TIMEOUT: Duration = Duration::from_mins(30);
/// The maximum of `timeoutSeconds`.
const MAX_TIMEOUT: Duration = Duration::from_hours(24 * 365);
/// The most events in one chunk of the body.
const BATCH: usize = 64;

/// An open watch.
struct Watch {
    store: Arc<Store>,
    storage: String,
    render: Renderer,
    selector: Selector,
    cursor: u64,
    ready: VecDeque<Bytes>,
    changed: watch::Receiver<()>,
    /// Changes when all watches are to be dropped.
    dropped: watch::Receiver<u64>,
    spoils: Spoils,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    bookmark_due: bool,
    ended: bool,
}

/// The error of a watch that ends in the middle of its body.
#[derive(Debug, thiserror::Error)]
#[error("unexpected end of the watch")]
struct Dropped;

/// Opens a watch. 422 for parameters that are not allowed together. As on the API server, a resourceVersion
/// that is too old is reported in the stream, as an ERROR event with a Status 410.
pub(crate) fn watch(
    store: &Arc<Store>,
    target: &Target,
    storage: &str,
    render: Renderer,
    dropped: watch::Receiver<u64>,
    spoils: Spoils,
) -> ApiResult<impl Stream<Item = Result<Bytes, std::io::Error>> + Send + use<>> {
    let query = &target.query;
    let mut fields = query.field_selector.clone();
    if !target.name.is_empty() {
        fields = format!("metadata.name={}", target.name);
    }
    let selector =
        Selector::parse(&target.kind, target.namespace.as_deref(), &query.label_selector, &fields)?;
    check_initial_events(target)?;
    let from = revision(query.resource_version.as_deref())?;
    let initial = query.send_initial_events.unwrap_or(from == 0);
    let now = Instant::now();
    let endless = || MIN_TIMEOUT.mul_f64(1.0 + fastrand::f64());
    let deadline = now + query.timeout.map_or_else(endless, |timeout| timeout.min(MAX_TIMEOUT));
    let mut watch = Watch {
        store: store.clone(),
        storage: storage.to_owned(),
        render,
        selector,
        cursor: from,
        ready: VecDeque::new(),
        changed: store.lock().bucket(storage).subscribe(),
        dropped,
        spoils,
        deadline,
        next_bookmark: query.allow_watch_bookmarks.then_some(now),
        bookmark_due: false,
        ended: false,
    };
    watch.plan_bookmark(now);
    let mut inner = store.lock();
    if initial || query.send_initial_events.is_some() && from == 0 {
        let revision = inner.revision;
        if initial {
            let objects = inner.bucket(storage).objects.values();
            let versions: Vec<Arc<Version>> = objects
                .map(|entry| &entry.version)
                .filter(|version| watch.selector.matches(&version.selectable))
                .cloned()
                .collect();
            drop(inner);
            for version in versions {
                let frame = watch.render.event("ADDED", &version);
                watch.ready.push_back(frame);
            }
            if query.send_initial_events.is_some() {
                let frame = watch.render.bookmark(revision, true);
                watch.ready.push_back(frame);
            }
        }
        watch.cursor = revision;
    } else {
        let reaches = inner.bucket(storage).reaches(from);
        drop(inner);
        if !reaches {
            watch.too_old();
        }
    }
    Ok(stream::unfold(watch, |mut watch| async move { watch.next().await.map(|item| (item, watch)) }))
}

/// The rules for `sendInitialEvents` and `resourceVersionMatch` of watches.
fn check_initial_events(target: &Target) -> ApiResult<()> {
    let query = &target.query;
    let mut errors = Vec::new();
    match (&query.resource_version_match, query.send_initial_events) {
        (Some(_), None) => errors.push(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        (None, Some(_)) => errors.push(FieldError::forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )),
        (Some(how), Some(_)) if how != "NotOlderThan" => errors.push(FieldError::not_supported(
            "resourceVersionMatch",
            &how.as_str().into(),
            &["NotOlderThan"],
        )),
        _ => {}
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(invalid_options(&errors))
}

impl Watch {
    fn plan_bookmark(&mut self, now: Instant) {
        if self.next_bookmark.is_some() {
            let last = self.deadline.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
            let next = now + BOOKMARK_PERIOD;
            self.next_bookmark = Some(last.map_or(next, |last| last.min(next)));
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        loop {
            // The sender is never dropped before the sandbox: a closed channel means that the sandbox is gone
            if self.dropped.has_changed().unwrap_or(true) {
                self.dropped.mark_unchanged();
                self.ended = true;
                return Some(Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, Dropped)));
            }
            if self.ready.is_empty() && !self.ended {
                self.changed.mark_unchanged();
                let all = self.collect();
                // A bookmark promises that all earlier events were sent
                if all && std::mem::take(&mut self.bookmark_due) {
                    let bookmark = self.render.bookmark(self.cursor, false);
                    self.ready.push_back(bookmark);
                    self.plan_bookmark(Instant::now());
                } else if !all && self.ready.is_empty() {
                    continue;
                }
            }
            if !self.ready.is_empty() {
                let mut body = Vec::new();
                for frame in self.ready.drain(..self.ready.len().min(BATCH)) {
                    body.extend_from_slice(&frame);
                }
                return Some(Ok(body.into()));
            }
            if self.ended {
                return None;
            }
            let bookmark = self.next_bookmark.unwrap_or(self.deadline);
            tokio::select! {
                biased;
                _ = self.dropped.changed() => self.dropped.mark_changed(),
                changed = self.changed.changed() => if changed.is_err() { return None },
                () = sleep_until(self.deadline) => return None,
                () = sleep_until(bookmark) => self.bookmark_due = true,
            }
        }
    }

    /// Ends the watch with the ERROR event for a resourceVersion that is too old.
    fn too_old(&mut self) {
        let message = format!("too old resource version: {} ({})", self.cursor, self.store.lock().revision);
        let status = ApiError::expired(message).to_value();
        self.ready.push_back(frame("ERROR", &status));
        self.ended = true;
    }

    /// Collects new changes. Returns whether those were all of them.
    fn collect(&mut self) -> bool {
        let events: Option<(Vec<Event>, u64)> = {
            let mut inner = self.store.lock();
            let revision = inner.revision;
            let changes = inner.bucket(&self.storage).since(self.cursor);
            changes.map(|changes| (changes.take(BATCH).cloned().collect(), revision))
        };
        let Some((events, revision)) = events else {
            self.too_old();
            return true;
        };
        for event in &events {
            self.cursor = event.version.revision;
            let matches = self.selector.matches(&event.version.selectable);
            let rendered = match &event.change {
                Change::Added if matches => self.render.event("ADDED", &event.version),
                Change::Deleted(_) if matches => self.render.event("DELETED", &event.version),
                Change::Modified(before) => match (self.selector.matches(&before.selectable), matches) {
                    (true, true) => self.render.event("MODIFIED", &event.version),
                    (false, true) => self.render.event("ADDED", &event.version),
                    // The last state that the watcher may see, with the revision of the change
                    (true, false) => self.render.left(before, event.version.revision),
                    (false, false) => continue,
                },
                _ => continue,
            };
            self.ready.push_back(match self.spoils.take() {
                None => rendered,
                Some(Spoil::Kind) => frame("MODIFIED", &json!({"metadata": {"name": []}})),
                Some(Spoil::Cut) => [&rendered[..rendered.len() / 2], b"\n"].concat().into(),
            });
        }
        let all = events.len() < BATCH;
        if all {
            self.cursor = self.cursor.max(revision);
        }
        all
    }
}
