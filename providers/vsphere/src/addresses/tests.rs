//! Tests of the rules for addresses.

use cloudprovider::NodeAddressType;
use proptest::prelude::*;

use super::*;
use crate::{
    moref::MoRef,
    vm::{GuestAddress, GuestNic},
};

fn nic(network: &str, ips: &[&str]) -> GuestNic {
    let address = |ip: &&str| GuestAddress::new(ip.parse().expect("an IP address"));
    GuestNic {
        network: network.into(),
        connected: true,
        addresses: ips.iter().map(address).collect(),
        mac: None,
    }
}

fn vm(nics: Vec<GuestNic>) -> VirtualMachine {
    VirtualMachine {
        power: VmPower::On,
        tools: Tools::Running,
        guest_host_name: Some("node-1".into()),
        has_guest_nics: !nics.is_empty(),
        guest_nics: nics.into(),
        ..VirtualMachine::new(MoRef::new("VirtualMachine", "vm-1"), "node-1")
    }
}

fn side(networks: &[&str], name: &str, exclude: &[&str]) -> Side {
    let parse = |list: &[&str]| list.iter().map(|text| text.parse().expect("a network")).collect();
    Side {
        networks: parse(networks),
        network_name: Some(name.to_owned()).filter(|name| !name.is_empty()),
        exclude: parse(exclude),
    }
}

fn rules(internal: Side, external: Side) -> AddressRules {
    AddressRules { internal, external, all: false }
}

const V4: &[Family] = &[Family::Ipv4];
const V6: &[Family] = &[Family::Ipv6];
const BOTH: &[Family] = &[Family::Ipv4, Family::Ipv6];

/// The selected addresses as `I 10.0.0.1` or `E ...`, without the host name.
fn selected(vm: &VirtualMachine, rules: &AddressRules, families: &[Family]) -> Vec<String> {
    selected_for(vm, rules, families, &[])
}

fn selected_for(
    vm: &VirtualMachine,
    rules: &AddressRules,
    families: &[Family],
    provided: &[&str],
) -> Vec<String> {
    let provided: Vec<IpAddr> = provided.iter().map(|ip| ip.parse().expect("an IP address")).collect();
    let addresses = select(vm, rules, families, &provided).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(addresses[0], NodeAddress::hostname("node-1"));
    addresses[1..]
        .iter()
        .map(|address| match &address.address_type {
            NodeAddressType::InternalIp => format!("I {}", address.address),
            NodeAddressType::ExternalIp => format!("E {}", address.address),
            other => panic!("{other}"),
        })
        .collect()
}

fn refused(vm: &VirtualMachine, rules: &AddressRules, families: &[Family]) -> String {
    select(vm, rules, families, &[]).expect_err("none").to_string()
}

#[test]
fn without_rules_the_first_of_each_family_is_both() {
    let vm = vm(vec![nic("a", &["10.0.0.1", "10.0.0.2", "fd00::1"]), nic("b", &["10.1.0.1"])]);
    let none = AddressRules::default();
    assert_eq!(selected(&vm, &none, V4), ["I 10.0.0.1", "E 10.0.0.1"]);
    assert_eq!(selected(&vm, &none, V6), ["I fd00::1", "E fd00::1"]);
    assert_eq!(selected(&vm, &none, BOTH), ["I 10.0.0.1", "E 10.0.0.1", "I fd00::1", "E fd00::1"]);
    let turned = [Family::Ipv6, Family::Ipv4];
    assert_eq!(selected(&vm, &none, &turned), ["I fd00::1", "E fd00::1", "I 10.0.0.1", "E 10.0.0.1"]);
}

/// Whatever the rules for the Nodes of the own cluster say.
#[test]
fn a_machine_of_any_cluster_has_each_address_that_others_could_reach() {
    let found = |ips: &[&str]| of_machine(&vm(vec![nic("a", ips)]));
    let both = |ips: &[&str]| {
        let mut all = vec![NodeAddress::hostname("node-1")];
        let ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().expect("an IP address")).collect();
        all.extend(ips.iter().map(|ip| NodeAddress::internal_ip(*ip)));
        all.extend(ips.iter().map(|ip| NodeAddress::external_ip(*ip)));
        Ok(all)
    };
    assert_eq!(found(&["10.0.0.1"]), both(&["10.0.0.1"]));
    assert_eq!(found(&["fe80::1", "fd00::1"]), both(&["fd00::1"]));
    assert_eq!(
        found(&["fd00::1", "169.254.1.1", "10.0.0.2", "10.0.0.1"]),
        both(&["10.0.0.2", "10.0.0.1", "fd00::1"])
    );
    assert_eq!(found(&["fe80::1", "169.254.1.1"]), Err(NoAddress::OnlyLocal));
    assert_eq!(found(&[]), Err(NoAddress::OnlyLocal));
    assert_eq!(of_machine(&vm(Vec::new())), Err(NoAddress::NoNics));
}

