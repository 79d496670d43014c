//! A provider on the fake cloud.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Call, FakeCloud, FakeInstance, FakeLoadBalancer, Fault, Operation, state::State};
use crate::{
    CloudProvider, Clusters, ControlPlaneEndpoint, DynMachines, Error, ErrorKind, Instance, InstanceLookup,
    InstanceStream, Instances, LoadBalancer, LoadBalancerIngress, LoadBalancerService, LoadBalancerStatus,
    NodeIdentity, Result, Route, Routes, SecretName, StartContext, Zone, Zones, async_trait,
    default_load_balancer_name, instance_stream, machines::ObjectLocks,
};

pub(super) struct FakeProvider {
    pub(super) cloud: FakeCloud,
    form: String,
    /// Cancelled when the `stop` token of the start context is.
    pub(super) stopped: CancellationToken,
    pub(super) tasks: TaskTracker,
    /// The work of the cloud whose end this provider tells.
    pub(super) followed: Arc<Mutex<BTreeSet<String>>>,
    pub(super) object_locks: ObjectLocks,
}

impl fmt::Debug for FakeProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeProvider").field("name", &self.cloud.shared.name).finish_non_exhaustive()
    }
}

impl FakeCloud {
    /// Creates a provider on this cloud, not started.
    pub fn provider(&self) -> Arc<dyn CloudProvider> {
        Arc::new(FakeProvider::new(self.clone()))
    }
}

/// What the cloud has for a node at the beginning of a call.
enum Found {
    Nothing,
    Instance(Box<FakeInstance>),
    Several(Vec<String>),
}

/// A node, the ID that its instance has or would have, and what was found.
type Asked<'a> = (&'a NodeIdentity, Option<String>, Found);

impl FakeProvider {
    fn new(cloud: FakeCloud) -> Self {
        let form = format!("{}:///<id>", cloud.shared.name);
        Self {
            cloud,
            form,
            stopped: CancellationToken::new(),
            tasks: TaskTracker::new(),
            followed: Arc::default(),
            object_locks: ObjectLocks::default(),
        }
    }

    /// Records a call, and applies the latency and the fault that the test has set.
    async fn call(&self, operation: Operation, nodes: &[&NodeIdentity], subject: &str) -> Option<Fault> {
        let (latency, fault, gate) = {
            let mut state = self.cloud.lock();
            let names = nodes.iter().map(|node| node.name.clone()).collect();
            state.calls.add(Call { operation, nodes: names, subject: subject.to_owned() });
            let is_dead = state.machines.changes_until_crash == Some(0);
            let is_local = matches!(operation, Operation::Start | Operation::Ended);
            let away = (state.is_away && !is_local).then(|| Fault::Error(away()));
            let dead = (is_dead && !is_local).then_some(Fault::Hang);
            let fault = state.faults.of_call(operation).or(dead).or(away);
            let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
            let latency = state.latency + state.latency_per_node * count;
            let gate = state.gates.get(&operation).cloned();
            (if is_local { std::time::Duration::ZERO } else { latency }, fault, gate)
        };
        if let Some(gate) = gate {
            gate.pass().await;
        }
        if let Some(fault) = &fault {
            fault.strike().await;
        }
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        fault
    }

    /// Like [`call`](Self::call), for calls that are not batches. `act` is what the call does to the cloud if
    /// it does not fail.
    pub(super) async fn act<T>(
        &self,
        operation: Operation,
        nodes: &[&NodeIdentity],
        subject: &str,
        act: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        match self.call(operation, nodes, subject).await {
            None => act(&mut self.cloud.lock()),
            Some(Fault::Error(error)) => Err(error),
            Some(_) => Err(Error::new(ErrorKind::NotFound, "the fake cloud has nothing")),
        }
    }

