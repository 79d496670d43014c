//! How long it is waited.

use std::time::Duration;

use cloudprovider::Backoff;

/// The pauses between two connections, and before tags are read again.
pub(super) const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(60) };

/// The same for a vCenter that is not there: that costs it nothing, and its Nodes wait.
pub(super) const BACKOFF_WHILE_AWAY: Backoff = Backoff { most: Duration::from_secs(10), ..BACKOFF };

/// How often it is looked whether credentials that were refused, or missing, have changed. That costs no call.
pub(super) const CREDENTIALS_PAUSE: Duration = Duration::from_secs(2);

/// Between a half and the whole of it, so that several do not knock at the same time.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}
