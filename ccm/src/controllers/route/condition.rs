//! The condition `NetworkUnavailable`, as the route controller writes it.

use component::api_text::api_time;
use jiff::Timestamp;
use serde_json::json;

use crate::{
    conditions::NETWORK_UNAVAILABLE,
    nodes::{Node, NodePatch},
};

/// What the condition says about a Node's routes. Words are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteCondition {
    /// All routes are there: the network is not unavailable.
    RouteCreated,
    /// A route is missing.
    NoRouteCreated,
}

impl RouteCondition {
    pub(super) fn status(self) -> &'static str {
        match self {
            Self::RouteCreated => "False",
            Self::NoRouteCreated => "True",
        }
    }

    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::RouteCreated => "RouteCreated",
            Self::NoRouteCreated => "NoRouteCreated",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::RouteCreated => "RouteController created a route",
            Self::NoRouteCreated => "RouteController failed to create a route",
        }
    }

    /// Whether the Node has it already. Another reason counts as another condition, whoever wrote it.
    pub(super) fn is_on(self, node: &Node) -> bool {
        let found = node.condition(NETWORK_UNAVAILABLE);
        found.is_some_and(|found| found.status == self.status() && found.reason == self.reason())
    }

    /// A patch of `nodes/status` with this condition and nothing else, for this very Node. As upstream, both times are now.
    pub(super) fn to_patch(self, node: &Node, now: Timestamp) -> NodePatch {
        let now = api_time(now);
        NodePatch::Status(json!({
            "metadata": {"uid": node.identity.uid},
            "status": {"conditions": [{
                "type": NETWORK_UNAVAILABLE,
                "status": self.status(),
                "reason": self.reason(),
                "message": self.message(),
                "lastTransitionTime": now,
                "lastHeartbeatTime": now,
            }]},
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(status: &str, reason: &str) -> Node {
        let condition =
            json!({"type": "NetworkUnavailable", "status": status, "reason": reason, "message": "x"});
        Node::from_json(json!({"metadata": {"name": "n", "uid": "u"}, "status": {"conditions": [condition]}}))
    }

    #[test]
    fn status_and_reason_are_compared() {
        use RouteCondition::{NoRouteCreated, RouteCreated};
        assert!(RouteCreated.is_on(&node("False", "RouteCreated")));
        assert!(NoRouteCreated.is_on(&node("True", "NoRouteCreated")));
        for (status, reason) in [
            ("False", "CalicoIsUp"),
            ("True", "RouteCreated"),
            ("Unknown", "RouteCreated"),
            ("False", "NoRouteCreated"),
        ] {
            for condition in [RouteCreated, NoRouteCreated] {
                assert!(!condition.is_on(&node(status, reason)), "{condition:?} {status} {reason}");
            }
        }
        assert!(!RouteCreated.is_on(&Node::default()) && !NoRouteCreated.is_on(&Node::default()));
    }

    #[test]
    fn words_are_upstreams() {
        let now = Timestamp::UNIX_EPOCH;
        let patch = |condition: RouteCondition| match condition.to_patch(&node("False", "CalicoIsUp"), now) {
            NodePatch::Status(patch) => patch,
            other => panic!("{other:?}"),
        };
        let expected = |status: &str, reason: &str, message: &str| {
            json!({"metadata": {"uid": "u"}, "status": {"conditions": [{
                "type": "NetworkUnavailable", "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "1970-01-01T00:00:00Z", "lastHeartbeatTime": "1970-01-01T00:00:00Z",
            }]}})
        };
        assert_eq!(
            patch(RouteCondition::RouteCreated),
            expected("False", "RouteCreated", "RouteController created a route")
        );
        assert_eq!(
            patch(RouteCondition::NoRouteCreated),
            expected("True", "NoRouteCreated", "RouteController failed to create a route")
        );
    }
}
