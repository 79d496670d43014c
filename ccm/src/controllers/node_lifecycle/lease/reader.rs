//! Reads kubelets' leases, which show fastest whether a kubelet is alive.

use std::{
    sync::{Arc, Once},
    time::Duration,
};

use component::inspection::Inspection;
use futures::{StreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::{
    super::availability::{Availability, MAX_ANSWER_TIME},
    LEASE_NAMESPACE, LeaseAnswer, LeaseRead, LeaseView,
};

/// Interval of the reads that only show whether the API server responds. It is much shorter than
/// [`MAX_PAUSE`](super::super::renewal::MAX_PAUSE), so that a busy process does not look like an outage.
const OBSERVATION_INTERVAL: Duration = Duration::from_millis(125);

/// Reads kubelets' leases, and derives from that whether the API server responds.
pub(in super::super) struct LeaseReader {
    api: Api<Lease>,
    /// Maximum number of leases that are read at the same time.
    concurrent_reads: usize,
    forbidden_logged: Once,
    availability: Mutex<Availability>,
    /// Names of the leases that are read in turn, only to see whether the API server responds and whether
    /// kubelets renew.
    observed: watch::Sender<Vec<String>>,
}

impl LeaseReader {
    pub(in super::super) fn new(client: Client, concurrent_reads: usize) -> Arc<Self> {
        Arc::new(Self {
            api: Api::namespaced(client, LEASE_NAMESPACE),
            concurrent_reads,
            forbidden_logged: Once::new(),
            availability: Mutex::default(),
            observed: watch::Sender::default(),
        })
    }

    /// Reads the leases of these Nodes, by name and UID. `inspection` is told of each read.
    pub(in super::super) async fn read_all(
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

    /// The state of the API server according to all reads so far.
    pub(in super::super) fn availability(&self) -> MutexGuard<'_, Availability> {
        self.availability.lock()
    }

    /// Names of the Nodes whose leases are observed.
    pub(in super::super) fn observed(&self) -> Vec<String> {
        self.observed.borrow().clone()
    }

    /// Makes [`observe`](Self::observe) read the leases of these `peers` from now on, whose kubelets should
    /// be alive. Without peers, it reads the leases of `candidates`, only to see whether the API server
    /// responds. Without candidates, it reads nothing.
    pub(in super::super) fn set_observed(&self, peers: Vec<String>, candidates: Vec<String>) {
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

    /// Reads the observed leases in turn, for ever. It runs concurrently with all other work, so that a slow
    /// cloud does not look like an outage of the API server.
    pub(in super::super) async fn observe(self: Arc<Self>) {
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
