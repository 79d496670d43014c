//! Work that takes long and that several machines may wait for: imports and copies.
//!
//! It is a task of its own, so that no step waits for it. A hypervisor has a few permits for each kind of it,
//! and a task begins when it has one: before that it has opened and made nothing. Namespaces take turns
//! ([`FairQueue`]), and what waits of one namespace is bounded. Machines of a namespace that ask for the same
//! share one task. When it ends, well or not, the [`Wake`] function gets the machines that asked, so that
//! their steps run again. A failure is followed by a pause that grows with each; meanwhile machines of the
//! namespace that ask for the same from the same source get the same error.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cloudprovider::{Backoff, Error, ErrorKind, FairQueue, Result, machines::Wait};
use futures::{FutureExt, future::BoxFuture};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::volume::size_text;
use crate::worker_pool::{MAX_COPIES, MAX_UPLOADS};

/// Called with the UIDs of the machines whose next step can do more.
pub(crate) type Wake = Arc<dyn Fn(Vec<String>) + Send + Sync>;

/// The pauses after failures.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), most: Duration::from_secs(600) };
/// How long after its pause a failure is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(3600);
/// When a step runs again to show the progress of work that is not done.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// The most work of one namespace that waits for a permit. The machines of the rest ask again later.
pub(super) const MAX_WAITING: usize = 16;
/// Failures of one namespace that are remembered.
const MAX_FAILED: usize = 256;
/// Work whose size is not known shows how much is done in steps of this.
const UNKNOWN_STEP: u64 = 1 << 30;

/// A kind of long work, with permits of its own at each hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Bytes come from a server or a file. A source can be slow, so no namespace has both permits.
    Import,
    /// The hypervisor copies a volume.
    Copy,
}

impl Kind {
    /// The queue of one hypervisor. There are as many workers for uploads and for copies.
    fn queue(self) -> FairQueue<String, WorkKey> {
        let queue = match self {
            Self::Import => FairQueue::new(MAX_UPLOADS).with_max_of_key(MAX_UPLOADS.saturating_sub(1).max(1)),
            Self::Copy => FairQueue::new(MAX_COPIES),
        };
        queue.with_max_waiting(MAX_WAITING)
    }
}

/// What is worked on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WorkKey {
    /// What kind of work it is.
    pub(super) kind: Kind,
    /// For whom. What one namespace asks for never waits for, or fails with, what another one has named as
    /// its source.
    pub(super) namespace: String,
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

/// The status of some work.
#[derive(Debug)]
pub(super) enum WorkStatus {
    /// No work is going on.
    Idle,
    /// It is going on, or waits for a permit. The machine that asked is woken when it ends.
    Running(Wait),
    /// It failed. The error says why, and when it is tried again.
    Failed(Error),
}

enum Entry {
    Waiting {
        progress: Arc<Progress>,
        waiters: BTreeSet<String>,
        failures: u32,
        work: BoxFuture<'static, Result<()>>,
    },
    Running {
        progress: Arc<Progress>,
        waiters: BTreeSet<String>,
    },
    Failed {
        what: String,
        kind: ErrorKind,
        words: String,
        until: Instant,
        failures: u32,
    },
}

/// All long work of a provider. Clones share it.
#[derive(Clone)]
pub(super) struct LongWork(Arc<Inner>);

#[derive(Default)]
struct State {
    entries: HashMap<WorkKey, Entry>,
    /// The queues of each hypervisor.
    queues: HashMap<(String, Kind), FairQueue<String, WorkKey>>,
}

