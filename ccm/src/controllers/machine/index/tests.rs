use cloudprovider::machines::Kind;
use serde_json::{Value, json};

use super::*;
use crate::controllers::machine::subject::SubjectKind;

const KINDS: Kinds =
    Kinds::new("v1", Kind::new("MyMachine", "mymachines"), Kind::new("MyCluster", "myclusters"));

fn machine(name: &str) -> Subject {
    Subject::new(SubjectKind::Machine, format!("default/{name}"))
}

/// A machine with a UID of this name, made at this second.
fn object(name: &str, second: u32, identity: Option<&str>) -> InfraObject {
    let mut object = json!({"metadata": {
        "name": name, "namespace": "default", "uid": name, "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
        "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        "ownerReferences": [
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": format!("m-{name}"), "uid": "m"},
        ],
    }});
    if let Some(identity) = identity {
        object["metadata"]["annotations"] = json!({"infrastructure.cluster.x-k8s.io/uid": identity});
    }
    read(object)
}

fn read(object: Value) -> InfraObject {
    serde_json::from_value(object).expect("an object")
}

fn index(objects: &[(&str, u32, Option<&str>)]) -> Index {
    let mut index = Index::default();
    for (name, second, identity) in objects {
        index.update(&machine(name), Some(&object(name, *second, *identity)), &KINDS);
    }
    index
}

#[test]
fn what_depends_on_what() {
    let mut index = index(&[("a", 0, None), ("b", 0, Some("b"))]);
    assert_eq!(index.of_owner("default/m-a"), [machine("a")]);
    assert_eq!(index.of_cluster("default/prod"), [machine("a"), machine("b")]);
    assert_eq!(index.of_identity("a"), [machine("a")]);
    assert_eq!(index.of_identity("b"), [machine("b")]);
    assert!(index.of_owner("other/m-a").is_empty() && index.of_cluster("default/test").is_empty());
    index.update(&machine("a"), None, &KINDS);
    assert!(index.of_owner("default/m-a").is_empty() && index.of_identity("a").is_empty());
    assert_eq!(index.of_cluster("default/prod"), [machine("b")]);
    // The Machine takes it over.
    let mut moved = object("b", 0, Some("b"));
    moved.metadata.owner_references = None;
    index.update(&machine("b"), Some(&moved), &KINDS);
    assert!(index.of_owner("default/m-b").is_empty());
}

#[test]
fn of_several_with_one_identity_one_has_the_best_claim() {
    let rivals = |objects: &[(&str, u32, Option<&str>)]| {
        let index = index(objects);
        objects.iter().map(|(name, ..)| index.rival(&machine(name))).collect::<Vec<_>>()
    };
    let of = |name: &str| Some(format!("default/{name}"));
    for (what, objects, expected) in [
        ("each has its own", &[("a", 0, Some("a")), ("b", 1, Some("b"))][..], vec![None, None]),
        ("the copy is newer", &[("a", 0, Some("a")), ("b", 1, Some("a"))], vec![None, of("a")]),
        ("its own UID counts most", &[("b", 0, Some("a")), ("a", 1, Some("a"))], vec![of("a"), None]),
        ("after a move the older one", &[("b", 1, Some("x")), ("a", 2, Some("x"))], vec![None, of("b")]),
        (
            "in the same second the first name",
            &[("b", 1, Some("x")), ("a", 1, Some("x"))],
            vec![of("a"), None],
        ),
        ("the original is gone", &[("b", 1, Some("x"))], vec![None]),
    ] {
        assert_eq!(rivals(objects), expected, "{what}");
    }
}

