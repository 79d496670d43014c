//! What is to be done about an object. Pure.

use std::{collections::BTreeSet, sync::Arc};

use cloudprovider::machines::{AuxiliaryKind, Condition, ConditionStatus, StatusReport};
use controller_kit::cache::CachedObject as _;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    auxiliary::Auxiliary,
    cluster_api::Machine,
    names::READY,
    object::guarded,
    owned::{Write, status_with, with_finalizer, without_finalizers},
    packed::Packed,
    status::with_conditions,
    store::Core,
};

/// How many users of a failure domain are named.
const MAX_NAMED: usize = 5;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing.
    Rest,
    /// Ask the provider.
    Observe,
    /// Write.
    Write(Write),
}

/// What is to be done about an object to which something happened. `is_ignored`: it is paused, being deleted,
/// or another program's. `users`: who is in the failure domain that it is, if it is to be held for them.
pub fn next(
    kind: &AuxiliaryKind,
    found: &Auxiliary,
    is_ignored: bool,
    users: Option<&BTreeSet<String>>,
    now: Timestamp,
) -> Next {
    let own = kind.failure_domain;
    if found.object.is_deleting {
        let is_held = own.is_some_and(|own| found.metadata.finalizers.iter().flatten().any(|one| one == own));
        if let Some(users) = users.filter(|users| is_held && !users.is_empty()) {
            return with_conditions(&found.as_infra(), &[in_use(users)], kind.v1beta1_conditions, now)
                .map_or(Next::Rest, |status| Next::Write(Write::Status(status)));
        }
        let freed = without_finalizers(found, |one| kind.left_finalizers.contains(&one) || own == Some(one));
        return freed.map_or(Next::Rest, |patch| change(found, patch));
    }
    if is_ignored {
        return Next::Rest;
    }
    let finalizer = own.filter(|_| users.is_some());
    let missing = finalizer.and_then(|finalizer| with_finalizer(finalizer, found));
    missing.map_or(Next::Observe, |patch| change(found, patch))
}

fn change(found: &Auxiliary, patch: Value) -> Next {
    Next::Write(Write::Change(guarded(&found.metadata, patch)))
}

/// Why a failure domain stays that is deleted.
fn in_use(users: &BTreeSet<String>) -> Condition {
    let named: Vec<_> = users.iter().take(MAX_NAMED).map(String::as_str).collect();
    let more = users.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let words = format!("it is deleted, and stays while these are in it: {}{more}", named.join(", "));
    Condition::new(READY, ConditionStatus::False, "InUse").with_message(words)
}

/// Who is in the failure domain of this name: the Machines that ask for it, and the machines that name it
/// themselves.
pub fn users_of(
    name: &str,
    core_machines: &[Arc<Core<Machine>>],
    machines: &[Arc<Packed>],
    kind: &str,
) -> BTreeSet<String> {
    let core = core_machines.iter().filter(|one| one.content.failure_domain.as_deref() == Some(name));
    let own = machines.iter().filter(|one| one.unpacked().spec["failureDomain"] == name);
    let core = core.map(|one| format!("Machine {}", one.key()));
    core.chain(own.map(|one| format!("{kind} {}", one.key()))).collect()
}

/// The write of a report. `None`: the object says so already.
pub fn write_of(
    kind: &AuxiliaryKind,
    told: &StatusReport,
    found: &Auxiliary,
    now: Timestamp,
) -> Option<Write> {
    status_with(&told.status, &told.conditions, kind.v1beta1_conditions, found, now).map(Write::Status)
}

#[cfg(test)]
mod tests {
    use cloudprovider::machines::Kind;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    use super::*;
    use crate::{auxiliary::WireAuxiliary, object::InfraObject};

