//! How long nothing is tried after a refusal.

use std::time::Duration;

/// The pause after the first refusal of a password. It doubles with each further refusal. vCenter unlocks an
/// account after five minutes by default.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(600);

/// The longest pause.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
