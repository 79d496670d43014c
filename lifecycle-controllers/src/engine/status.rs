//! When a status is written: at once where users or programs act on the change, and else together with what follows within a second, or
//! within ten seconds where messages alone change.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

/// For so long, a change that nothing acts on waits for more of the kind.
pub(super) const COALESCED: Duration = Duration::from_secs(1);

/// For so long, a change of messages alone waits: each step of each Machine changes the messages of its set and its deployment, and a
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

/// Which changes of a status are written at once, since users and controllers act on them. A condition changes when it becomes true, or
/// ceases to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Urgent {
    /// Each condition, and each field that neither counts nor has words.
    All,
    /// These fields and these conditions. The steps on the way to them come one after the other, so those of one second are written together.
    Only {
        /// Fields of the status.
        fields: &'static [&'static str],
        /// Types of conditions.
        conditions: &'static [&'static str],
    },
}

/// A change of a status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) before: &'a Value,
    /// A merge patch.
    pub(super) patch: &'a Value,
    pub(super) stage: Stage,
    pub(super) urgent: Urgent,
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

    /// Whether a change of a status is written now. Otherwise: after which time.
    pub(super) fn is_due(&self, object: &str, change: Change<'_>) -> Result<(), Duration> {
        if self.is_off {
            return Ok(());
        }
        let mut waiting = self.since.lock();
        let now = Instant::now();
        if change.is_urgent() {
            waiting.remove(object);
            return Ok(());
        }
        waiting.retain(|_, since| now.duration_since(*since) < FORGOTTEN);
        let since = *waiting.entry(object.to_owned()).or_insert(now);
        let wait = if change.has_messages_alone() { WORDS } else { COALESCED };
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

impl Change<'_> {
    fn is_urgent(&self) -> bool {
        let Self { before, patch, stage, urgent } = *self;
        if stage == Stage::Begins {
            return false;
        }
        let Some(fields) = patch.as_object() else { return true };
        let is_urgent = |field: &str| match urgent {
            Urgent::All => !WORDED.contains(&field) && !COUNTED.contains(&field),
            Urgent::Only { fields, .. } => fields.contains(&field),
        };
        if fields.keys().any(|field| is_urgent(field)) {
            return true;
        }
        fields.get("conditions").is_some_and(|after| {
            let before = &before["conditions"];
            match (stage, urgent) {
                (Stage::Ends, _) => {
                    are_true(before, Some(&["Deleting"])) != are_true(after, Some(&["Deleting"]))
                }
                (_, Urgent::All) => are_true(before, None) != are_true(after, None),
                (_, Urgent::Only { conditions, .. }) => {
                    are_true(before, Some(conditions)) != are_true(after, Some(conditions))
                }
            }
        })
    }

    /// Whether no condition has another status or another reason, and nothing else changes but what is reported of a Node.
    fn has_messages_alone(&self) -> bool {
        let Some(fields) = self.patch.as_object() else { return false };
        let said = |of: &Value| -> BTreeSet<_> {
            let all = of.as_array().into_iter().flatten();
            all.map(|one| ["type", "status", "reason"].map(|field| text(one, field))).collect()
        };
        self.stage != Stage::Begins
            && fields.keys().all(|field| WORDED.contains(&field.as_str()))
            && fields.get("conditions").is_none_or(|after| said(&self.before["conditions"]) == said(after))
    }
}

/// The types of the conditions that are true, among these if there are any.
fn are_true(conditions: &Value, among: Option<&[&str]>) -> BTreeSet<String> {
    let all = conditions.as_array().into_iter().flatten().filter(|one| one["status"] == "True");
    let types = all.map(|one| text(one, "type"));
    types.filter(|kind| among.is_none_or(|among| among.contains(&kind.as_str()))).collect()
}

