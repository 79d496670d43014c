//! The state of the daemon's parts, for `/debug/state`.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

/// A part that does not answer within this time is left out, and a note says so.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A request for the state of one part. Its loop answers between two steps of its work.
#[derive(Debug)]
pub struct Question(oneshot::Sender<Value>);

impl Question {
    /// Answers with a JSON object that contains no secret.
    pub fn answer(self, state: Value) {
        // The request that asked may have ended.
        let _ = self.0.send(state);
    }
}

/// The parts that report their state. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct DebugState(Arc<Mutex<BTreeMap<String, Part>>>);

/// How a part's state is read.
#[derive(Clone)]
enum Part {
    /// The part's loop answers.
    Loop(mpsc::Sender<Question>),
    /// The state can be read from outside.
    Shared(Arc<dyn Fn() -> Value + Send + Sync>),
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loop(_) => "Loop",
            Self::Shared(_) => "Shared",
        })
    }
}

impl DebugState {
    /// No parts yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part called `name`. Its loop answers the questions that arrive in the receiver.
    pub fn questions(&self, name: &str) -> mpsc::Receiver<Question> {
        let (sender, receiver) = mpsc::channel(4);
        self.add(name, Part::Loop(sender));
        receiver
    }

    /// Adds a part whose state can be read at any time without waiting. `read` must not return secrets.
    pub fn share(&self, name: &str, read: impl Fn() -> Value + Send + Sync + 'static) {
        self.add(name, Part::Shared(Arc::new(read)));
    }

    fn add(&self, name: &str, part: Part) {
        self.0.lock().insert(name.to_owned(), part);
    }

    /// Asks all parts. The result has one key for each part.
    pub async fn ask(&self) -> Value {
        let parts = self.0.lock().clone();
        let answers = parts.into_iter().map(|(name, part)| async move {
            let answer = match part {
                Part::Loop(questions) => ask_loop(&questions).await,
                Part::Shared(read) => read(),
            };
            (name, answer)
        });
        Value::Object(futures::future::join_all(answers).await.into_iter().collect())
    }
}

async fn ask_loop(questions: &mpsc::Sender<Question>) -> Value {
    let ask = async {
        let (question, answer) = oneshot::channel();
        questions.send(Question(question)).await.ok()?;
        answer.await.ok()
    };
    match tokio::time::timeout(ANSWER_WITHIN, ask).await {
        Ok(Some(answer)) => answer,
        Ok(None) => json!({"error": "not running"}),
        Err(_) => json!({"error": format!("busy for more than {ANSWER_WITHIN:?}")}),
    }
}

/// A monotonic time in seconds from now, with three decimal places. Negative for a time in the past.
pub fn seconds_from_now(time: Instant) -> f64 {
    let now = Instant::now();
    let seconds = time.duration_since(now).as_secs_f64() - now.duration_since(time).as_secs_f64();
    (seconds * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_part_that_is_busy_or_gone_does_not_hide_the_others() {
        let state = DebugState::new();
        let busy = state.questions("busy");
        drop(state.questions("gone"));
        state.share("shared", || json!(1));
        let answer = state.ask().await;
        drop(busy);
        assert_eq!(
            answer,
            json!({
                "busy": {"error": "busy for more than 2s"},
                "gone": {"error": "not running"},
                "shared": 1,
            })
        );
    }

    #[tokio::test(start_paused = true)]
    async fn times_are_relative() {
        let now = Instant::now();
        assert!((seconds_from_now(now + Duration::from_millis(1500)) - 1.5).abs() < 1e-9);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!((seconds_from_now(now) + 3.0).abs() < 1e-9);
    }
}
