//! A Machine that is [kept](crate::kept): its Node takes no new Pods, and it goes when its time is over.

use std::time::Duration;

use cluster_api::{Machine, names::conditions as types};
use component::events::EventType;
use controller_kit::writes::WriteError;
use kube::ResourceExt as _;
use lifecycle::conditions::Condition;

use super::facts::Pass;
use crate::{
    core::Core,
    engine::{
        conditions::Conditions,
        control::{Failure, Then},
        object::{Meta as _, Stored},
        place::{Guard, Place},
    },
    kept::{Kept, REASON},
};

fn staying(machine: &Machine) -> Option<Kept<'_>> {
    Kept::of(machine).filter(|_| !machine.is_deleting())
}

/// Deletes a Machine whose time is over. Gives whether it was.
pub(super) async fn end(core: &Core, machine: &Stored<Machine>, now: i64) -> Result<bool, Failure> {
    if staying(machine).and_then(|kept| kept.left(now)) != Some(Duration::ZERO) {
        return Ok(false);
    }
    // The version is a condition: a user may have set a later time.
    match core.writer.delete_at(&Place::of(&**machine), Guard::of(&**machine)).await {
        Ok(()) | Err(WriteError::Gone) => {}
        Err(error) => return Err(error.into()),
    }
    tracing::info!(
        machine = machine.name_or_empty(),
        namespace = machine.namespace(),
        "kept Machine deleted: its time is over"
    );
    let message = "The time is over for which it was kept to be looked at".to_owned();
    core.record(&**machine, EventType::Normal, "KeptMachineDeleted", message);
    Ok(true)
}

/// Makes the Node of a Machine that is kept unschedulable, if the workload cluster can be reached.
pub(super) async fn cordon(pass: &Pass<'_>, machine: &Machine) -> Result<(), Failure> {
    if let (Some(_), Some(node), Some(connected)) = (staying(machine), pass.node.node(), &pass.connected) {
        connected.cordon(node).await?;
    }
    Ok(())
}

/// Says that it is kept, and why.
pub(super) fn say(machine: &Machine, conditions: &mut Conditions, now: i64) {
    let Some(kept) = staying(machine) else {
        // It is in use again.
        let is_left = |condition: &Condition| condition.reason == REASON && !machine.is_deleting();
        if conditions.get(types::OWNER_REMEDIATED).is_some_and(is_left) {
            conditions.remove(types::OWNER_REMEDIATED);
        }
        return;
    };
    let failed = conditions.get(types::HEALTH_CHECK_SUCCEEDED).map(|one| one.message.clone());
    conditions.set(types::OWNER_REMEDIATED, kept.statement(&failed.unwrap_or_default()), now);
}

/// When its time is over.
pub(super) fn again(machine: &Machine, now: i64) -> Then {
    staying(machine).and_then(|kept| kept.left(now)).map_or(Then::WhenChanged, Then::After)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::{
        kept::{KEPT_OF, KEPT_UNTIL},
        testing::{Stage, object},
    };

    const CORE: &str = "cluster.x-k8s.io/v1beta2";

    #[tokio::test(start_paused = true)]
    async fn a_time_that_a_user_has_just_changed_counts() {
        let stage = Stage::new().await;
        let mut machine = object(CORE, "Machine", "m");
        let until = |time: &str| json!({"annotations": {KEPT_UNTIL: time}});
        machine["metadata"]["labels"] = json!({KEPT_OF: "s"});
        machine["metadata"]["annotations"] = until("2026-01-01T00:00:00Z")["annotations"].clone();
        let reference = json!({"apiGroup": "g", "kind": "X", "name": "x"});
        machine["spec"] = json!({"clusterName": "c", "bootstrap": {}, "infrastructureRef": reference});
        stage.create(machine).await;
        let machines = &stage.core.stores.machines;
        let before = stage.until(machines, "m", |_| true).await;
        let over: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        assert!(!end(&stage.core, &before, over.as_second() - 1).await.expect("an end"), "it is early");
        let later = json!({"metadata": until("2027-01-01T00:00:00Z")});
        stage.patch(CORE, "Machine", "m", &later).await;
        let late = end(&stage.core, &before, over.as_second()).await;
        assert!(matches!(late, Err(Failure::Stale)), "{late:?}");
        assert!(stage.get(CORE, "Machine", "m").await.is_some());
        let is_later =
            |machine: &Machine| machine.annotation(KEPT_UNTIL).is_some_and(|time| time.starts_with("2027"));
        let after = stage.until(machines, "m", is_later).await;
        assert!(end(&stage.core, &after, over.as_second() + 366 * 86_400).await.expect("an end"));
        stage.until_gone(machines, "m").await;
    }

    #[test]
    fn a_machine_in_use_again_does_not_say_that_it_is_kept() {
        let machine = |labels: serde_json::Value| -> Machine {
            let reference = json!({"apiGroup": "g", "kind": "X", "name": "x"});
            let spec = json!({"clusterName": "c", "bootstrap": {}, "infrastructureRef": reference});
            serde_json::from_value(json!({"metadata": {"labels": labels}, "spec": spec})).expect("a Machine")
        };
        let mut conditions = Conditions::of(&[], None);
        say(&machine(json!({KEPT_OF: "s"})), &mut conditions, 0);
        assert_eq!(conditions.get(types::OWNER_REMEDIATED).map(|one| one.reason.as_str()), Some(REASON));
        say(&machine(json!({})), &mut conditions, 0);
        assert_eq!(conditions.get(types::OWNER_REMEDIATED), None);
        let asked = lifecycle::conditions::Statement::new(lifecycle::conditions::Status::False, "Asked", "");
        conditions.set(types::OWNER_REMEDIATED, asked, 0);
        say(&machine(json!({})), &mut conditions, 0);
        assert!(conditions.get(types::OWNER_REMEDIATED).is_some(), "what another says stays");
    }
}
