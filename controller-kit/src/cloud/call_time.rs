//! How old an answer of the cloud is.

use tokio::time::Instant;

/// When the call that gave an answer was under way. What the answer says was true at some time in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTime {
    /// When the call was sent.
    pub sent: Instant,
    /// When its answer arrived.
    pub ended: Instant,
}

impl CallTime {
    /// That of a call which takes no time, made now.
    pub fn now() -> Self {
        Self::at(Instant::now())
    }

    /// That of a call which took no time, made then.
    pub fn at(time: Instant) -> Self {
        Self { sent: time, ended: time }
    }
}
