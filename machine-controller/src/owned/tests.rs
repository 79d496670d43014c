use cloudprovider::machines::{Condition, ConditionStatus, Kind, Severity};

use super::*;
use crate::auxiliary::WireAuxiliary;

const GUEST: AuxiliaryKind = AuxiliaryKind::new("example.org", "v1", Kind::new("Guest", "guests"))
    .made()
    .with_left_finalizers(&["guest.other.example.org"]);

const OWNER: Owner<'static> = Owner {
    api_version: "infrastructure.cluster.x-k8s.io/v1",
    kind: "MyMachine",
    namespace: "default",
    name: "one",
    uid: "u-1",
    cluster: Some("prod"),
    is_deleting: false,
    owned: &[],
};

fn wanted() -> DesiredObject {
    DesiredObject::new(
        GUEST,
        "one",
        json!({"cpus": 2, "disk": {"size": 1, "kind": null}, "nics": [{"name": "a"}]}),
    )
    .with_label("role", "worker")
}

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().expect("a time")
}

fn kept(change: impl FnOnce(&mut Value)) -> Auxiliary {
    let mut object = json!({
        "apiVersion": "example.org/v1", "kind": "Guest",
        "metadata": {
            "name": "one", "namespace": "default", "uid": "g-1", "resourceVersion": "7", "generation": 3,
            "labels": {"role": "worker", "cluster.x-k8s.io/cluster-name": "prod", "of": "somebody"},
            "ownerReferences": [{"apiVersion": "a/v1", "kind": "MyMachine", "name": "one", "uid": "u-1"}],
        },
        // More than is wanted: a default, and a field of somebody else.
        "spec": {"cpus": 2, "disk": {"size": 1}, "nics": [{"name": "a", "mtu": 1500}], "notes": "mine"},
    });
    change(&mut object);
    serde_json::from_value::<WireAuxiliary>(object).expect("an object").into()
}

fn next(owner: &Owner<'_>, wanted: &DesiredObject, found: Option<&Auxiliary>) -> Option<Write> {
    next_write(owner, wanted, found, now()).expect("no conflict")
}

#[test]
fn one_that_is_missing_is_made_unless_its_owner_goes() {
    let Some(Write::Create(body)) = next(&OWNER, &wanted(), None) else { panic!("it is made") };
    let expected = json!({
        "apiVersion": "example.org/v1", "kind": "Guest",
        "metadata": {
            "name": "one", "namespace": "default",
            "labels": {"role": "worker", "cluster.x-k8s.io/cluster-name": "prod"},
            "ownerReferences": [{
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "MyMachine", "name": "one", "uid": "u-1",
                "controller": true,
            }],
        },
        "spec": {"cpus": 2, "disk": {"size": 1}, "nics": [{"name": "a"}]},
    });
    assert_eq!(body, expected);
    assert_eq!(next(&Owner { is_deleting: true, ..OWNER }, &wanted(), None), None);
}

#[test]
fn nothing_is_written_while_all_is_as_wanted() {
    assert_eq!(next(&OWNER, &wanted(), Some(&kept(|_| {}))), None);
}

#[test]
fn what_differs_is_written_to_this_very_version() {
    let guard = |mut patch: Value| {
        patch["metadata"]["uid"] = json!("g-1");
        patch["metadata"]["resourceVersion"] = json!("7");
        Some(Write::Change(patch))
    };
    let spec = json!({"spec": wanted().spec});
    for change in [
        |one: &mut Value| one["spec"]["cpus"] = json!(3),
        |one: &mut Value| one["spec"]["disk"]["kind"] = json!("thin"),
        |one: &mut Value| one["spec"]["nics"] = json!([{"name": "b"}]),
        |one: &mut Value| one["spec"]["nics"] = json!([{"name": "a"}, {"name": "b"}]),
        |one: &mut Value| one["spec"] = Value::Null,
    ] {
        assert_eq!(next(&OWNER, &wanted(), Some(&kept(change))), guard(spec.clone()));
    }
    let labels = json!({"role": "worker", "cluster.x-k8s.io/cluster-name": "prod"});
    let relabeled = kept(|one| one["metadata"]["labels"]["role"] = json!("boss"));
    assert_eq!(next(&OWNER, &wanted(), Some(&relabeled)), guard(json!({"metadata": {"labels": labels}})));
}

#[test]
fn a_field_goes_from_an_item_of_a_list() {
    let mut wanted = wanted();
    wanted.spec = json!({"nics": [{"name": "a", "mtu": null}], "notes": null});
    let Some(Write::Change(patch)) = next(&OWNER, &wanted, Some(&kept(|_| {}))) else { panic!("a change") };
    assert_eq!(patch["spec"], json!({"nics": [{"name": "a"}], "notes": null}));
    let done = kept(|one| one["spec"] = json!({"nics": [{"name": "a"}]}));
    assert_eq!(next(&OWNER, &wanted, Some(&done)), None);
    let Some(Write::Create(body)) = next(&OWNER, &wanted, None) else { panic!("it is made") };
    assert_eq!(body["spec"], json!({"nics": [{"name": "a"}]}));
}

