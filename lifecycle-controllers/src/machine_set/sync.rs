//! What of a `MachineSet` is written to its Machines without replacing them.

use std::collections::BTreeMap;

use cluster_api::{
    Machine, MachineSet,
    defaults::NODE_DELETION_TIMEOUT_SECONDS,
    names::{annotations, labels},
};
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use crate::{
    core::{Core, Referenced, defined},
    engine::{
        control::Failure,
        external::External,
        merge_patch::difference,
        object::{MACHINE_SET_MANAGER, Meta as _, Stored, SyncedKeys},
        place::{Guard, Place},
        writer::{shown, to_json},
    },
};

/// Writes it to the Machine and, unless that is being deleted, to its bootstrap config and its infrastructure machine.
pub(super) async fn sync(core: &Core, set: &MachineSet, machine: &Stored<Machine>) -> Result<(), Failure> {
    if let Some(patch) = machine_patch(set, machine)? {
        let written = core
            .writer
            .patch_by(&Place::of(&**machine), Guard::of(&**machine), MACHINE_SET_MANAGER, patch)
            .await?;
        shown::<Machine>(&core.stores.machines, written).await?;
    }
    if machine.is_deleting() {
        return Ok(());
    }
    let namespace = machine.namespace_or_empty();
    let config = defined(&machine.spec.bootstrap.config_ref);
    for reference in config.into_iter().chain([&machine.spec.infrastructure_ref]) {
        if let Referenced::There(kind, object) = core.referenced(namespace, reference).await
            && !object.is_deleting()
            && let Some(metadata) = metadata_patch(set, &*object, &object.synced)
        {
            let place = kind.place(namespace, &reference.name);
            let body = json!({"metadata": metadata});
            let _: External =
                core.writer.patch_by(&place, Guard::of(&*object), MACHINE_SET_MANAGER, body).await?;
        }
    }
    Ok(())
}

/// The labels of Machines of a `MachineSet`, and of what belongs to them.
pub(super) fn labels_of(set: &MachineSet) -> BTreeMap<String, String> {
    let mut wanted = set.spec.template.metadata.labels.clone();
    wanted.insert(labels::CLUSTER_NAME.to_owned(), set.spec.cluster_name.clone());
    wanted.insert(labels::SET_NAME.to_owned(), labels::value_of(set.name_or_empty()));
    if let Some(deployment) = set.labels().get(labels::DEPLOYMENT_NAME) {
        wanted.insert(labels::DEPLOYMENT_NAME.to_owned(), deployment.clone());
    }
    wanted
}

/// The patch of a Machine. `None`: it is as its `MachineSet` wants it.
fn machine_patch(set: &MachineSet, machine: &Stored<Machine>) -> Result<Option<Value>, Failure> {
    let template = &set.spec.template.spec;
    let mut wanted = machine.spec.clone();
    wanted.readiness_gates.clone_from(&template.readiness_gates);
    wanted.min_ready_seconds = template.min_ready_seconds;
    wanted.taints.clone_from(&template.taints);
    wanted.deletion = template.deletion.clone();
    // A webhook of Cluster API writes its default where a template names none.
    let of_webhook = machine.spec.deletion.node_deletion_timeout_seconds;
    let of_webhook = of_webhook.filter(|seconds| *seconds == NODE_DELETION_TIMEOUT_SECONDS);
    let timeout = &mut wanted.deletion.node_deletion_timeout_seconds;
    *timeout = timeout.or(of_webhook);
    let mut patch = Map::new();
    if wanted != machine.spec
        && let Some(spec) = difference(&to_json(&machine.spec)?, &to_json(&wanted)?)
    {
        patch.insert("spec".to_owned(), spec);
    }
    if !machine.is_deleting()
        && let Some(metadata) = metadata_patch(set, &**machine, machine.synced())
    {
        patch.insert("metadata".to_owned(), metadata);
    }
    Ok((!patch.is_empty()).then(|| patch.into()))
}

/// The patch of the labels and annotations of an object that follows a `MachineSet`.
fn metadata_patch<K: kube::Resource>(set: &MachineSet, object: &K, synced: &SyncedKeys) -> Option<Value> {
    let labels = changes(&labels_of(set), object.labels(), &synced.labels);
    let wanted = &set.spec.template.metadata.annotations;
    // What a template was cloned from stays.
    let kept = [annotations::CLONED_FROM_NAME, annotations::CLONED_FROM_GROUP_KIND];
    let synced: Vec<_> =
        synced.annotations.iter().filter(|key| !kept.contains(&key.as_str())).cloned().collect();
    let annotations = changes(wanted, object.annotations(), &synced);
    let mut patch = Map::new();
    if !labels.is_empty() {
        patch.insert("labels".to_owned(), labels.into());
    }
    if !annotations.is_empty() {
        patch.insert("annotations".to_owned(), annotations.into());
    }
    (!patch.is_empty()).then(|| patch.into())
}

