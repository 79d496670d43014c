//! The threads of the port: nothing that its clients do takes time from those of the controllers and the election.

use anyhow::Context as _;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

/// Whoever floods the port gets no more of the machine than this.
const WORKERS: usize = 1;

/// For what takes a while: verifying certificates, gathering metrics, reading files, looking up names.
const BLOCKING: usize = 4;

/// A runtime that ends, with all that runs on it, when this is dropped.
#[derive(Debug)]
pub(super) struct Threads(Option<Runtime>);

impl Threads {
    /// # Errors
    /// The machine gives no more threads.
    pub(super) fn start() -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(BLOCKING)
            .thread_name("secure-port")
            .enable_all()
            .build()
            .context("no threads for the secure port")?;
        Ok(Self(Some(runtime)))
    }

    /// Runs it there. Can be waited for anywhere.
    pub(super) fn run<F>(&self, work: F) -> Option<JoinHandle<F::Output>>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.0.as_ref().map(|runtime| runtime.spawn(work))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Whoever drops it may itself run on a runtime, where nothing may be waited for.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
