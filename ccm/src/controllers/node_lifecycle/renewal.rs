//! How often kubelets renew their leases, and how long one must be silent to be taken for dead. Pure.

use std::time::Duration;

/// A kubelet that renewed nothing for at least this long is taken for dead.
const MIN_SILENCE: Duration = Duration::from_secs(10);

/// The longest pause between two answered reads, from sending to sending, that does not count as an outage. An outage of that
/// length is not noticed, and can make a kubelet's renewal late by as much. So it is less than the slack in [`silence_of`].
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How long a kubelet waits at most from one renewal to the next: a quarter of the lease's duration and up to 4 % more.
pub(super) fn renewal_interval(duration: Duration) -> Duration {
    duration.mul_f64(0.25 * 1.04)
}

/// How long a kubelet must be silent to be taken for dead: 12.5 s with the usual duration of 40 s. It is always more than one
/// interval together with an outage that is not noticed.
pub(super) fn silence_of(duration: Duration) -> Duration {
    let slack = duration.mul_f64(0.0525).max(MAX_PAUSE + Duration::from_millis(100));
    (renewal_interval(duration) + slack).max(MIN_SILENCE)
}
