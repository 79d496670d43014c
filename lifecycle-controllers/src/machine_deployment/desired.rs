//! A `MachineSet` as its deployment wants it. Pure.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use cluster_api::{
    MachineDeployment, MachineSet, MachineSetDeletionSpec, MachineSetSpec, MachineTemplateSpec,
    ObjectMeta as TemplateMeta,
    names::{annotations, finalizers, labels},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{ResourceExt as _, api::ObjectMeta};
use lifecycle::rollout::{Deployment, Planned, Revision};
use serde_json::{Map, Value, json};

use crate::{
    engine::{
        control::Failure,
        merge_patch::difference,
        object::{Meta as _, Stored, owner_reference},
        writer::to_json,
    },
    rollout::template_of,
};

/// The annotation by which upstream's older versions converted objects. It is of no other object.
const CONVERSION: &str = "cluster.x-k8s.io/conversion-data";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The longest name without its random part.
const LONGEST: usize = 58;

/// The name of a new `MachineSet`.
pub(super) fn name(deployment: &MachineDeployment, random: &str) -> String {
    let mut base = format!("{}-", deployment.name_or_empty());
    base.truncate(LONGEST);
    base + random
}

/// A new `MachineSet` with the template of its deployment.
pub(super) fn created(
    deployment: &MachineDeployment,
    plan: &Deployment,
    planned: &Planned,
    random: &str,
) -> MachineSet {
    let mut hasher = DefaultHasher::new();
    format!("{:?}", template_of(&deployment.spec.template.spec)).hash(&mut hasher);
    // As long as upstream's, so that names that have it fit.
    let unique = format!("{}-{random}", hasher.finish() & u64::from(u32::MAX));
    let mut spec = MachineSetSpec {
        cluster_name: deployment.spec.cluster_name.clone(),
        selector: selector(deployment, &unique),
        template: MachineTemplateSpec {
            metadata: TemplateMeta::default(),
            spec: deployment.spec.template.spec.clone(),
        },
        ..MachineSetSpec::default()
    };
    propagate(deployment, &unique, &mut spec);
    spec.replicas = i32::try_from(planned.replicas).ok();
    MachineSet {
        metadata: ObjectMeta {
            namespace: Some(deployment.namespace_or_empty().to_owned()),
            name: Some(planned.name.clone()),
            labels: Some(labels_of(deployment, &unique)),
            annotations: Some(annotations_of(deployment, plan, planned)),
            finalizers: Some(vec![finalizers::MACHINE_SET.to_owned()]),
            owner_references: Some(vec![owner_reference(deployment, true)]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

/// The patch of a `MachineSet` that exists. `None`: it is as it has to be.
///
/// # Errors
/// If it has no label that tells it from the others of the deployment.
pub(super) fn patch(
    deployment: &MachineDeployment,
    plan: &Deployment,
    planned: &Planned,
    set: &Stored<MachineSet>,
) -> Result<Option<Value>, Failure> {
    let unique = set.label(labels::MACHINE_TEMPLATE_HASH).ok_or_else(|| {
        let (name, label) = (set.name_or_empty(), labels::MACHINE_TEMPLATE_HASH);
        Failure::Failed(format!("MachineSet {name} has no label {label}"))
    })?;
    let mut spec = set.spec.clone();
    propagate(deployment, unique, &mut spec);
    spec.replicas = i32::try_from(planned.replicas).ok();
    let mut patch = Map::new();
    if let Some(spec) = difference(&to_json(&set.spec)?, &to_json(&spec)?) {
        patch.insert("spec".to_owned(), spec);
    }
    let mut metadata = Map::new();
    // Labels of the template that the set had before.
    let old = set.spec.template.metadata.labels.keys();
    let old_labels: Vec<_> = old.filter(|key| *key != labels::CLUSTER_NAME).cloned().collect();
    let wanted = labels_of(deployment, unique);
    let changed = changes(&wanted, set.labels(), &old_labels);
    if !changed.is_empty() {
        metadata.insert("labels".to_owned(), changed.into());
    }
    let wanted = annotations_of(deployment, plan, planned);
    let changed = changes(&wanted, set.annotations(), &set.synced().annotations);
    if !changed.is_empty() {
        metadata.insert("annotations".to_owned(), changed.into());
    }
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), metadata.into());
    }
    Ok((!patch.is_empty()).then(|| patch.into()))
}

fn changes(
    wanted: &BTreeMap<String, String>,
    has: &BTreeMap<String, String>,
    old: &[String],
) -> Map<String, Value> {
    let new = wanted.iter().filter(|(key, value)| has.get(*key) != Some(value));
    let new = new.map(|(key, value)| (key.clone(), Value::from(value.clone())));
    let gone = old.iter().filter(|key| !wanted.contains_key(*key) && has.contains_key(*key));
    new.chain(gone.map(|key| (key.clone(), Value::Null))).collect()
}

fn labels_of(deployment: &MachineDeployment, unique: &str) -> BTreeMap<String, String> {
    let mut labels = deployment.spec.template.metadata.labels.clone();
    labels.insert(labels::CLUSTER_NAME.to_owned(), deployment.spec.cluster_name.clone());
    labels.insert(labels::MACHINE_TEMPLATE_HASH.to_owned(), unique.to_owned());
    labels.insert(labels::DEPLOYMENT_NAME.to_owned(), deployment.name_or_empty().to_owned());
    labels
}

fn selector(deployment: &MachineDeployment, unique: &str) -> LabelSelector {
    let mut selector = deployment.spec.selector.clone();
    let labels = selector.match_labels.get_or_insert_default();
    labels.insert(labels::MACHINE_TEMPLATE_HASH.to_owned(), unique.to_owned());
    selector
}

/// What follows the deployment without new Machines.
fn propagate(deployment: &MachineDeployment, unique: &str, spec: &mut MachineSetSpec) {
    let template = &deployment.spec.template;
    let mut labels = template.metadata.labels.clone();
    labels.insert(labels::CLUSTER_NAME.to_owned(), deployment.spec.cluster_name.clone());
    labels.insert(labels::MACHINE_TEMPLATE_HASH.to_owned(), unique.to_owned());
    spec.template.metadata = TemplateMeta { labels, annotations: template.metadata.annotations.clone() };
    let of_machines = &mut spec.template.spec;
    of_machines.min_ready_seconds = template.spec.min_ready_seconds;
    of_machines.readiness_gates.clone_from(&template.spec.readiness_gates);
    of_machines.deletion = template.spec.deletion.clone();
    of_machines.taints.clone_from(&template.spec.taints);
    spec.deletion = MachineSetDeletionSpec { order: deployment.spec.deletion.order };
    spec.machine_naming = deployment.spec.machine_naming.clone();
}

fn annotations_of(
    deployment: &MachineDeployment,
    plan: &Deployment,
    planned: &Planned,
) -> BTreeMap<String, String> {
    let own = [
        LAST_APPLIED,
        CONVERSION,
        annotations::REVISION,
        annotations::REVISION_HISTORY,
        annotations::DESIRED_REPLICAS,
        annotations::MAX_REPLICAS,
    ];
    let mut wanted = deployment.annotations().clone();
    wanted.retain(|key, _| !own.contains(&key.as_str()));
    let mut set = |key: &str, value: String| wanted.insert(key.to_owned(), value);
    set(annotations::DESIRED_REPLICAS, plan.replicas.to_string());
    set(annotations::MAX_REPLICAS, (plan.replicas + plan.max_surge()).to_string());
    set(annotations::DISABLE_MACHINE_CREATE, planned.creates_no_machines.to_string());
    if let Some(Revision { number, history }) = &planned.revision {
        set(annotations::REVISION, number.to_string());
        if !history.is_empty() {
            let history: Vec<_> = history.iter().map(ToString::to_string).collect();
            set(annotations::REVISION_HISTORY, history.join(","));
        }
    }
    wanted
}

/// The revision of a `MachineSet`.
pub(super) fn revision(set: &MachineSet) -> Option<Revision> {
    let number = set.annotation(annotations::REVISION)?.parse().ok()?;
    let history = set.annotation(annotations::REVISION_HISTORY).unwrap_or_default();
    Some(Revision { number, history: history.split(',').filter_map(|one| one.parse().ok()).collect() })
}

/// The patch of the annotation with the revision of the deployment. `None`: it is right.
pub(super) fn revision_patch(deployment: &MachineDeployment, revision: i64) -> Option<Value> {
    let revision = revision.to_string();
    (deployment.annotation(annotations::REVISION) != Some(revision.as_str()))
        .then(|| json!({"metadata": {"annotations": {annotations::REVISION: revision}}}))
}
