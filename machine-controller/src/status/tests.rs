use cloudprovider::machines::{ConditionStatus, Severity};

use super::*;
use crate::conditions::paused;

const KIND: Kind = Kind::new("LabMachine", "labmachines");

/// One whose users look at other conditions too.
const OF_OTHERS: Kind = KIND.with_ready_twin("MachineMade").with_v1beta1_conditions(&[
    V1Beta1Condition::new("Ready", "Ready", Severity::Warning),
    V1Beta1Condition::new("Made", "MachineMade", Severity::Warning),
]);

const BEFORE: &str = "2026-01-01T00:00:00Z";

fn now() -> Timestamp {
    "2026-06-01T00:00:00Z".parse().expect("a time")
}

fn object(status: Value) -> InfraObject {
    let object = json!({"metadata": {"name": "one", "generation": 3}, "spec": {}, "status": status});
    serde_json::from_value(object).expect("an object")
}

fn ready(status: ConditionStatus, reason: &'static str) -> Condition {
    Condition::new(READY, status, reason)
}

fn entry_of(condition_type: &str, status: &str, reason: &str, since: &str) -> Value {
    json!({
        "type": condition_type, "status": status, "reason": reason, "message": "", "observedGeneration": 3,
        "lastTransitionTime": since,
    })
}

/// The status after a step, as it was if nothing is written.
fn after(status: Value, record: &Record<Value>, observed: &Observed) -> Value {
    let object = object(status);
    let given = record_of(&object);
    Value::Object(after_step(&object, (&given, record), observed, &KIND, now()).unwrap_or(object.status))
}

#[test]
fn a_status_is_written_only_if_it_changed() {
    let observed = Observed { is_done: true, ..Observed::ready(ready(ConditionStatus::True, "Ready")) };
    let record = Record::new(json!({"taskRef": "task-1"}));
    let first = after_step(&object(json!({})), (&Record::default(), &record), &observed, &KIND, now())
        .expect("it is new");
    let later = "2026-07-01T00:00:00Z".parse().expect("a time");
    assert_eq!(after_step(&object(first.clone().into()), (&record, &record), &observed, &KIND, later), None);
    let expected = json!({
        "taskRef": "task-1", "initialization": {"provisioned": true}, "ready": true,
        "conditions": [
            entry_of("Ready", "True", "Ready", "2026-06-01T00:00:00Z"),
            entry_of("Paused", "False", "NotPaused", "2026-06-01T00:00:00Z"),
        ],
    });
    assert_eq!(Value::Object(first), expected);
}

#[test]
fn a_condition_that_is_over_goes_and_all_else_stays() {
    let observed = |conditions: Value| json!({"taskRef": "task-1", "conditions": conditions});
    let ready = || entry_of("Ready", "True", "Ready", BEFORE);
    let trouble = entry_of("CompanionsUpToDate", "False", "NotWritten", BEFORE);
    let left = without_condition(&object(observed(json!([ready(), trouble]))), "CompanionsUpToDate");
    assert_eq!(left.map(Value::Object), Some(observed(json!([ready()]))));
    assert_eq!(without_condition(&object(observed(json!([ready()]))), "CompanionsUpToDate"), None);
}

#[test]
fn what_was_recorded_is_written_without_a_step() {
    let before = object(json!({"ready": true, "a": 1, "b": 2}));
    let record = Record::new(json!({"a": 3, "c": "x", "b": null, "ready": false}));
    let status = with_record(&before, &record).expect("it is new");
    assert_eq!(Value::Object(status.clone()), json!({"ready": true, "a": 3, "c": "x"}));
    assert_eq!(with_record(&object(status.into()), &record), None);
}

#[test]
fn provisioned_never_goes_back() {
    let lost = Observed::ready(ready(ConditionStatus::False, "MachineLost"));
    let provisioned = json!({"initialization": {"provisioned": true}});
    let status = after(provisioned, &Record::default(), &lost);
    assert_eq!((&status["initialization"]["provisioned"], &status["ready"]), (&json!(true), &json!(true)));
    let status = after(json!({}), &Record::default(), &lost);
    assert!(status.get("initialization").is_none() && status.get("ready").is_none());
}

