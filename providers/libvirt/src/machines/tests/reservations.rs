//! Addresses that networks keep for machines.

use std::{sync::Arc, time::Instant};

use cloudprovider::{ErrorKind, machines::MachineReport};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::support::{Daemon, Object, PATIENCE, PAUSE, hypervisor, storage};
use crate::{
    addresses::Lease,
    mac::Mac,
    machines::{
        names,
        reservation::{
            ALL_LEASES, NetworkCalls, Reservation, Scope, ensure, read, remove,
            testing::{FakeNetwork, HostEntry, NETWORK},
        },
        steps::MachineRecord,
        storage::testing::{FakeCalls, FakeHypervisor, POOL},
    },
};

/// The machine with two addresses: a named one, and whatever the server gives.
fn two_addresses() -> Value {
    json!({ "interfaces": [
        { "network": NETWORK, "reservation": { "address": "192.168.122.100" } },
        { "network": NETWORK, "reservation": {} },
        { "network": NETWORK },
    ] })
}

async fn daemon(storage: &FakeHypervisor, network: &FakeNetwork) -> Daemon {
    let calls = Arc::new(FakeCalls::new(storage)) as _;
    Daemon::start_with(vec![(hypervisor(&[]), calls)], vec![Arc::new(network.clone()) as _]).await
}

/// The MAC address of an interface of the object.
fn mac(object: &Object, interface: usize) -> Mac {
    names::mac(&object.request.mark, interface)
}

#[tokio::test]
async fn a_machine_keeps_its_addresses_until_it_is_deleted() {
    let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
    let daemon = daemon(&storage, &network).await;
    let mut object = Object::new(&two_addresses());
    while network.entries().is_empty() {
        let report = object.step(&daemon).await.expect("a step");
        assert!(matches!(report, MachineReport::Creating(_)), "{report:?}");
    }
    let name = names::domain(&object.request.mark);
    let named = format!("<host mac='{}' name='{name}' ip='192.168.122.100'/>", mac(&object, 0));
    assert_eq!(network.entries(), std::slice::from_ref(&named), "before the domain is there");
    object.made(&daemon).await;
    let entries = network.entries();
    assert_eq!((entries.len(), &entries[0]), (2, &named));
    let first_given = format!("<host mac='{}' name='{name}-nic1' ip='192.168.122.", mac(&object, 1));
    assert!(entries[1].starts_with(&first_given), "{entries:?}");
    let count = network.count();
    object.step(&daemon).await.expect("a step");
    assert_eq!(network.count(), count, "a machine that is complete costs no calls");
    object.removed(&daemon).await;
    assert_eq!(network.entries(), [""; 0]);
}

#[tokio::test]
async fn deletion_gives_back_what_the_spec_does_not_tell_any_more() {
    let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
    let daemon = daemon(&storage, &network).await;
    let mut object = Object::new(&two_addresses());
    object.made(&daemon).await;
    assert_eq!(network.entries().len(), 2);
    object.request.spec.interfaces.truncate(1);
    object.removed(&daemon).await;
    assert_eq!(network.entries(), [""; 0]);
}

/// The machine has an address, so nothing but its step wants to know the leases.
#[tokio::test]
async fn the_lease_of_a_further_interface_is_looked_for() {
    let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
    let daemon = daemon(&storage, &network).await;
    let mut object = Object::new(&two_addresses());
    object.made(&daemon).await;
    let hypervisor = &daemon.provider.libvirt_machines().hosts[0].hypervisor;
    let first = (mac(&object, 0), Lease { ip: [192, 168, 122, 100].into(), expires: None });
    let leases = [(format!("/{}", object.request.mark.uid), vec![first])];
    hypervisor.update(|state| state.inventory.set_leases(leases.into()));
    object.request.is_provisioned = false;
    let report = object.step(&daemon).await.expect("a step");
    let MachineReport::Present(machine) = report else { panic!("{report:?}") };
    let wait = machine.wait.expect("it waits");
    assert!(wait.message.starts_with(&format!("no DHCP lease for {}", mac(&object, 1))), "{wait:?}");
    assert!(wait.look_again_after.is_some());
    object.made(&daemon).await;
}

