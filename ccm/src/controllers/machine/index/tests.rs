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
    assert_eq!(index.machines_of_cluster("default/prod"), 2);
    assert_eq!(index.update(&machine("b"), None, &KINDS), set(&[&machine("a"), &cluster]));
}
