//! The load balancers of Services, by mode.

mod harvester;

use address_pools::PooledLoadBalancer;
use cloudprovider::{LoadBalancer, Result, ServiceAccessNeeds, StartContext};
use tokio_util::task::TaskTracker;

use self::harvester::HarvesterLoadBalancers;
#[cfg(feature = "cattle")]
use crate::cattle::load_balancer::CattleLoadBalancers;
use crate::config::{Config, LoadBalancerMode};

/// The load balancers of a cluster.
#[derive(Debug)]
pub(crate) enum LoadBalancers {
    /// None: Services are left to others.
    None,
    /// Those of Rancher 1.6.
    #[cfg(feature = "cattle")]
    Cattle(Box<CattleLoadBalancers>),
    /// Addresses from pools.
    Pool(PooledLoadBalancer),
    /// Those of Harvester.
    Harvester(Box<HarvesterLoadBalancers>),
}

impl LoadBalancers {
    /// The load balancers of the configured mode, but for `cattle`, which needs the client of the hosts.
    pub(crate) fn new(config: &Config) -> Self {
        match (config.load_balancer.mode, &config.address_pools, &config.harvester) {
            (LoadBalancerMode::Pool, Some(pools), _) => Self::Pool(PooledLoadBalancer::new(pools.clone())),
            (LoadBalancerMode::Harvester, _, Some(settings)) => {
                let (retry_interval, timeout) = (config.load_balancer.retry_interval, config.server.timeout);
                let harvester = HarvesterLoadBalancers::new(settings.clone(), retry_interval, timeout);
                Self::Harvester(Box::new(harvester))
            }
            // A configuration that was read has the settings of its mode.
            _ => Self::None,
        }
    }

    /// Begins the work in the background.
    ///
    /// # Errors
    /// Only faults that waiting cannot remedy.
    pub(crate) fn start(&self, context: &StartContext, tasks: &TaskTracker) -> Result<()> {
        match self {
            Self::None => Ok(()),
            #[cfg(feature = "cattle")]
            Self::Cattle(_) => Ok(()),
            Self::Pool(pools) => pools.start(context, tasks),
            Self::Harvester(harvester) => harvester.start(context),
        }
    }

    /// What is done with [`StartContext::services`].
    pub(crate) fn needs(&self) -> ServiceAccessNeeds {
        match self {
            Self::None => ServiceAccessNeeds::default(),
            #[cfg(feature = "cattle")]
            Self::Cattle(_) => ServiceAccessNeeds::default(),
            Self::Pool(pools) => pools.needs(),
            Self::Harvester(harvester) => harvester.needs(),
        }
    }

    /// Whether addresses are announced on the interfaces of this host.
    pub(crate) fn announces(&self) -> bool {
        matches!(self, Self::Pool(pools) if pools.announces())
    }

    /// The part of the contract.
    pub(crate) fn part(&self) -> Option<&dyn LoadBalancer> {
        match self {
            Self::None => None,
            #[cfg(feature = "cattle")]
            Self::Cattle(part) => Some(&**part),
            Self::Pool(part) => Some(part),
            Self::Harvester(part) => Some(&**part),
        }
    }
}
