//! Calls of the provider's routes.

use std::sync::Arc;

use cloudprovider::{Error, Result, Route, Routes};

use super::{
    Cloud, ProviderMetrics, Started, caught,
    guarded::{CALL_TIMEOUT, guarded},
};

/// The routes of one provider: the one that was in force when they were asked for. So a decision and all that follows from it
/// meet the same provider, even if another one takes over meanwhile. The provider is not stopped before this is dropped.
#[derive(Clone, Debug)]
pub struct CloudRoutes {
    provider: Arc<Started>,
    metrics: ProviderMetrics,
}

impl Cloud {
    /// Whether the provider can make routes.
    pub fn has_routes(&self) -> bool {
        caught(|| self.provider().routes().is_some()).unwrap_or(false)
    }

    /// The routes of the provider that is in force now.
    pub fn routes(&self) -> CloudRoutes {
        CloudRoutes { provider: self.current.load_full(), metrics: self.metrics.clone() }
    }
}

impl CloudRoutes {
    /// The routes of this cluster.
    ///
    /// # Errors
    /// The provider's own error, a panic, or no answer within a minute. So for the other calls.
    pub async fn list(&self, cluster_name: &str) -> Result<Vec<Route>> {
        self.call("list_routes", async { self.provider_routes()?.list(cluster_name).await }).await
    }

    /// Creates a route. `name_hint` is the Node's UID.
    pub async fn create(&self, cluster_name: &str, name_hint: &str, route: &Route) -> Result<()> {
        let call = async { self.provider_routes()?.create(cluster_name, name_hint, route).await };
        self.call("create_route", call).await
    }

    /// Deletes a route that was listed.
    pub async fn delete(&self, cluster_name: &str, route: &Route) -> Result<()> {
        self.call("delete_route", async { self.provider_routes()?.delete(cluster_name, route).await }).await
    }

    async fn call<T>(&self, operation: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        guarded(&self.metrics, operation, CALL_TIMEOUT, call).await
    }

    fn provider_routes(&self) -> Result<&dyn Routes> {
        let routes = self.provider.provider.routes();
        routes.ok_or_else(|| Error::unsupported("the cloud provider does not support routes"))
    }
}
