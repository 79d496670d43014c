//! Calls of the provider's load balancers.

use std::{sync::Arc, time::Duration};

use cloudprovider::{Error, LoadBalancer, LoadBalancerService, LoadBalancerStatus, NodeIdentity, Result};

use super::{Cloud, Started, caught, guarded::CALL_TIMEOUT};
use crate::nodes::Node;

/// Deadline of a call that changes a load balancer. Some clouds take minutes to make one.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(600);

impl Cloud {
    /// Whether the provider can make load balancers.
    pub fn has_load_balancers(&self) -> bool {
        caught(|| self.provider().load_balancer().is_some()).unwrap_or(false)
    }

    /// The name of this load balancer in the cloud. `None` where the provider panics when it is asked.
    pub fn load_balancer_name(&self, cluster_name: &str, service: &LoadBalancerService) -> Option<String> {
        let current = self.current.load_full();
        caught(|| Some(current.provider.load_balancer()?.name(cluster_name, service))).flatten()
    }

    /// The state of the load balancer, or `None` if there is none.
    ///
    /// # Errors
    /// The provider's own error, a panic, or no answer in time. The same holds for the calls below. A look has a minute, a
    /// call that changes something has ten.
    pub async fn get_load_balancer(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
    ) -> Result<Option<LoadBalancerStatus>> {
        let call = async |current: Arc<Started>| balancer_of(&current)?.get(cluster_name, service).await;
        self.guarded("get_load_balancer", CALL_TIMEOUT, call).await
    }

    /// Creates the load balancer, or changes it to match `service` and `nodes`.
    pub async fn ensure_load_balancer(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus> {
        let call = async |current: Arc<Started>| {
            balancer_of(&current)?.ensure(cluster_name, service, &identities(nodes)).await
        };
        self.guarded("ensure_load_balancer", CHANGE_TIMEOUT, call).await
    }

    /// Sets the back ends of the load balancer.
    pub async fn update_load_balancer(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
        nodes: &[Arc<Node>],
    ) -> Result<()> {
        let call = async |current: Arc<Started>| {
            balancer_of(&current)?.update(cluster_name, service, &identities(nodes)).await
        };
        self.guarded("update_load_balancer", CHANGE_TIMEOUT, call).await
    }

    /// Deletes the load balancer.
    pub async fn delete_load_balancer(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
    ) -> Result<()> {
        let call = async |current: Arc<Started>| balancer_of(&current)?.delete(cluster_name, service).await;
        self.guarded("delete_load_balancer", CHANGE_TIMEOUT, call).await
    }
}

fn balancer_of(current: &Started) -> Result<&dyn LoadBalancer> {
    current
        .provider
        .load_balancer()
        .ok_or_else(|| Error::unsupported("the cloud provider does not support load balancers"))
}

fn identities(nodes: &[Arc<Node>]) -> Vec<&NodeIdentity> {
    nodes.iter().map(|node| &node.identity).collect()
}
