//! Keeps the machines in memory up to date: finds the cluster, lists its machines, and watches them.

use std::time::Duration;

use cloudprovider::{Backoff, Error, ErrorKind, Result, dns};
use futures::{Stream, StreamExt as _, future, stream};
use http::Request;
use kube::{
    Api,
    core::{DynamicObject, ListMeta, ObjectMeta, PartialObjectMeta},
    runtime::watcher::{self, Event, watcher},
};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    cluster::{self, Cluster},
    history::Origin,
    inventory::{Change, Listing, Machines, Truth},
    machine::Machine,
    nodes,
    objects::{self, MachineObject, Objects},
    transport::{self, error, is_not_found, kubernetes},
};
use crate::{config::ManagementConfig, norman::client::Client};

/// The namespace of clusters for which the server names none.
const NAMESPACE: &str = "fleet-default";

/// How long a watch lasts before it is renewed, in seconds. A connection that has died without a word is noticed then.
const WATCH_TIMEOUT: u32 = 60;

/// The shortest time between two listings.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The pauses between two listings that fail.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(10) };

/// Where machines come from.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Of the API below `/v3`.
    pub(super) client: Client,
    /// The URL of the server.
    pub(super) url: String,
    pub(super) config: ManagementConfig,
    pub(super) page_size: u32,
    /// How often the machines are listed while they are watched.
    pub(super) refresh_interval: Duration,
    /// How often they are listed while they cannot be watched.
    pub(super) poll_interval: Duration,
}

/// Follows the machines until `stop` is cancelled.
pub(super) async fn run(source: Source, machines: &Machines, stop: CancellationToken) {
    stop.run_until_cancelled(follow(&source, machines)).await;
}

async fn follow(source: &Source, machines: &Machines) {
    let kubernetes = kubernetes(&source.client, &source.url);
    let (mut failures, mut truth) = (0, None);
    loop {
        let began = Instant::now();
        let mut session = Session { source, machines, kubernetes: &kubernetes, began, truth: &mut truth };
        match session.run().await {
            Ok(()) => {
                failures = 0;
                sleep_until(began + MIN_INTERVAL).await;
            }
            Err(error) => {
                // A session that had worked for a while is no repeated failure.
                failures = if machines.state().trouble.is_some() { failures + 1 } else { 1 };
                let pause = BACKOFF.after(failures).max(error.retry_after().unwrap_or_default());
                tracing::warn!(error = %error.report(), ?pause, "the machines cannot be listed");
                machines.fail(error);
                sleep(pause).await;
            }
        }
    }
}

/// From one listing to the next.
struct Session<'a> {
    source: &'a Source,
    machines: &'a Machines,
    kubernetes: &'a kube::Client,
    began: Instant,
    /// The truth of the session before.
    truth: &'a mut Option<Truth>,
}

