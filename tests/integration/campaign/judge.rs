//! Judges deletions and writes. Pure, except for [`Deletion::observe`], which records the true state when a
//! deletion is sent.

use std::collections::HashMap;

use super::{
    proxy::Write,
    world::{Machine, Mark, Micros, SECOND, Slot, World, seconds},
};

/// How late this process may note an event on a busy machine.
pub(super) const LATE: Micros = SECOND / 2;

/// A kubelet renews after a quarter of its lease's duration. It counts as silent after this fraction of the
/// duration, and never before ten seconds.
const SILENCE: (i64, i64) = (5, 16);
const LEAST_SILENCE: Micros = 10 * SECOND;

/// How long after the answers the breaker must be open: all Nodes are counted within a monitor period.
const TOLD: Micros = 6 * SECOND;

/// How long the cloud's claim must have been beyond the breaker's limits until every leader has to know.
const KNOWN_TO_ALL: Micros = 60 * SECOND;

/// The timing flags of a daemon's process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) lease_duration: Micros,
    pub(super) grace: Micros,
    pub(super) minimum_age: Micros,
}

/// A deletion of a Node, with the true state when it was sent.
#[derive(Clone, Debug)]
pub(super) struct Deletion {
    pub(super) life: u32,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) sent: Micros,
    /// The Node's place at that time; `None` for a Node that does not belong to this cloud.
    pub(super) slot: Option<Slot>,
    /// How many consecutive answers to this process said that the instance is gone, and since when.
    pub(super) absences: u32,
    pub(super) absent_since: Option<Micros>,
    /// The number of Nodes without an instance and of all Nodes, by the answers to this process.
    pub(super) known: (usize, usize),
    /// Since when those numbers are beyond the breaker's limits.
    pub(super) known_over_limit_since: Option<Micros>,
    /// Since when the cloud's claim is beyond the breaker's limits.
    pub(super) over_limit_since: Option<Micros>,
    /// Whether the process' wall clock jumped.
    pub(super) jumped: bool,
    /// Whether the process was refused to read kubelets' leases: then upstream's rule applies.
    pub(super) leases_forbidden: bool,
}

impl Deletion {
    /// Records the true state of a Node that a process deletes.
    pub(super) fn observe(world: &World, life: u32, name: &str, uid: Option<&str>, sent: Micros) -> Self {
        let state = world.lock();
        let uid = uid.unwrap_or_default();
        let known = state.told.get(&life).and_then(|told| told.get(uid)).cloned().unwrap_or_default();
        Self {
            life,
            name: name.to_owned(),
            uid: uid.to_owned(),
            sent,
            slot: state.by_uid(uid).cloned(),
            absences: known.absences,
            absent_since: known.absent_since,
            known: state.known_absent(life),
            known_over_limit_since: state.told_over_limit_since.get(&life).copied(),
            over_limit_since: state.over_limit_since,
            jumped: state.jumped.contains(&life),
            leases_forbidden: false,
        }
    }

    /// What was wrong with the deletion, assuming that it succeeded.
    pub(super) fn faults(&self, rules: Rules) -> Vec<String> {
        let seconds = |time: Micros| format!("{:.2} s", seconds(time));
        if self.uid.is_empty() {
            return vec!["it has no UID as its precondition".to_owned()];
        }
        let Some(slot) = &self.slot else {
            return vec!["the Node is none of this cloud's, or not this one any more".to_owned()];
        };
        let mut faults = Vec::new();
        match slot.machine {
            Machine::Gone(_) => {}
            // A kubelet that the campaign itself delays looks dead to every client.
            Machine::Running if slot.due.is_some_and(|due| self.sent - due > LEAST_SILENCE / 2) => {}
            machine => faults.push(format!(
                "the machine is {machine:?}, its kubelet {}, and renewed {} before",
                if slot.kubelet { "runs" } else { "stands" },
                seconds(self.sent - slot.renewed)
            )),
        }
        let confirmed = self.absent_since.map_or(0, |since| self.sent - since);
        if self.absences < 2 || confirmed < rules.grace {
            faults.push(format!(
                "confirmed by {} answers over {}, which is less than the grace period of {}",
                self.absences,
                seconds(confirmed),
                seconds(rules.grace)
            ));
        }
        if slot.excluded == Mark::Present {
            faults.push("the Node has the label exclude-from-lifecycle-management".to_owned());
        }
        // Creation timestamps are whole seconds, rounded down.
        if !self.jumped && self.sent - slot.registered + SECOND < rules.minimum_age {
            faults.push(format!("the Node is only {} old", seconds(self.sent - slot.registered)));
        }
        if slot.allowed == Mark::Absent {
            // Which controller got the answers is not known here: it may have been the one that initialises
            // Nodes.
            let since = self.known_over_limit_since.map_or(0, |since| self.sent - since);
            if since > TOLD {
                let (absent, all) = self.known;
                faults.push(format!(
                    "the breaker is to be open: this process was told that {absent} of {all} Nodes have no instance, {} before",
                    seconds(since)
                ));
            } else if self.over_limit_since.is_some_and(|since| self.sent - since > KNOWN_TO_ALL) {
                faults.push("the breaker is to be open since long, whoever leads".to_owned());
            }
        }
        let (part, of) = SILENCE;
        let silence = (i64::from(slot.lease_seconds) * SECOND * part / of).max(LEAST_SILENCE);
        let silent = self.sent - slot.renewed;
        let rule_holds = slot.lease_exists && slot.renewed > 0 && !self.jumped && !self.leases_forbidden;
        if rule_holds && silent + LATE < silence {
            faults.push(format!(
                "its kubelet renewed the lease {} before, and {} is silence",
                seconds(silent),
                seconds(silence)
            ));
        }
        faults
    }
}

