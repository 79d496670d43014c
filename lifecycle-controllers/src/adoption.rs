//! What all kinds get before anything else: a finalizer, the label with the Cluster's name, an owner.

use cluster_api::{
    Cluster,
    defaults::{Defaulted, Operation},
    names::labels,
};
use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::engine::{
    control::Failure,
    object::{Kind, Meta as _, owner_reference},
    writer::to_json,
};

/// The patch that adds finalizer, label and, for an object that stands alone, the Cluster as an owner. `None`: all are there.
///
/// # Errors
/// If the owner references cannot be written as JSON.
pub(crate) fn adopted<K: Kind>(
    object: &K,
    cluster: &str,
    finalizer: &str,
    owner: Option<&Cluster>,
) -> Result<Option<Value>, Failure> {
    let mut metadata = of_cluster(object, cluster, owner)?;
    if !object.has_finalizer(finalizer) {
        let mut finalizers = object.finalizers().to_vec();
        finalizers.push(finalizer.to_owned());
        metadata.insert("finalizers".to_owned(), finalizers.into());
    }
    Ok((!metadata.is_empty()).then(|| json!({"metadata": metadata})))
}

/// The same for a kind that needs no finalizer.
///
/// # Errors
/// As [`adopted`].
pub(crate) fn labelled<K: Kind>(
    object: &K,
    cluster: &str,
    owner: Option<&Cluster>,
) -> Result<Option<Value>, Failure> {
    let metadata = of_cluster(object, cluster, owner)?;
    Ok((!metadata.is_empty()).then(|| json!({"metadata": metadata})))
}

fn of_cluster<K: Kind>(
    object: &K,
    cluster: &str,
    owner: Option<&Cluster>,
) -> Result<Map<String, Value>, Failure> {
    let mut metadata = Map::new();
    if object.label(labels::CLUSTER_NAME) != Some(cluster) {
        metadata.insert("labels".to_owned(), json!({labels::CLUSTER_NAME: cluster}));
    }
    if let Some(owner) = owner.filter(|owner| !object.is_owned_by(owner.uid_or_empty())) {
        // A Cluster of this name that is gone, as after a move.
        let is_older = |kind: &str, name: &str| kind == "Cluster" && name == owner.name_or_empty();
        let kept = object.owner_references().iter().filter(|one| !is_older(&one.kind, &one.name)).cloned();
        let owners: Vec<_> = kept.chain([owner_reference(owner, false)]).collect();
        metadata.insert("ownerReferences".to_owned(), to_json(&owners)?);
    }
    Ok(metadata)
}

/// The patch that takes a finalizer away. `None`: there is none.
pub(crate) fn without_finalizer<K: Kind>(object: &K, finalizer: &str) -> Option<Value> {
    let finalizers = object.finalizers();
    let rest: Vec<_> = finalizers.iter().filter(|one| *one != finalizer).collect();
    (rest.len() < finalizers.len()).then(|| json!({"metadata": {"finalizers": rest}}))
}

/// The defaults of an object that are stored: Cluster API's webhooks write them, and `clusterctl`'s templates rely on them. Here the first
/// pass over the object does. `had`: how many replicas an object had that names none any more. Empty: it has them.
///
/// # Errors
/// If its metadata cannot be those of Machines, with the field.
pub(crate) fn defaults<K: Kind + Serialize>(object: &K, had: Option<i32>) -> Result<Vec<Operation>, Failure> {
    let (group, plural) = (K::group(&()), K::plural(&()));
    let Some(kind) = Defaulted::find(&group, &plural) else { return Ok(Vec::new()) };
    let old = had.map(|replicas| json!({"spec": {"replicas": replicas}}));
    kind.defaults(&to_json(object)?, old.as_ref()).map_err(|refused| Failure::Failed(refused.to_string()))
}
