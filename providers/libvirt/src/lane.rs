//! Threads that wait for libvirt, so that nobody else has to.

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

use tokio::sync::oneshot;

/// Threads that were not given up and have not ended, of all lanes in the process.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Pause between two looks at that number.
const POLL: Duration = Duration::from_millis(10);

/// Waits until no thread is in a call any more but those that were given up. libvirt takes itself down when the process
/// ends, and a thread that is in it then crashes.
pub(crate) async fn all_ended() {
    while RUNNING.load(Ordering::Acquire) > 0 {
        tokio::time::sleep(POLL).await;
    }
}

/// One thread among those that [`RUNNING`] counts.
#[derive(Debug)]
struct Running(AtomicBool);

impl Running {
    fn begin() -> Self {
        RUNNING.fetch_add(1, Ordering::AcqRel);
        Self(AtomicBool::new(true))
    }

    /// Counts no more.
    fn end(&self) {
        if self.0.swap(false, Ordering::AcqRel) {
            RUNNING.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// A thread of its own that works jobs off one by one on a state `S`.
///
/// Dropping a lane ends its thread after the job at hand, which may be never where libvirt does not answer; the
/// state is dropped on that thread as well, since closing a connection blocks too.
pub(crate) struct Lane<S> {
    sender: mpsc::Sender<Job<S>>,
    /// Held by the thread as well; filled when the lane is abandoned, and gone when the thread has ended.
    abandoned: Arc<OnceLock<Entered>>,
    /// Held by the thread as well.
    running: Arc<Running>,
}

/// How many abandoned threads still wait for an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadCount(Arc<AtomicUsize>);

impl ThreadCount {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    fn enter(&self) -> Entered {
        self.0.fetch_add(1, Ordering::AcqRel);
        Entered(self.clone())
    }
}

#[derive(Debug)]
struct Entered(ThreadCount);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<S: 'static> Lane<S> {
    /// Starts a thread of this name, which makes its own state.
    pub(crate) fn spawn(name: String, state: impl FnOnce() -> S + Send + 'static) -> io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job<S>>();
        let abandoned = Arc::<OnceLock<Entered>>::default();
        let running = Arc::new(Running::begin());
        let of_thread = (Arc::clone(&abandoned), Arc::clone(&running));
        thread::Builder::new().name(name).spawn(move || {
            let mut state = state();
            while let Ok(job) = jobs.recv() {
                job(&mut state);
            }
            // Closing a connection is a call too.
            drop(state);
            drop(of_thread);
        })?;
        Ok(Self { sender, abandoned, running })
    }

    /// Gives the lane up because a call on it does not come back; its thread is counted until it does.
    pub(crate) fn abandon(self, count: &ThreadCount) {
        self.running.end();
        // nobody else fills it
        let _ = self.abandoned.set(count.enter());
    }

    /// Runs `job` on the thread. The answer never comes where the thread has died of a panic.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut S) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, receiver) = oneshot::channel();
        let job = Box::new(move |state: &mut S| {
            // nobody may wait any more: then the answer is of no use
            let _ = answer.send(job(state));
        });
        // a thread that has died drops the job, and with it the answer's sender
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
        let count = ThreadCount::default();
        let (release, wait) = mpsc::channel::<()>();
        let hanging = Lane::spawn("hanging".to_owned(), || ()).expect("a thread");
        let ended = Lane::spawn("ended".to_owned(), || ()).expect("a thread");
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
}
