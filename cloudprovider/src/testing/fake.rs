//! A cloud that a test controls.

mod fault;
mod gate;
mod hold;
mod instance;
mod machine_parts;
mod machine_steps;
mod machines;
mod parts;
mod provider;
mod state;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

pub use self::{
    fault::{Call, Fault, Operation},
    hold::Held,
    instance::{FakeInstance, FakeLoadBalancer},
    machines::{FAKE_FLAVOR, FAKE_GUEST, FAKE_REGION, FakeClusterSpec, FakeMachineSpec, FakeMachineStatus},
};
use self::{parts::Parts, state::State};
use crate::{
    ControlPlaneEndpoint, InstanceChange, InstanceLookup, InstanceRef, InstanceStream, LoadBalancerStatus,
    NodeIdentity, ProviderId, Result, Route, SecretName, Zone,
};

/// How many changes a slow reader may be behind before it gets a `Resync` instead.
const CHANGES_KEPT: usize = 1024;

/// A cloud in memory: see [the module](super). Clones are handles to the same cloud.
///
/// A test adds instances by an ID. An instance has the provider ID `<name of the cloud>:///<ID>`, and the ID
/// is also its system UUID. A node with a provider ID is found by that ID alone. Any other node is found by
/// its system UUID, then by its name.
///
/// The providers have [`Instances`](crate::Instances) and push changes. They have [`Zones`](crate::Zones) and
/// the other parts only if the test asks for them.
#[derive(Clone)]
pub struct FakeCloud {
    shared: Arc<Shared>,
    parts: Parts,
}

struct Shared {
    name: String,
    state: Mutex<State>,
    changes: broadcast::Sender<InstanceChange>,
}

impl Default for FakeCloud {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FakeCloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeCloud").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// The parts that the cloud has, and its providers.
impl FakeCloud {
    /// An empty cloud called `fake`.
    pub fn new() -> Self {
        Self::named("fake")
    }

    /// An empty cloud with this name. Its providers have the same name.
    pub fn named(name: impl Into<String>) -> Self {
        let shared = Shared {
            name: name.into(),
            state: Mutex::default(),
            changes: broadcast::channel(CHANGES_KEPT).0,
        };
        Self { shared: Arc::new(shared), parts: Parts::default() }
    }

    /// The same cloud; providers made from this handle have no instances.
    #[must_use]
    pub fn without_instances(mut self) -> Self {
        self.parts.has_instances = false;
        self
    }

    /// The same cloud; providers made from this handle push no changes.
    #[must_use]
    pub fn without_changes(mut self) -> Self {
        self.parts.has_changes = false;
        self
    }

    /// The same cloud; providers made from this handle have zones, taken from the instances.
    #[must_use]
    pub fn with_zones(mut self) -> Self {
        self.parts.has_zones = true;
        self
    }

    /// The same cloud; providers made from this handle have load balancers.
    #[must_use]
    pub fn with_load_balancers(mut self) -> Self {
        self.parts.has_load_balancers = true;
        self
    }

    /// The same cloud; providers made from this handle have routes.
    #[must_use]
    pub fn with_routes(mut self) -> Self {
        self.parts.has_routes = true;
        self
    }

    /// The same cloud; providers made from this handle have clusters.
    #[must_use]
    pub fn with_clusters(mut self) -> Self {
        self.parts.has_clusters = true;
        self
    }

    /// The same cloud; the configuration of providers made from this handle names these Secrets.
    #[must_use]
    pub fn with_secrets(mut self, secrets: impl IntoIterator<Item = SecretName>) -> Self {
        self.parts.secrets = secrets.into_iter().collect();
        self
    }
}

/// Rights.
impl FakeCloud {
    /// The same cloud; providers made from this handle [work without](crate::CloudProvider::limits) this.
    #[must_use]
    pub fn with_limit(mut self, limit: impl Into<String>) -> Self {
        self.parts.limits.push(limit.into());
        self
    }
}

/// Instances.
impl FakeCloud {
    /// Adds or replaces an instance, and pushes the change.
    pub fn put(&self, id: &str, instance: FakeInstance) {
        self.lock().instances.insert(id.to_owned(), instance);
        self.push_instance(id);
    }

