//! What a `MachineHealthCheck` writes to its Machines.

use cluster_api::{
    Machine, MachineHealthCheck,
    names::{conditions as types, reasons},
};
use component::events::EventType;
use lifecycle::{
    conditions::{Statement, Status},
    health_check::Health,
};

use super::{
    request::{Requested, request, withdraw},
    targets::Judged,
};
use crate::{
    core::Core,
    engine::{conditions::Conditions, control::Failure, object::Meta as _},
};

/// Writes to one Machine how it is. If remediation `is_allowed`, an unhealthy one is also marked for it, and the request to another
/// controller about a healthy one is taken back.
pub(super) async fn write(
    core: &Core,
    check: &MachineHealthCheck,
    judged: &Judged,
    is_allowed: bool,
    now: i64,
) -> Result<(), Failure> {
    let machine = &*judged.machine;
    let is_external = !check.spec.remediation.template_ref.name.is_empty();
    let status = machine.status.as_ref();
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut conditions = Conditions::of(conditions, machine.metadata.generation);
    let (mut is_marked, mut failure) = (false, None);
    match &judged.health {
        Health::Undecided { .. } => return Ok(()),
        Health::Healthy if machine.is_deleting() => return Ok(()),
        Health::Healthy => {
            if is_allowed && is_external {
                failure = withdraw(core, check, machine).await.err();
            }
            let healthy = Statement::new(Status::True, reasons::HEALTH_CHECK_SUCCEEDED, "");
            conditions.set(types::HEALTH_CHECK_SUCCEEDED, healthy, now);
        }
        Health::Unhealthy { reason, message } => {
            let unhealthy = Statement::new(Status::False, &reason.to_string(), message.clone());
            conditions.set(types::HEALTH_CHECK_SUCCEEDED, unhealthy, now);
            if is_allowed && is_external {
                let requested = request(core, check, machine).await?;
                is_marked = matches!(requested, Requested::Created);
                failure = say_requested(&mut conditions, check, requested, now).err();
            } else if is_allowed && !machine.is_deleting() {
                is_marked = ask_owner(&mut conditions, now);
            }
        }
    }
    let mut status = machine.status.clone().unwrap_or_default();
    status.conditions = conditions.write();
    core.writer.patch_status(&core.stores.machines, &**machine, &status).await?;
    if is_marked {
        announce(core, check, machine);
    }
    failure.map_or(Ok(()), Err)
}

/// Asks the owner of the Machine for its remediation, unless it has been asked: from then on the condition is the owner's. Gives
/// whether it is asked now.
fn ask_owner(conditions: &mut Conditions, now: i64) -> bool {
    let is_asked = conditions.get(types::OWNER_REMEDIATED).is_some_and(|one| one.status != Status::True);
    if !is_asked {
        let waits =
            Statement::new(Status::False, reasons::WAITING_FOR_REMEDIATION, "Waiting for remediation");
        conditions.set(types::OWNER_REMEDIATED, waits, now);
    }
    !is_asked
}

/// `ExternallyRemediated`: what became of the request to another controller, which the condition belongs to once there is one.
fn say_requested(
    conditions: &mut Conditions,
    check: &MachineHealthCheck,
    requested: Requested,
    now: i64,
) -> Result<(), Failure> {
    let template = &check.spec.remediation.template_ref;
    let mut say = |reason, message: String| {
        conditions.set(types::EXTERNALLY_REMEDIATED, Statement::new(Status::False, reason, message), now);
    };
    match requested {
        Requested::Exists => Ok(()),
        Requested::Created => {
            say(reasons::WAITING_FOR_REMEDIATION, String::new());
            Ok(())
        }
        Requested::NoTemplate(why) => {
            let (kind, namespace, name) = (&template.kind, check.namespace_or_empty(), &template.name);
            let words = format!("Error retrieving remediation template {kind} {namespace}/{name}");
            let failure = format!("spec.remediation.templateRef: {words}: {why}");
            say(reasons::REMEDIATION_TEMPLATE_NOT_FOUND, words);
            Err(Failure::Failed(failure))
        }
        Requested::Refused(why) => {
            let words = "Please check controller logs for errors".to_owned();
            say(reasons::REMEDIATION_REQUEST_CREATION_FAILED, words);
            Err(Failure::Failed(format!("the object for the remediation cannot be created: {why}")))
        }
    }
}

fn announce(core: &Core, check: &MachineHealthCheck, machine: &Machine) {
    let namespace = machine.namespace_or_empty();
    let (name, of_check) = (machine.name_or_empty(), check.name_or_empty());
    tracing::info!(
        machine = name,
        namespace,
        machine_health_check = of_check,
        "Machine marked for remediation"
    );
    let message =
        format!("Machine {namespace}/{name} has been marked as unhealthy by {namespace}/{of_check}");
    core.record(machine, EventType::Normal, "MachineMarkedUnhealthy", message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_asked_once() {
        let mut conditions = Conditions::of(&[], Some(1));
        assert!(ask_owner(&mut conditions, 10));
        assert!(!ask_owner(&mut conditions, 20));
        let asked = conditions.get(types::OWNER_REMEDIATED).expect("it is there");
        assert_eq!((asked.status, asked.since), (Status::False, 10));
        let deferred = Statement::new(Status::False, reasons::REMEDIATION_DEFERRED, "later");
        conditions.set(types::OWNER_REMEDIATED, deferred, 30);
        assert!(!ask_owner(&mut conditions, 40), "the owner has answered");
        conditions.set(types::OWNER_REMEDIATED, Statement::new(Status::True, "Done", ""), 50);
        assert!(ask_owner(&mut conditions, 60), "the remediation before is over");
    }
}
