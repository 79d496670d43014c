//! The vSphere provider.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use address_pools::PooledLoadBalancer;
use cloudprovider::{
    CloudProvider, Clusters, Error, ErrorKind, FactoryInput, InstanceChange, InstanceLookup, InstanceStream,
    Instances, LoadBalancer, NodeIdentity, Result, Routes, SecretName, ServiceAccessNeeds, StartContext,
    Zones, async_trait, instance_stream, look_once_listed,
};
use futures::{StreamExt, future::join_all, stream};
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

#[cfg(feature = "machines")]
use crate::machines::{Deps, SessionPool, Tombstones, VCenterHandle, VSphereMachines};
use crate::{
    NAME,
    accounts::Accounts,
    addresses::Family,
    config::{Config, Environment},
    follow,
    instances::{Answer, Rules, Seen, Site, View},
    provider_id::is_ours,
    secrets::CredentialStore,
    vcenter::{Settings, VCenter},
};

/// How long after the start look-ups wait for the first listing.
const START_GRACE: Duration = Duration::from_secs(10);

/// How many changes a slow listener may lag behind before it has to read everything again.
const CHANGES_KEPT: usize = 1024;

/// How often tags are read again. vCenter does not push them.
const TAG_REFRESH: Duration = Duration::from_secs(15 * 60);

/// The variable that overrides it, in Go's notation of durations.
const TAG_REFRESH_VARIABLE: &str = "VSPHERE_TAG_REFRESH_INTERVAL";

/// How many Nodes without a machine are confirmed at the same time.
const PROBES: usize = 4;

/// vSphere as a cloud: one or more vCenters.
#[derive(Debug)]
pub struct VSphereProvider {
    rules: Rules,
    seen: Seen,
    #[cfg(feature = "machines")]
    machines: VSphereMachines,
    vcenters: Vec<Followed>,
    /// Set if the configuration has address pools.
    load_balancer: Option<PooledLoadBalancer>,
    status_changes: watch::Sender<u64>,
    instance_changes: broadcast::Sender<InstanceChange>,
    started: OnceLock<Instant>,
    stopped: CancellationToken,
    tasks: TaskTracker,
}

/// A vCenter with the settings for its Nodes.
#[derive(Debug)]
struct Followed {
    vcenter: Arc<VCenter>,
    families: Vec<Family>,
    credentials: Arc<CredentialStore>,
}

/// Makes a provider from a configuration text and the environment. Checks everything and opens no connection.
/// Warnings and notices about unsupported parts of the configuration go to the input.
///
/// # Errors
/// [`ErrorKind::InvalidConfiguration`] with every fault found.
pub fn factory(input: &FactoryInput) -> Result<Arc<dyn CloudProvider>> {
    let text = input.config.as_deref().unwrap_or_default();
    let (config, warnings) = Config::read(text, &Environment::of_process());
    for warning in warnings {
        input.warn(warning);
    }
    let mut config = config?;
    find_ca_files(input, &mut config);
    if let Some(notice) = config.nsx.notice() {
        input.warn(cloudprovider::ConfigProblem::new("", notice));
    }
    let refresh = std::env::var(TAG_REFRESH_VARIABLE).ok().filter(|text| !text.is_empty());
    let provider = VSphereProvider::new(config);
    Ok(Arc::new(match refresh.as_deref().map(cloudprovider::parse_duration) {
        None => provider,
        Some(Some(refresh)) => provider.with_tag_refresh(refresh),
        Some(None) => {
            let words = "must be a duration such as 15m or 1h30m";
            let problem = cloudprovider::ConfigProblem::new(TAG_REFRESH_VARIABLE, words);
            return Err(Error::invalid_configuration(vec![problem]));
        }
    }))
}

/// Finds the files of authorities that are named by relative paths beside the configuration, and reads all of them once. So who makes
/// manifests of the configuration has them too, and who checks it is told of those that are missing. Each connection reads
/// them again.
fn find_ca_files(input: &FactoryInput, config: &mut Config) {
    let folder = input.config_path.as_deref().and_then(Path::parent);
    let mut seen = HashSet::new();
    for file in config.vcenters.iter_mut().flat_map(|one| &mut one.endpoint.ca_files) {
        if let Some(folder) = folder.filter(|_| file.is_relative()) {
            *file = folder.join(&*file);
        }
        if !seen.insert(file.clone()) {
            continue;
        }
        if let Err(error) = input.read_file(&*file) {
            let words = format!("{} cannot be read: {error}", file.display());
            input.warn(cloudprovider::ConfigProblem::new("caFile", words));
        }
    }
}