    /// Changes an instance, and pushes the change.
    ///
    /// # Panics
    /// If there is no instance with this ID.
    #[track_caller]
    pub fn change(&self, id: &str, change: impl FnOnce(&mut FakeInstance)) {
        let is_there = self.lock().instances.get_mut(id).map(change).is_some();
        assert!(is_there, "there is no instance {id:?} to change");
        self.push_instance(id);
    }

    /// Removes an instance, and pushes the change.
    pub fn remove(&self, id: &str) {
        let mark = self.lock().instances.remove(id).and_then(|instance| instance.mark);
        self.push_changed(id, None, mark.map(|mark| mark.uid));
    }

    /// Removes an instance without pushing the change.
    pub fn lose(&self, id: &str) {
        self.lock().instances.remove(id);
    }

    /// The provider ID of the instance with this ID, whether the instance exists or not.
    pub fn provider_id(&self, id: &str) -> ProviderId {
        ProviderId::new(&self.shared.name, &format!("/{id}"))
    }

    /// Pushes a change of this instance.
    pub fn push_instance(&self, id: &str) {
        let (name, machine) = {
            let state = self.lock();
            match state.instances.get(id) {
                Some(one) => (one.name.clone(), one.mark.as_ref().map(|mark| mark.uid.clone())),
                // The ID of a machine is the UID of its mark.
                None => (None, state.machines.is_machine(id).then(|| id.to_owned())),
            }
        };
        self.push_changed(id, name, machine);
    }

    fn push_changed(&self, id: &str, name: Option<String>, machine: Option<String>) {
        let provider_id = Some(self.provider_id(id).as_str().to_owned());
        let changed = InstanceRef { provider_id, system_uuid: Some(id.to_owned()), name, machine };
        self.push(InstanceChange::Changed(vec![changed]));
    }

    /// Pushes a change to every stream. While the cloud is [disconnected](Self::disconnect), the change is
    /// dropped.
    pub fn push(&self, change: InstanceChange) {
        if !self.lock().is_away {
            // An error means that there are no streams.
            let _ = self.shared.changes.send(change);
        }
    }
}

/// Answers that the test gives.
impl FakeCloud {
    /// Look-ups answer with this function instead of the instances. It may panic.
    pub fn answer_with(&self, answer: impl Fn(&NodeIdentity) -> InstanceLookup + Send + Sync + 'static) {
        self.lock().answer = Some(Arc::new(answer));
    }

    /// [`owns`](crate::Instances::owns) answers with this function. It may panic.
    pub fn own_with(&self, owns: impl Fn(&str) -> bool + Send + Sync + 'static) {
        self.lock().owns = Some(Arc::new(owns));
    }

    /// Zones come from this function instead of the instances. It may panic.
    pub fn zones_with(&self, zone: impl Fn(&NodeIdentity) -> Result<Zone> + Send + Sync + 'static) {
        self.lock().zone = Some(Arc::new(zone));
    }

    /// Streams of changes come from this function. Pushed changes do not reach them.
    pub fn changes_with(&self, changes: impl Fn() -> InstanceStream + Send + Sync + 'static) {
        self.lock().stream = Some(Arc::new(changes));
    }

    /// Finds nodes by their system UUIDs and names even if they have provider IDs. Such a cloud breaks the
    /// contract.
    pub fn ignore_provider_ids(&self) {
        self.lock().ignores_provider_ids = true;
    }
}

/// Faults and latency. A fault of one call takes precedence over the fault of every call, and that over
/// faults of nodes.
impl FakeCloud {
    /// Makes every call of this operation fail from now on, or work again with `None`.
    pub fn fail(&self, operation: Operation, fault: impl Into<Option<Fault>>) {
        self.lock().faults.set(operation, fault.into());
    }

    /// Makes the next call of this operation fail. Several faults apply to as many calls, in order.
    pub fn fail_next(&self, operation: Operation, fault: impl Into<Fault>) {
        self.lock().faults.add_next(operation, fault.into());
    }

