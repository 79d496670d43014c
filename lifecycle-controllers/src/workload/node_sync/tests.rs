//! Upstream's own tables: `TestPatchNode`, `TestMultiplePatchNode`, `TestNodeLabelSync`, `Test_propagateMachineTaintsToNode`,
//! `TestGetManagedAnnotations`, `TestGetManagedLabels` and `Test_shouldNodeHaveOutdatedTaint`, as behaviour.

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn map(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn node(labels: Pairs<'_>, annotations: Pairs<'_>, taints: &[Taint]) -> Node {
    Node {
        name: "n".to_owned(),
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
        labels: map(labels),
        annotations: map(annotations),
        taints: taints.to_vec(),
        ..Node::default()
    }
}

/// What a Machine has, in short.
#[derive(Clone, Default)]
struct Given<'a> {
    labels: Pairs<'a>,
    annotations: Pairs<'a>,
    taints: Option<Vec<MachineTaint>>,
    owner: Option<(&'a str, &'a str)>,
    is_interruptible: bool,
    is_outdated: bool,
}

fn patched(node: &Node, given: &Given<'_>) -> (Node, bool) {
    let (labels, annotations) = (map(given.labels), map(given.annotations));
    let machine = MachineFacts {
        cluster: "c",
        namespace: "ns",
        name: "m",
        owner: given.owner,
        labels: &labels,
        annotations: &annotations,
        taints: given.taints.as_deref(),
        is_interruptible: given.is_interruptible,
        is_outdated: given.is_outdated,
    };
    let more =
        AdditionalKeys { labels: &|key| key.starts_with("foo"), annotations: &|key| key.starts_with("foo") };
    let mut node = node.clone();
    let Some(patch) = sync(&node, &machine, &more) else { return (node, false) };
    for (all, changes) in [(&mut node.labels, &patch.labels), (&mut node.annotations, &patch.annotations)] {
        for (key, value) in changes {
            match value {
                Some(value) => assert_ne!(all.insert(key.clone(), value.clone()).as_ref(), Some(value)),
                None => assert!(all.remove(key).is_some(), "{key}"),
            }
        }
    }
    node.taints = patch.taints.unwrap_or(node.taints);
    assert_eq!(sync(&node, &machine, &more), None, "once is enough");
    (node, true)
}

/// The annotations that every Node has, and these.
fn common(annotations: Pairs<'_>) -> BTreeMap<String, String> {
    let all = [
        ("cluster.x-k8s.io/cluster-name", "c"),
        ("cluster.x-k8s.io/cluster-namespace", "ns"),
        ("cluster.x-k8s.io/machine", "m"),
        ("cluster.x-k8s.io/labels-from-machine", ""),
        ("cluster.x-k8s.io/annotations-from-machine", ""),
    ];
    let mut all = map(&all);
    all.extend(map(annotations));
    all
}

const LABELS: &str = "cluster.x-k8s.io/labels-from-machine";
const ANNOTATIONS: &str = "cluster.x-k8s.io/annotations-from-machine";
const TAINTS: &str = "cluster.x-k8s.io/taints-from-machine";
const ROLE: &str = "node-role.kubernetes.io";

#[test]
fn labels_of_the_machine_come_and_go_and_others_stay() {
    // Labels and annotations of the Node, labels of the Machine, labels then, and the list of them.
    let table: [(Pairs<'_>, Pairs<'_>, Pairs<'_>, Pairs<'_>, &str); 9] = [
        (&[("other", "x")], &[], &[], &[("other", "x")], ""),
        (&[("other", "x")], &[], &[("foo", "1")], &[("other", "x"), ("foo", "1")], "foo"),
        (&[], &[], &[("bar", "1")], &[], ""),
        (&[(ROLE, "foo")], &[], &[(ROLE, "cp")], &[(ROLE, "cp")], ROLE),
        (&[(ROLE, "foo")], &[(LABELS, ROLE)], &[(ROLE, "cp")], &[(ROLE, "cp")], ROLE),
        (&[(ROLE, "foo"), ("other", "x")], &[(LABELS, ROLE)], &[], &[("other", "x")], ""),
        (&[], &[(LABELS, ROLE)], &[], &[], ""),
        (
            &[("foo1", "1"), ("foo2", "2")],
            &[(LABELS, "foo1,foo2")],
            &[("foo2", "3")],
            &[("foo2", "3")],
            "foo2",
        ),
        (&[("a", "1")], &[(LABELS, ",,a,")], &[("foo", "1")], &[("foo", "1")], "foo"),
    ];
    for (labels, annotations, of_machine, expected, listed) in table {
        let given = Given { labels: of_machine, ..Given::default() };
        let (node, changed) = patched(&node(labels, annotations, &[]), &given);
        assert_eq!(node.labels, map(expected), "{labels:?} {of_machine:?}");
        assert_eq!(node.annotations, common(&[(LABELS, listed)]));
        assert!(changed);
    }
}