fn text(condition: &Value, field: &str) -> String {
    condition[field].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change<'a>(before: &'a Value, patch: &'a Value, stage: Stage) -> Change<'a> {
        Change { before, patch, stage, urgent: Urgent::All }
    }

    #[tokio::test(start_paused = true)]
    async fn counters_and_messages_wait_for_a_second() {
        let waiting = Waiting::default();
        let conditions = |status: &str, message: &str| json!([{"type": "Ready", "status": status, "reason": "R", "message": message}]);
        let before = json!({"conditions": conditions("False", "a"), "replicas": 1});
        let is_due = |patch: &Value| waiting.is_due("x", change(&before, patch, Stage::Stays));
        let counters = json!({"replicas": 2, "conditions": conditions("False", "b")});
        assert_eq!(is_due(&counters), Err(COALESCED));
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(is_due(&counters), Err(Duration::from_millis(600)));
        assert_eq!(waiting.is_due("y", change(&before, &counters, Stage::Stays)), Err(COALESCED));
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_eq!(is_due(&counters), Ok(()));
        assert_eq!(is_due(&counters), Err(COALESCED), "the next one waits again");
        for urgent in
            [json!({"phase": "Running"}), json!({"conditions": conditions("True", "a")}), json!(null)]
        {
            assert_eq!(is_due(&urgent), Ok(()), "{urgent}");
            assert_eq!(
                waiting.is_due("x", change(&before, &urgent, Stage::Begins)),
                Err(COALESCED),
                "nothing is known yet"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn messages_wait_longer() {
        let waiting = Waiting::default();
        let condition = |status: &str, reason: &str, message: &str| json!({"conditions": [{"type": "A", "status": status, "reason": reason, "message": message}]});
        let before = condition("False", "R", "x");
        let is_due =
            |object: &str, patch: &Value| waiting.is_due(object, change(&before, patch, Stage::Stays));
        assert_eq!(is_due("x", &condition("False", "R", "y")), Err(WORDS));
        assert_eq!(is_due("of a Node", &json!({"nodeInfo": {"kernelVersion": "7"}})), Err(WORDS));
        assert_eq!(is_due("a reason", &condition("False", "S", "x")), Err(COALESCED));
        assert_eq!(is_due("a status", &condition("Unknown", "R", "x")), Err(COALESCED));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(is_due("x", &json!({"replicas": 1})), Ok(()), "they go along");
    }

    #[test]
    fn steps_on_the_way_to_what_is_acted_on_wait() {
        let urgent = Urgent::Only { fields: &["nodeRef"], conditions: &["Ready"] };
        let conditions = |ready: &str, other: &str| json!({"conditions": [{"type": "Ready", "status": ready}, {"type": "B", "status": other}]});
        let before = conditions("False", "False");
        let is = |patch: &Value| Change { urgent, ..change(&before, patch, Stage::Stays) }.is_urgent();
        assert!(
            is(&conditions("True", "False")) && is(&json!({"phase": "Running", "nodeRef": {"name": "n"}}))
        );
        let steps = [conditions("Unknown", "True"), json!({"phase": "Provisioned", "addresses": []})];
        assert!(!steps.iter().any(is));
        let of_all = steps.iter().map(|patch| change(&before, patch, Stage::Stays).is_urgent());
        assert_eq!(of_all.collect::<Vec<_>>(), [true, true]);
    }

    #[test]
    fn of_a_deletion_its_beginning_and_its_times_are_urgent() {
        let conditions = |ready: &str, deleting: &str| json!({"conditions": [{"type": "Ready", "status": ready}, {"type": "Deleting", "status": deleting}]});
        let is = |before: &Value, after: Value| change(before, &after, Stage::Ends).is_urgent();
        assert!(is(&conditions("True", "False"), conditions("True", "True")));
        assert!(!is(&conditions("True", "True"), conditions("False", "True")));
        assert!(is(&conditions("True", "True"), json!({"deletion": {}})));
    }

    #[tokio::test(start_paused = true)]
    async fn objects_that_are_gone_are_forgotten() {
        let waiting = Waiting::default();
        let (before, patch) = (json!({}), json!({"replicas": 2}));
        assert!(waiting.is_due("gone", change(&before, &patch, Stage::Stays)).is_err());
        tokio::time::advance(FORGOTTEN).await;
        assert!(waiting.is_due("x", change(&before, &patch, Stage::Stays)).is_err());
        assert_eq!(waiting.since.lock().len(), 1);
        waiting.settled("x");
        assert!(waiting.since.lock().is_empty());
    }
}
