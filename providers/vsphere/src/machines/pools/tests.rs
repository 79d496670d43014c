use serde_json::json;

use super::*;

const NAMESPACE: &str = "default";
const MACHINE: &str = "u-1";

fn pool(name: &str) -> Value {
    json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": name})
}

fn network(devices: &Value) -> NetworkSpec {
    serde_json::from_value(json!({ "devices": devices })).expect("a network")
}

fn one_pool() -> NetworkSpec {
    network(&json!([{"networkName": "n", "addressesFromPools": [pool("v4")]}]))
}

/// A claim of the machine, whose own UID is that of its name.
fn claim(name: &str, status: Value) -> (cloudprovider::machines::AuxiliaryKind, AuxiliaryObject) {
    let of = if name.ends_with("-1") { "v6" } else { "v4" };
    let claim = AuxiliaryObject::new(name)
        .in_namespace(NAMESPACE)
        .with_uid(format!("uid-of-{name}"))
        .with_owners([MACHINE.to_owned()])
        .with_spec(json!({"poolRef": pool(of)}))
        .with_status(status);
    (CLAIM_KIND, claim)
}

fn fulfilled(name: &str) -> (cloudprovider::machines::AuxiliaryKind, AuxiliaryObject) {
    claim(name, json!({"addressRef": {"name": name}}))
}

fn address(name: &str, spec: Value) -> (cloudprovider::machines::AuxiliaryKind, AuxiliaryObject) {
    let mut all = json!({"claimRef": {"name": name}, "prefix": 24});
    if let (Some(all), Value::Object(spec)) = (all.as_object_mut(), spec) {
        all.extend(spec);
    }
    (ADDRESS_KIND, AuxiliaryObject::new(name).in_namespace(NAMESPACE).with_spec(all))
}

fn look(
    network: &NetworkSpec,
    objects: impl IntoIterator<Item = (cloudprovider::machines::AuxiliaryKind, AuxiliaryObject)>,
) -> Result<Addresses> {
    look_for(network, objects, false)
}

fn look_for(
    network: &NetworkSpec,
    objects: impl IntoIterator<Item = (cloudprovider::machines::AuxiliaryKind, AuxiliaryObject)>,
    is_there: bool,
) -> Result<Addresses> {
    let uids = [MACHINE.to_owned(), "vm-1".to_owned()];
    let owner = Owner { namespace: NAMESPACE, name: "worker-1", uids: &uids, is_there };
    addresses(&owner, network, &Objects::of(objects))
}

