//! Tests of the judge: the faults that it must find, and the correct cases that it must accept.

use std::collections::HashMap;

use anyhow::ensure;

use super::{
    faults::{Focus, Sequence, Shape},
    judge::{Deletion, LATE, Renewal, Rules, Terms},
    observer::unsettled,
    proxy::Write,
    world::{Machine, Mark, Micros, SECOND, World},
};
use crate::{scenarios::Trials, trial::Outcome};

pub(super) fn trials() -> Trials {
    Trials::new()
        .trial("campaign::the_judge_finds_wrong_deletions", wrong_deletions)
        .trial("campaign::the_judge_finds_writes_of_those_who_do_not_lead", wrong_writes)
        .trial("campaign::the_judge_finds_what_does_not_settle", does_not_settle)
        .trial("campaign::a_seed_gives_the_same_faults_again", same_seed)
}

const RULES: Rules = Rules { lease_duration: 15 * SECOND, grace: 2 * SECOND, minimum_age: 5 * SECOND };

const NOW: Micros = 1_000_000 * SECOND;

/// A correct deletion: the machine is gone for 20 s, and its kubelet is silent for as long.
fn right() -> Deletion {
    let world = World::new(1);
    let mut slot = world.lock().slots[0].clone();
    slot.machine = Machine::Gone(NOW - 20 * SECOND);
    slot.kubelet = false;
    slot.uid = Some("uid-0".to_owned());
    slot.registered = NOW - 100 * SECOND;
    slot.renewed = NOW - 21 * SECOND;
    slot.lease_exists = true;
    Deletion {
        life: 1,
        name: slot.name(),
        uid: "uid-0".to_owned(),
        sent: NOW,
        slot: Some(slot),
        absences: 3,
        absent_since: Some(NOW - 15 * SECOND),
        known: (4, 200),
        known_over_limit_since: None,
        over_limit_since: None,
        jumped: false,
        leases_forbidden: false,
    }
}

type Change = fn(&mut Deletion);

fn slot(deletion: &mut Deletion) -> &mut super::world::Slot {
    deletion.slot.as_mut().expect("there is one")
}

fn wrong_deletions() -> Outcome {
    let check = || {
        ensure!(right().faults(RULES).is_empty(), "{:?}", right().faults(RULES));
        let wrong: [(&str, Change); 12] = [
            ("the machine is Running", |it| slot(it).machine = Machine::Running),
            ("the machine is Off", |it| slot(it).machine = Machine::Off),
            ("confirmed by 1 answers", |it| it.absences = 1),
            ("less than the grace period", |it| it.absent_since = Some(NOW - SECOND)),
            ("no UID", |it| it.uid.clear()),
            ("none of this cloud's", |it| it.slot = None),
            ("exclude-from-lifecycle-management", |it| slot(it).excluded = Mark::Present),
            ("only 3.00 s old", |it| slot(it).registered = NOW - 3 * SECOND),
            ("the breaker is to be open", |it| it.known_over_limit_since = Some(NOW - 7 * SECOND)),
            ("whoever leads", |it| it.over_limit_since = Some(NOW - 70 * SECOND)),
            ("12.50 s is silence", |it| slot(it).renewed = NOW - 11 * SECOND),
            ("10.00 s is silence", |it| {
                slot(it).lease_seconds = 1;
                slot(it).renewed = NOW - 9 * SECOND;
            }),
        ];
        for (words, change) in wrong {
            let mut deletion = right();
            change(&mut deletion);
            let faults = deletion.faults(RULES);
            ensure!(faults.len() == 1 && faults[0].contains(words), "{words}: {faults:?}");
        }
        let right_too: [Change; 5] = [
            // an operator allowed the deletion
            |it| {
                slot(it).allowed = Mark::Present;
                it.known_over_limit_since = Some(NOW - 50 * SECOND);
                it.over_limit_since = Some(NOW - 90 * SECOND);
            },
            // without a lease, upstream's rule applies
            |it| {
                slot(it).lease_exists = false;
                slot(it).renewed = NOW - SECOND;
            },
            |it| {
                it.leases_forbidden = true;
                slot(it).renewed = NOW - SECOND;
            },
            // a label does not count while it is being written
            |it| slot(it).excluded = Mark::Changing,
            // the campaign itself delayed the kubelet's renewal
            |it| {
                slot(it).machine = Machine::Running;
                slot(it).due = Some(NOW - 12 * SECOND);
            },
        ];
        for (number, change) in right_too.iter().enumerate() {
            let mut deletion = right();
            change(&mut deletion);
            ensure!(deletion.faults(RULES).is_empty(), "{number}: {:?}", deletion.faults(RULES));
        }
        Ok(())
    };
    Ok(check()?)
}