#[tokio::test]
async fn an_address_that_is_somebody_elses_is_named_and_left_alone() {
    let foreign = |mac: Option<Mac>, last: u8| HostEntry {
        mac: mac.or(Some(Mac::from_bytes([6; 6]))),
        name: Some("printer".into()),
        address: Some([192, 168, 122, last].into()),
    };
    for has_mac in [false, true] {
        let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
        let before = storage.names(POOL);
        let daemon = daemon(&storage, &network).await;
        let mut object = Object::new(&two_addresses());
        let (entry, what) = if has_mac {
            (foreign(Some(mac(&object, 0)), 7), format!("the MAC address {}", mac(&object, 0)))
        } else {
            (foreign(None, 100), "the address 192.168.122.100".to_owned())
        };
        network.add(&Scope::ALL, &entry);
        let error = loop {
            if let Err(error) = object.step(&daemon).await {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let words = format!(
            "spec.interfaces[0].reservation: network \"default\" has {what} in another entry, which is not ours"
        );
        assert!(error.report().starts_with(&words), "{}", error.report());
        object.removed(&daemon).await;
        assert_eq!(network.entries(), [entry.to_xml()]);
        assert_eq!(storage.names(POOL), before);
    }
}

#[tokio::test]
async fn an_address_that_another_guest_has_by_lease_is_waited_for() {
    let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
    let daemon = daemon(&storage, &network).await;
    let mut guest = Object::new(&json!({ "interfaces": [{ "network": NETWORK }] }));
    guest.made(&daemon).await;
    let other = mac(&guest, 0);
    let lease = |mac: Mac| (mac, Lease { ip: [192, 168, 122, 100].into(), expires: None });
    network.set_leases(vec![lease(other)]);
    let mut object = Object::new(&two_addresses());
    let error = loop {
        match object.step(&daemon).await {
            Ok(MachineReport::Creating(_)) => {}
            Ok(report) => panic!("it is made: {report:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let words = "spec.interfaces[0].reservation: network \"default\" has the address 192.168.122.100 in a guest's DHCP lease";
    assert!(error.report().starts_with(words), "{}", error.report());
    assert!(!error.report().contains(&other.to_string()), "{}", error.report());
    assert_eq!(network.entries(), [""; 0]);
    // A guest may ask for addresses with any MAC address. It has that of its domain.
    network.set_leases(vec![lease(Mac::from_bytes([6; 6])), lease(Mac::from_bytes([2; 6]))]);
    object.made(&daemon).await;
    assert_eq!(network.entries().len(), 2);
}

/// A guest that is destroyed gives its lease to nobody, so the network has it until it expires.
#[tokio::test]
async fn the_lease_of_a_machine_that_is_gone_keeps_no_other_one_waiting() {
    let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
    let daemon = daemon(&storage, &network).await;
    let mut first = Object::new(&json!({ "interfaces": [{ "network": NETWORK }] }));
    first.made(&daemon).await;
    network.set_leases(vec![(mac(&first, 0), Lease { ip: [192, 168, 122, 100].into(), expires: None })]);
    let mut second = Object::new(&two_addresses());
    let error = loop {
        if let Err(error) = second.step(&daemon).await {
            break error;
        }
    };
    assert!(error.report().contains("192.168.122.100 in a guest's DHCP lease"), "{}", error.report());
    first.removed(&daemon).await;
    let began = Instant::now();
    while let Err(error) = second.step(&daemon).await {
        assert!(began.elapsed() < PATIENCE, "{error}");
        sleep(PAUSE).await;
    }
    second.made(&daemon).await;
    assert_eq!(network.entries().len(), 2);
}

#[tokio::test]
async fn a_network_that_was_stopped_or_undefined_holds_up_no_deletion() {
    for lost in [&Scope::ALL[..1], &Scope::ALL[1..], &Scope::ALL[..]] {
        let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
        let daemon = daemon(&storage, &network).await;
        let mut object = Object::new(&two_addresses());
        object.made(&daemon).await;
        for scope in lost {
            network.lose(*scope);
        }
        object.removed(&daemon).await;
        assert_eq!(network.entries(), [""; 0]);
    }
}

/// The daemon ends on both sides of each call about the network. Another one, which remembers nothing, goes
/// on.
#[tokio::test]
async fn a_daemon_that_ends_at_any_call_leaves_no_address_behind() {
    let mut points = 0;
    for at in 1..30 {
        let mut was_cut = false;
        for (deletes, takes_effect) in [(false, false), (false, true), (true, false), (true, true)] {
            let (storage, network) = (storage(), FakeNetwork::new(&Scope::ALL));
            let before = storage.names(POOL);
            let mut object = Object::new(&two_addresses());
            {
                let daemon = daemon(&storage, &network).await;
                if deletes {
                    object.made(&daemon).await;
                }
                network.end_at(at, takes_effect);
                let work = async {
                    if deletes {
                        object.removed(&daemon).await;
                    } else {
                        object.made(&daemon).await;
                    }
                };
                tokio::select! {
                    () = work => {}
                    () = network.ended() => { points += 1; was_cut = true; }
                }
            }
            network.live();
            let mut object = Object { record: MachineRecord::default(), ..object };
            object.request.is_provisioned = false;
            object.request.provider_id = None;
            let daemon = daemon(&storage, &network).await;
            if !deletes {
                object.made(&daemon).await;
                assert_eq!(network.entries().len(), 2, "call {at} {takes_effect}");
            }
            object.removed(&daemon).await;
            assert_eq!(network.entries(), [""; 0], "call {at} {takes_effect} {deletes}");
            assert_eq!(storage.names(POOL), before, "call {at} {takes_effect} {deletes}");
        }
        if !was_cut {
            assert!(points > 20, "{points} points");
            return;
        }
    }
    panic!("addresses take more calls");
}

#[tokio::test]
async fn libvirt_takes_the_changes() {
    let storage = storage();
    let daemon = Daemon::start(vec![(hypervisor(&[]), Arc::new(FakeCalls::new(&storage)) as _)]).await;
    let calls: &dyn NetworkCalls = &*daemon.provider.libvirt_machines().hosts[0].networks;
    let wanted = |n: u8, last: u8| Reservation {
        network: NETWORK.to_owned(),
        mac: Mac::from_bytes([2, 0, 0, 0, 0, n]),
        name: format!("node-{n}"),
        address: [192, 168, 122, last].into(),
    };
    for _ in 0..2 {
        ensure(calls, &wanted(1, 101), &[], ALL_LEASES).await.expect("made");
        ensure(calls, &wanted(2, 102), &[], ALL_LEASES).await.expect("made");
    }
    ensure(calls, &wanted(1, 120), &[], ALL_LEASES).await.expect("changed");
    let error = ensure(calls, &wanted(3, 102), &[], ALL_LEASES).await.expect_err("taken");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    for left in [2, 1] {
        for scope in Scope::ALL {
            let dhcp = read(calls, NETWORK, scope).await.expect("readable").expect("there");
            assert_eq!(dhcp.hosts().count(), left);
            assert!(dhcp.hosts().any(|host| *host == HostEntry::of(&wanted(1, 120))), "{dhcp:?}");
        }
        remove(calls, NETWORK, wanted(2, 102).mac, "node-2").await.expect("removed");
    }
    let nowhere = Reservation { network: "nowhere".into(), ..wanted(3, 103) };
    assert_eq!(
        ensure(calls, &nowhere, &[], ALL_LEASES).await.expect_err("no network").kind(),
        ErrorKind::NotFound
    );
    remove(calls, "nowhere", nowhere.mac, &nowhere.name).await.expect("nothing to remove");
}
