//! The Node conditions that the controllers read and write.

use cloudprovider::ErrorKind;
use jiff::{Timestamp, Unit};
use serde_json::{Value, json};

use crate::nodes::{Node, NodePatch};

/// Written by the kubelet, and by the node controller of kube-controller-manager when the kubelet is silent.
pub const READY: &str = "Ready";

/// Whether the cloud provider has filled the Node in: `False` says why not, in the provider's words.
pub const INITIALIZED: &str = "CloudProviderInitialized";

/// Whether the cloud has the Node's instance. `False`: it has not, and the reason says why the Node is still there;
/// `Unknown`: the cloud cannot tell, in the provider's words. Written when the answer matters, so most Nodes never
/// have it.
pub const INSTANCE_EXISTS: &str = "CloudProviderInstanceExists";

/// The conditions that are kept in memory.
pub const KEPT: [&str; 3] = [READY, INITIALIZED, INSTANCE_EXISTS];

/// Upstream's Kubernetes limit for an event's message; conditions keep to it too.
const MESSAGE_LIMIT: usize = 1024;

/// A condition as we want it.
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

/// An error's kind as the reason of [`INITIALIZED`]. docs/nodes.md has the table.
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

/// An error's kind as the reason of [`INSTANCE_EXISTS`], where that is `Unknown`. It never says that there is no instance:
/// that is an answer, and no error.
pub fn doubt_word(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "AbsenceNotConfirmed",
        other => reason_word(other),
    }
}

/// A time as the API writes it, in whole seconds.
pub fn api_time(time: Timestamp) -> String {
    time.round(Unit::Second).unwrap_or(time).to_string()
}

/// Cuts a message at 1,024 bytes, at a character's boundary.
pub fn truncated(mut message: String) -> String {
    if message.len() > MESSAGE_LIMIT {
        let mut end = MESSAGE_LIMIT - "...".len();
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str("...");
    }
    message
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
        for text in [read("../docs/nodes.md"), read("../cloudprovider/src/error_kind.rs")] {
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

    #[test]
    fn long_messages_are_cut_between_characters() {
        let cut = truncated("ä".repeat(2000));
        assert!(cut.len() <= MESSAGE_LIMIT && cut.ends_with("..."));
        assert_eq!(truncated("short".into()), "short");
    }
}
