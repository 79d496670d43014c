//! The loop that asks the provider and writes what it says.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cloudprovider::{
    InstanceChange,
    machines::{LookRequest, Objects},
};
use futures::{StreamExt as _, stream::FuturesUnordered};
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::decision::{Memory, News, Next, next, users_of, write_of};
use crate::{
    cache::{Cache, Changes},
    controllers::machine::{
        companions::Write,
        further::{Further, FurtherStore, Kept, Reader},
        outcome::{RETRIES, due_after_error},
        packed::Packed,
        plan::Due,
        store::Core,
        surroundings::Machine,
        work::Shared,
    },
    writes::WriteError,
};

/// How many objects are worked on at the same time. There are few of them, and those of a cloud that hangs wait for a minute.
const MAX_AT_ONCE: usize = 64;

/// The kind of these objects in the metrics.
const TOLD: &str = "told";

/// How long nothing is done about an object since the term has ended. It may be renewed.
const STOPPED_FOR: Duration = Duration::from_secs(1);

/// The machines that are seen.
pub(in crate::controllers::machine) struct Machines {
    /// Those of Cluster API.
    pub(in crate::controllers::machine) core: Cache<Core<Machine>>,
    /// Those of the provider.
    pub(in crate::controllers::machine) own: Cache<Packed>,
}

/// Who is in a failure domain.
enum Users {
    /// These.
    Known(BTreeSet<String>),
    /// Not all machines have arrived.
    NotYetKnown,
    /// Not all of them are seen, or nothing is written.
    NotSeen,
}

/// Says what the statuses of objects of the [told](cloudprovider::machines::FurtherKind::told) kinds are.
pub(in crate::controllers::machine) struct Teller {
    pub(in crate::controllers::machine) shared: Arc<Shared>,
    pub(in crate::controllers::machine) further: Further,
    pub(in crate::controllers::machine) machines: Machines,
    /// `--namespace`: machines of other ones are not seen.
    pub(in crate::controllers::machine) is_in_namespace: bool,
    /// How often an object is looked at to which nothing happens.
    pub(in crate::controllers::machine) sync_period: Duration,
}

/// The number of the kind, and the key of the object.
type ObjectKey = (usize, String);

/// An object, from the moment that something is known of it.
#[derive(Debug, Default)]
struct Entry {
    memory: Memory,
    /// Whether it is worked on. That is done once at a time.
    is_at_work: bool,
    /// Whether something that concerns it happened meanwhile.
    is_woken: bool,
}

type Entries = BTreeMap<ObjectKey, Entry>;

