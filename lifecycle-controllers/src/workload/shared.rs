//! What the sessions with workload clusters share.

use std::sync::Arc;

use crate::gate::PartFence;
use kube::Client;

use super::{changes::Subscribers, connect::Connector};

/// What the sessions with workload clusters share.
pub(super) struct Shared {
    /// The client of the management cluster.
    pub(super) management: Client,
    /// Writes to workload clusters end with its term.
    pub(super) fence: PartFence,
    pub(super) connector: Arc<dyn Connector>,
    pub(super) subscribers: Subscribers,
}
