//! The tasks of a loop: it starts them, takes their results, and waits for them when it ends.

use std::{fmt, future::pending, time::Duration};

use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

/// How long tasks may go on when the loop is told to stop, before the calls are cut that may take long. The
/// daemon waits a little longer for its loops.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Tasks with results of one type. Those that still run when this is dropped are dropped too.
pub struct LoopTasks<T> {
    what: &'static str,
    running: JoinSet<T>,
}

impl<T: Send + 'static> LoopTasks<T> {
    /// No task yet. `what` names one in the log, such as `a sync of a service`.
    pub fn new(what: &'static str) -> Self {
        Self { what, running: JoinSet::new() }
    }

    /// How many have not ended, or have ended and their results were not taken.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Starts a task.
    pub fn spawn(&mut self, task: impl Future<Output = T> + Send + 'static) {
        self.running.spawn(task);
    }

    /// The result of the next task that ends. Without a task it waits for ever. Cancel-safe.
    ///
    /// `None`: the task has panicked, as the log says. What it worked on would count as being worked on for
    /// ever, so the loop ends, which the daemon notices.
    pub async fn next(&mut self) -> Option<T> {
        match self.running.join_next().await {
            Some(Ok(result)) => Some(result),
            Some(Err(error)) => {
                tracing::error!(%error, "{} ended early", self.what);
                None
            }
            None => pending().await,
        }
    }

    /// The result of the next task that ends, for a loop that starts no more. `None`: all have ended. A task
    /// that has panicked has no result.
    pub async fn next_of_rest(&mut self) -> Option<T> {
        while let Some(ended) = self.running.join_next().await {
            if let Ok(result) = ended {
                return Some(result);
            }
        }
        None
    }

    /// Waits until all have ended. After 5 s it cancels `cut`, with which they give up what may take long.
    pub async fn end(&mut self, cut: &CancellationToken) {
        let ended = async { while self.running.join_next().await.is_some() {} };
        tokio::pin!(ended);
        tokio::select! {
            () = &mut ended => {}
            () = sleep(STOP_GRACE) => {
                cut.cancel();
                ended.await;
            }
        }
    }
}

impl<T> fmt::Debug for LoopTasks<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopTasks").field("what", &self.what).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn results_are_taken_and_a_panic_ends_the_loop() {
        let mut tasks = LoopTasks::new("a test");
        assert!(tasks.next().now_or_never().is_none() && tasks.is_empty(), "it waits");
        tasks.spawn(async { 1 });
        assert_eq!(tasks.len(), 1);
        assert_eq!(tasks.next().await, Some(1));
        tasks.spawn(async { panic!("a fault") });
        assert_eq!(tasks.next().await, None);
        assert!(tasks.next().now_or_never().is_none(), "it waits again");
    }

    #[tokio::test]
    async fn the_rest_is_taken_without_those_that_panic() {
        let mut tasks = LoopTasks::new("a test");
        tasks.spawn(async { 1 });
        tasks.spawn(async { panic!("a fault") });
        tasks.spawn(async { 2 });
        let mut results = Vec::new();
        while let Some(result) = tasks.next_of_rest().await {
            results.push(result);
        }
        results.sort_unstable();
        assert_eq!(results, [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_is_cut_when_the_loop_ends() {
        for (takes, expected) in
            [(Duration::from_secs(1), Duration::from_secs(1)), (Duration::MAX, STOP_GRACE)]
        {
            let (mut tasks, cut) = (LoopTasks::new("a test"), CancellationToken::new());
            let (began, of_task) = (Instant::now(), cut.clone());
            tasks.spawn(async move { of_task.run_until_cancelled(sleep(takes)).await });
            tasks.end(&cut).await;
            assert_eq!((began.elapsed(), tasks.len()), (expected, 0));
            assert_eq!(cut.is_cancelled(), expected == STOP_GRACE);
        }
    }
}
