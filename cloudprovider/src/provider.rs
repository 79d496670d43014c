//! The entry point of the contract.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::{
    Clusters, DynMachines, Instances, LoadBalancer, NoSecrets, NoServiceAccess, Result, Routes, SecretName,
    SecretSource, ServiceAccess, ServiceAccessNeeds, Zones,
};

/// A cloud, as the controllers see it.
///
/// A factory in the [`Registry`](crate::Registry) creates the provider. The factory checks the whole
/// configuration and makes no calls. The provider is then started once.
///
/// When the configuration changes, the factory creates another provider, which is started beside the old one.
/// Once the answers of the new provider are as good as those of the old one, it takes the old one's place,
/// and [`StartContext::stop`] ends the old one.
///
/// The getter of a part always gives the same result: either the cloud supports the part or it does not. A
/// controller whose part is `None` does not start, and logs one line. `None` is what a getter gives that a provider does not
/// write, so a provider goes on compiling when this contract gets another part.
#[async_trait]
pub trait CloudProvider: fmt::Debug + Send + Sync {
    /// The provider's name, as in `--cloud-provider` and before the `://` of its provider IDs.
    fn name(&self) -> &str;

    /// Begins background work, such as connections and inventories. Returns without waiting for the cloud: a
    /// cloud that is down when the daemon starts is an ordinary condition, which look-ups report. The work
    /// ends when [`StartContext::stop`] is cancelled.
    ///
    /// # Errors
    /// Only faults that waiting cannot remedy.
    async fn start(&self, context: StartContext) -> Result<()>;

    /// Waits until the work that [`start`](Self::start) began has ended, for example until sessions are
    /// logged out. Called after [`StartContext::stop`] was cancelled. A process that is about to exit waits a
    /// few seconds at most. If there is nothing to wait for, this returns at once.
    async fn ended(&self) {}

    /// The Secrets of the cluster that the configuration names. The provider follows them once it is started,
    /// so the daemon's account must be allowed to read them. This method makes no calls.
    fn secrets(&self) -> Vec<SecretName> {
        Vec::new()
    }

    /// What the configuration lets objects of namespaces name beyond their own, such as folders and networks: a line for each part, for
    /// the tool `check`. This method makes no calls.
    fn open_to_tenants(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the provider needs this one of its [`secrets`](Self::secrets). If other credentials take
    /// precedence, it is not a fault that the daemon may not read the Secret.
    fn needs_secret(&self, _secret: &SecretName) -> bool {
        true
    }

    /// What the provider does with [`StartContext::services`]. This method makes no calls.
    fn service_access_needs(&self) -> ServiceAccessNeeds {
        ServiceAccessNeeds::default()
    }

    /// Whether the provider changes the network of the daemon's own host: it adds addresses or routes, or sends packets
    /// below IP. The pod then needs the host network and the capabilities `NET_ADMIN` and `NET_RAW`. This method makes no
    /// calls.
    fn changes_host_network(&self) -> bool {
        false
    }

    /// What the cloud does not let the provider do, though it works without: each with what that costs and which right is
    /// missing. The daemon's subcommand `check` shows them, after it has looked up all Nodes. This method makes no calls.
    fn limits(&self) -> Vec<String> {
        Vec::new()
    }

    /// What the cloud opens to tenants though the configuration does not say so, such as a closed network that can be reached by another
    /// name. The tool `check` shows it as warnings. This may ask the cloud.
    async fn opened_unawares(&self) -> Vec<String> {
        Vec::new()
    }

    /// Instances. Without this part no Node is initialised.
    fn instances(&self) -> Option<&dyn Instances> {
        None
    }

    /// Zones, for clouds whose instances do not carry them.
    fn zones(&self) -> Option<&dyn Zones> {
        None
    }

    /// Load balancers for Services.
    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        None
    }

    /// Pod routes.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }

    /// Kubernetes clusters in this cloud.
    fn clusters(&self) -> Option<&dyn Clusters> {
        None
    }

    /// Machines that this cloud makes for Cluster API: `Some(self)` for a provider that implements
    /// [`Machines`](crate::machines::Machines).
    fn machines(&self) -> Option<&dyn DynMachines> {
        None
    }
}

