use cloudprovider::{
    Error,
    machines::{AuxiliaryObject, ClusterContext, Mark, Objects},
};
use serde_json::json;

use super::*;
use crate::machines::{
    kinds::{CLAIM_KIND, VM_KIND},
    spec::{NetworkDeviceSpec, VSphereClusterSpec},
};

fn request(objects: Objects) -> Request {
    let spec = serde_json::from_value(json!({
        "template": "t",
        "network": {"devices": [{
            "networkName": "n",
            "addressesFromPools": [{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}],
        }]},
    }));
    let mark = Mark::machine("u-1", "default", "prod", "worker-1");
    let cluster = ClusterContext::new(VSphereClusterSpec::default());
    Request::new(mark, spec.expect("a spec"), cluster).with_object_uid("u-1").with_objects(objects)
}

/// A claim of the machine, and one more of its `VSphereVM`.
fn claims() -> Objects {
    let claim = |name: &str, owner: &str| {
        let spec = json!({"poolRef": {"name": "as it was"}});
        let claim = AuxiliaryObject::new(name).in_namespace("default").with_owners([owner.to_owned()]);
        (CLAIM_KIND, claim.with_spec(spec))
    };
    let vm = AuxiliaryObject::new("worker-1").in_namespace("default").with_uid("vm-1");
    Objects::of([
        claim("worker-1-0-0", "u-1"),
        claim("older-0-0", "vm-1"),
        claim("of-others-0-0", "u-2"),
        (VM_KIND, vm.with_owners(["u-1".to_owned()])),
    ])
}

fn wanted(
    request: &Request,
    answer: &Result<MachineReport>,
    is_there: bool,
) -> Vec<(String, serde_json::Value)> {
    let mut record = MachineRecord::default();
    want(request, &mut record, answer, is_there);
    record.wanted().iter().map(|one| (one.name.clone(), one.spec["poolRef"]["name"].clone())).collect()
}

fn told(record: &MachineRecord) -> Option<(ConditionStatus, String)> {
    let condition = record.conditions.iter().find(|one| one.condition_type == FULFILLED)?;
    Some((condition.status, condition.reason.clone().into_owned()))
}

#[test]
fn claims_are_made_for_a_new_machine_and_never_changed() {
    let waits = || Ok(MachineReport::Creating(Wait::task("it waits")));
    let fails = || Err(Error::new(ErrorKind::Unavailable, "away"));
    let new = request(Objects::default());
    assert_eq!(wanted(&new, &waits(), false), [("worker-1-0-0".to_owned(), json!("p"))]);
    assert!(wanted(&new, &waits(), true).is_empty(), "the guest would not have the address");
    let is_there = request(claims());
    let as_they_were = ["worker-1-0-0", "older-0-0"].map(|name| (name.to_owned(), json!("as it was")));
    for has_vm in [false, true] {
        assert_eq!(wanted(&is_there, &waits(), has_vm), as_they_were);
    }
    for answer in [fails(), Ok(MachineReport::lost("gone"))] {
        assert!(wanted(&new, &answer, false).is_empty(), "{answer:?}");
    }
}

#[test]
fn a_condition_says_what_the_claims_have() {
    let mut record = MachineRecord::default();
    let found = addresses(&request(Objects::default()), &mut record, false).expect("an answer");
    assert_eq!(told(&record), Some((ConditionStatus::False, "WaitingForIPAddress".to_owned())));
    let waits = wait(&request(claims()), &found).expect("it waits");
    assert_eq!(waits.reason, WAITING_FOR_CLAIMS);
    assert!(
        waits.message.contains("IPAddressClaim worker-1-0-0 of InClusterIPPool \"p\""),
        "{}",
        waits.message
    );

    let mut without = request(claims());
    without.spec.clone.network.devices.clear();
    assert_eq!(addresses(&without, &mut record, false).expect("an answer"), Addresses::NoPools);
    assert_eq!(told(&record), None);
    without.spec.clone.network.devices.push(NetworkDeviceSpec::default());
    let waits = wait(&without, &Addresses::NoPools).expect("it waits");
    assert_eq!(waits.reason, WAITING_FOR_SPEC);
}

#[test]
fn a_machine_that_is_complete_needs_its_claims_no_more() {
    let mut request = request(Objects::default());
    request.spec.clone.network.devices[0].addresses_from_pools[0].api_group = None;
    let mut record = MachineRecord::default();
    assert!(addresses(&request, &mut record, false).is_err());
    assert_eq!(told(&record), Some((ConditionStatus::False, "NotFulfilled".to_owned())));
    assert!(addresses(&request.provisioned(true), &mut record, true).is_ok());
}
