use cloudprovider::machines::Mark;

use super::*;
use crate::{
    testing::scripted::{node, reference, text},
    vm::{Connection, Tools, VmPower},
};

const UUID: &str = "422e4956-ad22-1139-8d72-59cc8f26bc90";

fn vm(id: &str) -> MoRef {
    MoRef::new("VirtualMachine", id)
}

fn update<'a>(
    object: MoRef,
    kind: UpdateKind,
    properties: &[(&'a str, Option<&'a Element>)],
) -> ObjectUpdate<'a> {
    ObjectUpdate { object, kind, properties: properties.to_vec() }
}

fn put(inventory: &mut Inventory, object: MoRef, properties: &[(&str, Element)]) -> Changes {
    let properties: Vec<_> = properties.iter().map(|(name, value)| (*name, Some(value))).collect();
    inventory.apply(&[update(object, UpdateKind::Enter, &properties)])
}

fn word(word: &str) -> Element {
    text("val", word)
}

fn with_machine(properties: &[(&str, Element)]) -> Inventory {
    let mut inventory = Inventory::default();
    let mut all = vec![("name", word("a")), ("config.uuid", word(UUID)), ("guest.hostName", word("Node-A"))];
    all.extend(properties.iter().cloned());
    let changes = put(&mut inventory, vm("vm-1"), &all);
    assert_eq!(changes.instances.len(), 2, "a reference for each byte order");
    inventory
}

#[test]
fn a_machine_is_found_by_everything_that_a_node_may_know() {
    let instance = "50aa0000-0000-4000-8000-000000000001";
    let inventory = with_machine(&[("config.instanceUuid", word(instance))]);
    let uuid: Uuid = UUID.parse().expect("a UUID");
    assert_eq!(inventory.with_bios_uuid(uuid).count(), 1);
    assert_eq!(inventory.with_instance_uuid(instance.parse().expect("a UUID")).count(), 1);
    assert_eq!(inventory.with_guest_host_name("node-a").count(), 1);
    assert_eq!(inventory.with_name("A").count(), 1);
    assert_eq!(inventory.with_name("b").count(), 0);
}

#[test]
fn what_changes_is_told_and_found_anew() {
    let mut inventory = with_machine(&[]);
    let off = word("poweredOff");
    let same =
        inventory.apply(&[update(vm("vm-1"), UpdateKind::Modify, &[("runtime.powerState", Some(&off))])]);
    assert!(same.instances.is_empty(), "it was off before");
    let on = word("poweredOn");
    let changes =
        inventory.apply(&[update(vm("vm-1"), UpdateKind::Modify, &[("runtime.powerState", Some(&on))])]);
    assert_eq!(changes.instances[0].provider_id.as_deref(), Some(&*format!("vsphere://{UUID}")));
    assert_eq!(changes.instances[0].name.as_deref(), Some("node-a"));
    let name = word("b");
    let changes =
        inventory.apply(&[update(vm("vm-1"), UpdateKind::Modify, &[("guest.hostName", Some(&name))])]);
    let names: HashSet<_> = changes.instances.iter().filter_map(|one| one.name.as_deref()).collect();
    assert_eq!(names, HashSet::from(["node-a", "b"]), "both Nodes are looked at");
    assert_eq!(inventory.with_guest_host_name("node-a").count(), 0);
    let changes = inventory.apply(&[update(vm("vm-1"), UpdateKind::Leave, &[])]);
    assert_eq!((changes.instances.len(), inventory.machines().len()), (2, 0));
    assert_eq!(inventory.machines.entries(), 0);
}

#[test]
fn very_many_changes_are_not_kept() {
    let mut inventory = Inventory::default();
    let names: Vec<_> = (0..MANY_CHANGES + 5).map(|number| word(&format!("n-{number}"))).collect();
    let properties: Vec<_> = names.iter().map(|name| [("name", Some(name))]).collect();
    let enter = properties.iter().enumerate();
    let enter: Vec<_> =
        enter.map(|(number, all)| update(vm(&format!("vm-{number}")), UpdateKind::Enter, all)).collect();
    let mut changes = inventory.apply(&enter);
    assert_eq!(inventory.machines().len(), MANY_CHANGES + 5);
    assert_eq!(changes.instances.len(), MANY_CHANGES + 1, "enough to tell that it is very many");
    changes.add(refs(inventory.machine(&vm("vm-1")).expect("there")));
    assert_eq!(changes.instances.len(), MANY_CHANGES + 1);
}

