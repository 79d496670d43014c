//! The API servers as the record of writes shows them, and what no write may do.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use super::{
    super::record::{By, Record, Write},
    rules,
};

/// The place of Nodes, whichever management cluster their writer is in.
const WORKLOAD: usize = usize::MAX;

/// For so long after a change a decision may be one that was made before: a watch is late, or a request is on its way.
pub(super) const LATE: Duration = Duration::from_secs(60);

/// How many writes are kept for people.
const KEPT: usize = 400;

/// Plural and name of an object, and its place before both.
pub(super) type Key = (usize, String, String);

/// Numbers by what they count.
pub(super) type Counts = BTreeMap<&'static str, u64>;

/// A value that changes, and those that it had a moment ago.
#[derive(Debug, Default)]
pub(super) struct Recent<T>(Vec<(Option<Instant>, T)>);

impl<T: Copy + Default> Recent<T> {
    pub(super) fn set(&mut self, value: T) {
        let now = Instant::now();
        if let Some(last) = self.0.last_mut() {
            last.0 = Some(now);
        }
        self.0.retain(|(until, _)| until.is_none_or(|until| now.duration_since(until) < LATE));
        self.0.push((None, value));
    }

    /// All of the last minute.
    pub(super) fn values(&self) -> impl Iterator<Item = T> {
        let is_recent = |until: &Option<Instant>| until.is_none_or(|until| until.elapsed() < LATE);
        self.0.iter().filter(move |(until, _)| is_recent(until)).map(|(_, value)| *value)
    }
}

/// What is known of all that was written. The rules are in [`rules`].
#[derive(Debug, Default)]
pub(super) struct State {
    objects: BTreeMap<Key, Value>,
    /// The number of the daemon that works, for each place.
    pub(super) leaders: [usize; 2],
    /// Objects that a daemon created whose term was over: it had sent them before. By plural and name.
    pub(super) late: BTreeSet<(String, String)>,
    /// How many Machines there may be at most, and are available at least.
    pub(super) bounds: Recent<(usize, usize)>,
    /// `spec.replicas` of each `MachineSet`, by its UID.
    pub(super) sizes: BTreeMap<String, Recent<usize>>,
    /// When Machines stopped working through nothing that the daemon did, by name.
    pub(super) failed: BTreeMap<String, Instant>,
    /// `MachineSet`s that a user deleted, by UID.
    pub(super) deleted_sets: BTreeSet<String>,
    /// Names that infrastructure and bootstrap configs had, with their plural.
    pub(super) used: BTreeSet<(String, String)>,
    /// Since when objects are paused.
    pub(super) paused: BTreeMap<Key, Instant>,
    /// How many writes daemons made.
    pub(super) writes: usize,
    pub(super) broken: Vec<String>,
    /// How often each rule was judged, and how often what is rare happened.
    pub(super) counts: Counts,
    log: VecDeque<String>,
}

impl State {
    pub(super) fn get(&self, place: usize, plural: &str, name: &str) -> Option<&Value> {
        self.objects.get(&key(place, plural, name))
    }

    /// All of a kind, by name.
    pub(super) fn all(&self, place: usize, plural: &str) -> impl Iterator<Item = (&str, &Value)> {
        let place = if plural == "nodes" { WORKLOAD } else { place };
        let of_kind = self.objects.range(key(place, plural, "")..);
        let of_kind = of_kind.take_while(move |((of, kind, _), _)| *of == place && kind == plural);
        of_kind.map(|((_, _, name), object)| (name.as_str(), object))
    }

    pub(super) fn names(&self, place: usize, plural: &str) -> Vec<String> {
        self.all(place, plural).map(|(name, _)| name.to_owned()).collect()
    }

    /// Objects that came late, when their owners were gone already: plural and name.
    pub(super) fn garbage(&self, place: usize) -> Vec<(String, String)> {
        let is_garbage = |(plural, name): &&(String, String)| {
            let Some(object) = self.get(place, plural, name) else { return false };
            let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            !rules::is_deleting(object)
                && owners.all(|owner| !self.has(owner["uid"].as_str().unwrap_or_default()))
        };
        self.late.iter().filter(is_garbage).cloned().collect()
    }