#[test]
fn labels_are_chosen_by_their_domains() {
    for (key, is_synchronised) in [
        ("node-role.kubernetes.io", true),
        ("node-role.kubernetes.io/worker", true),
        ("x.node-role.kubernetes.io/worker", false),
        ("node-restriction.kubernetes.io/a", true),
        ("node-restriction.kubernetes.io", true),
        ("prefixed.node-restriction.kubernetes.io/a", true),
        ("wrong.test/node-restriction.kubernetes.io", false),
        ("gpu-node-restriction.kubernetes.io", false),
        ("node.cluster.x-k8s.io/a", true),
        ("custom-prefix.node.cluster.x-k8s.io/a", true),
        ("gpu-node.cluster.x-k8s.io", false),
        ("example.test/node.cluster.x-k8s.io", false),
        ("foo", true),
        ("bar", false),
    ] {
        let (synced, _) = patched(&node(&[], &[], &[]), &Given { labels: &[(key, "v")], ..Given::default() });
        assert_eq!(synced.labels.contains_key(key), is_synchronised, "{key}");
        let (synced, _) =
            patched(&node(&[], &[], &[]), &Given { annotations: &[(key, "v")], ..Given::default() });
        let of_annotations = is_synchronised && (key == "foo" || key.contains("node.cluster.x-k8s.io"));
        assert_eq!(synced.annotations.contains_key(key), of_annotations, "{key}");
    }
    let given = Given { is_interruptible: true, ..Given::default() };
    let (synced, _) = patched(&node(&[], &[], &[]), &given);
    assert_eq!(synced.labels, map(&[("cluster.x-k8s.io/interruptible", "")]));
    let (synced, _) = patched(&synced, &Given::default());
    assert_eq!(synced.labels, map(&[]));
}

#[test]
fn annotations_name_the_machine_and_its_owner() {
    let owner = Given { owner: Some(("MachineSet", "ms")), ..Given::default() };
    let (owned, _) = patched(&node(&[], &[("other", "x")], &[]), &owner);
    let of_owner = [
        ("other", "x"),
        ("cluster.x-k8s.io/owner-kind", "MachineSet"),
        ("cluster.x-k8s.io/owner-name", "ms"),
    ];
    assert_eq!(owned.annotations, common(&of_owner));
    let (orphaned, _) = patched(&owned, &Given::default());
    assert_eq!(orphaned.annotations, common(&[("other", "x")]), "they go with the owner");
    let given = Given { annotations: &[("foo1", "1"), ("foo2", "2")], ..Given::default() };
    let (two, _) = patched(&orphaned, &given);
    assert_eq!(
        two.annotations,
        common(&[("other", "x"), ("foo1", "1"), ("foo2", "2"), (ANNOTATIONS, "foo1,foo2")])
    );
    let (one, _) = patched(&two, &Given { annotations: &[("foo2", "3")], ..Given::default() });
    assert_eq!(one.annotations, common(&[("other", "x"), ("foo2", "3"), (ANNOTATIONS, "foo2")]));
    // A list that names its own annotation.
    let odd = node(&[], &[(ANNOTATIONS, "cluster.x-k8s.io/annotations-from-machine,gone")], &[]);
    let (synced, _) = patched(&odd, &Given::default());
    assert_eq!(synced.annotations, common(&[]));
}

fn taint(key: &str, value: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned(), time_added: None }
}

#[test]
fn taints_of_cluster_api_come_and_go_and_others_stay() {
    let control_plane = taint("node-role.kubernetes.io/control-plane", "", "NoSchedule");
    let uninitialized = taint("node.cluster.x-k8s.io/uninitialized", "", "NoSchedule");
    let outdated = taint("node.cluster.x-k8s.io/outdated-revision", "", "PreferNoSchedule");
    let given = |is_outdated| Given { is_outdated, ..Given::default() };
    let (synced, _) = patched(&node(&[], &[], &[control_plane.clone(), uninitialized]), &given(false));
    assert_eq!(synced.taints, std::slice::from_ref(&control_plane));
    let (synced, changed) = patched(&synced, &given(true));
    assert!(changed && synced.taints == [control_plane.clone(), outdated]);
    let (synced, _) = patched(&synced, &given(false));
    assert_eq!(synced.taints, [control_plane]);
    assert!(!patched(&synced, &given(false)).1);
}

#[test]
fn revisions_are_compared() {
    for (machine_set, deployment, expected) in [
        (Some("1"), Some("2"), true),
        (Some("3"), Some("2"), false),
        (Some("2"), Some("2"), false),
        (None, Some("1"), true),
        (None, None, false),
        (Some("1"), None, false),
        (Some("x"), Some("2"), false),
        (Some("1"), Some(""), false),
    ] {
        assert_eq!(is_outdated(machine_set, deployment), expected, "{machine_set:?} {deployment:?}");
    }
}

