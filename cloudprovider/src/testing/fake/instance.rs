//! The objects of the fake cloud.

use crate::{
    Error, InstanceMetadata, LoadBalancerService, LoadBalancerStatus, NodeAddress, PowerState, machines::Mark,
};

/// An instance of the fake cloud.
#[derive(Clone, Debug)]
pub struct FakeInstance {
    /// The name by which it is found for Nodes that have no provider ID and whose system UUID matches
    /// nothing.
    pub name: Option<String>,
    /// Whether it runs.
    pub power_state: PowerState,
    /// What is written to its Node.
    pub metadata: InstanceMetadata,
    /// Why the metadata is not complete yet, if it is not.
    pub incomplete: Option<Error>,
    /// Whether look-ups return a provider ID for it.
    pub has_provider_id: bool,
    /// Whose machine it is, if it was made for one.
    pub mark: Option<Mark>,
}

impl FakeInstance {
    /// A running instance with this internal IP address, a type, a zone and a region.
    pub fn running(address: impl std::fmt::Display) -> Self {
        Self {
            name: None,
            power_state: PowerState::Running,
            metadata: InstanceMetadata {
                instance_type: Some("2c-4096m".to_owned()),
                addresses: vec![NodeAddress::internal_ip(address)],
                zone: Some("rack-a".to_owned()),
                region: Some("lab".to_owned()),
                ..InstanceMetadata::default()
            },
            incomplete: None,
            has_provider_id: true,
            mark: None,
        }
    }

    /// Sets the name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets whose machine it is.
    #[must_use]
    pub fn with_mark(mut self, mark: Mark) -> Self {
        self.mark = Some(mark);
        self
    }

    /// Marks the metadata as not complete yet, for this reason.
    #[must_use]
    pub fn with_incomplete(mut self, why: Error) -> Self {
        self.incomplete = Some(why);
        self
    }
}

/// A load balancer of the fake cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FakeLoadBalancer {
    /// The cluster that it was created for.
    pub cluster_name: String,
    /// The Service of the last call.
    pub service: LoadBalancerService,
    /// The names of the nodes behind it, in the order of the last call.
    pub nodes: Vec<String>,
    /// Where clients reach it.
    pub status: LoadBalancerStatus,
}
