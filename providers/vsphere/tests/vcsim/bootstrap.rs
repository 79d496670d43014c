//! The bootstrap data are taken out of a machine that is a Node.

use std::{collections::BTreeMap, time::Duration};

use cloudprovider::machines::{ConditionStatus, MachineReport, Record};
use serde_json::{Value, json};
use test_env::Vcsim;

use crate::{controller::*, support::*};

const CONDITION: &str = "BootstrapDataRemoved";
const CALL: &str = "soap:ReconfigVM_Task";

/// A provider that removes bootstrap data.
pub(crate) async fn removing(vcsim: &Vcsim) -> Running {
    started_with(vcsim, "machines: {removeBootstrapData: true}\n").await
}

/// The keys of the extra configuration of a machine that the guest reads, and whose values are not empty.
pub(crate) fn guest_info(vcsim: &Vcsim, machine: &str) -> BTreeMap<String, String> {
    let found = vcsim.machine(machine).expect("a machine");
    let all = found["config"]["extraConfig"].as_array().expect("options").iter();
    let text = |value: &Value| value.as_str().or(value["_value"].as_str()).unwrap_or_default().to_owned();
    let all = all.map(|one| (text(&one["key"]), text(&one["value"])));
    all.filter(|(key, value)| key.starts_with("guestinfo.") && !value.is_empty()).collect()
}

fn calls_of(vcsim: &Vcsim) -> u64 {
    calls(vcsim).get(CALL).copied().unwrap_or_default()
}

#[tokio::test]
async fn they_are_removed_once_when_they_have_served() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = removing(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut object = Object::new(&vcsim, 1, &json!({}));
    controller.make(&mut object).await;
    let before = guest_info(&vcsim, &object.name());
    assert!(before.contains_key("guestinfo.userdata"), "{before:?}");
    vcsim.reset_counts().expect("reset");
    controller.step(&mut object).await.expect("a step");
    assert_eq!(calls_of(&vcsim), 0, "it is no Node yet");
    controller.join(&mut object).await;
    for _ in 0..3 {
        let report = controller.step(&mut object).await.expect("a step");
        assert!(report.is_done(), "{report:?}");
    }
    assert_eq!(calls_of(&vcsim), 1);
    // cloud-init still knows the instance, so it does not work again
    let after = guest_info(&vcsim, &object.name());
    let metadata = |all: &BTreeMap<String, String>| all.get("guestinfo.metadata").cloned();
    assert!(metadata(&after).is_some() && metadata(&after) == metadata(&before), "{after:?}");
    assert!(!after.keys().any(|key| key.starts_with("guestinfo.userdata")), "{after:?}");
    assert!(object.record.conditions.iter().all(|one| one.condition_type != CONDITION));
    // with an empty status, once more
    object.record = Record::default();
    controller.join(&mut object).await;
    assert_eq!((calls_of(&vcsim), guest_info(&vcsim, &object.name())), (2, after));
    controller.delete(&mut object).await;
    running.stop().await;
}

#[tokio::test]
async fn they_stay_where_nobody_asks() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut object = Object::new(&vcsim, 1, &json!({}));
    controller.make(&mut object).await;
    vcsim.reset_counts().expect("reset");
    object.request.has_node = true;
    controller.step(&mut object).await.expect("a step");
    assert_eq!(calls_of(&vcsim), 0);
    assert!(guest_info(&vcsim, &object.name()).contains_key("guestinfo.userdata"));
    controller.delete(&mut object).await;
    running.stop().await;
}

#[tokio::test]
async fn a_removal_that_fails_is_told_and_the_machine_stays_ready() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = removing(&vcsim).await;
    let mut controller = Controller::new(&running);
    for number in 0..2 {
        let mut object = Object::new(&vcsim, number, &json!({}));
        controller.make(&mut object).await;
        vcsim.reset_counts().expect("reset");
        if number == 0 {
            vcsim.fail_next_task("ReconfigVM_Task", "NoDiskSpace").expect("a fault");
        } else {
            vcsim.set_rules(&json!([{"methods": [CALL], "fault": "NoPermission"}])).expect("a rule");
        }
        object.request.has_node = true;
        let condition = loop {
            let report = controller.step(&mut object).await.expect("a step");
            let MachineReport::Present(machine) = report else { panic!("{report:?}") };
            assert!(machine.wait.is_none() && machine.look_again_after <= Some(Duration::from_secs(60)));
            let all = &object.record.conditions;
            if let Some(found) = all.iter().find(|one| one.condition_type == CONDITION) {
                break found.clone();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert_eq!((condition.status, &*condition.reason), (ConditionStatus::False, "RemovalFailed"));
        let fault = ["NoDiskSpace", "NoPermission"][number];
        assert!(condition.message.contains(fault), "{condition:?}");
        // it is not tried again at once
        controller.step(&mut object).await.expect("a step");
        assert_eq!(calls_of(&vcsim), 1);
        vcsim.set_rules(&json!([])).expect("no rule");
        controller.delete(&mut object).await;
    }
    assert!(controller.errors.is_empty(), "{:?}", controller.errors);
    running.stop().await;
}

/// vCenter loses the task, so nobody ever hears of its end.
#[tokio::test]
async fn a_removal_that_is_lost_is_begun_again() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = removing(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut object = Object::new(&vcsim, 1, &json!({}));
    controller.make(&mut object).await;
    vcsim.reset_counts().expect("reset");
    vcsim.set_rules(&json!([{"methods": [CALL], "loseTask": true, "times": 1}])).expect("a rule");
    controller.join(&mut object).await;
    assert_eq!(calls_of(&vcsim), 2);
    assert!(!guest_info(&vcsim, &object.name()).contains_key("guestinfo.userdata"));
    controller.delete(&mut object).await;
    assert!(controller.errors.is_empty(), "{:?}", controller.errors);
    running.stop().await;
}

#[tokio::test]
async fn a_machine_can_be_deleted_while_they_are_removed() {
    let options = test_env::VcsimOptions { task_delays: "ReconfigVm:1500", ..factory_options() };
    let Some(vcsim) = simulator(&options) else { return };
    let running = removing(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut object = Object::new(&vcsim, 1, &json!({}));
    controller.make(&mut object).await;
    object.request.has_node = true;
    let report = controller.step(&mut object).await.expect("a step");
    assert!(report.is_done(), "{report:?}");
    let report = controller.step(&mut object).await.expect("a step");
    assert!(report.is_done(), "while the task runs: {report:?}");
    controller.delete(&mut object).await;
    assert_eq!(names(&vcsim), [machine(0)]);
    assert!(controller.errors.is_empty(), "{:?}", controller.errors);
    running.stop().await;
}
