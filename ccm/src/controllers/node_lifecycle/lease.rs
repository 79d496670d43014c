//! Reads of kubelets' leases in `kube-node-lease`: the quickest sign that a kubelet lives or does not.

use std::{
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
    time::Duration,
};

use component::inspection::Inspection;
use futures::{StreamExt, stream};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::availability::{Availability, MAX_ANSWER_TIME};

/// Where kubelets renew their leases; a lease is called as its Node.
pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// How often one lease is read only to know that the API server answers. Far more often than
/// [`MAX_PAUSE`](super::availability::MAX_PAUSE), so that a busy process is not taken for an outage.
const OBSERVATION_INTERVAL: Duration = Duration::from_millis(125);

/// `spec.leaseDurationSeconds` where a lease has none that makes sense: the kubelet's default.
pub(super) const DEFAULT_DURATION: Duration = Duration::from_secs(40);

/// A longer duration is not believed: a kubelet could pin its Node for ever. A kubelet with more than 200 s is taken for
/// dead by kube-controller-manager between two renewals, as long as that has its default grace period of 50 s.
const MAX_DURATION: Duration = Duration::from_secs(600);

/// One read of one Node's lease. Nothing makes it but the read.
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
    /// The lease. It is the one of this name, whichever Node of that name it was made for: that is the one which a
    /// kubelet renews.
    Found(LeaseView),
    /// There is none.
    Missing,
    /// We may not read it.
    Forbidden,
    /// No answer within [`MAX_ANSWER_TIME`], or one that says nothing of the lease.
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

/// Reads kubelets' leases, and knows by that whether the API server answers.
pub(super) struct LeaseReader {
    api: Api<Lease>,
    /// Leases read at the same time.
    concurrent_reads: usize,
    forbidden_logged: Once,
    availability: Mutex<Availability>,
    /// Names of the leases that are read in turn, only to know that the API server answers and that kubelets are heard.
    observed: watch::Sender<Vec<String>>,
}

impl LeaseReader {
    pub(super) fn new(client: Client, concurrent_reads: usize) -> Arc<Self> {
        Arc::new(Self {
            api: Api::namespaced(client, LEASE_NAMESPACE),
            concurrent_reads,
            forbidden_logged: Once::new(),
            availability: Mutex::default(),
            observed: watch::Sender::default(),
        })
    }

    /// Reads the leases of these Nodes, by name and UID; `inspection` hears of each read.
    pub(super) async fn read_all(
        &self,
        nodes: Vec<(String, String)>,
        inspection: &Inspection,
    ) -> Vec<(String, LeaseRead)> {
        stream::iter(nodes)
            .map(|(name, uid)| async move {
                let read = self.read(&name, uid).await;
                (name, read)
            })
            .buffer_unordered(self.concurrent_reads)
            .inspect(|_| inspection.moved_on())
            .collect()
            .await
    }

    async fn read(&self, name: &str, uid: String) -> LeaseRead {
        let sent = Instant::now();
        let answer = self.ask(name).await;
        let read = LeaseRead { uid, sent, answered: Instant::now(), answer };
        self.availability().note(&read);
        read
    }

    async fn ask(&self, name: &str) -> LeaseAnswer {
        match timeout(MAX_ANSWER_TIME, self.api.get_opt(name)).await {
            Ok(Ok(Some(lease))) => LeaseAnswer::Found(LeaseView::new(&lease.spec.unwrap_or_default())),
            Ok(Ok(None)) => LeaseAnswer::Missing,
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                self.forbidden_logged.call_once(|| {
                    tracing::warn!(
                        error = %status.message,
                        "kubelets' leases in {LEASE_NAMESPACE} cannot be read: Ready nodes whose instance is gone stay until they are NotReady"
                    );
                });
                LeaseAnswer::Forbidden
            }
            Ok(Err(_)) | Err(_) => LeaseAnswer::NoAnswer,
        }
    }

    /// What is known of the API server by all reads so far.
    pub(super) fn availability(&self) -> MutexGuard<'_, Availability> {
        self.availability.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names of the Nodes whose kubelets are listened to.
    pub(super) fn observed(&self) -> Vec<String> {
        self.observed.borrow().clone()
    }

    /// From now on [`observe`](Self::observe) listens to these `peers`, kubelets of which nobody doubts that they live;
    /// where there is none, it reads the leases of `candidates`, only to know that the API server answers. Without
    /// candidates there is nothing to know.
    pub(super) fn set_observed(&self, peers: Vec<String>, candidates: Vec<String>) {
        let wanted = if candidates.is_empty() {
            *self.availability() = Availability::default();
            Vec::new()
        } else {
            self.availability().listen_to(&peers);
            if peers.is_empty() { candidates } else { peers }
        };
        self.observed.send_if_modified(|observed| {
            let is_new = *observed != wanted;
            *observed = wanted;
            is_new
        });
    }

    /// Reads one of the observed leases after the other, for ever. Beside whatever else is done: how long the cloud takes
    /// for its answers must not look like an outage of the API server.
    pub(super) async fn observe(self: Arc<Self>) {
        let mut observed = self.observed.subscribe();
        for turn in 0_usize.. {
            let name = match observed.wait_for(|names| !names.is_empty()).await {
                Ok(names) => names.get(turn % names.len()).cloned().unwrap_or_default(),
                Err(_) => return,
            };
            let next = Instant::now() + OBSERVATION_INTERVAL;
            let read = self.read(&name, String::new()).await;
            self.availability().hear(&name, &read);
            sleep_until(next).await;
        }
    }
}

impl std::fmt::Debug for LeaseReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseReader").finish_non_exhaustive()
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