fn missing(
    network: &NetworkSpec,
    objects: Vec<(cloudprovider::machines::AuxiliaryKind, AuxiliaryObject)>,
) -> String {
    match look(network, objects) {
        Ok(Addresses::Missing(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn wrong(network: &NetworkSpec, address_spec: Value) -> Error {
    let objects = [fulfilled("worker-1-0-0"), address("worker-1-0-0", address_spec)];
    look(network, objects).expect_err("it cannot be used")
}

#[test]
fn each_device_has_a_claim_for_each_of_its_pools() {
    let network = network(&json!([
        {"networkName": "a", "addressesFromPools": [pool("v4"), pool("v6")]},
        {"networkName": "b", "dhcp4": true},
        {"networkName": "c", "addressesFromPools": [pool("storage")]},
    ]));
    let all = claims("worker-1", &network);
    let names: Vec<_> = all.iter().map(|claim| &*claim.name).collect();
    assert_eq!(names, ["worker-1-0-0", "worker-1-0-1", "worker-1-2-0"]);
    let wanted = all[2].wanted().expect("it has a group");
    assert_eq!((wanted.kind, &*wanted.name), (CLAIM_KIND, "worker-1-2-0"));
    assert_eq!(wanted.spec, json!({"poolRef": pool("storage")}));
    assert_eq!(wanted.status, None, "it is that of the provider of addresses");
}

#[test]
fn a_machine_without_pools_reads_nothing() {
    let network = network(&json!([{"networkName": "a", "dhcp4": true}]));
    assert_eq!(look(&network, []).expect("an answer"), Addresses::NoPools);
}

#[test]
fn the_addresses_are_those_of_the_device() {
    let network = network(&json!([
        {"networkName": "a", "ipAddrs": ["198.51.100.9/24"], "addressesFromPools": [pool("v4"), pool("v6")]},
    ]));
    let objects = [
        fulfilled("worker-1-0-0"),
        fulfilled("worker-1-0-1"),
        address("worker-1-0-0", json!({"address": "192.0.2.10", "gateway": "192.0.2.1"})),
        address("worker-1-0-1", json!({"address": "2001:db8::10", "prefix": 64})),
    ];
    let Ok(Addresses::All(given)) = look(&network, objects) else { panic!("all are there") };
    let device = &given.devices[0];
    assert_eq!(device.ip_addrs, ["198.51.100.9/24", "192.0.2.10/24", "2001:db8::10/64"]);
    assert_eq!((device.gateway4.as_deref(), device.gateway6.as_deref()), (Some("192.0.2.1"), None));
}

#[test]
fn what_is_missing_is_named_with_its_pool() {
    let not_ready = json!({"conditions": [
        {"type": "Ready", "status": "False", "reason": "PoolExhausted", "message": "no address is free"},
    ]});
    for (objects, part) in [
        (vec![], "is being made"),
        (vec![claim("worker-1-0-0", Value::Null)], "has no address yet"),
        (vec![claim("worker-1-0-0", not_ready)], "has no address yet: PoolExhausted: no address is free"),
        (vec![fulfilled("worker-1-0-0")], "names the IPAddress \"worker-1-0-0\", which is not there"),
    ] {
        let words = missing(&one_pool(), objects);
        assert_eq!(words, format!("IPAddressClaim worker-1-0-0 of InClusterIPPool \"v4\" {part}"));
    }
    let two = network(&json!([{"networkName": "a", "addressesFromPools": [pool("v4"), pool("v6")]}]));
    assert_eq!(missing(&two, vec![]).matches("IPAddressClaim worker-1-0-").count(), 2);
}

#[test]
fn an_address_that_cannot_be_used_is_named() {
    let fixed = network(&json!([
        {"networkName": "a", "gateway4": "192.0.2.254", "ipAddrs": ["192.0.2.9/24"], "addressesFromPools": [pool("v4")]},
    ]));
    for (network, spec, words) in [
        (one_pool(), json!({"address": "192.0.2"}), "IPAddress \"worker-1-0-0\", spec.address: \"192.0.2\""),
        (one_pool(), json!({"address": "192.0.2.10", "prefix": 33}), "spec.prefix: 33 cannot be used"),
        (one_pool(), json!({"address": "192.0.2.10", "gateway": "2001:db8::1"}), "spec.gateway: "),
        (fixed.clone(), json!({"address": "192.0.2.9"}), "gives 192.0.2.9, which the device has already"),
        (
            fixed,
            json!({"address": "192.0.2.10", "gateway": "192.0.2.1"}),
            "spec.network.devices[0].gateway4: 192.0.2.254, and IPAddress \"worker-1-0-0\" has the gateway 192.0.2.1",
        ),
    ] {
        let error = wrong(&network, spec);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.report().contains(words), "{}", error.report());
    }
}

#[test]
fn an_address_of_another_claim_is_not_taken() {
    let error = wrong(&one_pool(), json!({"address": "192.0.2.10", "claimRef": {"name": "worker-2-0-0"}}));
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.report().contains("which is of the claim \"worker-2-0-0\""), "{}", error.report());
}

#[test]
fn a_pool_without_a_group_is_refused() {
    let network =
        network(&json!([{"networkName": "a", "addressesFromPools": [{"kind": "Pool", "name": "p"}]}]));
    let error = look(&network, []).expect_err("no group");
    let words = error.report();
    assert!(words.starts_with("spec.network.devices[0].addressesFromPools[0]: apiGroup: missing"), "{words}");
    assert_eq!(claims("worker-1", &network)[0].wanted(), None);
}

fn address_of(name: &str) -> (cloudprovider::machines::AuxiliaryKind, AuxiliaryObject) {
    address(name, json!({"address": "192.0.2.10"}))
}

#[test]
fn a_claim_that_goes_counts_only_for_a_machine_that_is_there() {
    let (kind, going) = fulfilled("worker-1-0-0");
    let objects = || vec![(kind, going.clone().deleting(true)), address_of("worker-1-0-0")];
    assert!(missing(&one_pool(), objects()).contains("is being deleted"));
    let Ok(Addresses::Going(given, why)) = look_for(&one_pool(), objects(), true) else {
        panic!("it counts")
    };
    assert_eq!(given.devices[0].ip_addrs, ["192.0.2.10/24"]);
    assert!(why.contains("IPAddressClaim worker-1-0-0") && why.contains("it is held"), "{why}");
}

#[test]
fn a_claim_of_somebody_else_is_not_used() {
    let (kind, claim) = fulfilled("worker-1-0-0");
    let with_owners = |owners: &[&str]| {
        let claim = claim.clone().with_owners(owners.iter().map(|uid| (*uid).to_owned()));
        look(&one_pool(), [(kind, claim), address_of("worker-1-0-0")])
    };
    for owners in [&[][..], &["u-2"]] {
        let error = with_owners(owners).expect_err("somebody else's");
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.report().contains("is somebody else's"), "{}", error.report());
    }
    assert!(matches!(with_owners(&["vm-1"]), Ok(Addresses::All(_))), "that of its VSphereVM");
}

#[test]
fn an_address_of_an_earlier_claim_is_not_used() {
    let (kind, address) = address_of("worker-1-0-0");
    for (address, part) in [
        (address.clone().with_owners(["uid-of-another".to_owned()]), "of an earlier claim"),
        (address.clone().deleting(true), "which is being deleted"),
    ] {
        let words = missing(&one_pool(), vec![fulfilled("worker-1-0-0"), (kind, address)]);
        assert!(words.contains(part), "{words}");
    }
    let own = address.with_owners(["uid-of-worker-1-0-0".to_owned()]);
    assert!(matches!(look(&one_pool(), [fulfilled("worker-1-0-0"), (kind, own)]), Ok(Addresses::All(_))));
}

#[test]
fn a_claim_of_another_pool_is_not_used_for_a_new_machine() {
    let other = network(&json!([{"networkName": "a", "addressesFromPools": [pool("other")]}]));
    let objects = || [fulfilled("worker-1-0-0"), address_of("worker-1-0-0")];
    let error = look(&other, objects()).expect_err("another pool");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.report().contains("claims cannot be changed"), "{}", error.report());
    assert!(matches!(look_for(&other, objects(), true), Ok(Addresses::All(_))), "it has that address");
}
