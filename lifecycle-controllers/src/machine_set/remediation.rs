//! Unhealthy Machines that their `MachineSet` replaces.

use std::sync::Arc;

use cluster_api::{
    Cluster, Machine, MachineDeployment, MachineSet,
    names::{annotations, conditions as types},
};
use kube::ResourceExt as _;
use lifecycle::{
    conditions::{Statement, Status},
    machine_set::{Remediation, Unhealthy, remediate as decide},
};

use super::{
    keep::keep,
    preflight::{Preflight, preflight},
};
use crate::{
    core::Core,
    engine::{
        conditions::Conditions,
        control::{Failure, Failures},
        object::{Meta as _, Stored},
    },
    rollout::bound,
};

const DELETING: &str = "MachineDeleting";
const DEFERRED: &str = "RemediationDeferred";
const LEFT: &str = "CannotBeRemediated";

/// Deletes the unhealthy Machines that may be replaced now, and says of the others why not. All are tried, whatever becomes of one.
pub(super) async fn remediate(
    core: &Core,
    set: &MachineSet,
    deployment: Option<&MachineDeployment>,
    cluster: &Cluster,
    machines: &[Arc<Stored<Machine>>],
    now: i64,
) -> Result<(), Failure> {
    let (mut unhealthy, mut in_flight, mut failures) = (Vec::new(), 0, Failures::default());
    for machine in machines {
        let conditions = conditions_of(machine);
        let is_remediated = conditions.get(types::OWNER_REMEDIATED).filter(|one| one.status == Status::False);
        if machine.is_deleting() {
            in_flight += usize::from(is_remediated.is_some_and(|one| one.reason == DELETING));
            continue;
        }
        match (conditions.get(types::HEALTH_CHECK_SUCCEEDED).map(|one| one.status), is_remediated) {
            (Some(Status::False), Some(_)) => unhealthy.push(machine),
            // It has recovered.
            (Some(Status::True), Some(_)) => failures.add(say(core, machine, None, now).await),
            _ => {}
        }
    }
    if unhealthy.is_empty() {
        return failures.end();
    }
    let candidates: Vec<_> = unhealthy
        .iter()
        .map(|machine| Unhealthy {
            name: machine.name_or_empty(),
            created: machine.created(),
            requested: machine.annotations().contains_key(annotations::REMEDIATE_MACHINE),
        })
        .collect();
    let revision = |of: &std::collections::BTreeMap<String, String>| of.get(annotations::REVISION).cloned();
    let is_current =
        deployment.is_none_or(|deployment| revision(deployment.annotations()) == revision(set.annotations()));
    let limit = deployment.and_then(|deployment| deployment.spec.remediation.max_in_flight.as_ref());
    let replicas = deployment.and_then(|deployment| deployment.spec.replicas).unwrap_or(1);
    let Remediation { delete, defer, leave } =
        decide(&candidates, is_current, limit.and_then(bound), replicas.into(), in_flight);
    let of = |name: &str| unhealthy.iter().find(|machine| machine.name_or_empty() == name);
    let statement = |reason, message: String| Some(Statement::new(Status::False, reason, message));
    for machine in leave.iter().filter_map(|name| of(name)) {
        let why = "Machine won't be remediated because it is pending removal due to rollout".to_owned();
        failures.add(say(core, machine, statement(LEFT, why), now).await);
    }
    let limit = limit.map(int_or_string).unwrap_or_default();
    for machine in defer.iter().filter_map(|name| of(name)) {
        let why = format!(
            "Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is {limit})"
        );
        failures.add(say(core, machine, statement(DEFERRED, why), now).await);
    }
    if delete.is_empty() {
        return failures.end();
    }
    let Preflight { holds, failure } = preflight(core, set, cluster).await;
    failures.add(failure.map_or(Ok(()), Err));
    let why = holds.iter().map(|hold| format!("* {hold}")).collect::<Vec<_>>().join("\n");
    for machine in delete.iter().filter_map(|name| of(name)) {
        failures.add(if holds.is_empty() {
            replace(core, set, cluster, machine, now).await
        } else {
            say(core, machine, statement(DEFERRED, why.clone()), now).await
        });
    }
    failures.end()
}

/// Deletes an unhealthy Machine, or lets go of it: another one comes in its place.
async fn replace(
    core: &Core,
    set: &MachineSet,
    cluster: &Cluster,
    machine: &Stored<Machine>,
    now: i64,
) -> Result<(), Failure> {
    if keep(core, set, cluster, machine, now).await? {
        return Ok(());
    }
    // First the word, then the deletion: a pass after a crash in between deletes it, and it counts as in flight.
    let statement = Statement::new(Status::False, DELETING, "Machine is deleting");
    say(core, machine, Some(statement), now).await?;
    core.writer.delete(&core.stores.machines, &**machine).await?;
    tracing::info!(
        machine = machine.name_or_empty(),
        machine_set = set.name_or_empty(),
        "unhealthy Machine deleted"
    );
    Ok(())
}

fn conditions_of(machine: &Machine) -> Conditions {
    let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    Conditions::of(conditions, machine.metadata.generation)
}

/// Writes `OwnerRemediated`, or takes it away.
async fn say(
    core: &Core,
    machine: &Stored<Machine>,
    statement: Option<Statement>,
    now: i64,
) -> Result<(), Failure> {
    let mut conditions = conditions_of(machine);
    match statement {
        Some(statement) => conditions.set(types::OWNER_REMEDIATED, statement, now),
        None => conditions.remove(types::OWNER_REMEDIATED),
    }
    let mut status = machine.status.clone().unwrap_or_default();
    status.conditions = conditions.write();
    core.writer.patch_status(&core.stores.machines, &**machine, &status).await?;
    Ok(())
}

fn int_or_string(of: &k8s_openapi::apimachinery::pkg::util::intstr::IntOrString) -> String {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    match of {
        IntOrString::Int(count) => count.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}
