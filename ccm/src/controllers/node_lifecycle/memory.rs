//! The memory that the node-lifecycle controller keeps of a Node between looks. Losing it is harmless.

use std::time::Duration;

use cloudprovider::InstanceLookup;
use component::{backoff::Backoff, debug_state::seconds_from_now};
use controller_kit::{cache::CachedObject as _, cloud::CallTime, nodes::Node, writes::WrittenVersion};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    absence::Absence,
    silence::LeaseHistory,
    unseen::Unseen,
    verdict::{HeldBack, Verdict},
};

/// Backoff after failed writes.
const WRITE_BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_secs(60) };

/// How long to wait for the watch to show our own write before the Node is looked at again.
const WATCH_DELAY: Duration = Duration::from_secs(1);

/// The same after the API server reported the Node as gone. The watch may be interrupted for some time.
const LONGEST_WATCH_DELAY: Duration = Duration::from_secs(60);

/// The memory of one Node.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub uid: String,
    /// When this Node was first seen. This is a lower bound of its age that does not depend on the clocks of
    /// other machines.
    pub first_seen: Instant,
    /// The uninterrupted sequence of answers that the instance is gone.
    pub absence: Option<Absence>,
    /// Whether the last answer was that the instance exists.
    pub is_present: bool,
    /// The longer wait if the provider has never seen the instance. `None`: the provider has seen it, or no
    /// longer wait is configured.
    pub unseen: Option<Unseen>,
    /// The kubelet's lease since the cloud reported the instance as gone.
    pub lease: Option<LeaseHistory>,
    /// Since when only the state of the kubelet is uncertain.
    pub listening_since: Option<Instant>,
    /// The last verdict, in words.
    pub verdict: &'static str,
    /// The present obstacle to the deletion, and since when it exists.
    pub held_back: Option<HeldBack>,
    pub held_back_since: Option<Instant>,
    /// Whether the event `DeletingNode` was recorded.
    pub announced: bool,
    /// The number of failed writes in a row, and the time of the next attempt.
    pub failures: u32,
    pub retry_at: Option<Instant>,
    /// The resource version of our last write.
    pub written: Option<WrittenVersion>,
    /// When the API server reported that this Node does not exist, if the watch has not reported it yet.
    pub gone: Option<Instant>,
    /// Whether the Node was deleted and the watch has not reported it yet.
    pub deleted: bool,
}

impl Memory {
    pub(super) fn new(uid: &str, now: Instant) -> Self {
        Self {
            uid: uid.to_owned(),
            first_seen: now,
            absence: None,
            is_present: false,
            unseen: None,
            lease: None,
            listening_since: None,
            verdict: Verdict::Ignore.words(),
            held_back: None,
            held_back_since: None,
            announced: false,
            failures: 0,
            retry_at: None,
            written: None,
            gone: None,
            deleted: false,
        }
    }

    /// The cloud's last answer, in one word.
    pub(super) fn answer(&self) -> &'static str {
        match (self.absence, self.is_present) {
            (Some(_), _) => "absent",
            (None, true) => "present",
            (None, false) => "unknown",
        }
    }

    /// Records an answer. Any other answer than "gone" ends the sequence, since two answers in a row are
    /// required.
    pub(super) fn note(&mut self, answer: &InstanceLookup, time: CallTime) {
        self.is_present = matches!(answer, InstanceLookup::Present(_));
        match answer {
            InstanceLookup::Absent => {
                let first = self.absence.map_or(time.ended, |absence| absence.first);
                self.absence = Some(Absence { first, last: time });
            }
            InstanceLookup::Present(_) | InstanceLookup::Unknown(_) => {
                self.break_row();
            }
        }
    }

    /// Records that the cloud cannot be asked about this Node at present. Later answers start a new sequence.
    pub(super) fn note_not_asked(&mut self) {
        self.is_present = false;
        self.break_row();
    }

    fn break_row(&mut self) {
        self.absence = None;
        self.lease = None;
        self.listening_since = None;
    }
}

impl Memory {
    /// When the Node can be written. This has to wait until the watch shows our last write, and for the
    /// backoff after a failed write. `None`: now.
    pub(super) fn blocked_until(&self, node: &Node, now: Instant) -> Option<Instant> {
        // A Node that no longer exists is not written to. A new Node with the same name has its own memory.
        if let Some(gone) = self.gone.filter(|gone| now.duration_since(*gone) < LONGEST_WATCH_DELAY) {
            return Some(gone + LONGEST_WATCH_DELAY);
        }
        if self.written.as_ref().is_some_and(|written| node.is_older_than(written)) {
            return Some(now + WATCH_DELAY);
        }
        self.retry_at.filter(|at| *at > now)
    }

    /// For `/debug/state`.
    pub(super) fn to_json(&self) -> Value {
        let last_answer = match (self.absence, self.is_present) {
            (Some(_), _) => "Absent",
            (None, true) => "Present",
            (None, false) => "Unknown",
        };
        json!({
            "lastAnswer": last_answer,
            "neverSeen": self.unseen.is_some(),
            "absentForSeconds": self.absence.map(|absence| -seconds_from_now(absence.first)),
            "heldBack": self.held_back.map(|reason| json!({
                "reason": reason.as_str(),
                "message": reason.message(),
            })),
            "waitingForKubeletSeconds": self.listening_since.map(|since| -seconds_from_now(since)),
            "kubeletRenewsItsLease": self.lease.as_ref().map(|lease| lease.renewed),
            "firstSeenSecondsAgo": -seconds_from_now(self.first_seen),
            "deletionAnnounced": self.announced,
            "deleted": self.deleted,
            "failedWrites": self.failures,
            "retryInSeconds": self.retry_at.map(seconds_from_now),
        })
    }

    /// Records a failed write.
    pub(super) fn write_failed(&mut self, now: Instant) -> Instant {
        self.failures = self.failures.saturating_add(1);
        let at = now + WRITE_BACKOFF.after(self.failures);
        self.retry_at = Some(at);
        at
    }

    /// Records a successful write.
    pub(super) fn write_worked(&mut self, version: WrittenVersion) {
        self.failures = 0;
        self.retry_at = None;
        self.written = Some(version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_nobody_was_asked_is_no_absence() {
        let start = Instant::now();
        let mut memory = Memory::new("u", start);
        memory.note(&InstanceLookup::Absent, CallTime::at(start));
        memory.listening_since = Some(start);
        memory.note_not_asked();
        assert_eq!((memory.absence, memory.listening_since, memory.answer()), (None, None, "unknown"));
        let later = start + Duration::from_secs(3600);
        memory.note(&InstanceLookup::Absent, CallTime::at(later));
        assert_eq!(memory.absence, Some(Absence { first: later, last: CallTime::at(later) }));
    }

    #[test]
    fn an_absence_lasts_from_the_end_of_its_first_call_to_the_begin_of_its_last_one() {
        let start = Instant::now();
        let call = |sent: u64, ended: u64| CallTime {
            sent: start + Duration::from_secs(sent),
            ended: start + Duration::from_secs(ended),
        };
        for (first, last, lasted) in
            [((0, 50), (3, 60), 0), ((0, 50), (50, 90), 0), ((0, 15), (20, 35), 5), ((0, 1), (6, 91), 5)]
        {
            let mut memory = Memory::new("u", start);
            for (sent, ended) in [first, last] {
                memory.note(&InstanceLookup::Absent, call(sent, ended));
            }
            let absence = memory.absence.expect("a row");
            assert_eq!(absence.lasted(), Duration::from_secs(lasted), "{first:?} {last:?}");
        }
    }
}
