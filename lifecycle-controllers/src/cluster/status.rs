//! The status of a Cluster.

use std::{collections::BTreeSet, time::Duration};

use cluster_api::{
    Cluster, ClusterControlPlaneStatus, ClusterPhase, ClusterStatus, ConditionPolarity,
    ContractVersionedObjectReference, FailureDomain, MachineDeploymentStatus, MachineSetStatus,
    StatusVersion, WorkersStatus,
    names::{annotations, conditions as types},
};
use kube::ResourceExt as _;
use lifecycle::{
    cluster::{
        Change, Counts, Phase, Progress, Reference, Remote, StandAlone, available, control_plane_available,
        control_plane_initialized, in_progress, infrastructure_ready, phase, remediating, remote_connection,
        topology_reconciled, workers_available,
    },
    conditions::{Polarity, Source, Statement, Status},
    machine::{Gate, Probe, Related},
    replicas::{machines_ready, machines_up_to_date},
};

use super::{
    descendants::{Descendants, WithConditions, is_of_cluster},
    related::{RelatedObjects, has_endpoint, lasting},
};
use crate::{
    core::{Referenced, defined},
    engine::{
        conditions::{Conditions, paused, read},
        control::Then,
        external::External,
        object::Meta as _,
    },
    replicas::{Machines, permitted, status_versions},
};

/// What a pass has found out.
#[derive(Debug)]
pub(super) struct Observed<'a> {
    pub(super) related: &'a RelatedObjects,
    pub(super) descendants: &'a Descendants,
    /// The stage of its deletion.
    pub(super) deletion: Option<Statement>,
    /// The connection to the workload cluster.
    pub(super) probe: Probe,
    /// Why there is no connection. `None`: there is one.
    pub(super) trouble: Option<String>,
    /// For how long the last successful probe counts.
    pub(super) connection_grace: Duration,
    pub(super) now: i64,
}

/// The status after a pass, and when time alone changes it.
pub(super) fn status(cluster: &Cluster, observed: &Observed<'_>) -> (ClusterStatus, Then) {
    let before = cluster.status.clone().unwrap_or_default();
    let mut status = ClusterStatus { observed_generation: cluster.metadata.generation, ..before };
    let machines = MachinesOf::new(observed.descendants);
    copy(cluster, observed, machines.stand_alone, &mut status);
    status.control_plane = control_plane_counters(cluster, observed, &machines, &status.control_plane);
    status.workers = worker_counters(cluster, observed.descendants, &status.workers);
    let mut conditions = Conditions::of(&status.conditions, cluster.metadata.generation);
    let remote = remote_connection(
        &observed.probe,
        observed.trouble.as_deref(),
        conditions.get(types::REMOTE_CONNECTION_PROBE).map(|one| one.message.as_str()),
        observed.connection_grace,
        observed.now,
    );
    let then = remote.again.map_or(Then::WhenChanged, Then::After);
    say(&mut conditions, cluster, observed, &status, &machines, remote);
    status.conditions = conditions.write();
    let initialization = &status.initialization;
    let progress = Progress {
        has_reference: [&cluster.spec.infrastructure_ref, &cluster.spec.control_plane_ref]
            .into_iter()
            .any(|reference| defined(reference).is_some()),
        is_provisioned: initialization.infrastructure_provisioned.unwrap_or_default(),
        has_endpoint: has_endpoint(cluster),
        is_deleting: cluster.is_deleting(),
    };
    status.phase = Some(match phase(&progress) {
        Phase::Pending => ClusterPhase::Pending,
        Phase::Provisioning => ClusterPhase::Provisioning,
        Phase::Provisioned => ClusterPhase::Provisioned,
        Phase::Deleting => ClusterPhase::Deleting,
    });
    (status, then)
}

/// The status of a Cluster that is paused.
pub(super) fn paused_status(cluster: &Cluster, now: i64) -> ClusterStatus {
    let mut status = cluster.status.clone().unwrap_or_default();
    let mut conditions = Conditions::of(&status.conditions, cluster.metadata.generation);
    conditions.set(types::PAUSED, paused_statement(cluster), now);
    status.conditions = conditions.write();
    status
}

fn paused_statement(cluster: &Cluster) -> Statement {
    let is_own = cluster.annotations().contains_key(annotations::PAUSED);
    paused("Cluster", crate::core::is_cluster_paused(Some(cluster)), is_own)
}

