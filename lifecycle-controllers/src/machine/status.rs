//! The status of a Machine.

use cluster_api::{
    Cluster, ConditionPolarity, Machine, MachineAddress, MachineAddressType, MachineDeletionStatus,
    MachineDeployment, MachineNodeReference, MachinePhase, MachineSet, MachineStatus,
    names::{annotations, conditions as types, labels},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeSystemInfo;
use kube::ResourceExt as _;
use lifecycle::{
    conditions::{Polarity, Statement, Status},
    machine::{
        Availability, Deletion, Gate, Phase, Progress, UpToDateInputs, available, bootstrap_config_ready,
        deleting, infrastructure_ready, phase, ready, up_to_date,
    },
};

use super::{
    kept,
    related::{RelatedObjects, related},
};
use crate::engine::{
    conditions::{Conditions, paused, time},
    control::Then,
    external::External,
    object::Meta as _,
};
use crate::rollout::template_of;

/// What a pass has found out.
#[derive(Debug)]
pub(super) struct Observed<'a> {
    pub(super) cluster: Option<&'a Cluster>,
    pub(super) related: &'a RelatedObjects,
    /// `NodeReady` and `NodeHealthy`, unless they stay as they are.
    pub(super) node_conditions: Option<[Statement; 2]>,
    /// The Node's name and system, once it is found.
    pub(super) node: Option<(&'a str, Option<&'a NodeSystemInfo>)>,
    /// The `MachineSet` and the `MachineDeployment` that it belongs to.
    pub(super) owners: Option<(&'a MachineSet, &'a MachineDeployment)>,
    /// The stage of its deletion, and its times.
    pub(super) deletion: Option<(Statement, MachineDeletionStatus)>,
    pub(super) now: i64,
}

/// The status after a pass, and when time alone changes it.
pub(super) fn status(machine: &Machine, observed: &Observed<'_>) -> (MachineStatus, Then) {
    let now = observed.now;
    let before = machine.status.clone().unwrap_or_default();
    let mut status = MachineStatus { observed_generation: machine.metadata.generation, ..before.clone() };
    let mut conditions = Conditions::of(&before.conditions, machine.metadata.generation);
    copy(machine, observed, &mut status);

    let initialization = &status.initialization;
    let has_data = initialization.bootstrap_data_secret_created.unwrap_or_default();
    let is_provisioned = initialization.infrastructure_provisioned.unwrap_or_default();
    let is_deleting = machine.is_deleting();
    let RelatedObjects { bootstrap, infrastructure, .. } = observed.related;
    let config_kind = machine.spec.bootstrap.config_ref.kind.as_str();
    let config = bootstrap.as_ref().map(|found| (config_kind, related(found)));
    let statement = bootstrap_config_ready(config, has_data, is_deleting);
    conditions.set(types::BOOTSTRAP_CONFIG_READY, statement, now);
    let infrastructure_kind = machine.spec.infrastructure_ref.kind.as_str();
    let statement =
        infrastructure_ready(infrastructure_kind, related(infrastructure), is_provisioned, is_deleting);
    conditions.set(types::INFRASTRUCTURE_READY, statement, now);
    if let Some([ready, healthy]) = observed.node_conditions.clone() {
        conditions.set(types::NODE_READY, ready, now);
        conditions.set(types::NODE_HEALTHY, healthy, now);
    }
    conditions.set(types::UPDATING, Statement::new(Status::False, "NotUpdating", ""), now);
    if let Some(owners) = observed.owners {
        let statement = up_to_date_statement(machine, &status, owners, now);
        conditions.set(types::UP_TO_DATE, statement, now);
    }
    kept::say(machine, &mut conditions, now);
    let stage = observed.deletion.as_ref().map(|(stage, _)| stage);
    let deletion = stage.map(|stage| Deletion {
        since: machine.deleted_at().map_or(now, Timestamp::as_second),
        stage: &stage.reason,
        message: &stage.message,
        drain_since: status.deletion.node_drain_start_time.as_ref().map(|time| time.0.as_second()),
    });
    conditions.set(types::DELETING, deleting(deletion.as_ref()), now);
    let gates: Vec<_> = machine
        .spec
        .readiness_gates
        .iter()
        .map(|gate| Gate {
            kind: &gate.condition_type,
            polarity: match gate.polarity {
                Some(ConditionPolarity::Negative) => Polarity::Negative,
                Some(ConditionPolarity::Positive) | None => Polarity::Positive,
            },
        })
        .collect();
    let statement = ready(conditions.all(), &gates, deletion.as_ref(), now);
    conditions.set(types::READY, statement, now);
    let ready_since =
        conditions.get(types::READY).filter(|ready| ready.status == Status::True).map(|ready| ready.since);
    let min_ready = machine.spec.min_ready_seconds.and_then(|seconds| u32::try_from(seconds).ok());
    let Availability { statement, again } = available(ready_since, min_ready.unwrap_or_default(), now);
    conditions.set(types::AVAILABLE, statement, now);
    let is_cluster_paused = crate::core::is_cluster_paused(observed.cluster);
    let is_paused = machine.annotations().contains_key(annotations::PAUSED);
    conditions.set(types::PAUSED, paused("Machine", is_cluster_paused, is_paused), now);

    status.conditions = conditions.write();
    let progress = Progress {
        has_bootstrap_data: has_data,
        is_provisioned,
        has_provider_id: machine.spec.provider_id.is_some(),
        has_node: !status.node_ref.name.is_empty(),
        is_updating: false,
        is_deleting,
    };
    let new_phase = phase(&progress, before.phase.and_then(phase_before));
    status.phase = Some(api_phase(new_phase));
    if status.phase != before.phase {
        status.last_updated = Some(time(now));
    }
    (status, again.map_or(Then::WhenChanged, Then::After))
}