impl VSphereProvider {
    /// A provider for these vCenters. It does nothing until [`start`](CloudProvider::start).
    pub fn new(config: Config) -> Self {
        let (status_changes, _) = watch::channel(0);
        let (instance_changes, _) = broadcast::channel(CHANGES_KEPT);
        let rules = Rules {
            addresses: config.addresses,
            labels: config.labels,
            skip_node_deletion: config.skip_node_deletion,
        };
        let tag_refresh = rules.wants_tags().then_some(TAG_REFRESH);
        let categories = [&rules.labels.zone, &rules.labels.region].into_iter().flatten().cloned();
        let categories: Vec<String> = categories.collect();
        let of_vcenters: Vec<IpAddr> =
            config.vcenters.iter().filter_map(|one| one.endpoint.host.parse().ok()).collect();
        // a lock applies to the account, whichever entry of the configuration caused it
        let mut accounts: HashMap<String, Arc<Accounts>> = HashMap::new();
        let vcenters = config.vcenters.into_iter().map(|one| {
            let server = accounts.entry(one.endpoint.authority().to_lowercase()).or_default();
            let ca_files = one.endpoint.ca_files.clone();
            let credentials = Arc::new(CredentialStore::new(one.server.clone(), one.credentials, ca_files));
            let source = Arc::clone(&credentials);
            let settings = Settings {
                name: one.reference,
                endpoint: one.endpoint,
                datacenters: one.datacenters,
                access: Arc::new(move || source.current()),
                tag_refresh,
            };
            let mut vcenter = VCenter::new(settings, instance_changes.clone(), status_changes.clone());
            vcenter.accounts = Arc::clone(server);
            vcenter.tag_categories.clone_from(&categories);
            Followed { vcenter: Arc::new(vcenter), families: one.families, credentials }
        });
        let vcenters: Vec<_> = vcenters.collect();
        let (stopped, tasks) = (CancellationToken::new(), TaskTracker::new());
        #[cfg(feature = "machines")]
        let machines = {
            let pool = Arc::new(SessionPool::new(Deps {
                instance_changes: instance_changes.clone(),
                status_changes: status_changes.clone(),
                accounts,
                tasks: tasks.clone(),
                stop: stopped.clone(),
            }));
            let handle = |followed: &Followed| VCenterHandle {
                vcenter: Arc::clone(&followed.vcenter),
                stop: stopped.clone(),
                is_configured: true,
                number: pool.number(),
                tombstones: Tombstones::default(),
            };
            let handles = vcenters.iter().map(handle).collect();
            VSphereMachines::new(config.machines, handles, pool, tasks.clone())
        };
        Self {
            rules,
            seen: Seen::default(),
            #[cfg(feature = "machines")]
            machines,
            vcenters,
            load_balancer: config
                .address_pools
                .map(|pools| PooledLoadBalancer::new_beside(pools, of_vcenters)),
            status_changes,
            instance_changes,
            started: OnceLock::new(),
            stopped,
            tasks,
        }
    }

    /// Sets how often tags are read again. Has no effect after the start.
    #[must_use]
    pub fn with_tag_refresh(self, refresh: Duration) -> Self {
        for followed in &self.vcenters {
            followed.vcenter.set_tag_refresh(refresh);
        }
        self
    }

    fn view(&self) -> View<'_> {
        let sites = self.vcenters.iter().map(|followed| Site {
            vcenter: &followed.vcenter,
            families: &followed.families,
            state: followed.vcenter.state(),
        });
        View::new(sites.collect(), &self.rules, &self.seen)
    }

    /// Looks up these nodes. Waits for the first listings if that may change an answer, up to [`START_GRACE`]
    /// after the start.
    async fn answers(&self, nodes: &[&NodeIdentity]) -> Vec<Answer> {
        let look = || {
            let view = self.view();
            nodes.iter().map(|node| view.look_up(node)).collect()
        };
        let waits = |answer: &Answer| matches!(answer, Answer::Starting(_));
        let deadline = self.started.get().map(|started| *started + START_GRACE);
        look_once_listed(look, waits, self.status_changes.subscribe(), deadline).await
    }

    /// Returns `otherwise` only if every vCenter, asked for these UUIDs, denies having a machine with any of
    /// them.
    async fn settle(&self, uuids: &[Uuid], otherwise: InstanceLookup) -> InstanceLookup {
        for uuid in uuids {
            let asked = join_all(self.vcenters.iter().map(|followed| followed.vcenter.confirm_absent(*uuid)));
            if let Some(error) = asked.await.into_iter().find_map(Result::err) {
                let words = format!("cannot confirm that there is no virtual machine for this node: {error}");
                return Error::new(error.kind(), words).into();
            }
        }
        otherwise
    }
}

#[async_trait]
impl CloudProvider for VSphereProvider {
    fn name(&self) -> &str {
        NAME
    }

