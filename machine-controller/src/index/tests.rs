use cloudprovider::machines::Kind;
use serde_json::{Value, json};

use super::*;
use crate::object_key::ObjectKind;

const KINDS: Kinds =
    Kinds::new("v1", Kind::new("MyMachine", "mymachines"), Kind::new("MyCluster", "myclusters"));

fn machine(name: &str) -> ObjectKey {
    ObjectKey::new(ObjectKind::Machine, format!("default/{name}"))
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
    assert_eq!(index.of_uid("a"), [machine("a")]);
    assert_eq!(index.of_uid("b"), [machine("b")]);
    assert!(index.of_owner("other/m-a").is_empty() && index.of_cluster("default/test").is_empty());
    index.update(&machine("a"), None, &KINDS);
    assert!(index.of_owner("default/m-a").is_empty() && index.of_uid("a").is_empty());
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
        objects
            .iter()
            .map(|(name, ..)| {
                index.rival(&machine(name)).map(|rival| {
                    assert!(!rival.is_foreign && !rival.has_same_mark);
                    rival.key
                })
            })
            .collect::<Vec<_>>()
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
    let cluster = ObjectKey::new(ObjectKind::Cluster, "default/prod");
    let infrastructure = read(json!({"metadata": {
        "name": "prod", "namespace": "default", "uid": "c", "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
    }}));
    let set =
        |object_keys: &[&ObjectKey]| object_keys.iter().map(|&one| one.clone()).collect::<BTreeSet<_>>();
    let mut index = index(&[("a", 0, Some("a"))]);
    assert_eq!(index.update(&cluster, Some(&infrastructure), &KINDS), set(&[&machine("a")]));
    assert_eq!(index.update(&cluster, Some(&infrastructure), &KINDS), set(&[&machine("a")]), "its spec");
    let copy = object("b", 1, Some("a"));
    assert_eq!(
        index.update(&machine("b"), Some(&copy), &KINDS),
        set(&[&cluster]),
        "it changes nothing for a"
    );
    assert_eq!(index.update(&machine("b"), Some(&copy), &KINDS), set(&[]), "the same");
    assert_eq!(index.machines_of(&cluster).len(), 2);
    assert_eq!(index.infrastructure_of("default/prod"), Some(&cluster));
    assert_eq!(index.update(&machine("a"), None, &KINDS), set(&[&machine("b"), &cluster]), "b has it now");
    let original = object("a", 0, Some("a"));
    assert_eq!(
        index.update(&machine("a"), Some(&original), &KINDS),
        set(&[&machine("b"), &cluster]),
        "and a again"
    );
    assert_eq!(index.update(&machine("b"), None, &KINDS), set(&[&cluster]));
}

/// An object of this namespace that was made at this second.
fn of_namespace(
    namespace: &str,
    name: &str,
    second: u32,
    identity: Option<&str>,
) -> (ObjectKey, InfraObject) {
    let mut object = object(name, second, identity);
    object.metadata.namespace = Some(namespace.to_owned());
    (ObjectKey::new(ObjectKind::Machine, format!("{namespace}/{name}")), object)
}

#[test]
fn what_a_namespace_claims_stops_nothing_of_another_one() {
    let mut index = Index::default();
    // All machines of team-b have moved here. The attacker's object is older.
    let victim = of_namespace("team-b", "victim", 9, Some("x"));
    let attacker = of_namespace("team-a", "attacker", 1, Some("x"));
    assert!(index.update(&victim.0, Some(&victim.1), &KINDS).is_empty());
    assert!(index.update(&attacker.0, Some(&attacker.1), &KINDS).is_empty(), "nobody is woken");
    assert_eq!((index.rival(&victim.0), index.rival(&attacker.0)), (None, None));
    // The cloud says that something about this UID has changed, and knows no namespace.
    assert_eq!(index.of_uid("x"), [attacker.0.clone(), victim.0.clone()]);
    assert!(index.update(&attacker.0, None, &KINDS).is_empty());
    assert_eq!(index.of_uid("x"), [victim.0]);
}

#[test]
fn an_object_that_has_the_uid_itself_is_right_against_those_that_claim_it() {
    let mut index = Index::default();
    let attacker = of_namespace("team-a", "attacker", 1, Some("x"));
    let original = of_namespace("team-b", "x", 9, None);
    index.update(&attacker.0, Some(&attacker.1), &KINDS);
    assert_eq!(index.rival(&attacker.0), None);
    let woken = index.update(&original.0, Some(&original.1), &KINDS);
    assert_eq!(woken, BTreeSet::from([attacker.0.clone()]));
    let rival = index.rival(&attacker.0).expect("a rival");
    assert_eq!(rival, Rival { key: "team-b/x".into(), is_foreign: true, has_same_mark: false });
    assert_eq!(index.rival(&original.0), None);
    assert_eq!(index.update(&original.0, None, &KINDS), BTreeSet::from([attacker.0.clone()]));
    assert_eq!(index.rival(&attacker.0), None);
}

#[test]
fn copies_of_a_cluster_have_the_same_mark() {
    let of = |name: &str, made_for: &str| {
        let object = read(json!({"metadata": {
            "name": name, "namespace": "default", "uid": name,
            "annotations": {
                "infrastructure.cluster.x-k8s.io/uid": "a",
                "infrastructure.cluster.x-k8s.io/cluster-name": made_for,
            },
        }}));
        (ObjectKey::new(ObjectKind::Cluster, format!("default/{name}")), object)
    };
    let mut index = Index::default();
    for (object_key, object) in [of("a", "prod"), of("b", "prod"), of("c", "test")] {
        index.update(&object_key, Some(&object), &KINDS);
    }
    for (name, has_same_mark) in [("b", true), ("c", false)] {
        let rival = index.rival(&ObjectKey::new(ObjectKind::Cluster, format!("default/{name}")));
        assert_eq!(
            rival.map(|rival| (rival.key, rival.has_same_mark)),
            Some(("default/a".into(), has_same_mark))
        );
    }
}

#[test]
fn the_infrastructure_of_a_cluster_is_the_only_one_with_its_name_in_the_mark() {
    let of = |name: &str, label: &str, made_for: &str| {
        let object = read(json!({"metadata": {
            "name": name, "namespace": "default", "uid": name, "labels": {"cluster.x-k8s.io/cluster-name": label},
            "annotations": {"infrastructure.cluster.x-k8s.io/cluster-name": made_for},
        }}));
        (ObjectKey::new(ObjectKind::Cluster, format!("default/{name}")), object)
    };
    let mut index = Index::default();
    // The first by name is labelled with another Cluster than it was made for.
    for (object_key, object) in [of("a", "prod", "test"), of("b", "prod", "prod")] {
        index.update(&object_key, Some(&object), &KINDS);
    }
    let key = |name: &str| format!("default/{name}");
    assert_eq!(index.infrastructure_of(&key("prod")).map(|found| &*found.key), Some("default/b"));
    assert_eq!(index.infrastructure_of(&key("test")).map(|found| &*found.key), Some("default/a"));
    let (object_key, object) = of("c", "prod", "prod");
    index.update(&object_key, Some(&object), &KINDS);
    assert_eq!(index.infrastructure_of(&key("prod")), None, "there are two");
}

#[test]
fn a_machine_belongs_to_each_cluster_that_anything_about_it_names() {
    let cluster = |name: &str| ObjectKey::new(ObjectKind::Cluster, format!("default/{name}"));
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
