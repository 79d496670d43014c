//! When an object is worked on, and what follows when its work ends.

use std::{sync::Arc, time::Duration};

use controller_kit::writes::GONE_FOR;
use tokio::time::Instant;

use super::{Done, MachineController};
use crate::{
    concurrency::{Permit, has_place},
    object_key::{ObjectKey, ObjectKind},
    outcome::RETRIES,
    plan::{Due, Inputs, Memory, Next},
    view::View,
    work::{Ended, Then, status_only::StatusOnlyWork},
};

/// The watch shows an old version: look again after this time. A newer version with the same content makes no
/// event.
const OLD_INTERVAL: Duration = Duration::from_secs(2);

/// How long the watch may be behind. Then what it shows counts again: the versions of an API server that was
/// restored from a backup can be lower.
const OLD_TIMEOUT: Duration = Duration::from_secs(60);

/// How long nothing is done about an object after a step that was given up since the term has ended. It may
/// be renewed.
const STOPPED_FOR: Duration = Duration::from_secs(1);

/// The jitter of resyncs, as a part of the period.
const JITTER: f64 = 0.1;

/// What is to be done about an object.
pub(super) enum Turn {
    /// Work, now.
    Now,
    /// Work, at this time.
    At(Instant),
    /// Nothing, until something changes.
    Rest,
    /// It does not exist.
    Gone,
}

impl Turn {
    /// The turn of an object whose memory says this.
    pub(super) fn of(due: Option<Due>) -> Self {
        match due {
            Some(Due::At(at)) if at > Instant::now() => Self::At(at),
            None | Some(Due::Now | Due::At(_)) => Self::Now,
            Some(Due::WhenChanged) => Self::Rest,
        }
    }
}

impl MachineController {
    fn turn_of(&self, object_key: &ObjectKey) -> Turn {
        match object_key.kind {
            ObjectKind::Machine | ObjectKind::Cluster => self.turn_of_step(object_key),
            ObjectKind::Template => self.turn_of_template(object_key),
            ObjectKind::StatusOnly(number) => self.turn_of_status_only(object_key, number),
        }
    }

    fn turn_of_step(&self, object_key: &ObjectKey) -> Turn {
        let memory = self.memories.get(object_key);
        let Some(view) = View::of(object_key, &self.stores, &self.index, memory, &self.shared.kinds) else {
            return Turn::Gone;
        };
        if self.is_old(object_key, |version| view.is_older_than(version)) {
            return Turn::At(Instant::now() + OLD_INTERVAL);
        }
        match view.next(&view.object, &view.unread(), &self.shared.scope(self.provider)) {
            Next::Ignore | Next::Rest => Turn::Rest,
            Next::At(at) => Turn::At(at),
            _ => Turn::Now,
        }
    }

    fn turn_of_template(&self, object_key: &ObjectKey) -> Turn {
        let Some(template) = self.stores.templates.get(&object_key.key) else { return Turn::Gone };
        let template = template.unpacked();
        if self.shared.ignores(&template) {
            return Turn::Rest;
        }
        if self.is_old(object_key, |version| template.is_older_than(version)) {
            return Turn::At(Instant::now() + OLD_INTERVAL);
        }
        let inputs = Inputs::of_template(&template, self.provider);
        let memory = self.memories.get(object_key).filter(|memory| memory.inputs == inputs);
        Turn::of(memory.map(|memory| memory.due))
    }

    fn turn_of_status_only(&self, object_key: &ObjectKey, number: u8) -> Turn {
        let auxiliary = &self.stores.auxiliary;
        let store = auxiliary.all().get(usize::from(number));
        let Some(found) = store.and_then(|store| store.get(&object_key.key)) else { return Turn::Gone };
        if self.is_reboot(object_key) {
            return self.turn_of_reboot(object_key, &found);
        }
        let memory = self.memories.get(object_key).filter(|memory| {
            let reads = auxiliary.look_again(memory.inputs.reads());
            memory.inputs == Inputs::of_status_only(&found, self.provider).with_reads(reads)
        });
        Turn::of(memory.map(|memory| memory.due))
    }

    /// Whether the watch does not show our last write yet. What it shows is no ground for a decision then.
    fn is_old(&self, object_key: &ObjectKey, is_older: impl FnOnce(&str) -> bool) -> bool {
        let known = self.written.get(object_key).filter(|(_, since)| since.elapsed() < OLD_TIMEOUT);
        known.is_some_and(|(version, _)| is_older(version))
    }

    /// Puts an object into the queue if something is due for it, now or later. One at work is scheduled when
    /// its work ends.
    pub(super) fn schedule(&mut self, object_key: &ObjectKey) {
        let name = object_key.to_string();
        if self.queue.is_at_work(&name) {
            self.dirty.insert(object_key.clone());
            return;
        }
        match self.turn_of(object_key) {
            Turn::Now => self.queue.add(&name),
            Turn::At(at) => {
                self.queue.remove(&name);
                self.queue.add_after(&name, at.saturating_duration_since(Instant::now()));
            }
            Turn::Rest => {}
            Turn::Gone => self.forget(object_key),
        }
    }

    pub(super) fn schedule_all(&mut self, object_keys: impl IntoIterator<Item = ObjectKey>) {
        for object_key in object_keys {
            self.schedule(&object_key);
        }
    }

    /// Schedules all objects that have a memory.
    pub(super) fn schedule_known(&mut self) {
        let object_keys: Vec<_> = self.memories.keys().cloned().collect();
        self.schedule_all(object_keys);
    }

    fn forget(&mut self, object_key: &ObjectKey) {
        self.queue.remove(&object_key.to_string());
        self.dependents.forget(object_key);
        if let Some(memory) = self.memories.remove(object_key) {
            self.failing.note(object_key.namespace(), memory.failures > 0, false);
        }
        self.written.remove(object_key);
        self.tries.remove(object_key);
    }

