//! Calls of the provider's routes.

use std::sync::Arc;

use cloudprovider::{Error, Result, Route, Routes};

use super::{Cloud, Started, caught, guarded::CALL_TIMEOUT};

impl Cloud {
    /// Whether the provider can make routes.
    pub fn has_routes(&self) -> bool {
        caught(|| self.provider().routes().is_some()).unwrap_or(false)
    }

    /// The routes of this cluster.
    ///
    /// # Errors
    /// The provider's own error, a panic, or no answer within a minute. So for the other calls.
    pub async fn list_routes(&self, cluster_name: &str) -> Result<Vec<Route>> {
        let call = async |current: Arc<Started>| routes_of(&current)?.list(cluster_name).await;
        self.guarded("list_routes", CALL_TIMEOUT, call).await
    }

    /// Creates a route. `name_hint` is the Node's UID.
    pub async fn create_route(&self, cluster_name: &str, name_hint: &str, route: &Route) -> Result<()> {
        let call =
            async |current: Arc<Started>| routes_of(&current)?.create(cluster_name, name_hint, route).await;
        self.guarded("create_route", CALL_TIMEOUT, call).await
    }

    /// Deletes a route that was listed.
    pub async fn delete_route(&self, cluster_name: &str, route: &Route) -> Result<()> {
        let call = async |current: Arc<Started>| routes_of(&current)?.delete(cluster_name, route).await;
        self.guarded("delete_route", CALL_TIMEOUT, call).await
    }
}

fn routes_of(current: &Started) -> Result<&dyn Routes> {
    current.provider.routes().ok_or_else(|| Error::unsupported("the cloud provider does not support routes"))
}
