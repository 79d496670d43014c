//! How old an answer of the cloud is.

use tokio::time::Instant;

/// The time of the call that gave an answer. What the answer says was true at some time between `sent` and
/// `ended`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTime {
    /// When the call was sent.
    pub sent: Instant,
    /// When the answer arrived.
    pub ended: Instant,
}

impl CallTime {
    /// A call now that takes no time.
    pub fn now() -> Self {
        Self::at(Instant::now())
    }

    /// A call at `time` that took no time.
    pub fn at(time: Instant) -> Self {
        Self { sent: time, ended: time }
    }
}
