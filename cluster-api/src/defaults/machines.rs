//! Defaults of Machines and of what makes them.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{
    changes::{Changes, Refused, cluster_label, escape},
    replicas,
};
use crate::names::{
    annotations::{PREFLIGHT_CHECKS, SKIP_PREFLIGHT_CHECKS},
    labels, taints,
};

/// `spec.deletion.nodeDeletionTimeoutSeconds` of a Machine that names none: for so long the deletion of its Node is tried.
pub const NODE_DELETION_TIMEOUT_SECONDS: i32 = 10;

pub(super) fn machine(changes: &mut Changes) -> Result<(), Refused> {
    no_taint_of_control_planes(changes)?;
    cluster_label(changes);
    version(changes, "/spec/version");
    changes.fill("/spec/deletion/nodeDeletionTimeoutSeconds", json!(NODE_DELETION_TIMEOUT_SECONDS));
    Ok(())
}

pub(super) fn machine_set(changes: &mut Changes, old: Option<&Value>) -> Result<(), Refused> {
    known_preflight_checks(changes)?;
    metadata_of_machines(changes)?;
    cluster_label(changes);
    count(changes, old)?;
    if has_no_selector(changes) {
        let name = labels::value_of(&name_for_selector(changes)?);
        select(changes, labels::SET_NAME, &name);
    }
    own_cluster(changes);
    version(changes, "/spec/template/spec/version");
    Ok(())
}

pub(super) fn machine_deployment(changes: &mut Changes, old: Option<&Value>) -> Result<(), Refused> {
    known_preflight_checks(changes)?;
    metadata_of_machines(changes)?;
    cluster_label(changes);
    count(changes, old)?;
    let strategy = "/spec/rollout/strategy";
    changes.fill(&format!("{strategy}/type"), json!("RollingUpdate"));
    if changes.text(&format!("{strategy}/type")).as_deref() == Some("RollingUpdate") {
        changes.fill(&format!("{strategy}/rollingUpdate/maxSurge"), json!(1));
        changes.fill(&format!("{strategy}/rollingUpdate/maxUnavailable"), json!(0));
    }
    if has_no_selector(changes) {
        let name = name_for_selector(changes)?;
        select(changes, labels::DEPLOYMENT_NAME, &name);
    }
    own_cluster(changes);
    version(changes, "/spec/template/spec/version");
    Ok(())
}

fn count(changes: &mut Changes, old: Option<&Value>) -> Result<(), Refused> {
    if changes.get("/spec/replicas").is_none() {
        let replicas = replicas::replicas(changes, old)?;
        changes.set("/spec/replicas", json!(replicas));
    }
    Ok(())
}

fn has_no_selector(changes: &Changes) -> bool {
    changes.is_empty("/spec/selector/matchLabels") && changes.is_empty("/spec/selector/matchExpressions")
}

/// The name of the object, which makes a selector its own.
///
/// Upstream gives an object with `generateName` the empty name here, since it has none yet, and all such objects select each
/// other's Machines.
fn name_for_selector(changes: &Changes) -> Result<String, Refused> {
    changes.text("/metadata/name").ok_or_else(|| Refused {
        field: "spec.selector".to_owned(),
        reason: "must be given together with metadata.generateName".to_owned(),
    })
}

/// Whatever else an object selects, it selects from its own Cluster. For a `MachineSet`, upstream's controller does this.
fn own_cluster(changes: &mut Changes) {
    if let Some(cluster) = changes.text("/spec/clusterName") {
        select(changes, labels::CLUSTER_NAME, &cluster);
    }
}

/// Selects Machines with a label, and gives it to them.
fn select(changes: &mut Changes, label: &str, value: &str) {
    let label = escape(label);
    changes.set(&format!("/spec/selector/matchLabels/{label}"), json!(value));
    changes.set(&format!("/spec/template/metadata/labels/{label}"), json!(value));
}

/// A version as Cluster API stores it: with a `v` in front, which people may leave out.
pub fn version_with_v(version: &str) -> Cow<'_, str> {
    if version.is_empty() || version.starts_with('v') { version.into() } else { format!("v{version}").into() }
}

fn version(changes: &mut Changes, path: &str) {
    if let Some(version) = changes.text(path) {
        changes.set(path, json!(version_with_v(&version)));
    }
}

/// No Machine could be made with what is no label or annotation. Rules of a schema cannot look at keys at a bounded cost.
fn metadata_of_machines(changes: &Changes) -> Result<(), Refused> {
    // the keys of annotations may have capitals in their domain
    let is_annotation = |key: &str, _: &Value| labels::is_key(&key.to_ascii_lowercase());
    let is_label =
        |key: &str, value: &Value| labels::is_key(key) && value.as_str().is_none_or(labels::is_value);
    refuse_others(changes, "annotations", is_annotation)?;
    refuse_others(changes, "labels", is_label)
}

fn refuse_others(
    changes: &Changes,
    map: &str,
    is_good: impl Fn(&str, &Value) -> bool,
) -> Result<(), Refused> {
    let entries = changes.get(&format!("/spec/template/metadata/{map}")).and_then(Value::as_object);
    match entries.into_iter().flatten().find(|(key, value)| !is_good(key, value)) {
        None => Ok(()),
        Some((key, _)) => Err(Refused {
            field: format!("spec.template.metadata.{map}[{key}]"),
            reason: "is none that an object can have".to_owned(),
        }),
    }
}

/// A check with a misspelt name would not be skipped, and nobody would know why.
fn known_preflight_checks(changes: &Changes) -> Result<(), Refused> {
    let skipped = changes.text(&format!("/metadata/annotations/{}", escape(SKIP_PREFLIGHT_CHECKS)));
    let skipped = skipped.unwrap_or_default();
    let mut unknown = skipped
        .split(',')
        .map(str::trim)
        .filter(|check| !skipped.is_empty() && !PREFLIGHT_CHECKS.contains(check));
    match unknown.next() {
        None => Ok(()),
        Some(check) => Err(Refused {
            field: format!("metadata.annotations[{SKIP_PREFLIGHT_CHECKS}]"),
            reason: format!("{check:?} is none of {}", PREFLIGHT_CHECKS.join(", ")),
        }),
    }
}

/// The schema does not know which Machines are workers.
fn no_taint_of_control_planes(changes: &Changes) -> Result<(), Refused> {
    let is_worker = changes.get(&format!("/metadata/labels/{}", escape(labels::CONTROL_PLANE))).is_none();
    let taints = changes.get("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    let mut keys = taints.map(|taint| &taint["key"]);
    if is_worker && keys.any(|key| key == taints::CONTROL_PLANE) {
        return Err(Refused {
            field: "spec.taints".to_owned(),
            reason: "workers cannot have the taint of control planes".to_owned(),
        });
    }
    Ok(())
}
