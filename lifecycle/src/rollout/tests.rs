#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn rolling(replicas: i64, max_surge: i64, max_unavailable: i64) -> Deployment {
    Deployment {
        replicas,
        strategy: Strategy::RollingUpdate {
            max_surge: Bound::Count(max_surge),
            max_unavailable: Bound::Count(max_unavailable),
        },
        in_place_updates: false,
    }
}

fn percent(replicas: i64, max_surge: i64, max_unavailable: i64) -> Deployment {
    let strategy = Strategy::RollingUpdate {
        max_surge: Bound::Percent(max_surge),
        max_unavailable: Bound::Percent(max_unavailable),
    };
    Deployment { strategy, ..rolling(replicas, 0, 0) }
}

fn on_delete(replicas: i64) -> Deployment {
    Deployment { strategy: Strategy::OnDelete, ..rolling(replicas, 0, 0) }
}

/// `replicas` wanted, `machines` there, `available` of them available.
fn set(name: &str, replicas: i64, machines: i64, available: i64) -> MachineSet {
    MachineSet {
        name: name.into(),
        created: 0,
        replicas,
        status: Counts { replicas: machines, available, up_to_date: 0 },
        updatable_in_place: false,
        acknowledged: BTreeSet::new(),
        revision: None,
    }
}

/// The replicas after a pass: of the current one, then of the old ones.
fn replicas(deployment: &Deployment, current: MachineSet, old: Vec<MachineSet>) -> Vec<i64> {
    let plan = plan(deployment, Current::Exists(current), old, &[]);
    plan.machine_sets.iter().map(|planned| planned.replicas).collect()
}

#[test]
fn percentages_of_the_surge_round_up_and_those_of_unavailability_down() {
    let bounds = |deployment: Deployment| (deployment.max_surge(), deployment.max_unavailable());
    assert_eq!(bounds(percent(10, 25, 25)), (3, 2));
    assert_eq!(bounds(percent(10, 0, 100)), (0, 10));
    assert_eq!(bounds(percent(3, 1, 1)), (1, 0));
    assert_eq!(bounds(rolling(3, 5, 9)), (5, 3));
}

#[test]
fn bounds_that_allow_nothing_let_one_machine_be_unavailable() {
    assert_eq!(rolling(3, 0, 0).max_unavailable(), 1);
    assert_eq!(percent(2, 0, 1).max_unavailable(), 1);
    assert_eq!(rolling(0, 0, 0).max_unavailable(), 0);
    assert_eq!(on_delete(3).max_unavailable(), 0);
}

#[test]
fn a_new_machine_set_begins_with_the_surge() {
    let plan = plan(&rolling(3, 1, 0), Current::New { name: "new".into() }, vec![set("old", 3, 3, 3)], &[]);
    let [new, old] = &plan.machine_sets[..] else { unreachable!() };
    assert_eq!((new.name.as_str(), new.replicas, old.replicas), ("new", 1, 3));
    assert_eq!(new.revision, Some(Revision { number: 1, history: vec![] }));
    assert!(!new.creates_no_machines && !old.creates_no_machines);
}

#[test]
fn machines_that_are_being_deleted_leave_no_room_for_new_ones() {
    assert_eq!(replicas(&rolling(3, 1, 0), set("new", 1, 1, 1), vec![set("old", 2, 3, 2)]), [1, 2]);
    assert_eq!(replicas(&rolling(3, 1, 0), set("new", 1, 1, 1), vec![set("old", 2, 2, 2)]), [2, 2]);
}

#[test]
fn the_current_machine_set_follows_a_scale_down_at_once() {
    assert_eq!(replicas(&rolling(2, 1, 0), set("new", 5, 5, 5), vec![]), [2]);
}

#[test]
fn old_machines_go_as_far_as_availability_allows() {
    assert_eq!(replicas(&rolling(10, 0, 2), set("new", 0, 0, 0), vec![set("old", 10, 10, 10)]), [0, 8]);
    // what goes already counts
    assert_eq!(replicas(&rolling(10, 0, 2), set("new", 0, 0, 0), vec![set("old", 8, 10, 10)]), [0, 8]);
    // and so does what is not available
    assert_eq!(replicas(&rolling(10, 0, 2), set("new", 0, 0, 0), vec![set("old", 10, 10, 9)]), [0, 9]);
}

