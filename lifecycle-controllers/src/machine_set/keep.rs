//! Failed Machines that the set lets go of in place of deleting them: they are [kept](crate::kept).

use std::time::Duration;

use basics::go::parse_duration;
use cluster_api::{
    Cluster, Machine, MachineSet,
    names::{annotations, labels},
};
use component::events::EventType;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use crate::{
    core::Core,
    engine::{
        control::Failure,
        object::{Meta as _, Stored, owner_reference},
        writer::to_json,
    },
    kept::{self, KEEP_FAILED_FOR, KEPT_OF, KEPT_UNTIL, quoted},
    replicas::{selector, selects},
};

/// Lets go of a failed Machine that is to be kept. Gives whether it is kept; otherwise it is to be deleted.
///
/// It is one write: before it the Machine is a failed one of the set, and after it one that is kept, wherever the daemon ends.
pub(super) async fn keep(
    core: &Core,
    set: &MachineSet,
    cluster: &Cluster,
    machine: &Stored<Machine>,
    now: i64,
) -> Result<bool, Failure> {
    let name = machine.name_or_empty();
    let (until, patch) = match asked(set, machine) {
        Ok(None) => return Ok(false),
        Ok(Some(time)) => {
            match permitted(core, set).and_then(|()| let_go(set, cluster, machine, now, time)) {
                Ok(found) => found,
                Err(why) => return Ok(refused(core, set, name, &why)),
            }
        }
        Err(why) => return Ok(refused(core, set, name, &why)),
    };
    core.writer.patch(&core.stores.machines, &**machine, patch).await?;
    tracing::info!(machine = name, machine_set = set.name_or_empty(), %until, "unhealthy Machine kept");
    let message = format!("Machine {name:?} failed. It is replaced, and kept until {until} to be looked at");
    core.record(set, EventType::Normal, "KeptFailedMachine", message);
    Ok(true)
}

fn refused(core: &Core, set: &MachineSet, machine: &str, why: &str) -> bool {
    let message = format!("Machine {machine:?} failed. It is deleted and not kept: {why}");
    core.record(set, EventType::Warning, "FailedMachineNotKept", message);
    false
}

/// What is wrong with the annotation of a set, or of the Machines that it makes.
pub(super) fn problem(set: &MachineSet) -> Option<String> {
    let of_template = set.spec.template.metadata.annotations.get(KEEP_FAILED_FOR).map(String::as_str);
    let why = of_template.or(set.annotation(KEEP_FAILED_FOR)).and_then(|text| duration(text).err())?;
    Some(format!("Failed Machines are deleted and not kept: {why}"))
}

/// For how long a failed Machine is to be kept. `None`: not at all.
fn asked(set: &MachineSet, machine: &Machine) -> Result<Option<Duration>, String> {
    let asked = machine.annotation(KEEP_FAILED_FOR).or(set.annotation(KEEP_FAILED_FOR));
    let asked = asked.map(duration).transpose()?;
    Ok(asked.filter(|time| time.as_secs() > 0))
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("annotation {KEEP_FAILED_FOR} is {}, and no duration such as 90m or 2h", quoted(text));
    parse_duration(text).ok_or_else(wrong)
}

/// One Machine of a set is kept: a template that is wrong fails again and again.
fn permitted(core: &Core, set: &MachineSet) -> Result<(), String> {
    let kept = kept::machines_of(core, set).into_iter().find(|machine| !machine.is_deleting());
    kept.map_or(Ok(()), |other| {
        Err(format!("Machine {:?} is kept, and one is the most", other.name_or_empty()))
    })
}

/// Until when a Machine is kept, and the patch with which it is no longer of the set.
fn let_go(
    set: &MachineSet,
    cluster: &Cluster,
    machine: &Stored<Machine>,
    now: i64,
    time: Duration,
) -> Result<(Timestamp, Value), String> {
    let until = i64::try_from(time.as_secs()).ok().and_then(|time| now.checked_add(time));
    let until = until.and_then(|until| Timestamp::from_second(until).ok());
    let until = until.ok_or_else(|| format!("annotation {KEEP_FAILED_FOR} is longer than a time can be"))?;
    let without = without_membership(set, machine)?;
    let mut labels: Map<_, _> = without.into_iter().map(|key| (key, Value::Null)).collect();
    labels.insert(KEPT_OF.to_owned(), labels::value_of(set.name_or_empty()).into());
    let mut owners = machine.owner_references().to_vec();
    owners.retain(|owner| owner.controller != Some(true) && owner.uid != cluster.uid_or_empty());
    owners.push(owner_reference(cluster, false));
    let owners = to_json(&owners).map_err(|error| error.to_string())?;
    // Cluster API's own health checks, to which it may move, leave it alone by this.
    let annotations = json!({KEPT_UNTIL: until.to_string(), annotations::SKIP_REMEDIATION: ""});
    let metadata = json!({"labels": labels, "annotations": annotations, "ownerReferences": owners});
    Ok((until, json!({"metadata": metadata})))
}