    /// Starts the work that is ready.
    pub(super) fn start_tasks(&mut self) {
        while let Some(permit) = self.concurrency.take()
            && let Some(name) = self.queue.take_next_of(has_place(self.tasks.len()))
        {
            let object_key = ObjectKey::of_name(&name);
            // Things may have changed while it waited for its turn.
            match object_key.filter(|object_key| matches!(self.turn_of(object_key), Turn::Now)) {
                Some(object_key) => self.start(object_key, permit),
                None => {
                    self.queue.done(&name);
                    if let Some(object_key) = ObjectKey::of_name(&name) {
                        self.schedule(&object_key);
                    }
                }
            }
        }
    }

    fn start(&mut self, object_key: ObjectKey, permit: Permit) {
        self.woken.remove(&object_key);
        self.dirty.remove(&object_key);
        match object_key.kind {
            ObjectKind::Machine | ObjectKind::Cluster => self.start_step(object_key, permit),
            ObjectKind::Template => self.start_template(object_key, permit),
            ObjectKind::StatusOnly(number) => self.start_status_only(object_key, number, permit),
        }
    }

    fn start_step(&mut self, object_key: ObjectKey, permit: Permit) {
        let (shared, provider) = (Arc::clone(&self.shared), self.provider);
        let memory = self.memories.get(&object_key);
        let owned = self.dependents.owned_of(&object_key);
        let view = View::of(&object_key, &self.stores, &self.index, memory, &shared.kinds);
        let view = view.map(|view| view.with_owned(owned));
        self.tasks.spawn(async move {
            let ended = match &view {
                Some(view) => shared.act(view, provider, permit).await,
                None => Ended::NOTHING,
            };
            Done { object_key, ended }
        });
    }

    fn start_template(&mut self, object_key: ObjectKey, permit: Permit) {
        let (shared, provider) = (Arc::clone(&self.shared), self.provider);
        let memory = self.memories.get(&object_key).cloned();
        let template = self.stores.templates.get(&object_key.key);
        self.tasks.spawn(async move {
            let ended = match &template {
                Some(template) => {
                    let template = template.unpacked();
                    shared
                        .describe_template(&object_key, &template, memory.as_ref(), (provider, &permit))
                        .await
                }
                None => Ended::NOTHING,
            };
            Done { object_key, ended }
        });
    }

    fn start_status_only(&mut self, object_key: ObjectKey, number: u8, permit: Permit) {
        if self.is_reboot(&object_key) {
            return self.start_reboot(object_key, permit);
        }
        let stores = self.stores.clone();
        let work = StatusOnlyWork {
            shared: Arc::clone(&self.shared),
            stores: stores.clone(),
            is_in_namespace: self.options.namespace.is_some(),
            provider: self.provider,
            failures: self.memories.get(&object_key).map_or(0, |memory| memory.failures),
            permit,
        };
        self.tasks.spawn(async move {
            let ended = match stores.auxiliary.all().get(usize::from(number)) {
                Some(store) => work.act(store, &object_key.key).await,
                None => Ended::NOTHING,
            };
            Done { object_key, ended }
        });
    }

    /// Takes note of what came of the work on an object.
    pub(super) fn finish(&mut self, object_key: &ObjectKey, ended: Ended) {
        let name = object_key.to_string();
        self.queue.done(&name);
        for uid in self.gone_uids.remove(object_key).unwrap_or_default() {
            self.forget_uid(object_key, uid);
        }
        let Ended { version, memory, then } = ended;
        if let Some(version) = version {
            self.written.insert(object_key.clone(), (version, Instant::now()));
        }
        let is_woken = self.woken.remove(object_key);
        let mut has_read = false;
        if let Some(memory) = memory {
            let due = match memory.due {
                // What fails and is pushed by its own step would be tried without a pause.
                _ if is_woken && memory.failures == 0 => Due::Now,
                Due::WhenChanged => Due::At(Instant::now() + self.resync_after()),
                due => due,
            };
            let (namespace, has_failed) = (object_key.namespace(), memory.failures > 0);
            let before = self.memories.get(object_key).is_some_and(|memory| memory.failures > 0);
            self.failing.note(namespace, before, has_failed);
            let due = match due {
                Due::At(at) if has_failed => {
                    Due::At(at.max(Instant::now() + self.failing.least_pause(namespace)))
                }
                due => due,
            };
            self.dependents.read(object_key, memory.inputs.reads());
            has_read = memory.inputs.reads().places().next().is_some();
            self.memories.insert(object_key.clone(), Memory { due, ..memory });
        }
        let is_dirty = self.dirty.remove(object_key);
        match then {
            Then::TryAgain => {
                let tries = self.tries.entry(object_key.clone()).or_default();
                *tries = tries.saturating_add(1);
                self.queue.retry_after(&name, RETRIES.after(*tries));
                return;
            }
            Then::Stopped => {
                self.queue.add_after(&name, STOPPED_FOR);
                return;
            }
            Then::Gone => {
                self.tries.remove(object_key);
                self.queue.add_after(&name, GONE_FOR);
            }
            Then::Look | Then::WhenChanged => drop(self.tries.remove(object_key)),
        }
        // What it read may have changed before it was known to be a reader.
        if is_dirty || is_woken || has_read || then == Then::Look {
            self.schedule(object_key);
        }
    }

    /// When a step is made for an object to which nothing happens. The jitter keeps resyncs apart.
    fn resync_after(&self) -> Duration {
        self.options.sync_period.mul_f64(1.0 - JITTER * fastrand::f64())
    }
}
