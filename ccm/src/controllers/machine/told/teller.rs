//! The loop that asks the provider and writes what it says.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloudprovider::{
    InstanceChange,
    machines::{LookRequest, Objects},
};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::decision::{Memory, News, Next, next, write_of};
use crate::{
    cache::Changes,
    controllers::machine::{
        companions::Write,
        further::{Further, FurtherStore, Kept, Reader},
        outcome::{RETRIES, due_after_error},
        plan::Due,
        work::Shared,
    },
    writes::WriteError,
};

/// How many objects are worked on at the same time. There are few of them.
const MAX_AT_ONCE: usize = 16;

/// The kind of these objects in the metrics.
const TOLD: &str = "told";

/// How long nothing is done about an object since the term has ended. It may be renewed.
const STOPPED_FOR: Duration = Duration::from_secs(1);

/// Says what the statuses of objects of the [told](cloudprovider::machines::FurtherKind::told) kinds are.
pub(in crate::controllers::machine) struct Teller {
    pub(in crate::controllers::machine) shared: Arc<Shared>,
    pub(in crate::controllers::machine) further: Further,
    /// How often an object is looked at to which nothing happens.
    pub(in crate::controllers::machine) sync_period: Duration,
}

/// The number of the kind, and the key of the object.
type ObjectKey = (usize, String);

type Memories = BTreeMap<ObjectKey, Memory>;

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
        let mut memories = Memories::new();
        for (number, store) in all.iter().enumerate() {
            let keys: Vec<String> = store.cache.read().keys().cloned().collect();
            self.changed(&mut memories, number, keys);
        }
        while !stop.is_cancelled() {
            self.work(&mut memories).await;
            let due = memories.values().filter_map(|memory| memory.due).min();
            let is_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                (number, keys) = Changes::next_of(&mut changes) => self.changed(&mut memories, number, keys),
                Ok(()) = news.changed() => self.note(&mut memories, &News::All),
                Some(change) = pushed.next() => match change {
                    InstanceChange::Resync => self.note(&mut memories, &News::All),
                    InstanceChange::Changed(refs) => {
                        for uid in refs.iter().filter_map(|one| one.machine.as_deref()) {
                            self.note(&mut memories, &News::Uid(uid));
                        }
                    }
                },
                () = is_due => {}
            }
        }
    }

    /// Objects of a kind appeared, changed or vanished.
    fn changed(&self, memories: &mut Memories, number: usize, keys: impl IntoIterator<Item = String>) {
        let Some(store) = self.further.all().get(number) else { return };
        for key in keys {
            if store.kind.is_told {
                // Otherwise what our last write gave would count for a while.
                if store.cache.get(&key).is_none() {
                    store.ended(&key);
                }
                memories.entry((number, key.clone())).or_default();
            }
            self.note(memories, &News::Object(&store.kind, &key));
        }
    }

    /// Looks again at those that this concerns.
    fn note(&self, memories: &mut Memories, news: &News<'_>) {
        for ((number, key), memory) in memories {
            let Some(store) = self.further.all().get(*number) else { continue };
            if memory.is_concerned((&store.kind, key), news) {
                memory.due = Some(Instant::now());
            }
        }
    }

    /// Works on all objects for which something is due.
    async fn work(&self, memories: &mut Memories) {
        let now = Instant::now();
        let is_due = |memory: &Memory| memory.due.is_some_and(|due| due <= now);
        let due: BTreeMap<ObjectKey, Memory> = memories
            .iter()
            .filter(|(_, memory)| is_due(memory))
            .map(|(key, memory)| (key.clone(), memory.clone()))
            .collect();
        let work = stream::iter(due).map(|(own, before)| async move {
            let after = match self.further.all().get(own.0) {
                Some(store) => self.work_on(store, &own.1, before.failures).await,
                None => None,
            };
            if !before.uid.is_empty() && after.as_ref().is_none_or(|after| after.uid != before.uid) {
                self.shared.cloud.forget_object(&before.uid);
            }
            (own, after)
        });
        let done: Vec<_> = work.buffer_unordered(MAX_AT_ONCE).collect().await;
        for (own, after) in done {
            match after {
                Some(memory) => drop(memories.insert(own, memory)),
                None => drop(memories.remove(&own)),
            }
        }
    }

    /// Does what is due for an object. `None`: there is no such object.
    async fn work_on(&self, store: &FurtherStore, key: &str, failures: u32) -> Option<Memory> {
        let Some(found) = store.get(key) else {
            store.vanished(key);
            return None;
        };
        let uid = found.metadata.uid.clone().unwrap_or_default();
        let rest = Memory { uid, due: Some(Instant::now() + self.sync_period), ..Memory::default() };
        match next(&store.kind, &found, self.shared.ignores(&found.as_infra())) {
            Next::Rest => Some(rest),
            Next::Write(write) => self.write(store, &found, &write, rest, failures).await,
            Next::Look => self.look(store, &found, rest, failures).await,
        }
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
                tracing::warn!(kind, name, error = %error.report(), "nothing is said about it");
                rest.failures = failures.saturating_add(1);
                if let Due::At(at) = due_after_error(&error, rest.failures, Instant::now()) {
                    rest.due = Some(at);
                }
                return Some(rest);
            }
        };
        let soon = told.look_again_after.and_then(|after| Instant::now().checked_add(after));
        rest.due = rest.due.into_iter().chain(soon).min();
        match write_of(&told, found, Timestamp::now()) {
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
        match self.shared.fence.pass(self.shared.writer.write_told(&store.kind, found, write)).await {
            None => again(failures, STOPPED_FOR, rest),
            Some(Ok(written)) => {
                self.shared.metrics.writes(TOLD, "status").inc();
                store.wrote(written, begun);
                Some(rest)
            }
            // The watch tells of its end.
            Some(Err(WriteError::Gone)) => again(failures, STOPPED_FOR, rest),
            Some(Err(error)) => {
                tracing::warn!(kind, name, %error, "what the provider says is not written");
                let failures = failures.saturating_add(1);
                again(failures, RETRIES.after(failures), rest)
            }
        }
    }
}
