//! The objects, their versions and the history of changes.
//!
//! Every version of an object is serialised once. Gets, lists and watches share those bytes. Only writes need
//! the parsed form, so it is kept for the current version only.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::watch;

use crate::{kinds::services::Allocations, resources::ResourceKind, selector::Selectable};

/// How many changes are kept per resource, for watches that resume. A watch that is further behind gets 410
/// Gone, as from a real server.
const HISTORY: usize = 16_384;

/// The number of paged lists whose remaining pages are kept.
const SNAPSHOTS: usize = 64;

/// (namespace, name); the namespace is empty for cluster-scoped objects. Lists have this order.
pub(crate) type Key = (String, String);

/// One version of an object.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) revision: u64,
    /// `{"kind":...,"apiVersion":...,` and the rest, in storage form.
    pub(crate) json: Bytes,
    pub(crate) selectable: Selectable,
}

impl Version {
    /// The same state with another resourceVersion.
    pub(crate) fn at(&self, revision: u64) -> Self {
        // Cannot fail: the bytes were serialised here
        let mut object: Value = serde_json::from_slice(&self.json).unwrap_or_default();
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        Self { revision, json: object.to_string().into(), selectable: self.selectable.clone() }
    }
}

/// The current version of an object, and its parsed form (without kind and apiVersion).
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) value: Arc<Value>,
    pub(crate) version: Arc<Version>,
}

/// The kind of a change to an object.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Added,
    /// Contains the version before.
    Modified(Arc<Version>),
    /// Contains the version before. The event's own version is the last state, with the revision of the
    /// deletion.
    Deleted(Arc<Version>),
}

/// One change in the history.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) change: Change,
    pub(crate) version: Arc<Version>,
}

/// All objects of one resource.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) objects: BTreeMap<Key, Entry>,
    log: VecDeque<Event>,
    /// Watches and lists from an older revision are refused.
    compacted: u64,
    /// The revision of the newest change that was removed from the log. A watch that has seen it can
    /// continue.
    lost: u64,
    /// Wakes watches when the log grows.
    wake: watch::Sender<()>,
}

impl Bucket {
    /// Whether a watch or a list may start from `revision`.
    pub(crate) fn reaches(&self, revision: u64) -> bool {
        revision >= self.compacted
    }

    /// Changes after `revision`; `None` if some of them were removed from the log.
    pub(crate) fn since(&self, revision: u64) -> Option<impl Iterator<Item = &Event>> {
        if revision < self.lost {
            return None;
        }
        let first = self.log.partition_point(|event| event.version.revision <= revision);
        Some(self.log.range(first..))
    }

    /// The current versions in list order.
    pub(crate) fn now(&self) -> Vec<Arc<Version>> {
        self.objects.values().map(|entry| entry.version.clone()).collect()
    }

    /// The versions as of `revision`; `None` if the log does not reach back that far.
    pub(crate) fn at(&self, revision: u64) -> Option<Vec<Arc<Version>>> {
        let later: Vec<&Event> = self.since(revision).filter(|_| self.reaches(revision))?.collect();
        let objects = self.objects.iter().map(|(key, entry)| (key.clone(), entry.version.clone()));
        let mut objects: BTreeMap<Key, Arc<Version>> = objects.collect();
        for event in later.into_iter().rev() {
            let key = event.version.selectable.key();
            match &event.change {
                Change::Added => objects.remove(&key),
                Change::Modified(before) | Change::Deleted(before) => objects.insert(key, before.clone()),
            };
        }
        Some(objects.into_values().collect())
    }

    fn clear(&mut self, revision: &mut u64, which: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self.objects.keys().filter(|key| which(key)).cloned().collect();
        for key in keys {
            let Some(entry) = self.objects.remove(&key) else { continue };
            *revision += 1;
            let version = Arc::new(entry.version.at(*revision));
            self.record(Event { change: Change::Deleted(entry.version), version });
        }
    }

    fn record(&mut self, event: Event) {
        if self.log.len() == HISTORY
            && let Some(oldest) = self.log.pop_front()
        {
            self.lost = oldest.version.revision;
            self.compacted = self.compacted.max(self.lost);
        }
        self.log.push_back(event);
        self.wake.send_replace(());
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }
}

/// The rest of a paged list.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) versions: Arc<Vec<Arc<Version>>>,
}

/// The state that the lock protects.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) revision: u64,
    buckets: HashMap<String, Bucket>,
    snapshots: VecDeque<(u64, Snapshot)>,
    next_snapshot: u64,
    /// The addresses and ports of Services.
    pub(crate) allocations: Allocations,
}

