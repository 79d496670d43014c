use cloudprovider::{
    ErrorKind, Instance, PowerState, ProviderId,
    machines::{PresentMachine, Wait},
};

use super::*;

fn machine(more: Value) -> VSphereMachineSpec {
    let mut spec = json!({
        "template": "ubuntu", "network": {"devices": [{"networkName": "VM Network", "dhcp4": true}]},
        "powerOffMode": "trySoft",
    });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    serde_json::from_value(spec).expect("a spec")
}

fn cluster() -> VSphereClusterSpec {
    serde_json::from_value(json!({"server": "vc.example.org", "thumbprint": "AA:BB"})).expect("a spec")
}

#[test]
fn the_spec_is_that_of_the_machine_and_then_that_of_the_cluster() {
    let spec = spec_of(&machine(json!({})), Some(&cluster()), None, None);
    assert_eq!(spec["template"], "ubuntu");
    assert_eq!((&spec["server"], &spec["thumbprint"]), (&json!("vc.example.org"), &json!("AA:BB")));
    assert_eq!(spec["powerOffMode"], "trySoft");
    assert_eq!(spec["network"]["devices"][0]["networkName"], "VM Network");
    assert!(spec.get("biosUUID").is_none(), "{spec}");
    let own = machine(json!({"server": "other.example.org"}));
    assert_eq!(spec_of(&own, Some(&cluster()), None, None)["server"], "other.example.org");
    assert!(spec_of(&machine(json!({})), None, None, None).get("server").is_none());
}

#[test]
fn of_one_that_is_there_only_what_may_change_is_wanted() {
    let existing = AuxiliaryObject::new("one").with_spec(json!({"biosUUID": "ABC", "template": "older"}));
    let spec = spec_of(&machine(json!({})), Some(&cluster()), None, Some(&existing));
    assert_eq!(spec, json!({"thumbprint": "AA:BB", "powerOffMode": "trySoft"}));
}

#[test]
fn what_the_machine_does_not_say_any_more_goes() {
    let existing = AuxiliaryObject::new("one").with_spec(json!({
        "biosUUID": "ABC", "powerOffMode": "trySoft", "guestSoftPowerOffTimeoutSeconds": 300, "thumbprint": "AA:BB",
    }));
    let spec = |machine: &VSphereMachineSpec, cluster: Option<&VSphereClusterSpec>| {
        spec_of(machine, cluster, None, Some(&existing))
    };
    let hard = machine(json!({"powerOffMode": "hard"}));
    let expected =
        json!({"powerOffMode": "hard", "guestSoftPowerOffTimeoutSeconds": null, "thumbprint": "AA:BB"});
    assert_eq!(spec(&hard, Some(&cluster())), expected);
    let silent = machine(json!({"powerOffMode": null}));
    assert_eq!(spec(&silent, Some(&cluster())), expected, "the API server sets a default");
    let without = serde_json::from_value(json!({"server": "vc.example.org"})).expect("a spec");
    assert_eq!(spec(&hard, Some(&without))["thumbprint"], Value::Null);
    assert!(spec(&hard, None).get("thumbprint").is_none(), "nothing is known of the cluster");
}

#[test]
fn what_was_seen_before_stays_unless_the_machine_is_lost() {
    let before = json!({
        "ready": true, "vmRef": "vm-1", "host": "h1", "addresses": ["192.0.2.1"], "moduleUUID": "m",
        "network": [{"macAddr": "00:50:56:00:00:01"}], "snapshot": "s1", "retryAfter": "2026-01-01T00:00:00Z",
    });
    let existing = AuxiliaryObject::new("one").with_status(before.clone());
    let after = |answer: Result<MachineReport>| {
        let told = Readiness::of_step(&answer);
        let status = status_of(&VSphereMachineStatus::default(), &told, None, Some(&existing));
        let all = status.as_object().expect("an object").iter().filter(|(_, value)| !value.is_null());
        Value::Object(all.map(|(field, value)| (field.clone(), value.clone())).collect())
    };
    let mut expected = before;
    expected["ready"] = json!(false);
    for field in ["snapshot", "retryAfter"] {
        expected.as_object_mut().expect("an object").remove(field);
    }
    assert_eq!(after(Err(Error::new(ErrorKind::Unavailable, "vCenter is away"))), expected);
    assert_eq!(after(Ok(MachineReport::lost("it is gone"))), json!({"ready": false, "moduleUUID": "m"}));
}

#[test]
fn the_conditions_say_what_the_step_saw() {
    let instance = || Instance::new(ProviderId::new("vsphere", "/1"), PowerState::Running);
    let present = || PresentMachine::new(instance());
    for (answer, status, reason) in [
        (Ok(MachineReport::from(present())), ConditionStatus::True, "Provisioned"),
        (
            Ok(present().with_wait(Wait::address("no address yet")).into()),
            ConditionStatus::False,
            "WaitingForIPAllocation",
        ),
        (
            Ok(MachineReport::Creating(Wait::address("no claim has one").with_reason(WAITING_FOR_CLAIMS))),
            ConditionStatus::False,
            "WaitingForIPAddress",
        ),
        (
            Ok(MachineReport::Creating(Wait::task("clone").with_reason("WaitingForClone"))),
            ConditionStatus::False,
            "WaitingForClone",
        ),
        (Ok(MachineReport::lost("it is gone")), ConditionStatus::False, "NotFoundByBIOSUUID"),
        (Err(Error::new(ErrorKind::NotFound, "no template")), ConditionStatus::False, "NotProvisioned"),
        (
            Err(Error::new(ErrorKind::Unavailable, "the clone has failed").with_source(TaskFault::default())),
            ConditionStatus::False,
            "TaskFailed",
        ),
    ] {
        let told = Readiness::of_step(&answer);
        let all = conditions(&MachineRecord::default(), &told, Observed::default(), None);
        assert_eq!(all.iter().map(|one| &*one.condition_type).collect::<Vec<_>>(), [READY, PROVISIONED]);
        for condition in all.into_iter().chain([provisioned(&answer)]) {
            assert_eq!((condition.status, &*condition.reason), (status, reason), "{answer:?}");
            assert_eq!(condition.message, told.message);
        }
    }
}