#[test]
fn a_change_tells_those_for_which_it_makes_a_difference() {
    let cluster = Subject::new(SubjectKind::Cluster, "default/prod");
    let infrastructure = read(json!({"metadata": {
        "name": "prod", "namespace": "default", "uid": "c", "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
    }}));
    let set = |subjects: &[&Subject]| subjects.iter().map(|&one| one.clone()).collect::<BTreeSet<_>>();
    let mut index = index(&[("a", 0, Some("a"))]);
    assert_eq!(index.update(&cluster, Some(&infrastructure), &KINDS), set(&[&machine("a")]));
    assert_eq!(index.update(&cluster, Some(&infrastructure), &KINDS), set(&[&machine("a")]), "its spec");
    let copy = object("b", 1, Some("a"));
    assert_eq!(index.update(&machine("b"), Some(&copy), &KINDS), set(&[&machine("a"), &cluster]));
    assert_eq!(index.update(&machine("b"), Some(&copy), &KINDS), set(&[]), "the same");
    assert_eq!(index.machines_of(&cluster).len(), 2);
    assert_eq!(index.infrastructure_of("default/prod"), Some(&cluster));
    assert_eq!(index.update(&machine("b"), None, &KINDS), set(&[&machine("a"), &cluster]));
}

#[test]
fn the_infrastructure_of_a_cluster_is_the_only_one_with_its_name_in_the_mark() {
    let of = |name: &str, label: &str, made_for: &str| {
        let object = read(json!({"metadata": {
            "name": name, "namespace": "default", "uid": name, "labels": {"cluster.x-k8s.io/cluster-name": label},
            "annotations": {"infrastructure.cluster.x-k8s.io/cluster-name": made_for},
        }}));
        (Subject::new(SubjectKind::Cluster, format!("default/{name}")), object)
    };
    let mut index = Index::default();
    // The first by name is labelled with another Cluster than it was made for.
    for (subject, object) in [of("a", "prod", "test"), of("b", "prod", "prod")] {
        index.update(&subject, Some(&object), &KINDS);
    }
    let key = |name: &str| format!("default/{name}");
    assert_eq!(index.infrastructure_of(&key("prod")).map(|found| &*found.key), Some("default/b"));
    assert_eq!(index.infrastructure_of(&key("test")).map(|found| &*found.key), Some("default/a"));
    let (subject, object) = of("c", "prod", "prod");
    index.update(&subject, Some(&object), &KINDS);
    assert_eq!(index.infrastructure_of(&key("prod")), None, "there are two");
}

#[test]
fn a_machine_belongs_to_each_cluster_that_anything_about_it_names() {
    let cluster = |name: &str| Subject::new(SubjectKind::Cluster, format!("default/{name}"));
    let owner = |kind: &str| json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": "prod", "uid": "c"}]);
    let label = |name: &str| json!({"cluster.x-k8s.io/cluster-name": name});
    let made_for = json!({"infrastructure.cluster.x-k8s.io/cluster-name": "prod"});
    let mut index = Index::default();
    for name in ["prod", "test"] {
        let object = read(json!({"metadata": {"name": name, "namespace": "default", "labels": label(name)}}));
        index.update(&cluster(name), Some(&object), &KINDS);
    }
    // Neither a label nor an owner: its own name is in its mark.
    let nameless = read(json!({"metadata": {"name": "bare", "namespace": "default"}}));
    index.update(&cluster("bare"), Some(&nameless), &KINDS);
    for (what, metadata, of, is_stray) in [
        ("a label", json!({"labels": label("prod")}), vec!["prod"], false),
        ("its owner", json!({"ownerReferences": owner("Cluster")}), vec!["prod"], false),
        ("what it was made for", json!({"annotations": made_for}), vec!["prod"], false),
        (
            "another label",
            json!({"labels": label("test"), "annotations": made_for}),
            vec!["prod", "test"],
            false,
        ),
        ("the name of the infrastructure", json!({"labels": label("bare")}), vec!["bare"], false),
        ("nothing", json!({"ownerReferences": owner("Machine")}), vec!["bare", "prod", "test"], true),
    ] {
        let mut object = json!({"metadata": metadata});
        (object["metadata"]["name"], object["metadata"]["namespace"]) = (json!("one"), json!("default"));
        index.update(&machine("one"), None, &KINDS);
        let woken = index.update(&machine("one"), Some(&read(object)), &KINDS);
        let found = ["bare", "prod", "test"]
            .into_iter()
            .filter(|name| index.machines_of(&cluster(name)).contains(&machine("one")));
        assert_eq!(found.collect::<Vec<_>>(), of, "{what}");
        assert!(of.iter().all(|name| woken.contains(&cluster(name))), "{what}: {woken:?}");
        assert_eq!(index.is_stray(&machine("one")), is_stray, "{what}");
    }
}
