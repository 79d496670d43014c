//! Machines that Cluster API Provider vSphere has made, as it leaves them.

use std::sync::Arc;

use cloudprovider::{
    ErrorKind,
    machines::{AuxiliaryKind, AuxiliaryObject, Deletion, MachineReport, Objects},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use test_env::Vcsim;
use tokio::runtime::Runtime;

use crate::{controller::*, support::*};

pub(crate) const VM_UID: &str = "6d3c2b1a-0000-4000-8000-000000000001";
pub(crate) const OTHER_UID: &str = "6d3c2b1a-0000-4000-8000-000000000002";
pub(crate) const BIOS_UUID: &str = "42015e4c-0000-4000-8000-000000000001";

/// The object of `worker-1`, with a `VSphereVM` of this UID and spec.
fn object(vcsim: &Vcsim, running: &Running, vm_uid: &str, spec: Value) -> Object {
    let mut object = Object::new(vcsim, 1, &json!({}));
    let owner = object.request.object_uid.clone();
    let vm = AuxiliaryObject::new("worker-1").in_namespace("default").with_uid(vm_uid).with_owners([owner]);
    let kind = kind(running);
    object.request.objects = Objects::of([(kind, vm.with_spec(spec))]);
    object
}

pub(crate) fn kind(running: &Running) -> AuxiliaryKind {
    kind_called(running, "VSphereVM")
}

/// The further kind of this name.
pub(crate) fn kind_called(running: &Running, name: &str) -> AuxiliaryKind {
    use cloudprovider::CloudProvider as _;
    let kinds = running.provider.machines().expect("machines").kinds();
    *kinds.auxiliary.iter().find(|kind| kind.kind == name).expect("a kind")
}

/// The virtual machine of `worker-1`, without a mark.
pub(crate) fn clone(vcsim: &Vcsim, is_on: bool) {
    vcsim.act(&machine(0), "clone", "worker-1").expect("a clone");
    vcsim.set_guest("worker-1", json!({"uuid": BIOS_UUID, "instanceUuid": VM_UID})).expect("its UUIDs");
    if is_on {
        vcsim.act("worker-1", "power-on", "").expect("it runs");
        vcsim.act("worker-1", "reconfigure", "guestinfo.metadata=e30=").expect("its network");
        let nics = json!([{"network": "VM Network", "mac": "00:50:56:01:02:03", "ips": ["10.64.9.9/16"]}]);
        vcsim.set_guest("worker-1", json!({"tools": "guestToolsRunning", "nics": nics})).expect("its guest");
    }
}

/// The same of a complete machine.
fn complete(mut object: Object) -> Object {
    object.request.provider_id = Some(format!("vsphere://{BIOS_UUID}"));
    object.request.is_provisioned = true;
    object
}

/// Fixes the identity, as the controller does before the first step.
async fn identified(running: &Running, mut object: Object) -> cloudprovider::Result<Object> {
    use cloudprovider::CloudProvider as _;
    let part = running.provider.machines().expect("machines");
    let uid = part.identify_machine(&object.request).await?;
    object.request.mark.uid = uid.expect("it can be told");
    Ok(object)
}

/// Steps until the mark is there, which is when a step sees it without a call.
async fn take_over(vcsim: &Vcsim, controller: &mut Controller<'_>, object: &mut Object) {
    loop {
        controller.make(object).await;
        vcsim.reset_counts().expect("reset");
        controller.step(object).await.expect("a step");
        if calls(vcsim).is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

fn is_marked(vcsim: &Vcsim) -> String {
    vcsim.last_requests().expect("requests").remove("soap:ReconfigVM_Task").unwrap_or_default()
}

#[tokio::test]
async fn one_that_runs_gets_a_mark_and_nothing_else() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    clone(&vcsim, true);
    let running = started(&vcsim).await;
    running.eventually(&known_by(BIOS_UUID), "seen", |answer| present(answer).is_some()).await;
    let before = vcsim.inventory().expect("an inventory");
    // what somebody else has made has no network configuration of CAPV
    vcsim.act("worker-1", "reconfigure", "guestinfo.metadata=").expect("no network");
    let moved = complete(object(&vcsim, &running, OTHER_UID, json!({"biosUUID": BIOS_UUID})));
    let mut moved = identified(&running, moved).await.expect("its identity");
    let mut controller = Controller::new(&running);
    let error = controller.step(&mut moved).await.expect_err("it may be anybody's");
    assert!(error.report().contains("it has no guestinfo.metadata"), "{}", error.report());
    let part = cloudprovider::CloudProvider::machines(&*running.provider).expect("machines");
    let answer = part.delete_machine(&moved.request, &mut moved.record).await;
    assert_eq!(answer.expect_err("it is not released").kind(), ErrorKind::Conflict);
    vcsim.act("worker-1", "reconfigure", "guestinfo.metadata=e30=").expect("its network");
    // as it was made, and after `clusterctl move`, which makes the VSphereVM anew
    for (vm_uid, is_marked_before) in [(VM_UID, false), (OTHER_UID, true)] {
        let bios = json!({"biosUUID": BIOS_UUID});
        let object = complete(object(&vcsim, &running, vm_uid, bios));
        let mut object = identified(&running, object).await.expect("its identity");
        assert_eq!(object.request.mark.uid, VM_UID);
        let mut controller = Controller::new(&running);
        vcsim.reset_counts().expect("reset");
        let report = controller.step(&mut object).await.expect("a step");
        assert!(report.is_done(), "it is complete all the time: {report:?}");
        let made = calls(&vcsim);
        let marks = made.get("soap:ReconfigVM_Task").copied().unwrap_or_default();
        assert_eq!(marks, u64::from(!is_marked_before), "{made:?}");
        take_over(&vcsim, &mut controller, &mut object).await;
        assert_eq!(object.record.status.get("taskRef"), None);
        assert_eq!(vcsim.inventory().expect("an inventory"), before);
    }
    let sent = is_marked(&vcsim);
    assert!(sent.contains("cloud-controller-manager.mark") && sent.contains("<changeVersion>"), "{sent}");
    assert!(!sent.contains("guestinfo"), "{sent}");
    let mut object = object(&vcsim, &running, VM_UID, json!({}));
    object.request.mark.uid = VM_UID.to_owned();
    Controller::new(&running).delete(&mut object).await;
    assert_eq!(names(&vcsim), [machine(0)]);
    running.stop().await;
}

#[tokio::test]
async fn one_that_was_never_started_gets_its_network_too() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    clone(&vcsim, false);
    let running = started(&vcsim).await;
    let object = object(&vcsim, &running, VM_UID, json!({}));
    let mut object = identified(&running, object).await.expect("its identity");
    assert_eq!(object.request.mark.uid, VM_UID);
    let mut controller = Controller::new(&running);
    let instance = controller.make(&mut object).await;
    assert_eq!(instance.provider_id.expect("an ID").as_str(), format!("vsphere://{BIOS_UUID}"));
    let sent = is_marked(&vcsim);
    for part in ["cloud-controller-manager.mark", "guestinfo.metadata", "guestinfo.metadata.encoding"] {
        assert!(sent.contains(part), "{part}: {sent}");
    }
    controller.delete(&mut object).await;
    assert!(controller.errors.is_empty(), "{:?}", controller.errors);
    assert_eq!(names(&vcsim), [machine(0)]);
    running.stop().await;
}

#[tokio::test]
async fn one_that_is_deleted_at_once_goes_too() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    clone(&vcsim, true);
    let running = started(&vcsim).await;
    running.eventually(&known_by(BIOS_UUID), "seen", |answer| present(answer).is_some()).await;
    let object = complete(object(&vcsim, &running, VM_UID, json!({"biosUUID": BIOS_UUID})));
    let mut object = identified(&running, object).await.expect("its identity");
    let mut controller = Controller::new(&running);
    controller.delete(&mut object).await;
    assert!(controller.errors.is_empty(), "{:?}", controller.errors);
    assert_eq!(names(&vcsim), [machine(0)]);
    running.stop().await;
}