    /// Nodes that no daemon has written, of Machines that are gone.
    pub(super) fn unseen_nodes(&self, place: usize) -> Vec<String> {
        let is_unseen = |(name, node): &(&str, &Value)| {
            *name != rules::STRANGER
                && node["metadata"]["annotations"]["cluster.x-k8s.io/machine"].is_null()
                && ["machines", "fakemachines"].iter().all(|kind| self.get(place, kind, name).is_none())
        };
        self.all(place, "nodes").filter(is_unseen).map(|(name, _)| name.to_owned()).collect()
    }

    fn has(&self, uid: &str) -> bool {
        self.objects.values().any(|object| rules::uid(object) == uid)
    }

    fn observe(&mut self, start: Instant, write: &Write) {
        let of = key(write.place, &write.plural, &write.name);
        let before = self.objects.get(&of).cloned();
        self.note(start, write, before.as_ref());
        rules::before(self, write, before.as_ref());
        match &write.after {
            Some(after) => self.objects.insert(of, after.clone()),
            None => self.objects.remove(&of),
        };
        rules::after(self, write, before.as_ref());
    }

    fn note(&mut self, start: Instant, write: &Write, before: Option<&Value>) {
        let Write { by, place, verb, plural, name, after } = write;
        let what = match (before, after) {
            (_, None) => "gone".to_owned(),
            (Some(before), Some(after)) => changes(before, after),
            (None, Some(after)) => format!("{} {}", after["spec"], after["metadata"]["ownerReferences"]),
        };
        let at = start.elapsed().as_secs_f64();
        self.say(format!("{at:9.3} s:     {by:?} in {place} {verb} {plural} {name}: {what}"));
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn say(&mut self, what: String) {
        if self.log.len() == KEPT {
            self.log.pop_front();
        }
        self.log.push_back(what);
    }
}

fn key(place: usize, plural: &str, name: &str) -> Key {
    (if plural == "nodes" { WORKLOAD } else { place }, plural.to_owned(), name.to_owned())
}

/// What differs, with conditions as their status alone.
fn changes(before: &Value, after: &Value) -> String {
    let mut all = Vec::new();
    differences("", before, after, &mut all);
    all.join(", ")
}

fn differences(path: &str, before: &Value, after: &Value, to: &mut Vec<String>) {
    if path == "metadata.resourceVersion" || before == after {
        return;
    }
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let fields: BTreeSet<_> = before.keys().chain(after.keys()).collect();
            for field in fields {
                let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
                let of = |object: &serde_json::Map<_, _>| object.get(field).cloned().unwrap_or_default();
                differences(&path, &of(before), &of(after), to);
            }
        }
        (_, Value::Array(after)) if path == "status.conditions" => {
            let before = before.as_array().cloned().unwrap_or_default();
            for condition in after {
                let old = before.iter().find(|one| one["type"] == condition["type"]);
                if old != Some(condition) {
                    let text = |field: &str| condition[field].as_str().unwrap_or_default();
                    to.push(format!("{} {} {}", text("type"), text("status"), text("reason")));
                }
            }
        }
        _ => to.push(format!("{path} {after}")),
    }
}

/// Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Model {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<()>,
    start: Instant,
}

impl Model {
    pub(super) fn new() -> Self {
        Self { state: Arc::default(), changed: watch::Sender::new(()), start: Instant::now() }
    }

    /// The record that it learns from.
    pub(super) fn record(&self) -> Record {
        let model = self.clone();
        Record::new(move |write| {
            model.state.lock().observe(model.start, write);
            model.changed.send_replace(());
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes with each write.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Writes down what happens.
    pub(super) fn note(&self, what: &str) {
        let at = self.start.elapsed().as_secs_f64();
        self.lock().say(format!("{at:9.3} s: {what}"));
    }

    /// All that happened.
    pub(super) fn story(&self) -> String {
        let state = self.state.lock();
        let mut lines: Vec<String> = state.log.iter().cloned().collect();
        lines.extend(state.broken.iter().cloned());
        lines.join("\n")
    }
}

/// Whether the writer is a daemon, and whether it is the one that works.
pub(super) fn daemon(state: &State, write: &Write) -> Option<bool> {
    match write.by {
        By::Daemon(number) => Some(state.leaders[write.place] == number),
        By::User | By::Provider => None,
    }
}
