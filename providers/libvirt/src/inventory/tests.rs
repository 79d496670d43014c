//! Tests of the inventory.

use super::*;
use crate::domain::{DomainState, Nic, NicSource};

fn domain(number: u8, name: &str, power: PowerState) -> Domain {
    Domain {
        uuid: Uuid::from_u128(u128::from(number)),
        name: name.to_owned(),
        vcpus: 1,
        memory_mib: 1024,
        nics: vec![Nic { mac: mac(number), source: NicSource::Network("default".into()) }],
        agent: AgentChannel::None,
        metadata: None,
        state: Ok(DomainState { power }),
    }
}

fn mac(last: u8) -> Mac {
    Mac::parse(&format!("52:54:00:00:00:{last:02x}")).expect("valid")
}

fn leases(list: &[(u8, &str, Option<i64>)]) -> NetworkLeases {
    let leases = list
        .iter()
        .map(|(last, ip, expires)| (mac(*last), Lease { ip: ip.parse().expect("valid"), expires: *expires }))
        .collect();
    NetworkLeases::from([("default".to_owned(), leases)])
}

fn names(changed: &[InstanceRef]) -> Vec<&str> {
    let mut names: Vec<_> = changed.iter().filter_map(|one| one.name.as_deref()).collect();
    names.sort_unstable();
    names
}

fn listed(domains: Vec<Domain>, leases: NetworkLeases) -> Inventory {
    let mut inventory = Inventory::default();
    inventory.replace(Listing { domains, leases, ..Listing::default() });
    inventory
}

use PowerState::{Off, Running};

#[test]
fn a_listing_says_what_is_different() {
    let mut inventory = listed(vec![domain(1, "a", Running), domain(2, "b", Running)], leases(&[]));
    let changed = inventory.replace(Listing {
        domains: vec![domain(1, "a", Running), domain(3, "c", Running)],
        leases: leases(&[(1, "10.0.0.1", None)]),
        ..Listing::default()
    });
    assert_eq!(names(&changed), ["a", "b", "c"]);
    assert!(inventory.by_name("b").is_none() && inventory.by_name("c").is_some());
    let again = inventory.replace(Listing {
        domains: vec![domain(1, "a", Running), domain(3, "c", Running)],
        leases: leases(&[(1, "10.0.0.1", Some(99))]),
        ..Listing::default()
    });
    assert_eq!(again, [], "a renewed lease is no change");
}

#[test]
fn renaming_moves_the_name() {
    let mut inventory = listed(vec![domain(1, "a", Off), domain(2, "b", Off)], leases(&[]));
    // a is renamed to c, then b to a: the events may arrive in either order
    inventory.update(Uuid::from_u128(2), Some(domain(2, "a", Off)));
    inventory.update(Uuid::from_u128(1), Some(domain(1, "c", Off)));
    assert_eq!(inventory.by_name("a").map(|d| d.uuid.as_u128()), Some(2));
    assert_eq!(inventory.by_name("c").map(|d| d.uuid.as_u128()), Some(1));
    assert!(inventory.by_name("b").is_none());
}

#[test]
fn addresses_follow_the_power_state() {
    let rules = AddressRules::default();
    let mut inventory = listed(vec![domain(1, "a", Running)], leases(&[(1, "10.0.0.1", None)]));
    let addresses = |inventory: &Inventory| {
        inventory.addresses(inventory.by_name("a").expect("there"), &rules, 1000).len()
    };
    assert_eq!(addresses(&inventory), 1);
    assert!(inventory.without_address(&rules, 1000).is_empty());
    inventory.update(Uuid::from_u128(1), Some(domain(1, "a", Off)));
    assert_eq!(addresses(&inventory), 0);
    assert!(inventory.without_address(&rules, 1000).is_empty());
}

