//! A hypervisor's storage in memory, and images in memory, for tests.
//!
//! A [`FakeHypervisor`] outlives its daemons. Each daemon has a [`FakeCalls`] of its own, which can be made
//! to die before, during or after any of its calls.

mod fetch;
mod hypervisor;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use cloudprovider::async_trait;
use secrecy::zeroize::Zeroizing;
use tokio::sync::{Notify, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    MachineStorage,
    attempts::Attempts,
    calls::{CallError, CallResult, Names, Part, StorageCalls},
    limits::Limits,
    volume::{NewVolume, Pool, Volume},
    work::LongWork,
};
use crate::calls::Failure;

pub(crate) use self::{
    fetch::{Body, FakeFetch},
    hypervisor::{FakeHypervisor, POOL},
};

/// When a daemon dies, as seen from one of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The hypervisor never hears of the call.
    Before,
    /// In the middle of an upload; for other calls as `After`.
    During,
    /// The call takes effect, and its answer is lost.
    After,
}

/// All sides.
pub(crate) const SIDES: [Side; 3] = [Side::Before, Side::During, Side::After];

/// The calls of one daemon.
#[derive(Debug)]
pub(crate) struct FakeCalls {
    hypervisor: FakeHypervisor,
    /// Calls so far.
    made: AtomicUsize,
    /// At which call the daemon dies, counted from 0.
    dies: Option<(usize, Side)>,
    /// Told when it has died.
    pub(crate) died: Arc<Notify>,
    /// Milliseconds that calls take at most: with them, two daemons come in each other's way.
    jitter: u64,
}

impl FakeCalls {
    /// The calls of a daemon that lives.
    pub(crate) fn new(hypervisor: &FakeHypervisor) -> Self {
        let (made, died) = (AtomicUsize::new(0), Arc::default());
        Self { hypervisor: hypervisor.clone(), made, dies: None, died, jitter: 0 }
    }

    /// The calls of a daemon that dies at one of them.
    pub(crate) fn that_die(hypervisor: &FakeHypervisor, at: usize, side: Side) -> Self {
        Self { dies: Some((at, side)), ..Self::new(hypervisor) }
    }

    /// Calls that take different times.
    pub(crate) fn with_jitter(hypervisor: &FakeHypervisor, milliseconds: u64) -> Self {
        Self { jitter: milliseconds, ..Self::new(hypervisor) }
    }

    /// How many calls there were.
    pub(crate) fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Begins a call, and says at which side of it the daemon dies.
    async fn begin(&self) -> Option<Side> {
        if self.jitter > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(fake_random(self.jitter))).await;
        } else {
            tokio::task::yield_now().await;
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let side = self.dies.filter(|(at, _)| *at == number).map(|(_, side)| side);
        if side == Some(Side::Before) {
            self.die().await;
        }
        side
    }

    async fn end(&self, side: Option<Side>) {
        if side.is_some() {
            self.die().await;
        }
    }

    /// Everything that this daemon does stands still from here on.
    async fn die(&self) {
        self.died.notify_one();
        std::future::pending::<()>().await;
    }

    async fn call<T>(&self, work: impl FnOnce(&FakeHypervisor) -> CallResult<T>) -> CallResult<T> {
        let side = self.begin().await;
        let result = work(&self.hypervisor);
        self.end(side).await;
        result
    }
}

fn fake_random(below: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0 % below
}

