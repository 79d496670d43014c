//! When a status is written: at once where users or programs act on the change, and else together with what follows within a second, or
//! within ten seconds where words alone change.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

/// For so long, a change of counters and messages waits for more of the kind.
pub(super) const COALESCED: Duration = Duration::from_secs(1);

/// For so long, a change of words alone waits: each step of each Machine changes the messages of its set and its deployment, and a
/// workload cluster decides how often the `nodeInfo` of its Nodes changes.
const WORDS: Duration = Duration::from_secs(10);

/// An entry of this age is that of an object that is gone: its pass came back after [`COALESCED`] or [`WORDS`].
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Fields with words.
const WORDED: [&str; 2] = ["conditions", "nodeInfo"];

/// Fields of a status that follow each Machine of a set or a deployment.
const COUNTED: [&str; 5] = ["replicas", "readyReplicas", "availableReplicas", "upToDateReplicas", "versions"];

/// Where an object is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has no status: nothing is known yet, and more comes.
    Begins,
    /// It has one.
    Stays,
    /// It is being deleted: that it goes is said, and the rest follows from that.
    Ends,
}

/// Since when changes wait, by kind and key of their object. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    since: Arc<Mutex<HashMap<String, Instant>>>,
    /// No change waits.
    is_off: bool,
}

impl Waiting {
    /// With which every change is written at once.
    pub(super) fn none() -> Self {
        Self { is_off: true, ..Self::default() }
    }

    /// Whether a change of a status is written now. Otherwise: after which time. `change` is the merge patch.
    pub(super) fn is_due(
        &self,
        object: &str,
        before: &Value,
        change: &Value,
        stage: Stage,
    ) -> Result<(), Duration> {
        if self.is_off {
            return Ok(());
        }
        let mut waiting = self.since.lock();
        let now = Instant::now();
        if is_urgent(before, change, stage) {
            waiting.remove(object);
            return Ok(());
        }
        waiting.retain(|_, since| now.duration_since(*since) < FORGOTTEN);
        let since = *waiting.entry(object.to_owned()).or_insert(now);
        let are_words = stage != Stage::Begins
            && change
                .as_object()
                .is_some_and(|change| change.keys().all(|field| WORDED.contains(&field.as_str())));
        let wait = if are_words { WORDS } else { COALESCED };
        let left = wait.saturating_sub(now.duration_since(since));
        if left.is_zero() {
            waiting.remove(object);
            return Ok(());
        }
        Err(left)
    }

    /// The status is as it has to be.
    pub(super) fn settled(&self, object: &str) {
        self.since.lock().remove(object);
    }
}

/// Whether a change is more than counters, reasons and messages.
fn is_urgent(before: &Value, change: &Value, stage: Stage) -> bool {
    if stage == Stage::Begins {
        return false;
    }
    let Some(change) = change.as_object() else { return true };
    if change.keys().any(|field| !WORDED.contains(&field.as_str()) && !COUNTED.contains(&field.as_str())) {
        return true;
    }
    change.get("conditions").is_some_and(|after| {
        let said = |of: &Value| -> Vec<_> {
            let all = of.as_array().into_iter().flatten();
            let mut said: Vec<_> = all
                .map(|one| ["type", "status"].map(|field| one[field].as_str().unwrap_or_default().to_owned()))
                .collect();
            said.sort_unstable();
            said
        };
        match stage {
            Stage::Ends => is_deleting(&before["conditions"]) != is_deleting(after),
            Stage::Begins | Stage::Stays => said(&before["conditions"]) != said(after),
        }
    })
}

fn is_deleting(conditions: &Value) -> bool {
    let mut all = conditions.as_array().into_iter().flatten();
    all.any(|one| one["type"] == "Deleting" && one["status"] == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn counters_and_messages_wait_for_a_second() {
        let waiting = Waiting::default();
        let conditions = |status: &str, message: &str| json!([{"type": "Ready", "status": status, "reason": "R", "message": message}]);
        let before = json!({"conditions": conditions("False", "a"), "replicas": 1});
        let is_due = |change: &Value| waiting.is_due("x", &before, change, Stage::Stays);
        let counters = json!({"replicas": 2, "conditions": conditions("False", "b")});
        assert_eq!(is_due(&counters), Err(COALESCED));
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(is_due(&counters), Err(Duration::from_millis(600)));
        assert_eq!(waiting.is_due("y", &before, &counters, Stage::Stays), Err(COALESCED));
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_eq!(is_due(&counters), Ok(()));
        assert_eq!(is_due(&counters), Err(COALESCED), "the next one waits again");
        for urgent in
            [json!({"phase": "Running"}), json!({"conditions": conditions("True", "a")}), json!(null)]
        {
            assert_eq!(is_due(&urgent), Ok(()), "{urgent}");
            assert_eq!(
                waiting.is_due("x", &before, &urgent, Stage::Begins),
                Err(COALESCED),
                "nothing is known yet"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn words_wait_longer() {
        let waiting = Waiting::default();
        let condition =
            |message: &str| json!({"conditions": [{"type": "A", "status": "True", "message": message}]});
        let before = condition("x");
        assert_eq!(waiting.is_due("x", &before, &condition("y"), Stage::Stays), Err(WORDS));
        let info = json!({"nodeInfo": {"kernelVersion": "7"}});
        assert_eq!(waiting.is_due("of a Node", &before, &info, Stage::Stays), Err(WORDS));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(
            waiting.is_due("x", &before, &json!({"replicas": 1}), Stage::Stays),
            Ok(()),
            "they go along"
        );
    }

    #[test]
    fn of_a_deletion_its_beginning_and_its_times_are_urgent() {
        let conditions = |ready: &str, deleting: &str| json!({"conditions": [{"type": "Ready", "status": ready}, {"type": "Deleting", "status": deleting}]});
        let is = |before: &Value, after: Value| is_urgent(before, &after, Stage::Ends);
        assert!(is(&conditions("True", "False"), conditions("True", "True")));
        assert!(!is(&conditions("True", "True"), conditions("False", "True")));
        assert!(is(&conditions("True", "True"), json!({"deletion": {}})));
    }

    #[tokio::test(start_paused = true)]
    async fn objects_that_are_gone_are_forgotten() {
        let waiting = Waiting::default();
        let change = json!({"replicas": 2});
        assert!(waiting.is_due("gone", &json!({}), &change, Stage::Stays).is_err());
        tokio::time::advance(FORGOTTEN).await;
        assert!(waiting.is_due("x", &json!({}), &change, Stage::Stays).is_err());
        assert_eq!(waiting.since.lock().len(), 1);
        waiting.settled("x");
        assert!(waiting.since.lock().is_empty());
    }
}