/// A `provisioning.cattle.io` cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProvisioningCluster {
    metadata: ObjectMeta,
    spec: ProvisioningSpec,
    status: ProvisioningStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProvisioningSpec {
    /// How Rancher makes the cluster. Imported clusters have none.
    rke_config: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProvisioningStatus {
    /// The ID of the cluster.
    cluster_name: Option<String>,
}

/// A listing of which only the resource version matters.
#[derive(Debug, Deserialize)]
struct Revision {
    metadata: ListMeta,
}

/// The versions of a group.
#[derive(Debug, Deserialize)]
struct Group {
    versions: Vec<GroupVersion>,
}

#[derive(Debug, Deserialize)]
struct GroupVersion {
    version: String,
}

/// What a watch says.
enum Seen {
    Machine(Box<watcher::Result<Event<MachineObject>>>),
    Bootstrap(watcher::Result<Event<PartialObjectMeta<DynamicObject>>>),
    CustomMachine(watcher::Result<Event<PartialObjectMeta<DynamicObject>>>),
}

impl Session<'_> {
    /// Lists the machines, and watches them until the next listing is due.
    ///
    /// # Errors
    /// Why what is known is not up to date any more.
    async fn run(&mut self) -> Result<()> {
        let cluster = cluster::find(&self.source.client, &self.source.config.cluster).await?;
        match self.provisioned(&cluster).await? {
            Some((namespace, name, origin)) => {
                self.note(Truth::Machines, &cluster);
                self.watch(&cluster, &namespace, &name, origin).await
            }
            None => {
                self.note(Truth::Mirror, &cluster);
                self.poll(&cluster).await
            }
        }
    }

    fn note(&mut self, truth: Truth, cluster: &Cluster) {
        if *self.truth != Some(truth) {
            let what = match truth {
                Truth::Machines => "the Machines of the cluster are watched",
                Truth::Mirror => {
                    "the cluster's machines are not Rancher's, so its nodes are listed, and no Node is deleted"
                }
            };
            tracing::info!(cluster = %cluster.id, "{what}");
            *self.truth = Some(truth);
        }
    }

    /// The namespace and the name of the objects from which Rancher makes the cluster, and their origin. `None` if it does not
    /// make it, or if the token may not see that.
    async fn provisioned(&self, cluster: &Cluster) -> Result<Option<(String, String, Origin)>> {
        // Names of other clusters may be any text.
        let Some(name) = cluster.name.clone().filter(|name| dns::is_subdomain(name)) else {
            return Ok(None);
        };
        let of_server = cluster.fleet_workspace_name.as_deref().filter(|name| dns::is_label(name));
        let namespace = self.source.config.namespace.as_deref().or(of_server).unwrap_or(NAMESPACE);
        let path = format!("/apis/provisioning.cattle.io/v1/namespaces/{namespace}/clusters/{name}");
        let operation = format!("read provisioning cluster {namespace}/{name}");
        match self.get::<ProvisioningCluster>(&path).await {
            Ok(None) => Ok(None),
            Ok(Some(found)) if found.spec.rke_config.is_none() => Ok(None),
            Ok(Some(found)) => match found.status.cluster_name {
                Some(id) if id == cluster.id => {
                    Ok(Some((namespace.to_owned(), name, Origin::of(&found.metadata))))
                }
                _ => {
                    let words = format!("it is not that of cluster {}", cluster.id);
                    Err(Error::new(ErrorKind::Unavailable, words).with_operation(operation))
                }
            },
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                if self.truth.is_none() {
                    let error = error.report();
                    tracing::warn!(error, "{operation}: the token may not, so Machines are not looked at");
                }
                Ok(None)
            }
            Err(error) => Err(error.with_operation(operation)),
        }
    }

    /// Reads an object. `None` if there is no such object or no such kind.
    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        let request = Request::get(path).body(Vec::new());
        let request = request.map_err(|error| Error::new(ErrorKind::InvalidInput, error.to_string()))?;
        match self.kubernetes.request(request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(transport::error(&error)),
        }
    }

    /// Lists the server's nodes once, and waits until the next listing is due.
    async fn poll(&self, cluster: &Cluster) -> Result<()> {
        let machines = nodes::list(&self.source.client, &cluster.id).await?;
        tracing::debug!(nodes = machines.len(), "the nodes were listed");
        let listing = Listing {
            cluster: cluster.id.clone(),
            truth: Truth::Mirror,
            is_active: cluster.is_active(),
            machines,
            ..Listing::default()
        };
        self.machines.replace(listing, self.began);
        tokio::select! {
            () = sleep_until(self.began + self.source.poll_interval) => {}
            () = self.machines.listing_wanted() => {}
        }
        Ok(())
    }

    /// Lists the Machines and what belongs to them, and watches them until the next listing is due.
    async fn watch(&self, cluster: &Cluster, namespace: &str, name: &str, origin: Origin) -> Result<()> {
        let version = self.machine_version().await?;
        let origin = Origin { revision: self.revision(namespace, &version).await?, ..origin };
        let mut seen = self.all_seen(namespace, &version);
        let mut objects = Objects::default();
        // One for each stream.
        let mut unlisted = 3;
        loop {
            let is_listed = unlisted == 0;
            let next = tokio::select! {
                next = seen.next() => next,
                () = self.machines.listing_wanted(), if is_listed => return Ok(()),
                () = sleep_until(self.began + self.source.refresh_interval), if is_listed => return Ok(()),
            };
            let step = match next {
                None => return Err(Error::new(ErrorKind::Unavailable, "the watches ended")),
                Some(Seen::Machine(event)) => {
                    let event = (*event).map_err(|fault| error(&fault).with_operation("watch Machines"))?;
                    Step::of(event, |object: MachineObject, is_there| match is_there {
                        true if object.spec.cluster_name != name => None,
                        true => objects.put_machine(object).map(put),
                        false => objects.remove_machine(&object).map(Change::Remove),
                    })
                }
                Some(Seen::Bootstrap(event)) => {
                    step_if_served(event, "watch RKEBootstraps", |object, is_there| {
                        let machine = if is_there {
                            objects.put_bootstrap(&object.metadata)
                        } else {
                            objects.remove_bootstrap(&object.metadata)
                        };
                        machine.map(put)
                    })?
                }
                Some(Seen::CustomMachine(event)) => {
                    step_if_served(event, "watch CustomMachines", |object, is_there| {
                        let owner = objects.set_infrastructure(&object.metadata, is_there)?;
                        Some(Change::Infrastructure(owner, object.metadata.name.filter(|_| is_there)))
                    })?
                }
            };
            let change = match step {
                // A watcher that begins anew has lost its place.
                Step::Begun if is_listed => return Ok(()),
                Step::Begun => None,
                Step::Listed => {
                    unlisted -= 1;
                    None
                }
                Step::Changed(change) => change,
            };
            if is_listed {
                if let Some(change) = change {
                    self.machines.apply(change);
                }
            } else if unlisted == 0 {
                let machines = objects.machines();
                tracing::debug!(machines = machines.len(), "the Machines were listed");
                let listing = Listing {
                    cluster: cluster.id.clone(),
                    truth: Truth::Machines,
                    origin: Some(origin.clone()),
                    is_active: cluster.is_active(),
                    machines,
                    infrastructure: objects.owners.clone(),
                };
                self.machines.replace(listing, self.began);
            }
        }
    }

    /// The version of Cluster API to use. The fields that matter are the same in both.
    async fn machine_version(&self) -> Result<String> {
        let operation = "find Cluster API in the management cluster";
        let group: Option<Group> =
            self.get("/apis/cluster.x-k8s.io").await.map_err(|error| error.with_operation(operation))?;
        let versions = group.map(|group| group.versions).unwrap_or_default();
        let known =
            ["v1beta2", "v1beta1"].into_iter().find(|one| versions.iter().any(|has| has.version == *one));
        known.map(str::to_owned).ok_or_else(|| {
            let words = "it has neither v1beta2 nor v1beta1 of cluster.x-k8s.io";
            Error::new(ErrorKind::Unavailable, words).with_operation(operation)
        })
    }

    /// The resource version that the management cluster has now. `None` if it is no number.
    async fn revision(&self, namespace: &str, version: &str) -> Result<Option<u64>> {
        let path = format!("/apis/cluster.x-k8s.io/{version}/namespaces/{namespace}/machines?limit=1");
        let listed: Option<Revision> =
            self.get(&path).await.map_err(|error| error.with_operation("list one Machine"))?;
        Ok(listed.and_then(|listed| listed.metadata.resource_version?.parse().ok()))
    }

    fn all_seen(&self, namespace: &str, version: &str) -> impl Stream<Item = Seen> + Unpin + use<> {
        let config = watcher::Config::default().timeout(WATCH_TIMEOUT).page_size(self.source.page_size);
        let machines: Api<MachineObject> =
            Api::namespaced_with(self.kubernetes.clone(), namespace, &objects::machines(version));
        let metadata = |resource| {
            let api: Api<PartialObjectMeta<DynamicObject>> =
                Api::namespaced_with(self.kubernetes.clone(), namespace, &resource);
            until_error(watcher(api, config.clone()))
        };
        stream::select_all([
            until_error(watcher(machines, config.clone()))
                .map(|event| Seen::Machine(Box::new(event)))
                .boxed(),
            metadata(objects::bootstraps()).map(Seen::Bootstrap).boxed(),
            metadata(objects::custom_machines()).map(Seen::CustomMachine).boxed(),
        ])
    }
}

