//! Tests of what a look-up answers, from state to answer.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, advance};

use super::*;
use crate::management::{
    history::{History, Origin},
    inventory::{Change, Inventory, Listing, Machines, State},
    machine::KnownAddresses,
};

const UID: &str = "7f3a1c52-9e0b-4d6a-8a53-0d5f2b7c9e11";
const OTHER: &str = "0b5f0c4e-7a54-4f6a-9c5c-0e9f6f3a5d11";

fn machine(key: &str, name: &str) -> Machine {
    let internal: IpAddr = "10.0.0.1".parse().expect("an IP");
    Machine {
        key: key.to_owned(),
        shown: format!("Machine fleet-default/{name}"),
        names: BTreeSet::from([name.to_owned()]),
        addresses: KnownAddresses { internal: vec![internal], external: Vec::new() },
        ..Machine::default()
    }
}

fn bound(key: &str, name: &str, node: &str) -> Machine {
    Machine { node: Some(node.to_owned()), ..machine(key, name) }
}

fn seconds(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Of a provisioning Cluster that is older than all Nodes here.
fn origin(revision: u64) -> Origin {
    Origin { uid: "cluster-1".to_owned(), created: Some(seconds(10)), revision: Some(revision) }
}

/// A complete listing of Machines.
fn list(machines: &Machines, origin: Origin, listed: &[Machine]) {
    let listing = Listing {
        cluster: "c-m-abcdefgh".to_owned(),
        source_of_truth: SourceOfTruth::Machines,
        is_watched: true,
        origin: Some(origin),
        is_active: true,
        machines: listed.to_vec(),
        ..Listing::default()
    };
    machines.replace(listing, Instant::now());
}

fn state(machines: impl IntoIterator<Item = Machine>) -> State {
    let mut history = History::default();
    history.go_on(origin(100));
    State {
        cluster: "c-m-abcdefgh".to_owned(),
        source_of_truth: SourceOfTruth::Machines,
        is_active: true,
        inventory: Inventory::new(machines),
        history,
        listed: Some(Instant::now()),
        ..State::default()
    }
}

fn node(name: &str) -> NodeIdentity {
    NodeIdentity { name: name.to_owned(), ..NodeIdentity::default() }
}

fn with_id(name: &str, key: &str) -> NodeIdentity {
    let created = Some(seconds(20));
    NodeIdentity { provider_id: Some(format!("rancher://c-m-abcdefgh/{key}")), created, ..node(name) }
}

fn with_label(name: &str, uid: &str) -> NodeIdentity {
    NodeIdentity { labels: [(MACHINE_LABEL.to_owned(), uid.to_owned())].into(), ..node(name) }
}

/// The answer in a word.
fn answer(node: &NodeIdentity, state: &State) -> String {
    match resolve(node, state, &Rules::default()) {
        Resolution::Settled(InstanceLookup::Present(instance)) => {
            format!("present {}", instance.provider_id.as_ref().map_or("", |id| id.as_str()))
        }
        Resolution::Settled(InstanceLookup::Absent) => "absent".to_owned(),
        Resolution::Settled(InstanceLookup::Unknown(error)) => {
            format!("{}: {}", error.kind(), error.report())
        }
        Resolution::Starting(_) => "starting".to_owned(),
        Resolution::NotListed(Missing::Machine(missing) | Missing::Name(missing)) => {
            format!("nowhere {missing}")
        }
    }
}

fn is(node: &NodeIdentity, state: &State, expected: &str) {
    let answer = answer(node, state);
    assert!(answer.starts_with(expected), "{}: {answer}, and not {expected}", node.name);
}

#[test]
fn the_label_decides_and_is_checked() {
    let id = format!("present rancher://c-m-abcdefgh/{UID}");
    for (machine, name, expected) in [
        (machine(UID, "pool-1"), "pool-1", id.as_str()),
        (machine(UID, "pool-1"), "POOL-1.example.org", &id),
        (bound(UID, "pool-1", "node-1"), "node-1", &id),
        // Names that Rancher cuts to a length.
        (machine(UID, "a-very-long-name-of-a-pool-1"), "a-very-long-0f3c9", &id),
        (machine(UID, "pool-1"), "node-1", "conflict"),
        (bound(UID, "pool-1", "node-1"), "pool-1", "conflict"),
        (machine(UID, "a-very-long-name-of-a-pool-1"), "a-very-wide-0f3c9", "conflict"),
        (machine(UID, "a-very-long-name-of-a-pool-1"), "a-very-long-xxxxx", "conflict"),
        (machine(OTHER, "pool-1"), "pool-1", "conflict"),
    ] {
        is(&with_label(name, UID), &state([machine]), expected);
    }
    // A restored management cluster: the label has the old UID, and Rancher knows the Node.
    is(&with_label("node-1", UID), &state([bound(OTHER, "pool-1", "node-1")]), "present");
}

#[test]
fn without_a_label_ranchers_own_binding_decides_and_then_the_name() {
    let all =
        state([bound(UID, "pool-1", "node-1"), machine(OTHER, "node-2"), bound("c", "node-3", "node-4")]);
    is(&node("node-1"), &all, &format!("present rancher://c-m-abcdefgh/{UID}"));
    is(&node("NODE-2.example.org"), &all, &format!("present rancher://c-m-abcdefgh/{OTHER}"));
    is(&node("node-3"), &all, "nowhere");
    is(&node("pool-1"), &all, "nowhere");
    let twins = state([machine(UID, "node-1.example.org"), machine(OTHER, "node-1.example.com")]);
    is(&node("node-1"), &twins, "ambiguous");
    is(&node("node-1.example.org"), &twins, &format!("present rancher://c-m-abcdefgh/{UID}"));
}

/// Both may join the cluster, and only one of them is the machine's.
#[test]
fn a_machine_that_is_bound_to_a_similar_name_is_not_given_to_another_node() {
    for (bound_to, name) in [("node-1.example.org", "node-1"), ("node-1", "node-1.example.org")] {
        let all = state([bound(UID, "pool-1", bound_to)]);
        is(&node(name), &all, "ambiguous: Machine fleet-default/pool-1 is bound to the Node");
        is(&node(bound_to), &all, "present");
        // The label is proof enough, together with the name.
        is(&with_label(name, UID), &all, "present");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_without_a_machine_is_remembered_until_one_comes_or_the_listing_is_old() {
    let (stays, nobody) = (machine(UID, "node-1"), node("Node-2"));
    let name = || vec![Missing::Name("node-2".to_owned())];
    let machines = Machines::new();
    list(&machines, origin(100), std::slice::from_ref(&stays));
    is(&nobody, &machines.state(), "nowhere node-2");
    machines.note_absences(name());
    is(&nobody, &machines.state(), "absent");
    // Each listing confirms it.
    advance(Duration::from_secs(300)).await;
    is(&nobody, &machines.state(), "nowhere node-2");
    list(&machines, origin(100), std::slice::from_ref(&stays));
    is(&nobody, &machines.state(), "absent");
    // A machine comes, and goes again: that is another question.
    machines.apply(Change::Put(Box::new(machine(OTHER, "node-2"))));
    is(&nobody, &machines.state(), "present");
    machines.note_absences(name());
    machines.apply(Change::Remove(OTHER.to_owned()));
    is(&nobody, &machines.state(), "nowhere node-2");
}

#[tokio::test(start_paused = true)]
async fn an_absence_counts_for_longer_while_the_machines_are_watched() {
    let nobody = node("node-2");
    let seconds = async |source_of_truth, is_watched, note_unwatched: bool| {
        let machines = Machines::new();
        let listing = Listing {
            source_of_truth,
            is_watched,
            is_active: true,
            machines: vec![machine(UID, "node-1")],
            ..Listing::default()
        };
        let began = Instant::now();
        machines.replace(listing, began);
        if note_unwatched {
            machines.note_unwatched(began);
        }
        machines.note_absences(vec![Missing::Name("node-2".to_owned())]);
        while matches!(resolve(&nobody, &machines.state(), &Rules::default()), Resolution::Settled(_)) {
            advance(Duration::from_secs(1)).await;
        }
        began.elapsed().as_secs()
    };
    for source_of_truth in [SourceOfTruth::Machines, SourceOfTruth::Mirror] {
        assert_eq!(seconds(source_of_truth, true, false).await, 300, "{source_of_truth:?}");
        assert_eq!(seconds(source_of_truth, false, false).await, 30, "{source_of_truth:?}");
        // The right to watch may be missing.
        assert_eq!(seconds(source_of_truth, true, true).await, 30, "{source_of_truth:?}");
    }
}

#[test]
fn a_provider_id_decides_alone() {
    let all = state([bound(UID, "pool-1", "node-1")]);
    is(&with_id("whatever", UID), &all, "present");
    is(&with_id("whatever", &UID.to_uppercase()), &all, "present");
    is(&with_id("node-9", OTHER), &all, &format!("nowhere {OTHER}"));
    is(&with_id("node-1", OTHER), &all, "conflict");
    let elsewhere = NodeIdentity { provider_id: Some(format!("rancher://c-other/{UID}")), ..node("node-1") };
    is(&elsewhere, &all, "invalid_input");
    let cattle = NodeIdentity { provider_id: Some(format!("rancher://{UID}")), ..node("node-1") };
    is(&cattle, &all, "invalid_input");
    let mirrored = with_id("node-9", "machine-abcde");
    is(&mirrored, &all, "conflict");
    let copied = Machine { provider_id: mirrored.provider_id.clone(), ..machine(UID, "pool-1") };
    is(&mirrored, &state([copied]), "present rancher://c-m-abcdefgh/machine-abcde");
}

#[test]
fn only_what_is_known_to_be_gone_is_absent() {
    let mut all = state([machine(UID, "node-1")]);
    all.gone.insert(OTHER.to_owned());
    is(&with_id("old", OTHER), &all, "absent");
    all.infrastructure.insert(OTHER.to_owned(), "custom-9".to_owned());
    is(&with_id("old", OTHER), &all, "in_progress");
    all.infrastructure.clear();
    for kind in [
        ErrorKind::Unauthenticated,
        ErrorKind::PermissionDenied,
        ErrorKind::Unavailable,
        ErrorKind::RateLimited,
    ] {
        all.staleness = Some((Error::new(kind, "away"), Instant::now()));
        for node in [with_id("old", OTHER), with_id("node-1", UID), node("node-1"), node("nobody")] {
            is(&node, &all, kind.as_str());
        }
    }
    all.staleness = None;
    all.inventory = Inventory::default();
    is(&with_id("old", OTHER), &all, "unavailable");
    is(&node("old"), &all, "unavailable");
    all.listed = None;
    is(&with_id("old", OTHER), &all, "starting");
}

/// `OTHER` is the Machine of the Node `old`.
#[test]
fn a_machine_that_is_deleted_is_gone() {
    let (old, stays) = (with_id("old", OTHER), machine(UID, "node-1"));
    // By a watch, and by the next listing.
    for is_watched in [true, false] {
        let machines = Machines::new();
        list(&machines, origin(100), &[stays.clone(), bound(OTHER, "pool-2", "old")]);
        is(&old, &machines.state(), "present");
        if is_watched {
            machines.apply(Change::Remove(OTHER.to_owned()));
        } else {
            list(&machines, origin(101), std::slice::from_ref(&stays));
        }
        is(&old, &machines.state(), "absent");
        // What a listing of nodes says meanwhile changes nothing: another listing of Machines confirms it.
        let mirror = Listing { cluster: "c-m-abcdefgh".to_owned(), ..Listing::default() };
        machines.replace(mirror, Instant::now());
        list(&machines, origin(102), std::slice::from_ref(&stays));
        is(&old, &machines.state(), &format!("nowhere {OTHER}"));
    }
    // A daemon that starts later never sees it. A second listing confirms that.
    let machines = Machines::new();
    list(&machines, origin(101), std::slice::from_ref(&stays));
    is(&old, &machines.state(), &format!("nowhere {OTHER}"));
}

#[test]
fn a_machine_that_a_restore_loses_is_not_gone() {
    let old = with_id("old", OTHER);
    let all = [machine(UID, "node-1"), bound(OTHER, "pool-2", "old")];
    let anew = Origin { uid: "cluster-2".to_owned(), created: Some(seconds(30)), revision: Some(200) };
    // A backup of etcd that is older than the Machine, and objects that are created anew.
    for restored in [origin(50), anew.clone()] {
        let machines = Machines::new();
        list(&machines, origin(100), &all);
        list(&machines, restored.clone(), &all[..1]);
        is(&old, &machines.state(), "conflict");
        assert!(answer(&old, &machines.state()).contains("was restored from a backup"));
        // Time proves nothing, but a deletion that is seen after the restore does.
        let later = Origin { revision: Some(300), ..restored };
        list(&machines, later.clone(), &all[..1]);
        is(&old, &machines.state(), "conflict");
        list(&machines, later.clone(), &all);
        list(&machines, later, &all[..1]);
        is(&old, &machines.state(), "absent");
    }
    // What was gone before may be back, or not be known as gone.
    let machines = Machines::new();
    list(&machines, origin(100), &all);
    list(&machines, origin(101), &all[..1]);
    list(&machines, origin(50), &all[..1]);
    is(&old, &machines.state(), "conflict");
    // A daemon that starts after the restore: all objects are younger than the Node.
    let machines = Machines::new();
    list(&machines, anew, &all[..1]);
    is(&old, &machines.state(), "conflict");
    assert!(answer(&old, &machines.state()).contains("younger than this node"));
}

/// After a restore a Machine has a new UID, and neither a Node nor a provider ID yet.
#[test]
fn a_machine_with_the_nodes_name_stops_its_absence() {
    for (twin, name) in [
        (machine(UID, "node-1"), "node-1"),
        (machine(UID, "node-1"), "Node-1.example.org"),
        (machine(UID, "a-very-long-name-of-a-pool-1"), "a-very-long-0f3c9"),
        (bound(UID, "pool-1", "node-1.example.org"), "node-1"),
    ] {
        let mut all = state([twin]);
        is(&with_id(name, OTHER), &all, "conflict");
        all.gone.insert(OTHER.to_owned());
        is(&with_id(name, OTHER), &all, "conflict");
        is(&with_id("node-2", OTHER), &all, "absent");
    }
}

#[test]
fn a_mirror_proves_no_absence() {
    let mut all = state([bound("machine-abcde", "node-1", "node-1")]);
    all.source_of_truth = SourceOfTruth::Mirror;
    all.gone.insert(OTHER.to_owned());
    is(&with_id("old", OTHER), &all, "unavailable");
    is(&with_id("node-1", OTHER), &all, "unavailable");
    is(&with_label("node-1", UID), &all, "present rancher://c-m-abcdefgh/machine-abcde");
    is(&node("nobody"), &all, "nowhere");
    all.is_active = false;
    is(&node("nobody"), &all, "unavailable");
}

#[test]
fn the_provider_id_that_rancher_has_is_followed() {
    let restored = format!("rancher://c-m-abcdefgh/{OTHER}");
    let copy = |id: &str| state([Machine { provider_id: Some(id.to_owned()), ..machine(UID, "node-1") }]);
    is(&node("node-1"), &copy(&restored), &format!("present {restored}"));
    is(&with_id("x", OTHER), &copy(&restored), &format!("present {restored}"));
    is(&node("node-1"), &copy(&format!("rancher://c-m-abcdefgh/{UID}")), "present");
    for foreign in ["rke2://node-1", "k3s://node-1", "harvester://1", "rancher://1"] {
        is(&node("node-1"), &copy(foreign), "conflict");
        // The Node's own ID was written here, so it stays.
        is(&with_id("node-1", UID), &copy(foreign), &format!("present rancher://c-m-abcdefgh/{UID}"));
    }
}

#[test]
fn zones_and_types_are_the_machines() {
    let look = |machine: Machine, source_of_truth| {
        let state = State { source_of_truth, ..state([machine]) };
        match resolve(&node("node-1"), &state, &Rules::default()) {
            Resolution::Settled(InstanceLookup::Present(instance)) => *instance,
            other => panic!("{other:?}"),
        }
    };
    let plain = || machine(UID, "node-1");
    let metadata = look(plain(), SourceOfTruth::Machines).metadata;
    assert_eq!((metadata.zone, metadata.instance_type.as_deref()), (None, Some("rancher")));
    assert_eq!(look(plain(), SourceOfTruth::Mirror).metadata.instance_type, None);
    let placed = Machine { failure_domain: Some("fd-1".to_owned()), ..plain() };
    assert_eq!(look(placed.clone(), SourceOfTruth::Machines).metadata.zone.as_deref(), Some("fd-1"));
    let label = [("topology.kubernetes.io/zone".to_owned(), "rack-7".to_owned())].into();
    let labelled =
        Machine { labels: label, instance_type: Some("VmwarevsphereMachine".to_owned()), ..placed };
    let metadata = look(labelled, SourceOfTruth::Machines).metadata;
    assert_eq!(metadata.zone.as_deref(), Some("rack-7"));
    assert_eq!(metadata.instance_type.as_deref(), Some("VmwarevsphereMachine"));
    let leaving = look(Machine { is_leaving: true, ..plain() }, SourceOfTruth::Machines);
    assert_eq!((leaving.power_state, leaving.power_state.is_shutdown()), (PowerState::ShuttingDown, false));
    let unaddressed =
        look(Machine { addresses: KnownAddresses::default(), ..plain() }, SourceOfTruth::Machines);
    assert_eq!(unaddressed.incomplete.map(|error| error.kind()), Some(ErrorKind::InProgress));
}
