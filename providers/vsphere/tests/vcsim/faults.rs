//! A vCenter in trouble: it refuses, loses tasks, answers late, or is away.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use test_env::{Vcsim, VcsimOptions};

use crate::{controller::*, relay::Relay, support::*};

/// The calls that begin tasks, in the order in which a machine's life has them, with the words of the errors.
const TASKS: [(&str, &str); 6] = [
    ("CloneVM_Task", "clone"),
    ("UpgradeVM_Task", "hardware upgrade"),
    ("PowerOnMultiVM_Task", "power-on"),
    ("PowerOffVM_Task", "power-off"),
    ("ReconfigVM_Task", "detaching of disks"),
    ("Destroy_Task", "deletion"),
];

/// A machine whose life has all tasks.
fn object(vcsim: &Vcsim, number: usize) -> Object {
    let more = json!({
        "hardwareVersion": "vmx-21",
        "dataDisks": [{"name": "volume", "sizeGiB": 1}],
        "powerOffMode": "hard",
    });
    Object::new(vcsim, number, &more)
}

/// Makes a machine, gives it a volume, and deletes it.
async fn live(vcsim: &Vcsim, controller: &mut Controller<'_>, number: usize) {
    let mut object = object(vcsim, number);
    controller.make(&mut object).await;
    vcsim.act(&object.name(), "volume", "").expect("a volume");
    controller.delete(&mut object).await;
    assert_eq!(names(vcsim), [machine(0)]);
}

/// The same effect for each task, once.
fn once(effect: &Value) -> Value {
    let rule = |(method, _): &(&str, &str)| {
        let methods = json!({"methods": [format!("soap:{method}")], "times": 1});
        merged(methods, effect)
    };
    TASKS.iter().map(rule).collect()
}

#[tokio::test]
async fn a_refusal_is_told_and_tried_again() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let faults =
        ["NoPermission", "InvalidState", "TaskInProgress", "NoDiskSpace", "InsufficientResourcesFault"];
    for (number, fault) in faults.iter().enumerate() {
        // without the right to power on by DRS, a machine is powered on without it
        let is_told =
            |(method, _): &&(&str, &str)| *fault != "NoPermission" || *method != "PowerOnMultiVM_Task";
        let told: Vec<_> = TASKS.iter().filter(is_told).collect();
        vcsim.set_rules(&once(&json!({"fault": fault}))).expect("rules");
        let mut controller = Controller::new(&running);
        live(&vcsim, &mut controller, number).await;
        assert_eq!(controller.errors.len(), told.len(), "{:?}", controller.errors);
        for ((method, _), error) in told.iter().zip(&controller.errors) {
            assert!(error.contains(&format!("{method}: vCenter answers {fault}")), "{error}");
        }
        vcsim.set_rules(&json!([])).expect("no rules");

        // the same faults, as the ends of tasks
        for (method, _) in TASKS {
            vcsim.fail_next_task(method, fault).expect("a fault");
        }
        let mut controller = Controller::new(&running);
        live(&vcsim, &mut controller, number).await;
        assert_eq!(controller.errors.len(), told.len(), "{:?}", controller.errors);
        for ((_, words), error) in told.iter().zip(&controller.errors) {
            assert!(
                error.contains(&format!("the {words} of \"worker-{number}\" has failed (task-")),
                "{error}"
            );
            assert!(error.contains(fault), "{error}");
        }
    }
    running.stop().await;
}

#[tokio::test]
async fn a_name_that_is_taken_is_told() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    vcsim.fail_next_task("CloneVM_Task", "DuplicateName").expect("a fault");
    live(&vcsim, &mut controller, 1).await;
    assert!(
        matches!(&controller.errors[..], [one] if one.contains("\"worker-1\"")),
        "{:?}",
        controller.errors
    );
    running.stop().await;
}