#[test]
fn new_machines_that_are_not_available_stop_the_old_ones_from_going() {
    assert_eq!(replicas(&rolling(10, 0, 4), set("new", 4, 4, 1), vec![set("old", 6, 6, 6)])[1], 5);
    // also where the old ones are not available either
    assert_eq!(replicas(&rolling(10, 0, 4), set("new", 4, 4, 4), vec![set("old", 6, 6, 0)])[1], 2);
    assert_eq!(replicas(&rolling(10, 0, 4), set("new", 4, 4, 0), vec![set("old", 6, 6, 0)])[1], 6);
}

#[test]
fn what_is_not_available_goes_first() {
    // One more may go, since two of the second one's machines are going.
    let old = vec![set("a", 6, 6, 6), set("b", 2, 4, 0)];
    assert_eq!(replicas(&rolling(8, 0, 3), set("new", 0, 0, 0), old), [0, 6, 1]);
}

#[test]
fn the_oldest_machine_set_goes_first() {
    let old = vec![
        MachineSet { created: 20, ..set("a", 4, 4, 4) },
        MachineSet { created: 10, ..set("b", 4, 4, 4) },
    ];
    let plan = plan(&rolling(8, 0, 3), Current::Exists(set("new", 0, 0, 0)), old, &[]);
    let after: Vec<_> = plan.machine_sets.iter().map(|set| (set.name.as_str(), set.replicas)).collect();
    assert_eq!(after, [("new", 0), ("b", 1), ("a", 4)]);
}

#[test]
fn a_machine_that_may_go_is_taken_for_an_available_one() {
    // One of three is not available, and the MachineSet may delete another one.
    assert_eq!(replicas(&rolling(3, 1, 0), set("new", 1, 1, 1), vec![set("old", 3, 3, 2)])[1], 2);
}

#[test]
fn a_rollout_that_is_stuck_loses_one_machine_that_is_not_available() {
    let deployment = rolling(3, 1, 0);
    let stuck = |old_available: i64, new: MachineSet| {
        plan(&deployment, Current::Exists(new), vec![set("old", 3, 3, old_available)], &[])
    };
    let freed = stuck(1, set("new", 1, 1, 1));
    assert_eq!(freed.machine_sets[1].replicas, 2);
    assert_eq!(freed.machine_sets[0].reasons, [Reason::CurrentAgain, Reason::Deadlock]);
    // not while new machines come, or fail
    assert_eq!(stuck(1, set("new", 1, 0, 0)).machine_sets[1].replicas, 3);
    assert_eq!(stuck(1, set("new", 1, 1, 0)).machine_sets[1].replicas, 3);
}

#[test]
fn a_user_who_deletes_a_machine_gets_a_new_one() {
    let deployment = on_delete(3);
    assert_eq!(replicas(&deployment, set("new", 0, 0, 0), vec![set("old", 3, 3, 3)]), [0, 3]);
    assert_eq!(replicas(&deployment, set("new", 0, 0, 0), vec![set("old", 3, 2, 2)]), [0, 2]);
    assert_eq!(replicas(&deployment, set("new", 0, 0, 0), vec![set("old", 2, 2, 2)]), [1, 2]);
    let plan = plan(&deployment, Current::Exists(set("new", 0, 0, 0)), vec![set("old", 3, 3, 3)], &[]);
    assert_eq!(
        plan.machine_sets.iter().map(|set| set.creates_no_machines).collect::<Vec<_>>(),
        [false, true]
    );
}

#[test]
fn a_scale_down_on_delete_takes_old_machines_after_those_that_are_gone_anyway() {
    // Of five replicas two have no machine; the deployment wants two.
    assert_eq!(replicas(&on_delete(2), set("new", 0, 0, 0), vec![set("old", 5, 3, 3)]), [0, 2]);
    assert_eq!(
        replicas(&on_delete(2), set("new", 1, 1, 1), vec![set("a", 2, 2, 2), set("b", 1, 1, 1)]),
        [1, 0, 1]
    );
}