#[test]
fn a_transition_is_one_of_the_status_alone() {
    let before = json!({"conditions": [
        entry_of("Ready", "False", "WaitingForTask", BEFORE), entry_of("Paused", "False", "NotPaused", BEFORE),
    ]});
    for (status, reason, since) in [
        (ConditionStatus::False, "WaitingForAddress", BEFORE),
        (ConditionStatus::True, "Ready", "2026-06-01T00:00:00Z"),
    ] {
        let status = after(before.clone(), &Record::default(), &Observed::ready(ready(status, reason)));
        let condition = &status["conditions"][0];
        assert_eq!((&condition["reason"], &condition["lastTransitionTime"]), (&json!(reason), &json!(since)));
        assert_eq!(status["conditions"][1]["lastTransitionTime"], BEFORE);
    }
}

#[test]
fn what_is_the_providers_is_replaced_and_what_is_the_controllers_is_kept() {
    let before = json!({
        "taskRef": "task-1", "failureDomain": "a", "addresses": [{"type": "Hostname", "address": "one"}],
        "conditions": [entry_of("Cloned", "False", "TaskFailed", BEFORE), entry_of("Grown", "True", "Grown", BEFORE)],
    });
    let mut record = record_of(&object(before.clone()));
    assert_eq!(record.status, json!({"taskRef": "task-1"}));
    let types: Vec<_> = record.conditions.iter().map(|one| one.condition_type.clone()).collect();
    assert_eq!(types, ["Cloned", "Grown"]);
    record.status = json!({"other": 1, "empty": null, "ready": "the controller's"});
    record.remove("Cloned");
    record.set(Condition::new("Ready", ConditionStatus::Unknown, "NotOfTheProvider"));
    let status = after(before, &record, &Observed::ready(ready(ConditionStatus::False, "WaitingForTask")));
    let expected = json!({
        "other": 1, "failureDomain": "a", "addresses": [{"type": "Hostname", "address": "one"}],
        "conditions": [
            entry_of("Grown", "True", "Grown", BEFORE),
            entry_of("Ready", "False", "WaitingForTask", "2026-06-01T00:00:00Z"),
            entry_of("Paused", "False", "NotPaused", "2026-06-01T00:00:00Z"),
        ],
    });
    assert_eq!(status, expected);
}

#[test]
fn addresses_and_failure_domains() {
    let addresses = vec![
        NodeAddress::internal_ip("10.0.0.1"),
        NodeAddress { address_type: NodeAddressType::Other("Serial".into()), address: "x".into() },
    ];
    let mut domain = FailureDomain::new("a");
    domain.attributes.insert("room".into(), "1".into());
    let observed = Observed {
        addresses: Some(addresses),
        failure_domain: Some("a".into()),
        failure_domains: Some(vec![
            domain,
            FailureDomain { control_plane: false, ..FailureDomain::new("b") },
        ]),
        ..Observed::ready(ready(ConditionStatus::True, "Ready"))
    };
    let status = after(json!({}), &Record::default(), &observed);
    assert_eq!(status["addresses"], json!([{"type": "InternalIP", "address": "10.0.0.1"}]));
    assert_eq!(status["failureDomain"], "a");
    let domains = json!([
        {"name": "a", "controlPlane": true, "attributes": {"room": "1"}}, {"name": "b", "controlPlane": false},
    ]);
    assert_eq!(status["failureDomains"], domains);
    // The CRD has no empty list.
    let none = Observed { failure_domains: Some(Vec::new()), ..observed };
    assert!(after(status, &Record::default(), &none).get("failureDomains").is_none());
}

#[test]
fn a_pause_changes_its_own_condition_alone() {
    let before = json!({"ready": true, "conditions": [entry_of("Ready", "True", "Ready", BEFORE)]});
    let status = with_conditions(&object(before.clone()), &[paused()], &[], now()).expect("it is new");
    assert_eq!(status["ready"], true);
    assert_eq!(status["conditions"][0], before["conditions"][0]);
    assert_eq!(status["conditions"][1]["reason"], "Paused");
    assert_eq!(with_conditions(&object(status.into()), &[paused()], &[], now()), None);
}

