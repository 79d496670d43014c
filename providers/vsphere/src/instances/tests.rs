//! Tests of look-ups, with vCenters made up by the tests.

use std::{collections::BTreeMap, sync::Arc};

use cloudprovider::NodeAddress;
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};

use super::*;
use crate::{
    http::Endpoint,
    inventory::Changes,
    moref::MoRef,
    testing::scripted::{node as element, reference, text},
    vcenter::Settings,
    vim::{
        CallError,
        element::Element,
        property_collector::{ObjectUpdate, UpdateKind},
    },
    zones::Tag,
};

const UUID: &str = "422e4956-ad22-1139-8d72-59cc8f26bc90";
const SWAPPED: &str = "56492e42-22ad-3911-8d72-59cc8f26bc90";
const OTHER: &str = "5a3c0de0-0000-4000-8000-000000000001";

fn vcenter(name: &str, host: &str, datacenters: &[&str]) -> VCenter {
    let settings = Settings {
        name: name.to_owned(),
        endpoint: Endpoint {
            host: host.to_owned(),
            port: 443,
            ca_files: Vec::new(),
            thumbprint: None,
            insecure: false,
        },
        datacenters: datacenters.iter().map(|&word| word.to_owned()).collect(),
        access: Arc::new(|| Err("none".to_owned())),
        tag_refresh: None,
    };
    VCenter::new(settings, broadcast::channel(1).0, watch::channel(0).0)
}

fn put(vcenter: &VCenter, kind: &str, id: &str, properties: &[(&str, Element)]) {
    let properties = properties.iter().map(|(name, value)| (*name, Some(value))).collect();
    let update = ObjectUpdate { object: MoRef::new(kind, id), kind: UpdateKind::Enter, properties };
    vcenter.update(|state| state.inventory.apply(&[update]));
}

/// Puts a vCenter into the state of being followed without a gap.
fn live(vcenter: VCenter) -> VCenter {
    vcenter.update(|state| {
        (state.is_listed, state.is_live) = (true, true);
        Changes::default()
    });
    vcenter
}

/// A running machine with an address of each family.
fn machine(vcenter: &VCenter, id: &str, uuid: &str, host_name: &str) {
    let nic = element(
        "GuestNicInfo",
        vec![
            text("network", "VM Network"),
            text("ipAddress", "10.0.0.1"),
            text("ipAddress", "10.0.0.2"),
            text("ipAddress", "fd00::1"),
            text("deviceConfigId", "4000"),
        ],
    );
    let properties = [
        ("name", text("val", &format!("machine of {id}"))),
        ("config.uuid", text("val", uuid)),
        ("guest.hostName", text("val", host_name)),
        ("guest.net", element("val", vec![nic])),
        ("runtime.powerState", text("val", "poweredOn")),
    ];
    put(vcenter, "VirtualMachine", id, &properties);
}

fn rules() -> Rules {
    Rules { addresses: AddressRules::default(), labels: ZoneLabels::default(), skip_node_deletion: false }
}

fn node(name: &str, provider_id: Option<&str>, system_uuid: Option<&str>) -> NodeIdentity {
    NodeIdentity {
        name: name.to_owned(),
        provider_id: provider_id.map(str::to_owned),
        system_uuid: system_uuid.map(str::to_owned),
        ..NodeIdentity::default()
    }
}

fn ask(vcenters: &[&VCenter], rules: &Rules, node: &NodeIdentity) -> Answer {
    ask_again(vcenters, rules, node, &Seen::default())
}

/// With what was found before.
fn ask_again(vcenters: &[&VCenter], rules: &Rules, node: &NodeIdentity, seen: &Seen) -> Answer {
    let sites =
        vcenters.iter().map(|&vcenter| Site { vcenter, families: &[Family::Ipv4], state: vcenter.state() });
    View::new(sites.collect(), rules, seen).look_up(node)
}

