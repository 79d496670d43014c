//! How long the cloud has reported an instance as gone.

use std::time::Duration;

use controller_kit::cloud::CallTime;
use tokio::time::Instant;

/// An older answer of the cloud decides nothing: the cloud is asked again.
const MAX_ANSWER_AGE: Duration = Duration::from_secs(10);

/// Nor does an answer whose call was sent longer ago, since the instance may be back. This leaves enough time
/// even if a look-up of all Nodes is slow, since Nodes whose instance seems to be gone are looked up
/// separately.
pub(super) const MAX_CALL_AGE: Duration = Duration::from_secs(30);

/// A sequence of answers that an instance is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Absence {
    /// When the call of the first answer ended. By then the instance was gone.
    pub first: Instant,
    /// The call of the last answer. The instance was gone at some time after it was sent, and may be back
    /// since.
    pub last: CallTime,
}

impl Absence {
    /// Whether the last answer is too old to decide anything.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        now.duration_since(self.last.ended) > MAX_ANSWER_AGE
    }

    /// The minimum time for which the instance was gone. Two overlapping calls prove no duration.
    pub(super) fn lasted(&self) -> Duration {
        self.last.sent.saturating_duration_since(self.first)
    }
}
