//! The events on Services, with upstream's reasons and messages.

use component::events::{EventRecorder, EventType};
use controller_kit::services::Service;

use super::nodes::BackendKeys;

/// How many Nodes a message names.
const MAX_NAMES: usize = 20;

/// What happens to a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happening<'a> {
    Ensuring,
    Ensured,
    Deleting,
    Deleted,
    UpdatedNodes,
    NoNodes,
    /// A sync failed, with this text.
    SyncFailed(&'a str),
    /// The load balancer of a Service that is gone could not be deleted.
    DeletionFailed(&'a str),
    /// The load balancer could not be told of these Nodes.
    UpdateFailed(&'a BackendKeys, &'a str),
}

impl Happening<'_> {
    fn event(&self) -> (EventType, &'static str, String) {
        let normal = |reason, message: &str| (EventType::Normal, reason, message.to_owned());
        match self {
            Self::Ensuring => normal("EnsuringLoadBalancer", "Ensuring load balancer"),
            Self::Ensured => normal("EnsuredLoadBalancer", "Ensured load balancer"),
            Self::Deleting => normal("DeletingLoadBalancer", "Deleting load balancer"),
            Self::Deleted => normal("DeletedLoadBalancer", "Deleted load balancer"),
            Self::UpdatedNodes => normal("UpdatedLoadBalancer", "Updated load balancer with new hosts"),
            Self::NoNodes => (
                EventType::Warning,
                "UnAvailableLoadBalancer",
                "There are no available nodes for LoadBalancer".to_owned(),
            ),
            Self::SyncFailed(error) => (
                EventType::Warning,
                "SyncLoadBalancerFailed",
                format!("Error syncing load balancer: {error}"),
            ),
            Self::DeletionFailed(error) => (
                EventType::Warning,
                "DeleteLoadBalancerFailed",
                format!("Error deleting load balancer: {error}"),
            ),
            Self::UpdateFailed(nodes, error) => (
                EventType::Warning,
                "UpdateLoadBalancerFailed",
                format!(
                    "Error updating load balancer with new hosts [{}] [node names limited, total number of nodes: {}], error: {error}",
                    names(nodes),
                    nodes.len()
                ),
            ),
        }
    }
}

/// Records what happens to the load balancer of `service`.
pub(super) fn record(events: &EventRecorder, service: &Service, happening: &Happening<'_>) {
    let (event_type, reason, message) = happening.event();
    events.record(service.event_object(), event_type, reason, message);
}

fn names(nodes: &BackendKeys) -> String {
    let mut names: Vec<String> = nodes.iter().take(MAX_NAMES).map(|(name, _)| name.clone()).collect();
    if nodes.len() > MAX_NAMES {
        names.push(format!("<{} more>", nodes.len() - MAX_NAMES));
    }
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_words() {
        let nodes = |count: usize| -> BackendKeys {
            (1..=count).map(|number| (format!("n{number:02}"), None)).collect()
        };
        let twenty = (1..=20).map(|number| format!("n{number:02}")).collect::<Vec<_>>().join(" ");
        let (normal, warning) = (EventType::Normal, EventType::Warning);
        for (happening, event_type, reason, message) in [
            (Happening::Ensuring, normal, "EnsuringLoadBalancer", "Ensuring load balancer".to_owned()),
            (Happening::Ensured, normal, "EnsuredLoadBalancer", "Ensured load balancer".to_owned()),
            (Happening::Deleting, normal, "DeletingLoadBalancer", "Deleting load balancer".to_owned()),
            (Happening::Deleted, normal, "DeletedLoadBalancer", "Deleted load balancer".to_owned()),
            (
                Happening::UpdatedNodes,
                normal,
                "UpdatedLoadBalancer",
                "Updated load balancer with new hosts".to_owned(),
            ),
            (
                Happening::NoNodes,
                warning,
                "UnAvailableLoadBalancer",
                "There are no available nodes for LoadBalancer".to_owned(),
            ),
            (
                Happening::SyncFailed("failed to ensure load balancer: quota"),
                warning,
                "SyncLoadBalancerFailed",
                "Error syncing load balancer: failed to ensure load balancer: quota".to_owned(),
            ),
            (
                Happening::DeletionFailed("quota"),
                warning,
                "DeleteLoadBalancerFailed",
                "Error deleting load balancer: quota".to_owned(),
            ),
            (
                Happening::UpdateFailed(&nodes(2), "quota"),
                warning,
                "UpdateLoadBalancerFailed",
                "Error updating load balancer with new hosts [n01 n02] [node names limited, total number of nodes: 2], error: quota".to_owned(),
            ),
            (
                Happening::UpdateFailed(&nodes(23), "quota"),
                warning,
                "UpdateLoadBalancerFailed",
                format!(
                    "Error updating load balancer with new hosts [{twenty} <3 more>] [node names limited, total number of nodes: 23], error: quota"
                ),
            ),
        ] {
            assert_eq!(happening.event(), (event_type, reason, message));
        }
    }
}
