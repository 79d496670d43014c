use std::{io::Write as _, net::IpAddr};

use cloudprovider::ErrorKind;

use super::{
    plan::to_add,
    testing::{FakeNetwork, NETWORK},
    *,
};
use crate::{mac::Mac, machines::caller::testing::TestDriver};

fn mac(n: u8) -> Mac {
    Mac::from_bytes([2, 0, 0, 0, 0, n])
}

fn address(n: u8) -> IpAddr {
    IpAddr::from([192, 168, 122, n])
}

fn wanted(n: u8) -> Reservation {
    Reservation { network: NETWORK.to_owned(), mac: mac(n), name: format!("node-{n}"), address: address(n) }
}

#[test]
fn an_entry_is_made_once_in_both_definitions_and_only_ours_is_removed() {
    let mut network = FakeNetwork::new(&Scope::ALL);
    ensure(&mut network, &wanted(100)).expect("made");
    ensure(&mut network, &wanted(101)).expect("made");
    let count = network.count;
    ensure(&mut network, &wanted(100)).expect("there");
    assert_eq!(network.count - count, 2, "nothing was changed");
    let entry = |n: u8| format!("<host mac='{}' name='node-{n}' ip='192.168.122.{n}'/>", mac(n));
    assert_eq!(network.entries(), [entry(100), entry(101)]);
    remove(&mut network, NETWORK, mac(100), "another name").expect("nothing of ours");
    remove(&mut network, NETWORK, mac(99), "node-100").expect("nothing of ours");
    assert_eq!(network.entries().len(), 2);
    for _ in 0..2 {
        remove(&mut network, NETWORK, mac(100), "node-100").expect("removed");
        assert_eq!(network.entries(), [entry(101)]);
    }
    remove(&mut network, "nowhere", mac(101), "node-101").expect("no such network is no entry");
}

#[test]
fn an_entry_follows_the_address() {
    let mut network = FakeNetwork::new(&Scope::ALL);
    ensure(&mut network, &wanted(100)).expect("made");
    ensure(&mut network, &Reservation { address: address(120), ..wanted(100) }).expect("changed");
    assert_eq!(
        network.entries(),
        [format!("<host mac='{}' name='node-100' ip='192.168.122.120'/>", mac(100))]
    );
}

#[test]
fn networks_that_are_not_active_or_not_kept_have_one_definition() {
    for scope in Scope::ALL {
        let mut network = FakeNetwork::new(&[scope]);
        ensure(&mut network, &wanted(100)).expect("made");
        assert_eq!(network.entries().len(), 1);
        remove(&mut network, NETWORK, mac(100), "node-100").expect("removed");
        assert_eq!(network.entries(), [""; 0]);
    }
}

/// The kind and the words of the error of `ensure`.
fn refused(network: &mut FakeNetwork, wanted: &Reservation) -> (ErrorKind, String) {
    let error = ensure(network, wanted).expect_err("refused");
    (error.kind(), error.report())
}

#[test]
fn what_is_in_the_way_is_named_and_left_alone() {
    let foreign = HostEntry { mac: Some(mac(1)), name: Some("printer".into()), address: Some(address(100)) };
    for wanted in [
        wanted(100),
        Reservation { name: "printer".into(), ..wanted(7) },
        Reservation { mac: mac(1), ..wanted(7) },
    ] {
        let mut network = FakeNetwork::new(&Scope::ALL);
        network.hosts.values_mut().for_each(|hosts| hosts.push(foreign.clone()));
        let (kind, words) = refused(&mut network, &wanted);
        assert_eq!(kind, ErrorKind::Conflict);
        let entry = "<host mac='02:00:00:00:00:01' name='printer' ip='192.168.122.100'/>";
        assert!(
            words.starts_with(&format!("network \"default\" has the entry {entry}, which is not ours")),
            "{words}"
        );
        assert_eq!(network.entries(), [entry]);
    }
    let mut network = FakeNetwork::new(&Scope::ALL);
    network.rival = vec![foreign];
    let (kind, _) = refused(&mut network, &wanted(100));
    assert_eq!(kind, ErrorKind::Conflict, "somebody was faster");
    let mut network = FakeNetwork::new(&[Scope::Kept]);
    network.rival = vec![HostEntry::of(&wanted(100))];
    ensure(&mut network, &wanted(100)).expect("an earlier step of ours was faster");
}

