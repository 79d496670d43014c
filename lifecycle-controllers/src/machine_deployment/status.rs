//! The status of a `MachineDeployment`.

use cluster_api::{
    Cluster, MachineDeployment, MachineDeploymentPhase, MachineDeploymentStatus,
    names::{annotations, conditions as types},
};
use kube::{ResourceExt as _, core::Selector};
use lifecycle::{
    conditions::Statement,
    replicas::{
        Counters, Owner, Phase, Scale, available, count, deleting, machines_ready, machines_up_to_date,
        phase, remediating, rolling_out, scaling_down, scaling_up,
    },
};

use crate::{
    core::is_cluster_paused,
    engine::{
        conditions::{Conditions, paused},
        object::Meta as _,
    },
    replicas::Machines,
    rollout,
};

/// What belongs to a deployment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owned<'a> {
    /// How many `MachineSet`s.
    pub(super) sets: usize,
    /// The Machines that its sets control. They are counted here and not in the sets' own status, so that a change is written once.
    pub(super) counted: &'a Machines,
    /// The Machines that its selector selects.
    pub(super) selected: &'a Machines,
}

/// What a pass has found out. What is `None` stays as it is in the status.
#[derive(Debug, Default)]
pub(super) struct Observed<'a> {
    pub(super) cluster: Option<&'a Cluster>,
    pub(super) owned: Option<Owned<'a>>,
    /// The kinds of templates that do not exist.
    pub(super) missing_templates: &'a [String],
    /// Why others cannot be used.
    pub(super) holds: &'a [String],
}

pub(super) fn status(
    deployment: &MachineDeployment,
    observed: &Observed<'_>,
    now: i64,
) -> MachineDeploymentStatus {
    let mut status = deployment.status.clone().unwrap_or_default();
    let mut conditions = Conditions::of(&status.conditions, deployment.metadata.generation);
    let mut say = |kind, statement: Statement| conditions.set(kind, statement, now);
    if let Some(Owned { sets, counted, selected }) = observed.owned {
        let Counters { replicas: all, ready, available: has_available, up_to_date } =
            count(&counted.replicas());
        let number = |count: i64| i32::try_from(count).ok();
        status.replicas = number(all);
        status.ready_replicas = number(ready);
        status.available_replicas = number(has_available);
        status.up_to_date_replicas = number(up_to_date);
        status.versions = counted.versions();
        let replicas = selected.replicas();
        let is_deleting = deployment.is_deleting();
        let scale = Scale { replicas: deployment.spec.replicas.map(i64::from), current: all, is_deleting };
        status.phase = Some(match phase(&scale) {
            Phase::Running => MachineDeploymentPhase::Running,
            Phase::ScalingUp => MachineDeploymentPhase::ScalingUp,
            Phase::ScalingDown => MachineDeploymentPhase::ScalingDown,
            Phase::Unknown => MachineDeploymentPhase::Unknown,
        });
        let plan = rollout::deployment(deployment);
        say(types::AVAILABLE, available(plan.as_ref(), Some(has_available), is_deleting));
        say(types::ROLLING_OUT, rolling_out(&replicas));
        let missing: Vec<_> = observed.missing_templates.iter().map(String::as_str).collect();
        say(types::SCALING_UP, scaling_up(&scale, &missing, observed.holds, Owner::MachineDeployment));
        say(types::SCALING_DOWN, scaling_down(&scale, &replicas, Owner::MachineDeployment, now));
        say(types::MACHINES_READY, machines_ready(&replicas));
        say(types::MACHINES_UP_TO_DATE, machines_up_to_date(&replicas, now));
        say(types::REMEDIATING, remediating(&replicas, Owner::MachineDeployment));
        say(types::DELETING, deleting(is_deleting, &replicas, sets, now));
    }
    let is_paused = deployment.annotations().contains_key(annotations::PAUSED);
    say(types::PAUSED, paused("MachineDeployment", is_cluster_paused(observed.cluster), is_paused));
    status.conditions = conditions.write();
    let selector = Selector::try_from(deployment.spec.selector.clone()).ok();
    status.selector = selector.map(|selector| selector.to_string());
    status.observed_generation = deployment.metadata.generation;
    status
}
