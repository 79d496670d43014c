//! What the node-lifecycle controller remembers of a Node between its looks. All of it can be lost.

use std::time::Duration;

use cloudprovider::InstanceLookup;
use component::{backoff::Backoff, debug_state::seconds_from_now};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    absence::Absence,
    silence::LeaseHistory,
    unseen::Unseen,
    verdict::{HeldBack, Verdict},
};
use crate::{
    cloud::CallTime,
    nodes::{Node, WrittenVersion},
};

/// A write that fails is tried again in this rhythm.
const WRITE_BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_secs(60) };

/// How long to wait for the watch to show what we wrote, before looking again.
const WATCH_DELAY: Duration = Duration::from_secs(1);

/// The same where the API server said that the Node is gone. The watch may itself be interrupted for a while.
const LONGEST_WATCH_DELAY: Duration = Duration::from_secs(60);

/// What is remembered of one Node.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub uid: String,
    /// When this Node was first seen. That is a lower bound of its age which does not depend on other machines' clocks.
    pub first_seen: Instant,
    /// The uninterrupted row of answers that the instance is gone.
    pub absence: Option<Absence>,
    /// Whether the last answer was that the instance exists.
    pub is_present: bool,
    /// What has to be waited for where the provider has never had the instance. `None`: it has had it, or there is no longer
    /// wait.
    pub unseen: Option<Unseen>,
    /// The kubelet's lease since the cloud said that the instance is gone.
    pub lease: Option<LeaseHistory>,
    /// Since when nothing but the kubelet is uncertain.
    pub listening_since: Option<Instant>,
    /// What was decided last, in words.
    pub verdict: &'static str,
    /// What is in the way of the deletion now, and since when.
    pub held_back: Option<HeldBack>,
    pub held_back_since: Option<Instant>,
    /// Whether `DeletingNode` was announced.
    pub announced: bool,
    /// Writes that failed, in a row, and when the next one is allowed.
    pub failures: u32,
    pub retry_at: Option<Instant>,
    /// The resource version that our own last write produced.
    pub written: Option<WrittenVersion>,
    /// When the API server said that this Node is not there any more, if the watch has yet to say so.
    pub gone: Option<Instant>,
    /// Whether the Node was deleted and the watch has yet to say so.
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

    /// The cloud's last answer, in a word.
    pub(super) fn answer(&self) -> &'static str {
        match (self.absence, self.is_present) {
            (Some(_), _) => "absent",
            (None, true) => "present",
            (None, false) => "unknown",
        }
    }

    /// Takes note of an answer. Anything but "gone" breaks the row: two answers in a row are asked for.
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

    /// The cloud cannot be asked about this Node for now. Later answers begin a new row.
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
    /// When the Node can be written: not while it is older than what we wrote ourselves, nor before a failed write is
    /// due again. `None`: now.
    pub(super) fn blocked_until(&self, node: &Node, now: Instant) -> Option<Instant> {
        // Nothing more is written to a Node that is gone. A new Node of its name has a memory of its own.
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

    /// Takes note of a write that failed.
    pub(super) fn write_failed(&mut self, now: Instant) -> Instant {
        self.failures = self.failures.saturating_add(1);
        let at = now + WRITE_BACKOFF.after(self.failures);
        self.retry_at = Some(at);
        at
    }

    /// Takes note of a write that worked.
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
