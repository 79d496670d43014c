//! The kubelet's lease in `kube-node-lease`: the quickest sign that a kubelet lives or does not.

use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};
use tokio::time::Instant;

use crate::inspection::Inspection;

/// Where kubelets renew their leases; a lease is called as its Node.
const NAMESPACE: &str = "kube-node-lease";

const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// A kubelet that renewed nothing for at least this long is taken for dead.
const LEAST_SILENCE: Duration = Duration::from_secs(10);

/// What a look at a lease gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseLook {
    /// The lease.
    Found(LeaseView),
    /// There is none, or we may not read it: upstream's rule holds, only NotReady Nodes are deleted.
    None,
    /// The API server did not answer: nothing is decided now.
    Failed,
}

/// What counts of a kubelet's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseView {
    /// `spec.renewTime` as text: whether it changes tells more than what it says, since clocks differ.
    pub renew_time: String,
    /// How long it must stay the same until the kubelet counts as dead.
    pub silence: Duration,
    /// Whether it ran out by our own wall clock.
    pub expired: bool,
}

/// Reads kubelets' leases.
pub(super) struct LeaseReader {
    api: Api<Lease>,
    /// Leases read at the same time.
    concurrent_looks: usize,
    forbidden_logged: std::sync::Once,
}

impl LeaseReader {
    pub(super) fn new(client: Client, concurrent_looks: usize) -> Self {
        let api = Api::namespaced(client, NAMESPACE);
        Self { api, concurrent_looks, forbidden_logged: std::sync::Once::new() }
    }

    /// Looks at the leases of the Nodes called so; `inspection` hears of each look.
    pub(super) async fn look_at_all(
        &self,
        names: Vec<String>,
        inspection: &Inspection,
    ) -> Vec<(String, LeaseLook)> {
        stream::iter(names)
            .map(|name| async move {
                let look = self.look(&name).await;
                (name, look)
            })
            .buffer_unordered(self.concurrent_looks)
            .inspect(|_| inspection.moved_on())
            .collect()
            .await
    }

    async fn look(&self, name: &str) -> LeaseLook {
        match tokio::time::timeout(READ_TIMEOUT, self.api.get_opt(name)).await {
            Ok(Ok(Some(lease))) => {
                LeaseLook::Found(LeaseView::new(&lease.spec.unwrap_or_default(), Timestamp::now()))
            }
            Ok(Ok(None)) => LeaseLook::None,
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                self.forbidden_logged.call_once(|| {
                    tracing::warn!(
                        error = %status.message,
                        "kubelets' leases in {NAMESPACE} cannot be read: Ready nodes whose instance is gone stay until they are NotReady"
                    );
                });
                LeaseLook::None
            }
            Ok(Err(_)) | Err(_) => LeaseLook::Failed,
        }
    }
}

impl std::fmt::Debug for LeaseReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseReader").finish_non_exhaustive()
    }
}

impl LeaseView {
    fn new(spec: &LeaseSpec, now: Timestamp) -> Self {
        let duration = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(40);
        let duration = Duration::from_secs(duration);
        let renewed = spec.renew_time.as_ref().map(|time| time.0);
        let age = renewed.and_then(|renewed| Duration::try_from(now.duration_since(renewed)).ok());
        Self {
            renew_time: renewed.map(|time| time.to_string()).unwrap_or_default(),
            // A kubelet renews after a quarter of the lease's duration and up to 4 % more: a quarter of that on top
            // is safe, and for the usual 40 s makes 12.5 s.
            silence: duration.mul_f64(0.25 * 1.25).max(LEAST_SILENCE),
            expired: age.is_some_and(|age| age > duration),
        }
    }
}

/// One kubelet's lease as it was seen over time, on our own monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseHistory {
    /// As it is now.
    pub lease: LeaseView,
    /// When the renewal time was first seen as it is now.
    changed: Instant,
    /// Whether a renewal was seen happening.
    pub renewed: bool,
}

impl LeaseHistory {
    /// Adds a look to what was seen before.
    pub(super) fn update(history: &mut Option<Self>, lease: LeaseView, now: Instant) {
        match history {
            Some(before) if before.lease.renew_time == lease.renew_time => before.lease = lease,
            before => {
                let renewed = before.is_some();
                *before = Some(Self { lease, changed: now, renewed });
            }
        }
    }

    /// When the kubelet counts as dead, should no renewal come.
    pub(super) fn dead_at(&self) -> Instant {
        self.changed + self.lease.silence
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    fn view(duration: Option<i32>, renewed: i64, now: i64) -> LeaseView {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let spec = LeaseSpec {
            lease_duration_seconds: duration,
            renew_time: Some(MicroTime(at(renewed))),
            ..LeaseSpec::default()
        };
        LeaseView::new(&spec, at(now))
    }

    #[test]
    fn silence_leaves_room_for_a_late_renewal() {
        for (duration, silence) in
            [(Some(40), 12_500), (Some(10), 10_000), (Some(-1), 12_500), (None, 12_500)]
        {
            assert_eq!(view(duration, 0, 0).silence, Duration::from_millis(silence), "{duration:?}");
        }
    }

    #[test]
    fn a_lease_expires_by_the_wall_clock() {
        for (now, expired) in [(-50, false), (39, false), (40, false), (41, true)] {
            assert_eq!(view(Some(40), 0, now).expired, expired, "{now}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_change_restarts_the_silence() {
        let (mut history, silence) = (None, Duration::from_millis(12_500));
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        LeaseHistory::update(&mut history, view(None, 7, 8), start);
        LeaseHistory::update(&mut history, view(None, 7, 9), start + second);
        let seen = history.clone().expect("seen");
        assert_eq!((seen.dead_at(), seen.renewed), (start + silence, false));
        LeaseHistory::update(&mut history, view(None, 9, 9), start + 2 * second);
        let seen = history.expect("seen");
        assert_eq!((seen.dead_at(), seen.renewed), (start + 2 * second + silence, true));
    }
}
