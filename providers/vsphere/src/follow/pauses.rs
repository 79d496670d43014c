//! The lengths of pauses.

use std::time::Duration;

/// The longest pause between two connections, and before tags are read again.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How often to check whether refused or missing credentials have changed. The check needs no call.
pub(super) const CREDENTIALS_PAUSE: Duration = Duration::from_secs(2);

/// A random time between half of the pause and all of it, so that several clients do not retry at the same
/// time.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}
