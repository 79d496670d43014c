//! When an object is worked on, and what follows when its work ends.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Done, MachineController};
use crate::{
    controllers::machine::{
        outcome::RETRIES,
        plan::{Due, Inputs, Memory, Next},
        room::Seat,
        subject::{Subject, SubjectKind},
        view::View,
        work::{Ended, Then, status_only::StatusOnlyWork},
    },
    writes::GONE_FOR,
};

/// How many objects are worked on at the same time, those included that wait long for their cloud. A namespace gets no more of these
/// places than it leaves free for the others: half of them if it is alone.
const MAX_AT_ONCE: usize = 2_000;

/// The watch shows an old version: look again after this time. A newer version with the same content makes no event.
const OLD_INTERVAL: Duration = Duration::from_secs(2);

/// How long the watch may be behind. Then what it shows counts again: the versions of an API server that was restored from a
/// backup can be lower.
const OLD_TIMEOUT: Duration = Duration::from_secs(60);

/// How long nothing is done about an object after a step that was given up since the term has ended. It may be renewed.
const STOPPED_FOR: Duration = Duration::from_secs(1);

/// The jitter of resyncs, as a part of the period.
const JITTER: f64 = 0.1;

/// What is to be done about an object.
enum Turn {
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
    /// When work is due of which this is remembered.
    fn of(due: Option<Due>) -> Self {
        match due {
            Some(Due::At(at)) if at > Instant::now() => Self::At(at),
            None | Some(Due::Now | Due::At(_)) => Self::Now,
            Some(Due::WhenChanged) => Self::Rest,
        }
    }
}

/// Whether a namespace with so many objects at work may have another one, of all that are at work.
pub(super) fn has_place(at_work: usize) -> impl Fn(usize) -> bool {
    let free = MAX_AT_ONCE.saturating_sub(at_work);
    move |of_namespace| of_namespace < free
}

impl MachineController {
    fn turn_of(&self, subject: &Subject) -> Turn {
        match subject.kind {
            SubjectKind::Machine | SubjectKind::Cluster => self.turn_of_step(subject),
            SubjectKind::Template => self.turn_of_template(subject),
            SubjectKind::StatusOnly(number) => self.turn_of_status_only(subject, number),
        }
    }

    fn turn_of_step(&self, subject: &Subject) -> Turn {
        let memory = self.memories.get(subject);
        let Some(view) = View::of(subject, &self.stores, &self.index, memory, &self.shared.kinds) else {
            return Turn::Gone;
        };
        if self.is_old(subject, |version| view.is_older_than(version)) {
            return Turn::At(Instant::now() + OLD_INTERVAL);
        }
        match view.next(&view.object, &view.unread(), &self.shared.scope(self.provider)) {
            Next::Ignore | Next::Rest => Turn::Rest,
            Next::At(at) => Turn::At(at),
            _ => Turn::Now,
        }
    }

    fn turn_of_template(&self, subject: &Subject) -> Turn {
        let Some(template) = self.stores.templates.get(&subject.key) else { return Turn::Gone };
        let template = template.unpacked();
        if self.shared.ignores(&template) {
            return Turn::Rest;
        }
        if self.is_old(subject, |version| template.is_older_than(version)) {
            return Turn::At(Instant::now() + OLD_INTERVAL);
        }
        let inputs = Inputs::of_template(&template, self.provider);
        let memory = self.memories.get(subject).filter(|memory| memory.inputs == inputs);
        Turn::of(memory.map(|memory| memory.due))
    }

    fn turn_of_status_only(&self, subject: &Subject, number: u8) -> Turn {
        let further = &self.stores.further;
        let store = further.all().get(usize::from(number));
        let Some(found) = store.and_then(|store| store.get(&subject.key)) else { return Turn::Gone };
        let memory = self.memories.get(subject).filter(|memory| {
            let reads = further.look_again(memory.inputs.reads());
            memory.inputs == Inputs::of_status_only(&found, self.provider).with_reads(reads)
        });
        Turn::of(memory.map(|memory| memory.due))
    }

    /// Whether the watch does not show our last write yet. What it shows is no ground for a decision then.
    fn is_old(&self, subject: &Subject, is_older: impl FnOnce(&str) -> bool) -> bool {
        let known = self.written.get(subject).filter(|(_, since)| since.elapsed() < OLD_TIMEOUT);
        known.is_some_and(|(version, _)| is_older(version))
    }

    /// Puts an object into the queue if something is due for it, now or later. One at work is scheduled when its work ends.
    pub(super) fn schedule(&mut self, subject: &Subject) {
        let name = subject.to_string();
        if self.queue.is_at_work(&name) {
            self.dirty.insert(subject.clone());
            return;
        }
        match self.turn_of(subject) {
            Turn::Now => self.queue.add(&name),
            Turn::At(at) => {
                self.queue.remove(&name);
                self.queue.add_after(&name, at.saturating_duration_since(Instant::now()));
            }
            Turn::Rest => {}
            Turn::Gone => self.forget(subject),
        }
    }

    pub(super) fn schedule_all(&mut self, subjects: impl IntoIterator<Item = Subject>) {
        for subject in subjects {
            self.schedule(&subject);
        }
    }

    /// Schedules all of which something is remembered.
    pub(super) fn schedule_known(&mut self) {
        let subjects: Vec<_> = self.memories.keys().cloned().collect();
        self.schedule_all(subjects);
    }

