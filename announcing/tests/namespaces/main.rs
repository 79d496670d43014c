//! Addresses in real network namespaces, with real neighbours.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, unreachable_pub)]

mod lan;

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use announcing::LIFETIME;

use crate::lan::{Host, Lan, PATIENCE, within};

const SECOND: Duration = Duration::from_secs(1);

const ADDRESSES: [&str; 2] = ["10.77.0.100", "fd77::100"];
const BOTH: &str = "10.77.0.100 fd77::100";

/// Waits until no address is left.
fn are_gone(host: &Host) {
    within(PATIENCE, "no address", || ADDRESSES.iter().all(|address| !host.has(address)));
}

/// Waits until the client reaches both addresses on `host`, and returns how long that took.
fn answers_from(client: &Host, host: &Host) -> Duration {
    let mac = host.mac();
    within(PATIENCE, "the client reaches the new host", || {
        ADDRESSES
            .iter()
            .all(|address| client.reaches(address) && client.neighbour(address).as_ref() == Some(&mac))
    })
}

#[test]
fn neighbours_follow_an_address_to_another_host() {
    let Some(lan) = Lan::new() else { return };
    let first = lan.a.hold(BOTH);
    answers_from(&lan.client, &lan.a);
    // as at a change of the leader, the second one comes when the first one has released its addresses
    first.signal("TERM");
    first.ended();
    assert!(ADDRESSES.iter().all(|address| !lan.a.has(address)));
    let began = Instant::now();
    let _second = lan.b.hold(BOTH);
    answers_from(&lan.client, &lan.b);
    eprintln!("the client reached the second host {:?} after its start", began.elapsed());
}

#[test]
fn neighbours_believe_the_newer_announcement() {
    let Some(lan) = Lan::new() else { return };
    let _first = lan.a.hold(BOTH);
    answers_from(&lan.client, &lan.a);
    // The first host still has the addresses, so only the announcements can change the client's mind.
    let _second = lan.b.hold(BOTH);
    let mac = lan.b.mac();
    within(PATIENCE, "the announcement", || {
        ADDRESSES.iter().all(|address| lan.client.neighbour(address).as_ref() == Some(&mac))
    });
}

#[test]
fn the_kernel_removes_the_addresses_of_a_process_that_is_killed() {
    let Some(lan) = Lan::new() else { return };
    let holder = lan.a.hold(BOTH);
    // long enough that only renewed addresses are there at the end
    sleep(LIFETIME);
    assert!(ADDRESSES.iter().all(|address| lan.a.has(address)));
    holder.signal("KILL");
    for address in ADDRESSES {
        assert!(lan.a.keeps(address) <= LIFETIME, "{:?}", lan.a.keeps(address));
    }
    are_gone(&lan.a);
}

#[test]
fn no_address_outlives_its_limit() {
    let Some(lan) = Lan::new() else { return };
    let limit = 11 * SECOND;
    let holder = lan.a.hold(&format!("--for {} {BOTH}", limit.as_secs()));
    let held = Instant::now();
    // Long enough that they were renewed, and with shorter lives.
    sleep(6 * SECOND);
    let are_held = ADDRESSES.iter().all(|address| lan.a.has(address));
    // On a machine that stood still the limit may have passed.
    assert!(are_held || held.elapsed() + SECOND > limit);
    holder.signal("KILL");
    for address in ADDRESSES {
        let left = limit.saturating_sub(held.elapsed());
        let keeps = lan.a.keeps(address);
        // `ip` rounds up.
        assert!(keeps <= left + SECOND, "{keeps:?}, and {left:?} are left");
    }
    are_gone(&lan.a);
}

#[test]
fn a_process_whose_time_is_over_does_not_come_back() {
    let Some(lan) = Lan::new() else { return };
    let limit = 6 * SECOND;
    let holder = lan.a.hold(&format!("--for {} {BOTH}", limit.as_secs()));
    let held = Instant::now();
    holder.signal("STOP");
    are_gone(&lan.a);
    sleep(limit.saturating_sub(held.elapsed()));
    holder.signal("CONT");
    let continued = Instant::now();
    while continued.elapsed() < 5 * SECOND {
        let is_gone = ADDRESSES.iter().all(|address| !lan.a.has(address));
        assert!(is_gone, "set again after {:?}", continued.elapsed());
        sleep(SECOND / 10);
    }
}

#[test]
fn a_process_that_stood_still_sets_its_addresses_again() {
    let Some(lan) = Lan::new() else { return };
    let holder = lan.a.hold(BOTH);
    holder.signal("STOP");
    are_gone(&lan.a);
    sleep(SECOND);
    holder.signal("CONT");
    answers_from(&lan.client, &lan.a);
}

#[test]
fn a_successor_on_the_same_host_takes_over_what_is_left() {
    let Some(lan) = Lan::new() else { return };
    let before = lan.a.hold(BOTH);
    before.signal("KILL");
    let _after = lan.a.hold(&format!("--interface lo {BOTH}"));
    // one each, on the new interface
    for address in ADDRESSES {
        let lines: Vec<_> = lan.a.ip("-o address show").lines().map(str::to_owned).collect();
        let with: Vec<_> = lines.iter().filter(|line| line.contains(&format!("{address}/"))).collect();
        assert!(matches!(&with[..], [line] if line.contains(" lo ")), "{with:?}");
    }
}

