//! Takes note of what came of the work on an object.

use std::time::Duration;

use tokio::time::Instant;

use super::MachineController;
use crate::{
    controllers::machine::{
        outcome::RETRIES,
        plan::{Due, Memory},
        subject::Subject,
        work::{Ended, Then},
    },
    writes::GONE_FOR,
};

/// How long nothing is done about an object after a step that was given up since the term has ended. It may be renewed.
const STOPPED_FOR: Duration = Duration::from_secs(1);

/// The part of the period by which resyncs of objects are apart, so that not all of them come at once.
const SPREAD: f64 = 0.1;

impl MachineController {
    pub(super) fn finish(&mut self, subject: &Subject, ended: Ended) {
        let name = subject.to_string();
        self.queue.done(&name);
        for uid in self.lost.remove(subject).unwrap_or_default() {
            self.lost(subject, uid);
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
            self.look_at(subject);
        }
    }

    /// When a step is made for an object to which nothing happens.
    fn resync_after(&self) -> Duration {
        self.options.sync_period.mul_f64(1.0 - SPREAD * fastrand::f64())
    }
}
