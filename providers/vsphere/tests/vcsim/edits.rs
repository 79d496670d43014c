//! Edits of the network devices of a machine that is complete.

use std::sync::Arc;

use cloudprovider::machines::{AuxiliaryObject, DesiredObject, Objects};
use parking_lot::Mutex;
use serde_json::{Value, json};
use test_env::Vcsim;
use tokio::runtime::Runtime;

use crate::{
    controller::*,
    crashes::{NEVER, is_killed},
    support::*,
    take_over::kind,
};

fn devices(name_server: &str) -> Value {
    json!([{"networkName": "VM Network", "dhcp4": true, "nameservers": [name_server]}])
}

fn vm_wanted(object: &Object) -> Option<&DesiredObject> {
    object.record.wanted().iter().find(|one| one.kind.kind == "VSphereVM")
}

/// A complete machine, whose `VSphereVM` the API has as it was wanted.
async fn complete(vcsim: &Vcsim, running: &Running, name_server: &str) -> Object {
    let mut object = Object::new(vcsim, 1, &json!({"network": {"devices": devices(name_server)}}));
    Controller::new(running).make(&mut object).await;
    let wanted = vm_wanted(&object).expect("a VSphereVM").spec.clone();
    write_vm(running, &mut object, wanted);
    object
}

/// The API has the `VSphereVM` of the object with this spec.
fn write_vm(running: &Running, object: &mut Object, spec: Value) {
    let owner = object.request.object_uid.clone();
    let vm = AuxiliaryObject::new("worker-1").in_namespace("default").with_owners([owner]);
    object.request.objects = Objects::of([(kind(running), vm.with_spec(spec))]);
}

