//! The threads of a port. Clients take no time from the threads of controllers and the leader election.

use anyhow::Context as _;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

/// Threads that read and write. With those for slow work, a flood of requests gets no more of the CPU.
const WORKERS: usize = 1;

/// A runtime that stops with all of its tasks when this is dropped.
#[derive(Debug)]
pub(super) struct Threads(Option<Runtime>);

impl Threads {
    /// Starts them under this name. `slow`: how many may do slow work, such as verifying certificates, at the same time.
    ///
    /// # Errors
    /// The system refuses more threads.
    pub(super) fn start(name: &str, slow: usize) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(slow)
            .thread_name(name)
            .enable_all()
            .build()
            .with_context(|| format!("no threads for {name}"))?;
        Ok(Self(Some(runtime)))
    }

    /// Runs the task on these threads. The handle can be awaited on any runtime.
    pub(super) fn run<F>(&self, work: F) -> Option<JoinHandle<F::Output>>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.0.as_ref().map(|runtime| runtime.spawn(work))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // This may be dropped within a runtime, where blocking is forbidden.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