#[tokio::test]
async fn one_that_cannot_be_told_is_left_alone() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    clone(&vcsim, true);
    let running = started(&vcsim).await;
    running.eventually(&known_by(BIOS_UUID), "seen", |answer| present(answer).is_some()).await;
    let mut controller = Controller::new(&running);
    let with = |vm_uid: &str, bios: &str| object(&vcsim, &running, vm_uid, json!({"biosUUID": bios}));
    let mut without_vm = complete(with(VM_UID, BIOS_UUID));
    without_vm.request.objects = Objects::default();
    let mut renamed = complete(with(VM_UID, BIOS_UUID));
    let vm = AuxiliaryObject::new("other").in_namespace("default").with_uid(VM_UID);
    let vm = vm.with_owners([renamed.request.object_uid.clone()]);
    renamed.request.objects = Objects::of([(kind(&running), vm)]);
    for (object, part) in [
        (without_vm, "owns no VSphereVM"),
        (renamed, "its VSphereVM is called \"other\""),
        // its own provider ID does not say the same
        (with(OTHER_UID, BIOS_UUID), "its instance UUID is not"),
        (complete(with(VM_UID, VM_UID)), "one of the objects belongs to another"),
    ] {
        let error = identified(&running, object.clone()).await.map(|_| ()).expect_err(part);
        assert_eq!(error.kind(), ErrorKind::Conflict, "{}", error.report());
        assert!(error.report().contains(part), "{}", error.report());
        // somebody has written the annotation by hand
        let mut object = object;
        object.request.mark.uid = VM_UID.to_owned();
        let part_of_provider = cloudprovider::CloudProvider::machines(&*running.provider).expect("machines");
        let error = controller.step(&mut object).await.expect_err(part);
        assert_eq!(error.kind(), ErrorKind::Conflict, "{}", error.report());
        let deletion = part_of_provider.delete_machine(&object.request, &mut object.record).await;
        let error = deletion.expect_err("it is not released");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{}", error.report());
    }
    // its cluster is gone by force, and its VSphereVM names another vCenter
    let other = json!({"biosUUID": BIOS_UUID, "server": "vc9.example.org"});
    let mut elsewhere = complete(object(&vcsim, &running, VM_UID, other));
    elsewhere.request.cluster.spec = Value::Null;
    let part = cloudprovider::CloudProvider::machines(&*running.provider).expect("machines");
    let answer = part.delete_machine(&elsewhere.request, &mut elsewhere.record).await;
    let error = answer.expect_err("it is not released");
    assert!(error.report().contains("spec.server of the VSphereVM"), "{}", error.report());
    // nothing was ever made
    let mut new = object(&vcsim, &running, VM_UID, json!({}));
    new.request.objects = Objects::default();
    let own = new.request.mark.uid.clone();
    assert_eq!(identified(&running, new).await.expect("its identity").request.mark.uid, own);
    assert_eq!(names(&vcsim).len(), 2);
    assert_eq!(is_marked(&vcsim), "");
    running.stop().await;
}

