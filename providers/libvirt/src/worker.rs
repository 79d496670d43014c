//! Threads that wait for libvirt, so that tasks need not block.

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Started providers that may still have a thread.
static STARTED: Mutex<Vec<StartedProvider>> = Mutex::new(Vec::new());

/// The interval of checking their thread counts.
const POLL: Duration = Duration::from_millis(10);

/// The number of threads of one provider that have neither ended nor been abandoned. Clones share the number.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerCount(Arc<AtomicUsize>);

impl WorkerCount {
    fn is_zero(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// Registers a started provider. `actors` may start threads until `stop` is cancelled. Call this when the
    /// actors run.
    pub(crate) fn started(&self, stop: &CancellationToken, actors: &TaskTracker) {
        let provider = StartedProvider { count: self.clone(), stop: stop.clone(), actors: actors.clone() };
        all_started().push(provider);
    }

    /// Waits until no thread of this provider, or of an already stopped one, is in a call. Abandoned threads
    /// are not waited for. libvirt shuts itself down when the process exits, and a thread that is in a call
    /// then crashes.
    pub(crate) async fn all_ended(&self) {
        loop {
            let others_ended = {
                let mut started = all_started();
                started.retain(|provider| !provider.has_ended());
                // Providers that were not stopped are not waited for.
                !started.iter().any(|provider| provider.stop.is_cancelled())
            };
            if others_ended && self.is_zero() {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// The threads of a started provider.
#[derive(Debug)]
struct StartedProvider {
    count: WorkerCount,
    stop: CancellationToken,
    actors: TaskTracker,
}

impl StartedProvider {
    /// Whether there is no thread and no actor that could start one.
    fn has_ended(&self) -> bool {
        // In this order, since an actor may start a thread right before it ends.
        self.actors.is_empty() && self.count.is_zero()
    }
}

fn all_started() -> MutexGuard<'static, Vec<StartedProvider>> {
    STARTED.lock()
}

/// One thread in the count of a [`WorkerCount`].
#[derive(Debug)]
struct CountedThread {
    count: WorkerCount,
    is_counted: AtomicBool,
}

impl CountedThread {
    fn begin(count: &WorkerCount) -> Self {
        count.0.fetch_add(1, Ordering::AcqRel);
        Self { count: count.clone(), is_counted: AtomicBool::new(true) }
    }

    /// Removes the thread from the count.
    fn end(&self) {
        if self.is_counted.swap(false, Ordering::AcqRel) {
            self.count.0.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for CountedThread {
    fn drop(&mut self) {
        self.end();
    }
}

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// A thread that runs jobs one by one on a state `S`.
///
/// Dropping a worker ends its thread after the current job, which may never be if libvirt does not answer.
/// The state is dropped on that thread too, since closing a connection blocks.
pub(crate) struct Worker<S> {
    sender: mpsc::Sender<Job<S>>,
    /// Shared with the thread. Set when the worker is abandoned, and dropped when the thread ends.
    abandoned: Arc<OnceLock<AbandonedThread>>,
    /// Shared with the thread.
    running: Arc<CountedThread>,
}

/// How many abandoned threads still wait for an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct AbandonedThreads(Arc<AtomicUsize>);

impl AbandonedThreads {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    fn enter(&self) -> AbandonedThread {
        self.0.fetch_add(1, Ordering::AcqRel);
        AbandonedThread(self.clone())
    }
}

#[derive(Debug)]
struct AbandonedThread(AbandonedThreads);

impl Drop for AbandonedThread {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<S: 'static> Worker<S> {
    /// Starts a thread with this name, which creates its own state.
    pub(crate) fn spawn(
        name: String,
        count: &WorkerCount,
        state: impl FnOnce() -> S + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job<S>>();
        let abandoned = Arc::<OnceLock<AbandonedThread>>::default();
        let running = Arc::new(CountedThread::begin(count));
        let of_thread = (Arc::clone(&abandoned), Arc::clone(&running));
        thread::Builder::new().name(name).spawn(move || {
            let mut state = state();
            while let Ok(job) = jobs.recv() {
                job(&mut state);
            }
            // Count the thread while it closes the connection, which is a call too.
            drop(state);
            drop(of_thread);
        })?;
        Ok(Self { sender, abandoned, running })
    }

    /// Abandons the worker because a call on it does not return. Its thread is counted in `count` until it
    /// ends.
    pub(crate) fn abandon(self, count: &AbandonedThreads) {
        self.running.end();
        // this is the only place that sets it
        let _ = self.abandoned.set(count.enter());
    }

    /// Runs `job` on the thread. The answer never comes if the thread has panicked.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut S) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, receiver) = oneshot::channel();
        let job = Box::new(move |state: &mut S| {
            // the caller may have stopped waiting for the answer
            let _ = answer.send(job(state));
        });
        // if the thread has ended, the job is dropped, and the answer's sender with it
        let _ = self.sender.send(job);
        receiver
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_abandoned_threads_are_counted_and_only_while_they_wait() {
        let count = AbandonedThreads::default();
        let (release, wait) = mpsc::channel::<()>();
        let hanging = Worker::spawn("hanging".to_owned(), &WorkerCount::default(), || ()).expect("a thread");
        let ended = Worker::spawn("ended".to_owned(), &WorkerCount::default(), || ()).expect("a thread");
        drop(hanging.run(move |()| wait.recv()));
        drop(ended);
        assert_eq!(count.get(), 0);
        hanging.abandon(&count);
        assert_eq!(count.get(), 1);
        drop(release);
        for _ in 0..500 {
            if count.get() == 0 {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the thread has come back and still counts");
    }

    #[tokio::test]
    async fn a_provider_waits_for_its_own_threads_and_for_those_of_providers_before_it() {
        let [old, new, other] = [(); 3].map(|()| WorkerCount::default());
        let (release, wait) = mpsc::channel::<()>();
        let [stop, never] = [(); 2].map(|()| CancellationToken::new());
        let [actors, others] = [(); 2].map(|()| TaskTracker::new());
        let (actor, _other) = (actors.token(), others.token());
        old.started(&stop, &actors);
        other.started(&never, &others);
        let _at_work = Worker::spawn("other".to_owned(), &other, || ()).expect("a thread");
        new.all_ended().await;
        stop.cancel();
        let soon = Duration::from_millis(50);
        let waits = async |why: &str| {
            tokio::time::timeout(soon, new.all_ended()).await.expect_err(why);
        };
        waits("the one before has no thread, and may be about to start one").await;
        let hanging = Worker::spawn("old".to_owned(), &old, || ()).expect("a thread");
        drop(hanging.run(move |()| wait.recv()));
        drop((hanging, actor));
        waits("the one before is in a call").await;
        drop(release);
        new.all_ended().await;
        assert!(
            !all_started().iter().any(|provider| Arc::ptr_eq(&provider.count.0, &old.0)),
            "it is forgotten"
        );
    }
}