    fn find<'a>(&self, nodes: &[&'a NodeIdentity]) -> Vec<Asked<'a>> {
        let state = self.cloud.lock();
        let mut names = BTreeMap::<&str, Vec<&String>>::new();
        for (id, instance) in &state.instances {
            if let Some(name) = &instance.name {
                names.entry(name).or_default().push(id);
            }
        }
        let prefix = format!("{}:///", self.cloud.shared.name);
        let one = |id: &str| {
            let instance = state.instances.get(id).cloned();
            (Some(id.to_owned()), instance.map_or(Found::Nothing, |one| Found::Instance(Box::new(one))))
        };
        let find = |node: &'a NodeIdentity| {
            let provider_id = node.provider_id.as_deref().filter(|_| !state.ignores_provider_ids);
            if let Some(id) = provider_id {
                return one(id.strip_prefix(&prefix).unwrap_or(id));
            }
            let lower = node.system_uuid.as_deref().map(str::to_ascii_lowercase);
            let uuids = [node.system_uuid.as_deref(), lower.as_deref()];
            let known = uuids.into_iter().flatten().find(|uuid| state.instances.contains_key(*uuid));
            match (known, names.get(node.name.as_str()).map(Vec::as_slice)) {
                (Some(uuid), _) => one(uuid),
                (None, Some([id])) => one(id),
                (None, Some(several)) => {
                    (None, Found::Several(several.iter().map(|id| (*id).clone()).collect()))
                }
                (None, None) => (node.system_uuid.clone(), Found::Nothing),
            }
        };
        nodes
            .iter()
            .map(|node| {
                let (id, found) = find(node);
                (*node, id, found)
            })
            .collect()
    }

    /// Answers a batch with `answer`, or with the faults that apply.
    async fn batch<A>(
        &self,
        operation: Operation,
        nodes: &[&NodeIdentity],
        answer: impl Fn(&Asked<'_>) -> A,
        failed: impl Fn(&Fault) -> A,
    ) -> Vec<A> {
        let asked = self.find(nodes);
        let faults = self.cloud.lock().faults.of_nodes();
        let over = |(node, id, _): &Asked<'_>| faults.over(node, id.as_deref()).cloned();
        if let Some(fault) = self.call(operation, nodes, "").await {
            return match fault {
                Fault::NoAnswers => Vec::new(),
                fault => nodes.iter().map(|_| failed(&fault)).collect(),
            };
        }
        let faults: Vec<Option<Fault>> = asked.iter().map(over).collect();
        if let Some(fault) = faults.iter().flatten().find(|fault| fault.is_of_the_call()) {
            fault.strike().await;
            return Vec::new();
        }
        let answers = asked.iter().zip(&faults);
        answers.map(|(asked, fault)| fault.as_ref().map_or_else(|| answer(asked), &failed)).collect()
    }

    fn instance(&self, (_, id, found): &Asked<'_>) -> InstanceLookup {
        match found {
            Found::Nothing => InstanceLookup::Absent,
            Found::Several(ids) => {
                let words = format!("instances {} have this name", ids.join(" and "));
                Error::new(ErrorKind::Ambiguous, words).into()
            }
            Found::Instance(found) => {
                id.as_ref().map_or_else(|| InstanceLookup::Absent, |id| self.seen(id, found).into())
            }
        }
    }

    /// The one place that says what is known of an instance, for Nodes and for machines.
    pub(super) fn seen(&self, id: &str, found: &FakeInstance) -> Instance {
        let id = found.has_provider_id.then(|| self.cloud.provider_id(id));
        let mut instance = Instance::new(id, found.power_state).with_metadata(found.metadata.clone());
        instance.incomplete.clone_from(&found.incomplete);
        instance
    }
}

fn away() -> Error {
    Error::new(ErrorKind::Unavailable, "the fake cloud cannot be reached")
}

#[async_trait]
impl CloudProvider for FakeProvider {
    fn name(&self) -> &str {
        &self.cloud.shared.name
    }

    async fn start(&self, context: StartContext) -> Result<()> {
        self.cloud.lock().stops.push(context.stop.clone());
        self.act(Operation::Start, &[], &context.cluster_name, |_| Ok(())).await?;
        let stopped = self.stopped.clone();
        self.tasks.spawn(async move {
            context.stop.cancelled().await;
            stopped.cancel();
        });
        Ok(())
    }