/// A successful write to the election's Lease, as seen by its sender.
#[derive(Clone, Debug)]
pub(super) struct Renewal {
    pub(super) life: u32,
    pub(super) sent: Micros,
    pub(super) done: Micros,
    /// Whether it released the Lease.
    pub(super) released: bool,
}

/// Which process led at which time.
#[derive(Debug, Default)]
pub(super) struct Terms {
    /// In the order of their completion.
    renewals: Vec<Renewal>,
    /// When the campaign took or deleted the Lease.
    pub(super) interference: Vec<Micros>,
    /// How often the Lease changed hands.
    pub(super) changes: usize,
    last_holder: Option<u32>,
}

impl Terms {
    pub(super) fn add(&mut self, renewal: Renewal) {
        if !renewal.released && self.last_holder != Some(renewal.life) {
            self.changes += usize::from(self.last_holder.is_some());
            self.last_holder = Some(renewal.life);
        }
        let place = self.renewals.partition_point(|other| other.done <= renewal.done);
        self.renewals.insert(place, renewal);
    }

    /// The current holder.
    pub(super) fn holder(&self) -> Option<u32> {
        self.renewals.last().filter(|renewal| !renewal.released).map(|renewal| renewal.life)
    }

    /// Why the sender of a write was not allowed to write at that time, if so.
    pub(super) fn fault(&self, write: &Write, rules: &HashMap<u32, Rules>) -> Option<String> {
        // A process writes only after it knows that it leads, and the proxy sees both.
        let before = self.renewals.partition_point(|renewal| renewal.done <= write.sent);
        let before = &self.renewals[..before];
        let Some(place) = before.iter().rposition(|renewal| renewal.life == write.life) else {
            return Some("its sender never held the Lease".to_owned());
        };
        let own = &before[place];
        if own.released && write.sent > own.done + LATE {
            return Some(format!(
                "its sender gave the Lease back {:.2} s before",
                seconds(write.sent - own.done)
            ));
        }
        let duration = rules.get(&write.life).map_or(0, |rules| rules.lease_duration);
        if write.sent > own.sent + duration + LATE {
            return Some(format!(
                "the last renewal of its sender is {:.2} s old, and its term {:.2} s",
                seconds(write.sent - own.sent),
                seconds(duration)
            ));
        }
        // Another process that took the Lease by the rules meanwhile. After an interference, the old leader
        // notices with its next renewal.
        let disturbed = self.interference.iter().any(|at| *at > own.sent && *at < write.sent + LATE);
        let other = before[place..]
            .iter()
            .find(|other| other.life != write.life && !other.released && other.done + LATE < write.sent);
        other.filter(|_| !disturbed).map(|other| {
            format!(
                "process {} had taken the Lease {:.2} s before",
                other.life,
                seconds(write.sent - other.done)
            )
        })
    }

    /// Forgets renewals that no later write depends on.
    pub(super) fn forget_before(&mut self, time: Micros) {
        let cut = self.renewals.partition_point(|renewal| renewal.done < time);
        self.renewals.drain(..cut);
        self.interference.retain(|at| *at >= time);
    }
}
