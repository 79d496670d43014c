//! The Node conditions that the controllers read and write.

use cloudprovider::ErrorKind;
use component::api_text::{api_time, truncated};
use jiff::Timestamp;
use serde_json::{Value, json};

pub use crate::nodes::condition_types::{
    INITIALIZED, INSTANCE_EXISTS, KEPT, NETWORK_UNAVAILABLE, NO_ROUTE_CREATED, READY,
};

use crate::nodes::{Node, NodePatch};

/// A condition that a Node should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCondition {
    /// [`INITIALIZED`] or [`INSTANCE_EXISTS`].
    pub condition_type: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// A CamelCase word.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

impl WantedCondition {
    /// A condition; the message is cut at 1,024 bytes.
    pub fn new(
        condition_type: &'static str,
        status: &'static str,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { condition_type, status, reason: reason.into(), message: truncated(message.into()) }
    }

    /// Whether `node` has exactly this condition already.
    pub fn is_on(&self, node: &Node) -> bool {
        node.condition(self.condition_type)
            .is_some_and(|c| c.status == self.status && c.reason == self.reason && c.message == self.message)
    }

    /// The entry of `status.conditions`. `lastTransitionTime` moves only when the status does.
    pub fn to_json(&self, node: &Node, now: Timestamp) -> Value {
        let now = api_time(now);
        let mut entry = json!({
            "type": self.condition_type,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "lastHeartbeatTime": now,
        });
        if node.condition(self.condition_type).is_none_or(|c| c.status != self.status) {
            entry["lastTransitionTime"] = now.into();
        }
        entry
    }

    /// A patch of `nodes/status` that writes this condition and nothing else, to this very Node.
    pub fn to_patch(&self, node: &Node, now: Timestamp) -> NodePatch {
        NodePatch::Status(json!({
            "metadata": {"uid": node.identity.uid},
            "status": {"conditions": [self.to_json(node, now)]},
        }))
    }
}

/// An error's kind as the reason of [`INITIALIZED`]. docs/reference/nodes.md has the table.
pub fn reason_word(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "InstanceNotFound",
        ErrorKind::Ambiguous => "InstanceAmbiguous",
        ErrorKind::Unauthenticated => "ProviderUnauthenticated",
        ErrorKind::PermissionDenied => "ProviderPermissionDenied",
        ErrorKind::InvalidConfiguration => "ProviderMisconfigured",
        ErrorKind::InvalidInput => "InvalidNode",
        ErrorKind::Unsupported | ErrorKind::ImplementedElsewhere => "Unsupported",
        ErrorKind::InProgress => "InstanceIncomplete",
        ErrorKind::Conflict | ErrorKind::RateLimited | ErrorKind::Unavailable => "ProviderUnavailable",
        ErrorKind::Timeout => "ProviderTimeout",
        _ => "ProviderError",
    }
}

/// An error's kind as the reason of [`INSTANCE_EXISTS`] where its status is `Unknown`. That there is no instance is not among
/// them: it is an answer and no error.
pub fn doubt_word(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "AbsenceNotConfirmed",
        other => reason_word(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transition_time_moves_with_the_status_only() {
        let now = Timestamp::UNIX_EPOCH;
        let mut node =
            Node::from_json(json!({"metadata": {"name": "n", "uid": "u"}, "status": {"conditions": [
                {"type": INITIALIZED, "status": "False", "reason": "InstanceNotFound", "message": "a"},
            ]}}));
        let same_status = WantedCondition::new(INITIALIZED, "False", "InstanceNotFound", "b");
        assert!(!same_status.is_on(&node));
        assert!(same_status.to_json(&node, now).get("lastTransitionTime").is_none());
        let other_status = WantedCondition::new(INITIALIZED, "True", "Initialized", "");
        assert_eq!(other_status.to_json(&node, now)["lastTransitionTime"], "1970-01-01T00:00:00Z");
        node.conditions[0].message = "b".into();
        assert!(same_status.is_on(&node));
    }

    #[test]
    fn the_documents_say_what_becomes_of_each_kind() {
        let read = |path: &str| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
            std::fs::read_to_string(path).expect("a document")
        };
        for text in [read("../docs/reference/nodes.md"), read("../cloudprovider/src/error_kind.rs")] {
            for kind in ErrorKind::ALL {
                let of_kind = |line: &&str| {
                    let first = line.trim_start_matches("/// ").split('|').nth(1).unwrap_or_default();
                    first.contains(&format!("`{kind:?}`"))
                };
                let row = text.lines().find(of_kind).unwrap_or_else(|| panic!("{kind:?} is missing"));
                let words = [reason_word(*kind), doubt_word(*kind)];
                assert!(words.iter().all(|word| row.contains(&format!("`{word}`"))), "{row}");
                assert_eq!(row.contains("60 s"), !kind.is_retryable(), "{row}");
            }
        }
    }

    #[test]
    fn what_is_unknown_is_not_called_gone() {
        for kind in ErrorKind::ALL {
            assert_ne!(doubt_word(*kind), "InstanceNotFound");
        }
    }
}