#[test]
fn copies_are_found_in_the_same_order_and_share_texts() {
    let mut inventory = Inventory::default();
    for id in ["vm-3", "vm-1", "vm-2"] {
        let nic = node("GuestNicInfo", vec![text("network", "VM Network")]);
        let host = reference("val", &MoRef::new("HostSystem", "host-6"));
        let all = [
            ("config.uuid", word(UUID)),
            ("config.guestId", word("ubuntu64Guest")),
            ("guest.net", node("val", vec![nic])),
            ("runtime.host", host),
        ];
        put(&mut inventory, vm(id), &all);
    }
    let mut found: Vec<_> = inventory.with_bios_uuid(UUID.parse().expect("a UUID")).cloned().collect();
    assert_eq!(found.iter().map(|vm| vm.moref.id()).collect::<Vec<_>>(), ["vm-1", "vm-2", "vm-3"]);
    let [one, two, _] = &mut found[..] else { panic!("three") };
    let pairs: Vec<_> = one.shared_texts().zip(two.shared_texts()).collect();
    assert_eq!(pairs.len(), 3);
    assert!(pairs.iter().all(|(one, two)| std::sync::Arc::ptr_eq(one, two)), "{pairs:?}");
}

#[test]
fn copies_are_all_found_and_templates_are_not() {
    let mut inventory = with_machine(&[]);
    put(&mut inventory, vm("vm-2"), &[("name", word("copy")), ("config.uuid", word(UUID))]);
    let template = [("name", word("t")), ("config.uuid", word(UUID)), ("config.template", word("true"))];
    assert!(put(&mut inventory, vm("vm-3"), &template).instances.is_empty());
    assert_eq!(inventory.with_bios_uuid(UUID.parse().expect("a UUID")).count(), 2);
}

#[test]
fn an_inaccessible_machine_keeps_its_identity() {
    let mut inventory = with_machine(&[("config.hardware.numCPU", word("4"))]);
    let state = word("inaccessible");
    inventory.apply(&[update(
        vm("vm-1"),
        UpdateKind::Modify,
        &[
            ("runtime.connectionState", Some(&state)),
            ("config.uuid", None),
            ("config.hardware.numCPU", None),
            ("guest.hostName", None),
            ("guest.net", None),
        ],
    )]);
    let machine = inventory.with_bios_uuid(UUID.parse().expect("a UUID")).next().expect("still there");
    assert_eq!((machine.connection, machine.cpus), (Connection::Inaccessible, Some(4)));
    assert_eq!(machine.guest_host_name, None);
}

#[test]
fn the_summary_stands_in_for_the_configuration() {
    let mut inventory = Inventory::default();
    put(
        &mut inventory,
        vm("vm-1"),
        &[
            ("summary.config.uuid", word(&UUID.to_uppercase())),
            ("summary.config.numCpu", word("2")),
            ("summary.config.memorySizeMB", word("2048")),
            ("summary.config.guestId", word("ubuntu64Guest")),
            ("runtime.powerState", word("suspended")),
        ],
    );
    let machine = inventory.with_bios_uuid(UUID.parse().expect("a UUID")).next().expect("found");
    assert_eq!((machine.cpus, machine.memory_mib), (Some(2), Some(2048)));
    assert_eq!((machine.guest_id.as_deref(), machine.power), (Some("ubuntu64Guest"), VmPower::Suspended));
}

#[test]
fn guests_interfaces() {
    let nic = node(
        "GuestNicInfo",
        vec![
            text("network", "VM Network"),
            text("ipAddress", "10.0.0.1"),
            text("ipAddress", "fe80::1"),
            text("ipAddress", "not an address"),
            text("macAddress", "00:50:56:00:00:01"),
            text("connected", "true"),
            text("deviceConfigId", "4000"),
            node(
                "ipConfig",
                vec![node(
                    "ipAddress",
                    vec![
                        text("ipAddress", "10.0.0.1"),
                        text("prefixLength", "24"),
                        text("origin", "dhcp"),
                        text("state", "preferred"),
                    ],
                )],
            ),
        ],
    );
    let inventory = with_machine(&[
        ("guest.net", node("val", vec![nic])),
        ("guest.toolsRunningStatus", word("guestToolsNotRunning")),
        ("guest.toolsVersionStatus2", word("guestToolsNotInstalled")),
    ]);
    let machine = inventory.machine(&vm("vm-1")).expect("there");
    let [nic] = &machine.guest_nics[..] else { panic!("{:?}", machine.guest_nics) };
    assert_eq!((&*nic.network, nic.connected), ("VM Network", true));
    assert_eq!((nic.addresses.len(), nic.addresses[0].prefix_length), (2, Some(24)));
    assert_eq!(machine.tools, Tools::NotInstalled);
}