#[test]
fn what_the_network_cannot_keep_is_told() {
    let mut network = FakeNetwork::new(&Scope::ALL);
    let at = |address: &str| Reservation { address: address.parse().expect("valid"), ..wanted(100) };
    let subnet = "is not an address for guests of network \"default\", which is 192.168.122.1/24";
    for (wanted, kind, words) in [
        (at("10.0.0.5"), ErrorKind::InvalidInput, format!("10.0.0.5 {subnet}")),
        (at("192.168.122.1"), ErrorKind::InvalidInput, format!("192.168.122.1 {subnet}")),
        (at("192.168.122.255"), ErrorKind::InvalidInput, format!("192.168.122.255 {subnet}")),
        (
            at("fd00::5"),
            ErrorKind::InvalidInput,
            "fd00::5 cannot be reserved: libvirt reserves IPv4 addresses for MAC addresses only".to_owned(),
        ),
        (
            Reservation { network: "lan".into(), ..wanted(100) },
            ErrorKind::NotFound,
            "there is no network \"lan\"".to_owned(),
        ),
    ] {
        assert_eq!(refused(&mut network, &wanted), (kind, words));
    }
    for without in ["<network/>", "<network><ip address='192.168.122.1'/></network>"] {
        let dhcp = NetworkDhcp::parse(without).expect("valid");
        let error = to_add(&dhcp, &wanted(100)).expect_err("no DHCP");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.report().contains("has no DHCP server of libvirt"), "{}", error.report());
    }
}

#[test]
fn a_daemon_that_ends_at_any_call_leaves_nothing_that_the_next_one_does_not_finish() {
    for (at, takes_effect) in (1..8).flat_map(|at| [(at, false), (at, true)]) {
        let mut network = FakeNetwork::new(&Scope::ALL);
        network.ends_at = Some((at, takes_effect));
        let has_ended = ensure(&mut network, &wanted(100)).is_err();
        assert_eq!(has_ended, at <= 4, "4 calls make an entry");
        network.ends_at = None;
        ensure(&mut network, &wanted(100)).expect("finished");
        assert_eq!(network.entries().len(), 1, "{at} {takes_effect}");

        (network.ends_at, network.count) = (Some((at, takes_effect)), 0);
        let has_ended = remove(&mut network, NETWORK, mac(100), "node-100").is_err();
        assert_eq!(has_ended, at <= 4);
        network.ends_at = None;
        remove(&mut network, NETWORK, mac(100), "node-100").expect("finished");
        assert_eq!(network.entries(), [""; 0], "{at} {takes_effect}");
    }
}

#[test]
fn libvirt_takes_the_changes() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let node = "<node><network><name>default</name><forward/><bridge name='virbr0'/>\
        <ip address='192.168.122.1' netmask='255.255.255.0'><dhcp>\
        <range start='192.168.122.2' end='192.168.122.99'/></dhcp></ip></network>\
        <network><name>lan</name><forward mode='bridge'/><bridge name='br0'/></network></node>";
    file.write_all(node.as_bytes()).expect("written");
    let mut driver = TestDriver::new(&file);
    let mut calls = OnConnection(&mut driver);
    let hosts = |calls: &mut OnConnection<'_, TestDriver>, scope| {
        let dhcp = read(calls, NETWORK, scope).expect("readable").expect("there");
        dhcp.hosts().map(HostEntry::to_xml).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        ensure(&mut calls, &wanted(100)).expect("made");
        ensure(&mut calls, &wanted(101)).expect("made");
    }
    for scope in Scope::ALL {
        assert_eq!(
            hosts(&mut calls, scope),
            [HostEntry::of(&wanted(100)).to_xml(), HostEntry::of(&wanted(101)).to_xml()]
        );
    }
    let moved = Reservation { address: address(120), ..wanted(100) };
    ensure(&mut calls, &moved).expect("changed");
    let error = ensure(&mut calls, &Reservation { address: address(101), ..wanted(7) }).expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    remove(&mut calls, NETWORK, mac(101), "node-101").expect("removed");
    for scope in Scope::ALL {
        assert_eq!(hosts(&mut calls, scope), [HostEntry::of(&moved).to_xml()]);
    }
    let lan = Reservation { network: "lan".into(), ..wanted(7) };
    assert_eq!(ensure(&mut calls, &lan).expect_err("no DHCP").kind(), ErrorKind::NotFound);
    let nowhere = Reservation { network: "nowhere".into(), ..wanted(7) };
    assert_eq!(ensure(&mut calls, &nowhere).expect_err("no network").kind(), ErrorKind::NotFound);
    remove(&mut calls, "nowhere", mac(7), "node-7").expect("nothing to remove");
}