fn put(machine: Machine) -> Change {
    Change::Put(Box::new(machine))
}

/// What an event means for a listing.
enum Step {
    /// It begins, or begins anew.
    Begun,
    /// It is complete.
    Listed,
    /// An object is there, or is gone.
    Changed(Option<Change>),
}

impl Step {
    /// The meaning of an event. `note` takes over an object and whether it is there.
    fn of<K>(event: Event<K>, note: impl FnOnce(K, bool) -> Option<Change>) -> Self {
        match event {
            Event::Init => Self::Begun,
            Event::InitDone => Self::Listed,
            Event::InitApply(object) | Event::Apply(object) => Self::Changed(note(object, true)),
            Event::Delete(object) => Self::Changed(note(object, false)),
        }
    }
}

/// The same for a kind that a management cluster may not have: then there are no objects of it.
fn step_if_served<K>(
    event: watcher::Result<Event<K>>,
    operation: &'static str,
    note: impl FnOnce(K, bool) -> Option<Change>,
) -> Result<Step> {
    match event {
        Ok(event) => Ok(Step::of(event, note)),
        Err(watcher::Error::InitialListFailed(cause)) if is_not_found(&cause) => Ok(Step::Listed),
        Err(fault) => Err(error(&fault).with_operation(operation)),
    }
}

/// The stream with its first error as its end. A watcher would try again at once.
fn until_error<T, E>(
    stream: impl Stream<Item = Result<T, E>> + Send,
) -> impl Stream<Item = Result<T, E>> + Send
where
    T: Send,
    E: Send,
{
    stream.scan(false, |has_failed, item| {
        let item = (!*has_failed).then_some(item);
        *has_failed = item.as_ref().is_some_and(Result::is_err);
        future::ready(item)
    })
}
