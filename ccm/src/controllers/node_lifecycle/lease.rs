//! A kubelet's lease in `kube-node-lease`, and what one read of it gave.

mod reader;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use tokio::time::Instant;

pub(super) use reader::LeaseReader;

/// Where kubelets renew their leases. A lease has the name of its Node.
pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// `spec.leaseDurationSeconds` where a lease has none that makes sense: the kubelet's default.
pub(super) const DEFAULT_DURATION: Duration = Duration::from_secs(40);

/// A longer duration is not believed: a kubelet could pin its Node for ever. A kubelet with more than 200 s is taken for
/// dead by kube-controller-manager between two renewals, as long as that has its default grace period of 50 s.
const MAX_DURATION: Duration = Duration::from_secs(600);

/// One read of one Node's lease. Only the reader makes it.
#[derive(Clone, Debug)]
pub(super) struct LeaseRead {
    /// UID of the Node that it was made for.
    uid: String,
    sent: Instant,
    answered: Instant,
    answer: LeaseAnswer,
}

/// What a read of a lease gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseAnswer {
    /// The lease of this name. It may have been made for an earlier Node of the name: a kubelet renews the lease that it
    /// finds.
    Found(LeaseView),
    /// There is none.
    Missing,
    /// We may not read it.
    Forbidden,
    /// No answer within [`MAX_ANSWER_TIME`](super::availability::MAX_ANSWER_TIME), or one that says nothing of the lease.
    NoAnswer,
}

/// What counts of a kubelet's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseView {
    /// `spec.renewTime` as text: only whether it changes counts, since clocks differ.
    pub renew_time: String,
    /// `spec.leaseDurationSeconds`, within bounds.
    pub duration: Duration,
}

impl LeaseRead {
    /// UID of the Node that the read was made for.
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    /// When the read was sent: a renewal after that may be missing in the answer.
    pub(super) fn sent(&self) -> Instant {
        self.sent
    }

    /// When the answer was there: every renewal that it shows is older.
    pub(super) fn answered(&self) -> Instant {
        self.answered
    }

    /// Whether it says anything.
    pub(super) fn is_answered(&self) -> bool {
        self.answer != LeaseAnswer::NoAnswer
    }

    pub(super) fn answer(&self) -> &LeaseAnswer {
        &self.answer
    }
}

impl LeaseView {
    fn new(spec: &LeaseSpec) -> Self {
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.filter(|seconds| *seconds > 0).map_or(DEFAULT_DURATION, Duration::from_secs);
        Self {
            renew_time: spec.renew_time.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
            duration: duration.min(MAX_DURATION),
        }
    }
}

#[cfg(test)]
impl LeaseRead {
    /// A read as it would have been, for tests of what is made of it.
    pub(super) fn fake(uid: &str, sent: Instant, took: Duration, answer: LeaseAnswer) -> Self {
        Self { uid: uid.to_owned(), sent, answered: sent + took, answer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_believed_no_duration_without_bound() {
        for (seconds, duration) in [
            (None, 40),
            (Some(0), 40),
            (Some(-1), 40),
            (Some(i32::MIN), 40),
            (Some(10), 10),
            (Some(300), 300),
            (Some(601), 600),
            (Some(i32::MAX), 600),
        ] {
            let spec = LeaseSpec { lease_duration_seconds: seconds, ..LeaseSpec::default() };
            assert_eq!(LeaseView::new(&spec).duration, Duration::from_secs(duration), "{seconds:?}");
        }
    }
}