#[test]
fn a_status_is_written_whole_and_times_stay() {
    let ready = |reason: &'static str| Condition::new("Ready", ConditionStatus::False, reason);
    let with = |reason| wanted().with_status(json!({"host": "h1", "task": null}), [ready(reason)]);
    let Some(Write::Status(status)) = next(&OWNER, &with("Cloning"), Some(&kept(|_| {}))) else {
        panic!("a status")
    };
    let condition = |reason: &str, since: &str| {
        json!({
            "type": "Ready", "status": "False", "reason": reason, "message": "", "observedGeneration": 3,
            "lastTransitionTime": since,
        })
    };
    let told = |reason: &str, since: &str| json!({"host": "h1", "conditions": [condition(reason, since)]});
    assert_eq!(Value::from(status), told("Cloning", "2026-01-02T00:00:00Z"));
    let earlier = told("Cloning", "2026-01-01T00:00:00Z");
    let found = kept(|one| one["status"] = earlier.clone());
    assert_eq!(next(&OWNER, &with("Cloning"), Some(&found)), None);
    assert_eq!(next(&OWNER, &wanted(), Some(&found)), None, "the status is somebody else's");
    let Some(Write::Status(status)) = next(&OWNER, &with("Starting"), Some(&found)) else {
        panic!("a status")
    };
    assert_eq!(Value::from(status), told("Starting", "2026-01-01T00:00:00Z"));
    let more = kept(|one| {
        one["status"] = earlier;
        one["status"]["task"] = json!("t-1");
    });
    let Some(Write::Status(status)) = next(&OWNER, &with("Cloning"), Some(&more)) else { panic!("a status") };
    assert_eq!(Value::from(status), told("Cloning", "2026-01-01T00:00:00Z"));
}

#[test]
fn one_that_is_somebody_elses_is_named_and_left_alone() {
    for change in [
        |one: &mut Value| one["metadata"]["ownerReferences"] = Value::Null,
        |one: &mut Value| one["metadata"]["ownerReferences"][0]["uid"] = json!("u-2"),
    ] {
        let error = next_write(&OWNER, &wanted(), Some(&kept(change)), now()).expect_err("a conflict");
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(next(&Owner { is_deleting: true, ..OWNER }, &wanted(), Some(&kept(change))), None);
        assert!(error.report().contains("Guest default/one exists"), "{}", error.report());
    }
}

fn gone(found: &Auxiliary) -> Option<Write> {
    removal("u-1", &GUEST, found, Reason::OwnerGone)
}

#[test]
fn what_another_program_made_stays_until_its_owner_is_gone() {
    let unwanted = |found: &Auxiliary| removal("u-1", &GUEST, found, Reason::Unwanted);
    let others = kept(|_| {});
    assert_eq!((unwanted(&others), gone(&others)), (None, Some(Write::Delete)));
    let ours = kept(|one| one["metadata"]["ownerReferences"][0]["controller"] = json!(true));
    assert_eq!(unwanted(&ours), Some(Write::Delete));
}

#[test]
fn one_with_other_owners_loses_only_our_reference() {
    let other = json!({"apiVersion": "a/v1", "kind": "Other", "name": "two", "uid": "u-2"});
    let shared = kept(|one| {
        let owners = one["metadata"]["ownerReferences"].as_array_mut().expect("a list");
        owners.push(other.clone());
    });
    let Some(Write::Change(patch)) = gone(&shared) else { panic!("it is kept") };
    assert_eq!(patch["metadata"]["ownerReferences"], json!([other]));
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
}

