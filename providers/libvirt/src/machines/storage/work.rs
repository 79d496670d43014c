//! Work that takes long and that several machines may wait for: imports and copies.
//!
//! It is a task of its own, so that no step waits for it. All who ask for the same share one task. When it ends, well or
//! not, those who asked are named to the [`Wake`] function, so that their steps run again. After a failure there is a
//! pause that grows; meanwhile all who ask for the same from the same source are told why it failed.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cloudprovider::{Backoff, Error, ErrorKind, Result, machines::Wait};
use futures::FutureExt;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::volume::size_text;

/// Is told the identities (UIDs) of the machines whose steps can do more now.
pub(crate) type Wake = Arc<dyn Fn(Vec<String>) + Send + Sync>;

/// The pauses after failures.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), most: Duration::from_secs(600) };
/// How long after its pause a failure is forgotten that nobody asked about.
const FORGET_AFTER: Duration = Duration::from_secs(3600);
/// When a step looks again at what is not done yet, to show how far it is.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Work whose size is not known shows how much is done in steps of this.
const UNKNOWN_STEP: u64 = 1 << 30;

/// What is worked on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WorkKey {
    /// The hypervisor's name.
    pub(super) hypervisor: String,
    /// The pool's name.
    pub(super) pool: String,
    /// What is made there: the base of its attempts.
    pub(super) base: String,
}

/// How far some work is.
#[derive(Debug)]
pub(super) struct Progress {
    /// What is done, for people.
    what: String,
    done: AtomicU64,
    /// Zero if it is not known.
    total: AtomicU64,
}

impl Progress {
    /// Nothing is done yet.
    pub(super) fn new(what: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { what: what.into(), done: AtomicU64::new(0), total: AtomicU64::new(0) })
    }

    /// Sets how many bytes there are.
    pub(super) fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    /// Adds bytes that are done.
    pub(super) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// For people. Changes ten times at most if the size is known: each change is a write to the API.
    fn message(&self) -> String {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        match done.saturating_mul(10).checked_div(total) {
            Some(tenths) => format!("{}, {} %", self.what, tenths.min(10) * 10),
            None if done >= UNKNOWN_STEP => {
                format!("{}, {}", self.what, size_text(done - done % UNKNOWN_STEP))
            }
            None => self.what.clone(),
        }
    }
}

/// How some work stands.
#[derive(Debug)]
pub(super) enum Standing {
    /// Nobody is at work.
    Idle,
    /// Somebody is. Whoever asked is woken when it ends.
    Running(Wait),
    /// It failed a while ago. The error says why, and when it is tried again.
    Failed(Error),
}

enum Entry {
    Running { progress: Arc<Progress>, waiters: BTreeSet<String> },
    Failed { what: String, kind: ErrorKind, words: String, until: Instant, failures: u32 },
}

/// All long work of a provider. Clones share it.
#[derive(Clone)]
pub(super) struct LongWork(Arc<Shared>);

struct Shared {
    entries: Mutex<HashMap<WorkKey, Entry>>,
    wake: Wake,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl LongWork {
    /// Nothing runs yet. Everything ends when `stop` is cancelled; `tasks` has the tasks.
    pub(super) fn new(wake: Wake, stop: CancellationToken, tasks: TaskTracker) -> Self {
        Self(Arc::new(Shared { entries: Mutex::default(), wake, stop, tasks }))
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<WorkKey, Entry>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How some work stands. `waiter` is the identity of the machine that asks, and `progress` what it would begin: a
    /// failure counts only for the same.
    pub(super) fn standing(&self, key: &WorkKey, waiter: &str, progress: &Progress) -> Standing {
        standing(&mut self.entries(), key, waiter, progress)
    }

    /// Whether somebody is at work on it.
    pub(super) fn is_running(&self, key: &WorkKey) -> bool {
        matches!(self.entries().get(key), Some(Entry::Running { .. }))
    }

    /// Some work that is going on at one pool, on a base that is meant.
    pub(super) fn find_running(
        &self,
        hypervisor: &str,
        pool: &str,
        is_meant: &(dyn Fn(&str) -> bool + Send + Sync),
    ) -> Option<String> {
        let entries = self.entries();
        let running = entries.iter().filter(|(_, entry)| matches!(entry, Entry::Running { .. }));
        let mut here =
            running.map(|(key, _)| key).filter(|key| key.hypervisor == hypervisor && key.pool == pool);
        here.find(|key| is_meant(&key.base)).map(|key| key.base.clone())
    }

    /// Begins work unless somebody is at it or its pause is not over. `work` begins by looking whether all is done: the
    /// caller may have looked before somebody else finished it.
    pub(super) fn begin<F>(&self, key: WorkKey, waiter: &str, progress: Arc<Progress>, work: F) -> Standing
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let mut entries = self.entries();
        match standing(&mut entries, &key, waiter, &progress) {
            Standing::Idle => {}
            other => return other,
        }
        let failures = match entries.get(&key) {
            Some(Entry::Failed { failures, .. }) => *failures,
            _ => 0,
        };
        let wait = wait(&progress);
        let waiters = BTreeSet::from([waiter.to_owned()]);
        entries.insert(key.clone(), Entry::Running { progress, waiters });
        drop(entries);
        let this = self.clone();
        self.spawn(async move {
            let result = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Internal, "a fault of the provider: its work panicked"))
            });
            this.end(key, failures, result);
        });
        Standing::Running(wait)
    }

    /// Runs something beside, until it ends or the provider stops.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.0.stop.clone();
        self.0.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = work => {}
            }
        });
    }

    fn end(&self, key: WorkKey, failures: u32, result: Result<()>) {
        let mut entries = self.entries();
        let entry = entries.remove(&key);
        let (what, waiters) = match entry {
            Some(Entry::Running { progress, waiters }) => (progress.what.clone(), waiters),
            _ => (String::new(), BTreeSet::new()),
        };
        match result {
            Ok(()) => tracing::info!(work = what, "done"),
            Err(error) => {
                let failures = failures.saturating_add(1);
                let pause = BACKOFF.nominal(failures);
                let words = error.report();
                tracing::warn!(work = what, reason = words, retry = ?pause, "failed");
                let until = Instant::now() + pause;
                entries.insert(key, Entry::Failed { what, kind: error.kind(), words, until, failures });
            }
        }
        drop(entries);
        (self.0.wake)(waiters.into_iter().collect());
    }
}

impl fmt::Debug for LongWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongWork").field("entries", &self.entries().len()).finish_non_exhaustive()
    }
}

fn standing(
    entries: &mut HashMap<WorkKey, Entry>,
    key: &WorkKey,
    waiter: &str,
    wanted: &Progress,
) -> Standing {
    let now = Instant::now();
    entries.retain(|_, entry| !matches!(entry, Entry::Failed { until, .. } if *until + FORGET_AFTER < now));
    match entries.get_mut(key) {
        Some(Entry::Running { progress, waiters }) => {
            waiters.insert(waiter.to_owned());
            Standing::Running(wait(progress))
        }
        Some(Entry::Failed { what, kind, words, until, .. }) if *until > now && *what == wanted.what => {
            Standing::Failed(Error::new(*kind, words.clone()).with_retry_after(*until - now))
        }
        _ => Standing::Idle,
    }
}

fn wait(progress: &Progress) -> Wait {
    Wait::task(progress.message()).look_again_after(LOOK_AGAIN)
}

#[cfg(test)]
mod tests;
