//! The Rancher provider.

use std::sync::{Arc, OnceLock};

use cloudprovider::{
    CloudProvider, Clusters, ConfigProblem, DynMachines, Error, ErrorKind, FactoryInput, InstanceLookup,
    InstanceStream, Instances, LoadBalancer, NodeIdentity, Result, Routes, ServiceAccessNeeds, StartContext,
    Zones, async_trait,
};
use tokio_util::task::TaskTracker;

#[cfg(feature = "cattle")]
use crate::cattle::{instances::HostInstances, load_balancer::CattleLoadBalancers};
use crate::{
    NAME,
    config::{Config, Environment, LoadBalancerMode},
    load_balancers::LoadBalancers,
    management::{clusters::ManagementClusters, instances::MachineInstances},
    norman::client::Client,
};

/// Rancher as a cloud.
#[derive(Debug)]
pub struct RancherProvider {
    platform: Platform,
    load_balancers: LoadBalancers,
    /// Set with Rancher 2.x.
    clusters: Option<ManagementClusters>,
    started: OnceLock<()>,
    tasks: TaskTracker,
}

/// What the server is.
#[derive(Debug)]
enum Platform {
    /// Rancher 1.6.
    #[cfg(feature = "cattle")]
    Cattle(Box<HostInstances>),
    /// Rancher 2.x.
    Management(Box<MachineInstances>),
}

impl Platform {
    fn instances(&self) -> &dyn Instances {
        match self {
            #[cfg(feature = "cattle")]
            Self::Cattle(instances) => &**instances,
            Self::Management(instances) => &**instances,
        }
    }
}

/// Makes a provider from a configuration text and the environment. Checks everything and opens no connection.
///
/// # Errors
/// [`ErrorKind::InvalidConfiguration`] with every fault found.
pub fn factory(input: &FactoryInput) -> Result<Arc<dyn CloudProvider>> {
    let config = Config::read(input, &Environment::of_process())?;
    Ok(Arc::new(RancherProvider::new(&config)?))
}

impl RancherProvider {
    /// A provider with this configuration. It does nothing until [`start`](CloudProvider::start).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfiguration`] if there can be no client with these settings.
    pub fn new(config: &Config) -> Result<Self> {
        let invalid = |problem| Error::invalid_configuration(vec![problem]);
        let client = |url: &str| Client::new(&config.server, url).map_err(invalid);
        let management = client(&config.management_url())?;
        let clusters = config.management.is_some().then(|| ManagementClusters::new(management.clone()));
        let platform = match &config.management {
            Some(cluster) => {
                Platform::Management(Box::new(MachineInstances::new(management, config, cluster)))
            }
            #[cfg(not(feature = "cattle"))]
            None => return Err(invalid(ConfigProblem::new("apiVersion", "must be v3"))),
            #[cfg(feature = "cattle")]
            None => {
                let asked = (config.api_version == crate::config::ApiVersion::Auto).then_some(management);
                Platform::Cattle(Box::new(HostInstances::new(client(&config.cattle_url())?, asked, config)))
            }
        };
        let load_balancers = load_balancers(config, &platform)?;
        Ok(Self { platform, load_balancers, clusters, started: OnceLock::new(), tasks: TaskTracker::new() })
    }
}

/// The load balancers of the configured mode.
///
/// # Errors
/// [`ErrorKind::InvalidConfiguration`] if this Rancher has none of the kind.
fn load_balancers(config: &Config, platform: &Platform) -> Result<LoadBalancers> {
    match (config.load_balancer.mode, platform) {
        #[cfg(feature = "cattle")]
        (LoadBalancerMode::Cattle, Platform::Cattle(instances)) => {
            let (client, hosts) = (instances.client().clone(), Arc::clone(instances.hosts()));
            let retry_interval = config.load_balancer.retry_interval;
            let cattle = CattleLoadBalancers::new(client, hosts, config.cattle.clone(), retry_interval);
            Ok(LoadBalancers::Cattle(Box::new(cattle)))
        }
        (LoadBalancerMode::Cattle, Platform::Management(_)) => {
            let problem = ConfigProblem::new("loadBalancer.mode", "cattle needs Rancher 1.6");
            Err(Error::invalid_configuration(vec![problem]))
        }
        _ => Ok(LoadBalancers::new(config)),
    }
}

#[async_trait]
impl CloudProvider for RancherProvider {
    fn name(&self) -> &str {
        NAME
    }

    async fn start(&self, context: StartContext) -> Result<()> {
        if self.started.set(()).is_err() {
            return Err(Error::new(ErrorKind::Conflict, "the provider was started already"));
        }
        self.load_balancers.start(&context, &self.tasks)?;
        match &self.platform {
            #[cfg(feature = "cattle")]
            Platform::Cattle(instances) => self.tasks.spawn(instances.follow(context.stop)),
            Platform::Management(instances) => self.tasks.spawn(instances.follow(context.stop)),
        };
        Ok(())
    }

    async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn service_access_needs(&self) -> ServiceAccessNeeds {
        self.load_balancers.needs()
    }

    fn changes_host_network(&self) -> bool {
        self.load_balancers.announces()
    }

    fn limits(&self) -> Vec<String> {
        match &self.platform {
            #[cfg(feature = "cattle")]
            Platform::Cattle(_) => Vec::new(),
            Platform::Management(instances) => instances.limits(),
        }
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self.platform.instances())
    }

    fn zones(&self) -> Option<&dyn Zones> {
        // Instances carry what the labels of the hosts say.
        None
    }

    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        self.load_balancers.part()
    }

    fn routes(&self) -> Option<&dyn Routes> {
        None
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        self.clusters.as_ref().map(|clusters| clusters as &dyn Clusters)
    }

    fn machines(&self) -> Option<&dyn DynMachines> {
        None
    }
}

#[async_trait]
impl Instances for RancherProvider {
    fn owns(&self, provider_id: &str) -> bool {
        self.platform.instances().owns(provider_id)
    }

    fn provider_id_form(&self) -> Option<&str> {
        self.platform.instances().provider_id_form()
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        self.platform.instances().lookup(nodes).await
    }

    fn changes(&self) -> Option<InstanceStream> {
        self.platform.instances().changes()
    }
}