/// What a provider gets when it starts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StartContext {
    /// Cancelled when the daemon stops or when another provider has taken over. Background work must then
    /// end.
    pub stop: CancellationToken,
    /// `--cluster-name`: marks what the provider creates as part of this cluster.
    pub cluster_name: String,
    /// `--cluster-cidr` as it is written: the ranges of the pods, separated by commas. Empty if it is not known. Where no routes are
    /// made, nothing else has checked it.
    pub cluster_cidr: String,
    /// The namespace of the daemon, in which its Lease is too.
    pub namespace: String,
    /// Reads Secrets of the cluster, for configurations that name some.
    pub secrets: Arc<dyn SecretSource>,
    /// Claims addresses for Services and writes to Services, for load balancers that no cloud runs.
    pub services: Arc<dyn ServiceAccess>,
    /// Whether load balancers may be asked for. If not, the provider serves machines alone: it claims and announces no
    /// addresses, whatever its configuration has for that.
    pub has_services: bool,
    /// How long after the death of a leading daemon another one leads at the earliest: `--leader-elect-lease-duration` less
    /// `--leader-elect-retry-period`. `None` without an election. It holds for a daemon whose renewals of the Lease work.
    /// [`ServiceAccess::alone_for`] returns the time that is left at each moment, also while renewals fail.
    pub takeover_after: Option<Duration>,
}

impl StartContext {
    /// A context for a cluster of this name, [without Secrets](NoSecrets) and [without Services](NoServiceAccess).
    pub fn new(stop: CancellationToken, cluster_name: impl Into<String>) -> Self {
        let (secrets, services) = (Arc::new(NoSecrets), Arc::new(NoServiceAccess));
        Self {
            stop,
            cluster_name: cluster_name.into(),
            cluster_cidr: String::new(),
            namespace: "kube-system".to_owned(),
            secrets,
            services,
            has_services: true,
            takeover_after: None,
        }
    }

    /// Sets [`takeover_after`](Self::takeover_after).
    #[must_use]
    pub fn with_takeover_after(mut self, takeover_after: Option<Duration>) -> Self {
        self.takeover_after = takeover_after;
        self
    }

    /// Sets the ranges of the pods.
    #[must_use]
    pub fn with_cluster_cidr(mut self, ranges: impl Into<String>) -> Self {
        self.cluster_cidr = ranges.into();
        self
    }

    /// Sets the namespace of the daemon. It is `kube-system` without this.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets where Secrets are read from.
    #[must_use]
    pub fn with_secrets(mut self, secrets: Arc<dyn SecretSource>) -> Self {
        self.secrets = secrets;
        self
    }

    /// Says that nobody asks for load balancers.
    #[must_use]
    pub fn without_services(mut self) -> Self {
        self.services = Arc::new(NoServiceAccess);
        self.has_services = false;
        self
    }

    /// Sets how Services are accessed.
    #[must_use]
    pub fn with_services(mut self, services: Arc<dyn ServiceAccess>) -> Self {
        self.services = services;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InstanceLookup, InstanceStream, NodeIdentity};

    /// What a provider must write. This compiles as long as the contract grows without breaking the providers that are there.
    #[derive(Debug)]
    struct Least;

    #[async_trait]
    impl CloudProvider for Least {
        fn name(&self) -> &'static str {
            "least"
        }
        async fn start(&self, _context: StartContext) -> Result<()> {
            Ok(())
        }
    }

    /// As providers were written before the contract had machines.
    #[derive(Debug)]
    struct WithoutMachines;

    #[async_trait]
    impl Instances for WithoutMachines {
        fn owns(&self, provider_id: &str) -> bool {
            provider_id.starts_with("old://")
        }
        async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
            nodes.iter().map(|_| InstanceLookup::Absent).collect()
        }
        fn changes(&self) -> Option<InstanceStream> {
            None
        }
    }

    #[async_trait]
    impl CloudProvider for WithoutMachines {
        fn name(&self) -> &'static str {
            "old"
        }
        async fn start(&self, _context: StartContext) -> Result<()> {
            Ok(())
        }
        fn instances(&self) -> Option<&dyn Instances> {
            Some(self)
        }
        fn zones(&self) -> Option<&dyn Zones> {
            None
        }
        fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
            None
        }
        fn routes(&self) -> Option<&dyn Routes> {
            None
        }
        fn clusters(&self) -> Option<&dyn Clusters> {
            None
        }
    }

    #[tokio::test]
    async fn a_provider_has_the_parts_that_it_names_and_no_others() {
        let parts = |provider: &dyn CloudProvider| {
            [
                provider.instances().is_some(),
                provider.zones().is_some(),
                provider.load_balancer().is_some(),
                provider.routes().is_some(),
                provider.clusters().is_some(),
                provider.machines().is_some(),
            ]
        };
        assert_eq!(parts(&Least), [false; 6]);
        assert_eq!(parts(&WithoutMachines), [true, false, false, false, false, false]);
        for provider in [&Least as &dyn CloudProvider, &WithoutMachines] {
            let context = StartContext::new(CancellationToken::new(), "kubernetes");
            assert!(provider.start(context).await.is_ok(), "{}", provider.name());
        }
    }
}
