//! The machines of this provider: what their steps work with.

use std::{collections::HashMap, sync::Arc};

use cloudprovider::{
    Error, ErrorKind, FairPermits, InstanceChange, InstanceLookup, InstanceRef, NodeIdentity, Result,
    machines::{Mark, ObjectLocks},
    ties::{Contender, Meant, the_meant_one},
};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{
    console::ConsoleReads,
    domains::Domains,
    endpoint::UnprovenClaims,
    identity::Identity,
    kept_macs::KeptMacs,
    placement::Placer,
    reservation::{LibvirtNetworks, NetworkCalls},
    storage::{Inside, LibvirtStorage, MachineStorage, StorageCalls},
};
use crate::{
    config::Config,
    domain::Domain,
    hypervisor::Hypervisor,
    provider_id::{DomainId, format_provider_id},
    resolve::{evidence, instance_on},
    uri,
    worker_pool::{Namespace, WorkerPool},
};

/// The calls of a hypervisor that libvirt's test driver cannot answer. Tests have their own.
#[derive(Clone, Debug)]
pub(crate) struct HostCalls {
    pub(crate) storage: Arc<dyn StorageCalls>,
    pub(crate) networks: Arc<dyn NetworkCalls>,
}

/// Makes the calls of the hypervisor of these threads.
pub(crate) type CallsOf = dyn Fn(&Arc<WorkerPool>) -> HostCalls;

impl HostCalls {
    /// The calls, as libvirt takes them.
    pub(crate) fn of_libvirt(workers: &Arc<WorkerPool>) -> Self {
        Self {
            storage: Arc::new(LibvirtStorage::new(Arc::clone(workers))),
            networks: Arc::new(LibvirtNetworks::new(Arc::clone(workers))),
        }
    }
}

/// Seeds for one hypervisor that are in memory at the same time. Each has at least 1 MiB, and is there twice while it is
/// uploaded or compared. More could not be uploaded at once.
const MAX_SEEDS: usize = 3;

/// A hypervisor, as a place for machines.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) hypervisor: Arc<Hypervisor>,
    pub(crate) domains: Domains,
    pub(crate) storage: Arc<dyn StorageCalls>,
    pub(crate) networks: Arc<dyn NetworkCalls>,
    /// A step holds a permit while it makes and uploads a seed. Namespaces take turns.
    pub(crate) seeds: FairPermits<Namespace>,
    workers: Arc<WorkerPool>,
}

impl Host {
    pub(crate) fn name(&self) -> &str {
        self.hypervisor.name()
    }

    /// The failure domain of machines on it.
    pub(crate) fn failure_domain(&self) -> &str {
        self.hypervisor.config.failure_domain()
    }

    /// An error unless its inventory is complete and live.
    pub(crate) fn check_live(&self) -> Result<()> {
        self.hypervisor.staleness(&self.hypervisor.state().status).map_or(Ok(()), Err)
    }
}

/// The hypervisors with their storage and networks, and what this process remembers of machines between two steps.
#[derive(Debug)]
pub(crate) struct LibvirtMachines {
    pub(crate) config: Arc<Config>,
    pub(crate) hypervisors: Vec<Arc<Hypervisor>>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) storage: MachineStorage,
    /// Addresses from which no tenant's image comes: those of the hypervisors and, from the start on, of the pods.
    pub(crate) inside: Inside,
    pub(crate) placer: Placer,
    /// When the logs of guests without an address were read.
    pub(crate) console_reads: ConsoleReads,
    /// The MAC addresses of machines whose domain is not there yet.
    pub(crate) kept_macs: KeptMacs,
    /// What the log has said of claims of clusters.
    pub(crate) unproven_claims: UnprovenClaims,
    /// The hypervisors that this process has chosen for machines whose domain is not there yet.
    chosen: Mutex<HashMap<Identity, String>>,
    /// Each call to libvirt holds that of its object: it cannot be broken off.
    pub(crate) object_locks: ObjectLocks,
}

impl LibvirtMachines {
    /// Nothing runs yet. Its work ends when `stop` is cancelled; `tasks` has its tasks.
    pub(crate) fn new(
        config: Arc<Config>,
        hypervisors: &[Arc<Hypervisor>],
        changes: broadcast::Sender<InstanceChange>,
        stop: CancellationToken,
        tasks: TaskTracker,
        calls_of: &CallsOf,
    ) -> Self {
        let host = |hypervisor: &Arc<Hypervisor>| {
            let workers = Arc::new(WorkerPool::new(Arc::clone(hypervisor)));
            let HostCalls { storage, networks } = calls_of(&workers);
            let domains = Domains::new(Arc::clone(&workers));
            let seeds = FairPermits::new(MAX_SEEDS);
            Host { hypervisor: Arc::clone(hypervisor), domains, storage, networks, seeds, workers }
        };
        let wake = Arc::new(move |uids: Vec<String>| {
            let machine = |uid| InstanceRef { machine: Some(uid), ..InstanceRef::default() };
            // An error means that there are no listeners.
            let _ = changes.send(InstanceChange::Changed(uids.into_iter().map(machine).collect()));
        });
        let inside = Inside::default();
        inside.add(config.hypervisors.iter().filter_map(|one| uri::address(&one.uri)));
        Self {
            config,
            hypervisors: hypervisors.to_vec(),
            hosts: hypervisors.iter().map(host).collect(),
            storage: MachineStorage::new(wake, stop, tasks, inside.clone()),
            inside,
            placer: Placer::default(),
            console_reads: ConsoleReads::default(),
            kept_macs: KeptMacs::default(),
            unproven_claims: UnprovenClaims::default(),
            chosen: Mutex::default(),
            object_locks: ObjectLocks::default(),
        }
    }

