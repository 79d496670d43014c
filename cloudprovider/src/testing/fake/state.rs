//! The state of the fake cloud.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Call, FakeInstance, FakeLoadBalancer, Fault, Operation, gate::Gate, machine_parts::MachineParts,
};
use crate::{
    ControlPlaneEndpoint, InstanceLookup, InstanceStream, LoadBalancerStatus, NodeIdentity, Result, Route,
    Zone,
};

/// Limits on the recorded calls and on the node names in them: a test with thousands of nodes may run for
/// long.
const MAX_CALLS: usize = 10_000;
const MAX_NAMES: usize = 200_000;

pub(super) type Answer = Arc<dyn Fn(&NodeIdentity) -> InstanceLookup + Send + Sync>;
pub(super) type ZoneAnswer = Arc<dyn Fn(&NodeIdentity) -> Result<Zone> + Send + Sync>;
pub(super) type Owns = Arc<dyn Fn(&str) -> bool + Send + Sync>;
pub(super) type Streams = Arc<dyn Fn() -> InstanceStream + Send + Sync>;
type IsConcerned = Arc<dyn Fn(&NodeIdentity) -> bool + Send + Sync>;

#[derive(Default)]
pub(super) struct State {
    pub(super) instances: BTreeMap<String, FakeInstance>,
    pub(super) load_balancers: BTreeMap<String, FakeLoadBalancer>,
    pub(super) load_balancer_status: Option<LoadBalancerStatus>,
    /// How many addresses load balancers have got.
    pub(super) addresses_given: u32,
    /// Each with the name of its cluster.
    pub(super) routes: Vec<(String, Route)>,
    pub(super) clusters: BTreeMap<String, Option<ControlPlaneEndpoint>>,
    pub(super) answer: Option<Answer>,
    pub(super) zone: Option<ZoneAnswer>,
    pub(super) owns: Option<Owns>,
    pub(super) stream: Option<Streams>,
    pub(super) ignores_provider_ids: bool,
    pub(super) is_away: bool,
    pub(super) latency: Duration,
    pub(super) latency_per_node: Duration,
    pub(super) faults: Faults,
    pub(super) gates: BTreeMap<Operation, Arc<Gate>>,
    pub(super) calls: Calls,
    /// One token for each start.
    pub(super) stops: Vec<CancellationToken>,
    pub(super) machines: MachineParts,
}

impl State {
    /// Does what has come to its end by now.
    pub(super) fn settle(&mut self) {
        self.machines.settle(&mut self.instances, Instant::now());
    }
}

#[derive(Clone, Default)]
pub(super) struct Faults {
    every: BTreeMap<Operation, Fault>,
    next: BTreeMap<Operation, VecDeque<Fault>>,
    instances: BTreeMap<String, Fault>,
    nodes: Vec<(IsConcerned, Fault)>,
}

impl Faults {
    pub(super) fn set(&mut self, operation: Operation, fault: Option<Fault>) {
        set(&mut self.every, operation, fault);
    }

    pub(super) fn set_instance(&mut self, id: &str, fault: Option<Fault>) {
        set(&mut self.instances, id.to_owned(), fault);
    }

    pub(super) fn add_next(&mut self, operation: Operation, fault: Fault) {
        self.next.entry(operation).or_default().push_back(fault);
    }

    pub(super) fn add_nodes(&mut self, is_concerned: IsConcerned, fault: Fault) {
        self.nodes.push((is_concerned, fault));
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The fault of a call that begins now.
    pub(super) fn of_call(&mut self, operation: Operation) -> Option<Fault> {
        let next = self.next.get_mut(&operation).and_then(VecDeque::pop_front);
        next.or_else(|| self.every.get(&operation).cloned())
    }

    /// A copy of the faults of single nodes, for one call.
    pub(super) fn of_nodes(&self) -> NodeFaults {
        NodeFaults { instances: self.instances.clone(), nodes: self.nodes.clone() }
    }
}

fn set<K: Ord>(faults: &mut BTreeMap<K, Fault>, key: K, fault: Option<Fault>) {
    match fault {
        Some(fault) => faults.insert(key, fault),
        None => faults.remove(&key),
    };
}

pub(super) struct NodeFaults {
    instances: BTreeMap<String, Fault>,
    nodes: Vec<(IsConcerned, Fault)>,
}

impl NodeFaults {
    /// The fault that applies to this node, whose instance may have this ID.
    pub(super) fn over(&self, node: &NodeIdentity, id: Option<&str>) -> Option<&Fault> {
        let of_instance = id.and_then(|id| self.instances.get(id));
        of_instance.or_else(|| {
            let (_, fault) = self.nodes.iter().find(|(is_concerned, _)| is_concerned(node))?;
            Some(fault)
        })
    }
}

#[derive(Default)]
pub(super) struct Calls {
    kept: VecDeque<Call>,
    /// Number of node names in `kept`.
    names: usize,
    counts: BTreeMap<Operation, usize>,
}

impl Calls {
    pub(super) fn add(&mut self, call: Call) {
        *self.counts.entry(call.operation).or_default() += 1;
        self.names += call.nodes.len();
        self.kept.push_back(call);
        while self.kept.len() > MAX_CALLS || self.names > MAX_NAMES && self.kept.len() > 1 {
            self.names -= self.kept.pop_front().map_or(0, |call| call.nodes.len());
        }
    }

    pub(super) fn kept(&self) -> Vec<Call> {
        self.kept.iter().cloned().collect()
    }

    pub(super) fn count(&self, operation: Operation) -> usize {
        self.counts.get(&operation).copied().unwrap_or_default()
    }

    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}
