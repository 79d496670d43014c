//! Objects that a step wants to have beside its own one: what is to be written next about one of them.

use cloudprovider::{
    Error, ErrorKind,
    machines::{AuxiliaryKind, Condition, DesiredObject, V1Beta1Condition},
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    auxiliary::Auxiliary,
    conditions::entry,
    names::CLUSTER_NAME_LABEL,
    object::guarded,
    v1beta1_conditions::{self, follow},
};

/// The object that owns others.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Its version in the API, with the group.
    pub api_version: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// The name of the Cluster.
    pub cluster: Option<&'a str>,
    /// Whether it is being deleted. Nothing is made for it then.
    pub is_deleting: bool,
    /// The UIDs of its owned objects. What belongs to one of them belongs to it too.
    pub owned: &'a [String],
}

impl Owner<'_> {
    fn has(&self, found: &Auxiliary) -> bool {
        found.is_owned_by(self.uid)
    }

    fn has_by_owned(&self, found: &Auxiliary) -> bool {
        self.owned.iter().any(|uid| found.is_owned_by(uid))
    }

    fn reference(&self) -> Value {
        let Self { api_version, kind, name, uid, .. } = self;
        json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true})
    }
}

/// A write of an owned object.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Make it: the whole object.
    Create(Value),
    /// Change labels and spec, or remove finalizers: a merge patch of this very version.
    Change(Value),
    /// Write this whole status to this very version.
    Status(Map<String, Value>),
    /// Delete this very version of the object.
    Delete,
}

impl Write {
    /// The word for it in the metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Create(_) => "companion created",
            Self::Change(_) => "companion",
            Self::Status(_) => "companion status",
            Self::Delete => "companion deleted",
        }
    }
}

/// What is to be written so that an object becomes what is wanted. `None`: it is so, or nothing can be done
/// about it now.
///
/// # Errors
/// [`ErrorKind::Conflict`] if another object owns it, or none does.
pub fn next_write(
    owner: &Owner<'_>,
    wanted: &DesiredObject,
    found: Option<&Auxiliary>,
    now: Timestamp,
) -> Result<Option<Write>, Error> {
    let mut labels: Map<String, Value> =
        wanted.labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    if let Some(cluster) = owner.cluster {
        labels.insert(CLUSTER_NAME_LABEL.to_owned(), json!(cluster));
    }
    let Some(found) = found else {
        return Ok((!owner.is_deleting).then(|| Write::Create(body(owner, wanted, &labels))));
    };
    let is_ours = owner.has(found);
    if !is_ours && (owner.is_deleting || !owner.has_by_owned(found)) {
        return if owner.is_deleting { Ok(None) } else { Err(foreign(owner, &wanted.kind, &wanted.name)) };
    }
    if found.object.is_deleting {
        return Ok(without_left_finalizers(&wanted.kind, found).map(Write::Change));
    }
    let has_labels = labels
        .iter()
        .all(|(name, value)| found.object.labels.get(name).map(String::as_str) == value.as_str());
    let has_spec = covers(&found.object.spec, &wanted.spec);
    let held = with_hold(&wanted.kind, found);
    if !is_ours || !has_labels || !has_spec || held.is_some() {
        let mut patch = held.unwrap_or_else(|| json!({}));
        if !is_ours {
            patch["metadata"]["ownerReferences"] = with_owner(owner, found);
        }
        if !has_labels {
            patch["metadata"]["labels"] = labels.into();
        }
        if !has_spec {
            patch["spec"] = without_nulls_in_lists(&wanted.spec);
        }
        return Ok(Some(Write::Change(guarded(&found.metadata, patch))));
    }
    Ok(status_of(wanted, found, now).map(Write::Status))
}

/// Why an object is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The step does not want it. What another program made for the same owner stays, and what is held.
    Unwanted,
    /// Nothing is left of its owner.
    OwnerGone,
}

/// The write that removes an owned object from its owner, which has this UID. `None`: the object is going
/// already, or it stays. From one that has other owners too, only our owner reference goes, and the
/// finalizers that hold it.
pub fn removal(uid: &str, kind: &AuxiliaryKind, found: &Auxiliary, reason: Reason) -> Option<Write> {
    if reason == Reason::Unwanted && (kind.held_by.is_some() || !found.is_controlled_by(uid)) {
        return None;
    }
    let owners = found.metadata.owner_references.iter().flatten();
    let others: Vec<_> = owners.filter(|owner| owner.uid != uid).collect();
    let is_ours = |finalizer: &str| is_left(kind, finalizer) || kind.held_by == Some(finalizer);
    let freed = without_finalizers(found, is_ours);
    let is_owner = found.is_owned_by(uid);
    if !others.is_empty() && (is_owner || freed.is_some()) {
        let mut patch = freed.unwrap_or_else(|| json!({}));
        if is_owner {
            patch["metadata"]["ownerReferences"] = json!(others);
        }
        return Some(Write::Change(guarded(&found.metadata, patch)));
    }
    match freed {
        Some(patch) => Some(Write::Change(guarded(&found.metadata, patch))),
        None => (others.is_empty() && !found.object.is_deleting).then_some(Write::Delete),
    }
}

