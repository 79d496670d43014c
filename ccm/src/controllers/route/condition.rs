//! The condition `NetworkUnavailable`, as the route controller writes it.

use std::borrow::Cow;

use component::api_text::api_time;
use controller_kit::{
    conditions::{NETWORK_UNAVAILABLE, NO_ROUTE_CREATED},
    nodes::{Node, NodePatch},
};
use jiff::Timestamp;
use serde_json::json;

/// What the condition says about a Node's routes. Words are upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RouteCondition {
    /// All routes are there: the network is not unavailable.
    RouteCreated,
    /// A route is missing.
    NoRouteCreated,
    /// The Node may not have one of its routes, for this reason.
    Refused(String),
}

impl RouteCondition {
    pub(super) fn status(&self) -> &'static str {
        match self {
            Self::RouteCreated => "False",
            Self::NoRouteCreated | Self::Refused(_) => "True",
        }
    }

    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::RouteCreated => "RouteCreated",
            Self::NoRouteCreated | Self::Refused(_) => NO_ROUTE_CREATED,
        }
    }

    fn message(&self) -> Cow<'static, str> {
        match self {
            Self::RouteCreated => "RouteController created a route".into(),
            Self::NoRouteCreated => "RouteController failed to create a route".into(),
            Self::Refused(why) => format!("RouteController created no route: {why}").into(),
        }
    }

    /// Whether the Node has it already. Another reason counts as another condition, whoever wrote it, and so does another message
    /// about a route that is missing.
    pub(super) fn is_on(&self, node: &Node) -> bool {
        let found = node.condition(NETWORK_UNAVAILABLE);
        found.is_some_and(|found| {
            found.status == self.status()
                && found.reason == self.reason()
                && (*self == Self::RouteCreated || found.message == self.message())
        })
    }

    /// A patch of `nodes/status` with this condition and nothing else, for this very Node. As upstream, both times are now.
    pub(super) fn to_patch(&self, node: &Node, now: Timestamp) -> NodePatch {
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
        said(status, reason, "RouteController failed to create a route")
    }

    fn said(status: &str, reason: &str, message: &str) -> Node {
        let condition =
            json!({"type": "NetworkUnavailable", "status": status, "reason": reason, "message": message});
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
    fn why_a_route_is_refused_counts() {
        let why = |why: &str| RouteCondition::Refused(why.to_owned());
        let has = said("True", "NoRouteCreated", "RouteController created no route: it is outside");
        assert!(why("it is outside").is_on(&has));
        assert!(!why("it overlaps").is_on(&has) && !RouteCondition::NoRouteCreated.is_on(&has));
        assert!(!why("it is outside").is_on(&node("True", "NoRouteCreated")));
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