    async fn start(&self, context: StartContext) -> Result<()> {
        if self.started.set(Instant::now()).is_err() {
            return Err(Error::new(ErrorKind::Conflict, "the provider was started already"));
        }
        #[cfg(feature = "machines")]
        self.machines.read_secrets_from(&context);
        for followed in &self.vcenters {
            let vcenter = Arc::clone(&followed.vcenter);
            if let Some(versions) = followed.credentials.versions(&*context.secrets) {
                let (credentials, vcenter) = (Arc::clone(&followed.credentials), Arc::clone(&vcenter));
                let stop = context.stop.clone();
                self.tasks.spawn(async move {
                    let following = credentials.follow(versions, || vcenter.reconnect.notify_one());
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = following => {}
                    }
                });
            }
            let (credentials, stop) = (Arc::clone(&followed.credentials), context.stop.clone());
            self.tasks.spawn(async move {
                // Until its Secret is read, a vCenter is starting. Reporting missing credentials would be
                // wrong.
                let answered = tokio::time::timeout(START_GRACE, credentials.answered());
                if stop.run_until_cancelled(answered).await.is_some() {
                    follow::run(vcenter, stop).await;
                }
            });
        }
        if let Some(load_balancer) = &self.load_balancer {
            load_balancer.start(&context, &self.tasks)?;
        }
        let stopped = self.stopped.clone();
        self.tasks.spawn(async move {
            context.stop.cancelled().await;
            stopped.cancel();
        });
        Ok(())
    }

    async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn secrets(&self) -> Vec<SecretName> {
        let names = self.vcenters.iter().filter_map(|followed| followed.credentials.secret().cloned());
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn needs_secret(&self, secret: &SecretName) -> bool {
        self.vcenters.iter().any(|followed| followed.credentials.needs(secret))
    }

    fn service_access_needs(&self) -> ServiceAccessNeeds {
        self.load_balancer.as_ref().map(PooledLoadBalancer::needs).unwrap_or_default()
    }

    fn changes_host_network(&self) -> bool {
        self.load_balancer.as_ref().is_some_and(PooledLoadBalancer::announces)
    }

    /// Without a vCenter in the configuration no Node has an instance, and none may be taken as gone for that.
    fn instances(&self) -> Option<&dyn Instances> {
        (!self.vcenters.is_empty()).then_some(self as &dyn Instances)
    }

    fn zones(&self) -> Option<&dyn Zones> {
        // instances carry what the tags say
        None
    }

    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        self.load_balancer.as_ref().map(|load_balancer| load_balancer as &dyn LoadBalancer)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        None
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        None
    }

    #[cfg(feature = "machines")]
    fn machines(&self) -> Option<&dyn cloudprovider::DynMachines> {
        Some(&self.machines)
    }
}

#[async_trait]
impl Instances for VSphereProvider {
    fn owns(&self, provider_id: &str) -> bool {
        is_ours(provider_id)
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        let answers = self.answers(nodes).await;
        stream::iter(answers)
            .map(|answer| async move {
                match answer {
                    Answer::Settled(lookup) => lookup,
                    Answer::Starting(error) => error.into(),
                    Answer::Nowhere(uuids) => self.settle(&uuids, InstanceLookup::Absent).await,
                    Answer::Misnamed(uuid, error) => self.settle(&[uuid], error.into()).await,
                }
            })
            .buffered(PROBES)
            .collect()
            .await
    }

    fn changes(&self) -> Option<InstanceStream> {
        Some(instance_stream(self.instance_changes.subscribe(), self.stopped.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::PathBuf};

    use super::*;

    #[test]
    fn the_files_of_authorities_are_beside_the_configuration_and_are_read() {
        let text = "global: {caFile: 'ca.crt:/certs/other.pem', user: a, password: b}\nvcenter:\n  one: {server: one.example}\n  \
                    two: {server: two.example}\n";
        let (config, _) = Config::read(text, &Environment::default());
        let mut config = config.expect("good");
        let input = FactoryInput::new(text).with_path("/etc/cloud-config/cloud.conf").with_reader(|path| {
            if path == Path::new("/etc/cloud-config/ca.crt") {
                Ok(Vec::new())
            } else {
                Err(io::ErrorKind::NotFound.into())
            }
        });
        find_ca_files(&input, &mut config);
        let expected = ["/etc/cloud-config/ca.crt", "/certs/other.pem"].map(PathBuf::from);
        assert!(config.vcenters.iter().all(|one| one.endpoint.ca_files == expected), "{config:?}");
        let warnings: Vec<_> = input.warnings().iter().map(ToString::to_string).collect();
        assert!(
            warnings.len() == 1 && warnings[0].starts_with("caFile: /certs/other.pem cannot be read"),
            "{warnings:?}"
        );
    }
}
