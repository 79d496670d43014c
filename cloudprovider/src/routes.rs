//! Routes to the pod networks of nodes.

use std::fmt;

use async_trait::async_trait;

use crate::{NodeAddress, Result};

/// Pod routes in the cloud's network. Without this part, pod routing is left to the network plugin.
#[async_trait]
pub trait Routes: fmt::Debug + Send + Sync {
    /// The routes that belong to `cluster_name`, and no others: what this list has and no Node may have is deleted, wherever it
    /// leads. A cloud that cannot say which there are is an error, never an empty or shorter list.
    async fn list(&self, cluster_name: &str) -> Result<Vec<Route>>;

    /// Creates a route. [`Route::name`] is ignored; `name_hint`, the Node's UID, may serve as the name.
    /// Success when the same route, with this CIDR and target, is there already: the answer to an earlier call may have
    /// been lost. A route of this CIDR to another target is an error of kind [`Conflict`](crate::ErrorKind::Conflict).
    async fn create(&self, cluster_name: &str, name_hint: &str, route: &Route) -> Result<()>;

    /// Deletes a route that [`list`](Self::list) returned. Succeeds if it is already gone.
    async fn delete(&self, cluster_name: &str, route: &Route) -> Result<()>;
}

/// A route: packets for a pod CIDR go to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Its name in the cloud.
    pub name: String,
    /// The name of the Node that it leads to. Empty if the cloud does not know it, which is never so for a route that
    /// [`create`](Routes::create) made.
    pub target_node: String,
    /// Whether the cloud stores [`target_node_addresses`](Self::target_node_addresses), so that a change of
    /// the Node's addresses requires a new route.
    pub node_addresses_enabled: bool,
    /// Addresses of the target node.
    pub target_node_addresses: Vec<NodeAddress>,
    /// The pod CIDR, such as `10.244.3.0/24`, compared as text.
    pub destination_cidr: String,
    /// The target no longer exists and packets are dropped, so the route should be deleted.
    pub blackhole: bool,
}