#[test]
fn updates_in_place_come_before_new_machines() {
    let deployment = Deployment { in_place_updates: true, ..rolling(3, 1, 1) };
    let old = || vec![MachineSet { updatable_in_place: true, ..set("old", 3, 3, 3) }];
    let first = plan(&deployment, Current::Exists(set("new", 0, 0, 0)), old(), &[]);
    assert_eq!(first.machine_sets[0].replicas, 0);
    assert_eq!(first.machine_sets[1].replicas, 2);
    assert_eq!(first.machine_sets[1].moves_machines_to.as_deref(), Some("new"));
    assert_eq!(first.machine_sets[0].receives_machines_from, BTreeSet::from(["old".to_owned()]));
    // Without unavailability one machine has to come first.
    let deployment = Deployment { in_place_updates: true, ..rolling(3, 3, 0) };
    assert_eq!(
        plan(&deployment, Current::Exists(set("new", 0, 0, 0)), old(), &[]).machine_sets[0].replicas,
        1
    );
}

#[test]
fn a_machine_that_moved_is_counted_once() {
    let deployment = Deployment { in_place_updates: true, ..rolling(3, 0, 1) };
    let moved =
        Machine { name: "m".into(), machine_set: "new".into(), pending_acknowledge: true, updating: true };
    let pass = |replicas: i64, acknowledged: BTreeSet<String>| {
        let current = MachineSet { acknowledged, ..set("new", replicas, 1, 0) };
        plan(&deployment, Current::Exists(current), vec![set("old", 2, 2, 2)], std::slice::from_ref(&moved))
    };
    let names = BTreeSet::from(["m".to_owned()]);
    let first = pass(0, BTreeSet::new());
    assert_eq!((first.machine_sets[0].replicas, &first.machine_sets[0].acknowledged), (1, &names));
    let second = pass(1, names.clone());
    assert_eq!((second.machine_sets[0].replicas, &second.machine_sets[0].acknowledged), (1, &names));
}

fn candidate(name: &str, created: i64, replicas: i64, has_template: bool) -> Candidate<'_> {
    Candidate { name, created, replicas, has_template }
}

#[test]
fn of_several_with_the_template_the_largest_then_the_oldest_is_current() {
    let choice = choose(
        &[
            candidate("a", 3, 1, true),
            candidate("b", 2, 4, true),
            candidate("c", 1, 4, true),
            candidate("d", 0, 9, false),
        ],
        None,
        0,
    );
    assert_eq!(choice.current, Some(2));
    assert_eq!(
        choice.old,
        [
            Old { index: 3, may_update_in_place: true },
            Old { index: 1, may_update_in_place: false },
            Old { index: 0, may_update_in_place: false },
        ]
    );
}

#[test]
fn after_the_time_of_a_rollout_older_machine_sets_are_replaced() {
    let candidates = [candidate("a", 5, 3, true), candidate("b", 5, 3, false)];
    assert_eq!(choose(&candidates, Some(10), 9).current, Some(0));
    let choice = choose(&candidates, Some(10), 10);
    assert_eq!(choice.current, None);
    assert!(choice.old.iter().all(|old| !old.may_update_in_place));
    assert_eq!(
        choose(&[candidate("a", 5, 3, true), candidate("b", 10, 0, true)], Some(10), 11).current,
        Some(1)
    );
    assert_eq!(choose(&[], None, 0), Choice { current: None, old: vec![] });
}

#[test]
fn the_current_machine_set_has_the_highest_revision() {
    let revision = |number: i64, history: &[i64]| Some(Revision { number, history: history.to_vec() });
    let pass = |current: Option<Revision>, old: i64| {
        let current = MachineSet { revision: current, ..set("new", 3, 3, 3) };
        let old = MachineSet { revision: revision(old, &[]), ..set("old", 0, 0, 0) };
        plan(&rolling(3, 1, 0), Current::Exists(current), vec![old], &[]).machine_sets.remove(0)
    };
    assert_eq!(pass(revision(2, &[]), 3).revision, revision(4, &[2]));
    assert_eq!(pass(revision(2, &[1]), 3).revision, revision(4, &[1, 2]));
    assert_eq!(pass(revision(2, &[]), 3).reasons, [Reason::CurrentAgain]);
    // It is never lowered: what it was counted above may be deleted.
    assert_eq!(pass(revision(7, &[]), 3).revision, revision(7, &[]));
    assert_eq!(pass(revision(7, &[]), 3).reasons, []);
}
