//! The boundary to the provider: whatever it does, the controllers get an answer for each node, in time.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use cloudprovider::{
    CloudProvider, Error, ErrorKind, InstanceChange, InstanceLookup, InstanceStream, NodeIdentity,
    ProviderId, Zone,
};
use futures::{FutureExt, StreamExt, stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{metrics::Metrics, nodes::Node};

/// Deadline of one call, should the provider have none of its own.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a provider may take to end, sessions included, when the process is about to.
const END_TIMEOUT: Duration = Duration::from_secs(6);

/// A provider that was started, and is stopped when this is dropped.
#[derive(Debug)]
pub struct Started {
    provider: Arc<dyn CloudProvider>,
    stop: CancellationToken,
}

impl Started {
    /// `stop` is what the provider was started with.
    pub fn new(provider: Arc<dyn CloudProvider>, stop: CancellationToken) -> Self {
        Self { provider, stop }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Whose a Node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It has no provider ID yet.
    Nobody,
    /// This provider's.
    Us,
    /// Its provider ID begins as this provider's do, and is none of them.
    UsBroken,
    /// Another cloud's.
    Foreign,
}

/// A provider that cannot panic, hang or miscount, as far as the controllers are concerned. Another one may take its
/// place at any time; a call that is under way is finished by the one that it began with. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Cloud {
    current: Arc<ArcSwap<Started>>,
    /// How often another provider has taken over.
    replaced: watch::Sender<u64>,
    metrics: Metrics,
    /// Of `--node-labels`.
    labels: Arc<BTreeMap<String, String>>,
}

impl Cloud {
    /// Puts the boundary around `provider`.
    pub fn new(provider: Started, metrics: Metrics) -> Self {
        let (current, replaced) = (Arc::new(ArcSwap::from_pointee(provider)), watch::Sender::new(0));
        Self { current, replaced, metrics, labels: Arc::default() }
    }

    /// The same, every instance with these additional labels, which count more than the provider's own.
    #[must_use]
    pub fn with_labels(self, labels: BTreeMap<String, String>) -> Self {
        Self { labels: Arc::new(labels), ..self }
    }

    /// The provider behind the boundary, as of now.
    pub fn provider(&self) -> Arc<dyn CloudProvider> {
        self.current.load().provider.clone()
    }

    /// Lets the provider behind `other` take over. The one before is stopped when the last call of it has ended.
    pub fn replace_with(&self, other: &Self) {
        self.current.store(other.current.load_full());
        self.replaced.send_modify(|count| *count += 1);
    }

    /// Stops the provider and waits until it has ended what it began, for some seconds at most.
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

    /// Whose the Node is, by its provider ID.
    pub fn owner_of(&self, node: &Node) -> Owner {
        let Some(id) = &node.identity.provider_id else { return Owner::Nobody };
        if self.owns(node) {
            return Owner::Us;
        }
        let scheme = id.split_once("://").map(|(scheme, _)| scheme.to_owned());
        let is_ours = caught(|| scheme.as_deref() == Some(self.provider().name())).unwrap_or(false);
        if is_ours { Owner::UsBroken } else { Owner::Foreign }
    }

    /// Whether the Node's provider ID belongs to this provider. A Node without one belongs to nobody.
    pub fn owns(&self, node: &Node) -> bool {
        let Some(id) = &node.identity.provider_id else { return false };
        caught(|| self.provider().instances().is_some_and(|instances| instances.owns(id))).unwrap_or(false)
    }

    /// Looks up the instances of `nodes`, one answer each, in order.
    pub async fn lookup(&self, nodes: &[Arc<Node>]) -> Vec<InstanceLookup> {
        let identities: Vec<&NodeIdentity> = nodes.iter().map(|node| &node.identity).collect();
        // Held until the call ends: a provider that is replaced is not stopped before.
        let current = self.current.load_full();
        let call = async {
            match current.provider.instances() {
                Some(instances) => instances.lookup(&identities).await,
                None => unknown(nodes.len(), || {
                    Error::unsupported("the cloud provider does not support instances")
                }),
            }
        };
        let has_errors = |answers: &[InstanceLookup]| {
            answers.iter().any(|answer| matches!(answer, InstanceLookup::Unknown(_)))
        };
        let mut answers = self
            .guarded("lookup", nodes.len(), call, has_errors)
            .await
            .unwrap_or_else(|error| unknown(nodes.len(), || copy_of(&error)));
        for answer in &mut answers {
            let InstanceLookup::Present(instance) = answer else { continue };
            let labels = self.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
            instance.metadata.additional_labels.extend(labels);
            // A Node keeps its provider ID for ever: one that nobody can read is not written.
            if let Err(error) = instance.provider_id.as_str().parse::<ProviderId>() {
                *answer = Error::new(ErrorKind::Internal, error.to_string()).into();
            }
        }
        answers
    }

    /// As [`lookup`](Self::lookup); zone and region that the instances do not carry are asked from the provider's
    /// [`Zones`](cloudprovider::Zones). Where those fail, the instance counts as incomplete.
    pub async fn lookup_with_zones(&self, nodes: &[Arc<Node>]) -> Vec<InstanceLookup> {
        let mut answers = self.lookup(nodes).await;
        let without: Vec<usize> = answers
            .iter()
            .enumerate()
            .filter(|(_, answer)| match answer {
                InstanceLookup::Present(i) => i.metadata.zone.is_none() && i.metadata.region.is_none(),
                InstanceLookup::Absent | InstanceLookup::Unknown(_) => false,
            })
            .map(|(index, _)| index)
            .collect();
        if without.is_empty() {
            return answers;
        }
        let identities: Vec<&NodeIdentity> = without.iter().map(|&index| &nodes[index].identity).collect();
        let current = self.current.load_full();
        let call = async {
            match current.provider.zones() {
                Some(zones) => zones.zones(&identities).await,
                None => identities.iter().map(|_| Ok(Zone::default())).collect(),
            }
        };
        let found = self
            .guarded("zones", identities.len(), call, |zones| zones.iter().any(Result::is_err))
            .await
            .unwrap_or_else(|error| without.iter().map(|_| Err(copy_of(&error))).collect());
        for (index, zone) in without.into_iter().zip(found) {
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

    /// What the provider pushes. Never ends: a provider that cannot push, or stops to, is silent. When another provider
    /// has taken over, its changes follow a [`Resync`](InstanceChange::Resync).
    pub fn changes(&self) -> InstanceStream {
        let replaced = self.replaced.subscribe();
        let begin = (self.clone(), self.changes_of_current(), replaced);
        stream::unfold(begin, |(cloud, mut changes, mut replaced)| async {
            tokio::select! {
                // Not an error: this stream holds the sender.
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
        let stream =
            caught(|| self.provider().instances().and_then(cloudprovider::Instances::changes)).flatten();
        let Some(stream) = stream else { return stream::pending().boxed() };
        AssertUnwindSafe(stream)
            .catch_unwind()
            .map(|change| {
                change.unwrap_or_else(|_| {
                    tracing::error!(
                        "the cloud provider's stream of changes panicked; relying on the periods"
                    );
                    InstanceChange::Resync
                })
            })
            .chain(stream::pending())
            .boxed()
    }

    /// Runs a call for `count` nodes with a deadline, catches its panic, counts it.
    async fn guarded<T>(
        &self,
        operation: &'static str,
        count: usize,
        call: impl Future<Output = Vec<T>>,
        has_errors: impl Fn(&[T]) -> bool,
    ) -> Result<Vec<T>, Error> {
        let start = Instant::now();
        self.metrics.inventory_age.asked(operation);
        #[expect(clippy::cast_precision_loss, reason = "no cluster has 2^52 nodes")]
        self.metrics.provider_batch.with_label_values(&[operation]).observe(count as f64);
        let outcome = tokio::time::timeout(CALL_TIMEOUT, AssertUnwindSafe(call).catch_unwind()).await;
        self.metrics
            .provider_call_duration
            .with_label_values(&[operation])
            .observe(start.elapsed().as_secs_f64());
        let fault = match outcome {
            Ok(Ok(answers)) if answers.len() == count => {
                let result = if has_errors(&answers) { "partial" } else { "ok" };
                if result == "ok" {
                    self.metrics.inventory_age.answered(operation);
                }
                self.metrics.provider_calls.with_label_values(&[operation, result]).inc();
                return Ok(answers);
            }
            Ok(Ok(answers)) => Error::new(
                ErrorKind::Internal,
                format!("the cloud provider gave {} answers for {count} nodes", answers.len()),
            ),
            // What it said is in the log, by the panic hook; it may hold anything, so it goes nowhere else.
            Ok(Err(_)) => Error::new(ErrorKind::Internal, "the cloud provider panicked; the log says more"),
            Err(_) => Error::new(ErrorKind::Timeout, format!("no answer within {CALL_TIMEOUT:?}")),
        };
        self.metrics.provider_calls.with_label_values(&[operation, fault.kind().as_str()]).inc();
        let fault = fault.with_operation(operation);
        tracing::error!(error = %fault, "call of the cloud provider failed");
        Err(fault)
    }
}

/// Runs a call that must not take long; `None` where it panics.
fn caught<T>(call: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(AssertUnwindSafe(call)).ok()
}

fn unknown(count: usize, error: impl Fn() -> Error) -> Vec<InstanceLookup> {
    (0..count).map(|_| InstanceLookup::Unknown(error())).collect()
}

/// The same fault once more: each node of a batch gets its own.
fn copy_of(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}

#[cfg(test)]
mod tests {
    use cloudprovider::{
        Clusters, Instance, Instances, LoadBalancer, PowerState, ProviderId, Routes, StartContext, Zone,
        Zones, async_trait,
    };

    use super::*;

    /// Behaves as badly as the name of the first node says.
    #[derive(Debug)]
    struct Unruly;

    #[async_trait]
    impl Instances for Unruly {
        fn owns(&self, provider_id: &str) -> bool {
            assert!(provider_id != "panic", "no such thing");
            provider_id.starts_with("unruly:///") && provider_id != "unruly:///"
        }
        async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
            match nodes[0].name.as_str() {
                "panic" => panic!("the disk is {}", "full"),
                "short" => Vec::new(),
                "hang" => std::future::pending().await,
                _ => nodes
                    .iter()
                    .map(|_| Instance::new(ProviderId::new("unruly", "/1"), PowerState::Running).into())
                    .collect(),
            }
        }
        fn changes(&self) -> Option<InstanceStream> {
            Some(
                stream::iter([0, 1])
                    .map(|i| if i == 0 { InstanceChange::Resync } else { panic!("x") })
                    .boxed(),
            )
        }
    }

    #[async_trait]
    impl Zones for Unruly {
        async fn zones(&self, nodes: &[&NodeIdentity]) -> Vec<cloudprovider::Result<Zone>> {
            nodes
                .iter()
                .map(|node| match node.name.as_str() {
                    "nowhere" => Err(Error::new(ErrorKind::Unavailable, "tags are away")),
                    _ => Ok(Zone { zone: Some("z".into()), region: None }),
                })
                .collect()
        }
    }

    #[async_trait]
    impl CloudProvider for Unruly {
        fn name(&self) -> &'static str {
            "unruly"
        }
        async fn start(&self, _: StartContext) -> cloudprovider::Result<()> {
            Ok(())
        }
        async fn ended(&self) {
            std::future::pending::<()>().await;
        }
        fn instances(&self) -> Option<&dyn Instances> {
            Some(self)
        }
        fn zones(&self) -> Option<&dyn Zones> {
            Some(self)
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

    fn cloud() -> Cloud {
        started(CancellationToken::new())
    }

    fn started(stop: CancellationToken) -> Cloud {
        Cloud::new(Started::new(Arc::new(Unruly), stop), Metrics::new().expect("metrics"))
    }

    fn nodes(names: &[&str]) -> Vec<Arc<Node>> {
        let node = |name: &&str| {
            let identity = NodeIdentity { name: (*name).into(), ..NodeIdentity::default() };
            Arc::new(Node { identity, ..Node::default() })
        };
        names.iter().map(node).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn every_fault_is_unknown_for_every_node() {
        for (first, kind, words) in [
            ("panic", ErrorKind::Internal, "lookup: the cloud provider panicked; the log says more"),
            ("short", ErrorKind::Internal, "lookup: the cloud provider gave 0 answers for 2 nodes"),
            ("hang", ErrorKind::Timeout, "lookup: no answer within 60s"),
        ] {
            let answers = cloud().lookup(&nodes(&[first, "b"])).await;
            assert_eq!(answers.len(), 2);
            for answer in answers {
                let InstanceLookup::Unknown(error) = answer else { panic!("{first} is not unknown") };
                assert_eq!(error.kind(), kind);
                assert_eq!(error.report(), words);
            }
        }
    }

    #[tokio::test]
    async fn zones_fill_what_instances_lack() {
        let answers = cloud().lookup_with_zones(&nodes(&["a", "nowhere"])).await;
        let [InstanceLookup::Present(a), InstanceLookup::Present(nowhere)] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert_eq!(a.metadata.zone.as_deref(), Some("z"));
        assert!(a.incomplete.is_none());
        let report = nowhere.incomplete.as_ref().map(Error::report);
        assert_eq!(report.as_deref(), Some("zone look-up failed: tags are away"));
    }

    #[tokio::test]
    async fn every_instance_has_the_labels_of_the_command_line() {
        let labels = BTreeMap::from([("example.com/rack".to_owned(), "a1".to_owned())]);
        let answers = cloud().with_labels(labels.clone()).lookup(&nodes(&["a", "b"])).await;
        for answer in answers {
            let InstanceLookup::Present(instance) = answer else { panic!("{answer:?}") };
            assert_eq!(instance.metadata.additional_labels, labels);
        }
    }

    #[tokio::test]
    async fn a_panicking_stream_ends_in_a_resync_and_silence() {
        let mut changes = cloud().changes();
        assert_eq!(changes.next().await, Some(InstanceChange::Resync));
        assert_eq!(changes.next().await, Some(InstanceChange::Resync));
        assert!(changes.next().now_or_never().is_none());
    }

    #[test]
    fn a_panic_in_owns_owns_nothing() {
        let node = |id: &str| {
            let identity = NodeIdentity { provider_id: Some(id.into()), ..NodeIdentity::default() };
            Node { identity, ..Node::default() }
        };
        assert!(cloud().owns(&node("unruly:///1")));
        assert!(!cloud().owns(&node("panic")));
        assert!(!cloud().owns(&Node::default()));
        assert_eq!(cloud().owner_of(&node("panic")), Owner::Foreign);
        assert_eq!(cloud().owner_of(&Node::default()), Owner::Nobody);
    }

    #[test]
    fn a_broken_id_of_ours_is_not_foreign() {
        for (id, owner) in [
            ("unruly:///1", Owner::Us),
            ("unruly:///", Owner::UsBroken),
            ("unruly", Owner::Foreign),
            ("unrulier:///1", Owner::Foreign),
            ("://", Owner::Foreign),
        ] {
            let identity = NodeIdentity { provider_id: Some(id.into()), ..NodeIdentity::default() };
            assert_eq!(cloud().owner_of(&Node { identity, ..Node::default() }), owner, "{id}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cloud_that_never_answered_has_an_age() {
        let cloud = cloud();
        let age = || {
            let text = cloud.metrics.text();
            let line =
                text.lines().find(|line| line.starts_with("cloud_controller_manager_inventory_age_seconds{"));
            line.map(|line| line.rsplit(' ').next().unwrap_or_default().to_owned())
        };
        assert_eq!(age(), None, "nobody has asked");
        for expected in ["60", "120"] {
            cloud.lookup(&nodes(&["hang"])).await;
            assert_eq!(age().as_deref(), Some(expected));
        }
        cloud.lookup(&nodes(&["a"])).await;
        assert_eq!(age().as_deref(), Some("0"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_does_not_end_is_not_waited_for_longer() {
        let stop = CancellationToken::new();
        let cloud = started(stop.clone());
        let began = tokio::time::Instant::now();
        cloud.stop().await;
        assert!(stop.is_cancelled());
        assert_eq!(began.elapsed(), END_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_is_replaced_ends_with_its_last_call() {
        let stop = [CancellationToken::new(), CancellationToken::new()];
        let cloud = started(stop[0].clone());
        let mut changes = cloud.changes();
        assert_eq!(changes.next().await, Some(InstanceChange::Resync));
        assert_eq!(changes.next().await, Some(InstanceChange::Resync));
        assert!(changes.next().now_or_never().is_none());
        let hanging = tokio::spawn({
            let cloud = cloud.clone();
            async move { cloud.lookup(&nodes(&["hang"])).await }
        });
        tokio::task::yield_now().await;
        cloud.replace_with(&started(stop[1].clone()));
        assert!(!stop[0].is_cancelled(), "a call is under way");
        for word in ["taken over", "its own first", "its panic"] {
            assert_eq!(changes.next().await, Some(InstanceChange::Resync), "{word}");
        }
        assert!(changes.next().now_or_never().is_none());
        assert!(matches!(cloud.lookup(&nodes(&["a"])).await[..], [InstanceLookup::Present(_)]));
        hanging.await.expect("timed out");
        assert!(stop[0].is_cancelled() && !stop[1].is_cancelled());
        drop((cloud, changes));
        assert!(stop[1].is_cancelled());
    }
}