/// Whether what the task was to do was done or not.
#[tokio::test]
async fn a_task_that_is_lost_is_done_once() {
    let lose = async |is_done: bool| {
        let Some(vcsim) = simulator(&factory_options()) else { return };
        let running = started(&vcsim).await;
        vcsim.set_rules(&once(&json!({"loseTask": true, "after": is_done}))).expect("rules");
        let mut controller = Controller::new(&running);
        live(&vcsim, &mut controller, 1).await;
        assert!(controller.errors.is_empty(), "{:?}", controller.errors);
        let counts = vcsim.counts().expect("counts");
        for (method, _) in TASKS {
            let calls = counts[&format!("soap:{method}")];
            assert!(calls <= 2, "done {is_done}: {method} {calls}");
            assert!(is_done || calls == 2, "done {is_done}: {method} {calls}");
        }
        assert!(!is_done || counts["soap:CloneVM_Task"] == 1, "{counts:?}");
        running.stop().await;
    };
    tokio::join!(lose(false), lose(true));
}

/// Each step is given up before its call is answered, or takes place.
#[tokio::test]
async fn a_late_answer_is_waited_for() {
    let late = async |is_after: bool| {
        let Some(vcsim) = simulator(&factory_options()) else { return };
        let running = started(&vcsim).await;
        let delay = json!([{
            "methods": ["soap:*"], "except": ["soap:WaitForUpdatesEx"], "delayMillis": 700, "after": is_after,
        }]);
        vcsim.set_rules(&delay).expect("a rule");
        let mut controller = Controller::new(&running);
        controller.step_limit = Duration::from_millis(500);
        // what is only read is read to its end by some step
        let reads = json!(["soap:RetrievePropertiesEx", "soap:FindAllByUuid", "soap:WaitForUpdatesEx"]);
        let delay = json!([{"methods": ["soap:*"], "except": reads, "delayMillis": 700, "after": is_after}]);
        vcsim.set_rules(&delay).expect("a rule");
        live(&vcsim, &mut controller, 1).await;
        assert!(controller.errors.len() >= TASKS.len(), "{:?}", controller.errors);
        let counts = vcsim.counts().expect("counts");
        for (method, _) in TASKS {
            let calls = counts[&format!("soap:{method}")];
            assert_eq!(calls, 1, "after {is_after}: {method} {:?} {counts:?}", controller.errors);
        }
        running.stop().await;
    };
    tokio::join!(late(false), late(true));
}

/// How long the vCenter is away.
const AWAY: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vcenter_is_away_for_a_minute() {
    let options = VcsimOptions { task_delays: "CloneVm:400,PowerOn:200,Destroy:300", ..factory_options() };
    let Some(vcsim) = simulator(&options) else { return };
    let relay = Relay::start(vcsim.port()).await.expect("a relay");
    let port = |port: u16| format!("port: {port}");
    let relayed = config(&[&vcsim]).replace(&port(vcsim.port()), &port(relay.port()));
    let running = Running::start(&relayed).await;
    running.eventually(&node(0), "present", |answer| present(answer).is_some()).await;
    let object = |number| {
        let mut object = object(&vcsim, number);
        object.request.cluster.spec["server"] = format!("127.0.0.1:{}", relay.port()).into();
        object
    };
    let mut controllers: Vec<_> = (0..8).map(|_| Controller::new(&running)).collect();
    let mut objects: Vec<_> = (0..8).map(object).collect();
    // half of them are there already, and are deleted
    let made = controllers.iter_mut().zip(&mut objects).take(4);
    join_all(made.map(|(controller, object)| controller.make(object))).await;
    let work =
        controllers.iter_mut().zip(&mut objects).enumerate().map(async |(number, (controller, object))| {
            // all are somewhere else when it goes away
            tokio::time::sleep(Duration::from_millis(u64::try_from(number % 4).expect("small") * 150)).await;
            controller.limit = LIMIT + AWAY;
            if number < 4 { controller.delete(object).await } else { drop(controller.make(object).await) }
        });
    let trouble = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        relay.open(false);
        tokio::time::sleep(AWAY).await;
        relay.open(true);
    };
    tokio::join!(join_all(work), trouble);
    let mut found = names(&vcsim);
    found.sort();
    assert_eq!(found, [&machine(0), "worker-4", "worker-5", "worker-6", "worker-7"]);
    join_all(controllers.iter_mut().zip(&mut objects).skip(4).map(|(one, object)| one.delete(object))).await;
    assert_eq!(names(&vcsim), [machine(0)]);
    running.stop().await;
}
