//! Tests of the look-ups.

use cloudprovider::NodeAddress;
use tokio::time::Instant;

use super::*;
use crate::cattle::{inventory::Inventory, source::testing::host};

fn rules() -> Rules {
    Rules { address_types: AddressTypes::Internal, zones: ZoneRules::default() }
}

fn state(hosts: Vec<Host>) -> State {
    let known =
        hosts.into_iter().map(|host| KnownHost { ips: Ok(host.agent_ip().into_iter().collect()), host });
    State { inventory: Inventory::new(known), listed: Some(Instant::now()), ..State::default() }
}

fn named(name: &str) -> NodeIdentity {
    NodeIdentity { name: name.to_owned(), ..NodeIdentity::default() }
}

fn with_id(id: &str) -> NodeIdentity {
    NodeIdentity { provider_id: Some(id.to_owned()), ..named("some-node") }
}

fn present(answer: Answer) -> Instance {
    match answer {
        Answer::Settled(InstanceLookup::Present(instance)) => *instance,
        other => panic!("not present: {other:?}"),
    }
}

fn unknown(answer: Answer) -> Error {
    match answer {
        Answer::Settled(InstanceLookup::Unknown(error)) => error,
        other => panic!("not unknown: {other:?}"),
    }
}

#[tokio::test]
async fn a_new_node_gets_everything_of_its_host() {
    let mut one = host(1, "node-1.example.org");
    one.labels.insert("topology.kubernetes.io/zone".to_owned(), "rack-1".to_owned());
    let instance = present(look_up(&named("node-1"), &state(vec![one]), &rules()));
    assert_eq!(instance.provider_id.expect("an ID").as_str(), "rancher://uuid-1");
    assert_eq!(instance.metadata.instance_type.as_deref(), Some("rancher"));
    assert_eq!(instance.metadata.zone.as_deref(), Some("rack-1"));
    assert_eq!(
        instance.metadata.addresses,
        [NodeAddress::internal_ip("10.0.0.2"), NodeAddress::hostname("node-1.example.org")]
    );
    assert_eq!(instance.matched_by.as_deref(), Some("name"));
    assert!(instance.incomplete.is_none());
}

#[tokio::test]
async fn a_provider_id_is_all_that_counts() {
    let state = state(vec![host(1, "node-1"), host(2, "node-2")]);
    let node = NodeIdentity { provider_id: Some("rancher://UUID-2".to_owned()), ..named("node-1") };
    let instance = present(look_up(&node, &state, &rules()));
    assert_eq!(instance.provider_id.expect("an ID").as_str(), "rancher://uuid-2");
    let node = NodeIdentity { provider_id: Some("rancher://uuid-3".to_owned()), ..named("node-1") };
    assert!(matches!(look_up(&node, &state, &rules()), Answer::NotListed(_)));
    assert_eq!(unknown(look_up(&with_id("rke2://node-1"), &state, &rules())).kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn states_of_hosts() {
    for (state_of_host, agent, expected) in [
        ("active", "active", PowerState::Running),
        ("active", "reconnecting", PowerState::Running),
        ("active", "disconnected", PowerState::Off),
        ("inactive", "active", PowerState::Off),
        ("stopped", "", PowerState::Off),
        ("deactivating", "active", PowerState::ShuttingDown),
        ("removing", "active", PowerState::ShuttingDown),
        ("a new state", "", PowerState::Running),
    ] {
        let one = Host {
            state: Some(state_of_host.to_owned()),
            agent_state: Some(agent.to_owned()),
            ..host(1, "node-1")
        };
        assert_eq!(present(look_up(&named("node-1"), &state(vec![one]), &rules())).power_state, expected);
    }
    for gone in ["removed", "purged"] {
        let one = Host { state: Some(gone.to_owned()), ..host(1, "node-1") };
        assert!(matches!(look_up(&named("node-1"), &state(vec![one]), &rules()), Answer::NotListed(_)));
    }
}

#[tokio::test]
async fn in_trouble_nothing_is_certain() {
    for kind in [
        ErrorKind::Unauthenticated,
        ErrorKind::PermissionDenied,
        ErrorKind::RateLimited,
        ErrorKind::Unavailable,
        ErrorKind::Timeout,
    ] {
        let error = Error::new(kind, "trouble").with_retry_after(Duration::from_secs(7));
        let state = State { trouble: Some((error, Instant::now())), ..state(vec![host(1, "node-1")]) };
        for node in [named("node-1"), named("node-2"), with_id("rancher://uuid-9")] {
            let error = unknown(look_up(&node, &state, &rules()));
            assert_eq!((error.kind(), error.retry_after()), (kind, Some(Duration::from_secs(7))));
        }
    }
    let answer = look_up(&named("node-1"), &State::default(), &rules());
    assert!(matches!(answer, Answer::Starting(_)), "{answer:?}");
}

#[tokio::test]
async fn a_host_without_an_address_is_not_gone() {
    let silent = Host { agent_ip_address: None, ..host(1, "node-1") };
    let instance = present(look_up(&named("node-1"), &state(vec![silent.clone()]), &rules()));
    assert_eq!(instance.incomplete.expect("incomplete").kind(), ErrorKind::InProgress);
    let unread = KnownHost { host: silent, ips: Err(Error::new(ErrorKind::Unavailable, "away")) };
    let state = State { inventory: Inventory::new([unread]), ..state(Vec::new()) };
    let instance = present(look_up(&named("node-1"), &state, &rules()));
    assert_eq!(instance.incomplete.expect("incomplete").kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn two_hosts_of_one_name_are_told() {
    let state = state(vec![host(1, "node-1.a"), host(2, "node-1.b")]);
    let error = unknown(look_up(&named("node-1"), &state, &rules()));
    assert_eq!(error.kind(), ErrorKind::Ambiguous);
    assert!(error.to_string().contains("1h1") && error.to_string().contains("1h2"), "{error}");
}