#[test]
fn nothing_is_told_before_the_agent_was_heard() {
    let rules = AddressRules::default();
    let with_agent = Domain { agent: AgentChannel::Connected, ..domain(1, "a", Running) };
    let mut inventory = listed(vec![with_agent.clone()], leases(&[(1, "10.0.0.1", None)]));
    let texts = |inventory: &Inventory| -> Vec<String> {
        let domain = inventory.by_name("a").expect("there");
        inventory.addresses(domain, &rules, 1000).into_iter().map(|a| a.address).collect()
    };
    assert_eq!(texts(&inventory), Vec::<String>::new());
    let heard = AgentInterface { mac: Some(mac(1)), ips: vec!["fd00::1".parse().expect("valid")] };
    let pod = AgentInterface { mac: Some(mac(9)), ips: vec!["10.244.0.1".parse().expect("valid")] };
    let changed = inventory.set_agent(Uuid::from_u128(1), Some(vec![heard.clone(), pod.clone()]));
    assert!(changed.is_some());
    assert_eq!(texts(&inventory), ["10.0.0.1", "fd00::1"]);
    let other_pod = AgentInterface { ips: vec![], ..pod };
    assert_eq!(inventory.set_agent(Uuid::from_u128(1), Some(vec![heard, other_pod])), None);
    // the agent does not answer: its last report is kept
    assert_eq!(inventory.set_agent(Uuid::from_u128(1), None), None);
    assert_eq!(texts(&inventory).len(), 2);
    // domains are listed again after a reconnect: the report is kept as well
    inventory.replace(Listing {
        domains: vec![with_agent],
        leases: leases(&[(1, "10.0.0.1", None)]),
        ..Listing::default()
    });
    assert_eq!(texts(&inventory).len(), 2);
}

#[test]
fn an_agent_that_fails_at_first_does_not_hide_the_leases() {
    let rules = AddressRules::default();
    let with_agent = Domain { agent: AgentChannel::Connected, ..domain(1, "a", Running) };
    let mut inventory = listed(vec![with_agent], leases(&[(1, "10.0.0.1", None)]));
    assert!(inventory.set_agent(Uuid::from_u128(1), None).is_some());
    assert_eq!(inventory.addresses(inventory.by_name("a").expect("there"), &rules, 0).len(), 1);
}

#[test]
fn an_ended_lease_has_a_grace_period() {
    let rules = AddressRules::default();
    let inventory = listed(vec![domain(1, "a", Running)], leases(&[(1, "10.0.0.1", Some(1000))]));
    let count = |now| inventory.addresses(inventory.by_name("a").expect("there"), &rules, now).len();
    assert_eq!((count(999), count(1001), count(1031)), (1, 1, 0));
    assert_eq!(inventory.next_lease_end(0), Some(1000));
    assert_eq!(inventory.next_lease_end(1000), None);
}

#[test]
fn differences_to_a_list_of_names() {
    let inventory = listed(vec![domain(1, "a", Off), domain(2, "b", Off)], leases(&[]));
    let list = |pairs: &[(u128, &str)]| -> Vec<(Uuid, String)> {
        pairs.iter().map(|(uuid, name)| (Uuid::from_u128(*uuid), (*name).to_owned())).collect()
    };
    assert!(inventory.differences(&list(&[(1, "a"), (2, "b")])).is_empty());
    let mut differences = inventory.differences(&list(&[(1, "x"), (3, "c")]));
    differences.sort_unstable();
    assert_eq!(differences, [1, 2, 3].map(Uuid::from_u128));
}

#[test]
fn a_known_domain_that_cannot_be_read_stays() {
    let mut inventory = listed(vec![domain(1, "a", Running), domain(2, "b", Running)], leases(&[]));
    let uuid = Uuid::from_u128(1);
    let changed = inventory.replace(Listing {
        domains: vec![domain(2, "b", Running)],
        unreadable: vec![(uuid, "access denied".to_owned())],
        ..Listing::default()
    });
    assert_eq!(names(&changed), ["a"]);
    let known = inventory.by_name("a").expect("not gone");
    assert_eq!(known.state, Err("access denied".to_owned()));
    assert_eq!(inventory.set_unreadable(Uuid::from_u128(9), "x".to_owned()), None, "not known");
}
