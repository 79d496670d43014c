use super::*;
use crate::{
    testing::scripted::{node, reference, text},
    vim::property_collector::UpdateKind,
};

fn device(kind: &str, fields: Vec<Element>) -> Element {
    Element { kind: Some(kind.into()), ..node("VirtualDevice", fields) }
}

fn read_of(devices: Vec<Element>, snapshot: Option<Element>) -> TemplateFacts {
    let devices = node("val", devices);
    let file = text("val", "[ds] t/t.vmx");
    let properties = vec![(DEVICES, Some(&devices)), (FILE, Some(&file)), (SNAPSHOT, snapshot.as_ref())];
    let object = MoRef::new("VirtualMachine", "vm-1");
    read(&ObjectUpdate { object, kind: UpdateKind::Enter, properties }).expect("it is told")
}

#[test]
fn a_machine_whose_configuration_is_not_told_is_not_one_without_disks() {
    let (devices, file) = (node("val", Vec::new()), text("val", "[ds] t/t.vmx"));
    for (devices, file, is_told) in [
        (Some(&devices), Some(&file), true),
        (None, Some(&file), false),
        (Some(&devices), None, false),
        (None, None, false),
    ] {
        let object = MoRef::new("VirtualMachine", "vm-1");
        let properties = vec![(DEVICES, devices), (FILE, file)];
        let found = read(&ObjectUpdate { object, kind: UpdateKind::Enter, properties });
        assert_eq!(found.is_some(), is_told);
    }
}

#[test]
fn devices_that_matter_are_read() {
    let facts = read_of(
        vec![
            device("VirtualIDEController", vec![text("key", "200")]),
            device("ParaVirtualSCSIController", vec![text("key", "1000"), text("scsiCtlrUnitNumber", "7")]),
            device(
                "VirtualDisk",
                vec![
                    text("key", "2000"),
                    node(
                        "backing",
                        vec![
                            text("fileName", "[ds] t/t.vmdk"),
                            text("diskMode", "persistent"),
                            text("thinProvisioned", "true"),
                        ],
                    ),
                    text("controllerKey", "1000"),
                    text("unitNumber", "0"),
                    text("capacityInKB", "20971520"),
                ],
            ),
            device("VirtualE1000", vec![text("key", "4000"), text("controllerKey", "100")]),
            device(
                "VirtualCdrom",
                vec![text("key", "3000"), text("controllerKey", "200"), text("unitNumber", "0")],
            ),
        ],
        None,
    );
    assert_eq!(facts.cards, [Card { key: 4000, kind: "VirtualE1000" }]);
    assert_eq!(facts.disks.len(), 1);
    let disk = &facts.disks[0];
    assert_eq!((disk.key, disk.capacity_kib, disk.thin), (2000, 20 << 20, Some(true)));
    assert_eq!(disk.file.as_deref(), Some("[ds] t/t.vmdk"));
    assert!(!disk.is_first_class);
    assert_eq!(
        facts.controllers,
        [
            Controller { key: 200, units: 2, taken: vec![0] },
            Controller { key: 1000, units: 30, taken: vec![7, 0] }
        ]
    );
}

#[test]
fn a_volume_of_kubernetes_is_told_apart() {
    let id = node("vDiskId", vec![text("id", "6c1a")]);
    let facts = read_of(vec![device("VirtualDisk", vec![text("key", "2001"), id])], None);
    assert!(facts.disks[0].is_first_class);
}

#[test]
fn snapshots_are_found_in_the_whole_tree() {
    let of = |name: &str, id: &str, children: Vec<Element>| {
        let mut fields =
            vec![reference("snapshot", &MoRef::new("VirtualMachineSnapshot", id)), text("name", name)];
        fields.extend(children);
        fields
    };
    let child = node("childSnapshotList", of("b", "snapshot-2", Vec::new()));
    let tree = node("rootSnapshotList", of("a", "snapshot-1", vec![child]));
    let current = reference("currentSnapshot", &MoRef::new("VirtualMachineSnapshot", "snapshot-2"));
    let facts = read_of(Vec::new(), Some(node("val", vec![current, tree])));
    let names: Vec<_> = facts.snapshots.iter().map(|(name, id)| (name.as_str(), id.id())).collect();
    assert_eq!(names, [("a", "snapshot-1"), ("b", "snapshot-2")]);
    assert_eq!(facts.current_snapshot.map(|one| one.id().to_owned()).as_deref(), Some("snapshot-2"));
}

#[test]
fn what_is_in_somebodys_hands_is_seen() {
    let option = |key: &str, value: &str| node("OptionValue", vec![text("key", key), text("value", value)]);
    let extension = |key: &str| node("val", vec![text("extensionKey", key), text("type", "t")]);
    let taken = |hands| matches!(hands, Hands::Taken(_));
    for (options, managed_by, is_taken) in [
        (vec![], None, false),
        (vec![option("disk.EnableUUID", "TRUE"), option("guestinfo.team", "a")], None, false),
        (vec![option("cloud-controller-manager.mark", "{}")], None, true),
        (vec![option("Cloud-Controller-Manager.Mark", "not even a mark")], None, true),
        (vec![option("guestinfo.metadata", "x")], None, true),
        (vec![option("guestinfo.userdata", "x")], None, true),
        (vec![option("GuestInfo.UserData", "x")], None, true),
        (vec![option("guestinfo.ignition.config.data", "x")], None, true),
        (vec![option("guestinfo.userdata", "")], None, false),
        (vec![], Some(extension("com.vmware.vim.eam")), true),
        (vec![], Some(extension("")), false),
    ] {
        let (devices, file) = (node("val", Vec::new()), text("val", "[ds 1] t/t.vmx"));
        let (extra, template) = (node("val", options.clone()), text("val", "true"));
        let read = |extra: Option<&Element>, template: Option<&Element>| {
            let properties = vec![
                (DEVICES, Some(&devices)),
                (FILE, Some(&file)),
                (EXTRA_CONFIG, extra),
                (IS_TEMPLATE, template),
                (MANAGED_BY, managed_by.as_ref()),
            ];
            let object = MoRef::new("VirtualMachine", "vm-1");
            read(&ObjectUpdate { object, kind: UpdateKind::Enter, properties }).expect("it is told")
        };
        let facts = read(Some(&extra), Some(&template));
        assert_eq!((taken(facts.hands), facts.is_template), (is_taken, true), "{options:?}");
        assert_eq!(facts.datastore.as_deref(), Some("ds 1"));
        // what is not told is not assumed
        assert_eq!(read(None, Some(&template)).hands, Hands::Unknown);
        assert_eq!(read(Some(&extra), None).hands, Hands::Unknown);
    }
}
