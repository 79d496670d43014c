//! How often kubelets renew their leases, and after how long a silence a kubelet counts as dead. Pure.

use std::time::Duration;

/// Minimum silence after which a kubelet counts as dead.
const MIN_SILENCE: Duration = Duration::from_secs(10);

/// The longest pause between two answered reads, measured when they are sent, that does not count as an
/// outage. An outage of that length is not detected, and can delay a kubelet's renewal by the same time. So
/// it is less than the slack in [`silence_of`].
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The longest time between two renewals of a kubelet: a quarter of the lease's duration, plus up to 4 %.
pub(super) fn renewal_interval(duration: Duration) -> Duration {
    duration.mul_f64(0.25 * 1.04)
}

/// The silence after which a kubelet counts as dead: 12.5 s with the usual duration of 40 s. It is always
/// longer than one interval plus an undetected outage.
pub(super) fn silence_of(duration: Duration) -> Duration {
    let slack = duration.mul_f64(0.0525).max(MAX_PAUSE + Duration::from_millis(100));
    (renewal_interval(duration) + slack).max(MIN_SILENCE)
}