/// What bootstrap config, infrastructure and Node say. Nothing of it ever goes back.
fn copy(machine: &Machine, observed: &Observed<'_>, status: &mut MachineStatus) {
    let initialization = &mut status.initialization;
    if machine.spec.bootstrap.data_secret_name.is_some() {
        initialization.bootstrap_data_secret_created = Some(true);
    }
    if let Some(infrastructure) = observed.related.infrastructure.object().filter(|one| !one.is_deleting()) {
        if infrastructure.provisioned && machine.spec.provider_id.is_some() {
            initialization.infrastructure_provisioned = Some(true);
        }
        if initialization.infrastructure_provisioned.unwrap_or_default() {
            if !infrastructure.addresses.is_empty() {
                status.addresses = addresses(infrastructure);
            }
            if infrastructure.failure_domain.is_some() {
                status.failure_domain.clone_from(&infrastructure.failure_domain);
            }
        }
    }
    if let Some((name, info)) = observed.node {
        if status.node_ref.name.is_empty() {
            status.node_ref = MachineNodeReference { name: name.to_owned() };
        }
        if info.is_some() {
            status.node_info = info.cloned();
        }
    }
    if let Some((_, deletion)) = &observed.deletion {
        status.deletion = deletion.clone();
    }
    if machine.labels().contains_key(labels::CONTROL_PLANE) {
        let of_config = observed.related.bootstrap.as_ref().and_then(|found| found.object());
        let expiry = machine
            .annotation(annotations::CERTIFICATES_EXPIRY)
            .or_else(|| of_config.and_then(|config| config.annotation(annotations::CERTIFICATES_EXPIRY)));
        let expiry = expiry.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        status.certificates_expiry_date = expiry.map(|expiry| time(expiry.as_second()));
    }
}

/// Addresses of a type that Cluster API does not know are left out.
fn addresses(infrastructure: &External) -> Vec<MachineAddress> {
    let known = |kind: &str| match kind {
        "Hostname" => Some(MachineAddressType::Hostname),
        "ExternalIP" => Some(MachineAddressType::ExternalIP),
        "InternalIP" => Some(MachineAddressType::InternalIP),
        "ExternalDNS" => Some(MachineAddressType::ExternalDNS),
        "InternalDNS" => Some(MachineAddressType::InternalDNS),
        _ => None,
    };
    let known = infrastructure
        .addresses
        .iter()
        .filter_map(|(kind, address)| Some(MachineAddress { type_: known(kind)?, address: address.clone() }));
    // The limits of the schema.
    known.filter(|one| one.address.len() <= 256).take(256).collect()
}

fn up_to_date_statement(
    machine: &Machine,
    status: &MachineStatus,
    (set, deployment): (&MachineSet, &MachineDeployment),
    now: i64,
) -> Statement {
    let current = template_of(&set.spec.template.spec);
    let differences = current.differences(&template_of(&deployment.spec.template.spec));
    let after = deployment.spec.rollout.after.as_ref().map(|after| after.0.as_second());
    let kubelet = status.node_info.as_ref().map(|info| info.kubelet_version.as_str());
    up_to_date(&UpToDateInputs {
        differences: &differences,
        is_before_rollout: after.is_some_and(|after| after <= now && set.created() < after),
        updating: None,
        kubelet_version: kubelet,
        version: machine.spec.version.as_deref().unwrap_or_default(),
    })
}

fn phase_before(phase: MachinePhase) -> Option<Phase> {
    match phase {
        MachinePhase::Pending => Some(Phase::Pending),
        MachinePhase::Provisioning => Some(Phase::Provisioning),
        MachinePhase::Provisioned => Some(Phase::Provisioned),
        MachinePhase::Running => Some(Phase::Running),
        MachinePhase::Updating => Some(Phase::Updating),
        MachinePhase::Deleting => Some(Phase::Deleting),
        MachinePhase::Deleted | MachinePhase::Failed | MachinePhase::Unknown => None,
    }
}

fn api_phase(phase: Phase) -> MachinePhase {
    match phase {
        Phase::Pending => MachinePhase::Pending,
        Phase::Provisioning => MachinePhase::Provisioning,
        Phase::Provisioned => MachinePhase::Provisioned,
        Phase::Running => MachinePhase::Running,
        Phase::Updating => MachinePhase::Updating,
        Phase::Deleting => MachinePhase::Deleting,
    }
}