fn of_machine(
    key: &str,
    value: &str,
    effect: TaintEffect,
    propagation: MachineTaintPropagation,
) -> MachineTaint {
    MachineTaint { key: key.to_owned(), value: Some(value.to_owned()), effect, propagation }
}

/// The list and the taints of a Node, the taints of its Machine, and those and the list of the Node then.
type Row<'a> = (Option<&'a str>, Vec<Taint>, Vec<&'a MachineTaint>, Vec<Taint>, &'a str);

#[test]
fn taints_of_the_machine_are_kept_or_set_once() {
    use MachineTaintPropagation::{Always, OnInitialization};
    use TaintEffect::{NoExecute, NoSchedule};
    let always = of_machine("always", "v", NoSchedule, Always);
    let once = of_machine("once", "v", NoSchedule, OnInitialization);
    let existing = of_machine("existing", "v", NoExecute, Always);
    let (kept, now_once) =
        (of_machine("t", "v", NoSchedule, Always), of_machine("t", "v", NoSchedule, OnInitialization));
    let other_value = MachineTaint { value: Some("new".to_owned()), ..existing.clone() };
    let other_effect = MachineTaint { effect: NoSchedule, ..existing.clone() };
    let on_node =
        |one: &MachineTaint| taint(&one.key, one.value.as_deref().unwrap_or_default(), effect_of(one));
    let foreign = taint("foreign", "v", "NoExecute");
    let table: Vec<Row<'_>> = vec![
        (None, vec![], vec![], vec![], ""),
        (Some(""), vec![], vec![], vec![], ""),
        (Some("does-not-exist:NoSchedule"), vec![], vec![], vec![], ""),
        (None, vec![], vec![&always], vec![on_node(&always)], "always:NoSchedule"),
        (Some(""), vec![], vec![&always], vec![on_node(&always)], "always:NoSchedule"),
        (Some("existing:NoExecute"), vec![], vec![&existing], vec![on_node(&existing)], "existing:NoExecute"),
        (Some("existing:NoExecute"), vec![on_node(&existing)], vec![], vec![], ""),
        (None, vec![], vec![&once], vec![on_node(&once)], ""),
        (Some(""), vec![], vec![&once], vec![], ""),
        (Some(""), vec![on_node(&once)], vec![], vec![on_node(&once)], ""),
        (Some("t:NoSchedule"), vec![on_node(&kept)], vec![&now_once], vec![on_node(&kept)], ""),
        (Some(""), vec![on_node(&now_once)], vec![&kept], vec![on_node(&kept)], "t:NoSchedule"),
        (
            Some("existing:NoExecute"),
            vec![on_node(&existing)],
            vec![&other_value],
            vec![on_node(&other_value)],
            "existing:NoExecute",
        ),
        (
            Some("existing:NoExecute"),
            vec![on_node(&existing)],
            vec![&other_effect],
            vec![on_node(&other_effect)],
            "existing:NoSchedule",
        ),
        (
            None,
            vec![foreign.clone()],
            vec![&always, &once],
            vec![foreign, on_node(&always), on_node(&once)],
            "always:NoSchedule",
        ),
        (None, vec![on_node(&existing)], vec![&existing], vec![on_node(&existing)], "existing:NoExecute"),
        (
            Some("existing:NoExecute,"),
            vec![on_node(&existing)],
            vec![&existing],
            vec![on_node(&existing)],
            "existing:NoExecute",
        ),
        // Upstream gives up here, and the Node keeps its taints and labels as they are.
        (Some("no-taint,a:b:c,x:NoExecute"), vec![taint("x", "", "NoExecute")], vec![], vec![], ""),
    ];
    for (list, taints, machine, expected, listed) in table {
        let annotations: Vec<(&str, &str)> = list.into_iter().map(|list| (TAINTS, list)).collect();
        let given = Given { taints: Some(machine.into_iter().cloned().collect()), ..Given::default() };
        let (synced, _) = patched(&node(&[], &annotations, &taints), &given);
        assert_eq!(synced.taints, expected, "{list:?} {taints:?}");
        assert_eq!(synced.annotations, common(&[(TAINTS, listed)]), "{list:?} {taints:?}");
    }
    let off = node(&[], &[(TAINTS, "x:NoExecute")], &[taint("x", "", "NoExecute")]);
    let (synced, _) = patched(&off, &Given::default());
    assert_eq!(synced.taints, off.taints, "the gate is off");
}

#[test]
fn a_patch_names_the_node_and_with_taints_its_version() {
    let one = NodePatch {
        labels: [("a".to_owned(), Some("1".to_owned())), ("b".to_owned(), None)].into(),
        ..NodePatch::default()
    };
    let node = node(&[], &[], &[]);
    assert_eq!(one.body(&node), json!({"metadata": {"uid": "u", "labels": {"a": "1", "b": null}}}));
    let with_taints = NodePatch { taints: Some(vec![taint("k", "", "NoSchedule")]), ..NodePatch::default() };
    let expected = json!({
        "metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    });
    assert_eq!(with_taints.body(&node), expected);
}