/// The Machines of a Cluster.
struct MachinesOf {
    control_plane: Machines,
    workers: Machines,
    stand_alone: StandAlone,
}

impl MachinesOf {
    fn new(descendants: &Descendants) -> Self {
        let control_plane = Machines::new(descendants.control_plane_machines.iter().cloned());
        let has_node = descendants
            .control_plane_machines
            .iter()
            .any(|machine| machine.status.as_ref().is_some_and(|status| !status.node_ref.name.is_empty()));
        let is_available = control_plane.replicas().iter().any(|machine| {
            let found = machine.conditions.iter().find(|condition| condition.kind == types::AVAILABLE);
            found.is_some_and(|condition| condition.status == Status::True)
        });
        Self {
            control_plane,
            workers: Machines::new(descendants.counted_workers().cloned()),
            stand_alone: StandAlone { has_node, is_available },
        }
    }
}

fn has_topology(cluster: &Cluster) -> bool {
    !cluster.spec.topology.is_null()
}

/// What a condition says of a reference, whose object mirrors this condition.
fn referred<'a>(
    cluster: &Cluster,
    reference: &'a ContractVersionedObjectReference,
    found: Option<&'a Referenced>,
    mirrored: &str,
) -> Reference<'a> {
    let related = match found {
        None if has_topology(cluster) => return Reference::Expected,
        None => return Reference::Empty,
        Some(Referenced::There(_, object)) => Related::There { ready: object.condition(mirrored) },
        Some(Referenced::Missing) => Related::Missing,
        // Upstream's words name no reason.
        Some(Referenced::Unreadable(why)) => Related::Refused { why },
    };
    Reference::To { kind: &reference.kind, related }
}

fn say(
    conditions: &mut Conditions,
    cluster: &Cluster,
    observed: &Observed<'_>,
    status: &ClusterStatus,
    machines: &MachinesOf,
    remote: Remote,
) {
    let Observed { related, descendants, now, .. } = *observed;
    let is_deleting = cluster.is_deleting();
    let initialization = &status.initialization;
    let is_provisioned = initialization.infrastructure_provisioned.unwrap_or_default();
    let was_initialized = initialization.control_plane_initialized.unwrap_or_default();
    if let Some(statement) = remote.statement {
        conditions.set(types::REMOTE_CONNECTION_PROBE, statement, now);
    }
    let spec = &cluster.spec;
    let infrastructure =
        referred(cluster, &spec.infrastructure_ref, related.infrastructure.as_ref(), types::READY);
    let statement = infrastructure_ready(infrastructure, is_provisioned, is_deleting);
    conditions.set(types::INFRASTRUCTURE_READY, statement, now);
    let control_plane =
        referred(cluster, &spec.control_plane_ref, related.control_plane.as_ref(), types::AVAILABLE);
    let statement =
        control_plane_available(control_plane, machines.stand_alone, was_initialized, is_deleting);
    conditions.set(types::CONTROL_PLANE_AVAILABLE, statement, now);
    if !conditions.is(types::CONTROL_PLANE_INITIALIZED, Status::True) {
        let object = related.control_plane.as_ref().and_then(Referenced::object);
        let is_initialized = object.is_some_and(|object| object.control_plane_initialized);
        let statement =
            control_plane_initialized(control_plane, is_initialized, machines.stand_alone, is_deleting);
        conditions.set(types::CONTROL_PLANE_INITIALIZED, statement, now);
    }
    let deployments: Vec<_> =
        descendants.machine_deployments.iter().map(|one| one.source("MachineDeployment")).collect();
    conditions.set(types::WORKERS_AVAILABLE, workers_available(&deployments), now);
    let (of_control_plane, of_workers) = (machines.control_plane.replicas(), machines.workers.replicas());
    conditions.set(types::CONTROL_PLANE_MACHINES_READY, machines_ready(&of_control_plane), now);
    conditions.set(types::WORKER_MACHINES_READY, machines_ready(&of_workers), now);
    conditions.set(
        types::CONTROL_PLANE_MACHINES_UP_TO_DATE,
        machines_up_to_date(&of_control_plane, now),
        now,
    );
    conditions.set(types::WORKER_MACHINES_UP_TO_DATE, machines_up_to_date(&of_workers, now), now);
    say_changes(conditions, cluster, observed, deployments);
    let unhealthy: Vec<_> = descendants
        .control_plane_machines
        .iter()
        .chain(descendants.counted_workers())
        .map(|object| WithConditions {
            object: object.clone(),
            conditions: object.status.as_ref().map(|status| read(&status.conditions)).unwrap_or_default(),
        })
        .collect();
    let sources: Vec<_> = unhealthy.iter().map(|machine| machine.source("Machine")).collect();
    conditions.set(types::REMEDIATING, remediating(&sources), now);
    if has_topology(cluster) {
        conditions.set(types::TOPOLOGY_RECONCILED, topology_reconciled(), now);
    }
    let not_deleting = || Statement::new(Status::False, "NotDeleting", "");
    conditions.set(types::DELETING, observed.deletion.clone().unwrap_or_else(not_deleting), now);
    let gates: Vec<_> = spec
        .availability_gates
        .iter()
        .map(|gate| Gate {
            kind: &gate.condition_type,
            polarity: match gate.polarity {
                Some(ConditionPolarity::Negative) => Polarity::Negative,
                Some(ConditionPolarity::Positive) | None => Polarity::Positive,
            },
        })
        .collect();
    let statement = available(conditions.all(), &gates, has_topology(cluster), is_deleting);
    conditions.set(types::AVAILABLE, statement, now);
    conditions.set(types::PAUSED, paused_statement(cluster), now);
}

