//! The libvirt provider.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use address_pools::PooledLoadBalancer;
use cloudprovider::{
    CloudProvider, Clusters, DynMachines, Error, ErrorKind, FactoryInput, InstanceChange, InstanceLookup,
    InstanceStream, Instances, LoadBalancer, NodeIdentity, Result, Routes, ServiceAccessNeeds, StartContext,
    Zones, async_trait, instance_stream, look_once_listed,
};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::{
    sync::{broadcast, mpsc, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    NAME,
    calls::Failure,
    config::Config,
    connection,
    hypervisor::{Command, Hypervisor, HypervisorHandle, Shared},
    instances::{Answer, Seen, View, domain_ids},
    kernel_routes::KernelRoutes,
    machines::{CallsOf, Fleet, HostCalls},
    provider_id::{DomainId, FORM, parse_provider_id},
    uri,
    worker::WorkerCount,
};

/// How long after the start look-ups wait for the first listing.
const START_GRACE: Duration = Duration::from_secs(5);

/// How many changes a slow listener may lag behind before it has to read everything again.
const CHANGES_KEPT: usize = 256;

/// libvirt as a cloud: one or more hypervisors, each of them a libvirtd.
#[derive(Debug)]
pub struct LibvirtProvider {
    config: Arc<Config>,
    hypervisors: Vec<Arc<Hypervisor>>,
    /// Set if the configuration has address pools.
    load_balancer: Option<PooledLoadBalancer>,
    /// The receivers for the actors' commands, until the start.
    receivers: Mutex<Option<Vec<mpsc::UnboundedReceiver<Command>>>>,
    /// One task for each hypervisor, and one that waits for the stop.
    actors: TaskTracker,
    /// The threads of all hypervisors.
    workers: WorkerCount,
    status_changes: watch::Sender<u64>,
    instance_changes: broadcast::Sender<InstanceChange>,
    started: OnceLock<Instant>,
    stopped: CancellationToken,
    kernel_routes: KernelRoutes,
    fleet: Arc<Fleet>,
    /// Where the domains of Nodes were found last.
    seen: Seen,
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
        Self::with_calls(config, &HostCalls::of_libvirt)
    }

    /// Like [`new`](Self::new), with other calls for machines.
    pub(crate) fn with_calls(config: Config, calls_of: &CallsOf) -> Self {
        let config = Arc::new(config);
        let (status_changes, _) = watch::channel(0);
        let (instance_changes, _) = broadcast::channel(CHANGES_KEPT);
        let shared = Shared::new(Arc::clone(&config), status_changes.clone(), instance_changes.clone());
        let workers = shared.workers.clone();
        let (hypervisors, receivers): (Vec<_>, _) = config
            .hypervisors
            .iter()
            .map(|hypervisor| Hypervisor::new(hypervisor.clone(), shared.clone()))
            .unzip();
        let (actors, stopped) = (TaskTracker::new(), CancellationToken::new());
        let fleet = Fleet::new(
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
            fleet: Arc::new(fleet),
            seen: Seen::default(),
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
    pub(crate) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    pub(crate) fn kernel_routes(&self) -> &KernelRoutes {
        &self.kernel_routes
    }

    /// How long ago the provider was started; `None` before that.
    pub(crate) fn time_since_start(&self) -> Option<Duration> {
        self.started.get().map(Instant::elapsed)
    }

    pub(crate) fn view(&self) -> View<'_> {
        View::new(&self.hypervisors, &self.config.addresses, &self.seen)
    }

    /// Looks up these nodes. Waits for the first listings if that may change an answer, up to [`START_GRACE`]
    /// after the start.
    async fn answers(&self, nodes: &[&NodeIdentity]) -> Vec<Answer> {
        let look = || {
            let view = self.view();
            nodes.iter().map(|node| view.look_up(node)).collect()
        };
        let waits = |answer: &Answer| matches!(answer, Answer::Starting(_));
        let deadline = self.started.get().map(|started| *started + START_GRACE.min(self.config.call_timeout));
        look_once_listed(look, waits, self.status_changes.subscribe(), deadline).await
    }

    /// Settles nodes that are in no inventory. They are absent only if every hypervisor confirms its list and
    /// then, asked for the domain itself, denies having it. The list alone is not enough: it omits domains
    /// that the user may not see.
    async fn settle_nowhere(&self, nodes: &[&NodeIdentity], answers: &mut [Answer]) {
        let confirmed = join_all(self.hypervisors.iter().map(|one| one.confirm())).await;
        let nowhere = self.still_nowhere(nodes, answers);
        let doubts = confirmed.into_iter().map(Result::err);
        if let Some(error) = self.doubt(doubts) {
            for i in nowhere {
                answers[i] = Answer::Settled(Error::new(error.kind(), error.to_string()).into());
            }
            return;
        }
        if nowhere.is_empty() {
            return;
        }
        let wanted: Vec<_> = nowhere.iter().map(|i| domain_ids(nodes[*i])).collect();
        let probed = join_all(self.hypervisors.iter().map(|one| one.probe(wanted.clone()))).await;
        // meanwhile a hypervisor may have been lost, or may have reported the domain
        let left = self.still_nowhere(nodes, answers);
        for (k, i) in nowhere.into_iter().enumerate().filter(|(_, i)| left.contains(i)) {
            let doubts = probed.iter().map(|result| match result {
                Ok(probed) => probed.doubts.get(k).cloned().flatten(),
                Err(failure) => Some(failure.clone()),
            });
            answers[i] = Answer::Settled(match self.doubt(doubts) {
                Some(error) => error.into(),
                None => InstanceLookup::Absent,
            });
        }
    }

    /// Remembers which domain is which Node, for the routes.
    fn note_names(&self, nodes: &[&NodeIdentity], lookups: &[InstanceLookup]) {
        for (node, lookup) in nodes.iter().zip(lookups) {
            let InstanceLookup::Present(instance) = lookup else { continue };
            let id = instance.provider_id.as_ref().map(|id| parse_provider_id(id.as_str()));
            if let Some(Ok(DomainId::Uuid(domain))) = id {
                self.kernel_routes.note_node(domain, node);
            }
        }
    }

    /// Looks up the nodes that were nowhere again, and returns those that still are.
    fn still_nowhere(&self, nodes: &[&NodeIdentity], answers: &mut [Answer]) -> BTreeSet<usize> {
        let view = self.view();
        let mut nowhere = BTreeSet::new();
        for (i, (node, answer)) in nodes.iter().zip(answers).enumerate() {
            if matches!(answer, Answer::Nowhere) {
                *answer = view.look_up(node);
                if matches!(answer, Answer::Nowhere) {
                    nowhere.insert(i);
                }
            }
        }
        nowhere
    }

    /// Why some hypervisors cannot confirm that a domain does not exist, each with libvirt's message.
    fn doubt(&self, doubts: impl Iterator<Item = Option<Failure>>) -> Option<Error> {
        let mut words = Vec::new();
        let mut kind = ErrorKind::Unavailable;
        for (hypervisor, failure) in self.hypervisors.iter().zip(doubts) {
            if let Some(failure) = failure {
                kind = failure.kind;
                words.push(format!("hypervisor {:?}: {}", hypervisor.name(), failure.message));
            }
        }
        (!words.is_empty()).then(|| {
            let message =
                format!("cannot confirm that there is no domain for this node: {}", words.join("; "));
            Error::new(kind, message)
        })
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
            // Of one that cannot be asked nothing is said here: it is told elsewhere.
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
        for part in self.fleet.inside.add_ranges(&context.cluster_cidr) {
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
        let (stopped, fleet) = (self.stopped.clone(), Arc::clone(&self.fleet));
        self.actors.spawn(async move {
            context.stop.cancelled().await;
            stopped.cancel();
            fleet.close();
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

    fn machines(&self) -> Option<&dyn DynMachines> {
        Some(&*self.fleet)
    }
}

#[async_trait]
impl Instances for LibvirtProvider {
    fn owns(&self, provider_id: &str) -> bool {
        parse_provider_id(provider_id).is_ok()
    }
    fn provider_id_form(&self) -> Option<&str> {
        Some(FORM)
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        let mut answers = self.answers(nodes).await;
        if answers.iter().any(|answer| matches!(answer, Answer::Nowhere)) {
            self.settle_nowhere(nodes, &mut answers).await;
        }
        let lookups: Vec<InstanceLookup> = answers
            .into_iter()
            .map(|answer| match answer {
                Answer::Settled(lookup) => lookup,
                Answer::Starting(error) => error.into(),
                Answer::Nowhere => Error::new(ErrorKind::Internal, "a look-up was left unsettled").into(),
            })
            .collect();
        if self.config.has_routes {
            self.note_names(nodes, &lookups);
        }
        lookups
    }

    fn changes(&self) -> Option<InstanceStream> {
        Some(instance_stream(self.instance_changes.subscribe(), self.stopped.clone()))
    }
}