#[test]
fn interfaces_of_the_guest_itself_are_not_kept_and_change_nothing() {
    let nic = |device: &str, ip: &str| {
        let mut children = vec![text("network", "n"), text("ipAddress", ip)];
        children.extend(Some(device).filter(|id| !id.is_empty()).map(|id| text("deviceConfigId", id)));
        node("GuestNicInfo", children)
    };
    let nets = |nics: Vec<Element>| [("guest.net", node("val", nics))];
    let mut inventory = with_machine(&nets(vec![nic("4000", "10.0.0.1"), nic("-1", "10.244.0.1")]));
    let ips = |inventory: &Inventory| {
        let machine = inventory.machine(&vm("vm-1")).expect("there");
        let addresses = machine.guest_nics.iter().flat_map(|nic| &nic.addresses);
        let ips: Vec<_> = addresses.map(|address| address.ip.to_string()).collect();
        (ips, machine.has_guest_nics)
    };
    assert_eq!(ips(&inventory), (vec!["10.0.0.1".to_owned()], true));
    // a pod starts
    let pods = vec![nic("-1", "10.244.0.1"), nic("4000", "10.0.0.1"), nic("-1", "10.244.0.2")];
    assert!(put(&mut inventory, vm("vm-1"), &nets(pods)).instances.is_empty());
    // any number other than -1, or none, is that of a device
    let odd = vec![nic("-2", "10.0.0.2"), nic("0", "10.0.0.3"), nic("", "10.0.0.4")];
    assert!(!put(&mut inventory, vm("vm-1"), &nets(odd)).instances.is_empty());
    assert_eq!(ips(&inventory).0, ["10.0.0.2", "10.0.0.3", "10.0.0.4"]);
    put(&mut inventory, vm("vm-1"), &nets(vec![nic("-1", "10.244.0.1")]));
    assert_eq!(ips(&inventory), (Vec::new(), true));
    put(&mut inventory, vm("vm-1"), &nets(Vec::new()));
    assert_eq!(ips(&inventory), (Vec::new(), false));
}