#[test]
fn addresses_are_marked_and_never_a_source() {
    let Some(lan) = Lan::new() else { return };
    let _holder = lan.a.hold(BOTH);
    let shown = lan.a.ip("-d -o address show dev eth0");
    for (address, length) in ADDRESSES.iter().zip([32, 128]) {
        let line =
            shown.lines().find(|line| line.contains(&format!("{address}/{length} "))).expect("the address");
        assert!(line.contains("deprecated") && line.contains("preferred_lft 0sec"), "{line}");
    }
    // the source of connections to a neighbour
    assert!(lan.a.ip("route get 10.77.0.1").contains("src 10.77.0.2 "));
    assert!(lan.a.ip("route get fd77::1").contains("src fd77::2 "));
}

#[test]
fn an_address_of_somebody_else_is_left_alone() {
    let Some(lan) = Lan::new() else { return };
    lan.a.ip("address add 10.77.0.100/32 dev lo");
    let before = lan.a.ip("address show dev lo");
    let words = lan.a.hold_fails("--interface eth0 10.77.0.100");
    assert!(words.contains("10.77.0.100 is an address of interface lo on this host already"), "{words}");
    let words = lan.a.hold_fails("fd77::2");
    assert!(words.contains("fd77::2 is an address of interface eth0 on this host already"), "{words}");
    assert_eq!(lan.a.ip("address show dev lo"), before);
}

#[test]
fn an_address_that_a_neighbour_has_is_found_on_the_network() {
    let Some(lan) = Lan::new() else { return };
    lan.b.ip("address add 10.77.0.100/24 dev eth0");
    lan.b.ip("address add fd77::100/64 dev eth0 nodad");
    let mac = lan.b.mac();
    for address in ADDRESSES {
        let words = lan.a.hold_fails(&format!("--probe {address}"));
        let expected =
            format!("{address} is in use on the network of interface eth0: the host at {mac} has it");
        assert!(words.contains(&expected), "{words}");
        assert!(!lan.a.has(address));
        // Nobody learnt from the question that the address is elsewhere.
        assert!(lan.client.reaches(address) && lan.client.neighbour(address).as_ref() == Some(&mac));
    }
    let words = lan.a.hold_fails("--probe 10.77.0.2");
    assert!(words.contains("is an address of interface eth0 on this host already"), "{words}");
}

#[test]
fn an_address_that_another_leader_holds_is_found_on_the_network() {
    let Some(lan) = Lan::new() else { return };
    let holder = lan.b.hold(BOTH);
    for address in ADDRESSES {
        let words = lan.a.hold_fails(&format!("--probe {address}"));
        assert!(words.contains("is in use on the network"), "{words}");
    }
    holder.signal("TERM");
    holder.ended();
    let _held = lan.a.hold(&format!("--probe {BOTH}"));
    answers_from(&lan.client, &lan.a);
}

#[test]
fn nobody_is_asked_where_there_are_no_neighbours() {
    let Some(lan) = Lan::new() else { return };
    let _held = lan.a.hold("--probe --interface lo 10.99.0.1 fd99::1");
    lan.carrier(3, "down");
    let _waiting = lan.b.hold(&format!("--probe {BOTH}"));
}

#[test]
fn somebody_makes_an_address_their_own() {
    let Some(lan) = Lan::new() else { return };
    let holder = lan.a.hold("10.77.0.100");
    lan.a.ip("address del 10.77.0.100/32 dev eth0");
    lan.a.ip("address add 10.77.0.100/32 dev eth0");
    // over a renewal
    sleep(4 * SECOND);
    holder.signal("TERM");
    holder.ended();
    assert!(
        lan.a
            .ip("-o address show dev eth0")
            .contains("10.77.0.100/32 scope global eth0\\       valid_lft forever")
    );
}

#[test]
fn an_interface_loses_its_carrier() {
    let Some(lan) = Lan::new() else { return };
    let _holder = lan.a.hold(BOTH);
    answers_from(&lan.client, &lan.a);
    lan.carrier(2, "down");
    lan.client.ip("neigh flush all");
    sleep(SECOND / 2);
    lan.carrier(2, "up");
    answers_from(&lan.client, &lan.a);
}

#[test]
fn an_interface_is_replaced() {
    let Some(lan) = Lan::new() else { return };
    let _holder = lan.a.hold(BOTH);
    answers_from(&lan.client, &lan.a);
    lan.a.ip("link delete eth0");
    sleep(SECOND / 2);
    lan.connect(&lan.a, 2);
    // the new interface has another Ethernet address
    answers_from(&lan.client, &lan.a);
}

#[test]
fn loopback_holds_addresses_without_announcing_them() {
    let Some(lan) = Lan::new() else { return };
    let _holder = lan.a.hold("--interface lo 10.99.0.1 fd99::1");
    assert!(lan.a.reaches("10.99.0.1") && lan.a.reaches("fd99::1"));
}

#[test]
fn errors_say_what_is_missing() {
    let Some(lan) = Lan::new() else { return };
    let words = lan.a.hold_fails("--interface eth9 10.77.0.100");
    assert!(
        words.contains("there is no interface \\\"eth9\\\" on this host; there are: lo, eth0"),
        "{words}"
    );
    let words = lan.a.hold_fails("192.0.2.1");
    assert!(words.contains("no interface of this host fits 192.0.2.1"), "{words}");
    let words = lan.a.hold_fails_without("net_admin", "10.77.0.100");
    assert!(words.contains("capability NET_ADMIN"), "{words}");
    let words = lan.a.hold_fails_without("net_raw", "10.77.0.100");
    assert!(words.contains("capability NET_RAW"), "{words}");
    lan.a.sysctl("net.ipv6.conf.eth0.disable_ipv6", "1");
    let words = lan.a.hold_fails("--interface eth0 fd77::100");
    assert!(words.contains("net.ipv6.conf.eth0.disable_ipv6"), "{words}");
    // a default route is good enough
    lan.a.ip("route add default via 10.77.0.1");
    lan.a.hold("192.0.2.1");
}