fn changes(
    wanted: &BTreeMap<String, String>,
    has: &BTreeMap<String, String>,
    synced: &[String],
) -> Map<String, Value> {
    let new = wanted.iter().filter(|(key, value)| has.get(*key) != Some(value));
    let new = new.map(|(key, value)| (key.clone(), Value::from(value.clone())));
    let old = synced.iter().filter(|key| !wanted.contains_key(*key) && has.contains_key(*key));
    new.chain(old.map(|key| (key.clone(), Value::Null))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> MachineSet {
        let set = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet",
            "metadata": {"name": "s", "namespace": "n", "labels": {labels::DEPLOYMENT_NAME: "d"}},
            "spec": {
                "clusterName": "c", "selector": {},
                "template": {
                    "metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}},
                    "spec": {
                        "clusterName": "c", "bootstrap": {}, "minReadySeconds": 5, "version": "v1.37.2",
                        "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "XTemplate", "name": "x"},
                        "deletion": {"nodeDrainTimeoutSeconds": 9},
                    },
                },
            },
        });
        serde_json::from_value(set).expect("a MachineSet")
    }

    fn machine(metadata: Value, spec: Value) -> Stored<Machine> {
        let mut machine = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m", "namespace": "n"},
            "spec": {
                "clusterName": "c", "bootstrap": {}, "version": "v1.37.1",
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "X", "name": "m"},
            },
        });
        json_merge(&mut machine["metadata"], metadata);
        json_merge(&mut machine["spec"], spec);
        Stored::new(serde_json::from_value(machine).expect("a Machine"))
    }

    fn json_merge(of: &mut Value, with: Value) {
        let with = with.as_object().cloned().unwrap_or_default();
        of.as_object_mut().expect("an object").extend(with);
    }

    fn all_labels() -> Value {
        json!({"a": "1", labels::CLUSTER_NAME: "c", labels::SET_NAME: "s", labels::DEPLOYMENT_NAME: "d"})
    }

    fn patch(machine: &Stored<Machine>) -> Option<Value> {
        machine_patch(&set(), machine).expect("a patch")
    }

    #[test]
    fn a_machine_follows_its_set_in_what_needs_no_new_one() {
        let spec = json!({"minReadySeconds": 5, "deletion": {"nodeDrainTimeoutSeconds": 9}});
        let settled =
            machine(json!({"labels": all_labels(), "annotations": {"b": "2", "mine": "x"}}), spec.clone());
        assert_eq!(patch(&settled), None, "another version is not written");
        let managed = json!([{"manager": "capi-machineset", "fieldsV1": {"f:metadata": {
            "f:labels": {"f:old": {}, "f:a": {}}, "f:annotations": {"f:cluster.x-k8s.io/cloned-from-name": {}},
        }}}]);
        let mut with_old = all_labels();
        json_merge(&mut with_old, json!({"old": "x", "others": "y"}));
        let metadata = json!({
            "labels": with_old, "managedFields": managed, "annotations": {"cluster.x-k8s.io/cloned-from-name": "t"},
        });
        let expected = json!({"metadata": {"labels": {"old": null}, "annotations": {"b": "2"}}});
        assert_eq!(patch(&machine(metadata, spec)), Some(expected));
    }

    #[test]
    fn the_default_of_a_webhook_stays() {
        let patch_of = |seconds: i32| {
            let deletion = json!({"nodeDrainTimeoutSeconds": 9, "nodeDeletionTimeoutSeconds": seconds});
            let spec = json!({"minReadySeconds": 5, "deletion": deletion});
            patch(&machine(json!({"labels": all_labels(), "annotations": {"b": "2"}}), spec))
        };
        assert_eq!(patch_of(10), None);
        let without = json!({"spec": {"deletion": {"nodeDeletionTimeoutSeconds": null}}});
        assert_eq!(patch_of(11), Some(without), "what the template named before goes");
    }

    #[test]
    fn a_machine_that_goes_follows_in_what_its_deletion_needs() {
        let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]});
        let expected = json!({"spec": {"minReadySeconds": 5, "deletion": {"nodeDrainTimeoutSeconds": 9}}});
        assert_eq!(patch(&machine(metadata, json!({}))), Some(expected));
    }
}
