//! The Machines of a `MachineHealthCheck`, and how each is.

use std::sync::Arc;

use cluster_api::{
    Cluster, Machine, MachineHealthCheck,
    names::{annotations, conditions as types, labels, reasons},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt as _;
use lifecycle::{
    conditions::{Condition, Status},
    health_check::{Checks, Health, Node as NodeOfTarget, Target, evaluate},
};

use crate::{
    core::Core,
    engine::{
        conditions::read,
        control::Failure,
        object::{Meta as _, Stored},
    },
    kept::Kept,
    replicas::{selector, selects},
    workload::{Node, WorkloadCluster},
};

/// How many Nodes are read at the same time.
const AT_ONCE: usize = 8;

/// A Machine, and how it is.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) machine: Arc<Stored<Machine>>,
    pub(super) health: Health,
    /// Whether it counts as healthy.
    pub(super) is_healthy: bool,
}

impl Judged {
    pub(super) fn is_unhealthy(&self) -> bool {
        matches!(self.health, Health::Unhealthy { .. })
    }
}

/// Where the Node of a Machine is.
enum Found {
    /// There was none yet, or the cluster cannot be asked.
    None,
    /// The cluster had it, and confirms that it is gone.
    Deleted,
    There(Arc<Node>),
}

/// The Machines that a check is about, by name. Those that a user has taken out of it are not among them.
///
/// # Errors
/// If the selector cannot be read, or selects all.
pub(super) fn machines(
    core: &Core,
    check: &MachineHealthCheck,
) -> Result<Vec<Arc<Stored<Machine>>>, Failure> {
    let selector = selector(&check.spec.selector)?;
    let mut machines = core.machines_in(check.namespace_or_empty(), |machine| {
        is_of_cluster(machine, &check.spec.cluster_name)
            && selects(&selector, machine.labels())
            && !is_left_alone(machine)
    });
    machines.sort_by(|one, other| one.name_or_empty().cmp(other.name_or_empty()));
    Ok(machines)
}

/// Whether a Machine is of this Cluster, and says so in its label too: a Machine without the label is not known to its controller yet.
fn is_of_cluster(machine: &Machine, cluster: &str) -> bool {
    machine.spec.cluster_name == cluster && machine.label(labels::CLUSTER_NAME) == Some(cluster)
}

/// A Machine that is kept has been replaced already.
fn is_left_alone(machine: &Machine) -> bool {
    let has_one = [annotations::PAUSED, annotations::SKIP_REMEDIATION]
        .iter()
        .any(|annotation| machine.annotations().contains_key(*annotation));
    has_one || Kept::of(machine).is_some()
}

/// Looks at all of these Machines. `connected`: the workload cluster, unless its control plane was never there.
///
/// # Errors
/// If a Node that the cache does not show cannot be read: whether it is gone is unknown.
pub(super) async fn judge(
    machines: Vec<Arc<Stored<Machine>>>,
    checks: &Checks,
    cluster: &Cluster,
    connected: Option<&WorkloadCluster>,
    now: i64,
) -> Result<Vec<Judged>, Failure> {
    let of_cluster = cluster.status.as_ref().map(|status| read(&status.conditions)).unwrap_or_default();
    let of_cluster = &of_cluster;
    let judged = machines.into_iter().map(|machine| async move {
        let found = find(connected, &machine).await?;
        let conditions = conditions_of(&machine);
        let health = health(checks, &machine, &conditions, of_cluster, &found, now);
        let is_healthy = counts_as_healthy(&machine, &health, &conditions, &found);
        Ok(Judged { machine, health, is_healthy })
    });
    stream::iter(judged).buffered(AT_ONCE).try_collect().await
}

async fn find(connected: Option<&WorkloadCluster>, machine: &Machine) -> Result<Found, Failure> {
    let name = machine.status.as_ref().map(|status| status.node_ref.name.as_str()).unwrap_or_default();
    let Some(connected) = connected.filter(|_| !name.is_empty()) else { return Ok(Found::None) };
    if let Some(node) = connected.nodes().get(name) {
        return Ok(Found::There(node));
    }
    // It was read when that was written.
    if is_known_as_deleted(machine) {
        return Ok(Found::Deleted);
    }
    match connected.read_node(name).await {
        Ok(Some(node)) => Ok(Found::There(Arc::new(node))),
        Ok(None) => Ok(Found::Deleted),
        Err(error) => {
            let cluster = connected.key();
            Err(Failure::Failed(format!("Node {name} of Cluster {cluster} cannot be read: {error}")))
        }
    }
}

fn conditions_of(machine: &Machine) -> Vec<Condition> {
    machine.status.as_ref().map(|status| read(&status.conditions)).unwrap_or_default()
}

fn is_known_as_deleted(machine: &Machine) -> bool {
    let status = machine.status.as_ref();
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    conditions.any(|one| one.type_ == types::HEALTH_CHECK_SUCCEEDED && one.reason == reasons::NODE_DELETED)
}

fn health(
    checks: &Checks,
    machine: &Machine,
    conditions: &[Condition],
    of_cluster: &[Condition],
    found: &Found,
    now: i64,
) -> Health {
    let node = match found {
        Found::None => NodeOfTarget::None,
        Found::Deleted => NodeOfTarget::Deleted {
            name: machine.status.as_ref().map(|status| status.node_ref.name.as_str()).unwrap_or_default(),
        },
        Found::There(node) => NodeOfTarget::Exists { conditions: &node.conditions },
    };
    let target = Target {
        requested: machine.annotations().contains_key(annotations::REMEDIATE_MACHINE),
        control_plane: machine.labels().contains_key(labels::CONTROL_PLANE),
        control_plane_initialized: true_since(of_cluster, types::CONTROL_PLANE_INITIALIZED),
        cluster_infrastructure: true_since(of_cluster, types::INFRASTRUCTURE_READY),
        machine_infrastructure: true_since(conditions, types::INFRASTRUCTURE_READY),
        created: machine.created(),
        conditions,
        node,
    };
    evaluate(checks, &target, now)
}

/// Since when a condition is `True`. `None`: it is not.
pub(super) fn true_since(conditions: &[Condition], kind: &str) -> Option<i64> {
    let found = conditions.iter().find(|one| one.kind == kind && one.status == Status::True);
    found.map(|condition| condition.since)
}

/// A Machine that is not evaluated now, since the infrastructure of its Cluster is not ready, is as healthy as it was.
fn counts_as_healthy(machine: &Machine, health: &Health, conditions: &[Condition], found: &Found) -> bool {
    let has_node = matches!(found, Found::There(_));
    let was_healthy = || true_since(conditions, types::HEALTH_CHECK_SUCCEEDED).is_some();
    match health {
        Health::Healthy => !machine.is_deleting(),
        Health::Undecided { again: None } => !machine.is_deleting() && has_node && was_healthy(),
        Health::Undecided { again: Some(_) } | Health::Unhealthy { .. } => false,
    }
}