#[test]
fn networks_match_in_their_own_order_and_before_names() {
    let vm = vm(vec![nic("a", &["10.0.0.1", "192.168.0.1"]), nic("b", &["172.16.0.1"])]);
    for (internal, external, expected) in [
        (side(&["192.168.0.0/16", "10.0.0.0/8"], "", &[]), side(&[], "", &[]), vec!["I 192.168.0.1"]),
        (side(&["10.0.0.0/8"], "b", &[]), side(&[], "B", &[]), vec!["I 10.0.0.1", "E 172.16.0.1"]),
        // no address is in the network, so the port group's name decides
        (side(&["11.0.0.0/8"], "b", &[]), side(&[], "", &[]), vec!["I 172.16.0.1"]),
        // a match on one side is enough
        (side(&["11.0.0.0/8"], "", &[]), side(&["172.16.0.0/12"], "", &[]), vec!["E 172.16.0.1"]),
        // without any match, the result is that of no rules
        (side(&["11.0.0.0/8"], "z", &[]), side(&[], "", &[]), vec!["I 10.0.0.1", "E 10.0.0.1"]),
    ] {
        assert_eq!(selected(&vm, &rules(internal, external), V4), expected);
    }
}

#[test]
fn excluded_networks_win_over_everything() {
    let vm = vm(vec![nic("a", &["10.0.0.1", "192.168.0.1"])]);
    for (internal, external, expected) in [
        (side(&["10.0.0.0/8"], "", &["10.0.0.1/32"]), side(&["10.0.0.0/8"], "", &[]), vec!["E 10.0.0.1"]),
        (side(&[], "", &["10.0.0.0/8"]), side(&[], "", &[]), vec!["I 192.168.0.1", "E 10.0.0.1"]),
        (side(&[], "a", &["10.0.0.0/8"]), side(&[], "", &[]), vec!["I 192.168.0.1"]),
        (side(&[], "", &["0.0.0.0/0"]), side(&[], "", &[]), vec!["E 10.0.0.1"]),
    ] {
        assert_eq!(selected(&vm, &rules(internal, external), V4), expected);
    }
    let nothing = rules(side(&[], "", &["0.0.0.0/0"]), side(&[], "", &["0.0.0.0/0"]));
    assert!(refused(&vm, &nothing, V4).contains("no ipv4 address"), "{}", refused(&vm, &nothing, V4));
}

#[test]
fn interfaces_of_the_guest_itself_are_not_missing_tools() {
    let vm = VirtualMachine { has_guest_nics: true, tools: Tools::NotRunning, ..vm(Vec::new()) };
    assert_eq!(refused(&vm, &AddressRules::default(), V4), NoAddress::OnlyLocal.to_string());
    let text = refused(&vm, &rules(side(&[], "in", &[]), side(&[], "out", &[])), V4);
    assert!(text.ends_with("they are on none"), "{text}");
}

#[test]
fn addresses_that_nobody_reaches_do_not_count() {
    let useless = [
        "127.0.0.1",
        "169.254.1.1",
        "0.0.0.0",
        "224.0.0.5",
        "::1",
        "fe80::1",
        "::",
        "ff02::1",
        "255.255.255.255",
    ];
    let only = vm(vec![nic("a", &useless)]);
    assert_eq!(refused(&only, &AddressRules::default(), V4), NoAddress::OnlyLocal.to_string());
    let mut all = useless.to_vec();
    all.extend(["::ffff:10.0.0.9", "fd00::9"]);
    let mixed = vm(vec![nic("a", &all)]);
    assert_eq!(
        selected(&mixed, &AddressRules::default(), BOTH),
        ["I 10.0.0.9", "E 10.0.0.9", "I fd00::9", "E fd00::9"]
    );
}

