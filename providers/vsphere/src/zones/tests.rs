//! Tests of the rules for zones.

use super::*;

fn object(text: &str) -> MoRef {
    let kind = match text.split('-').next() {
        Some("host") => "HostSystem",
        Some("cluster") => "ClusterComputeResource",
        Some("dc") => "Datacenter",
        Some("pool") => "ResourcePool",
        Some("vm") => "VirtualMachine",
        Some("vapp") => "VirtualApp",
        _ => "Folder",
    };
    MoRef::new(kind, text)
}

/// ```text
/// root ── dc-1 ─┬─ folder-hosts ── cluster-1 ─┬─ host-1
///               │                             └─ pool-root ── pool-1
///               └─ folder-vms ── folder-team ── vm-1
/// ```
fn parents() -> Parents {
    [
        ("dc-1", "root"),
        ("folder-hosts", "dc-1"),
        ("cluster-1", "folder-hosts"),
        ("host-1", "cluster-1"),
        ("pool-root", "cluster-1"),
        ("pool-1", "pool-root"),
        ("folder-vms", "dc-1"),
        ("folder-team", "folder-vms"),
        ("vapp-1", "pool-root"),
    ]
    .map(|(child, parent)| (object(child), object(parent)))
    .into()
}

fn machine() -> VirtualMachine {
    VirtualMachine {
        host: Some(object("host-1")),
        resource_pool: Some(object("pool-1")),
        folder: Some(object("folder-team")),
        ..VirtualMachine::new(object("vm-1"), "a")
    }
}

fn labels() -> ZoneLabels {
    ZoneLabels { zone: Some("k8s-zone".into()), region: Some("k8s-region".into()), follow_moves: true }
}

/// Parses tags such as `object z=name` and `object r=name`.
fn tags(list: &[&str]) -> Tags {
    let mut tags = Tags::new();
    for text in list {
        let (place, tag) = text.split_once(' ').expect("an object and a tag");
        let (category, name) = tag.split_once('=').expect("a category and a name");
        let category = match category {
            "z" => "k8s-zone",
            "r" => "k8s-region",
            other => other,
        };
        tags.entry(object(place)).or_default().push(Tag { category: category.into(), name: name.into() });
    }
    tags
}

fn found(list: &[&str]) -> (Option<String>, Option<String>) {
    let found = find(&ancestors(&machine(), &parents()), &tags(list), &labels());
    (found.zone.map(String::from), found.region.map(String::from))
}

#[test]
fn every_kind_of_object_counts() {
    for place in [
        "host-1",
        "cluster-1",
        "folder-hosts",
        "dc-1",
        "root",
        "pool-1",
        "pool-root",
        "vm-1",
        "folder-team",
        "folder-vms",
    ] {
        let (zone, region) = found(&[&format!("{place} z=a"), &format!("{place} r=b")]);
        assert_eq!((zone.as_deref(), region.as_deref()), (Some("a"), Some("b")), "{place}");
    }
    assert_eq!(found(&["host-1 other=a", "host-2 z=b", "dc-2 r=c"]), (None, None));
}

#[test]
fn the_nearest_object_wins_wherever_the_region_is() {
    // CPI continues upwards until it has a region, and then uses the datacenter's zone
    let (zone, region) = found(&["host-1 z=near", "cluster-1 z=middle", "dc-1 z=far", "dc-1 r=region"]);
    assert_eq!((zone.as_deref(), region.as_deref()), (Some("near"), Some("region")));
}

#[test]
fn the_first_way_with_both_counts() {
    let (zone, region) = found(&["cluster-1 z=of-host", "vm-1 z=of-vm", "vm-1 r=of-vm"]);
    assert_eq!((zone.as_deref(), region.as_deref()), (Some("of-vm"), Some("of-vm")));
    let (zone, region) = found(&["cluster-1 z=of-host", "dc-1 r=of-dc", "vm-1 z=of-vm", "vm-1 r=of-vm"]);
    assert_eq!((zone.as_deref(), region.as_deref()), (Some("of-host"), Some("of-dc")));
    // the pool's path comes before that of the folders
    let (zone, _) = found(&["pool-1 z=of-pool", "folder-team z=of-folder", "dc-1 r=x"]);
    assert_eq!(zone.as_deref(), Some("of-pool"));
}

#[test]
fn zone_and_region_may_lie_on_different_ways() {
    let (zone, region) = found(&["pool-1 z=of-pool", "folder-team r=of-folder"]);
    assert_eq!((zone.as_deref(), region.as_deref()), (Some("of-pool"), Some("of-folder")));
}

#[test]
fn one_label_alone_is_found_alone() {
    let zone_only = ZoneLabels { region: None, ..labels() };
    let tags = tags(&["dc-1 z=a", "dc-1 r=b"]);
    let found = find(&ancestors(&machine(), &parents()), &tags, &zone_only);
    assert_eq!(found, ZoneAndRegion { zone: Some("a".into()), region: None });
    assert_eq!(found.missing(&zone_only), None);
    assert_eq!(
        find(&ancestors(&machine(), &parents()), &tags, &ZoneLabels::default()),
        ZoneAndRegion::default()
    );
}

#[test]
fn several_tags_of_a_category_on_one_object_are_decided_the_same_each_time() {
    assert_eq!(found(&["host-1 z=b", "host-1 z=a", "host-1 z=c", "dc-1 r=r"]).0.as_deref(), Some("a"));
}

#[test]
fn what_is_missing_is_told_by_its_category() {
    let none = ZoneAndRegion::default();
    assert!(none.missing(&labels()).expect("missing").to_string().contains("\"k8s-zone\" (labels.zone)"));
    let zone = ZoneAndRegion { zone: Some("a".into()), region: None };
    assert!(zone.missing(&labels()).expect("missing").to_string().contains("\"k8s-region\" (labels.region)"));
    assert_eq!(none.missing(&ZoneLabels::default()), None);
}

#[test]
fn a_machine_in_a_vapp_a_template_and_a_circle() {
    let in_vapp = VirtualMachine { folder: None, vapp: Some(object("vapp-1")), ..machine() };
    let ways = ancestors(&in_vapp, &parents());
    assert_eq!(
        ways[2].iter().map(MoRef::id).collect::<Vec<_>>(),
        ["vm-1", "vapp-1", "pool-root", "cluster-1", "folder-hosts", "dc-1", "root"]
    );
    let bare = VirtualMachine::new(object("vm-1"), "a");
    assert_eq!(ancestors(&bare, &parents()), [vec![], vec![], vec![object("vm-1")]]);
    let circle: Parents = [("a-1", "a-2"), ("a-2", "a-1")].map(|(c, p)| (object(c), object(p))).into();
    let lost = VirtualMachine { folder: Some(object("a-1")), ..bare };
    assert_eq!(ancestors(&lost, &circle)[2].len(), 3);
}

#[test]
fn a_node_keeps_its_labels_where_the_operator_wants_that() {
    let node = NodeIdentity {
        labels: [(ZONE_LABEL.to_owned(), "old".to_owned())].into(),
        ..NodeIdentity::default()
    };
    let now = ZoneAndRegion { zone: Some("new".into()), region: Some("r".into()) };
    assert_eq!(now.clone().kept_by(&node, &labels()), now);
    let keeps = ZoneLabels { follow_moves: false, ..labels() };
    assert_eq!(
        now.kept_by(&node, &keeps),
        ZoneAndRegion { zone: Some("old".into()), region: Some("r".into()) }
    );
}
