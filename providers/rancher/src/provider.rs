//! The Rancher provider.

use std::sync::{Arc, OnceLock};

use cloudprovider::{
    CloudProvider, Clusters, ConfigProblem, DynMachines, Error, ErrorKind, FactoryInput, InstanceLookup,
    InstanceStream, Instances, LoadBalancer, NodeIdentity, Result, Routes, StartContext, Zones, async_trait,
};
use tokio_util::task::TaskTracker;

use crate::{
    NAME,
    cattle::load_balancer::CattleLoadBalancers,
    config::{ApiVersion, Config, Environment, LoadBalancerMode},
    hosts::HostInstances,
    norman::client::Client,
};

/// Rancher as a cloud.
#[derive(Debug)]
pub struct RancherProvider {
    instances: HostInstances,
    load_balancer: Option<Box<dyn LoadBalancer>>,
    started: OnceLock<()>,
    tasks: TaskTracker,
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
        if config.api_version == ApiVersion::V3 {
            return Err(invalid(ConfigProblem::new("apiVersion", "Rancher 2.x (v3) is not supported yet")));
        }
        let client = Client::new(&config.server, &config.cattle_url()).map_err(invalid)?;
        let instances = HostInstances::new(client.clone(), config);
        let load_balancer = load_balancer(config, client, &instances);
        Ok(Self { instances, load_balancer, started: OnceLock::new(), tasks: TaskTracker::new() })
    }
}

/// The load balancers of the configured mode.
fn load_balancer(
    config: &Config,
    client: Client,
    instances: &HostInstances,
) -> Option<Box<dyn LoadBalancer>> {
    match config.load_balancer.mode {
        LoadBalancerMode::None => None,
        LoadBalancerMode::Cattle => {
            let hosts = Arc::clone(instances.hosts());
            Some(Box::new(CattleLoadBalancers::new(client, hosts, config.load_balancer.clone())))
        }
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
        self.tasks.spawn(self.instances.follow(context.stop));
        Ok(())
    }

    async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(&self.instances)
    }

    fn zones(&self) -> Option<&dyn Zones> {
        // Instances carry what the labels of the hosts say.
        None
    }

    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        self.load_balancer.as_deref()
    }

    fn routes(&self) -> Option<&dyn Routes> {
        None
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        None
    }

    fn machines(&self) -> Option<&dyn DynMachines> {
        None
    }
}

#[async_trait]
impl Instances for RancherProvider {
    fn owns(&self, provider_id: &str) -> bool {
        self.instances.owns(provider_id)
    }

    fn provider_id_form(&self) -> Option<&str> {
        self.instances.provider_id_form()
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        self.instances.lookup(nodes).await
    }

    fn changes(&self) -> Option<InstanceStream> {
        self.instances.changes()
    }
}