/// `RollingOut`, `ScalingUp`, `ScalingDown`
fn say_changes(
    conditions: &mut Conditions,
    cluster: &Cluster,
    observed: &Observed<'_>,
    deployments: Vec<Source<'_>>,
) {
    let reference = &cluster.spec.control_plane_ref;
    let control_plane = match &observed.related.control_plane {
        Some(Referenced::Unreadable(_)) => Err(()),
        Some(Referenced::There(_, object)) => Ok(Some(Source {
            kind: &reference.kind,
            name: &reference.name,
            is_control_plane_machine: false,
            conditions: &object.conditions,
        })),
        Some(Referenced::Missing) | None => Ok(None),
    };
    let rolling_out = in_progress(Change::RollingOut, control_plane, &deployments);
    conditions.set(types::ROLLING_OUT, rolling_out, observed.now);
    let sets = observed.descendants.own_machine_sets(cluster).map(|one| one.source("MachineSet"));
    let all: Vec<_> = deployments.into_iter().chain(sets).collect();
    for (change, kind) in [(Change::ScalingUp, types::SCALING_UP), (Change::ScalingDown, types::SCALING_DOWN)]
    {
        conditions.set(kind, in_progress(change, control_plane, &all), observed.now);
    }
}

/// What infrastructure and control plane say. Nothing of it ever goes back.
fn copy(cluster: &Cluster, observed: &Observed<'_>, stand_alone: StandAlone, status: &mut ClusterStatus) {
    let RelatedObjects { infrastructure, control_plane } = observed.related;
    let initialization = &mut status.initialization;
    let has_all_it_needs = infrastructure.is_none() && !has_topology(cluster) && !cluster.is_deleting();
    let infrastructure = lasting(infrastructure.as_ref());
    if has_all_it_needs || infrastructure.is_some_and(|object| object.provisioned) {
        initialization.infrastructure_provisioned = Some(true);
    }
    if let Some(infrastructure) = infrastructure
        && initialization.infrastructure_provisioned.unwrap_or_default()
    {
        status.failure_domains = failure_domains(infrastructure);
    }
    let is_initialized = match control_plane {
        Some(_) => lasting(control_plane.as_ref()).is_some_and(|object| object.control_plane_initialized),
        None => stand_alone.has_node && !has_topology(cluster),
    };
    if is_initialized {
        initialization.control_plane_initialized = Some(true);
    }
}

/// The limits of the schema: lists, and texts in characters.
const MOST_FAILURE_DOMAINS: usize = 100;
const MOST_VERSIONS: usize = 32;
const LONGEST_NAME: usize = 256;

/// Those that the definition of Clusters permits.
fn failure_domains(infrastructure: &External) -> Vec<FailureDomain> {
    let mut names = BTreeSet::new();
    let permitted = infrastructure
        .failure_domains
        .iter()
        .filter(|one| one.name.chars().count() <= LONGEST_NAME && names.insert(&one.name));
    permitted
        .take(MOST_FAILURE_DOMAINS)
        .map(|one| FailureDomain {
            name: one.name.clone(),
            control_plane: Some(one.control_plane),
            attributes: one.attributes.iter().cloned().collect(),
        })
        .collect()
}

