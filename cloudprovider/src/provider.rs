//! The top of the contract.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::{Clusters, Instances, LoadBalancer, NoSecrets, Result, Routes, SecretName, SecretSource, Zones};

/// A cloud, as the controllers see it.
///
/// Made by a factory in the [`Registry`](crate::Registry), which checks the whole configuration and calls nobody;
/// then started once. When the configuration changes, another one is made and started beside it, takes its place once it
/// answers as well, and [`StartContext::stop`] ends the old one. Each getter says once and for all whether the cloud can do that part: a controller whose part
/// is `None` does not start, with one log line.
#[async_trait]
pub trait CloudProvider: fmt::Debug + Send + Sync {
    /// The provider's name, as in `--cloud-provider` and before the `://` of its provider IDs.
    fn name(&self) -> &str;

    /// Begins background work, such as connections and inventories, and returns without waiting for the cloud: a
    /// cloud that is down when the daemon starts is an ordinary condition, reported by look-ups. Work ends when
    /// [`StartContext::stop`] is cancelled.
    ///
    /// # Errors
    /// Only what no waiting can mend.
    async fn start(&self, context: StartContext) -> Result<()>;

    /// Waits, once [`StartContext::stop`] is cancelled, until the work that [`start`](Self::start) began has ended, such
    /// as sessions that are logged out of. A process that is about to end gives it a few seconds. Without anything to
    /// wait for it returns at once.
    async fn ended(&self) {}

    /// The Secrets of the cluster that the configuration names, which the provider will follow once it is started: the
    /// daemon's account has to be allowed to read them. Known without any call.
    fn secrets(&self) -> Vec<SecretName> {
        Vec::new()
    }

    /// Whether one of these [`secrets`](Self::secrets) is needed. Where there are other credentials, which come first, it is
    /// no fault that it may not be read.
    fn needs_secret(&self, _secret: &SecretName) -> bool {
        true
    }

    /// Instances, without which no Node is initialised.
    fn instances(&self) -> Option<&dyn Instances>;

    /// Zones, where instances do not carry them.
    fn zones(&self) -> Option<&dyn Zones>;

    /// Load balancers for Services.
    fn load_balancer(&self) -> Option<&dyn LoadBalancer>;

    /// Pod routes.
    fn routes(&self) -> Option<&dyn Routes>;

    /// Kubernetes clusters in this cloud.
    fn clusters(&self) -> Option<&dyn Clusters>;
}

/// What a provider gets when it starts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StartContext {
    /// Cancelled when the daemon stops or another provider has taken over; background work ends with it.
    pub stop: CancellationToken,
    /// `--cluster-name`: marks what the provider creates as belonging to this cluster.
    pub cluster_name: String,
    /// Secrets of the cluster, for configurations that name some.
    pub secrets: Arc<dyn SecretSource>,
}

impl StartContext {
    /// A context for a cluster of this name, [without Secrets](NoSecrets).
    pub fn new(stop: CancellationToken, cluster_name: impl Into<String>) -> Self {
        Self { stop, cluster_name: cluster_name.into(), secrets: Arc::new(NoSecrets) }
    }

    /// The same with these Secrets.
    #[must_use]
    pub fn with_secrets(mut self, secrets: Arc<dyn SecretSource>) -> Self {
        self.secrets = secrets;
        self
    }
}
