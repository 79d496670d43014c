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

/// The same effect for the first calls for each task, so many times.
fn times(times: usize, effect: &Value) -> Value {
    let rule = |(method, _): &(&str, &str)| {
        let methods = json!({"methods": [format!("soap:{method}")], "times": times});
        merged(methods, effect)
    };
    TASKS.iter().map(rule).collect()
}

/// How many machines meet the same trouble at once.
const SEVERAL: usize = 6;

fn several<'a>(vcsim: &Vcsim, running: &'a Running) -> Vec<(Controller<'a>, Object)> {
    (1..=SEVERAL).map(|number| (Controller::new(running), object(vcsim, number))).collect()
}

/// That there are exactly the machines of these objects, and they run.
fn are_made_once<'a>(vcsim: &Vcsim, objects: impl Iterator<Item = &'a Object>) {
    let mut made = vcsim.inventory().expect("an inventory");
    made.retain(|one| one["name"] != machine(0));
    let mut made: Vec<_> =
        made.iter().map(|one| (one["instanceUuid"].as_str(), one["power"].as_str())).collect();
    made.sort_unstable();
    let mut wanted: Vec<_> =
        objects.map(|object| (Some(&*object.request.mark.uid), Some("poweredOn"))).collect();
    wanted.sort_unstable();
    assert_eq!(made, wanted);
}

/// Makes machines at once, gives each a volume, and deletes them at once. Each is made once, and nothing is left of any. Returns the errors
/// of all.
async fn live_at_once(vcsim: &Vcsim, all: &mut [(Controller<'_>, Object)]) -> Vec<String> {
    let files = vcsim.files().expect("files");
    join_all(all.iter_mut().map(|(controller, object)| controller.make(object))).await;
    are_made_once(vcsim, all.iter().map(|(_, object)| object));
    for (_, object) in &*all {
        vcsim.act(&object.name(), "volume", "").expect("a volume");
    }
    join_all(all.iter_mut().map(|(controller, object)| controller.delete(object))).await;
    assert_eq!(names(vcsim), [machine(0)]);
    assert_eq!(vcsim.files().expect("files"), files);
    all.iter_mut().flat_map(|(controller, _)| std::mem::take(&mut controller.errors)).collect()
}

/// How often each task was called for.
fn begun(vcsim: &Vcsim) -> Vec<(&'static str, usize)> {
    let counts = vcsim.counts().expect("counts");
    let of = |method: &str| counts.get(&format!("soap:{method}")).copied().unwrap_or_default();
    TASKS.iter().map(|(method, _)| (*method, usize::try_from(of(method)).expect("few"))).collect()
}

#[tokio::test]
async fn a_refusal_is_told_and_tried_again() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    // the last one keeps the provider from DRS for a minute
    let faults =
        ["InvalidState", "TaskInProgress", "NoDiskSpace", "InsufficientResourcesFault", "NoPermission"];
    for (number, fault) in faults.iter().enumerate() {
        // without the right to power on by DRS, a machine is powered on without it
        let is_told =
            |(method, _): &&(&str, &str)| *fault != "NoPermission" || *method != "PowerOnMultiVM_Task";
        let told: Vec<_> = TASKS.iter().filter(is_told).collect();
        vcsim.set_rules(&times(1, &json!({"fault": fault}))).expect("rules");
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

/// A busy vCenter refuses calls, and lets tasks fail. Who of the machines is hit, and how often, is left to chance.
#[tokio::test]
async fn several_machines_are_refused_at_once() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    for fault in ["TaskInProgress", "InsufficientResourcesFault"] {
        vcsim.set_rules(&times(SEVERAL, &json!({"fault": fault}))).expect("rules");
        let errors = live_at_once(&vcsim, &mut several(&vcsim, &running)).await;
        for (method, _) in TASKS {
            let words = format!("{method}: vCenter answers {fault}");
            assert_eq!(
                errors.iter().filter(|one| one.contains(&words)).count(),
                SEVERAL,
                "{method}: {errors:?}"
            );
        }
        vcsim.set_rules(&json!([])).expect("no rules");

        for _ in 0..SEVERAL {
            for (method, _) in TASKS {
                vcsim.fail_next_task(method, fault).expect("a fault");
            }
        }
        let errors = live_at_once(&vcsim, &mut several(&vcsim, &running)).await;
        for (_, what) in TASKS {
            let is_told = |one: &&String| one.contains(&format!("the {what} of ")) && one.contains(fault);
            assert_eq!(errors.iter().filter(is_told).count(), SEVERAL, "{what}: {errors:?}");
        }
    }
    running.stop().await;
}

/// Each machine loses each of its tasks, whether what the task was to do was done or not.
#[tokio::test]
async fn tasks_that_are_lost_are_done_once() {
    let lose = async |is_done: bool| {
        let Some(vcsim) = simulator(&factory_options()) else { return };
        let running = started(&vcsim).await;
        vcsim.set_rules(&times(SEVERAL, &json!({"loseTask": true, "after": is_done}))).expect("rules");
        let errors = live_at_once(&vcsim, &mut several(&vcsim, &running)).await;
        assert!(errors.is_empty(), "{errors:?}");
        for (method, calls) in begun(&vcsim) {
            assert!(calls <= 2 * SEVERAL, "done {is_done}: {method} {calls}");
            assert!(is_done || calls == 2 * SEVERAL, "done {is_done}: {method} {calls}");
            assert!(!is_done || method != "CloneVM_Task" || calls == SEVERAL, "{method} {calls}");
        }
        running.stop().await;
    };
    tokio::join!(lose(false), lose(true));
}

/// Each step is given up before its call is answered, or takes place.
#[tokio::test]
async fn late_answers_are_waited_for() {
    let late = async |is_after: bool| {
        let Some(vcsim) = simulator(&factory_options()) else { return };
        let running = started(&vcsim).await;
        let delay = json!([{
            "methods": ["soap:*"], "except": ["soap:WaitForUpdatesEx"], "delayMillis": 700, "after": is_after,
        }]);
        vcsim.set_rules(&delay).expect("a rule");
        let mut all = several(&vcsim, &running);
        join_all(all.iter_mut().map(|(controller, object)| {
            controller.step_limit = Duration::from_millis(500);
            controller.step(object)
        }))
        .await;
        // what is only read is read to its end by some step
        let reads = json!(["soap:RetrievePropertiesEx", "soap:FindAllByUuid", "soap:WaitForUpdatesEx"]);
        let delay = json!([{"methods": ["soap:*"], "except": reads, "delayMillis": 700, "after": is_after}]);
        vcsim.set_rules(&delay).expect("a rule");
        let errors = live_at_once(&vcsim, &mut all).await;
        assert!(errors.len() >= SEVERAL * TASKS.len(), "{errors:?}");
        for (method, calls) in begun(&vcsim) {
            assert_eq!(calls, SEVERAL, "after {is_after}: {method} {errors:?}");
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
    let files = vcsim.files().expect("files");
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
    are_made_once(&vcsim, objects.iter().skip(4));
    join_all(controllers.iter_mut().zip(&mut objects).skip(4).map(|(one, object)| one.delete(object))).await;
    assert_eq!(names(&vcsim), [machine(0)]);
    assert_eq!(vcsim.files().expect("files"), files);
    running.stop().await;
}
