//! Inspection of a loop from outside: whether it is running, and its state.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use crate::{
    debug_state::{DebugState, Question},
    health::{Concerns, HealthChecks},
};

/// A loop that has not answered for this long is considered hung. This is longer than any step of its work
/// may take. The timeouts of the provider's calls and of the writes after them limit such a step.
const HANGS_AFTER: Duration = Duration::from_secs(180);

/// The loop's end of the connection to the health checks and to `/debug/state`.
#[derive(Debug)]
pub struct Inspection {
    pulse: Pulse,
    questions: mpsc::Receiver<Question>,
}

impl Inspection {
    /// Registers a loop under this name, for its health check and its state.
    pub fn register(name: &str, health: &HealthChecks, debug_state: &DebugState) -> Self {
        let pulse = Pulse::default();
        health.add(name, Concerns::Liveness, {
            let pulse = pulse.clone();
            move || pulse.check()
        });
        Self { pulse, questions: debug_state.questions(name) }
    }

    /// Waits for a request for the loop's state. Answers health checks in the meantime. Cancel-safe.
    pub async fn question(&mut self) -> Question {
        loop {
            tokio::select! {
                () = self.pulse.asked.notified() => self.pulse.answer(),
                Some(question) = self.questions.recv() => return question,
            }
        }
    }

    /// Reports the end of one step of a long piece of work, so that the loop does not count as hung.
    pub fn moved_on(&self) {
        self.pulse.answer();
    }

    /// Awaits something that may take for ever without a fault of the loop. Answers health checks in the
    /// meantime.
    pub async fn beside<T>(&self, wait: impl Future<Output = T>) -> T {
        tokio::pin!(wait);
        loop {
            tokio::select! {
                done = &mut wait => return done,
                () = self.pulse.asked.notified() => self.pulse.answer(),
            }
        }
    }
}

/// A check asks the loop and returns at once. The next check sees whether the loop has answered.
#[derive(Clone, Debug, Default)]
struct Pulse {
    asked: Arc<Notify>,
    unanswered_since: Arc<Mutex<Option<Instant>>>,
}

impl Pulse {
    fn check(&self) -> Result<(), String> {
        let now = Instant::now();
        let since = *self.unanswered_since.lock().get_or_insert(now);
        self.asked.notify_one();
        let silence = now.duration_since(since);
        if silence > HANGS_AFTER {
            return Err(format!("the loop has not turned for {silence:.0?}"));
        }
        Ok(())
    }

    fn answer(&self) {
        *self.unanswered_since.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_hangs_is_noticed_and_one_that_is_idle_is_not() {
        let (health, debug_state) = (HealthChecks::new(), DebugState::new());
        let mut inspection = Inspection::register("loop", &health, &debug_state);
        let (_, concerns, check) = health.all().remove(0);
        assert_eq!(concerns, Concerns::Liveness);
        check().expect("nobody asked before");
        tokio::time::advance(HANGS_AFTER * 2).await;
        check().expect_err("no answer");
        assert!(inspection.question().now_or_never().is_none(), "there is no question about its state");
        check().expect("answered");
        // No health check for a long time, then one arrives.
        assert!(inspection.question().now_or_never().is_none());
        tokio::time::advance(HANGS_AFTER * 2).await;
        check().expect("a new question");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_is_no_hanging() {
        let (health, debug_state) = (HealthChecks::new(), DebugState::new());
        let inspection = Inspection::register("loop", &health, &debug_state);
        let (.., check) = health.all().remove(0);
        let mut wait = Box::pin(inspection.beside(std::future::pending::<()>()));
        for _ in 0..5 {
            check().expect("answered");
            assert!(wait.as_mut().now_or_never().is_none());
            tokio::time::advance(HANGS_AFTER).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn long_work_hangs_only_where_no_step_of_it_ends() {
        let (health, debug_state) = (HealthChecks::new(), DebugState::new());
        let inspection = Inspection::register("loop", &health, &debug_state);
        let (.., check) = health.all().remove(0);
        for _ in 0..5 {
            check().expect("moved on");
            tokio::time::advance(HANGS_AFTER * 2 / 3).await;
            inspection.moved_on();
        }
        check().expect("moved on");
        tokio::time::advance(HANGS_AFTER * 2).await;
        check().expect_err("nothing moves");
    }

    #[tokio::test]
    async fn the_state_is_asked_for() {
        let (health, debug_state) = (HealthChecks::new(), DebugState::new());
        let mut inspection = Inspection::register("loop", &health, &debug_state);
        let (answer, ()) = tokio::join!(debug_state.ask(), async {
            inspection.question().await.answer(json!({"nodes": 3}));
        });
        assert_eq!(answer, json!({"loop": {"nodes": 3}}));
    }
}
