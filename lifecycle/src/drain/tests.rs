use super::*;

const DRAIN: Behavior = Behavior::Drain { order: 0 };

fn pod(name: &str) -> Pod {
    Pod { name: name.into(), ..Pod::default() }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn what_the_node_would_get_again_is_skipped() {
    let daemon = |daemon_set| Pod { daemon_set: Some(daemon_set), ..pod("p") };
    assert_eq!(Behavior::of(&pod("p"), None, false), DRAIN);
    assert_eq!(Behavior::of(&daemon(DaemonSet::Exists), None, false), Behavior::Skip);
    assert_eq!(Behavior::of(&daemon(DaemonSet::Gone), None, false), DRAIN);
    assert_eq!(Behavior::of(&Pod { finished: true, ..daemon(DaemonSet::Exists) }, None, false), DRAIN);
    assert_eq!(Behavior::of(&Pod { mirror: true, ..pod("p") }, None, false), Behavior::Skip);
}

#[test]
fn deletions_that_no_kubelet_can_confirm_are_not_waited_for() {
    let deleting = |seconds| Pod { deleting_for: Some(seconds), ..pod("p") };
    assert_eq!(Behavior::of(&deleting(2), None, true), Behavior::Skip);
    assert_eq!(Behavior::of(&deleting(1), None, true), DRAIN);
    assert_eq!(Behavior::of(&deleting(2), None, false), DRAIN);
    assert_eq!(Behavior::of(&pod("p"), None, true), DRAIN);
}

#[test]
fn a_label_comes_before_a_rule_and_no_rule_before_the_basics() {
    let labelled = |value: &str| Pod { label: Some(value.into()), ..pod("p") };
    let rule = Some(Behavior::Drain { order: 7 });
    for value in ["skip", "Skip", "SKIP"] {
        assert_eq!(Behavior::of(&labelled(value), rule, false), Behavior::Skip);
    }
    for value in ["wait-completed", "WaitCompleted", "waitcompleted"] {
        assert_eq!(Behavior::of(&labelled(value), rule, false), Behavior::WaitCompleted);
    }
    assert_eq!(Behavior::of(&labelled("other"), rule, false), Behavior::Drain { order: 7 });
    let mirror = Pod { mirror: true, ..pod("p") };
    assert_eq!(Behavior::of(&mirror, rule, false), Behavior::Skip);
}

#[test]
fn the_lowest_order_goes_first() {
    let deleting = Pod { deleting_for: Some(0), ..pod("d") };
    let pods = [
        (pod("b"), Behavior::Drain { order: -1 }),
        (pod("a"), Behavior::Drain { order: -1 }),
        (deleting.clone(), Behavior::Drain { order: 5 }),
        (pod("later"), DRAIN),
        (pod("completes"), Behavior::WaitCompleted),
        (pod("skipped"), Behavior::Skip),
    ];
    let pass = Pass::plan(&pods);
    assert_eq!((pass.evict, pass.evict_later), (names(&["a", "b"]), names(&["later"])));
    assert_eq!((pass.deleting, pass.completing), (names(&["d"]), names(&[])));
    assert_eq!(pass.complete_later, names(&["completes"]));
    // One that is going holds the next ones back.
    let pass = Pass::plan(&[(deleting, Behavior::Drain { order: -1 }), (pod("later"), DRAIN)]);
    assert_eq!((pass.evict, pass.evict_later), (names(&[]), names(&["later"])));
}

#[test]
fn a_node_is_drained_when_nothing_is_waited_for() {
    assert!(Pass::plan(&[(pod("skipped"), Behavior::Skip)]).is_done());
    assert!(Pass::plan(&[]).is_done());
    assert!(!Pass::plan(&[(pod("p"), Behavior::WaitCompleted)]).is_done());
    assert!(!Pass::plan(&[(pod("p"), DRAIN)]).is_done());
}

#[test]
fn the_message_says_what_is_waited_for() {
    let pass = Pass {
        evict: names(&["n/evicted", "n/refused", "n/broken"]),
        deleting: names(&["n/a", "n/b", "n/c"]),
        completing: names(&["n/job"]),
        evict_later: names(&["n/x", "n/y"]),
        complete_later: names(&["n/z"]),
    };
    let budget =
        "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget web needs 2";
    let failed = BTreeMap::from([
        (budget.to_owned(), names(&["n/refused"])),
        ("some error".to_owned(), names(&["n/broken"])),
    ]);
    assert_eq!(
        pass.message("2026-11-29T10:00:00Z", &failed),
        "Drain not completed yet (started at 2026-11-29T10:00:00Z):\n\
         * Pods n/a, n/b, n/c, ... (1 more): deletionTimestamp set, but still not removed from the Node\n\
         * Pod n/refused: cannot evict pod as it would violate the pod's disruption budget. The disruption budget web needs 2\n\
         * Pod n/broken: failed to evict Pod, some error\n\
         * Pod n/job: waiting for completion\n\
         After above Pods have been removed from the Node, the following Pods will be evicted: n/x, n/y\n\
         After above Pods have been removed from the Node, waiting for the following Pods to complete without eviction: n/z"
    );
}

#[test]
fn errors_beyond_five_are_counted() {
    let failed: BTreeMap<String, Vec<String>> =
        (1..=7).map(|number| (format!("error {number}"), names(&["n/p"]))).collect();
    let message = Pass { evict: names(&["n/p"]), ..Pass::default() }.message("now", &failed);
    assert!(message.contains("error 5") && !message.contains("error 6"), "{message}");
    assert!(message.ends_with("\n* 2 Pods with other issues"), "{message}");
    let pass = Pass { completing: names(&["n/job"]), ..Pass::default() };
    let message = pass.message("now", &failed);
    assert!(
        message.ends_with("\n* 2 Pods with other issues\n* Pod n/job: waiting for completion"),
        "{message}"
    );
}