    fn forget(&mut self, subject: &Subject) {
        self.queue.remove(&subject.to_string());
        self.dependents.forget(subject);
        if let Some(memory) = self.memories.remove(subject) {
            self.failing.note(subject.namespace(), memory.failures > 0, false);
        }
        self.written.remove(subject);
        self.tries.remove(subject);
    }

    /// Starts the work that is ready.
    pub(super) fn start_tasks(&mut self) {
        while let Some(seat) = self.room.take()
            && let Some(name) = self.queue.take_next_of(has_place(self.tasks.len()))
        {
            let subject = Subject::of_name(&name);
            // Things may have changed while it waited for its turn.
            match subject.filter(|subject| matches!(self.turn_of(subject), Turn::Now)) {
                Some(subject) => self.start(subject, seat),
                None => {
                    self.queue.done(&name);
                    if let Some(subject) = Subject::of_name(&name) {
                        self.schedule(&subject);
                    }
                }
            }
        }
    }

    fn start(&mut self, subject: Subject, seat: Seat) {
        self.woken.remove(&subject);
        self.dirty.remove(&subject);
        match subject.kind {
            SubjectKind::Machine | SubjectKind::Cluster => self.start_step(subject, seat),
            SubjectKind::Template => self.start_template(subject, seat),
            SubjectKind::StatusOnly(number) => self.start_status_only(subject, number, seat),
        }
    }

    fn start_step(&mut self, subject: Subject, seat: Seat) {
        let (shared, provider) = (Arc::clone(&self.shared), self.provider);
        let memory = self.memories.get(&subject);
        let companions = self.dependents.companions_of(&subject);
        let view = View::of(&subject, &self.stores, &self.index, memory, &shared.kinds);
        let view = view.map(|view| view.with_companions(companions));
        self.tasks.spawn(async move {
            let ended = match &view {
                Some(view) => shared.act(view, provider, seat).await,
                None => Ended::NOTHING,
            };
            Done { subject, ended }
        });
    }

    fn start_template(&mut self, subject: Subject, seat: Seat) {
        let (shared, provider) = (Arc::clone(&self.shared), self.provider);
        let memory = self.memories.get(&subject).cloned();
        let template = self.stores.templates.get(&subject.key);
        self.tasks.spawn(async move {
            let ended = match &template {
                Some(template) => {
                    let template = template.unpacked();
                    shared.describe_template(&subject, &template, memory.as_ref(), (provider, &seat)).await
                }
                None => Ended::NOTHING,
            };
            Done { subject, ended }
        });
    }

    fn start_status_only(&mut self, subject: Subject, number: u8, seat: Seat) {
        let stores = self.stores.clone();
        let work = StatusOnlyWork {
            shared: Arc::clone(&self.shared),
            stores: stores.clone(),
            is_in_namespace: self.options.namespace.is_some(),
            provider: self.provider,
            failures: self.memories.get(&subject).map_or(0, |memory| memory.failures),
            seat,
        };
        self.tasks.spawn(async move {
            let ended = match stores.further.all().get(usize::from(number)) {
                Some(store) => work.act(store, &subject.key).await,
                None => Ended::NOTHING,
            };
            Done { subject, ended }
        });
    }

    /// Takes note of what came of the work on an object.
    pub(super) fn finish(&mut self, subject: &Subject, ended: Ended) {
        let name = subject.to_string();
        self.queue.done(&name);
        for uid in self.gone_uids.remove(subject).unwrap_or_default() {
            self.forget_uid(subject, uid);
        }
        let Ended { version, memory, then } = ended;
        if let Some(version) = version {
            self.written.insert(subject.clone(), (version, Instant::now()));
        }
        let is_woken = self.woken.remove(subject);
        let mut has_read = false;
        if let Some(memory) = memory {
            let due = match memory.due {
                // What fails and is pushed by its own step would be tried without a pause.
                _ if is_woken && memory.failures == 0 => Due::Now,
                Due::WhenChanged => Due::At(Instant::now() + self.resync_after()),
                due => due,
            };
            let (namespace, has_failed) = (subject.namespace(), memory.failures > 0);
            let before = self.memories.get(subject).is_some_and(|memory| memory.failures > 0);
            self.failing.note(namespace, before, has_failed);
            let due = match due {
                Due::At(at) if has_failed => {
                    Due::At(at.max(Instant::now() + self.failing.least_pause(namespace)))
                }
                due => due,
            };
            self.dependents.read(subject, memory.inputs.reads());
            has_read = memory.inputs.reads().places().next().is_some();
            self.memories.insert(subject.clone(), Memory { due, ..memory });
        }
        let is_dirty = self.dirty.remove(subject);
        match then {
            Then::TryAgain => {
                let tries = self.tries.entry(subject.clone()).or_default();
                *tries = tries.saturating_add(1);
                self.queue.retry_after(&name, RETRIES.after(*tries));
                return;
            }
            Then::Stopped => {
                self.queue.add_after(&name, STOPPED_FOR);
                return;
            }
            Then::Gone => {
                self.tries.remove(subject);
                self.queue.add_after(&name, GONE_FOR);
            }
            Then::Look | Then::WhenChanged => drop(self.tries.remove(subject)),
        }
        // What it read may have changed before it was known to be a reader.
        if is_dirty || is_woken || has_read || then == Then::Look {
            self.schedule(subject);
        }
    }

    /// When a step is made for an object to which nothing happens. The jitter keeps resyncs apart.
    fn resync_after(&self) -> Duration {
        self.options.sync_period.mul_f64(1.0 - JITTER * fastrand::f64())
    }
}