#[test]
fn both_names_without_either_network_are_an_error_that_tells_the_networks() {
    let vm = vm(vec![nic("a", &["10.0.0.1"])]);
    let text = refused(&vm, &rules(side(&[], "in", &[]), side(&[], "out", &[])), V4);
    assert_eq!(text, "none of its interfaces is on the network \"in\" or \"out\"; they are on \"a\"");
    let one = rules(side(&[], "in", &[]), side(&[], "A", &[]));
    assert_eq!(selected(&vm, &one, V4), ["E 10.0.0.1"]);
}

#[test]
fn a_family_that_is_wanted_and_missing_is_an_error() {
    let vm = vm(vec![nic("a", &["10.0.0.1"])]);
    let text = refused(&vm, &AddressRules::default(), BOTH);
    assert_eq!(text, "it has no ipv6 address that the rules under nodes allow; it has 10.0.0.1");
}

#[test]
fn what_the_guest_was_configured_with_comes_first() {
    let mut vm = vm(vec![nic("a", &["10.0.0.100", "10.0.0.2", "10.0.0.1", "fd00::100", "fd00::1"])]);
    vm.static_addresses =
        ["10.0.0.1", "10.9.9.9", "10.0.0.2", "fd00::1"].map(|ip| ip.parse().expect("valid")).into();
    assert_eq!(
        selected(&vm, &AddressRules::default(), BOTH),
        ["I 10.0.0.1", "E 10.0.0.1", "I fd00::1", "E fd00::1"]
    );
}

#[test]
fn unusable_addresses_come_last() {
    let mut vm = vm(vec![nic("a", &["fd00::1", "fd00::2", "fd00::3"])]);
    vm.guest_nics[0].addresses[0].state = AddressState::Unusable;
    vm.guest_nics[0].addresses[1].state = AddressState::Deprecated;
    assert_eq!(selected(&vm, &AddressRules::default(), V6), ["I fd00::3", "E fd00::3"]);
    vm.guest_nics[0].addresses[2].state = AddressState::Unusable;
    assert_eq!(selected(&vm, &AddressRules::default(), V6), ["I fd00::2", "E fd00::2"]);
}

#[test]
fn the_kubelets_own_choice_wins_among_what_matches() {
    let mut vm =
        vm(vec![nic("a", &["10.0.0.1", "10.0.0.2", "192.168.0.1", "192.168.0.2", "fd00::1", "fd00::2"])]);
    vm.static_addresses = ["10.0.0.1".parse().expect("valid")].into();
    let none = AddressRules::default();
    assert_eq!(selected_for(&vm, &none, V4, &["10.0.0.2"]), ["I 10.0.0.2", "E 10.0.0.2"]);
    assert_eq!(
        selected_for(&vm, &none, BOTH, &["fd00::2", "192.168.0.2"]),
        ["I 192.168.0.2", "E 192.168.0.2", "I fd00::2", "E fd00::2"]
    );
    let both = rules(side(&["10.0.0.0/8", "192.168.0.0/16"], "", &[]), side(&[], "", &[]));
    assert_eq!(selected_for(&vm, &both, V4, &["192.168.0.2"]), ["I 192.168.0.2"]);
    // the kubelet's choice does not override the operator's rules
    let ten = rules(side(&["10.0.0.0/8"], "", &[]), side(&[], "", &[]));
    assert_eq!(selected_for(&vm, &ten, V4, &["192.168.0.2"]), ["I 10.0.0.1"]);
}

#[test]
fn several_of_a_family_where_the_operator_asks_for_them() {
    let vm = vm(vec![nic("a", &["10.0.0.1", "10.0.0.2", "192.168.0.1"]), nic("b", &["172.16.0.1"])]);
    let all = |internal, external| AddressRules { all: true, ..rules(internal, external) };
    assert_eq!(
        selected(&vm, &all(side(&["192.168.0.0/16", "10.0.0.0/8"], "", &[]), side(&[], "b", &[])), V4),
        ["I 192.168.0.1", "I 10.0.0.1", "I 10.0.0.2", "E 172.16.0.1"]
    );
    assert_eq!(selected(&vm, &all(side(&[], "b", &[]), side(&[], "", &[])), V4), ["I 172.16.0.1"]);
    assert_eq!(selected(&vm, &all(side(&[], "", &[]), side(&[], "", &[])), V4).len(), 8);
}

