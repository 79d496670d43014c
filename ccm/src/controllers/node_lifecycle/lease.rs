//! The kubelet's lease in `kube-node-lease`: the quickest sign that a kubelet lives or does not.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::time::Instant;

/// Where kubelets renew their leases; a lease is called as its Node.
const NAMESPACE: &str = "kube-node-lease";

const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// A kubelet that renewed nothing for at least this long is taken for dead.
const LEAST_SILENCE: Duration = Duration::from_secs(10);

/// What a look at a lease gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseLook {
    /// The lease, with its renewal time as text (compared, never interpreted: clocks differ).
    Found { renew_time: String, silence: Duration },
    /// There is none, or we may not read it: upstream's rule holds, only NotReady Nodes are deleted.
    None,
    /// The API server did not answer: nothing is decided now.
    Failed,
}

/// Reads kubelets' leases.
pub(super) struct LeaseReader {
    api: Api<Lease>,
    forbidden_logged: std::sync::Once,
}

impl LeaseReader {
    pub(super) fn new(client: Client) -> Self {
        Self { api: Api::namespaced(client, NAMESPACE), forbidden_logged: std::sync::Once::new() }
    }

    /// Looks at the lease of the Node called `name`.
    pub(super) async fn look(&self, name: &str) -> LeaseLook {
        match tokio::time::timeout(READ_TIMEOUT, self.api.get_opt(name)).await {
            Ok(Ok(Some(lease))) => {
                let spec = lease.spec.unwrap_or_default();
                let renew_time = spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default();
                LeaseLook::Found { renew_time, silence: silence(spec.lease_duration_seconds) }
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

/// How long a lease must stay unrenewed. A kubelet renews after a quarter of the lease's duration and up to 4 % more:
/// a fifth on top of a quarter is safe, and for the usual 40 s makes 12.5 s.
fn silence(duration_seconds: Option<i32>) -> Duration {
    let duration = Duration::from_secs(duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(40));
    (duration.mul_f64(0.25 * 1.25)).max(LEAST_SILENCE)
}

/// One kubelet's lease as it was seen over time, on our own monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseHistory {
    renew_time: String,
    /// When the renewal time was first seen as it is now.
    changed: Instant,
    silence: Duration,
    /// Whether a renewal was seen happening.
    pub renewed: bool,
}

impl LeaseHistory {
    /// Adds a look to what was seen before.
    pub(super) fn update(history: &mut Option<Self>, renew_time: String, silence: Duration, now: Instant) {
        match history {
            Some(before) if before.renew_time == renew_time => before.silence = silence,
            before => {
                let renewed = before.is_some();
                *before = Some(Self { renew_time, changed: now, silence, renewed });
            }
        }
    }

    /// When the kubelet counts as dead, should no renewal come.
    pub(super) fn dead_at(&self) -> Instant {
        self.changed + self.silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_leaves_room_for_a_late_renewal() {
        assert_eq!(silence(Some(40)), Duration::from_millis(12_500));
        assert_eq!(silence(Some(10)), LEAST_SILENCE);
        assert_eq!(silence(Some(-1)), Duration::from_millis(12_500));
        assert_eq!(silence(None), Duration::from_millis(12_500));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_change_restarts_the_silence() {
        let (mut history, silence) = (None, Duration::from_secs(10));
        let start = Instant::now();
        let second = Duration::from_secs(1);
        LeaseHistory::update(&mut history, "a".into(), silence, start);
        LeaseHistory::update(&mut history, "a".into(), silence, start + second);
        let seen = history.clone().expect("seen");
        assert_eq!((seen.dead_at(), seen.renewed), (start + silence, false));
        LeaseHistory::update(&mut history, "b".into(), silence, start + 2 * second);
        let seen = history.expect("seen");
        assert_eq!((seen.dead_at(), seen.renewed), (start + 2 * second + silence, true));
    }
}