/// The labels of a Machine by which it is of the set. All others stay: Nodes have some of them, and Pods are there by these.
fn without_membership(set: &MachineSet, machine: &Machine) -> Result<Vec<String>, String> {
    let of_set = &set.spec.selector;
    let expressions = of_set.match_expressions.iter().flatten();
    let expressions = expressions.filter(|one| matches!(one.operator.as_str(), "In" | "Exists"));
    let selected =
        of_set.match_labels.iter().flatten().map(|(key, _)| key).chain(expressions.map(|one| &one.key));
    let fixed = [labels::SET_NAME, labels::DEPLOYMENT_NAME, labels::MACHINE_TEMPLATE_HASH];
    let keys = selected.map(String::as_str).chain(fixed).filter(|key| *key != labels::CLUSTER_NAME);
    let mut left = machine.labels().clone();
    let gone: Vec<_> = keys.filter_map(|key| left.remove_entry(key)).map(|(key, _)| key).collect();
    let selector = selector(of_set).map_err(|failure| failure.to_string())?;
    if selects(&selector, &left) {
        return Err("spec.selector also selects it without the labels of the set's Machines".to_owned());
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(metadata: Value, selector: Value) -> MachineSet {
        let template = json!({"spec": machine(json!({})).spec});
        let spec = json!({"clusterName": "c", "selector": selector, "template": template});
        let mut set: MachineSet =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a MachineSet");
        set.metadata.name = Some("s".to_owned());
        set
    }

    fn machine(metadata: Value) -> Stored<Machine> {
        let reference = json!({"apiGroup": "g", "kind": "X", "name": "x"});
        let spec = json!({"clusterName": "c", "bootstrap": {}, "infrastructureRef": reference});
        Stored::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a Machine"))
    }

    fn with(annotation: Option<&str>) -> Value {
        json!({"annotations": annotation.map(|value| json!({KEEP_FAILED_FOR: value}))})
    }

    #[test]
    fn the_machines_own_annotation_goes_first() {
        let of = |set_has, machine_has| asked(&set(with(set_has), json!({})), &machine(with(machine_has)));
        let hours = |hours: u64| Ok(Some(Duration::from_secs(3600 * hours)));
        assert_eq!(of(None, None), Ok(None));
        assert_eq!(of(Some("2h"), None), hours(2));
        assert_eq!(of(None, Some("60m")), hours(1));
        assert_eq!(of(Some("2h"), Some("1h")), hours(1));
        assert_eq!(of(Some("2h"), Some("0")), Ok(None));
        assert_eq!(of(Some("500ms"), None), Ok(None));
        let wrong = of(Some("1h"), Some("soon")).expect_err("it is wrong");
        assert_eq!(
            wrong,
            format!("annotation {KEEP_FAILED_FOR} is \"soon\", and no duration such as 90m or 2h")
        );
        assert_eq!(problem(&set(with(Some("1h")), json!({}))), None);
        for bad in ["", "2", "-2h", "2 hours", "1d"] {
            assert!(
                problem(&set(with(Some(bad)), json!({}))).is_some_and(|why| why.contains(KEEP_FAILED_FOR)),
                "{bad}"
            );
        }
    }

    #[test]
    fn it_loses_what_makes_it_one_of_the_set_and_nothing_else() {
        let selector = json!({
            "matchLabels": {"pool": "s", labels::CLUSTER_NAME: "c"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a"]}, {"key": "old", "operator": "DoesNotExist"},
                {"key": "zone", "operator": "NotIn", "values": ["z"]},
            ],
        });
        let labels = json!({
            "pool": "s", "tier": "a", "zone": "y", "mine": "x", "node.cluster.x-k8s.io/pool": "s",
            labels::CLUSTER_NAME: "c", labels::SET_NAME: "s", labels::DEPLOYMENT_NAME: "d",
        });
        let owner = |kind: &str, uid: &str, controls: bool| json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": uid, "uid": uid, "controller": controls});
        let owners = json!([owner("MachineSet", "s", true), owner("Other", "o", false)]);
        let machine = machine(json!({"labels": labels, "ownerReferences": owners}));
        let cluster: Cluster =
            serde_json::from_value(json!({"metadata": {"name": "c", "uid": "c"}, "spec": {}}))
                .expect("a Cluster");
        let of = |selector: Value, time| {
            let_go(&set(json!({}), selector), &cluster, &machine, 0, Duration::from_secs(time))
        };
        let (until, patch) = of(selector, 7200).expect("a patch");
        assert_eq!(until.to_string(), "1970-01-01T02:00:00Z");
        let metadata = &patch["metadata"];
        let gone = json!({
            "pool": null, "tier": null, labels::SET_NAME: null, labels::DEPLOYMENT_NAME: null, KEPT_OF: "s",
        });
        assert_eq!(metadata["labels"], gone);
        let annotations =
            json!({KEPT_UNTIL: "1970-01-01T02:00:00Z", "cluster.x-k8s.io/skip-remediation": ""});
        assert_eq!(metadata["annotations"], annotations);
        let owners = metadata["ownerReferences"].as_array().expect("owners");
        let kinds: Vec<_> = owners.iter().map(|owner| owner["kind"].as_str().unwrap_or_default()).collect();
        assert_eq!(kinds, ["Other", "Cluster"]);
        assert!(owners[1]["controller"].is_null());

        let all = json!({"matchLabels": {labels::CLUSTER_NAME: "c"}});
        assert!(of(all, 1).is_err_and(|why| why.contains("spec.selector")));
        assert!(
            of(json!({"matchLabels": {"pool": "s"}}), u64::MAX)
                .is_err_and(|why| why.contains(KEEP_FAILED_FOR))
        );
    }
}