#[tokio::test]
async fn what_was_never_begun_on_a_wrong_vcenter_can_be_deleted() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let part = cloudprovider::CloudProvider::machines(&*running.provider).expect("machines");
    let mut object = Object::new(&vcsim, 1, &json!({"server": "vc9.example.org"}));
    let gone = part.delete_machine(&object.request, &mut object.record).await.expect("an answer");
    assert_eq!(gone, Deletion::Gone);
    object.request.provider_id = Some(format!("vsphere://{BIOS_UUID}"));
    let error = part.delete_machine(&object.request, &mut object.record).await.expect_err("it was made");
    assert_eq!(error.kind(), ErrorKind::InvalidConfiguration, "{}", error.report());
    running.stop().await;
}

#[tokio::test]
async fn what_is_not_shown_is_asked_for_before_its_identity_is_fixed() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    vcsim.reset_counts().expect("reset");
    let object = complete(object(&vcsim, &running, VM_UID, json!({"biosUUID": BIOS_UUID})));
    let mut object = identified(&running, object).await.expect("its identity");
    assert_eq!(object.request.mark.uid, VM_UID, "that of the VSphereVM");
    assert!(calls(&vcsim).contains_key("soap:FindAllByUuid"), "{:?}", calls(&vcsim));
    let mut controller = Controller::new(&running);
    let report = controller.step(&mut object).await.expect("a step");
    assert!(matches!(report, MachineReport::Lost { .. }), "{report:?}");
    controller.delete(&mut object).await;
    running.stop().await;
}