    async fn ended(&self) {
        self.call(Operation::Ended, &[], "").await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn limits(&self) -> Vec<String> {
        self.cloud.parts.limits.clone()
    }

    fn secrets(&self) -> Vec<SecretName> {
        self.cloud.parts.secrets.clone()
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.cloud.parts.has_instances.then_some(self)
    }

    fn zones(&self) -> Option<&dyn Zones> {
        self.cloud.parts.has_zones.then_some(self)
    }

    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        self.cloud.parts.has_load_balancers.then_some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.cloud.parts.has_routes.then_some(self)
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        self.cloud.parts.has_clusters.then_some(self)
    }

    fn machines(&self) -> Option<&dyn DynMachines> {
        self.cloud.parts.has_machines.then_some(self)
    }
}

#[async_trait]
impl Instances for FakeProvider {
    fn owns(&self, provider_id: &str) -> bool {
        let owns = self.cloud.lock().owns.clone();
        owns.map_or_else(
            || {
                let rest = provider_id.strip_prefix(&self.cloud.shared.name);
                let id = rest.and_then(|rest| rest.strip_prefix(":///"));
                id.is_some_and(|id| !id.trim_matches('/').is_empty())
            },
            |owns| owns(provider_id),
        )
    }

    fn provider_id_form(&self) -> Option<&str> {
        Some(&self.form)
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        let own = self.cloud.lock().answer.clone();
        let answer = |asked: &Asked<'_>| match &own {
            Some(own) => own(asked.0),
            None => self.instance(asked),
        };
        let failed = |fault: &Fault| match fault {
            Fault::Error(error) => error.clone().into(),
            _ => InstanceLookup::Absent,
        };
        self.batch(Operation::Lookup, nodes, answer, failed).await
    }

    fn changes(&self) -> Option<InstanceStream> {
        let own = {
            let mut state = self.cloud.lock();
            let call = Call { operation: Operation::Changes, nodes: Vec::new(), subject: String::new() };
            state.calls.add(call);
            state.stream.clone()
        };
        let stream = || instance_stream(self.cloud.shared.changes.subscribe(), self.stopped.clone());
        self.cloud.parts.has_changes.then(|| own.map_or_else(stream, |own| own()))
    }
}

#[async_trait]
impl Zones for FakeProvider {
    async fn zones(&self, nodes: &[&NodeIdentity]) -> Vec<Result<Zone>> {
        let own = self.cloud.lock().zone.clone();
        let answer = |asked: &Asked<'_>| match &own {
            Some(own) => own(asked.0),
            None => match self.instance(asked) {
                InstanceLookup::Present(instance) => {
                    Ok(Zone { zone: instance.metadata.zone, region: instance.metadata.region })
                }
                InstanceLookup::Absent => Err(Error::new(ErrorKind::NotFound, "there is no such instance")),
                InstanceLookup::Unknown(error) => Err(error),
            },
        };
        let failed = |fault: &Fault| match fault {
            Fault::Error(error) => Err(error.clone()),
            _ => Err(Error::new(ErrorKind::NotFound, "there is no such instance")),
        };
        self.batch(Operation::Zones, nodes, answer, failed).await
    }
}

fn names(nodes: &[&NodeIdentity]) -> Vec<String> {
    nodes.iter().map(|node| node.name.clone()).collect()
}

#[async_trait]
impl LoadBalancer for FakeProvider {
    fn name(&self, _cluster_name: &str, service: &LoadBalancerService) -> String {
        default_load_balancer_name(&service.uid)
    }

    async fn get(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
    ) -> Result<Option<LoadBalancerStatus>> {
        let name = LoadBalancer::name(self, cluster_name, service);
        let get = |state: &mut State| Ok(state.load_balancers.get(&name).map(|one| one.status.clone()));
        self.act(Operation::GetLoadBalancer, &[], &name, get).await
    }