#[test]
fn what_a_step_has_not_seen_stays_as_it_was_told() {
    let before =
        |name: &str, reason: &str| json!({"type": name, "status": "False", "reason": reason, "message": "m"});
    let existing = AuxiliaryObject::new("one").with_status(json!({"conditions": [
        before("VCenterAvailable", "VCenterUnreachable"), before("GuestSoftPowerOffSucceeded", "InProgress"),
        before("Paused", "NotPaused"), before("PCIDevicesDetached", "NotFound"),
    ]}));
    let reasons = |seen: Observed| -> Vec<(String, String)> {
        let told = Readiness::not_ready("Deleting", "");
        let all = conditions(&MachineRecord::default(), &told, seen, Some(&existing));
        let own = all.into_iter().filter(|one| one.reason != "Deleting");
        own.map(|one| (one.condition_type.into_owned(), one.reason.into_owned())).collect()
    };
    let two = |vcenter: &str, guest: &str| {
        [(VCENTER_AVAILABLE, vcenter), (GUEST_SOFT_POWER_OFF, guest)]
            .map(|(name, reason)| (name.into(), reason.into()))
    };
    assert_eq!(reasons(Observed::default()), two("VCenterUnreachable", "InProgress"));
    let guest = Condition::new(GUEST_SOFT_POWER_OFF, ConditionStatus::True, "Succeeded");
    let seen = Observed { guest: None, vcenter: Some(Ok(())), soft_power_off: Some(guest) };
    assert_eq!(reasons(seen), two("Available", "Succeeded"));
    // This is what a step sees that does not know any more that the machine was forced.
    let forced = AuxiliaryObject::new("one")
        .with_status(json!({"conditions": [before("GuestSoftPowerOffSucceeded", "Failed")]}));
    let guest = Condition::new(GUEST_SOFT_POWER_OFF, ConditionStatus::True, "Succeeded");
    let seen = Observed { soft_power_off: Some(guest), ..Observed::default() };
    let told = Readiness::not_ready("Deleting", "");
    let all = conditions(&MachineRecord::default(), &told, seen, Some(&forced));
    assert_eq!(all.last().map(|one| (one.status, &*one.reason)), Some((ConditionStatus::False, "Failed")));
    let away = available::<()>(&Err(Error::new(ErrorKind::Unavailable, "connection refused")));
    assert_eq!((&*away.reason, &*away.message), ("VCenterUnreachable", "connection refused"));
}

#[test]
fn devices_are_written_when_they_differ_in_something() {
    let vm = |devices: Value| AuxiliaryObject::new("one").with_spec(json!({"network": {"devices": devices}}));
    let wanted = |devices: Value| -> NetworkSpec {
        serde_json::from_value(json!({ "devices": devices })).expect("a network")
    };
    let plain = json!([{"networkName": "n", "dhcp4": true}]);
    // as another program writes what says nothing
    let wordy = json!([{"networkName": "n", "dhcp4": true, "dhcp6": false, "mtu": 0, "nameservers": [], "gateway4": ""}]);
    assert_eq!(changed_devices(&vm(wordy), &wanted(plain.clone())), None);
    let other = json!([{"networkName": "m", "dhcp4": true}]);
    assert_eq!(changed_devices(&vm(plain.clone()), &wanted(other.clone())), Some(other));
    // a field that is not wanted any more, also in an object inside
    let told = json!([{
        "networkName": "n", "dhcp4": true, "gateway4": "192.0.2.1", "dhcp4Overrides": {"routeMetric": 1, "useDNS": true},
    }]);
    let overrides = json!([{"networkName": "n", "dhcp4": true, "dhcp4Overrides": {"routeMetric": 1}}]);
    let expected = json!([{
        "networkName": "n", "dhcp4": true, "gateway4": null, "dhcp4Overrides": {"routeMetric": 1, "useDNS": null},
    }]);
    assert_eq!(changed_devices(&vm(told), &wanted(overrides)), Some(expected));
    // the guest's own default is true
    let without_dns = json!([{"networkName": "n", "dhcp4": true, "dhcp4Overrides": {"useDNS": false}}]);
    assert_eq!(changed_devices(&vm(plain.clone()), &wanted(without_dns.clone())), Some(without_dns.clone()));
    assert_eq!(changed_devices(&vm(without_dns.clone()), &wanted(without_dns.clone())), None);
    let back = json!([{"networkName": "n", "dhcp4": true, "dhcp4Overrides": null}]);
    assert_eq!(changed_devices(&vm(without_dns), &wanted(plain.clone())), Some(back));
    let two = json!([{"networkName": "n", "dhcp4": true}, {"networkName": "o"}]);
    assert_eq!(changed_devices(&vm(plain.clone()), &wanted(two.clone())), Some(two.clone()));
    assert_eq!(changed_devices(&vm(two), &wanted(plain.clone())), Some(plain));
}