fn wrong_writes() -> Outcome {
    let check = || {
        let second = |n: i64| NOW + n * SECOND;
        let mut terms = Terms::default();
        let renewal = |life, at, released| Renewal { life, sent: at, done: at + 1000, released };
        // The first process leads from 0 s on and does not renew after 10 s. The second one takes over at 26
        // s and releases at 40 s.
        for at in [0, 2, 4, 6, 8, 10] {
            terms.add(renewal(1, second(at), false));
        }
        for at in [26, 28, 30, 38] {
            terms.add(renewal(2, second(at), false));
        }
        terms.add(renewal(2, second(40), true));
        ensure!(terms.changes == 1, "{}", terms.changes);
        ensure!(terms.holder().is_none());
        let rules = HashMap::from([(1, RULES), (2, RULES)]);
        let fault =
            |terms: &Terms, life, sent| terms.fault(&Write { life, sent, what: String::new() }, &rules);
        for (life, sent) in
            [(1, second(1)), (1, second(24)), (2, second(27)), (2, second(39)), (2, second(40) + LATE)]
        {
            ensure!(fault(&terms, life, sent).is_none(), "{life} at {sent}: {:?}", fault(&terms, life, sent));
        }
        for (life, sent, words) in [
            (3, second(5), "never held"),
            (1, second(-1), "never held"),
            (2, second(5), "never held"),
            (1, second(27), "17.00 s old"),
            (2, second(42), "gave the Lease back"),
        ] {
            let found = fault(&terms, life, sent).unwrap_or_default();
            ensure!(found.contains(words), "{life} at {sent}: {found:?}");
        }
        // A process that takes the Lease before the other one's term has ended.
        terms.add(renewal(3, second(39), false));
        let found = fault(&terms, 2, second(39) + LATE + SECOND / 5);
        ensure!(found.as_ref().is_some_and(|found| found.contains("had taken")), "{found:?}");
        terms.interference.push(second(39) - SECOND / 2);
        ensure!(
            fault(&terms, 2, second(39) + LATE + SECOND / 5).is_none(),
            "who was robbed finds out with the next try"
        );
        Ok(())
    };
    Ok(check()?)
}

fn does_not_settle() -> Outcome {
    let check = || {
        let world = World::new(1);
        let mut slot = world.lock().slots[0].clone();
        slot.uid = Some("uid-0".to_owned());
        slot.told_ready = true;
        let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "node-0", "uid": "uid-0", "labels": {
                "node.kubernetes.io/instance-type": "type-0", "topology.kubernetes.io/zone": "zone-a"}},
            "spec": {"providerID": slot.provider_id(), "taints": []},
            "status": {"addresses": [{"type": "InternalIP", "address": slot.address()}]},
        }))?;
        ensure!(unsettled(&slot, Some(&node)).is_none(), "{:?}", unsettled(&slot, Some(&node)));
        let changed = |change: &dyn Fn(&mut serde_json::Value)| -> anyhow::Result<Option<String>> {
            let mut value = serde_json::to_value(&node)?;
            change(&mut value);
            Ok(unsettled(&slot, Some(&serde_json::from_value(value)?)))
        };
        let taint = |key: &str| serde_json::json!([{"key": key, "effect": "NoSchedule"}]);
        ensure!(changed(&|node| node["spec"]["taints"] = taint(crate::support::UNINITIALIZED))?.is_some());
        ensure!(changed(&|node| node["spec"]["taints"] = taint(crate::support::SHUTDOWN))?.is_some());
        ensure!(changed(&|node| node["spec"]["providerID"] = "campaign:///another".into())?.is_some());
        ensure!(changed(&|node| node["status"]["addresses"] = serde_json::json!([]))?.is_some());
        ensure!(changed(&|node| node["metadata"]["uid"] = "uid-1".into())?.is_some());
        ensure!(changed(&|node| node["metadata"]["labels"] = serde_json::json!({}))?.is_some());
        ensure!(unsettled(&slot, None).is_some(), "a living Node that is not there");
        slot.flavour = 1;
        ensure!(unsettled(&slot, Some(&node)).is_some(), "an instance that was resized");
        slot.flavour = 0;
        slot.tainted = Mark::Present;
        ensure!(unsettled(&slot, Some(&node)).is_some(), "the taint of others is lost");
        slot.tainted = Mark::Absent;
        slot.machine = Machine::Off;
        slot.kubelet = false;
        ensure!(unsettled(&slot, Some(&node)).is_some(), "a machine that is off without the taint");
        slot.machine = Machine::Gone(NOW);
        ensure!(unsettled(&slot, Some(&node)).is_some(), "a Node whose machine is gone");
        slot.excluded = Mark::Present;
        ensure!(unsettled(&slot, Some(&node)).is_none(), "unless it is to stay");
        Ok(())
    };
    Ok(check()?)
}

fn same_seed() -> Outcome {
    let check = || {
        let shape = Shape { nodes: 200, daemons: 3, rate: 5.0, is_short: false, focus: Focus::Everything };
        let text = |seed| -> Vec<String> {
            Sequence::new(seed, shape).take(2000).map(|planned| format!("{planned:?}")).collect()
        };
        ensure!(text(7) == text(7), "the same seed gives another sequence");
        ensure!(text(7) != text(8), "another seed gives the same sequence");
        let words: std::collections::BTreeSet<String> =
            Sequence::new(7, shape).take(5000).map(|planned| planned.fault.word()).collect();
        ensure!(words.len() > 50, "only {} kinds of faults: {words:?}", words.len());
        Ok(())
    };
    Ok(check()?)
}
