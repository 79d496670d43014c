//! How old an answer of the cloud is.

use tokio::time::Instant;

/// When the call was under way that an answer is from: what it says was so at some time between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTime {
    /// When it was sent.
    pub sent: Instant,
    /// When its answer was there.
    pub ended: Instant,
}

impl CallTime {
    /// Of a call that takes no time.
    pub fn now() -> Self {
        Self::at(Instant::now())
    }

    /// Of one that took no time then.
    pub fn at(time: Instant) -> Self {
        Self { sent: time, ended: time }
    }
}
