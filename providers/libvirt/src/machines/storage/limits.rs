//! What one import or copy may take: time, and room of a pool.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use cloudprovider::{Error, ErrorKind, Result, async_trait};
use tokio::time::Instant;

use super::{
    calls::{CallError, Place, StorageCalls},
    volume::size_text,
};

/// The limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How long an import may take from its first byte on, or before it.
    pub(super) time: Duration,
    /// The bytes that a source sends a second at least, on an average of [`window`](Self::window).
    pub(super) speed: u64,
    /// How much time of waiting for a source counts for its speed.
    pub(super) window: Duration,
    /// The room that is left to the guests of a pool, whose disks grow.
    pub(super) reserve: u64,
    /// After how many bytes an import looks at the room again.
    pub(super) room_step: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(4 * 3600),
            speed: 64 << 10,
            window: Duration::from_secs(60),
            reserve: 1 << 30,
            room_step: 256 << 20,
        }
    }
}

impl Limits {
    /// Succeeds if the pool has room for this many bytes beside the reserve. `what` needs them.
    pub(super) async fn check_room(
        &self,
        calls: &Arc<dyn StorageCalls>,
        pool: &str,
        what: &str,
        bytes: u64,
    ) -> Result<()> {
        let place = Place { hypervisor: calls.hypervisor(), pool };
        let cannot = |error: CallError| error.into_error("cannot look at the free room", &place);
        // libvirt does not notice how files grow. While it copies to the pool it does not look either.
        match calls.refresh(pool).await {
            Ok(()) | Err(CallError::Busy(_)) => {}
            Err(error) => return Err(cannot(error)),
        }
        let available = calls.pool(pool).await.map_err(cannot)?.available;
        if available >= bytes.saturating_add(self.reserve) {
            return Ok(());
        }
        let needs = if bytes > 0 { format!("has {}", size_text(bytes)) } else { "needs room".to_owned() };
        let words = format!(
            "{what} {needs}, and pool {pool:?} on hypervisor {:?} has only {} left, of which {} stay free",
            place.hypervisor,
            size_text(available),
            size_text(self.reserve)
        );
        Err(Error::new(ErrorKind::Unavailable, words))
    }
}

/// An image that is being read.
#[async_trait]
pub(super) trait Source: Send {
    /// Its length, if that is known before its end.
    fn length(&self) -> Option<u64>;

    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>>;
}

/// A source that is given up if it is too slow.
pub(super) struct Paced {
    source: Box<dyn Source>,
    /// For messages.
    origin: String,
    limits: Limits,
    /// The time that was waited for the source since the last look at its speed.
    waited: Duration,
    /// What it has sent in this time.
    sent: u64,
}

impl Paced {
    pub(super) fn new(source: Box<dyn Source>, origin: String, limits: Limits) -> Self {
        Self { source, origin, limits, waited: Duration::ZERO, sent: 0 }
    }

    /// The length of the image, if that is known before its end.
    pub(super) fn length(&self) -> Option<u64> {
        self.source.length()
    }

    /// The next bytes; `None` at the end. Only the time that this takes counts: a slow hypervisor is not the
    /// source's fault.
    ///
    /// # Errors
    /// Those of the source, and [`ErrorKind::Unavailable`] if it is too slow.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        let began = Instant::now();
        let next = self.source.next().await?;
        self.waited += began.elapsed();
        self.sent += next.as_ref().map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if self.waited < self.limits.window {
            return Ok(next);
        }
        if self.sent < self.limits.speed.saturating_mul(self.waited.as_secs()) {
            let words = format!("{} sends less than {} a second", self.origin, size_text(self.limits.speed));
            return Err(Error::new(ErrorKind::Unavailable, words));
        }
        (self.waited, self.sent) = (Duration::ZERO, 0);
        Ok(next)
    }
}
