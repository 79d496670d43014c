use std::net::IpAddr;

use cloudprovider::ErrorKind;
use jiff::Timestamp;

use super::{
    network::HostEntry,
    plan::to_add,
    testing::{FakeNetwork, NETWORK},
    *,
};
use crate::{addresses::Lease, mac::Mac};

fn mac(n: u8) -> Mac {
    Mac::from_bytes([2, 0, 0, 0, 0, n])
}

fn address(n: u8) -> IpAddr {
    IpAddr::from([192, 168, 122, n])
}

fn wanted(n: u8) -> Reservation {
    Reservation { network: NETWORK.to_owned(), mac: mac(n), name: format!("node-{n}"), address: address(n) }
}

#[tokio::test]
async fn an_entry_is_made_once_in_both_definitions_and_only_ours_is_removed() {
    let network = FakeNetwork::new(&Scope::ALL);
    ensure(&network, &wanted(100), &[], ALL_LEASES).await.expect("made");
    ensure(&network, &wanted(101), &[], ALL_LEASES).await.expect("made");
    let count = network.count();
    ensure(&network, &wanted(100), &[], ALL_LEASES).await.expect("there");
    assert_eq!(network.count() - count, 2, "nothing was changed");
    let entry = |n: u8| format!("<host mac='{}' name='node-{n}' ip='192.168.122.{n}'/>", mac(n));
    assert_eq!(network.entries(), [entry(100), entry(101)]);
    remove(&network, NETWORK, mac(100), "another name").await.expect("nothing of ours");
    remove(&network, NETWORK, mac(99), "node-100").await.expect("nothing of ours");
    assert_eq!(network.entries().len(), 2);
    for _ in 0..2 {
        remove(&network, NETWORK, mac(100), "node-100").await.expect("removed");
        assert_eq!(network.entries(), [entry(101)]);
    }
    remove(&network, "nowhere", mac(101), "node-101").await.expect("no such network is no entry");
}

#[tokio::test]
async fn an_entry_follows_the_address() {
    let network = FakeNetwork::new(&Scope::ALL);
    ensure(&network, &wanted(100), &[], ALL_LEASES).await.expect("made");
    ensure(&network, &Reservation { address: address(120), ..wanted(100) }, &[], ALL_LEASES)
        .await
        .expect("changed");
    assert_eq!(
        network.entries(),
        [format!("<host mac='{}' name='node-100' ip='192.168.122.120'/>", mac(100))]
    );
}

#[tokio::test]
async fn networks_that_are_not_active_or_not_kept_have_one_definition() {
    for scope in Scope::ALL {
        let network = FakeNetwork::new(&[scope]);
        ensure(&network, &wanted(100), &[], ALL_LEASES).await.expect("made");
        assert_eq!(network.entries().len(), 1);
        remove(&network, NETWORK, mac(100), "node-100").await.expect("removed");
        assert_eq!(network.entries(), [""; 0]);
    }
}

#[tokio::test]
async fn what_is_left_is_removed_from_a_network_that_was_stopped_or_undefined() {
    for lost in Scope::ALL {
        let network = FakeNetwork::new(&Scope::ALL);
        ensure(&network, &wanted(100), &[], ALL_LEASES).await.expect("made");
        network.lose(lost);
        remove(&network, NETWORK, mac(100), "node-100").await.expect("removed");
        assert_eq!(network.entries(), [""; 0]);
        network.lose(Scope::Kept);
        network.lose(Scope::Running);
        remove(&network, NETWORK, mac(100), "node-100").await.expect("nothing is left");
        assert_eq!(
            ensure(&network, &wanted(100), &[], ALL_LEASES).await.expect_err("gone").kind(),
            ErrorKind::NotFound
        );
    }
}

/// The kind and the words of the error of `ensure`.
async fn refused(network: &FakeNetwork, wanted: &Reservation) -> (ErrorKind, String) {
    let error = ensure(network, wanted, &[], ALL_LEASES).await.expect_err("refused");
    (error.kind(), error.report())
}

