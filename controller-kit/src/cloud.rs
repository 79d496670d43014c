//! The boundary to the provider: whatever the provider does, the controllers get an answer for each node in
//! time.

mod batches;
mod call_time;
mod guarded;
mod in_force;
mod load_balancers;
mod machines;
mod metrics;
mod routes;
mod seen;

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use cloudprovider::{
    CloudProvider, Error, ErrorKind, InstanceChange, InstanceLookup, InstanceStream, NodeIdentity,
    ProviderId, SecretName, ServiceAccessNeeds, StartContext, Zone,
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

pub use self::{
    call_time::CallTime,
    machines::machine_kinds_of,
    metrics::{CloudMetrics, ProviderMetrics},
    routes::CloudRoutes,
};

use self::batches::Batches;
use crate::nodes::Node;
use in_force::InForce;
pub use in_force::Trial;
use seen::Seen;

/// How long a provider may take to shut down, sessions included, before the process exits.
const END_TIMEOUT: Duration = Duration::from_secs(6);

/// A stream of changes that panicked is requested again after this time.
const CHANGES_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// A provider that was started, and is stopped when this is dropped.
#[derive(Debug)]
pub struct Started {
    provider: Arc<dyn CloudProvider>,
    name: Arc<str>,
    stop: CancellationToken,
    seen: Seen,
}

impl Started {
    /// `stop` is the token that the provider was started with.
    pub fn new(provider: Arc<dyn CloudProvider>, stop: CancellationToken) -> Self {
        let name = caught(|| provider.name().into()).unwrap_or_else(|| "unknown".into());
        Self { provider, name, stop, seen: Seen::default() }
    }

    /// Starts a provider, which must be done within `limit`.
    ///
    /// # Errors
    /// The provider's own error, a panic, or a start that took too long. What the provider had begun is
    /// stopped then.
    pub async fn start(
        provider: Arc<dyn CloudProvider>,
        context: StartContext,
        limit: Duration,
    ) -> Result<Self, Error> {
        let started = Self::new(provider.clone(), context.stop.clone());
        let starting = AssertUnwindSafe(async { provider.start(context).await }).catch_unwind();
        match tokio::time::timeout(limit, starting).await {
            Ok(Ok(outcome)) => outcome.map(|()| started),
            Ok(Err(_)) => Err(Error::new(ErrorKind::Internal, "it panicked; the log says more")),
            Err(_) => Err(Error::new(ErrorKind::Timeout, format!("not done within {limit:?}"))),
        }
    }

    fn owner_of(&self, node: &NodeIdentity) -> Owner {
        let Some(id) = &node.provider_id else { return Owner::Nobody };
        match caught(|| self.provider.instances().is_some_and(|instances| instances.owns(id))) {
            Some(true) => Owner::Us,
            None => Owner::Unclear,
            Some(false) => match id.split_once("://") {
                Some((scheme, _)) if *scheme == *self.name => Owner::UsBroken,
                _ => Owner::Foreign,
            },
        }
    }

    /// Why the provider is not asked about a Node. `None`: it is asked. The Node's provider ID decides that, before any
    /// look-up.
    fn refusal(&self, node: &NodeIdentity) -> Option<Error> {
        let (id, name) = (node.provider_id.as_deref().unwrap_or_default(), &self.name);
        match self.owner_of(node) {
            Owner::Nobody | Owner::Us => None,
            Owner::UsBroken => {
                let form = caught(|| {
                    self.provider
                        .instances()
                        .and_then(|instances| instances.provider_id_form().map(str::to_owned))
                });
                let form = form.flatten().unwrap_or_else(|| format!("that {name} writes"));
                let words = format!("provider ID {id:?} begins with {name}:// and is not of the form {form}");
                Some(Error::new(ErrorKind::InvalidInput, words))
            }
            Owner::Foreign => Some(Error::new(
                ErrorKind::InvalidInput,
                format!("provider ID {id:?} is of another cloud than {name}"),
            )),
            Owner::Unclear => Some(panicked_over(id)),
        }
    }

    /// What is wrong with an ID that the provider gives an instance. `None`: nothing. A wrong one must not be written: the
    /// Node would keep it for ever, and no look-up would be about that Node any more.
    fn fault_of(&self, id: &ProviderId) -> Option<Error> {
        let fault = |words: &str| {
            Error::new(ErrorKind::Internal, format!("the cloud provider gives provider ID \"{id}\", {words}"))
        };
        if !id.is_complete() {
            return Some(fault("which is not of the form <provider>://<id>"));
        }
        let node = NodeIdentity { provider_id: Some(id.as_str().to_owned()), ..NodeIdentity::default() };
        match self.owner_of(&node) {
            Owner::Nobody | Owner::Us => None,
            Owner::UsBroken | Owner::Foreign => Some(fault("which it does not own itself")),
            Owner::Unclear => Some(panicked_over(id.as_str())),
        }
    }
}

fn panicked_over(id: &str) -> Error {
    let words = format!("the cloud provider panicked over whether it owns provider ID {id:?}");
    Error::new(ErrorKind::Internal, words)
}

/// The Secrets of the cluster that a provider's configuration names. None where the provider panics when it is asked.
pub fn secrets_of(provider: &dyn CloudProvider) -> Vec<SecretName> {
    caught(|| provider.secrets()).unwrap_or_default()
}

/// What the provider [does with Services](CloudProvider::service_access_needs). Nothing where the provider panics when it is
/// asked.
pub fn service_access_needs_of(provider: &dyn CloudProvider) -> ServiceAccessNeeds {
    caught(|| provider.service_access_needs()).unwrap_or_default()
}

/// Whether the provider [changes the network](CloudProvider::changes_host_network) of the host. `false` where the provider
/// panics when it is asked.
pub fn changes_host_network(provider: &dyn CloudProvider) -> bool {
    caught(|| provider.changes_host_network()).unwrap_or(false)
}

/// Whether the provider [needs](CloudProvider::needs_secret) this Secret. It counts as needed where the provider panics
/// when it is asked.
pub fn needs_secret(provider: &dyn CloudProvider, secret: &SecretName) -> bool {
    caught(|| provider.needs_secret(secret)).unwrap_or(true)
}

impl Drop for Started {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Which cloud a Node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The Node has no provider ID yet.
    Nobody,
    /// To this provider.
    Us,
    /// Its provider ID begins like those of this provider, but is not a valid one.
    UsBroken,
    /// Nobody knows: the provider panicked when it was asked.
    Unclear,
    /// To another cloud.
    Foreign,
}

/// A provider that cannot panic, hang or miscount, as far as the controllers are concerned. Another provider
/// may replace it at any time. A call under way is finished by the provider that it began with. Clones share
/// the provider.
#[derive(Clone, Debug)]
pub struct Cloud {
    current: Arc<ArcSwap<Started>>,
    /// How many times another provider has taken over.
    replaced: watch::Sender<u64>,
    in_force: Arc<InForce>,
    batches: Arc<Batches>,
    metrics: ProviderMetrics,
    /// The labels of `--node-labels`.
    labels: Arc<BTreeMap<String, String>>,
}

impl Cloud {
    /// Puts the boundary around `provider`. Its calls are counted under its name.
    pub fn new(provider: Started, metrics: CloudMetrics) -> Self {
        let metrics = metrics.of(&provider.name);
        let (current, replaced) = (Arc::new(ArcSwap::from_pointee(provider)), watch::Sender::new(0));
        let (in_force, batches) = (Arc::new(InForce::new()), Arc::new(Batches::new(metrics.clone())));
        Self { current, replaced, in_force, batches, metrics, labels: Arc::default() }
    }

    /// Adds these labels to every instance. They take precedence over the provider's own labels.
    #[must_use]
    pub fn with_labels(self, labels: BTreeMap<String, String>) -> Self {
        Self { labels: Arc::new(labels), ..self }
    }

    /// A boundary around another provider that may take over. Its instances get the same additional labels.
    #[must_use]
    pub fn candidate(&self, provider: Started, metrics: CloudMetrics) -> Self {
        Self { labels: Arc::clone(&self.labels), ..Self::new(provider, metrics) }
    }

    /// The same provider, with other metrics for its calls.
    #[must_use]
    pub fn counted_by(&self, metrics: CloudMetrics) -> Self {
        let metrics = metrics.of(&self.name());
        Self { batches: Arc::new(Batches::new(metrics.clone())), metrics, ..self.clone() }
    }

    /// The current provider behind the boundary.
    pub fn provider(&self) -> Arc<dyn CloudProvider> {
        self.current.load().provider.clone()
    }

    /// The provider's name.
    pub fn name(&self) -> Arc<str> {
        self.current.load().name.clone()
    }

    /// Lets the provider behind `other` take over. The previous provider is stopped when its last call has
    /// ended.
    pub fn replace_with(&self, other: &Self) {
        self.in_force.begins();
        self.current.store(other.current.load_full());
        self.replaced.send_modify(|count| *count += 1);
    }

    /// How many times another provider has taken over, from now on.
    pub fn replacements(&self) -> watch::Receiver<u64> {
        self.replaced.subscribe()
    }

    /// Makes one call of the current provider that can neither panic nor take longer than `limit`. The call is counted as
    /// `operation`. A provider that is replaced meanwhile is not stopped before the call has ended.
    async fn guarded<T>(
        &self,
        operation: &'static str,
        limit: Duration,
        call: impl AsyncFnOnce(Arc<Started>) -> cloudprovider::Result<T>,
    ) -> cloudprovider::Result<T> {
        let current = self.current.load_full();
        // The provider's code may panic before its first pause too, so it begins inside the guard.
        guarded::guarded(&self.metrics, operation, limit, async move { call(current).await }).await
    }

    /// Stops the provider and waits, for a few seconds at most, until it has ended what it began.
    pub async fn stop(&self) {
        let current = self.current.load_full();
        current.stop.cancel();
        let ended = AssertUnwindSafe(async { current.provider.ended().await }).catch_unwind();
        match tokio::time::timeout(END_TIMEOUT, ended).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::error!("the cloud provider panicked while it ended"),
            Err(_) => tracing::warn!("the cloud provider did not end within {END_TIMEOUT:?}"),
        }
    }

    /// Whether the provider can look up instances.
    pub fn has_instances(&self) -> bool {
        caught(|| self.provider().instances().is_some()).unwrap_or(false)
    }

    /// What the cloud does not let the provider do.
    pub fn limits(&self) -> Vec<String> {
        caught(|| self.provider().limits()).unwrap_or_default()
    }

    /// Which cloud the Node belongs to, by its provider ID.
    pub fn owner_of(&self, node: &Node) -> Owner {
        self.current.load().owner_of(&node.identity)
    }

    /// Whether the Node's provider ID belongs to this provider. `false` for a Node without a provider ID.
    pub fn owns(&self, node: &Node) -> bool {
        self.owner_of(node) == Owner::Us
    }

    /// Looks up the instances of `nodes`, one answer each, in order. The provider is asked about Nodes that belong to it or
    /// to no cloud yet. The answer about the others is that nobody can tell.
    pub async fn lookup(&self, nodes: &[Arc<Node>]) -> Vec<InstanceLookup> {
        self.lookup_timed(nodes).await.0
    }

    /// As [`lookup`](Self::lookup), with the time of the call that gave each answer. A batch may take several calls and some
    /// minutes, so the end of the batch does not say how old an answer is.
    pub async fn lookup_timed(&self, nodes: &[Arc<Node>]) -> (Vec<InstanceLookup>, Vec<CallTime>) {
        // Held until the call ends, so that a provider that is replaced meanwhile is not stopped before.
        let current = self.current.load_full();
        let Some(true) = caught(|| current.provider.instances().is_some()) else {
            let error = Error::unsupported("the cloud provider does not support instances");
            return (InstanceLookup::all_unknown(nodes, &error), vec![CallTime::now(); nodes.len()]);
        };
        let refused: Vec<Option<Error>> = nodes.iter().map(|node| current.refusal(&node.identity)).collect();
        let asked = nodes.iter().zip(&refused).filter(|(_, refused)| refused.is_none());
        let asked: Vec<&NodeIdentity> = asked.map(|(node, _)| &node.identity).collect();
        let is_error = |answer: &InstanceLookup| matches!(answer, InstanceLookup::Unknown(_));
        let answers = self.batches.ask(
            "lookup",
            &asked,
            |batch| instances_of(current.clone(), batch),
            is_error,
            InstanceLookup::Unknown,
        );
        let mut answers = answers.await.into_iter();
        let refusal = |error: Error| (InstanceLookup::Unknown(error), CallTime::now());
        let (mut all, times): (Vec<InstanceLookup>, Vec<CallTime>) =
            refused.into_iter().filter_map(|refused| refused.map(refusal).or_else(|| answers.next())).unzip();
        for (node, answer) in nodes.iter().zip(&mut all) {
            let InstanceLookup::Present(instance) = answer else { continue };
            let labels = self.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
            instance.metadata.additional_labels.extend(labels);
            let is_new = node.identity.provider_id.is_none();
            if is_new && let Some(fault) = instance.provider_id.as_ref().and_then(|id| current.fault_of(id)) {
                instance.incomplete.get_or_insert(fault);
            }
        }
        current.seen.note(nodes, &all);
        (all, times)
    }

    /// Whether the provider, with the configuration in force, has ever had an instance of this Node. If not, the instance may
    /// exist and merely be out of its sight.
    pub fn has_seen(&self, node: &Node) -> bool {
        self.current.load().seen.has(&node.identity.uid)
    }

    /// Since when the configuration in force answers. `None` while another one is tried, which may know other instances.
    pub fn settled_since(&self) -> Option<Instant> {
        self.in_force.settled_since()
    }

    /// Says that another configuration is being tried, until the returned value is dropped.
    pub fn begin_trial(&self) -> Trial {
        Trial::new(Arc::clone(&self.in_force))
    }

    /// Forgets the Nodes that do not exist any more. `is_there` is called with the UID of each Node.
    pub fn keep_seen(&self, is_there: impl Fn(&str) -> bool) {
        self.current.load().seen.keep(is_there);
    }

    /// Like [`lookup`](Self::lookup), and asks the provider's [`Zones`](cloudprovider::Zones) about instances
    /// that have neither zone nor region. If that fails, the instance counts as incomplete.
    pub async fn lookup_with_zones(&self, nodes: &[Arc<Node>]) -> Vec<InstanceLookup> {
        let mut answers = self.lookup(nodes).await;
        let says_nothing = |value: &Option<String>| value.as_ref().is_none_or(String::is_empty);
        let without: Vec<usize> = answers
            .iter()
            .enumerate()
            .filter(|(_, answer)| match answer {
                InstanceLookup::Present(instance) => {
                    says_nothing(&instance.metadata.zone) && says_nothing(&instance.metadata.region)
                }
                InstanceLookup::Absent | InstanceLookup::Unknown(_) => false,
            })
            .map(|(index, _)| index)
            .collect();
        if without.is_empty() {
            return answers;
        }
        let current = self.current.load_full();
        if let Some(false) = caught(|| current.provider.zones().is_some()) {
            return answers;
        }
        let identities: Vec<&NodeIdentity> = without.iter().map(|&index| &nodes[index].identity).collect();
        let found = self.batches.ask(
            "zones",
            &identities,
            |batch| zones_of(current.clone(), batch),
            Result::is_err,
            Err,
        );
        let found = found.await;
        for (index, (zone, _)) in without.into_iter().zip(found) {
            if let InstanceLookup::Present(instance) = &mut answers[index] {
                match zone {
                    Ok(zone) => {
                        instance.metadata.zone = zone.zone;
                        instance.metadata.region = zone.region;
                    }
                    Err(error) if error.kind() == ErrorKind::Unsupported => {}
                    Err(error) => instance.incomplete = Some(error.wrap("zone look-up failed")),
                }
            }
        }
        answers
    }

    /// The changes that the provider pushes. The stream never ends: it stays silent if the provider cannot
    /// push or stops pushing. When another provider takes over, a [`Resync`](InstanceChange::Resync) comes
    /// before its changes.
    pub fn changes(&self) -> InstanceStream {
        let replaced = self.replaced.subscribe();
        let begin = (self.clone(), self.changes_of_current(), replaced);
        stream::unfold(begin, |(cloud, mut changes, mut replaced)| async {
            tokio::select! {
                // Cannot be an error: this stream holds the sender.
                Ok(()) = replaced.changed() => {
                    changes = cloud.changes_of_current();
                    Some((InstanceChange::Resync, (cloud, changes, replaced)))
                }
                Some(change) = changes.next() => Some((change, (cloud, changes, replaced))),
                else => None,
            }
        })
        .boxed()
    }

    fn changes_of_current(&self) -> InstanceStream {
        enum Next {
            /// `None` if the provider panicked, in its stream or when it was asked for one.
            From(Option<InstanceStream>),
            Again,
        }
        let subscribe = |cloud: &Self| {
            let subscribed = caught(|| {
                let provider = cloud.provider();
                let of_instances = provider.instances().and_then(cloudprovider::Instances::changes);
                of_instances.or_else(|| provider.machines().and_then(cloudprovider::DynMachines::changes))
            });
            subscribed.map(|changes| changes.unwrap_or_else(|| stream::pending().boxed()))
        };
        let begin = (Next::From(subscribe(self)), self.clone());
        stream::unfold(begin, move |(next, cloud)| async move {
            let mut changes = match next {
                Next::From(changes) => changes,
                Next::Again => {
                    tokio::time::sleep(CHANGES_AGAIN_AFTER).await;
                    let changes = subscribe(&cloud);
                    return Some((InstanceChange::Resync, (Next::From(changes), cloud)));
                }
            };
            let change = match &mut changes {
                Some(changes) => AssertUnwindSafe(changes.next()).catch_unwind().await.ok(),
                None => None,
            };
            Some(match change {
                Some(Some(change)) => (change, (Next::From(changes), cloud)),
                // The provider's stream has ended: it pushes nothing more.
                Some(None) => std::future::pending().await,
                None => {
                    tracing::error!(
                        "the cloud provider's stream of changes panicked: asking for another one in {CHANGES_AGAIN_AFTER:?}"
                    );
                    (InstanceChange::Resync, (Next::Again, cloud))
                }
            })
        })
        .boxed()
    }
}

fn instances_of(current: Arc<Started>, batch: Vec<&NodeIdentity>) -> BoxFuture<'_, Vec<InstanceLookup>> {
    let call = async move {
        match current.provider.instances() {
            Some(instances) => instances.lookup(&batch).await,
            None => Vec::new(),
        }
    };
    call.boxed()
}

fn zones_of(current: Arc<Started>, batch: Vec<&NodeIdentity>) -> BoxFuture<'_, Vec<Result<Zone, Error>>> {
    let call = async move {
        match current.provider.zones() {
            Some(zones) => zones.zones(&batch).await,
            None => batch.iter().map(|_| Ok(Zone::default())).collect(),
        }
    };
    call.boxed()
}

/// Makes a call that must be quick. `None` if it panics.
fn caught<T>(call: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(AssertUnwindSafe(call)).ok()
}

#[cfg(test)]
mod tests;