    const ZONE: AuxiliaryKind = AuxiliaryKind::new("example.org", "v1", Kind::new("Zone", "zones"))
        .cluster_scoped()
        .status_only()
        .failure_domains("zone.example.org")
        .with_left_finalizers(&["other.example.org"]);

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().expect("a time")
    }

    fn zone(metadata: &Value, status: &Value) -> Auxiliary {
        let mut object = json!({
            "apiVersion": "example.org/v1", "kind": "Zone", "status": status,
            "metadata": {"name": "z", "uid": "u", "resourceVersion": "7"},
        });
        for (field, value) in metadata.as_object().into_iter().flatten() {
            object["metadata"][field] = value.clone();
        }
        serde_json::from_value::<WireAuxiliary>(object).expect("an object").into()
    }

    #[test]
    fn one_that_goes_only_loses_the_finalizers_of_others() {
        let of = |metadata: Value, is_ignored| {
            next(&ZONE, &zone(&metadata, &Value::Null), is_ignored, None, now())
        };
        assert_eq!([of(json!({}), false), of(json!({}), true)], [Next::Observe, Next::Rest]);
        let going = |finalizers: &[&str]| json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers});
        assert_eq!(of(going(&["mine.example.org"]), true), Next::Rest);
        let Next::Write(Write::Change(patch)) = of(going(&["mine.example.org", "other.example.org"]), true)
        else {
            panic!("a write");
        };
        assert_eq!(patch["metadata"]["finalizers"], json!(["mine.example.org"]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
    }

    #[test]
    fn a_failure_domain_stays_while_machines_are_in_it() {
        let users = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let of = |metadata: &Value, status: &Value, users| {
            next(&ZONE, &zone(metadata, status), false, Some(users), now())
        };
        let (nobody, somebody) = (users(&[]), users(&["Machine lab/a"]));
        let Next::Write(Write::Change(patch)) = of(&json!({}), &Value::Null, &nobody) else {
            panic!("a write")
        };
        assert_eq!(patch["metadata"]["finalizers"], json!(["zone.example.org"]));
        let held = json!({"finalizers": ["zone.example.org", "other.example.org"]});
        assert_eq!(of(&held, &Value::Null, &somebody), Next::Observe);

        let mut going = held.clone();
        going["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let before = json!({"ready": true, "conditions": [{"type": "Other", "status": "True"}]});
        let Next::Write(Write::Status(status)) = of(&going, &before, &somebody) else { panic!("a write") };
        let conditions = &status["conditions"];
        assert_eq!((&conditions[0]["type"], &conditions[1]["reason"]), (&json!("Other"), &json!("InUse")));
        let words = conditions[1]["message"].as_str().unwrap_or_default();
        assert!(words.ends_with("while these are in it: Machine lab/a"), "{words}");
        assert_eq!(of(&going, &status.into(), &somebody), Next::Rest, "it says so already");
        let Next::Write(Write::Change(patch)) = of(&going, &Value::Null, &nobody) else { panic!("a write") };
        assert_eq!(patch["metadata"]["finalizers"], json!([]));
        let many = users(&["a", "b", "c", "d", "e", "f", "g"]);
        assert!(in_use(&many).message.ends_with("a, b, c, d, e and 2 more"), "{:?}", in_use(&many));
    }

    #[test]
    fn who_is_in_a_failure_domain() {
        let metadata = |name: &str| ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("lab".to_owned()),
            ..ObjectMeta::default()
        };
        let core = |name: &str, domain: &str| {
            let spec = json!({"failureDomain": domain});
            Arc::new(Core::of(metadata(name), spec, Value::Null, Machine::from_json))
        };
        let own = |name: &str, spec: Value| {
            let object = InfraObject { metadata: metadata(name), spec, ..InfraObject::default() };
            Arc::new(Packed::from(object))
        };
        let machines = [own("c", json!({"failureDomain": "z"})), own("d", json!({}))];
        let found = users_of("z", &[core("a", "z"), core("b", "y")], &machines, "MyMachine");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["Machine lab/a", "MyMachine lab/c"]);
    }

    #[test]
    fn a_status_is_written_where_it_differs() {
        let [now, later] = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]
            .map(|time| time.parse::<Timestamp>().expect("a time"));
        let ready = Condition::new("Ready", ConditionStatus::True, "Told");
        let told = StatusReport::new(json!({"ready": true, "size": null}), [ready.clone()]);
        let write = write_of(&ZONE, &told, &zone(&json!({}), &Value::Null), now);
        let Some(Write::Status(status)) = write else { panic!("a write") };
        assert!(status["ready"] == true && !status.contains_key("size"), "{status:?}");
        let written = zone(&json!({}), &status.into());
        assert_eq!(write_of(&ZONE, &told, &written, later), None);
        let told = StatusReport::new(json!({"ready": true}), [ready.with_message("more")]);
        let Some(Write::Status(status)) = write_of(&ZONE, &told, &written, later) else { panic!("a write") };
        let since = status["conditions"][0]["lastTransitionTime"].as_str().unwrap_or_default();
        assert!(since.starts_with("2026-01-01"), "{since}");
        assert_eq!(write_of(&ZONE, &StatusReport::default(), &written, later), None, "nothing is told");
    }
}