    async fn ensure(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
        nodes: &[&NodeIdentity],
    ) -> Result<LoadBalancerStatus> {
        let name = LoadBalancer::name(self, cluster_name, service);
        let ensure = |state: &mut State| {
            let known = state.load_balancers.get(&name).map(|one| one.status.clone());
            let status = known.or_else(|| state.load_balancer_status.clone());
            let status = status.unwrap_or_else(|| {
                state.addresses_given += 1;
                // 198.18.0.0/15 is reserved for tests of networks
                let [_, _, c, d] = state.addresses_given.to_be_bytes();
                let ip = service.load_balancer_ip.clone().unwrap_or_else(|| format!("198.18.{c}.{d}"));
                let ingress = LoadBalancerIngress { ip: Some(ip), ..LoadBalancerIngress::default() };
                LoadBalancerStatus { ingress: vec![ingress] }
            });
            let made = FakeLoadBalancer {
                cluster_name: cluster_name.to_owned(),
                service: service.clone(),
                nodes: names(nodes),
                status: status.clone(),
            };
            state.load_balancers.insert(name.clone(), made);
            Ok(status)
        };
        self.act(Operation::EnsureLoadBalancer, nodes, &name, ensure).await
    }

    async fn update(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
        nodes: &[&NodeIdentity],
    ) -> Result<()> {
        let name = LoadBalancer::name(self, cluster_name, service);
        let update = |state: &mut State| match state.load_balancers.get_mut(&name) {
            Some(one) => {
                one.nodes = names(nodes);
                Ok(())
            }
            None => Err(Error::new(ErrorKind::NotFound, format!("there is no load balancer {name:?}"))),
        };
        self.act(Operation::UpdateLoadBalancer, nodes, &name, update).await
    }

    async fn delete(&self, cluster_name: &str, service: &LoadBalancerService) -> Result<()> {
        let name = LoadBalancer::name(self, cluster_name, service);
        let delete = |state: &mut State| {
            state.load_balancers.remove(&name);
            Ok(())
        };
        self.act(Operation::DeleteLoadBalancer, &[], &name, delete).await
    }
}

#[async_trait]
impl Routes for FakeProvider {
    async fn list(&self, cluster_name: &str) -> Result<Vec<Route>> {
        let list = |state: &mut State| {
            let of_cluster = state.routes.iter().filter(|(cluster, _)| cluster == cluster_name);
            Ok(of_cluster.map(|(_, route)| route.clone()).collect())
        };
        self.act(Operation::ListRoutes, &[], cluster_name, list).await
    }

    async fn create(&self, cluster_name: &str, name_hint: &str, route: &Route) -> Result<()> {
        let cidr = &route.destination_cidr;
        let create = |state: &mut State| {
            let is_taken = |(cluster, known): &&(String, Route)| {
                cluster == cluster_name && known.destination_cidr == *cidr
            };
            match state.routes.iter().find(is_taken) {
                Some((_, known)) if known.target_node == route.target_node => return Ok(()),
                Some((_, known)) => {
                    let words = format!("there is a route to {cidr} already, to {:?}", known.target_node);
                    return Err(Error::new(ErrorKind::Conflict, words));
                }
                None => {}
            }
            let name = format!("{cluster_name}-{name_hint}-{cidr}");
            state.routes.push((cluster_name.to_owned(), Route { name, ..route.clone() }));
            Ok(())
        };
        self.act(Operation::CreateRoute, &[], cidr, create).await
    }

    async fn delete(&self, cluster_name: &str, route: &Route) -> Result<()> {
        let delete = |state: &mut State| {
            state.routes.retain(|(cluster, known)| cluster != cluster_name || known.name != route.name);
            Ok(())
        };
        self.act(Operation::DeleteRoute, &[], &route.destination_cidr, delete).await
    }
}

#[async_trait]
impl Clusters for FakeProvider {
    async fn list(&self) -> Result<Vec<String>> {
        self.act(Operation::ListClusters, &[], "", |state| Ok(state.clusters.keys().cloned().collect())).await
    }

    async fn control_plane_endpoint(&self, cluster: &str) -> Result<Option<ControlPlaneEndpoint>> {
        let find = |state: &mut State| {
            let found = state.clusters.get(cluster).cloned();
            found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no cluster {cluster:?}")))
        };
        self.act(Operation::ControlPlaneEndpoint, &[], cluster, find).await
    }
}
