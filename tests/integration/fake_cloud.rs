//! A cloud that does what a test says.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cloudprovider::{
    CloudProvider, Clusters, Error, ErrorKind, Instance, InstanceChange, InstanceLookup, InstanceMetadata,
    InstanceRef, InstanceStream, Instances, LoadBalancer, NodeAddress, NodeIdentity, PowerState, ProviderId,
    Result, Routes, StartContext, Zones, async_trait,
};
use futures::StreamExt;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// One machine, found by its system UUID.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) power_state: PowerState,
    pub(crate) metadata: InstanceMetadata,
    /// Why its metadata is not complete, if so.
    pub(crate) incomplete: Option<&'static str>,
    /// Whether the cloud gives it a provider ID.
    pub(crate) has_id: bool,
}

impl Machine {
    /// A running machine with an address, type, zone and region.
    pub(crate) fn running(number: usize) -> Self {
        Self {
            power_state: PowerState::Running,
            metadata: InstanceMetadata {
                instance_type: Some("2c-4096m".into()),
                addresses: vec![
                    NodeAddress::internal_ip(format!("10.0.{}.{}", number / 250, number % 250 + 1)),
                    NodeAddress::internal_ip(format!("fd00::{:x}", number + 1)),
                ],
                zone: Some("rack-a".into()),
                region: Some("lab".into()),
                additional_labels: BTreeMap::new(),
            },
            incomplete: None,
            has_id: true,
        }
    }
}

/// Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct FakeCloud {
    state: Arc<Mutex<State>>,
    changes: broadcast::Sender<InstanceChange>,
}

#[derive(Debug, Default)]
struct State {
    machines: BTreeMap<String, Machine>,
    /// A look-up panics over these, and with them over its whole batch.
    poisoned: BTreeSet<String>,
    /// Whether Nodes are found by their system UUIDs whatever their provider IDs are.
    is_lenient: bool,
    /// What every look-up answers, if set.
    failure: Option<Failure>,
    /// How long every look-up takes; the answer is that of its beginning.
    delay: Duration,
    lookups: usize,
    /// What it was started with.
    stop: Option<CancellationToken>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    Unavailable(&'static str),
    Panic,
    /// Every machine seems to be gone.
    Empty,
}

impl FakeCloud {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), changes: broadcast::channel(1024).0 }
    }

    /// The cloud as a provider.
    pub(crate) fn provider(&self) -> Arc<dyn CloudProvider> {
        Arc::new(self.clone())
    }

    /// Puts a machine in or changes it, and pushes that.
    pub(crate) fn put(&self, uuid: &str, machine: Machine) {
        self.lock().machines.insert(uuid.to_owned(), machine);
        self.push(uuid);
    }

    /// Changes a machine, and pushes that.
    pub(crate) fn change(&self, uuid: &str, change: impl FnOnce(&mut Machine)) {
        change(self.lock().machines.get_mut(uuid).expect("the machine exists"));
        self.push(uuid);
    }

    /// Takes a machine away, and pushes that.
    pub(crate) fn remove(&self, uuid: &str) {
        self.lock().machines.remove(uuid);
        self.push(uuid);
    }

    /// Takes a machine away, and tells nobody.
    pub(crate) fn lose(&self, uuid: &str) {
        self.lock().machines.remove(uuid);
    }

    /// Makes all look-ups fail from now on, or work again.
    pub(crate) fn fail(&self, failure: Option<Failure>) {
        self.lock().failure = failure;
        let _ = self.changes.send(InstanceChange::Resync);
    }

    /// Lets look-ups panic over this machine from now on, or no more.
    pub(crate) fn poison(&self, uuid: &str, is_poisoned: bool) {
        let mut state = self.lock();
        if is_poisoned {
            state.poisoned.insert(uuid.to_owned());
        } else {
            state.poisoned.remove(uuid);
        }
    }

    /// Finds Nodes by their system UUIDs from now on, whatever their provider IDs are.
    pub(crate) fn ignore_provider_ids(&self) {
        self.lock().is_lenient = true;
    }

    /// Makes every look-up take this long.
    pub(crate) fn delay(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    fn answers(&self, nodes: &[&NodeIdentity]) -> (Vec<InstanceLookup>, Duration) {
        let mut state = self.lock();
        state.lookups += 1;
        let failure = state.failure;
        let answer = |node: &&NodeIdentity| -> InstanceLookup {
            match failure {
                Some(Failure::Unavailable(words)) => return Error::new(ErrorKind::Unavailable, words).into(),
                // As a panic, but without a word on the terminal.
                Some(Failure::Panic) => std::panic::resume_unwind(Box::new("the fake cloud falls")),
                Some(Failure::Empty) => return InstanceLookup::Absent,
                None => {}
            }
            let by_id = node.provider_id.as_deref().map(|id| id.trim_start_matches("fake:///"));
            let by_id = by_id.filter(|_| !state.is_lenient);
            let Some(uuid) = by_id.or(node.system_uuid.as_deref()) else { return InstanceLookup::Absent };
            if state.poisoned.contains(uuid) {
                std::panic::resume_unwind(Box::new("the fake cloud falls over one machine"));
            }
            match state.machines.get(uuid) {
                None => InstanceLookup::Absent,
                Some(machine) => {
                    let id = machine.has_id.then(|| ProviderId::new("fake", &format!("/{uuid}")));
                    let instance =
                        Instance::new(id, machine.power_state).with_metadata(machine.metadata.clone());
                    match machine.incomplete {
                        Some(why) => {
                            let after = Duration::from_secs(1);
                            instance.with_incomplete(Error::in_progress(after, why)).into()
                        }
                        None => instance.into(),
                    }
                }
            }
        };
        (nodes.iter().map(answer).collect(), state.delay)
    }

    /// How many batches were looked up.
    pub(crate) fn lookups(&self) -> usize {
        self.lock().lookups
    }

    /// Whether it was started and stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().stop.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    fn push(&self, uuid: &str) {
        let changed = InstanceRef {
            provider_id: Some(format!("fake:///{uuid}")),
            system_uuid: Some(uuid.to_owned()),
            name: None,
        };
        let _ = self.changes.send(InstanceChange::Changed(vec![changed]));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Instances for FakeCloud {
    fn owns(&self, provider_id: &str) -> bool {
        provider_id.starts_with("fake:///")
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        let (answers, delay) = self.answers(nodes);
        tokio::time::sleep(delay).await;
        answers
    }

    fn changes(&self) -> Option<InstanceStream> {
        let receiver = self.changes.subscribe();
        let stream = futures::stream::unfold(receiver, |mut receiver| async move {
            match receiver.recv().await {
                Ok(change) => Some((change, receiver)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((InstanceChange::Resync, receiver)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        });
        Some(stream.boxed())
    }
}

#[async_trait]
impl CloudProvider for FakeCloud {
    fn name(&self) -> &'static str {
        "fake"
    }
    async fn start(&self, context: StartContext) -> Result<()> {
        self.lock().stop = Some(context.stop);
        Ok(())
    }
    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
    fn zones(&self) -> Option<&dyn Zones> {
        None
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
