//! For how long the cloud has said that an instance is gone.

use std::time::Duration;

use tokio::time::Instant;

use crate::cloud::CallTime;

/// An answer of the cloud that came longer ago decides nothing: it is asked again.
const MAX_ANSWER_AGE: Duration = Duration::from_secs(10);

/// Nor does one whose call was sent longer ago: the instance may be back since. Enough for a cloud that is slow about all
/// Nodes, since those whose instance seems to be gone are asked about by themselves.
pub(super) const MAX_CALL_AGE: Duration = Duration::from_secs(30);

/// A row of answers that an instance is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Absence {
    /// When the call of the first answer ended: the instance was gone by then.
    pub first: Instant,
    /// The call of the last answer: the instance was gone once it was sent, and may be back since.
    pub last: CallTime,
}

impl Absence {
    /// Whether the last answer came so long ago that it decides nothing.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        now.duration_since(self.last.ended) > MAX_ANSWER_AGE
    }

    /// How long the instance was gone at least. Of two calls that overlap the second one proves nothing.
    pub(super) fn lasted(&self) -> Duration {
        self.last.sent.saturating_duration_since(self.first)
    }
}