#[async_trait]
impl StorageCalls for FakeCalls {
    fn hypervisor(&self) -> &'static str {
        "kvm1"
    }

    async fn pools(&self) -> CallResult<Vec<String>> {
        self.call(FakeHypervisor::pools).await
    }

    async fn pool(&self, pool: &str) -> CallResult<Pool> {
        self.call(|hypervisor| hypervisor.pool(pool)).await
    }

    async fn refresh(&self, pool: &str) -> CallResult<()> {
        self.call(|hypervisor| hypervisor.refresh(pool)).await
    }

    async fn list(&self, pool: &str) -> CallResult<Names> {
        self.call(|hypervisor| hypervisor.list(pool)).await.map(Names::from)
    }

    async fn volume(&self, pool: &str, name: &str) -> CallResult<Volume> {
        self.call(|hypervisor| hypervisor.volume(pool, name)).await
    }

    async fn create(&self, pool: &str, volume: &NewVolume) -> CallResult<Volume> {
        let create = |hypervisor: &FakeHypervisor| {
            hypervisor.create(pool, volume)?;
            hypervisor.volume(pool, &volume.name)
        };
        self.call(create).await
    }

    async fn copy(&self, pool: &str, volume: &NewVolume, from: &str, name: &str) -> CallResult<()> {
        let side = self.begin().await;
        // libvirtd goes on with a copy whose caller is gone
        let copied = self.hypervisor.begin_copy(pool, volume, from, name)?;
        if side == Some(Side::During) {
            self.die().await;
        }
        let result = copied.await.unwrap_or(Err(CallError::Failed(unavailable("libvirtd has ended"))));
        self.end(side).await;
        result
    }

    async fn resize(&self, pool: &str, name: &str, capacity: u64) -> CallResult<()> {
        self.call(|hypervisor| hypervisor.resize(pool, name, capacity)).await
    }

    async fn delete(&self, pool: &str, name: &str) -> CallResult<()> {
        self.call(|hypervisor| hypervisor.delete(pool, name)).await
    }

    async fn upload(&self, pool: &str, name: &str, mut parts: mpsc::Receiver<Part>) -> CallResult<u64> {
        let side = self.begin().await;
        let file = self.hypervisor.file(pool, name)?;
        let mut written = 0;
        loop {
            match parts.recv().await {
                Some(Part::Bytes(bytes)) => {
                    let part = if side == Some(Side::During) { &bytes[..bytes.len() / 2] } else { &bytes };
                    self.hypervisor.write(file, written, part)?;
                    if side == Some(Side::During) {
                        self.die().await;
                    }
                    written += bytes.len();
                    tokio::time::sleep(std::time::Duration::from_millis(self.jitter.min(1))).await;
                }
                Some(Part::End) => break,
                None => return Err(CallError::Failed(unavailable("the upload was broken off"))),
            }
        }
        self.end(side).await;
        Ok(written as u64)
    }

    async fn download_from(
        &self,
        pool: &str,
        name: &str,
        offset: u64,
        most: usize,
    ) -> CallResult<Zeroizing<Vec<u8>>> {
        let read = |hypervisor: &FakeHypervisor| {
            let mut content = hypervisor.content(pool, name)?;
            let offset = usize::try_from(offset).expect("small").min(content.len());
            content.drain(..offset);
            content.truncate(most);
            Ok(Zeroizing::new(content))
        };
        self.call(read).await
    }
}

impl Attempts {
    /// Whether nothing is left over.
    pub(super) fn is_clean(&self) -> bool {
        self.incomplete.is_empty() && self.markers.is_empty()
    }
}

/// A failure of libvirt.
pub(crate) fn unavailable(words: &str) -> Failure {
    let kind = cloudprovider::ErrorKind::Unavailable;
    Failure { kind, message: words.to_owned(), lost: false, code: None }
}

/// A daemon with one hypervisor. Dies when dropped.
pub(crate) struct Daemon {
    pub(crate) storage: MachineStorage,
    pub(crate) calls: Arc<dyn StorageCalls>,
    fake: Arc<FakeCalls>,
    woken: mpsc::UnboundedReceiver<Vec<String>>,
    stop: CancellationToken,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Daemon {
    pub(crate) fn new(calls: FakeCalls, fetch: &FakeFetch) -> Self {
        let stop = CancellationToken::new();
        let (sender, woken) = mpsc::unbounded_channel();
        let wake = Arc::new(move |machines| drop(sender.send(machines)));
        let work = LongWork::new(wake, stop.clone(), TaskTracker::new());
        let (fetch, limits) = (Arc::new(fetch.clone()), Limits::default());
        let storage = MachineStorage { work, fetch, swept_pools: Arc::default(), limits };
        let fake = Arc::new(calls);
        Self { storage, calls: Arc::clone(&fake) as _, fake, woken, stop }
    }

    /// The number of calls so far.
    pub(crate) fn calls_made(&self) -> usize {
        self.fake.made()
    }

    /// Resolves when the daemon has died.
    pub(crate) fn death(&self) -> impl Future<Output = ()> + use<> {
        let died = Arc::clone(&self.fake.died);
        async move { died.notified().await }
    }

    /// The machines that were woken, as soon as there are any.
    pub(crate) async fn woken(&mut self) -> Vec<String> {
        self.woken.recv().await.expect("the daemon lives")
    }
}

/// Bytes of an image, repeatable and not repeating.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// A qcow2 image with a disk of this size.
pub(crate) fn qcow2(virtual_size: u64, length: usize) -> Bytes {
    let mut bytes = super::header::qcow2_header(virtual_size);
    bytes.extend(noise(length.saturating_sub(bytes.len())));
    bytes.into()
}
