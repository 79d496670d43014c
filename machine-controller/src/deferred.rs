//! Statuses that are written a little later.
//!
//! Most waits of a machine are over within seconds. Each status that says so is a write, and with the status
//! of an object beside the machine two. So a status that says nothing but a wait is kept in memory first, and
//! only the last of several is written. A failure, the end of the work, and a wait for [objects of the
//! API](cloudprovider::machines::WaitsFor::Objects) are written at once.
//!
//! What is kept is lost with the process. The next one derives it again from the cloud.

use std::{borrow::Cow, time::Duration};

use cloudprovider::machines::{Record, Wait, WaitsFor};
use serde_json::Value;
use tokio::time::Instant;

/// How long a wait lasts before it is written.
const WRITE_AFTER: Duration = Duration::from_secs(5);

/// How long nothing is written though one wait follows another, each for something else. A guest that ends
/// whenever it is started waits for its start and for its address in turn, and neither wait lasts.
const MAX_DEFERRAL: Duration = Duration::from_secs(20);

/// A status that is not written yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeferredStatus {
    /// The reason of the condition `Ready`.
    reason: Cow<'static, str>,
    /// When it is written if the object still waits for the same.
    at: Instant,
    /// When a status is written, whatever the object waits for by then.
    at_the_latest: Instant,
    /// What the steps have recorded. `None`: the wait is the controller's own.
    pub(super) record: Option<Record<Value>>,
}

impl DeferredStatus {
    /// The status of a wait that lasts, or begins now. `earlier` is the status that is deferred so far.
    pub(super) fn of_wait(
        earlier: Option<&Self>,
        reason: Cow<'static, str>,
        record: Option<Record<Value>>,
        now: Instant,
    ) -> Self {
        let record = record.or_else(|| earlier?.record.clone());
        let at_the_latest = earlier.map_or(now + MAX_DEFERRAL, |earlier| earlier.at_the_latest);
        let at = earlier.filter(|earlier| earlier.reason == reason).map_or(now + WRITE_AFTER, |same| same.at);
        Self { reason, at, at_the_latest, record }
    }

    /// The status that the API server did not take. The next one is written at once, also if it says a wait.
    pub(super) fn refused(record: Record<Value>, now: Instant) -> Self {
        Self { reason: Cow::Borrowed(""), at: now, at_the_latest: now, record: Some(record) }
    }

    /// Whether it says a wait for this reason.
    pub(super) fn says(&self, reason: &str) -> bool {
        self.reason == reason
    }

    /// When it is written if nothing changes.
    pub(super) fn due(&self) -> Instant {
        self.at.min(self.at_the_latest)
    }
}

/// Whether a status that says this wait may be written later. A wait for capacity ends when a person or
/// another machine makes room, which may take long.
pub(super) fn may_be_deferred(wait: &Wait) -> bool {
    !matches!(wait.waits_for, WaitsFor::Objects | WaitsFor::Capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Cow<'static, str> = Cow::Borrowed("WaitingForBootstrapData");

    #[tokio::test]
    async fn waits_that_follow_each_other_are_written_after_a_while() {
        let begin = Instant::now();
        let after = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut status = DeferredStatus::of_wait(None, "StartingDomain".into(), None, begin);
        assert_eq!(status.due(), after(5));
        // A guest that ends after three seconds, again and again.
        for (begins, due) in [(3, 8), (6, 11), (9, 14), (12, 17), (15, 20), (18, 20)] {
            let reason = if begins % 2 == 1 { "WaitingForAddress" } else { "StartingDomain" };
            status = DeferredStatus::of_wait(Some(&status), reason.into(), None, after(begins));
            assert_eq!(status.due(), after(due), "the wait after {begins} s");
        }
        let same = DeferredStatus::of_wait(Some(&status), status.reason.clone(), None, after(19));
        assert_eq!(same, status, "it goes on");
    }

    #[tokio::test]
    async fn what_the_api_server_refused_is_written_with_the_next_wait() {
        let now = Instant::now();
        let refused = DeferredStatus::refused(Record::new(1.into()), now);
        let next = DeferredStatus::of_wait(Some(&refused), DATA, None, now + Duration::from_secs(1));
        assert!(next.due() <= now, "{next:?}");
        let waits = DeferredStatus::of_wait(None, DATA, Some(Record::new(1.into())), now);
        let next = DeferredStatus::of_wait(Some(&waits), DATA, None, now);
        assert!(next.due() > now && next.record == waits.record, "what a step recorded is kept: {next:?}");
    }

    #[test]
    fn only_waits_that_pass_by_themselves_are_deferred() {
        let waits =
            [Wait::task("a"), Wait::address("a"), Wait::bootstrap_data(), Wait::time(WRITE_AFTER, "a")];
        assert!(waits.iter().all(may_be_deferred));
        assert!(![Wait::objects("a"), Wait::capacity("a")].iter().any(may_be_deferred));
    }
}
