//! What the parts of the daemon know, for `/debug/state`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

/// A part that is busy for longer than this is left out, with a note that says so.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A question to one part. Its loop answers between two steps of its work with a JSON object that holds no secret.
pub type Question = oneshot::Sender<Value>;

/// The parts that can be asked. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct DebugState(Arc<Mutex<BTreeMap<&'static str, mpsc::Sender<Question>>>>);

impl DebugState {
    /// Nobody to ask yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The questions to the part called `name`, for its loop to answer.
    pub fn questions(&self, name: &'static str) -> mpsc::Receiver<Question> {
        let (sender, receiver) = mpsc::channel(4);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, sender);
        receiver
    }

    /// Asks everybody: one key for each part.
    pub async fn ask(&self) -> Value {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answers = parts.into_iter().map(|(name, part)| async move {
            let ask = async {
                let (question, answer) = oneshot::channel();
                part.send(question).await.ok()?;
                answer.await.ok()
            };
            let answer = match tokio::time::timeout(ANSWER_WITHIN, ask).await {
                Ok(Some(answer)) => answer,
                Ok(None) => json!({"error": "not running"}),
                Err(_) => json!({"error": format!("busy for more than {ANSWER_WITHIN:?}")}),
            };
            (name.to_owned(), answer)
        });
        Value::Object(futures::future::join_all(answers).await.into_iter().collect())
    }
}