/// It has the instance UUID that only a step of this object could have given it, and no mark any more.
#[tokio::test]
async fn one_without_a_mark_is_never_left_over_in_silence() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    clone(&vcsim, true);
    let running = started(&vcsim).await;
    running.eventually(&known_by(BIOS_UUID), "seen", |answer| present(answer).is_some()).await;
    let mut object = object(&vcsim, &running, VM_UID, json!({}));
    object.request.objects = Objects::default();
    object.request.mark.uid = VM_UID.to_owned();
    let part = cloudprovider::CloudProvider::machines(&*running.provider).expect("machines");
    let answer = part.delete_machine(&object.request, &mut object.record).await;
    let error = answer.expect_err("it is not released");
    assert_eq!(error.kind(), ErrorKind::Conflict, "{}", error.report());
    assert_eq!(names(&vcsim).len(), 2);
    running.stop().await;
}

/// The process ends at the call that writes the mark, before it takes place or after it.
#[test]
fn killed_while_the_mark_is_written() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let vcsim = Arc::new(vcsim);
    for is_after in [false, true] {
        clone(&vcsim, true);
        vcsim.reset_counts().expect("reset");
        let rule = json!({"methods": ["soap:ReconfigVM_Task"], "times": 1, "hang": true, "after": is_after});
        vcsim.set_rules(&json!([rule])).expect("a rule");
        let runtime = Runtime::new().expect("a runtime");
        let (shared, left) = (Arc::clone(&vcsim), Arc::new(Mutex::new(None)));
        let written = Arc::clone(&left);
        runtime.spawn(async move {
            let running = started(&shared).await;
            running.eventually(&known_by(BIOS_UUID), "seen", |answer| present(answer).is_some()).await;
            let object = complete(object(&shared, &running, VM_UID, json!({"biosUUID": BIOS_UUID})));
            let mut object = identified(&running, object).await.expect("its identity");
            *written.lock() = Some(object.clone());
            Controller::new(&running).step(&mut object).await
        });
        while !vcsim.counts().expect("counts").keys().any(|name| name.starts_with("hit:")) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        runtime.shutdown_timeout(LIMIT);
        vcsim.set_rules(&json!([])).expect("no rule");
        let mut object = left.lock().take().expect("an object");
        let runtime = Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let running = started(&vcsim).await;
            running.eventually(&known_by(BIOS_UUID), "seen", |answer| present(answer).is_some()).await;
            let mut controller = Controller::new(&running);
            take_over(&vcsim, &mut controller, &mut object).await;
            controller.delete(&mut object).await;
            assert!(controller.errors.is_empty(), "{is_after}: {:?}", controller.errors);
            running.stop().await;
        });
        assert_eq!(names(&vcsim), [machine(0)], "{is_after}");
    }
}

pub(crate) fn known_by(bios_uuid: &str) -> cloudprovider::NodeIdentity {
    cloudprovider::NodeIdentity {
        name: "worker-1".to_owned(),
        provider_id: Some(format!("vsphere://{bios_uuid}")),
        ..cloudprovider::NodeIdentity::default()
    }
}
