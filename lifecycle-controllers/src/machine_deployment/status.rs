//! The status of a `MachineDeployment`.

use std::sync::Arc;

use cluster_api::{
    Cluster, MachineDeployment, MachineDeploymentPhase, MachineDeploymentStatus, MachineSet,
    MachineSetStatus,
    names::{annotations, conditions as types},
};
use kube::{ResourceExt as _, core::Selector};
use lifecycle::{
    conditions::Statement,
    replicas::{
        Owner, Phase, Scale, available, deleting, machines_ready, machines_up_to_date, phase, remediating,
        rolling_out, scaling_down, scaling_up,
    },
};

use crate::{
    core::is_cluster_paused,
    engine::{
        conditions::{Conditions, paused},
        object::{Meta as _, Stored},
    },
    replicas::{Machines, status_versions},
    rollout,
};

/// What a pass has found out. What is `None` stays as it is in the status.
#[derive(Debug, Default)]
pub(super) struct Observed<'a> {
    pub(super) cluster: Option<&'a Cluster>,
    pub(super) owned: Option<(&'a [Arc<Stored<MachineSet>>], &'a Machines)>,
    /// The kinds of templates that do not exist.
    pub(super) missing_templates: &'a [String],
}

pub(super) fn status(
    deployment: &MachineDeployment,
    observed: &Observed<'_>,
    now: i64,
) -> MachineDeploymentStatus {
    let mut status = deployment.status.clone().unwrap_or_default();
    let mut conditions = Conditions::of(&status.conditions, deployment.metadata.generation);
    let mut say = |kind, statement: Statement| conditions.set(kind, statement, now);
    if let Some((sets, machines)) = observed.owned {
        let sum = |of: fn(&MachineSetStatus) -> Option<i32>| {
            let of_sets = sets.iter().filter_map(|set| of(set.status.as_ref()?));
            i32::try_from(of_sets.map(i64::from).sum::<i64>()).ok()
        };
        let all = sum(|status| status.replicas);
        status.replicas = all;
        status.ready_replicas = sum(|status| status.ready_replicas);
        status.available_replicas = sum(|status| status.available_replicas);
        status.up_to_date_replicas = sum(|status| status.up_to_date_replicas);
        let versions = sets.iter().filter_map(|set| set.status.as_ref()).flat_map(|status| &status.versions);
        status.versions = status_versions(
            versions.map(|one| (one.version.as_str(), one.replicas.unwrap_or_default().into())),
        );
        let replicas = machines.replicas();
        let is_deleting = deployment.is_deleting();
        let scale = Scale {
            replicas: deployment.spec.replicas.map(i64::from),
            current: all.unwrap_or_default().into(),
            is_deleting,
        };
        status.phase = Some(match phase(&scale) {
            Phase::Running => MachineDeploymentPhase::Running,
            Phase::ScalingUp => MachineDeploymentPhase::ScalingUp,
            Phase::ScalingDown => MachineDeploymentPhase::ScalingDown,
            Phase::Unknown => MachineDeploymentPhase::Unknown,
        });
        let plan = rollout::deployment(deployment);
        let available_replicas = status.available_replicas.map(i64::from);
        say(types::AVAILABLE, available(plan.as_ref(), available_replicas, is_deleting));
        say(types::ROLLING_OUT, rolling_out(&replicas));
        let missing: Vec<_> = observed.missing_templates.iter().map(String::as_str).collect();
        say(types::SCALING_UP, scaling_up(&scale, &missing, &[], Owner::MachineDeployment));
        say(types::SCALING_DOWN, scaling_down(&scale, &replicas, Owner::MachineDeployment, now));
        say(types::MACHINES_READY, machines_ready(&replicas));
        say(types::MACHINES_UP_TO_DATE, machines_up_to_date(&replicas, now));
        say(types::REMEDIATING, remediating(&replicas, Owner::MachineDeployment));
        say(types::DELETING, deleting(is_deleting, &replicas, sets.len(), now));
    }
    let is_paused = deployment.annotations().contains_key(annotations::PAUSED);
    say(types::PAUSED, paused("MachineDeployment", is_cluster_paused(observed.cluster), is_paused));
    status.conditions = conditions.write();
    let selector = Selector::try_from(deployment.spec.selector.clone()).ok();
    status.selector = selector.map(|selector| selector.to_string());
    status.observed_generation = deployment.metadata.generation;
    status
}
