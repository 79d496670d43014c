//! The libvirt provider.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use address_pools::PooledLoadBalancer;
use cloudprovider::{
    CloudProvider, Clusters, Error, ErrorKind, FactoryInput, InstanceChange, Instances, LoadBalancer, Result,
    Routes, ServiceAccessNeeds, StartContext, Zones, async_trait, ties::LastSeen,
};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::{
    sync::{broadcast, mpsc, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

#[cfg(feature = "machines")]
use crate::machines::{CallsOf, HostCalls, LibvirtMachines};
use crate::{
    NAME,
    config::Config,
    connection,
    hypervisor::{Command, Hypervisor, HypervisorHandle, ProviderState},
    kernel_routes::KernelRoutes,
    resolve::View,
    uri,
    worker::WorkerCount,
};

/// How many changes a slow listener may lag behind before it has to read everything again.
const CHANGES_KEPT: usize = 256;

/// libvirt as a cloud: one or more hypervisors, each of them a libvirtd.
#[derive(Debug)]
pub struct LibvirtProvider {
    config: Arc<Config>,
    pub(crate) hypervisors: Vec<Arc<Hypervisor>>,
    /// Set if the configuration has address pools.
    load_balancer: Option<PooledLoadBalancer>,
    /// The receivers for the actors' commands, until the start.
    receivers: Mutex<Option<Vec<mpsc::UnboundedReceiver<Command>>>>,
    /// One task for each hypervisor, and one that waits for the stop.
    actors: TaskTracker,
    /// The threads of all hypervisors.
    workers: WorkerCount,
    pub(crate) status_changes: watch::Sender<u64>,
    pub(crate) instance_changes: broadcast::Sender<InstanceChange>,
    pub(crate) started: OnceLock<Instant>,
    pub(crate) stopped: CancellationToken,
    kernel_routes: KernelRoutes,
    #[cfg(feature = "machines")]
    machines: Arc<LibvirtMachines>,
    /// Where the domains of Nodes were found last.
    last_seen: LastSeen<Box<str>>,
}

/// Makes a provider from a configuration text and the files that it names. Checks everything and opens no
/// connection.
///
/// # Errors
/// [`ErrorKind::InvalidConfiguration`] with every fault found.
pub fn factory(input: &FactoryInput) -> Result<Arc<dyn CloudProvider>> {
    Ok(Arc::new(LibvirtProvider::new(Config::read(input)?)))
}

impl LibvirtProvider {
    /// A provider for these hypervisors. It does nothing until [`start`](CloudProvider::start).
    pub fn new(config: Config) -> Self {
        Self::with_calls(
            config,
            #[cfg(feature = "machines")]
            &HostCalls::of_libvirt,
        )
    }

    /// Like [`new`](Self::new), with other calls for machines.
    pub(crate) fn with_calls(config: Config, #[cfg(feature = "machines")] calls_of: &CallsOf) -> Self {
        let config = Arc::new(config);
        let (status_changes, _) = watch::channel(0);
        let (instance_changes, _) = broadcast::channel(CHANGES_KEPT);
        let state = ProviderState::new(Arc::clone(&config), status_changes.clone(), instance_changes.clone());
        let workers = state.workers.clone();
        let (hypervisors, receivers): (Vec<_>, _) = config
            .hypervisors
            .iter()
            .map(|hypervisor| Hypervisor::new(hypervisor.clone(), state.clone()))
            .unzip();
        let (actors, stopped) = (TaskTracker::new(), CancellationToken::new());
        #[cfg(feature = "machines")]
        let machines = LibvirtMachines::new(
            Arc::clone(&config),
            &hypervisors,
            instance_changes.clone(),
            stopped.clone(),
            actors.clone(),
            calls_of,
        );
        let of_hypervisors = config.hypervisors.iter().filter_map(|one| uri::address(&one.uri)).collect();
        let load_balancer =
            config.address_pools.clone().map(|pools| PooledLoadBalancer::new_beside(pools, of_hypervisors));
        Self {
            config,
            hypervisors,
            load_balancer,
            receivers: Mutex::new(Some(receivers)),
            actors,
            workers,
            status_changes,
            instance_changes,
            started: OnceLock::new(),
            stopped,
            kernel_routes: KernelRoutes::default(),
            #[cfg(feature = "machines")]
            machines: Arc::new(machines),
            last_seen: LastSeen::default(),
        }
    }

    /// The hypervisor with this name in the configuration, to act on its domains.
    pub fn hypervisor(&self, name: &str) -> Option<HypervisorHandle> {
        self.hypervisors.iter().find(|one| one.name() == name).map(|one| HypervisorHandle(Arc::clone(one)))
    }

    /// All hypervisors, in the order of the configuration.
    pub fn hypervisors(&self) -> impl Iterator<Item = HypervisorHandle> {
        self.hypervisors.iter().map(|one| HypervisorHandle(Arc::clone(one)))
    }

    /// The number of calls to libvirt since the start, by operation, over all hypervisors. Calls through
    /// [`HypervisorHandle::with_connection`] are not counted.
    pub fn call_counts(&self) -> BTreeMap<&'static str, u64> {
        let mut sum = BTreeMap::new();
        for hypervisor in &self.hypervisors {
            hypervisor.counts.add_to(&mut sum);
        }
        sum
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// What the steps of machines work with.
    #[cfg(test)]
    pub(crate) fn libvirt_machines(&self) -> &LibvirtMachines {
        &self.machines
    }

    pub(crate) fn kernel_routes(&self) -> &KernelRoutes {
        &self.kernel_routes
    }

    /// How long ago the provider was started; `None` before that.
    pub(crate) fn time_since_start(&self) -> Option<Duration> {
        self.started.get().map(Instant::elapsed)
    }

    pub(crate) fn view(&self) -> View<'_> {
        View::new(&self.hypervisors, &self.config.addresses, &self.last_seen)
    }
}

#[async_trait]
impl CloudProvider for LibvirtProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn open_to_tenants(&self) -> Vec<String> {
        self.config.allow.lines()
    }

    async fn opened_unawares(&self) -> Vec<String> {
        if !self.config.allow.has_bridges() {
            return Vec::new();
        }
        let listings = self.hypervisors().map(|hypervisor| async move {
            // The actor reports a hypervisor that cannot be asked.
            hypervisor.bridged_networks().await.unwrap_or_default()
        });
        self.config.allow.networks_behind_bridges(&join_all(listings).await.concat())
    }

    async fn start(&self, context: StartContext) -> Result<()> {
        let receivers = self.receivers.lock().take();
        let Some(receivers) = receivers else {
            return Err(Error::new(ErrorKind::Conflict, "the provider was started already"));
        };
        let _ = self.started.set(Instant::now());
        #[cfg(feature = "machines")]
        for part in self.machines.inside.add_ranges(&context.cluster_cidr) {
            tracing::warn!(
                part,
                "a part of --cluster-cidr is left out: it is no range such as 10.244.0.0/16; image.url reaches public addresses in it"
            );
        }
        for (hypervisor, commands) in self.hypervisors.iter().zip(receivers) {
            let actor = connection::run(Arc::clone(hypervisor), commands, context.stop.clone());
            self.actors.spawn(actor);
        }
        self.workers.started(&context.stop, &self.actors);
        if let Some(load_balancer) = &self.load_balancer {
            load_balancer.start(&context, &self.actors)?;
        }
        let stopped = self.stopped.clone();
        #[cfg(feature = "machines")]
        let machines = Arc::clone(&self.machines);
        self.actors.spawn(async move {
            context.stop.cancelled().await;
            stopped.cancel();
            #[cfg(feature = "machines")]
            machines.close();
        });
        Ok(())
    }

    async fn ended(&self) {
        // actors first: one that has just begun may be about to start a thread
        self.actors.close();
        self.actors.wait().await;
        self.workers.all_ended().await;
    }

    fn service_access_needs(&self) -> ServiceAccessNeeds {
        self.load_balancer.as_ref().map(PooledLoadBalancer::needs).unwrap_or_default()
    }

    fn changes_host_network(&self) -> bool {
        self.config.has_routes || self.load_balancer.as_ref().is_some_and(PooledLoadBalancer::announces)
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn zones(&self) -> Option<&dyn Zones> {
        // instances carry what the configuration says of their hypervisor
        None
    }

    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        self.load_balancer.as_ref().map(|load_balancer| load_balancer as &dyn LoadBalancer)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        if self.config.has_routes { Some(self) } else { None }
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        Some(self)
    }

    #[cfg(feature = "machines")]
    fn machines(&self) -> Option<&dyn cloudprovider::DynMachines> {
        Some(&*self.machines)
    }
}