#[test]
fn a_machine_without_guest_data_says_why() {
    let mut vm = vm(Vec::new());
    for (power, tools, part) in [
        (VmPower::Off, Tools::NotRunning, "powered off"),
        (VmPower::Suspended, Tools::NotRunning, "suspended"),
        (VmPower::On, Tools::NotInstalled, "VMware Tools are not installed"),
        (VmPower::On, Tools::NotRunning, "VMware Tools do not run"),
        (VmPower::On, Tools::Running, "no network interface yet"),
        (VmPower::On, Tools::Unknown, "no network interface yet"),
    ] {
        (vm.power, vm.tools) = (power, tools);
        let text = refused(&vm, &AddressRules::default(), V4);
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_guest_without_a_name_gets_no_host_name() {
    let mut vm = vm(vec![nic("a", &["10.0.0.1"])]);
    vm.guest_host_name = None;
    let addresses = select(&vm, &AddressRules::default(), V4, &[]).expect("addresses");
    assert_eq!(addresses, [NodeAddress::internal_ip("10.0.0.1"), NodeAddress::external_ip("10.0.0.1")]);
}

#[test]
fn the_annotation_is_read_and_rubbish_in_it_is_not() {
    let read = |value: &str| provided_node_ips(&[(PROVIDED_NODE_IP.to_owned(), value.to_owned())].into());
    assert_eq!(read("10.0.0.1"), ["10.0.0.1".parse::<IpAddr>().expect("valid")]);
    assert_eq!(read("10.0.0.1,fd00::1").len(), 2);
    for rubbish in ["", "x", "0.0.0.0", "::"] {
        assert!(read(rubbish).is_empty(), "{rubbish}");
    }
    assert!(provided_node_ips(&std::collections::BTreeMap::new()).is_empty());
}

#[test]
fn words_for_families() {
    for (word, family) in
        [("ipv4", Some(Family::Ipv4)), (" IPv6 ", Some(Family::Ipv6)), ("ipv5", None), ("", None)]
    {
        assert_eq!(Family::parse(word), family, "{word:?}");
    }
}

fn any_ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
        (1..9u8).prop_map(|n| IpAddr::from([10, 0, 0, n])),
    ]
}

proptest! {
    #[test]
    fn what_is_selected_was_there_and_is_allowed(
        ips in prop::collection::vec(any_ip(), 0..12),
        internal in prop::collection::vec(any_ip(), 0..3),
        exclude in prop::collection::vec(any_ip(), 0..3),
        provided in prop::collection::vec(any_ip(), 0..2),
        all in any::<bool>(),
    ) {
        let networks = |ips: Vec<IpAddr>| -> Vec<IpNet> {
            ips.into_iter().map(|ip| IpNet::new(ip, 8).expect("a prefix").trunc()).collect()
        };
        let rules = AddressRules {
            internal: Side { networks: networks(internal), network_name: None, exclude: networks(exclude) },
            external: Side::default(),
            all,
        };
        let addresses: Vec<GuestAddress> = ips.iter().map(|ip| GuestAddress::new(*ip)).collect();
        let machine = vm(vec![GuestNic { addresses: addresses.into(), ..GuestNic::default() }]);
        for families in [V4, V6, BOTH] {
            let Ok(selected) = select(&machine, &rules, families, &provided) else { continue };
            for address in &selected[1..] {
                let ip: IpAddr = address.address.parse().expect("an IP address");
                prop_assert!(ips.iter().any(|other| other.to_canonical() == ip));
                prop_assert!(is_reachable(ip));
                let is_internal = address.address_type == NodeAddressType::InternalIp;
                prop_assert!(!(is_internal && rules.internal.exclude.iter().any(|network| network.contains(&ip))));
            }
            for family in families {
                let count = |kind: NodeAddressType| selected[1..].iter().filter(|address| {
                    address.address_type == kind
                        && address.address.parse().is_ok_and(|ip| family.has(ip))
                }).count();
                let (internal, external) = (count(NodeAddressType::InternalIp), count(NodeAddressType::ExternalIp));
                prop_assert!(internal + external > 0);
                prop_assert!(all || internal <= 1 && external <= 1);
            }
        }
    }
}