/// The store: one lock, held for the length of one read or write.
#[derive(Debug, Default)]
pub(crate) struct Store(Mutex<Inner>);

impl Store {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }
}

impl Inner {
    pub(crate) fn bucket(&mut self, storage: &str) -> &mut Bucket {
        // A new bucket misses no changes: there were no objects of its kind before
        self.buckets.entry(storage.to_owned()).or_insert_with(|| Bucket {
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            compacted: 0,
            lost: 0,
            wake: watch::Sender::new(()),
        })
    }

    pub(crate) fn get(&self, storage: &str, key: &Key) -> Option<&Entry> {
        self.buckets.get(storage)?.objects.get(key)
    }

    fn version(&mut self, kind: &ResourceKind, value: &mut Value) -> Arc<Version> {
        self.revision += 1;
        value["metadata"]["resourceVersion"] = self.revision.to_string().into();
        Arc::new(Version {
            revision: self.revision,
            json: serialise(kind, value),
            selectable: Selectable::of(kind, value),
        })
    }

    /// Stores a new version with the next resourceVersion.
    pub(crate) fn put(&mut self, kind: &ResourceKind, key: Key, mut value: Value) -> Entry {
        let version = self.version(kind, &mut value);
        let entry = Entry { value: Arc::new(value), version: version.clone() };
        let bucket = self.bucket(&kind.storage());
        let change = match bucket.objects.insert(key, entry.clone()) {
            Some(before) => Change::Modified(before.version),
            None => Change::Added,
        };
        bucket.record(Event { change, version });
        entry
    }

    /// Removes an object. `last` is its last state, which watches get with a new resourceVersion.
    pub(crate) fn remove(&mut self, kind: &ResourceKind, key: &Key, mut last: Value) -> Entry {
        let version = self.version(kind, &mut last);
        let bucket = self.bucket(&kind.storage());
        if let Some(before) = bucket.objects.remove(key) {
            bucket.record(Event { change: Change::Deleted(before.version), version: version.clone() });
        }
        Entry { value: Arc::new(last), version }
    }

    /// Deletes all objects of a namespace, even those with finalizers: the sandbox has no namespace
    /// controller.
    pub(crate) fn empty_namespace(&mut self, namespace: &str) {
        for bucket in self.buckets.values_mut() {
            bucket.clear(&mut self.revision, |key| key.0 == namespace);
        }
    }

    /// Deletes all objects of a resource, even those with finalizers.
    pub(crate) fn empty(&mut self, storage: &str) {
        if let Some(bucket) = self.buckets.get_mut(storage) {
            bucket.clear(&mut self.revision, |_| true);
        }
    }

    /// Keeps the rest of a paged list, and returns its number for the continue token.
    pub(crate) fn keep_snapshot(&mut self, snapshot: Snapshot) -> u64 {
        if self.snapshots.len() == SNAPSHOTS {
            self.snapshots.pop_front();
        }
        self.next_snapshot += 1;
        self.snapshots.push_back((self.next_snapshot, snapshot));
        self.next_snapshot
    }

    pub(crate) fn snapshot(&self, number: u64) -> Option<Snapshot> {
        self.snapshots.iter().find(|(n, _)| *n == number).map(|(_, snapshot)| snapshot.clone())
    }

    /// Forgets the history, as a compaction of etcd does: older watches and pages get 410 Gone.
    pub(crate) fn compact(&mut self) {
        // Uses up one revision, so that a watch from the current one is too old as well
        self.revision += 1;
        for bucket in self.buckets.values_mut() {
            bucket.lost = bucket.log.back().map_or(bucket.lost, |newest| newest.version.revision);
            bucket.log.clear();
            bucket.compacted = self.revision;
            bucket.wake.send_replace(());
        }
        self.snapshots.clear();
    }
}

/// The beginning of every serialised object of a kind, up to the comma.
pub(crate) fn prefix(kind: &ResourceKind) -> String {
    // Kinds and groups are DNS names, so nothing has to be escaped
    format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version())
}

/// Serialises an object with its kind and apiVersion first.
pub(crate) fn serialise(kind: &ResourceKind, value: &Value) -> Bytes {
    let mut text = prefix(kind).into_bytes();
    let start = text.len();
    // Writing a Value into memory cannot fail: its keys are strings
    if serde_json::to_writer(&mut text, value).is_ok() && text.get(start + 1) != Some(&b'}') {
        text.remove(start); // the brace that the prefix already opened
    }
    text.into()
}