#[tokio::test]
async fn what_is_in_the_way_is_named_and_left_alone() {
    let foreign = HostEntry { mac: Some(mac(1)), name: Some("printer".into()), address: Some(address(100)) };
    let entry = "<host mac='02:00:00:00:00:01' name='printer' ip='192.168.122.100'/>";
    for (wanted, shared) in [
        (wanted(100), "the address 192.168.122.100"),
        (Reservation { name: "printer".into(), ..wanted(7) }, "the name \"printer\""),
        (Reservation { mac: mac(1), ..wanted(7) }, "the MAC address 02:00:00:00:00:01"),
    ] {
        let network = FakeNetwork::new(&Scope::ALL);
        network.add(&Scope::ALL, &foreign);
        let (kind, words) = refused(&network, &wanted).await;
        assert_eq!(kind, ErrorKind::Conflict);
        assert_eq!(words, format!("network \"default\" has {shared} in another entry, which is not ours"));
        assert_eq!(network.entries(), [entry]);
    }
    let network = FakeNetwork::new(&Scope::ALL);
    network.set_rival(vec![foreign]);
    let (kind, _) = refused(&network, &wanted(100)).await;
    assert_eq!(kind, ErrorKind::Conflict, "somebody was faster");
    let network = FakeNetwork::new(&[Scope::Kept]);
    network.set_rival(vec![HostEntry::of(&wanted(100))]);
    ensure(&network, &wanted(100), &[], ALL_LEASES).await.expect("an earlier step of ours was faster");
}

#[tokio::test]
async fn an_address_that_another_interface_has_by_lease_is_refused_until_the_lease_has_ended() {
    let network = FakeNetwork::new(&Scope::ALL);
    let lease = |n: u8, expires| (mac(n), Lease { ip: address(50), expires });
    let now = Timestamp::now().as_second();
    let words = "network \"default\" has the address 192.168.122.50 in a guest's DHCP lease, which is not ours; it is free when \
                 that has ended, and a guest may go on renewing it, so name an address outside of the network's DHCP range";
    for taken in [lease(7, None), lease(7, Some(now + 100_000)), lease(7, Some(now))] {
        network.set_leases(vec![lease(50, None), taken]);
        assert_eq!(refused(&network, &wanted(50)).await, (ErrorKind::Conflict, words.to_owned()));
        assert_eq!(network.entries(), [""; 0]);
    }
    ensure(&network, &wanted(100), &[], ALL_LEASES).await.expect("another address");
    let before = network.entries();
    let moved = Reservation { address: address(50), ..wanted(100) };
    assert_eq!(refused(&network, &moved).await.0, ErrorKind::Conflict);
    assert_eq!(network.entries(), before, "the entry keeps its address");
    for free in [Vec::new(), vec![lease(7, Some(now - 100))], vec![lease(50, None)]] {
        network.set_leases(free);
        ensure(&network, &wanted(50), &[], ALL_LEASES).await.expect("free, or its own");
        network.set_leases(vec![lease(7, None)]);
        ensure(&network, &wanted(50), &[], ALL_LEASES).await.expect("an entry that is there stays");
        remove(&network, NETWORK, mac(50), "node-50").await.expect("removed");
    }
}

#[tokio::test]
async fn what_the_network_cannot_keep_is_told() {
    let network = FakeNetwork::new(&Scope::ALL);
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
            "there is no network \"lan\" on hypervisor \"kvm1\"".to_owned(),
        ),
    ] {
        assert_eq!(refused(&network, &wanted).await, (kind, words));
    }
    for without in ["<network/>", "<network><ip address='192.168.122.1'/></network>"] {
        let dhcp = NetworkDhcp::parse(without).expect("valid");
        let error = to_add(&dhcp, &wanted(100), &[]).expect_err("no DHCP");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.report().contains("has no DHCP server of libvirt"), "{}", error.report());
    }
}

#[tokio::test]
async fn a_daemon_that_ends_at_any_call_leaves_nothing_that_the_next_one_does_not_finish() {
    for (at, takes_effect) in (1..10).flat_map(|at| [(at, false), (at, true)]) {
        let network = FakeNetwork::new(&Scope::ALL);
        network.end_at(at, takes_effect);
        let has_ended = ensure(&network, &wanted(100), &[], ALL_LEASES).await.is_err();
        assert_eq!(has_ended, at <= 6, "6 calls make an entry");
        network.live();
        ensure(&network, &wanted(100), &[], ALL_LEASES).await.expect("finished");
        assert_eq!(network.entries().len(), 1, "{at} {takes_effect}");

        network.end_at(at, takes_effect);
        let has_ended = remove(&network, NETWORK, mac(100), "node-100").await.is_err();
        assert_eq!(has_ended, at <= 4);
        network.live();
        remove(&network, NETWORK, mac(100), "node-100").await.expect("finished");
        assert_eq!(network.entries(), [""; 0], "{at} {takes_effect}");
    }
}