    /// Makes look-ups and zones fail for the instance with this ID from now on, or work again with `None`. A
    /// panic or a hang concerns the whole batch.
    pub fn fail_instance(&self, id: &str, fault: impl Into<Option<Fault>>) {
        self.lock().faults.set_instance(id, fault.into());
    }

    /// Like [`fail_instance`](Self::fail_instance), for all nodes for which `is_concerned` is true.
    pub fn fail_nodes(
        &self,
        is_concerned: impl Fn(&NodeIdentity) -> bool + Send + Sync + 'static,
        fault: impl Into<Fault>,
    ) {
        self.lock().faults.add_nodes(Arc::new(is_concerned), fault.into());
    }

    /// Removes every fault, those of tasks too.
    pub fn mend(&self) {
        let mut state = self.lock();
        state.faults.clear();
        state.machines.failures.clear();
    }

    /// Delays every call except `start` and `ended`. Look-ups and zones use the instances as they are at the
    /// beginning of the call.
    pub fn set_latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// Delays look-ups and zones by this much more for each node.
    pub fn set_latency_per_node(&self, latency: Duration) {
        self.lock().latency_per_node = latency;
    }

    /// Cuts the connection: look-ups answer `Unknown`, other calls fail, and changes are not pushed.
    pub fn disconnect(&self) {
        self.lock().is_away = true;
    }

    /// Restores the connection, and pushes a `Resync`.
    pub fn reconnect(&self) {
        self.lock().is_away = false;
        self.push(InstanceChange::Resync);
    }
}

/// The calls that were made.
impl FakeCloud {
    /// The recorded calls, the oldest first. In a test of ordinary size these are all calls. If there are
    /// very many, the oldest ones are dropped; [`count`](Self::count) still counts them.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.kept()
    }

    /// How many calls of this operation there were.
    pub fn count(&self, operation: Operation) -> usize {
        self.lock().calls.count(operation)
    }

    /// Forgets the calls so far.
    pub fn forget_calls(&self) {
        self.lock().calls.forget();
    }

    /// Whether a provider of this cloud was started.
    pub fn is_started(&self) -> bool {
        !self.lock().stops.is_empty()
    }

    /// Whether a provider of this cloud was started, and all that were started have been told to stop.
    pub fn is_stopped(&self) -> bool {
        let state = self.lock();
        !state.stops.is_empty() && state.stops.iter().all(CancellationToken::is_cancelled)
    }
}

/// Load balancers, routes and clusters.
impl FakeCloud {
    /// All load balancers, by their names.
    pub fn load_balancers(&self) -> BTreeMap<String, FakeLoadBalancer> {
        self.lock().load_balancers.clone()
    }

    /// Sets the status of load balancers that are created from now on. With `None` each gets an address of
    /// its own, or that of `spec.loadBalancerIP`.
    pub fn set_load_balancer_status(&self, status: impl Into<Option<LoadBalancerStatus>>) {
        self.lock().load_balancer_status = status.into();
    }

    /// Removes a load balancer behind the provider's back.
    pub fn lose_load_balancer(&self, name: &str) {
        self.lock().load_balancers.remove(name);
    }

    /// All routes of all clusters, in the order in which they were made.
    pub fn routes(&self) -> Vec<Route> {
        self.lock().routes.iter().map(|(_, route)| route.clone()).collect()
    }

    /// Adds a route of this cluster behind the provider's back.
    pub fn put_route(&self, cluster_name: &str, route: Route) {
        self.lock().routes.push((cluster_name.to_owned(), route));
    }

    /// Adds a cluster, with the endpoint of its control plane if that runs.
    pub fn put_cluster(&self, name: &str, endpoint: Option<ControlPlaneEndpoint>) {
        self.lock().clusters.insert(name.to_owned(), endpoint);
    }
}

impl FakeCloud {
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.shared.state.lock();
        state.settle();
        state
    }
}

#[cfg(test)]
mod tests;
