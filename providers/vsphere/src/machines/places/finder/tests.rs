use super::*;
use crate::{
    testing::scripted::{reference, text},
    vim::{
        element::Element,
        property_collector::{ObjectUpdate, UpdateKind},
    },
};

type Object = (&'static str, &'static str, &'static str, Option<(&'static str, &'static str)>);

const OBJECTS: [Object; 15] = [
    ("Folder", "group-d1", "Datacenters", None),
    ("Datacenter", "dc-1", "DC0", Some(("Folder", "group-d1"))),
    ("Folder", "group-v1", "vm", Some(("Datacenter", "dc-1"))),
    ("Folder", "group-h1", "host", Some(("Datacenter", "dc-1"))),
    ("Folder", "group-v2", "k8s", Some(("Folder", "group-v1"))),
    ("Folder", "group-v3", "prod", Some(("Folder", "group-v2"))),
    ("ClusterComputeResource", "domain-1", "C0", Some(("Folder", "group-h1"))),
    ("ResourcePool", "resgroup-1", "Resources", Some(("ClusterComputeResource", "domain-1"))),
    ("ResourcePool", "resgroup-2", "small", Some(("ResourcePool", "resgroup-1"))),
    ("VirtualMachine", "vm-1", "ubuntu", Some(("Folder", "group-v2"))),
    ("VirtualMachine", "vm-2", "ubuntu", Some(("Folder", "group-v1"))),
    ("VirtualMachine", "vm-3", "flatcar", Some(("Folder", "group-v3"))),
    ("Datacenter", "dc-2", "DC1", Some(("Folder", "group-d1"))),
    ("Folder", "group-v9", "vm", Some(("Datacenter", "dc-2"))),
    ("Folder", "group-h9", "host", Some(("Datacenter", "dc-2"))),
];

fn inventory(objects: &[Object]) -> Inventory {
    let mut inventory = Inventory::default();
    for (kind, id, name, parent) in objects {
        let mut values = vec![("name", text("val", name))];
        values.extend(parent.map(|(kind, id)| ("parent", reference("val", &MoRef::new(kind, id)))));
        if *kind == "VirtualMachine" && *id == "vm-1" {
            values.push(("config.template", text("val", "true")));
            values.push(("config.instanceUuid", text("val", "50110000-0000-4000-8000-000000000001")));
        }
        let properties = values.iter().map(|(path, value): &(&str, Element)| (*path, Some(value))).collect();
        let object = MoRef::new(kind, id);
        inventory.apply(&[ObjectUpdate { object, kind: UpdateKind::Enter, properties }]);
    }
    inventory
}

fn words<T>(found: Result<T>, id: impl Fn(T) -> String) -> String {
    found.map_or_else(|error| error.to_string(), id)
}

#[test]
fn datacenters() {
    let both = inventory(&OBJECTS);
    let dc1 = [MoRef::new("Datacenter", "dc-1")];
    let find = |datacenters: &[MoRef], word| {
        words(Finder::new("one", &both, datacenters).datacenter(word), |found| found.id().to_owned())
    };
    for (word, expected) in [
        (Some("DC0"), "dc-1"),
        (Some("/DC1"), "dc-2"),
        (Some("dc-1"), "dc-1"),
        (Some("Datacenter:dc-2"), "dc-2"),
        (Some("*0"), "dc-1"),
        (Some("DC7"), "spec.datacenter: there is no \"DC7\" in vCenter \"one\"; it has /DC0, /DC1"),
    ] {
        assert_eq!(find(&[], word), expected, "{word:?}");
    }
    assert!(find(&[], None).starts_with("spec.datacenter: there are several, so one must be named: /DC"));
    assert_eq!(find(&dc1, Some("*")), "dc-1");
    assert_eq!(
        find(&dc1, Some("DC1")),
        "spec.datacenter: there is no \"DC1\" in the part of vCenter \"one\" that is used; it has /DC0"
    );
}

#[test]
fn folders_and_pools() {
    let all = inventory(&OBJECTS);
    let (finder, dc) = (Finder::new("one", &all, &[]), MoRef::new("Datacenter", "dc-1"));
    let folder = |word| words(finder.folder(&dc, word), |found| found.id().to_owned());
    for (word, expected) in [
        (None, "group-v1"),
        (Some("k8s"), "group-v2"),
        (Some("k8s/prod"), "group-v3"),
        (Some("prod"), "group-v3"),
        (Some("/DC0/vm/k8s"), "group-v2"),
        (Some("group-v3"), "group-v3"),
        (Some("vm"), "group-v1"),
        (Some("vm/k8s"), "group-v2"),
        (Some("*/prod"), "group-v3"),
        (Some("/DC0/vm/*/prod"), "group-v3"),
        (
            Some("/k8s"),
            "spec.folder: there is no \"/k8s\" in datacenter \"DC0\" of vCenter \"one\"; it has /DC0/vm, /DC0/vm/k8s, /DC0/vm/k8s/prod",
        ),
        (
            Some("test"),
            "spec.folder: there is no \"test\" in datacenter \"DC0\" of vCenter \"one\"; it has /DC0/vm, /DC0/vm/k8s, /DC0/vm/k8s/prod",
        ),
    ] {
        assert_eq!(folder(word), expected, "{word:?}");
    }
    let pool = |word| words(finder.resource_pool(&dc, word), |found| found.id().to_owned());
    for (word, expected) in [
        (None, "resgroup-1"),
        (Some("*/Resources"), "resgroup-1"),
        (Some("C0/Resources/small"), "resgroup-2"),
        (Some("small"), "resgroup-2"),
        (Some("/DC0/host/C0/Resources"), "resgroup-1"),
        (Some("/DC0/host/C0"), "resgroup-1"),
        (Some("C0"), "resgroup-1"),
        (Some("C?"), "resgroup-1"),
        (Some("domain-1"), "resgroup-1"),
        (Some("resgroup-2"), "resgroup-2"),
        (
            Some("C1/Resources"),
            "spec.resourcePool: there is no \"C1/Resources\" in datacenter \"DC0\" of vCenter \"one\"; it has /DC0/host/C0/Resources, /DC0/host/C0/Resources/small",
        ),
    ] {
        assert_eq!(pool(word), expected, "{word:?}");
    }
    let empty = MoRef::new("Datacenter", "dc-2");
    let error = words(finder.resource_pool(&empty, None), |found| found.id().to_owned());
    assert_eq!(error, "spec.resourcePool: there is none in datacenter \"DC1\" of vCenter \"one\"");
}

#[test]
fn several_of_a_name_are_listed() {
    let mut objects = OBJECTS.to_vec();
    objects.push(("ClusterComputeResource", "domain-2", "C1", Some(("Folder", "group-h1"))));
    objects.push(("ResourcePool", "resgroup-7", "Resources", Some(("ClusterComputeResource", "domain-2"))));
    let all = inventory(&objects);
    let (finder, dc) = (Finder::new("one", &all, &[]), MoRef::new("Datacenter", "dc-1"));
    let pool = |word| words(finder.resource_pool(&dc, word), |found| found.id().to_owned());
    assert_eq!(
        pool(Some("Resources")),
        "spec.resourcePool: \"Resources\" means several: /DC0/host/C0/Resources, /DC0/host/C1/Resources"
    );
    assert!(
        pool(None).starts_with("spec.resourcePool: there are several, so one must be named: /DC0/host/C0")
    );
}

/// What is called alike in another datacenter, or in another folder, is another one.
#[test]
fn a_whole_path_means_that_path() {
    let mut objects = OBJECTS.to_vec();
    objects.extend([
        ("ComputeResource", "domain-9", "H0", Some(("Folder", "group-h1"))),
        ("ResourcePool", "resgroup-9", "Resources", Some(("ComputeResource", "domain-9"))),
        ("Folder", "group-d2", "east", Some(("Folder", "group-d1"))),
        ("Datacenter", "dc-3", "DC1", Some(("Folder", "group-d2"))),
    ]);
    let all = inventory(&objects);
    let (finder, dc) = (Finder::new("one", &all, &[]), MoRef::new("Datacenter", "dc-1"));
    for word in ["/DC1/vm/k8s", "/DC0/k8s", "/nowhere/vm/k8s", "nowhere/k8s"] {
        let error = finder.folder(&dc, Some(word)).expect_err(word);
        assert_eq!(error.kind(), ErrorKind::NotFound, "{word}");
    }
    for word in ["/DC1/host/C0", "/DC0/C0", "/DC0/host/C0/Resources/Resources"] {
        let error = finder.resource_pool(&dc, Some(word)).expect_err(word);
        assert_eq!(error.kind(), ErrorKind::NotFound, "{word}");
    }
    for word in ["/DC1/vm/k8s/ubuntu", "/DC0/vm/flatcar", "nowhere/ubuntu"] {
        let error = finder.template(&dc, word).expect_err(word);
        assert_eq!(error.kind(), ErrorKind::NotFound, "{word}");
    }
    for word in ["/DC1/host/C0", "/nowhere/C0"] {
        assert_eq!(finder.compute_cluster(&dc, word).expect_err(word).kind(), ErrorKind::NotFound, "{word}");
    }
    let pool = |word| words(finder.resource_pool(&dc, Some(word)), |found| found.id().to_owned());
    assert_eq!((pool("H0"), pool("/DC0/host/H0")), ("resgroup-9".to_owned(), "resgroup-9".to_owned()));
    assert!(pool("*").contains("there are several"), "{}", pool("*"));
    let datacenter = |word| words(finder.datacenter(Some(word)), |found| found.id().to_owned());
    assert_eq!(
        (datacenter("/DC1"), datacenter("/east/DC1"), datacenter("east/DC1")),
        ("dc-2".to_owned(), "dc-3".to_owned(), "dc-3".to_owned())
    );
    assert!(datacenter("DC1").contains("means several"), "{}", datacenter("DC1"));
}

#[test]
fn templates() {
    let all = inventory(&OBJECTS);
    let (finder, dc) = (Finder::new("one", &all, &[]), MoRef::new("Datacenter", "dc-1"));
    let template = |word| words(finder.template(&dc, word), |found| found.moref.id().to_owned());
    for (word, expected) in [
        // the template rather than the machine of the same name
        ("ubuntu", "vm-1"),
        ("/DC0/vm/ubuntu", "vm-2"),
        ("k8s/ubuntu", "vm-1"),
        ("vm-3", "vm-3"),
        ("50110000-0000-4000-8000-000000000001", "vm-1"),
        ("flat*", "vm-3"),
        (
            "debian",
            "spec.template: there is no \"debian\" in datacenter \"DC0\" of vCenter \"one\"; it has /DC0/vm/k8s/ubuntu",
        ),
    ] {
        assert_eq!(template(word), expected, "{word:?}");
    }
}

#[test]
fn clusters_of_hosts_and_their_pools() {
    let all = inventory(&OBJECTS);
    let (finder, dc) =
        (Finder::new("one", &all, &[]).for_zone("topology."), MoRef::new("Datacenter", "dc-1"));
    let cluster = |word| words(finder.compute_cluster(&dc, word), |found| found.id().to_owned());
    for (word, expected) in [
        ("C0", "domain-1"),
        ("/DC0/host/C0", "domain-1"),
        ("domain-1", "domain-1"),
        ("C1", "topology.computeCluster: there is no \"C1\" in datacenter \"DC0\" of vCenter \"one\""),
    ] {
        assert_eq!(cluster(word), expected, "{word:?}");
    }
    let cluster = MoRef::new("ClusterComputeResource", "domain-1");
    let root = finder.root_pool(&cluster).expect("a pool");
    assert_eq!(root, "/DC0/host/C0/Resources");
    assert_eq!(finder.resource_pool(&dc, Some(&root)).ok(), Some(MoRef::new("ResourcePool", "resgroup-1")));
    let pool = MoRef::new("ResourcePool", "resgroup-2");
    assert!(finder.is_below(&pool, &cluster) && !finder.is_below(&cluster, &pool));
    assert_eq!(
        words(finder.folder(&dc, Some("none")), |found| found.id().to_owned()),
        "topology.folder: there is no \"none\" in datacenter \"DC0\" of vCenter \"one\""
    );
}
