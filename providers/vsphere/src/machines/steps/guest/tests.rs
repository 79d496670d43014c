use base64::{Engine as _, engine::general_purpose::STANDARD};
use cloudprovider::machines::{AuxiliaryObject, ClusterContext, Mark, Objects};
use serde_json::{Value as Json, json};

use super::*;
use crate::{
    machines::{
        kinds::VM_KIND,
        spec::{VSphereClusterSpec, VSphereMachineSpec},
        steps::configuration::StoredMetadata,
    },
    moref::MoRef,
};

const MAC: [u8; 6] = [0, 0x50, 0x56, 1, 2, 3];

fn network(device: &Json) -> NetworkSpec {
    serde_json::from_value(json!({"devices": [device]})).expect("a network")
}

fn device(more: &Json) -> Json {
    let mut device = json!({"networkName": "VM Network", "dhcp4": true});
    if let (Some(device), Some(more)) = (device.as_object_mut(), more.as_object()) {
        device.extend(more.clone());
    }
    device
}

/// A request whose `VSphereVM`, if there is one, has this spec.
fn request(of: &Json, vm: Option<Json>) -> Request {
    let spec = VSphereMachineSpec {
        clone: serde_json::from_value(json!({"template": "t", "network": {"devices": [of]}}))
            .expect("a spec"),
        ..VSphereMachineSpec::default()
    };
    let mark = Mark::machine("u-1", "default", "prod", "worker-1");
    let request =
        Request::new(mark, spec, ClusterContext::new(VSphereClusterSpec::default())).with_object_uid("u-1");
    let vm = vm.map(|spec| {
        let vm = AuxiliaryObject::new("worker-1").in_namespace("default").with_owners(["u-1".to_owned()]);
        (VM_KIND, vm.with_spec(spec))
    });
    request.with_objects(Objects::of(vm))
}

fn vm(of: &Json) -> Json {
    json!({"network": {"devices": [of]}})
}

#[test]
fn an_edit_is_due_while_the_guest_may_have_something_else() {
    let (before, after) = (device(&json!({})), device(&json!({"nameservers": ["192.0.2.53"]})));
    let shape_of = |device: &Json| shape(&network(device));
    assert_ne!(shape_of(&before), shape_of(&after));
    let edit = |request: &Request, known: Option<u64>| Edit::of(request, &Addresses::NoPools, known, None);
    let (due, passed) = (Edit::Due(shape_of(&after)), Edit::Passed(shape_of(&after)));
    assert_eq!(edit(&request(&after, Some(vm(&before))), None), due);
    assert_eq!(edit(&request(&after, Some(vm(&after))), None), passed);
    // what nobody reads from it is as unknown as what it does not tell
    assert_eq!(edit(&request(&after, Some(json!({}))), None), Edit::Ignored);
    // before there is one, this process knows what it has made
    assert_eq!(edit(&request(&after, None), Some(shape_of(&before))), due);
    assert_eq!(edit(&request(&after, None), Some(shape_of(&after))), passed);
    assert_eq!(edit(&request(&after, None), None), due);
    assert_eq!(edit(&request(&after, None).provisioned(true), None), Edit::Ignored);
    // what was written last has to be taken back, unless it is this
    let again =
        |written| Edit::of(&request(&after, Some(vm(&after))), &Addresses::NoPools, None, Some(written));
    assert_eq!((again(shape_of(&before)), again(shape_of(&after))), (due, passed));
    // what a guest would lose
    let addresses = Addresses::Missing("a claim".to_owned());
    assert_eq!(Edit::of(&request(&after, Some(vm(&before))), &addresses, None, None), Edit::Ignored);
    let in_zone = request(&after, Some(vm(&before))).with_failure_domain("a".to_owned());
    assert_eq!(edit(&in_zone, None), Edit::Ignored);
}

fn found(metadata: Option<(String, &str)>) -> Configuration {
    Configuration {
        vm: VirtualMachine::new(MoRef::new("VirtualMachine", "vm-1"), "renamed"),
        change_version: None,
        has_mark: true,
        metadata: metadata.map(|(text, encoding)| StoredMetadata { text, encoding: encoding.to_owned() }),
        macs: vec![MAC],
    }
}

/// The texts of the options, decoded.
fn texts(options: &[OptionValue]) -> Vec<String> {
    let text = |option: &OptionValue| match &option.value {
        Value::AnyString(text) => text.clone(),
        other => format!("{other:?}"),
    };
    options.iter().map(text).collect()
}

#[test]
fn metadata_are_written_once_and_keep_their_instance_id() {
    let network = network(&device(&json!({"ipAddrs": ["192.0.2.10/24"]})));
    // as Cluster API Provider vSphere writes them
    let yaml = "\ninstance-id: \"worker-1\"\nlocal-hostname: \"worker-1\"\nnetwork:\n  version: 2\n";
    let stored = found(Some((STANDARD.encode(yaml), "base64")));
    let options = renewed(&stored, "worker-9", &network).expect("others");
    let written = texts(&options);
    let json: Json =
        serde_json::from_slice(&STANDARD.decode(&written[0]).expect("base64")).expect("JSON is YAML too");
    assert_eq!((&json["instance-id"], &json["local-hostname"]), (&json!("worker-1"), &json!("worker-1")));
    let ethernet = &json["network"]["ethernets"]["id0"];
    assert_eq!(ethernet["match"]["macaddress"], "00:50:56:01:02:03", "that of the card");
    assert_eq!(ethernet["addresses"], json!(["192.0.2.10/24"]));
    assert!(renewed(&found(Some((written[0].clone(), "base64"))), "worker-9", &network).is_none());
    // nothing is kept of what is not there, or cannot be read
    for metadata in [None, Some(("%".to_owned(), "base64")), Some((STANDARD.encode("a: b"), "base64"))] {
        let options = renewed(&found(metadata), "worker-9", &network).expect("others");
        let text = STANDARD.decode(&texts(&options)[0]).expect("base64");
        assert!(String::from_utf8_lossy(&text).contains("\"instance-id\":\"worker-9\""));
    }
}