impl Teller {
    /// Works until `stop` is cancelled.
    pub(in crate::controllers::machine) async fn run(self, stop: CancellationToken) {
        if !self.further.all().iter().any(|store| store.kind.is_told) {
            return stop.cancelled().await;
        }
        let mut pushed = self.shared.cloud.changes();
        let mut news = self.further.news();
        let all = self.further.all();
        let mut changes: Vec<Changes> = all.iter().map(|store| store.cache.subscribe()).collect();
        let mut entries = Entries::new();
        for (number, store) in all.iter().enumerate() {
            let keys: Vec<String> = store.cache.read().keys().cloned().collect();
            self.changed(&mut entries, number, keys);
        }
        let mut core_machines = self.machines.core.subscribe();
        let mut own_machines = self.machines.own.subscribe();
        let mut at_work = FuturesUnordered::new();
        while !stop.is_cancelled() {
            let room = MAX_AT_ONCE.saturating_sub(at_work.len());
            let (ready, due) = self.take_due(&mut entries, room);
            at_work.extend(ready.into_iter().map(|(own, before)| self.work_on(own, before)));
            let is_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                Some((own, after)) = at_work.next() => self.ended(&mut entries, &own, after),
                (number, keys) = Changes::next_of(&mut changes) => self.changed(&mut entries, number, keys),
                _ = core_machines.next() => self.note(&mut entries, &News::Machines),
                _ = own_machines.next() => self.note(&mut entries, &News::Machines),
                Ok(()) = news.changed() => self.note(&mut entries, &News::All),
                Some(change) = pushed.next() => match change {
                    InstanceChange::Resync => self.note(&mut entries, &News::All),
                    InstanceChange::Changed(refs) => {
                        for uid in refs.iter().filter_map(|one| one.machine.as_deref()) {
                            self.note(&mut entries, &News::Uid(uid));
                        }
                    }
                },
                () = is_due => {}
            }
        }
        while at_work.next().await.is_some() {}
    }

    /// Objects of a kind appeared, changed or vanished.
    fn changed(&self, entries: &mut Entries, number: usize, keys: impl IntoIterator<Item = String>) {
        let Some(store) = self.further.all().get(number) else { return };
        for key in keys {
            if store.kind.is_told {
                // Otherwise what our last write gave would count for a while.
                if store.cache.get(&key).is_none() {
                    store.ended(&key);
                }
                entries.entry((number, key.clone())).or_default();
            }
            self.note(entries, &News::Object(&store.kind, &key));
        }
    }

    /// Looks again at those that this concerns.
    fn note(&self, entries: &mut Entries, news: &News<'_>) {
        for ((number, key), entry) in entries {
            let Some(store) = self.further.all().get(*number) else { continue };
            if entry.memory.is_concerned((&store.kind, key), news) {
                entry.memory.due = Some(Instant::now());
                entry.is_woken = entry.is_at_work;
            }
        }
    }

    /// Takes objects for which something is due, as many as there is room for. Gives when something is due for another one. If there
    /// is no room, that is looked at when there is.
    fn take_due(&self, entries: &mut Entries, room: usize) -> (Vec<(ObjectKey, Memory)>, Option<Instant>) {
        let now = Instant::now();
        let mut ready = Vec::new();
        let mut later: Option<Instant> = None;
        for (own, entry) in entries.iter_mut().filter(|(_, entry)| !entry.is_at_work) {
            match entry.memory.due {
                Some(due) if due <= now && ready.len() < room => {
                    entry.is_at_work = true;
                    ready.push((own.clone(), entry.memory.clone()));
                    // The cloud may tell of it before the first look has ended.
                    let found = self.further.all().get(own.0).and_then(|store| store.get(&own.1));
                    if let Some(uid) = found.and_then(|found| found.metadata.uid.clone()) {
                        entry.memory.uid = uid;
                    }
                }
                Some(due) if due > now => later = Some(later.map_or(due, |later| later.min(due))),
                _ => {}
            }
        }
        (ready, later)
    }

    /// The work on an object has ended.
    fn ended(&self, entries: &mut Entries, own: &ObjectKey, after: Option<Memory>) {
        let Some(entry) = entries.get_mut(own) else { return };
        let is_woken = entry.is_woken;
        let Some(mut memory) = after else {
            // There may be another one of its name by now.
            if is_woken {
                *entry = Entry {
                    memory: Memory { due: Some(Instant::now()), ..Memory::default() },
                    ..Entry::default()
                };
            } else {
                entries.remove(own);
            }
            return;
        };
        // What it read for the first time may have changed before it was known to be read.
        if is_woken || self.further.look_again(&memory.reads) != memory.reads {
            memory.due = Some(Instant::now());
        }
        *entry = Entry { memory, ..Entry::default() };
    }

    /// Does what is due for an object. `None`: there is no such object.
    async fn work_on(&self, own: ObjectKey, before: Memory) -> (ObjectKey, Option<Memory>) {
        let after = match self.further.all().get(own.0) {
            Some(store) => self.work_in(store, &own.1, before.failures).await,
            None => None,
        };
        if !before.uid.is_empty() && after.as_ref().is_none_or(|after| after.uid != before.uid) {
            self.shared.cloud.forget_object(&before.uid);
        }
        (own, after)
    }

    async fn work_in(&self, store: &FurtherStore, key: &str, failures: u32) -> Option<Memory> {
        let Some(found) = store.get(key) else {
            store.vanished(key);
            return None;
        };
        let uid = found.metadata.uid.clone().unwrap_or_default();
        let mut rest = Memory { uid, due: Some(Instant::now() + self.sync_period), ..Memory::default() };
        let users = match self.users_of(store, &found) {
            Users::NotYetKnown => {
                return Some(Memory { due: Some(Instant::now() + STOPPED_FOR), failures, ..rest });
            }
            Users::Known(users) => {
                rest.is_held = found.object.is_deleting && !users.is_empty();
                Some(users)
            }
            Users::NotSeen => None,
        };
        let is_ignored = self.shared.ignores(&found.as_infra());
        match next(&store.kind, &found, is_ignored, users.as_ref(), Timestamp::now()) {
            Next::Rest => Some(rest),
            Next::Write(write) => self.write(store, &found, &write, rest, failures).await,
            Next::Look => self.look(store, &found, rest, failures).await,
        }
    }

    /// Who is in the failure domain that an object is. It matters when it is deleted.
    fn users_of(&self, store: &FurtherStore, found: &Kept) -> Users {
        if store.kind.failure_domain.is_none() || self.is_in_namespace || self.shared.dry_run {
            return Users::NotSeen;
        }
        if !found.object.is_deleting {
            return Users::Known(BTreeSet::new());
        }
        let Machines { core, own } = &self.machines;
        if !core.is_synced() || !own.is_synced() {
            return Users::NotYetKnown;
        }
        let kind = self.shared.kinds.machine.kind;
        Users::Known(users_of(&found.object.name, &core.all(), &own.all(), kind))
    }

    async fn look(
        &self,
        store: &FurtherStore,
        found: &Kept,
        mut rest: Memory,
        failures: u32,
    ) -> Option<Memory> {
        let reader = Arc::new(Reader::new(self.further.clone()));
        let objects = Objects::new(Arc::<Reader>::clone(&reader));
        let request = LookRequest::new(store.kind, Arc::clone(&found.object)).with_objects(objects);
        let call = self.shared.fence.pass(self.shared.cloud.look_at(&request));
        let Some(answer) = self.shared.cut.run_until_cancelled(call).await.flatten() else {
            return Some(Memory { due: Some(Instant::now() + STOPPED_FOR), failures, ..rest });
        };
        rest.reads = reader.reads();
        let result = answer.as_ref().map_or_else(|error| error.kind().as_str(), |_| "ok");
        self.shared.metrics.steps(TOLD, "look", result).inc();
        let told = match answer {
            Ok(told) => told,
            Err(error) => {
                let (kind, name) = (store.kind.kind, &found.object.name);
                tracing::warn!(kind, name, error = %error.log_report(), "nothing is said about it");
                rest.failures = failures.saturating_add(1);
                if let Due::At(at) = due_after_error(&error, rest.failures, Instant::now()) {
                    rest.due = Some(at);
                }
                return Some(rest);
            }
        };
        let soon = told.look_again_after.and_then(|after| Instant::now().checked_add(after));
        rest.due = rest.due.into_iter().chain(soon).min();
        match write_of(&store.kind, &told, found, Timestamp::now()) {
            Some(write) => self.write(store, found, &write, rest, failures).await,
            None => Some(rest),
        }
    }

    /// Makes one write. The watch tells of it, and then the object is looked at again.
    async fn write(
        &self,
        store: &FurtherStore,
        found: &Kept,
        write: &Write,
        rest: Memory,
        failures: u32,
    ) -> Option<Memory> {
        let (kind, name) = (store.kind.kind, &found.object.name);
        if self.shared.dry_run {
            tracing::info!(kind, name, "dry run: a daemon would write what the provider says about it");
            return Some(rest);
        }
        let again = |failures: u32, after: Duration, rest: Memory| {
            Some(Memory { due: Some(Instant::now() + after), failures, ..rest })
        };
        let begun = Instant::now();
        match self.shared.fence.pass(Box::pin(self.shared.writer.write_told(&store.kind, found, write))).await
        {
            // The watch tells of its end.
            None | Some(Err(WriteError::Gone)) => again(failures, STOPPED_FOR, rest),
            Some(Ok(written)) => {
                self.shared.metrics.writes(TOLD, "status").inc();
                store.wrote(written, begun);
                Some(rest)
            }
            Some(Err(error)) => {
                tracing::warn!(kind, name, %error, "what the provider says is not written");
                let failures = failures.saturating_add(1);
                again(failures, RETRIES.after(failures), rest)
            }
        }
    }
}