fn control_plane_counters(
    cluster: &Cluster,
    observed: &Observed<'_>,
    machines: &MachinesOf,
    before: &ClusterControlPlaneStatus,
) -> ClusterControlPlaneStatus {
    let (counts, versions) = match &observed.related.control_plane {
        Some(found) => found.object().map(of_object).unwrap_or_default(),
        None if has_topology(cluster) => Default::default(),
        None => {
            let counts = machines.control_plane.replicas().iter().map(Counts::of_machine).sum();
            (counts, machines.control_plane.versions())
        }
    };
    ClusterControlPlaneStatus {
        desired_replicas: number(counts.desired),
        replicas: number(counts.replicas),
        ready_replicas: number(counts.ready),
        available_replicas: number(counts.available),
        up_to_date_replicas: number(counts.up_to_date),
        versions: permitted(versions, MOST_VERSIONS),
        upgrade_plan: before.upgrade_plan.clone(),
    }
}

fn of_object(control_plane: &External) -> (Counts, Vec<StatusVersion>) {
    let [replicas, ready, available, up_to_date] = control_plane.counts;
    let counts = Counts { desired: control_plane.replicas, replicas, ready, available, up_to_date };
    let versions = control_plane
        .versions
        .iter()
        .map(|(version, replicas)| StatusVersion { version: version.clone(), replicas: number(*replicas) });
    (counts, versions.collect())
}

fn worker_counters(cluster: &Cluster, descendants: &Descendants, before: &WorkersStatus) -> WorkersStatus {
    let deployments = &descendants.machine_deployments;
    let sets: Vec<_> = descendants.own_machine_sets(cluster).collect();
    let stand_alone = descendants.counted_workers().filter(|machine| is_of_cluster(&****machine, cluster));
    let machines = Machines::new(stand_alone.cloned());
    let of_deployments =
        deployments.iter().map(|one| of_deployment(one.object.spec.replicas, one.object.status.as_ref()));
    let of_sets = sets.iter().map(|one| of_set(one.object.spec.replicas, one.object.status.as_ref()));
    let replicas = machines.replicas();
    let of_machines = replicas.iter().map(Counts::of_machine);
    let counts: Counts = of_deployments.chain(of_sets).chain(of_machines).sum();
    let of_machines = machines.versions();
    let versions = deployments
        .iter()
        .filter_map(|one| one.object.status.as_ref())
        .flat_map(|status| &status.versions)
        .chain(sets.iter().filter_map(|one| one.object.status.as_ref()).flat_map(|status| &status.versions))
        .chain(&of_machines)
        .map(|one| (one.version.as_str(), one.replicas.unwrap_or_default().into()));
    WorkersStatus {
        desired_replicas: number(counts.desired),
        replicas: number(counts.replicas),
        ready_replicas: number(counts.ready),
        available_replicas: number(counts.available),
        up_to_date_replicas: number(counts.up_to_date),
        versions: permitted(status_versions(versions), MOST_VERSIONS),
        upgrade_plan: before.upgrade_plan.clone(),
    }
}

fn of_deployment(desired: Option<i32>, status: Option<&MachineDeploymentStatus>) -> Counts {
    let of = |count: fn(&MachineDeploymentStatus) -> Option<i32>| status.and_then(count).map(i64::from);
    Counts {
        desired: desired.map(i64::from),
        replicas: of(|status| status.replicas),
        ready: of(|status| status.ready_replicas),
        available: of(|status| status.available_replicas),
        up_to_date: of(|status| status.up_to_date_replicas),
    }
}

fn of_set(desired: Option<i32>, status: Option<&MachineSetStatus>) -> Counts {
    let of = |count: fn(&MachineSetStatus) -> Option<i32>| status.and_then(count).map(i64::from);
    Counts {
        desired: desired.map(i64::from),
        replicas: of(|status| status.replicas),
        ready: of(|status| status.ready_replicas),
        available: of(|status| status.available_replicas),
        up_to_date: of(|status| status.up_to_date_replicas),
    }
}

fn number(count: Option<i64>) -> Option<i32> {
    count.and_then(|count| i32::try_from(count).ok())
}