#[track_caller]
fn present(answer: Answer) -> Instance {
    match answer {
        Answer::Settled(InstanceLookup::Present(instance)) => *instance,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn unknown(answer: Answer) -> Error {
    match answer {
        Answer::Settled(InstanceLookup::Unknown(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_is_found_by_every_form_of_its_provider_id() {
    let vc = live(vcenter("vc", "a", &[]));
    machine(&vc, "vm-1", UUID, "n");
    let instance_uuid = "50aa0000-0000-4000-8000-000000000001";
    put(&vc, "VirtualMachine", "vm-1", &[("config.instanceUuid", text("val", instance_uuid))]);
    let bare = UUID.replace('-', "").to_uppercase();
    for id in [UUID, SWAPPED, &bare, &format!("/{UUID}"), instance_uuid] {
        let found = present(ask(&[&vc], &rules(), &node("other", Some(&format!("vsphere://{id}")), None)));
        assert_eq!(found.provider_id.as_ref().expect("an ID").as_str(), format!("vsphere://{UUID}"), "{id}");
    }
    let error = unknown(ask(&[&vc], &rules(), &node("n", Some("vsphere://n"), Some(UUID))));
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn the_byte_order_that_stands_there_is_meant() {
    let vc = live(vcenter("vc", "a", &[]));
    machine(&vc, "vm-1", UUID, "a");
    machine(&vc, "vm-2", SWAPPED, "b");
    let found = present(ask(&[&vc], &rules(), &node("x", Some(&format!("vsphere://{SWAPPED}")), None)));
    assert_eq!(found.provider_id.as_ref().expect("an ID").as_str(), format!("vsphere://{SWAPPED}"));
    // the guest's UUID may mean either machine
    let error = unknown(ask(&[&vc], &rules(), &node("x", None, Some(UUID))));
    assert_eq!(error.kind(), ErrorKind::Ambiguous);
}

#[test]
fn a_new_node_is_found_by_its_firmware_and_then_by_its_name() {
    let vc = live(vcenter("vc", "a", &[]));
    machine(&vc, "vm-1", UUID, "Node-A");
    for (name, uuid) in [
        ("x", Some(UUID)),
        ("x", Some(&*UUID.to_uppercase())),
        ("x", Some(SWAPPED)),
        ("node-a", None),
        ("node-a", Some("00000000-0000-0000-0000-000000000000")),
    ] {
        let found = present(ask(&[&vc], &rules(), &node(name, None, uuid)));
        assert_eq!(
            found.provider_id.as_ref().expect("an ID").as_str(),
            format!("vsphere://{UUID}"),
            "{name} {uuid:?}"
        );
    }
    // a name proves nothing while a machine with the Node's own UUID may be in an unreachable vCenter
    let away = vcenter("away", "b", &[]);
    away.update(|state| {
        state.is_listed = true;
        Changes::default()
    });
    let error = unknown(ask(&[&vc, &away], &rules(), &node("node-a", None, Some(OTHER))));
    assert!(error.to_string().contains("\"away\""), "{error}");
    assert!(matches!(
        ask(&[&vc, &away], &rules(), &node("x", None, Some(UUID))),
        Answer::Settled(InstanceLookup::Present(_))
    ));
}

#[test]
fn a_name_is_not_enough_where_the_uuids_differ() {
    let vc = live(vcenter("vc", "a", &[]));
    machine(&vc, "vm-1", UUID, "node-a");
    let Answer::Misnamed(uuid, error) = ask(&[&vc], &rules(), &node("node-a", None, Some(OTHER))) else {
        panic!("taken over")
    };
    assert_eq!(uuid, OTHER.parse::<Uuid>().expect("a UUID"));
    let words = error.to_string();
    assert!(words.contains(OTHER) && words.contains(UUID) && words.contains("vm-1"), "{words}");
    // an initialised Node is identified by its provider ID only
    let wanted = node("node-a", Some(&format!("vsphere://{UUID}")), Some(OTHER));
    present(ask(&[&vc], &rules(), &wanted));
    // a guest that reports nothing proves nothing either
    put(
        &vc,
        "VirtualMachine",
        "vm-2",
        &[("name", text("val", "node-b")), ("config.uuid", text("val", SWAPPED))],
    );
    let answer = ask(&[&vc], &rules(), &node("node-b", None, Some(OTHER)));
    assert!(matches!(answer, Answer::Misnamed(..)), "{answer:?}");
}

#[test]
fn a_machine_whose_guest_says_nothing_is_named() {
    let vc = live(vcenter("vc", "a", &[]));
    let properties = [
        ("name", text("val", "node-a")),
        ("config.uuid", text("val", UUID)),
        ("runtime.powerState", text("val", "poweredOn")),
        ("guest.toolsRunningStatus", text("val", "guestToolsNotRunning")),
        ("guest.toolsVersionStatus2", text("val", "guestToolsNotInstalled")),
    ];
    put(&vc, "VirtualMachine", "vm-1", &properties);
    let found = present(ask(&[&vc], &rules(), &node("node-a", None, None)));
    let why = found.incomplete.map(|why| why.to_string()).unwrap_or_default();
    assert!(why.contains("VMware Tools are not installed") && why.contains("vm-1"), "{why}");
    // once the guest reports a host name, the machine's name in vCenter does not count
    machine(&vc, "vm-2", OTHER, "guest");
    put(&vc, "VirtualMachine", "vm-2", &[("name", text("val", "node-b"))]);
    assert!(matches!(ask(&[&vc], &rules(), &node("node-b", None, None)), Answer::Nowhere(_)));
}

#[test]
fn copies_that_nothing_tells_apart_are_an_error_that_names_both() {
    let (one, two) = (live(vcenter("one", "a", &[])), live(vcenter("two", "b", &[])));
    machine(&one, "vm-1", UUID, "a");
    machine(&two, "vm-1", UUID, "a");
    for wanted in [node("a", None, Some(UUID)), node("a", Some(&format!("vsphere://{UUID}")), None)] {
        let error = unknown(ask(&[&one, &two], &rules(), &wanted));
        assert_eq!(error.kind(), ErrorKind::Ambiguous);
        let words = error.to_string();
        assert!(
            words.contains("vm-1 in vCenter \"one\"") && words.contains("vm-1 in vCenter \"two\""),
            "{words}"
        );
    }
}

/// A replica of a backup tool, an entry that vCenter has kept, a copy in another vCenter.
#[test]
fn of_copies_the_one_is_meant_that_is_the_nodes_by_what_is_known() {
    let other_address = || {
        let children = vec![text("ipAddress", "10.0.0.9"), text("deviceConfigId", "4000")];
        element("val", vec![element("GuestNicInfo", children)])
    };
    let power = |word: &str| vec![("runtime.powerState", text("val", word))];
    let connection = |word: &str| vec![("runtime.connectionState", text("val", word))];
    for (what, is_elsewhere, copy) in [
        ("off", false, power("poweredOff")),
        ("off", true, power("poweredOff")),
        ("suspended", false, power("suspended")),
        ("orphaned", false, connection("orphaned")),
        ("inaccessible", true, connection("inaccessible")),
        ("invalid", false, connection("invalid")),
        ("another guest", false, vec![("guest.hostName", text("val", "b"))]),
        ("another guest", true, vec![("guest.hostName", text("val", "b"))]),
        ("another address", true, vec![("guest.net", other_address())]),
    ] {
        let (one, two) = (live(vcenter("one", "a", &[])), live(vcenter("two", "b", &[])));
        machine(&one, "vm-1", UUID, "node-a.example.org");
        let at = if is_elsewhere { &two } else { &one };
        machine(at, "vm-2", UUID, "node-a");
        put(at, "VirtualMachine", "vm-2", &copy);
        for (id, uuid) in
            [(None, Some(UUID)), (None, Some(SWAPPED)), (Some(format!("vsphere://{UUID}")), None)]
        {
            let mut wanted = node("node-a", id.as_deref(), uuid);
            wanted.addresses = vec![NodeAddress::internal_ip("10.0.0.1")];
            let found = present(ask(&[&one, &two], &rules(), &wanted));
            assert_eq!(found.power_state, PowerState::Running, "{what}");
            assert!(
                found.metadata.addresses.contains(&NodeAddress::hostname("node-a.example.org")),
                "{what}: {found:?}"
            );
        }
    }
}

#[test]
fn of_copies_the_one_is_meant_that_was_seen_before() {
    let (one, two) = (live(vcenter("one", "a", &[])), live(vcenter("two", "b", &[])));
    machine(&one, "vm-1", UUID, "a");
    let (seen, wanted) = (Seen::default(), node("a", Some(&format!("vsphere://{UUID}")), None));
    present(ask_again(&[&one, &two], &rules(), &wanted, &seen));
    // a test of the copy
    machine(&two, "vm-1", UUID, "a");
    let nic = vec![text("ipAddress", "10.0.0.9"), text("deviceConfigId", "4000")];
    put(&two, "VirtualMachine", "vm-1", &[("guest.net", element("val", vec![element("GuestNicInfo", nic)]))]);
    let is_the_copy =
        |instance: &Instance| instance.metadata.addresses.contains(&NodeAddress::internal_ip("10.0.0.9"));
    assert!(!is_the_copy(&present(ask_again(&[&one, &two], &rules(), &wanted, &seen))));
    // a failover to it
    put(&one, "VirtualMachine", "vm-1", &[("runtime.powerState", text("val", "poweredOff"))]);
    for _ in 0..2 {
        assert!(is_the_copy(&present(ask_again(&[&one, &two], &rules(), &wanted, &seen))));
        put(&one, "VirtualMachine", "vm-1", &[("runtime.powerState", text("val", "poweredOn"))]);
    }
}

#[test]
fn a_node_is_not_off_while_a_copy_may_run() {
    let (one, two) = (live(vcenter("one", "a", &[])), live(vcenter("two", "b", &[])));
    machine(&one, "vm-1", UUID, "a");
    machine(&two, "vm-2", UUID, "a");
    let (off, lost) = (text("val", "poweredOff"), text("val", "inaccessible"));
    put(&one, "VirtualMachine", "vm-1", &[("runtime.powerState", off.clone())]);
    put(&two, "VirtualMachine", "vm-2", &[("runtime.connectionState", lost)]);
    let wanted = node("a", Some(&format!("vsphere://{UUID}")), None);
    assert_eq!(present(ask(&[&one, &two], &rules(), &wanted)).power_state, PowerState::Running);
    put(
        &two,
        "VirtualMachine",
        "vm-2",
        &[
            ("runtime.connectionState", text("val", "connected")),
            ("runtime.powerState", off),
            ("guest.hostName", text("val", "b")),
        ],
    );
    assert_eq!(present(ask(&[&one, &two], &rules(), &wanted)).power_state, PowerState::Off);
    // by the last word of a vCenter that cannot be read it is off
    two.update(|state| {
        (state.is_listed, state.is_live) = (false, false);
        Changes::default()
    });
    let answer = ask(&[&one, &two], &rules(), &wanted);
    assert!(matches!(answer, Answer::Starting(_)), "{answer:?}");
}

#[test]
fn a_vcenter_that_is_configured_twice_has_its_machines_once() {
    let (one, two) = (live(vcenter("one", "vc.example", &[])), live(vcenter("two", "vc.example", &[])));
    let (three, four) = (live(vcenter("three", "10.9.9.9", &[])), live(vcenter("four", "fd00::9", &[])));
    for vcenter in [&one, &two, &three, &four] {
        machine(vcenter, "vm-1", UUID, "a");
    }
    let wanted = node("a", None, Some(UUID));
    present(ask(&[&one, &two], &rules(), &wanted));
    unknown(ask(&[&one, &three], &rules(), &wanted));
    for vcenter in [&one, &three, &four] {
        vcenter.update(|state| {
            state.instance_uuid = Some("one and the same".to_owned());
            Changes::default()
        });
    }
    present(ask(&[&one, &three, &four], &rules(), &wanted));
}

#[test]
fn nowhere_needs_every_vcenter() {
    let (one, two) = (live(vcenter("one", "a", &[])), vcenter("two", "b", &[]));
    let gone = node("n", Some(&format!("vsphere://{UUID}")), None);
    assert!(matches!(ask(&[&one, &two], &rules(), &gone), Answer::Starting(_)));
    let refused = CallError::Refused { user: "ccm".into() };
    two.update(|state| {
        state.trouble = Some((refused, Instant::now()));
        Changes::default()
    });
    let error = unknown(ask(&[&one, &two], &rules(), &gone));
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.to_string().contains("\"two\"") && !error.to_string().contains("\"one\""), "{error}");
    two.update(|state| {
        (state.trouble, state.is_listed) = (None, true);
        Changes::default()
    });
    unknown(ask(&[&one, &two], &rules(), &gone));
    let two = live(two);
    let Answer::Nowhere(uuids) = ask(&[&one, &two], &rules(), &gone) else { panic!("not settled") };
    assert_eq!(uuids, [UUID.parse::<Uuid>().expect("a UUID")]);
    let error = unknown(ask(&[&one, &two], &Rules { skip_node_deletion: true, ..rules() }, &gone));
    assert!(error.to_string().contains("SKIP_NODE_DELETION"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_is_known_is_told_for_a_moment_after_the_connection_is_lost() {
    let vc = live(vcenter("vc", "a", &[]));
    machine(&vc, "vm-1", UUID, "a");
    vc.update(|state| {
        let error = CallError::Unreachable { method: "WaitForUpdatesEx", reason: "reset".into() };
        (state.is_live, state.trouble) = (false, Some((error, Instant::now())));
        Changes::default()
    });
    let (wanted, gone) = (node("a", None, Some(UUID)), node("b", None, Some(OTHER)));
    present(ask(&[&vc], &rules(), &wanted));
    unknown(ask(&[&vc], &rules(), &gone));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(unknown(ask(&[&vc], &rules(), &wanted)).kind(), ErrorKind::Unavailable);
}

#[test]
fn only_the_datacenters_of_the_configuration_count() {
    let vc = live(vcenter("vc", "a", &["DC0"]));
    let up = |kind: &str, id: &str| ("parent", reference("val", &MoRef::new(kind, id)));
    let root = up("Folder", "group-d1");
    put(&vc, "Datacenter", "datacenter-2", &[("name", text("val", "DC0")), root.clone()]);
    put(&vc, "Datacenter", "datacenter-3", &[("name", text("val", "DC1")), root]);
    for (folder, datacenter) in [("group-v4", "datacenter-2"), ("group-v5", "datacenter-3")] {
        put(&vc, "Folder", folder, &[up("Datacenter", datacenter)]);
    }
    machine(&vc, "vm-1", UUID, "a");
    put(&vc, "VirtualMachine", "vm-1", &[up("Folder", "group-v4")]);
    machine(&vc, "vm-2", OTHER, "b");
    put(&vc, "VirtualMachine", "vm-2", &[up("Folder", "group-v5")]);
    present(ask(&[&vc], &rules(), &node("a", None, Some(UUID))));
    assert!(matches!(ask(&[&vc], &rules(), &node("b", None, Some(OTHER))), Answer::Nowhere(_)));
    put(&vc, "Datacenter", "datacenter-2", &[("name", text("val", "renamed"))]);
    let error = unknown(ask(&[&vc], &rules(), &node("b", None, Some(OTHER))));
    assert!(error.to_string().contains("no datacenter called DC0"), "{error}");
}

#[test]
fn a_machine_below_what_cannot_be_read_counts() {
    let vc = live(vcenter("vc", "a", &["DC0"]));
    put(&vc, "Datacenter", "datacenter-2", &[("name", text("val", "DC0"))]);
    machine(&vc, "vm-1", UUID, "a");
    let wanted = node("a", Some(&format!("vsphere://{UUID}")), None);
    present(ask(&[&vc], &rules(), &wanted));
    let folder = reference("val", &MoRef::new("Folder", "group-v9"));
    put(&vc, "VirtualMachine", "vm-1", &[("parent", folder)]);
    present(ask(&[&vc], &rules(), &wanted));
}

#[test]
fn machines_that_vcenter_cannot_reach_are_there() {
    let vc = live(vcenter("vc", "a", &[]));
    machine(&vc, "vm-1", UUID, "a");
    for state in ["inaccessible", "disconnected", "orphaned", "invalid"] {
        put(&vc, "VirtualMachine", "vm-1", &[("runtime.connectionState", text("val", state))]);
        let found = present(ask(&[&vc], &rules(), &node("a", None, Some(UUID))));
        assert_eq!(found.power_state, PowerState::Running, "{state}");
    }
}

#[test]
fn a_machine_that_is_off_is_shut_down_and_not_broken() {
    let vc = live(vcenter("vc", "a", &[]));
    let off = [("config.uuid", text("val", UUID)), ("runtime.powerState", text("val", "poweredOff"))];
    put(&vc, "VirtualMachine", "vm-1", &off);
    let found = present(ask(&[&vc], &rules(), &node("a", None, Some(UUID))));
    assert_eq!(found.power_state, PowerState::Off);
    let why = found.incomplete.map(|why| why.to_string()).unwrap_or_default();
    assert!(why.contains("powered off"), "{why}");
}

#[test]
fn the_kubelets_own_address_is_taken() {
    let vc = live(vcenter("vc", "a", &[]));
    machine(&vc, "vm-1", UUID, "a");
    let mut wanted = node("a", None, Some(UUID));
    let ip = "alpha.kubernetes.io/provided-node-ip".to_owned();
    wanted.annotations = BTreeMap::from([(ip, "10.0.0.2".to_owned())]);
    let found = present(ask(&[&vc], &rules(), &wanted));
    assert_eq!(
        found.metadata.addresses,
        [
            NodeAddress::hostname("a"),
            NodeAddress::internal_ip("10.0.0.2"),
            NodeAddress::external_ip("10.0.0.2")
        ]
    );
}

#[test]
fn zones_are_waited_for_followed_or_kept() {
    let mut vc = vcenter("vc", "a", &[]);
    vc.settings.tag_refresh = Some(std::time::Duration::from_secs(60));
    let vc = live(vc);
    machine(&vc, "vm-1", UUID, "a");
    put(
        &vc,
        "VirtualMachine",
        "vm-1",
        &[("runtime.host", reference("val", &MoRef::new("HostSystem", "host-1")))],
    );
    let labels = |follow_moves| ZoneLabels { zone: Some("k8s-zone".into()), region: None, follow_moves };
    let rules = |follow_moves| Rules { labels: labels(follow_moves), ..rules() };
    let mut wanted = node("a", None, Some(UUID));
    let why = |instance: Instance| instance.incomplete.map(|why| why.to_string()).unwrap_or_default();
    assert!(why(present(ask(&[&vc], &rules(true), &wanted))).contains("tags are being read"));
    let tags = |zone: Option<&str>| {
        vc.update(|state| {
            let tag = zone.map(|zone| Tag { category: "k8s-zone".into(), name: zone.into() });
            state.tags = [(MoRef::new("HostSystem", "host-1"), tag.into_iter().collect())].into();
            state.has_tags = true;
            Changes::default()
        });
    };
    tags(None);
    let words = why(present(ask(&[&vc], &rules(true), &wanted)));
    assert!(words.contains("k8s-zone") && words.contains("vm-1"), "{words}");
    tags(Some("z1"));
    let found = present(ask(&[&vc], &rules(true), &wanted));
    assert!(found.metadata.zone.as_deref() == Some("z1") && found.incomplete.is_none(), "{found:?}");
    wanted.labels = BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), "z0".to_owned())]);
    let zone = |follow_moves| present(ask(&[&vc], &rules(follow_moves), &wanted)).metadata.zone;
    assert_eq!((zone(true).as_deref(), zone(false).as_deref()), (Some("z1"), Some("z0")));
}

#[test]
fn a_vcenter_whose_tags_nobody_reads_waits_for_none() {
    let labels = ZoneLabels { zone: Some("k8s-zone".to_owned()), ..ZoneLabels::default() };
    let rules = Rules { labels, ..rules() };
    for tag_refresh in [None, Some(std::time::Duration::from_secs(60))] {
        let mut vcenter = vcenter("a", "vc1.example.org", &[]);
        vcenter.settings.tag_refresh = tag_refresh;
        let vcenter = live(vcenter);
        machine(&vcenter, "vm-1", UUID, "node-1");
        let instance = present(ask(&[&vcenter], &rules, &node("node-1", None, Some(UUID))));
        assert_eq!(instance.incomplete.is_some(), tag_refresh.is_some(), "{instance:?}");
    }
}