#[test]
fn one_that_goes_loses_the_finalizers_of_another_program_first() {
    let is_free = |write: Option<Write>, left: Value| match write {
        Some(Write::Change(patch)) => patch["metadata"]["finalizers"] == left,
        _ => false,
    };
    let finalizers = json!(["guest.other.example.org", "more.example.org"]);
    let held = kept(|one| one["metadata"]["finalizers"] = finalizers.clone());
    assert!(is_free(gone(&held), json!(["more.example.org"])));
    assert_eq!(next(&OWNER, &wanted(), Some(&held)), None, "as long as it stays, they stay");
    let going = kept(|one| {
        one["metadata"]["finalizers"] = finalizers;
        one["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    assert!(is_free(gone(&going), json!(["more.example.org"])));
    assert!(is_free(next(&OWNER, &wanted(), Some(&going)), json!(["more.example.org"])));
    assert_eq!(gone(&kept(|_| {})), Some(Write::Delete));
    let left = kept(|one| one["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    assert_eq!((gone(&left), next(&OWNER, &wanted(), Some(&left))), (None, None));
}

const HELD: AuxiliaryKind =
    AuxiliaryKind::new("example.org", "v1", Kind::new("Guest", "guests")).made().held_by("hold.example.org");

#[test]
fn one_that_is_held_stays_as_long_as_it_is_wanted() {
    let mut wanted = wanted();
    wanted.kind = HELD;
    let Some(Write::Create(body)) = next(&OWNER, &wanted, None) else { panic!("it is made") };
    assert_eq!(body["metadata"]["finalizers"], json!(["hold.example.org"]));
    let finalizers = |write: Option<Write>| match write {
        Some(Write::Change(patch)) => patch["metadata"]["finalizers"].clone(),
        other => panic!("{other:?}"),
    };
    let others = kept(|one| one["metadata"]["finalizers"] = json!(["more.example.org"]));
    assert_eq!(
        finalizers(next(&OWNER, &wanted, Some(&others))),
        json!(["more.example.org", "hold.example.org"])
    );
    let held = |is_going: bool| {
        kept(|one| {
            one["metadata"]["finalizers"] = json!(["more.example.org", "hold.example.org"]);
            if is_going {
                one["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            one["metadata"]["ownerReferences"][0]["controller"] = json!(true);
        })
    };
    for is_going in [false, true] {
        assert_eq!(next(&OWNER, &wanted, Some(&held(is_going))), None);
        let unwanted = removal("u-1", &HELD, &held(is_going), Reason::Unwanted);
        assert_eq!(unwanted, None, "what was given by it may be in use");
        let free = removal("u-1", &HELD, &held(is_going), Reason::OwnerGone);
        assert_eq!(finalizers(free), json!(["more.example.org"]));
    }
}

/// As one that another program made for an owned object that is kept.
#[test]
fn what_belongs_to_a_companion_belongs_to_its_owner() {
    let found = kept(|one| {
        one["metadata"]["ownerReferences"][0]["uid"] = json!("vm-1");
        one["metadata"]["ownerReferences"][0]["controller"] = json!(true);
    });
    let owned = ["vm-1".to_owned()];
    let owner = Owner { owned: &owned, ..OWNER };
    let Some(Write::Change(patch)) = next(&owner, &wanted(), Some(&found)) else { panic!("it is taken") };
    let owners = &patch["metadata"]["ownerReferences"];
    assert_eq!((&owners[0]["uid"], &owners[1]["uid"]), (&json!("vm-1"), &json!("u-1")));
    assert_eq!(owners[1]["controller"], false, "it has one already");
    assert_eq!(next(&Owner { is_deleting: true, ..owner }, &wanted(), Some(&found)), None);

    // it goes with the owned object, once nothing holds it
    assert_eq!(gone(&found), None);
    let held = kept(|one| {
        one["metadata"]["ownerReferences"][0]["uid"] = json!("vm-1");
        one["metadata"]["finalizers"] = json!(["guest.other.example.org"]);
    });
    let Some(Write::Change(patch)) = gone(&held) else { panic!("it is let go") };
    assert_eq!(
        (&patch["metadata"]["finalizers"], &patch["metadata"]["ownerReferences"]),
        (&json!([]), &Value::Null)
    );
}

#[test]
fn older_conditions_follow_and_those_of_others_stay() {
    const OF_OTHERS: AuxiliaryKind = AuxiliaryKind::new(
        "example.org",
        "v1",
        Kind::new("Guest", "guests").with_v1beta1_conditions(&[V1Beta1Condition::new(
            "Made",
            "Ready",
            Severity::Warning,
        )]),
    )
    .made();
    let theirs = json!({"type": "Theirs", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"});
    let last = json!({"type": "Made", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"});
    let found = kept(|object| {
        object["status"] = json!({
            "retryAfter": "2025-01-01T00:00:00Z",
            "deprecated": {"v1beta1": {"conditions": [last, theirs], "failureReason": "CreateError"}},
        });
    });
    let gone = Condition::new("Ready", ConditionStatus::False, "NotFound").with_message("it is gone");
    let mut wanted = wanted().with_status(json!({"ready": false}), [gone]);
    wanted.kind = OF_OTHERS;
    let Some(Write::Status(status)) = next(&OWNER, &wanted, Some(&found)) else { panic!("a status") };
    let made = json!({
        "type": "Made", "status": "False", "severity": "Warning", "reason": "NotFound", "message": "it is gone",
        "lastTransitionTime": "2026-01-02T00:00:00Z",
    });
    assert_eq!(status["deprecated"], json!({"v1beta1": {"conditions": [made, theirs]}}));
    assert_eq!((&status["ready"], status.contains_key("retryAfter")), (&json!(false), false));
    let written = kept(|object| object["status"] = status.clone().into());
    assert_eq!(next(&OWNER, &wanted, Some(&written)), None);
}