/// Windows with containers: the device is in a switch of the guest, which has its address.
#[test]
fn a_switch_of_the_guest_with_a_devices_mac_address_is_the_device() {
    const MAC: &str = "00:50:56:aa:bb:01";
    let nic = |network: &str, device: &str, mac: &str, ips: &[&str]| {
        let mut children =
            vec![text("network", network), text("macAddress", mac), text("deviceConfigId", device)];
        children.extend(ips.iter().map(|ip| text("ipAddress", ip)));
        node("GuestNicInfo", children)
    };
    let device = |ips: &[&str]| nic("VM Network", "4000", MAC, ips);
    let switch =
        |ips: &[&str]| nic("vEthernet (Ethernet0)", "-1", &MAC.to_uppercase().replace(':', "-"), ips);
    let pod = || nic("vEthernet (nat)", "-1", "00:15:5d:01:02:03", &["172.20.0.1"]);
    for (nics, expected) in [
        (
            vec![device(&[]), switch(&["10.0.0.1", "fd00::1"]), pod()],
            vec![("VM Network", "10.0.0.1"), ("VM Network", "fd00::1")],
        ),
        (
            vec![pod(), switch(&["10.0.0.1"]), device(&["fe80::1"])],
            vec![("VM Network", "fe80::1"), ("VM Network", "10.0.0.1")],
        ),
        // a device with an address of its own is no part of a switch
        (vec![device(&["10.0.0.1"]), switch(&["10.0.0.2"])], vec![("VM Network", "10.0.0.1")]),
        // the device itself may not be reported
        (vec![switch(&["10.0.0.1"]), pod()], vec![("vEthernet (Ethernet0)", "10.0.0.1")]),
        (vec![pod()], vec![]),
    ] {
        let inventory = with_machine(&[("guest.net", node("val", nics))]);
        let machine = inventory.machine(&vm("vm-1")).expect("there");
        let found = machine.guest_nics.iter();
        let found = found.flat_map(|nic| nic.addresses.iter().map(|one| (&*nic.network, one.ip.to_string())));
        let expected: Vec<_> = expected.into_iter().map(|(network, ip)| (network, ip.to_owned())).collect();
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn the_mark_of_a_machine_that_cannot_be_read_is_kept() {
    let mark = Mark::machine("4d3c2b1a-0000-4000-8000-000000000001", "default", "prod", "worker-1");
    let path = "config.extraConfig[\"cloud-controller-manager.mark\"]";
    let mut inventory = with_machine(&[(path, word(&crate::mark::write(&mark)))]);
    let kept = |inventory: &Inventory| {
        inventory.machine(&vm("vm-1")).and_then(|machine| machine.mark.as_deref().cloned())
    };
    assert_eq!(kept(&inventory), Some(mark.clone()));
    inventory.apply(&[update(vm("vm-1"), UpdateKind::Modify, &[(path, None)])]);
    assert_eq!(kept(&inventory), Some(mark));
}

#[test]
fn a_machine_without_its_mark_is_told_by_its_instance_uuid() {
    let inventory = with_machine(&[("config.instanceUuid", word(UUID))]);
    let told = refs(inventory.machine(&vm("vm-1")).expect("there"));
    assert!(told.iter().all(|one| one.machine.as_deref() == Some(UUID)), "{told:?}");
}

#[test]
fn tools_that_begin_to_run() {
    let mut inventory = with_machine(&[
        ("guest.toolsRunningStatus", word("guestToolsNotRunning")),
        ("guest.toolsVersionStatus2", word("guestToolsCurrent")),
    ]);
    assert_eq!(inventory.machine(&vm("vm-1")).map(|machine| machine.tools), Some(Tools::NotRunning));
    let running = word("guestToolsRunning");
    inventory.apply(&[update(
        vm("vm-1"),
        UpdateKind::Modify,
        &[("guest.toolsRunningStatus", Some(&running))],
    )]);
    assert_eq!(inventory.machine(&vm("vm-1")).map(|machine| machine.tools), Some(Tools::Running));
}

/// root / folder / DC0 / vm / machine, and root / folder / DC0 / host / cluster / host
fn tree() -> Inventory {
    let mut inventory = Inventory::default();
    let parent = |kind: &str, id: &str| reference("val", &MoRef::new(kind, id));
    for (kind, id, name, above) in [
        ("Folder", "group-f1", "a%2fb", Some(("Folder", "group-d1"))),
        ("Datacenter", "datacenter-2", "DC0", Some(("Folder", "group-f1"))),
        ("Folder", "group-v3", "vm", Some(("Datacenter", "datacenter-2"))),
        ("Folder", "group-h4", "host", Some(("Datacenter", "datacenter-2"))),
        ("ClusterComputeResource", "domain-c5", "C0", Some(("Folder", "group-h4"))),
        ("HostSystem", "host-6", "H0", Some(("ClusterComputeResource", "domain-c5"))),
    ] {
        let mut properties = vec![("name", word(name))];
        properties.extend(above.map(|(kind, id)| ("parent", parent(kind, id))));
        assert!(put(&mut inventory, MoRef::new(kind, id), &properties).is_moved);
    }
    put(
        &mut inventory,
        vm("vm-7"),
        &[
            ("name", word("m")),
            ("parent", parent("Folder", "group-v3")),
            ("runtime.host", parent("HostSystem", "host-6")),
        ],
    );
    inventory
}

#[test]
fn the_way_up() {
    let inventory = tree();
    let ids =
        |from: &MoRef| inventory.path_up(from).iter().map(|one| one.id().to_owned()).collect::<Vec<_>>();
    let host = inventory.machine(&vm("vm-7")).and_then(|machine| machine.host.clone()).expect("a host");
    assert_eq!(ids(&host), ["host-6", "domain-c5", "group-h4", "datacenter-2", "group-f1", "group-d1"]);
    let datacenter =
        inventory.datacenter_of(inventory.machine(&vm("vm-7")).expect("there")).expect("a datacenter");
    let inner = ["a/b/DC0", "/a/b/DC0", "/a%2fb/DC0", "a%2Fb/DC0", "/a*/DC?", "/*/DC0"];
    for word in
        ["DC0", " DC0 ", "DC*", "DC[0-9]", "datacenter-2", "Datacenter:datacenter-2"].into_iter().chain(inner)
    {
        assert_eq!(inventory.datacenters_called(word), std::slice::from_ref(&datacenter), "{word}");
    }
    for word in ["DC", "dc0", "/DC0", "/DC*", "b/DC0", "*/*/DC0", "Datacenter:datacenter-3", ""] {
        assert!(inventory.datacenters_called(word).is_empty(), "{word}");
    }
}

/// As for machines: a whole path means that path, and what is written out comes before a pattern.
#[test]
fn words_for_datacenters() {
    let mut inventory = Inventory::default();
    for (id, name, above) in [
        ("group-f1", "site", "group-d1"),
        ("datacenter-2", "prod", "group-f1"),
        ("datacenter-3", "prod", "group-d1"),
        ("datacenter-4", "pr*", "group-d1"),
        ("datacenter-5", "a%2fb", "group-f1"),
        ("datacenter-6", "x [1]", "group-f1"),
    ] {
        let kind = if id.starts_with("group") { "Folder" } else { "Datacenter" };
        let properties = [("name", word(name)), ("parent", reference("val", &MoRef::new("Folder", above)))];
        assert!(put(&mut inventory, MoRef::new(kind, id), &properties).is_moved);
    }
    for (word, expected) in [
        ("prod", &["2", "3"][..]),
        ("/prod", &["3"]),
        ("site/prod", &["2"]),
        ("/site/prod", &["2"]),
        ("/site/prod/", &["2"]),
        ("pr*", &["4"]),
        ("pr??", &["2", "3"]),
        ("/*/pr*", &["2"]),
        ("/site/*", &["2", "5", "6"]),
        ("a%2fb", &["5"]),
        ("a/b", &["5"]),
        ("/site/a%2Fb", &["5"]),
        ("/site/a/b", &["5"]),
        ("x [1]", &["6"]),
        ("/elsewhere/prod", &[]),
    ] {
        let mut found: Vec<_> = inventory.datacenters_called(word);
        found.sort();
        let found: Vec<_> = found.iter().filter_map(|one| one.id().strip_prefix("datacenter-")).collect();
        assert_eq!(found, expected, "{word}");
    }
}

#[test]
fn a_ring_of_parents_ends() {
    let mut inventory = Inventory::default();
    for (id, above) in [("a", "b"), ("b", "a")] {
        put(
            &mut inventory,
            MoRef::new("Folder", id),
            &[("parent", reference("val", &MoRef::new("Folder", above)))],
        );
    }
    assert_eq!(inventory.path_up(&MoRef::new("Folder", "a")).len(), 2);
}

#[test]
fn what_a_complete_listing_lacks_is_gone() {
    let mut inventory = tree();
    let mut seen: HashSet<_> = inventory.entities().cloned().collect();
    assert_eq!(inventory.retain(&seen).instances.len(), 1);
    seen.remove(&MoRef::new("HostSystem", "host-6"));
    let changes = inventory.retain(&seen);
    assert!(changes.is_moved && changes.instances.is_empty());
}

#[test]
fn a_move_alone_is_told() {
    let mut inventory = tree();
    let host = reference("val", &MoRef::new("HostSystem", "host-9"));
    let changes =
        inventory.apply(&[update(vm("vm-7"), UpdateKind::Modify, &[("runtime.host", Some(&host))])]);
    assert_eq!(changes.instances.len(), 1);
}

#[test]
fn a_path_is_told_only_if_all_of_it_is_known() {
    let mut inventory = Inventory::default();
    let folder = |id: &str| MoRef::new("Folder", id);
    let datacenter = MoRef::new("Datacenter", "dc-1");
    let below = |parent: &MoRef| ("parent", reference("val", parent));
    put(&mut inventory, folder("root"), &[("name", word("Datacenters"))]);
    put(&mut inventory, datacenter.clone(), &[("name", word("dc")), below(&folder("root"))]);
    put(&mut inventory, folder("vm"), &[("name", word("vm")), below(&datacenter)]);
    put(&mut inventory, folder("a"), &[("name", word("x%2fy")), below(&folder("vm"))]);
    put(&mut inventory, folder("hidden"), &[below(&folder("vm"))]);
    put(&mut inventory, folder("lost"), &[("name", word("vm")), below(&folder("unknown"))]);
    for (object, expected) in [
        (folder("a"), Some(vec!["dc", "vm", "x/y"])),
        (folder("vm"), Some(vec!["dc", "vm"])),
        (folder("root"), None),
        (folder("hidden"), None),
        (folder("lost"), None),
        (folder("unknown"), None),
    ] {
        let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(inventory.names_to(&object), expected, "{object}");
    }
    put(&mut inventory, vm("vm-1"), &[("name", word("t")), below(&folder("a"))]);
    put(&mut inventory, vm("vm-2"), &[("name", word("t"))]);
    let path = |id: &str| inventory.names_to_machine(inventory.machine(&vm(id)).expect("a machine"));
    assert_eq!(path("vm-1").map(|path| path.join("|")).as_deref(), Some("dc|vm|x/y|t"));
    assert_eq!(path("vm-2"), None);
}