    /// Ends the threads, as soon as what they do has ended.
    pub(crate) fn close(&self) {
        for host in &self.hosts {
            host.workers.close();
        }
    }

    /// The hypervisor with this name in the configuration.
    pub(crate) fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name() == name)
    }

    /// The hypervisor that this process has chosen for the machine.
    pub(crate) fn chosen(&self, machine: &Identity) -> Option<String> {
        self.chosen.lock().get(machine).cloned()
    }

    /// Remembers the choice of a hypervisor.
    pub(crate) fn choose(&self, machine: &Identity, host: &Host) {
        self.chosen.lock().insert(machine.clone(), host.name().to_owned());
    }

    /// Forgets what was chosen: the domain is there, or nothing of the machine is left.
    pub(crate) fn forget(&self, machine: &Identity) {
        self.chosen.lock().remove(machine);
        self.kept_macs.release(machine);
        self.placer.release(machine);
    }

    /// The domain with this UUID that the object with this mark means, as far as it is known, and its hypervisor. One that carries the
    /// mark comes before all others.
    ///
    /// # Errors
    /// [`ErrorKind::Ambiguous`] if it is on two hypervisors, and nothing that is known tells the two apart.
    pub(crate) fn find(&self, uuid: Uuid, mark: &Mark) -> Result<Option<(&Host, Domain)>> {
        let known = |host: &Host| host.hypervisor.state().inventory.by_uuid(uuid).cloned();
        let found = self.hosts.iter().filter_map(|host| Some((host, known(host)?)));
        let (ours, foreign): (Vec<_>, Vec<_>) = found.partition(|(_, domain)| mark.owns(domain.mark()));
        let contender = |(place, (host, domain)): (usize, &(&Host, Domain))| Contender {
            instance: place,
            evidence: evidence(domain, mark.name()),
            is_read: host.check_live().is_ok(),
        };
        let contenders: Vec<_> = ours.iter().enumerate().map(contender).collect();
        let meant = match the_meant_one(&contenders) {
            Meant::None => return Ok(foreign.into_iter().next()),
            // its step finds that it cannot be read
            Meant::One(place) | Meant::Unread(place) => place,
            Meant::Tie => {
                let names: Vec<_> = ours.iter().map(|(host, _)| format!("{:?}", host.name())).collect();
                let words = format!("domain {uuid} is on the hypervisors {}", names.join(" and "));
                return Err(Error::new(ErrorKind::Ambiguous, words));
            }
        };
        Ok(ours.into_iter().nth(meant))
    }

    /// What is said of the machine's domain on this hypervisor. It may be of any cluster, so the rules for the addresses of Nodes
    /// decide no more than which of its addresses are external.
    pub(crate) fn look_up(&self, host: &Host, uuid: Uuid, mark: &Mark) -> InstanceLookup {
        let is_running = host.hypervisor.state().inventory.by_uuid(uuid).is_some_and(Domain::is_running);
        if !is_running && let Some(error) = self.hypervisors.iter().find_map(|one| one.starting()) {
            // It may run there, and be left from a migration here.
            return error.into();
        }
        let provider_id = Some(format_provider_id(uuid).as_str().to_owned());
        let node = NodeIdentity { name: mark.name().to_owned(), provider_id, ..NodeIdentity::default() };
        instance_on(&host.hypervisor, uuid, &node, &self.config.addresses.for_machines())
    }

    /// Succeeds if all of these hypervisors confirm that they have no domain with this UUID.
    ///
    /// # Errors
    /// That it is not sure: why is in the log, since most of these hypervisors are not the machine's. Also if one of them has the
    /// domain, which is seen by then.
    pub(crate) async fn confirm_absent(&self, hosts: &[&Host], uuid: Uuid) -> Result<()> {
        let answers = join_all(hosts.iter().map(|host| async move {
            host.check_live()?;
            let failed = |failure: crate::calls::Failure| {
                let words = format!("hypervisor {:?}: {}", host.name(), failure.message);
                Error::new(failure.kind, words)
            };
            host.hypervisor.confirm().await.map_err(failed)?;
            let probed = host.hypervisor.probe(vec![vec![DomainId::Uuid(uuid)]]).await.map_err(failed)?;
            probed.unconfirmed.into_iter().flatten().next().map_or(Ok(()), |doubt| Err(failed(doubt)))
        }));
        let unconfirmed =
            answers.await.into_iter().filter_map(Result::err).map(|doubt| not_known(uuid, &doubt));
        unconfirmed.collect::<Vec<_>>().into_iter().next().map_or(Ok(()), Err)
    }
}

/// The error of a step that has to know which hypervisor has something of a machine, where one of them fails with `doubt`. That names
/// a hypervisor that need not be the machine's, so it goes into the log.
pub(crate) fn not_known(machine: Uuid, doubt: &Error) -> Error {
    tracing::info!(%machine, reason = doubt.report(), "a hypervisor may have something of the machine");
    let words = "which hypervisor has the domain or the volumes of the machine is not known, since not all of them answer";
    let error = Error::new(doubt.kind(), words);
    match doubt.retry_after() {
        Some(after) => error.with_retry_after(after),
        None => error,
    }
}
