//! The status of a `MachineSet`.

use cluster_api::{
    Cluster, MachineSet, MachineSetStatus,
    names::{annotations, conditions as types},
};
use kube::{ResourceExt as _, core::Selector};
use lifecycle::{
    conditions::Statement,
    replicas::{
        Counters, Owner, Scale, count, deleting, machines_ready, machines_up_to_date, remediating,
        scaling_down, scaling_up,
    },
};

use super::keep::problem;
use crate::{
    core::is_cluster_paused,
    engine::{
        conditions::{Conditions, paused},
        object::Meta as _,
    },
    replicas::Machines,
};

/// What a pass has found out. What is `None` stays as it is in the status.
#[derive(Debug, Default)]
pub(super) struct Observed<'a> {
    pub(super) cluster: Option<&'a Cluster>,
    pub(super) machines: Option<&'a Machines>,
    /// The kinds of templates that do not exist.
    pub(super) missing_templates: Vec<String>,
    /// What holds new Machines back.
    pub(super) holds: Vec<String>,
}

pub(super) fn status(set: &MachineSet, observed: &Observed<'_>, now: i64) -> MachineSetStatus {
    let mut status = set.status.clone().unwrap_or_default();
    let mut conditions = Conditions::of(&status.conditions, set.metadata.generation);
    let mut say = |kind, statement: Statement| conditions.set(kind, statement, now);
    if let Some(machines) = observed.machines {
        let replicas = machines.replicas();
        let Counters { replicas: all, ready, available, up_to_date } = count(&replicas);
        let number = |count: i64| i32::try_from(count).ok();
        status.replicas = number(all);
        status.ready_replicas = number(ready);
        status.available_replicas = number(available);
        status.up_to_date_replicas = number(up_to_date);
        status.versions = machines.versions();
        let scale = Scale {
            replicas: set.spec.replicas.map(i64::from),
            current: all,
            is_deleting: set.is_deleting(),
        };
        let missing: Vec<_> = observed.missing_templates.iter().map(String::as_str).collect();
        say(types::SCALING_UP, scaling_up(&scale, &missing, &observed.holds, Owner::MachineSet));
        say(types::SCALING_DOWN, scaling_down(&scale, &replicas, Owner::MachineSet, now));
        say(types::MACHINES_READY, machines_ready(&replicas));
        say(types::MACHINES_UP_TO_DATE, machines_up_to_date(&replicas, now));
        let mut remediating = remediating(&replicas, Owner::MachineSet);
        if let Some(problem) = problem(set) {
            let before = if remediating.message.is_empty() { "" } else { "\n" };
            remediating.message.push_str(before);
            remediating.message.push_str(&problem);
        }
        say(types::REMEDIATING, remediating);
        say(types::DELETING, deleting(set.is_deleting(), &replicas, 0, now));
    }
    let is_paused = set.annotations().contains_key(annotations::PAUSED);
    say(types::PAUSED, paused("MachineSet", is_cluster_paused(observed.cluster), is_paused));
    status.conditions = conditions.write();
    status.selector = Selector::try_from(set.spec.selector.clone()).ok().map(|selector| selector.to_string());
    status.observed_generation = set.metadata.generation;
    status
}