/// The error about an object of the same name that the owner does not own.
fn foreign(owner: &Owner<'_>, kind: &AuxiliaryKind, name: &str) -> Error {
    let Owner { namespace, kind: owner_kind, name: owner_name, .. } = owner;
    let words = format!(
        "{} {namespace}/{name} exists, and {owner_kind} {owner_name:?} is none of its owners; it is left alone and is in the way",
        kind.kind
    );
    Error::new(ErrorKind::Conflict, words)
}

fn body(owner: &Owner<'_>, wanted: &DesiredObject, labels: &Map<String, Value>) -> Value {
    let AuxiliaryKind { group, version, kind, .. } = wanted.kind;
    let mut body = json!({
        "apiVersion": format!("{group}/{version}"),
        "kind": kind,
        "metadata": {
            "name": wanted.name,
            "namespace": owner.namespace,
            "labels": labels,
            "ownerReferences": [owner.reference()],
        },
        "spec": without_nulls(&wanted.spec),
    });
    if let Some(finalizer) = wanted.kind.held_by {
        body["metadata"]["finalizers"] = json!([finalizer]);
    }
    body
}

/// The owner references, and ours. An object has one controller at most.
fn with_owner(owner: &Owner<'_>, found: &Auxiliary) -> Value {
    let owners = found.metadata.owner_references.iter().flatten();
    let mut reference = owner.reference();
    if owners.clone().any(|one| one.controller == Some(true)) {
        reference["controller"] = json!(false);
    }
    owners.map(|one| json!(one)).chain([reference]).collect()
}

/// The patch that sets the finalizer which holds an object, if that is missing.
fn with_hold(kind: &AuxiliaryKind, found: &Auxiliary) -> Option<Value> {
    with_finalizer(kind.held_by?, found)
}

/// The change that adds a finalizer, unless it is there.
pub(super) fn with_finalizer(finalizer: &str, found: &Auxiliary) -> Option<Value> {
    let finalizers = found.metadata.finalizers.iter().flatten();
    let is_there = finalizers.clone().any(|one| one == finalizer);
    (!is_there).then(|| {
        let all: Vec<_> = finalizers.map(String::as_str).chain([finalizer]).collect();
        json!({"metadata": {"finalizers": all}})
    })
}

/// Whether another program may have left this finalizer.
fn is_left(kind: &AuxiliaryKind, finalizer: &str) -> bool {
    kind.left_finalizers.contains(&finalizer)
}

/// The status, if it is another one than there is.
fn status_of(wanted: &DesiredObject, found: &Auxiliary, now: Timestamp) -> Option<Map<String, Value>> {
    status_with(wanted.status.as_ref()?, &wanted.conditions, wanted.kind.v1beta1_conditions, found, now)
}

/// This status with these conditions, if it is another one than there is. `table` has the older conditions of
/// the kind.
pub(super) fn status_with(
    status: &Value,
    conditions: &[Condition],
    table: &[V1Beta1Condition],
    found: &Auxiliary,
    now: Timestamp,
) -> Option<Map<String, Value>> {
    let Value::Object(mut status) = without_nulls(status) else { return None };
    let object = found.as_infra();
    if !conditions.is_empty() {
        let conditions = conditions.iter().map(|one| entry(&object, one, now));
        status.insert("conditions".to_owned(), conditions.collect());
    }
    if !table.is_empty() {
        v1beta1_conditions::keep(&object.status, &mut status);
        follow(&mut status, table);
    }
    (status != object.status).then_some(status)
}

/// The patch that removes the finalizers of another program, if there are some.
fn without_left_finalizers(kind: &AuxiliaryKind, found: &Auxiliary) -> Option<Value> {
    without_finalizers(found, |finalizer| is_left(kind, finalizer))
        .map(|patch| guarded(&found.metadata, patch))
}

/// The patch that removes these finalizers, if there are some.
pub(super) fn without_finalizers(found: &Auxiliary, goes: impl Fn(&str) -> bool) -> Option<Value> {
    let finalizers = found.metadata.finalizers.as_ref()?;
    let others: Vec<_> = finalizers.iter().filter(|one| !goes(one)).collect();
    (others.len() < finalizers.len()).then(|| json!({"metadata": {"finalizers": others}}))
}

/// Whether everything is as it is wanted. There may be more: defaults, and what others have written.
fn covers(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(field, value)| match found.get(field) {
                Some(found) => covers(found, value),
                None => value.is_null(),
            })
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| covers(found, wanted))
        }
        (found, wanted) => found == wanted,
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(field, value)| (field.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// A merge patch removes what is null, but takes the items of a list as they are.
fn without_nulls_in_lists(patch: &Value) -> Value {
    match patch {
        Value::Object(fields) => {
            fields.iter().map(|(field, value)| (field.clone(), without_nulls_in_lists(value))).collect()
        }
        list @ Value::Array(_) => without_nulls(list),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
