//! Threads that wait for libvirt, so that nobody else has to.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use tokio::sync::oneshot;

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// A thread of its own that works jobs off one by one on a state `S`.
///
/// Dropping a lane ends its thread after the job at hand, which may be never where libvirt does not answer; the
/// state is dropped on that thread as well, since closing a connection blocks too.
pub(crate) struct Lane<S> {
    sender: mpsc::Sender<Job<S>>,
}

/// How many threads there are, the abandoned ones included.
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

struct Entered(ThreadCount);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<S: 'static> Lane<S> {
    /// Starts a thread of this name, which makes its own state.
    pub(crate) fn spawn(
        name: String,
        count: &ThreadCount,
        state: impl FnOnce() -> S + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job<S>>();
        let entered = count.enter();
        thread::Builder::new().name(name).spawn(move || {
            let _entered = entered;
            let mut state = state();
            while let Ok(job) = jobs.recv() {
                job(&mut state);
            }
        })?;
        Ok(Self { sender })
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
