use serde_json::from_value;

use super::*;
use crate::load_balancers::harvester::testing::{UID, service, settings};

fn demand() -> Demand {
    Demand::of("guest", &service(), &settings()).expect("possible")
}

/// The object that was created for this demand, with these changes.
fn stored(demand: &Demand, changes: Value) -> LoadBalancer {
    let mut object = object("guest-shop-web-1", "vms", demand);
    object["metadata"]["resourceVersion"] = json!("7");
    json_patch(&mut object, &changes);
    from_value(object).expect("an object")
}

/// A merge patch, as the API server applies it.
fn json_patch(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return object.clone_from(patch) };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in patch {
        let fields = object.as_object_mut().expect("an object");
        if value.is_null() {
            fields.remove(key);
        } else {
            json_patch(fields.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn with_address(ip: &str) -> Value {
    json!({"status": {"allocatedAddress": {"ip": ip, "ipPool": "main"}}})
}

#[test]
fn an_object_is_created_once() {
    let demand = demand();
    assert_eq!(step(None, &demand).expect("a step"), Step::Create);
    for changes in [json!({}), with_address("192.0.2.1"), json!({"metadata": {"labels": {"more": "x"}}})] {
        assert_eq!(step(Some(&stored(&demand, changes)), &demand).expect("a step"), Step::Keep);
    }
}

#[test]
fn only_what_carries_the_mark_is_ours() {
    let demand = demand();
    for owner in [Value::Null, json!("another-uid")] {
        let found = stored(&demand, json!({"metadata": {"labels": {OWNER: owner}}}));
        assert!(!is_of(&found, UID));
        let error = step(Some(&found), &demand).expect_err("foreign");
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let words = error.to_string();
        assert!(
            words.contains("vms/guest-shop-web-1") && words.contains(&format!("{OWNER}={UID}")),
            "{words}"
        );
    }
}

#[test]
fn what_the_service_changes_is_changed_and_nothing_else() {
    let demand = demand();
    let found = stored(&demand, with_address("192.0.2.1"));
    let mut other = demand.clone();
    other.spec.listeners.pop();
    other.spec.health_check =
        Some(crate::load_balancers::harvester::object::HealthCheck { port: 30080, ..Default::default() });
    let Step::Change(patch) = step(Some(&found), &other).expect("a step") else { panic!("a change") };
    assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}));
    let changed: Vec<_> = patch["spec"].as_object().expect("fields").keys().collect();
    assert_eq!(changed, ["healthCheck", "listeners"]);
    // And back: a health check that is gone is removed.
    let mut object = serde_json::to_value(&found).expect("JSON");
    json_patch(&mut object, &patch);
    let found = from_value(object).expect("an object");
    assert_eq!(step(Some(&found), &other).expect("a step"), Step::Keep);
    let Step::Change(patch) = step(Some(&found), &demand).expect("a step") else { panic!("a change") };
    assert_eq!(patch["spec"]["healthCheck"], Value::Null);
}

#[test]
fn addresses_stay() {
    let demand = demand();
    let mut other = demand.clone();
    other.spec.ip_pool = Some("second".to_owned());
    other.annotations.insert("loadbalancer.harvesterhci.io/network".to_owned(), "default/vlan2".to_owned());
    let found = stored(&demand, with_address("192.0.2.1"));
    assert_eq!(step(Some(&found), &other).expect("a step"), Step::Keep, "it has an address");
    let found = stored(&demand, json!({}));
    let Step::Change(patch) = step(Some(&found), &other).expect("a step") else { panic!("a change") };
    assert_eq!(patch["spec"], json!({"ipPool": "second"}));
    assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}));
}

/// Harvester's webhook does so with every write. Writing them again would never end.
#[test]
fn what_the_webhook_overwrites_is_not_written_again() {
    let network = "loadbalancer.harvesterhci.io/network";
    let mut demand = demand();
    demand.annotations.insert(network.to_owned(), "default/vlan2".to_owned());
    assert_eq!(object("x", "vms", &demand)["metadata"]["annotations"][network], "default/vlan2");
    assert_eq!(overwritten(&stored(&demand, json!({})), &demand), None);
    let found = stored(&demand, json!({"metadata": {"annotations": {network: ""}}}));
    assert_eq!(step(Some(&found), &demand).expect("a step"), Step::Keep);
    assert_eq!(overwritten(&found, &demand).as_deref(), Some(&*format!("{network} is \"\"")));
}

#[test]
fn what_cannot_be_changed_is_refused() {
    let demand = demand();
    let dhcp = stored(&demand, json!({"spec": {"ipam": "dhcp"}}));
    assert_eq!(
        step(Some(&dhcp), &demand).expect("a step"),
        Step::Keep,
        "the default does not count any more"
    );
    let asked = Demand { asked_ipam: Some(crate::config::Ipam::Pool), ..demand.clone() };
    let error = step(Some(&dhcp), &asked).expect_err("refused");
    assert!(
        error.kind() == ErrorKind::Unsupported && error.to_string().contains("from dhcp to pool"),
        "{error}"
    );
    let machines = stored(&demand, json!({"spec": {"workloadType": "vm"}}));
    assert_eq!(step(Some(&machines), &demand).expect_err("refused").kind(), ErrorKind::Conflict);
    let wish =
        super::super::demand::AskedAddress { text: "192.0.2.9".to_owned(), place: "spec.loadBalancerIP" };
    let asked = Demand { asked_address: Some(wish), ..demand };
    assert_eq!(step(None, &asked).expect_err("refused").kind(), ErrorKind::Unsupported);
}

#[test]
fn what_is_being_deleted_has_to_be_gone_first() {
    let demand = demand();
    let found = stored(&demand, json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert_eq!(step(Some(&found), &demand).expect("a step"), Step::Wait);
}

#[test]
fn addresses_and_troubles_are_read() {
    let demand = demand();
    let address = |changes| allocated(&stored(&demand, changes)).map(|address| address.to_string());
    assert_eq!(address(with_address("192.0.2.1")).as_deref(), Some("192.0.2.1"));
    for none in [json!({}), with_address(""), with_address("soon"), with_address("0.0.0.0")] {
        assert_eq!(address(none), None);
    }
    let mut dhcp = with_address("0.0.0.0");
    dhcp["spec"] = json!({"ipam": "dhcp"});
    assert_eq!(address(dhcp).as_deref(), Some("0.0.0.0"));
    let condition = |status: &str, message: &str| {
        let condition = json!({"type": "Ready", "status": status, "message": message});
        trouble(&stored(&demand, json!({"status": {"conditions": [condition]}})))
    };
    assert_eq!(condition("False", "no matched IPPool\n").as_deref(), Some("no matched IPPool"));
    assert_eq!((condition("True", "x"), condition("False", "")), (None, None));
}

#[test]
fn people_see_the_address_in_harvester() {
    let demand = demand();
    let ip: IpAddr = "192.0.2.1".parse().expect("an IP");
    let patch = shown(&stored(&demand, with_address("192.0.2.1")), ip).expect("a patch");
    assert_eq!(patch, json!({"metadata": {"resourceVersion": "7"}, "status": {"address": "192.0.2.1"}}));
    let mut object = serde_json::to_value(stored(&demand, with_address("192.0.2.1"))).expect("JSON");
    json_patch(&mut object, &patch);
    assert_eq!(shown(&from_value(object).expect("an object"), ip), None);
}
