//! A kubelet's lease in `kube-node-lease`, and the result of reading it once.

mod reader;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use tokio::time::Instant;

pub(super) use reader::LeaseReader;

/// The namespace of the kubelets' leases. A lease has the name of its Node.
pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Used if a lease has no valid `spec.leaseDurationSeconds`: the kubelet's default.
pub(super) const DEFAULT_DURATION: Duration = Duration::from_secs(40);

/// Longer durations are not accepted, since a kubelet could block the deletion of its Node for ever. With
/// more than 200 s, kube-controller-manager treats a kubelet as dead between two renewals, if it has its
/// default grace period of 50 s.
const MAX_DURATION: Duration = Duration::from_secs(600);

/// One read of one Node's lease. Only the reader creates it.
#[derive(Clone, Debug)]
pub(super) struct LeaseRead {
    /// UID of the Node for which the lease was read.
    uid: String,
    sent: Instant,
    answered: Instant,
    answer: LeaseAnswer,
}

/// The result of reading a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseAnswer {
    /// The lease with this name. It may have been created for an earlier Node with the name: a kubelet renews
    /// an existing lease.
    Found(LeaseView),
    /// There is no lease.
    Missing,
    /// Reading the lease is forbidden.
    Forbidden,
    /// No response within [`MAX_ANSWER_TIME`](super::availability::MAX_ANSWER_TIME), or a response without
    /// information about the lease.
    NoAnswer,
}

/// The fields of a kubelet's lease that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseView {
    /// `spec.renewTime` as text. Only changes of it matter, since clocks differ.
    pub renew_time: String,
    /// `spec.leaseDurationSeconds`, within bounds.
    pub duration: Duration,
}

impl LeaseRead {
    /// UID of the Node for which the lease was read.
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    /// When the read was sent. Later renewals may be missing in the response.
    pub(super) fn sent(&self) -> Instant {
        self.sent
    }

    /// When the response arrived. Every renewal in it is older.
    pub(super) fn answered(&self) -> Instant {
        self.answered
    }

    /// Whether the read has a usable result.
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
    /// A read with this result, for tests.
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