struct Inner {
    state: Mutex<State>,
    wake: Wake,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl LongWork {
    /// Nothing runs yet. Everything ends when `stop` is cancelled; `tasks` has the tasks.
    pub(super) fn new(wake: Wake, stop: CancellationToken, tasks: TaskTracker) -> Self {
        Self(Arc::new(Inner { state: Mutex::default(), wake, stop, tasks }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// The status of some work. `waiter` is the identity of the machine that asks, and `progress` what it
    /// would begin: a failure counts only for the same.
    pub(super) fn status(&self, key: &WorkKey, waiter: &str, progress: &Progress) -> WorkStatus {
        status(&mut self.state().entries, key, waiter, progress)
    }

    /// Whether an import to this base of a hypervisor and pool is going on.
    pub(super) fn is_imported(&self, hypervisor: &str, pool: &str, base: &str) -> bool {
        let is_meant = |key: &WorkKey| {
            key.kind == Kind::Import && key.hypervisor == hypervisor && key.pool == pool && key.base == base
        };
        let state = self.state();
        let mut running = state.entries.iter().filter(|(_, entry)| matches!(entry, Entry::Running { .. }));
        running.any(|(key, _)| is_meant(key))
    }

    /// Some work that is going on at one pool, on a base that is meant. What waits for its turn is withdrawn.
    pub(super) fn stop_or_find_running(
        &self,
        hypervisor: &str,
        pool: &str,
        is_meant: &(dyn Fn(&str) -> bool + Send + Sync),
    ) -> Option<String> {
        let mut state = self.state();
        let State { entries, queues } = &mut *state;
        let is_here = |key: &WorkKey| key.hypervisor == hypervisor && key.pool == pool && is_meant(&key.base);
        entries.retain(|key, entry| {
            let stays = !is_here(key) || !matches!(entry, Entry::Waiting { .. });
            if let Some(queue) = queues.get_mut(&key.queue()).filter(|_| !stays) {
                queue.withdraw(&key.namespace, |waiting| waiting == key);
            }
            stays
        });
        let mut running = entries.iter().filter(|(_, entry)| matches!(entry, Entry::Running { .. }));
        running.find(|(key, _)| is_here(key)).map(|(key, _)| key.base.clone())
    }

    /// Begins work when it gets a permit, unless it is going on or its pause is not over. `work` first checks
    /// whether all is done: it may have been done since the caller checked.
    ///
    /// If enough of the namespace waits, nothing of this is kept, and the caller asks again.
    pub(super) fn begin<F>(&self, key: WorkKey, waiter: &str, progress: Arc<Progress>, work: F) -> WorkStatus
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let mut state = self.state();
        match status(&mut state.entries, &key, waiter, &progress) {
            WorkStatus::Idle => {}
            other => return other,
        }
        let failures = match state.entries.get(&key) {
            Some(Entry::Failed { failures, .. }) => *failures,
            _ => 0,
        };
        let queue = state.queues.entry(key.queue()).or_insert_with(|| key.kind.queue());
        if queue.add(key.namespace.clone(), key.clone()).is_err() {
            return WorkStatus::Running(turn(&progress));
        }
        let waiters = BTreeSet::from([waiter.to_owned()]);
        let work = work.boxed();
        state
            .entries
            .insert(key.clone(), Entry::Waiting { progress: Arc::clone(&progress), waiters, failures, work });
        self.start(&mut state, &key.queue());
        match status(&mut state.entries, &key, waiter, &progress) {
            WorkStatus::Idle => WorkStatus::Running(wait(&progress)),
            other => other,
        }
    }

    /// Starts the work that gets a permit.
    fn start(&self, state: &mut State, queue: &(String, Kind)) {
        let Some(queue) = state.queues.get_mut(queue) else { return };
        while let Some((_, key)) = queue.start_next() {
            let Some(Entry::Waiting { progress, waiters, failures, work }) = state.entries.remove(&key)
            else {
                queue.end(&key.namespace);
                continue;
            };
            state.entries.insert(key.clone(), Entry::Running { progress, waiters });
            let this = self.clone();
            self.spawn(async move {
                let result = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
                    Err(Error::new(ErrorKind::Internal, "a fault of the provider: its work panicked"))
                });
                this.end(key, failures, result);
            });
        }
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
        let mut state = self.state();
        let (what, waiters) = match state.entries.remove(&key) {
            Some(Entry::Running { progress, waiters }) => (progress.what.clone(), waiters),
            _ => (String::new(), BTreeSet::new()),
        };
        let queue = key.queue();
        if let Some(queue) = state.queues.get_mut(&queue) {
            queue.end(&key.namespace);
        }
        match result {
            Ok(()) => tracing::info!(work = what, "done"),
            Err(error) => {
                let failures = failures.saturating_add(1);
                let pause = BACKOFF.nominal(failures);
                let words = error.report();
                tracing::warn!(work = what, reason = words, retry = ?pause, "failed");
                let until = Instant::now() + pause;
                forget_one(&mut state.entries, &key.namespace);
                state.entries.insert(key, Entry::Failed { what, kind: error.kind(), words, until, failures });
            }
        }
        self.start(&mut state, &queue);
        drop(state);
        (self.0.wake)(waiters.into_iter().collect());
    }
}

impl fmt::Debug for LongWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongWork").field("entries", &self.state().entries.len()).finish_non_exhaustive()
    }
}

impl WorkKey {
    /// The queue in which it waits.
    fn queue(&self) -> (String, Kind) {
        (self.hypervisor.clone(), self.kind)
    }
}

/// Forgets the failure of a namespace that has the least of its pause left, if there are many.
fn forget_one(entries: &mut HashMap<WorkKey, Entry>, namespace: &str) {
    let mut failed: Vec<(Instant, WorkKey)> = Vec::new();
    for (key, entry) in entries.iter().filter(|(key, _)| key.namespace == namespace) {
        if let Entry::Failed { until, .. } = entry {
            failed.push((*until, key.clone()));
        }
    }
    if failed.len() >= MAX_FAILED
        && let Some((_, first)) = failed.iter().min_by_key(|(until, _)| *until)
    {
        entries.remove(first);
    }
}

fn status(
    entries: &mut HashMap<WorkKey, Entry>,
    key: &WorkKey,
    waiter: &str,
    wanted: &Progress,
) -> WorkStatus {
    let now = Instant::now();
    entries.retain(|_, entry| !matches!(entry, Entry::Failed { until, .. } if *until + FORGET_AFTER < now));
    match entries.get_mut(key) {
        Some(Entry::Waiting { progress, waiters, .. }) => {
            waiters.insert(waiter.to_owned());
            WorkStatus::Running(turn(progress))
        }
        Some(Entry::Running { progress, waiters }) => {
            waiters.insert(waiter.to_owned());
            WorkStatus::Running(wait(progress))
        }
        Some(Entry::Failed { what, kind, words, until, .. }) if *until > now && *what == wanted.what => {
            WorkStatus::Failed(Error::new(*kind, words.clone()).with_retry_after(*until - now))
        }
        _ => WorkStatus::Idle,
    }
}

fn wait(progress: &Progress) -> Wait {
    Wait::task(progress.message()).look_again_after(LOOK_AGAIN)
}

/// The wait for a permit.
fn turn(progress: &Progress) -> Wait {
    let words = format!("{}: waits until it is the turn of its namespace", progress.what);
    Wait::task(words).look_again_after(LOOK_AGAIN)
}

#[cfg(test)]
mod tests;
