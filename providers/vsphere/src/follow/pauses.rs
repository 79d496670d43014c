//! The lengths of pauses.

use std::time::Duration;

use cloudprovider::Backoff;

/// The pauses between two connections, and before tags are read again.
pub(super) const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(60) };

/// The longest pause while the vCenter is unreachable: trying then costs it nothing, and its Nodes wait.
pub(super) const BACKOFF_WHILE_AWAY: Backoff = Backoff { most: Duration::from_secs(10), ..BACKOFF };

/// How often to check whether refused or missing credentials have changed. The check needs no call.
pub(super) const CREDENTIALS_PAUSE: Duration = Duration::from_secs(2);

/// A random time between half of the pause and all of it, so that several clients do not retry at the same
/// time.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}
