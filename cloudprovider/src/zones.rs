//! Zones, for clouds whose instances do not carry them.

use std::fmt;

use async_trait::async_trait;

use crate::{NodeIdentity, Result};

/// Zone and region of a batch of nodes.
///
/// Asked only for nodes whose [`InstanceMetadata`](crate::InstanceMetadata) names neither zone nor region. A provider whose
/// instances carry what it knows of these has no need of it: asked again, it would say the same.
#[async_trait]
pub trait Zones: fmt::Debug + Send + Sync {
    /// Looks up the zones of `nodes`. Returns one answer per node, in the order of `nodes`.
    async fn zones(&self, nodes: &[&NodeIdentity]) -> Vec<Result<Zone>>;
}

/// Where an instance is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// The failure domain, for the label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// The region, for the label `topology.kubernetes.io/region`.
    pub region: Option<String>,
}
