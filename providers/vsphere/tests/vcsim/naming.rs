//! Machines whose name comes from a template, and machines with Windows.

use cloudprovider::{
    CloudProvider as _, ErrorKind,
    machines::{AuxiliaryObject, Objects, Record},
};
use serde_json::{Value, json};

use crate::{
    controller::*,
    support::*,
    take_over::{BIOS_UUID, VM_UID, kind},
};

const TEMPLATE: &str = "{{ trunc 4 .machine.name }}-{{ .machine.name | trunc -5 }}";

/// An object of the Machine `pool-7f9c8-<end>`, called otherwise.
fn object(vcsim: &test_env::Vcsim, number: usize, end: &str, more: &Value) -> Object {
    let spec = merged(json!({"naming": {"template": TEMPLATE}}), more);
    let mut object = Object::new(vcsim, number, &spec);
    object.request.machine_name = format!("pool-7f9c8-{end}");
    object
}

/// The names of the `VSphereVM`s that the last step wanted.
fn wanted(object: &Object) -> Vec<&str> {
    let all = object.record.wanted().iter();
    all.filter(|one| one.kind.kind == "VSphereVM").map(|one| one.name.as_str()).collect()
}

#[tokio::test]
async fn a_machine_has_the_name_that_its_template_gives() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut first = object(&vcsim, 1, "abcde", &json!({}));
    controller.make(&mut first).await;
    assert_eq!(names(&vcsim), [machine(0), "pool-abcde".to_owned()]);
    assert_eq!(wanted(&first), ["pool-abcde"]);
    assert_eq!(metadata(&vcsim, "pool-abcde")["local-hostname"], "pool-abcde");

    // another Machine whose template gives the same name
    let mut second = object(&vcsim, 2, "0-abcde", &json!({}));
    let error = controller.step(&mut second).await.expect_err("the name is taken");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let words = error.report();
    assert!(words.contains("virtual machine \"pool-abcde\"") && words.contains("another object"), "{words}");
    assert!(!words.contains("worker-1"), "{words}");
    assert_eq!(wanted(&second), [""; 0]);
    // in another folder only its VSphereVM is in the way
    let other = AuxiliaryObject::new("pool-abcde").in_namespace("default").with_owners(["u-9".to_owned()]);
    second.request.objects = Objects::of([(kind(&running), other)]);
    vcsim.reset_counts().expect("reset");
    let error = controller.step(&mut second).await.expect_err("the name is taken");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.report().contains("VSphereVM default/pool-abcde exists"), "{}", error.report());
    assert_eq!(calls(&vcsim), [].into());
    running.stop().await;

    // a process that knows nothing, and a status that was lost
    let running = started(&vcsim).await;
    vcsim.reset_counts().expect("reset");
    first.record = Record::default();
    first.request.is_provisioned = false;
    let mut controller = Controller::new(&running);
    controller.make(&mut first).await;
    let made = calls(&vcsim);
    assert!(
        !made.contains_key("soap:CloneVM_Task") && !made.contains_key("soap:ReconfigVM_Task"),
        "{made:?}"
    );
    assert_eq!(wanted(&first), ["pool-abcde"]);
    controller.delete(&mut first).await;
    assert_eq!(names(&vcsim), [machine(0)]);
    running.stop().await;
}

#[tokio::test]
async fn a_template_that_gives_no_name_is_told_and_nothing_is_made() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    vcsim.reset_counts().expect("reset");
    for template in ["{{ .machine.nam }}", "{{", "-{{ .machine.name }}"] {
        let mut object = object(&vcsim, 1, "abcde", &json!({"naming": {"template": template}}));
        let error = controller.step(&mut object).await.expect_err(template);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{template}");
        assert!(error.report().starts_with("spec.naming.template: "), "{}", error.report());
        assert_eq!(wanted(&object), [""; 0], "{template}");
        controller.delete(&mut object).await;
    }
    assert_eq!(names(&vcsim), [machine(0)]);
    running.stop().await;
}

#[tokio::test]
async fn a_machine_with_windows_has_a_short_name() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    let running = started(&vcsim).await;
    let mut controller = Controller::new(&running);
    let mut object = object(&vcsim, 1, "abcde", &json!({"os": "Windows", "naming": {}}));
    object.request.mark.machine = Some("windows-pool-7f9c8-abcde".to_owned());
    controller.make(&mut object).await;
    assert_eq!(names(&vcsim), [machine(0), "windows-p-abcde".to_owned()]);
    assert_eq!(metadata(&vcsim, "windows-p-abcde")["local-hostname"], "windows-p-abcde");
    controller.delete(&mut object).await;
    running.stop().await;
}

#[tokio::test]
async fn a_machine_of_capv_is_taken_over_under_its_name() {
    let Some(vcsim) = simulator(&factory_options()) else { return };
    vcsim.act(&machine(0), "clone", "pool-abcde").expect("a clone");
    vcsim.set_guest("pool-abcde", json!({"uuid": BIOS_UUID, "instanceUuid": VM_UID})).expect("its UUIDs");
    let running = started(&vcsim).await;
    let mut object = object(&vcsim, 1, "abcde", &json!({}));
    let owner = object.request.object_uid.clone();
    let vm = AuxiliaryObject::new("pool-abcde").in_namespace("default").with_uid(VM_UID).with_owners([owner]);
    let spec = json!({"network": object.request.spec["network"].clone()});
    object.request.objects = Objects::of([(kind(&running), vm.with_spec(spec))]);
    let part = running.provider.machines().expect("machines");
    let uid = part.identify_machine(&object.request).await.expect("an identity").expect("it can be told");
    assert_eq!(uid, VM_UID);
    object.request.mark.uid = uid;
    let mut controller = Controller::new(&running);
    controller.make(&mut object).await;
    assert_eq!(wanted(&object), ["pool-abcde"]);
    assert_eq!(metadata(&vcsim, "pool-abcde")["local-hostname"], "pool-abcde");
    assert_eq!(names(&vcsim), [machine(0), "pool-abcde".to_owned()]);
    controller.delete(&mut object).await;
    running.stop().await;
}
