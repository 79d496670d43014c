use cloudprovider::{ErrorKind, NodeAddress};
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::cattle::inventory::{Inventory, KnownHost};

fn host(name: &str, ips: Result<Vec<IpAddr>>) -> KnownHost {
    let host = json!({"id": format!("1h-{name}"), "uuid": format!("uuid-of-{name}"), "hostname": name, "state": "active"});
    KnownHost { host: serde_json::from_value(host).expect("a host"), ips }
}

/// A Node whose kubelet says that it has the address of somebody else.
fn node(name: &str, provider_id: Option<&str>) -> NodeIdentity {
    NodeIdentity {
        name: name.to_owned(),
        provider_id: provider_id.map(str::to_owned),
        addresses: vec![NodeAddress::internal_ip("10.9.9.9"), NodeAddress::external_ip("192.0.2.9")],
        ..NodeIdentity::default()
    }
}

fn state(hosts: Vec<KnownHost>) -> State {
    State { inventory: Inventory::new(hosts), listed: Some(Instant::now()), ..State::default() }
}

fn unavailable() -> Error {
    Error::new(ErrorKind::Unavailable, "away")
}

#[test]
fn only_a_host_of_rancher_gives_an_address() {
    let ip: IpAddr = "10.0.0.1".parse().expect("an IP");
    let state = state(vec![host("node-1", Ok(vec![ip])), host("node-2", Ok(Vec::new()))]);
    let address = |name: &str, id: Option<&str>| address_of(&node(name, id), &state).expect("certain");
    assert_eq!(address("node-1", None), Some(ip));
    assert_eq!(address("renamed", Some("rancher://uuid-of-node-1")), Some(ip));
    for (name, id) in [
        ("node-2", None),
        ("stranger", None),
        ("node-1", Some("rancher://another-uuid")),
        ("node-1", Some("k3s://node-1")),
    ] {
        assert_eq!(address(name, id), None, "{name} {id:?}");
    }
}

#[test]
fn what_cannot_be_read_now_is_no_loss() {
    let mut state = state(vec![host("node-1", Err(unavailable()))]);
    assert!(address_of(&node("node-1", None), &state).is_err(), "its addresses could not be read");
    assert_eq!(address_of(&node("node-2", None), &state).expect("certain"), None);
    state.trouble = Some((unavailable(), Instant::now()));
    assert!(address_of(&node("node-2", None), &state).is_err(), "it may have come since");
    // Two hosts have the name.
    let twice = State {
        inventory: Inventory::new(vec![host("a.x", Ok(Vec::new())), host("a.y", Ok(Vec::new()))]),
        ..state
    };
    assert!(address_of(&node("a", None), &twice).is_err());
}

#[test]
fn an_external_service_keeps_what_it_has_while_that_is_uncertain() {
    let found: ExternalService =
        serde_json::from_value(json!({"id": "1s1", "externalIpAddresses": ["10.0.0.7"]})).expect("a service");
    let ips = BTreeSet::from(["10.0.0.1".parse().expect("an IP")]);
    let wanted = |is_uncertain| Wanted { ips: ips.clone(), is_uncertain };
    assert_eq!(wanted(false).texts(Some(&found)), ["10.0.0.1"]);
    assert_eq!(wanted(true).texts(Some(&found)), ["10.0.0.1", "10.0.0.7"]);
    let none = Wanted { is_uncertain: true, ..Wanted::default() };
    assert_eq!(none.texts(Some(&found)), ["10.0.0.7"]);
    assert!(none.texts(None).is_empty());
}