/// While the step ran, somebody else wrote conditions of the same object.
#[test]
fn a_step_writes_its_own_conditions_and_leaves_those_of_others() {
    let conditions = |conditions: Value| json!({ "conditions": conditions });
    let old = |name: &str, status: &str| {
        json!({"type": name, "status": status, "reason": "R", "message": "", "observedGeneration": 1,
            "lastTransitionTime": BEFORE})
    };
    let seen =
        object(conditions(json!([old("Cloned", "False"), old("Kept", "True"), old("Theirs", "True")])));
    let given = record_of(&seen);
    let mut record = given.clone();
    record.remove("Cloned");
    record.set(Condition::new("Kept", ConditionStatus::True, "R"));
    record.conditions.push(Condition::new("Direct", ConditionStatus::True, "R"));
    let now_there = conditions(json!([
        old("Cloned", "False"),
        old("Kept", "True"),
        old("Theirs", "False"),
        old("New", "True")
    ]));
    let observed = Observed::ready(ready(ConditionStatus::True, "Ready"));
    let status =
        after_step(&object(now_there), (&given, &record), &observed, &KIND, now()).expect("it is new");
    let expected = json!([
        entry_of("Kept", "True", "R", BEFORE),
        old("Theirs", "False"),
        old("New", "True"),
        entry_of("Ready", "True", "Ready", "2026-06-01T00:00:00Z"),
        entry_of("Paused", "False", "NotPaused", "2026-06-01T00:00:00Z"),
        entry_of("Direct", "True", "R", "2026-06-01T00:00:00Z"),
    ]);
    assert_eq!(status["conditions"], expected);
}

/// What programs that know the kind from elsewhere read of an object: the twin of `Ready`, and the older
/// conditions.
fn read_by_others(status: &Map<String, Value>) -> (Value, Vec<(Value, Value, Value)>) {
    let twin =
        status["conditions"].as_array().expect("a list").iter().find(|one| one["type"] == "MachineMade");
    let older = status["deprecated"]["v1beta1"]["conditions"].as_array().expect("a list").iter();
    let older = older.map(|one| (one["type"].clone(), one["status"].clone(), one["reason"].clone()));
    (twin.map_or(Value::Null, |twin| twin["reason"].clone()), older.collect())
}

#[test]
fn what_the_twin_of_ready_says() {
    use ConditionStatus::{False, True};
    let step = |made: Option<Condition>, status: ConditionStatus, reason: &'static str| {
        let object = object(json!({"conditions": [entry_of("MachineMade", "True", "Old", BEFORE)]}));
        let given = record_of(&object);
        let mut record = given.clone();
        if let Some(made) = made {
            record.set(made);
        }
        let observed = Observed::ready(ready(status, reason));
        let status = after_step(&object, (&given, &record), &observed, &OF_OTHERS, now()).expect("it is new");
        let (twin, older) = read_by_others(&status);
        assert_eq!(older[1].0, "Made");
        assert_eq!(older[1].1, older[0].1, "{older:?}");
        twin
    };
    let made = |status, reason: &'static str| Some(Condition::new("MachineMade", status, reason));
    assert_eq!(step(made(True, "Made"), True, "Ready"), "Made", "the words of the step");
    assert_eq!(step(made(False, "NotFound"), False, "MachineLost"), "NotFound");
    assert_eq!(step(None, False, "InvalidSpec"), "InvalidSpec", "the step was not made");
    assert_eq!(step(made(True, "Made"), False, "ProviderIDMismatch"), "ProviderIDMismatch");
}

/// A wait of the controller, and another program's last words.
#[test]
fn older_conditions_are_written_with_the_others() {
    let theirs = json!({"conditions": [
        {"type": "Made", "status": "True", "lastTransitionTime": BEFORE}, {"type": "Theirs", "status": "True"},
    ]});
    let object = object(json!({"deprecated": {"v1beta1": theirs}}));
    let ready = ready(ConditionStatus::False, "WaitingForBootstrapData");
    let wanted = with_twin(&[ready, not_paused()], OF_OTHERS.ready_twin);
    let status = with_conditions(&object, &wanted, OF_OTHERS.v1beta1_conditions, now()).expect("it is new");
    let (twin, older) = read_by_others(&status);
    assert_eq!(twin, "WaitingForBootstrapData");
    let waits = |name: &str| (json!(name), json!("False"), json!("WaitingForBootstrapData"));
    assert_eq!(older, [waits("Made"), (json!("Theirs"), json!("True"), Value::Null), waits("Ready")]);
    let made = &status["deprecated"]["v1beta1"]["conditions"][0];
    assert_eq!(
        (&made["severity"], &made["lastTransitionTime"]),
        (&json!("Info"), &json!("2026-06-01T00:00:00Z"))
    );
}
