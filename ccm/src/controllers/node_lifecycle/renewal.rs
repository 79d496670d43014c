//! How often kubelets renew their leases, and how long one must be silent to be taken for dead. Pure.

use std::time::Duration;

/// A kubelet that renewed nothing for at least this long is taken for dead.
const MIN_SILENCE: Duration = Duration::from_secs(10);

/// The longest pause between two reads that were answered, from sending to sending, in which nothing can have been amiss
/// that matters. A kubelet's renewal can be late by that much without being noticed, so it is less than the slack in
/// [`silence_of`].
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How long a kubelet waits at most from one renewal to the next: a quarter of the lease's duration and up to 4 % more.
pub(super) fn renewal_interval(duration: Duration) -> Duration {
    duration.mul_f64(0.25 * 1.04)
}

/// How long a kubelet must be silent to be taken for dead: 12.5 s for the usual 40 s, and always more than an interval and
/// an outage that nobody notices.
pub(super) fn silence_of(duration: Duration) -> Duration {
    let slack = duration.mul_f64(0.0525).max(MAX_PAUSE + Duration::from_millis(100));
    (renewal_interval(duration) + slack).max(MIN_SILENCE)
}