/// Steps until the step wants the `VSphereVM` to have the devices.
async fn pass_on(running: &Running, object: &mut Object, limit: usize) -> Value {
    let mut controller = Controller::new(running);
    for _ in 0..limit {
        let report = controller.step(object).await.expect("a step");
        assert!(report.is_done(), "it is complete all the time: {report:?}");
        let wanted = vm_wanted(object).map(|one| one.spec["network"]["devices"].clone());
        if let Some(devices) = wanted.filter(|devices| !devices.is_null()) {
            return devices;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{:?}", object.record.wanted());
}

fn name_server(vcsim: &Vcsim) -> Value {
    metadata(vcsim, "worker-1")["network"]["ethernets"]["id0"]["nameservers"]["addresses"][0].clone()
}

#[tokio::test]
async fn an_edit_is_passed_on_to_the_guest_and_nothing_is_started_again() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut object = complete(&vcsim, &running, "192.0.2.53").await;
    let (before, told) = (vcsim.inventory().expect("an inventory"), metadata(&vcsim, "worker-1"));
    vcsim.reset_counts().expect("reset");
    Controller::new(&running).step(&mut object).await.expect("a step");
    assert_eq!(calls(&vcsim), [].into(), "nothing is read of a machine that nobody edits");

    object.request.spec["network"]["devices"] = devices("192.0.2.54");
    let written = pass_on(&running, &mut object, 200).await;
    assert_eq!(written, devices("192.0.2.54"));
    assert_eq!(name_server(&vcsim), "192.0.2.54");
    assert_eq!(metadata(&vcsim, "worker-1")["instance-id"], told["instance-id"]);
    assert_eq!(
        metadata(&vcsim, "worker-1")["network"]["ethernets"]["id0"]["match"],
        told["network"]["ethernets"]["id0"]["match"]
    );
    assert_eq!(vcsim.inventory().expect("an inventory"), before);
    let made = calls(&vcsim);
    assert_eq!(
        made,
        [("soap:RetrievePropertiesEx".to_owned(), 2), ("soap:ReconfigVM_Task".to_owned(), 1)].into()
    );
    let sent = vcsim.last_requests().expect("requests").remove("soap:ReconfigVM_Task").expect("a change");
    assert!(sent.contains("<changeVersion>") && !sent.contains("cloud-controller-manager.mark"), "{sent}");

    // until the API has it, each step wants it, and nothing more is written
    vcsim.reset_counts().expect("reset");
    pass_on(&running, &mut object, 1).await;
    assert_eq!(calls(&vcsim), [("soap:RetrievePropertiesEx".to_owned(), 1)].into());
    let mut spec = object.request.spec.clone();
    spec["network"]["devices"] = written;
    write_vm(&running, &mut object, spec);
    vcsim.reset_counts().expect("reset");
    Controller::new(&running).step(&mut object).await.expect("a step");
    assert_eq!(calls(&vcsim), [].into());
    assert_eq!(vm_wanted(&object).map(|one| one.spec["network"].clone()), Some(Value::Null));

    // another network is told by the VSphereVM alone
    object.request.spec["network"]["devices"][0]["networkName"] = json!("DC0_DVPG0");
    assert_eq!(pass_on(&running, &mut object, 1).await[0]["networkName"], "DC0_DVPG0");
    assert_eq!(calls(&vcsim), [].into());
    // a device that is not there is not told to the guest
    let mut two = devices("192.0.2.54");
    two.as_array_mut().expect("a list").push(json!({"networkName": "VM Network", "dhcp4": true}));
    object.request.spec["network"]["devices"] = two.clone();
    assert_eq!(pass_on(&running, &mut object, 200).await, two);
    assert_eq!(
        metadata(&vcsim, "worker-1")["network"]["ethernets"].as_object().map(serde_json::Map::len),
        Some(1)
    );
    Controller::new(&running).delete(&mut object).await;
    running.stop().await;
}

#[tokio::test]
async fn an_edit_that_is_taken_back_while_it_is_written_is_taken_back_in_the_guest() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut object = complete(&vcsim, &running, "192.0.2.53").await;
    let mut controller = Controller::new(&running);
    object.request.spec["network"]["devices"] = devices("192.0.2.54");
    controller.step(&mut object).await.expect("a step");
    assert_eq!(calls(&vcsim).get("soap:ReconfigVM_Task"), Some(&1), "it is under way");
    object.request.spec["network"]["devices"] = devices("192.0.2.53");
    for _ in 0..200 {
        let report = controller.step(&mut object).await.expect("a step");
        assert!(report.is_done(), "it is complete all the time: {report:?}");
        if calls(&vcsim).get("soap:ReconfigVM_Task") == Some(&2) && name_server(&vcsim) == "192.0.2.53" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(name_server(&vcsim), "192.0.2.53");
    controller.wait(&object, None).await;
    for _ in 0..2 {
        controller.step(&mut object).await.expect("a step");
    }
    vcsim.reset_counts().expect("reset");
    controller.step(&mut object).await.expect("a step");
    assert_eq!(calls(&vcsim), [].into(), "it is settled");
    controller.delete(&mut object).await;
    running.stop().await;
}

#[tokio::test]
async fn a_change_that_vcenter_refuses_is_told_and_tried_again() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut object = complete(&vcsim, &running, "192.0.2.53").await;
    object.request.spec["network"]["devices"] = devices("192.0.2.54");
    vcsim.fail_next_task("ReconfigVM_Task", "NoDiskSpace").expect("a fault");
    let mut controller = Controller::new(&running);
    let told = loop {
        let report = controller.step(&mut object).await.expect("a step");
        assert!(report.is_done(), "it is complete all the time: {report:?}");
        let flaw = object.record.conditions.iter().find(|one| one.condition_type == "NetworkPassedOn");
        if let Some(flaw) = flaw {
            break flaw.message.clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert!(told.starts_with("the writing has failed") && told.contains("NoDiskSpace"), "{told}");
    assert_eq!(name_server(&vcsim), "192.0.2.53");
    running.stop().await;
    // another process need not wait
    let running = started(&vcsim).await;
    pass_on(&running, &mut object, 200).await;
    assert!(object.record.conditions.iter().all(|one| one.condition_type != "NetworkPassedOn"));
    let mut controller = Controller::new(&running);
    assert_eq!(name_server(&vcsim), "192.0.2.54");
    controller.delete(&mut object).await;
    running.stop().await;
}

/// A process that passes an edit on, and writes what the `VSphereVM` is wanted to tell.
async fn passing(vcsim: Arc<Vcsim>, written: Arc<Mutex<Object>>) {
    let running = started(&vcsim).await;
    let mut object = written.lock().clone();
    let devices = pass_on(&running, &mut object, 400).await;
    let mut spec = object.request.spec.clone();
    spec["network"]["devices"] = devices;
    write_vm(&running, &mut object, spec);
    *written.lock() = object;
    running.stop().await;
}

#[test]
fn killed_at_every_call_of_an_edit() {
    let Some(vcsim) = simulator(&factory_options()).map(Arc::new) else { return };
    let runtime = Runtime::new().expect("a runtime");
    let mut object = runtime.block_on(async {
        let running = started(&vcsim).await;
        let object = complete(&vcsim, &running, "192.0.2.1").await;
        running.stop().await;
        object
    });
    let mut edits = 1;
    for is_after in [false, true] {
        for at in 0.. {
            edits += 1;
            let name = format!("192.0.2.{edits}");
            object.request.spec["network"]["devices"] = devices(&name);
            let written = Arc::new(Mutex::new(object.clone()));
            let rule = json!({
                "methods": ["*"], "except": NEVER, "skip": at, "times": 1, "hang": true, "after": is_after,
            });
            vcsim.reset_counts().expect("reset");
            vcsim.set_rules(&json!([rule])).expect("a rule");
            let was_killed = is_killed(&vcsim, passing(Arc::clone(&vcsim), Arc::clone(&written)));
            vcsim.set_rules(&json!([])).expect("no rule");
            if was_killed {
                runtime.block_on(passing(Arc::clone(&vcsim), Arc::clone(&written)));
            }
            let when = format!("killed {} call {at}", if is_after { "after" } else { "before" });
            assert_eq!(name_server(&vcsim), name, "{when}");
            assert_eq!(names(&vcsim), [machine(0), "worker-1".to_owned()], "{when}");
            object = written.lock().clone();
            if !was_killed {
                assert!(at >= 5, "{at} calls");
                break;
            }
        }
    }
    runtime.block_on(async {
        let running = started(&vcsim).await;
        Controller::new(&running).delete(&mut object).await;
        running.stop().await;
    });
}
