//! An object of a kind as a watch shows it.

use std::{borrow::Cow, fmt, ops::Deref};

use controller_kit::cache::{CachedObject, Watched};
use jiff::Timestamp;
use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Resource, ResourceExt as _,
    api::ObjectMeta,
    core::object::{HasSpec, HasStatus},
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::Value;

/// A kind that the controllers of this crate read.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + HasSpec<Spec: Serialize>
    + Clone
    + fmt::Debug
    + PartialEq
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + HasSpec<Spec: Serialize>
        + Clone
        + fmt::Debug
        + PartialEq
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// A kind whose status the controllers of this crate write.
pub trait KindWithStatus: Kind + HasStatus<Status: Serialize + Clone + Default> {}

impl<K: Kind + HasStatus<Status: Serialize + Clone + Default>> KindWithStatus for K {}

/// An object in a cache. Of `metadata.managedFields` it has who wrote when, without the fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored<K> {
    object: K,
    synced: SyncedKeys,
}

impl<K: Resource> Stored<K> {
    /// The object of an answer of the API server.
    pub fn new(mut object: K) -> Self {
        let synced = SyncedKeys::take_from(object.meta_mut());
        Self { object, synced }
    }

    /// The keys of labels and annotations that it has from its `MachineSet` or `MachineDeployment`.
    pub fn synced(&self) -> &SyncedKeys {
        &self.synced
    }
}

impl<K> Deref for Stored<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.object
    }
}

/// The keys of labels and annotations that an object has from its `MachineSet` or `MachineDeployment`, as the field managers say. So a key
/// that is no longer in the template is removed, and one of others stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncedKeys {
    /// Of labels.
    pub labels: Vec<String>,
    /// Of annotations.
    pub annotations: Vec<String>,
}

/// The field manager of what a `MachineSet` writes to its Machines. It is not the one of Cluster API's manager, by which that is noticed.
pub const MACHINE_SET_MANAGER: &str = "cloud-controller-manager-machineset";

/// The field manager of what a `MachineDeployment` writes to its `MachineSet`s.
pub const MACHINE_DEPLOYMENT_MANAGER: &str = "cloud-controller-manager-machinedeployment";

/// How the names of field managers begin that write labels and annotations of templates: ours, and those of Cluster API, whose objects may
/// have been taken over.
const OWNERS: [&str; 4] =
    [MACHINE_SET_MANAGER, MACHINE_DEPLOYMENT_MANAGER, "capi-machineset", "capi-machinedeployment"];

impl SyncedKeys {
    /// Reads them, and removes the fields of the managers. Who wrote when stays.
    pub fn take_from(metadata: &mut ObjectMeta) -> Self {
        let mut found = Self::default();
        for entry in metadata.managed_fields.iter_mut().flatten() {
            let fields = entry.fields_v1.take();
            let manager = entry.manager.as_deref().unwrap_or_default();
            if let Some(fields) = fields.filter(|_| OWNERS.iter().any(|owner| manager.starts_with(owner))) {
                add_keys(&fields.0["f:metadata"]["f:labels"], &mut found.labels);
                add_keys(&fields.0["f:metadata"]["f:annotations"], &mut found.annotations);
            }
        }
        found
    }
}

fn add_keys(fields: &Value, keys: &mut Vec<String>) {
    let of_fields = fields.as_object().into_iter().flatten();
    keys.extend(of_fields.filter_map(|(field, _)| field.strip_prefix("f:").map(str::to_owned)));
    keys.sort_unstable();
    keys.dedup();
}

impl<K: Kind> CachedObject for Stored<K> {
    fn key(&self) -> Cow<'_, str> {
        key_of(self.object.meta()).into()
    }

    fn resource_version(&self) -> &str {
        self.object.meta().resource_version.as_deref().unwrap_or_default()
    }

    fn set_resource_version(&mut self, version: &str) {
        self.object.meta_mut().resource_version = Some(version.to_owned());
    }

    fn same_content(&self, other: &Self) -> bool {
        if self.resource_version() == other.resource_version() {
            return *self == *other;
        }
        let mut other = other.clone();
        other.set_resource_version(self.resource_version());
        *self == other
    }
}

/// An object as the API server sends it. A definition of another version may let an object through that is not of the form of `K`.
#[derive(Clone, Debug)]
pub struct Wire<K>(Result<K, Unreadable>);

/// An object that is not of the form of its kind.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Unreadable {
    metadata: Box<ObjectMeta>,
    field: String,
    why: String,
}

impl<'de, K: Kind> Deserialize<'de> for Wire<K> {
    /// Fails for what is no object of Kubernetes at all: its name is missing.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Value::deserialize(deserializer)?;
        match K::deserialize(&json) {
            Ok(object) => Ok(Self(Ok(object))),
            Err(_) => {
                unreadable::<K>(&json).map(|unreadable| Self(Err(unreadable))).map_err(D::Error::custom)
            }
        }
    }
}

fn unreadable<K: Kind>(json: &Value) -> Result<Unreadable, &'static str> {
    let error = serde_path_to_error::deserialize::<_, K>(json).err();
    let field = error.as_ref().map(|error| error.path().to_string()).unwrap_or_default();
    let why = error.map(|error| without_values(&error.into_inner().to_string())).unwrap_or_default();
    // Metadata that cannot be read is nothing that an API server sends.
    let metadata = ObjectMeta::deserialize(&json["metadata"]).map_err(|_| "metadata cannot be read")?;
    if metadata.name.as_ref().is_none_or(String::is_empty) {
        return Err("metadata.name is missing");
    }
    Ok(Unreadable { metadata: Box::new(metadata), field, why })
}

/// What serde says, without the values that it quotes: the object may have secrets in it.
fn without_values(message: &str) -> String {
    if message.starts_with("missing field") {
        return message.to_owned();
    }
    let expected = message.rsplit_once(", expected ").map(|(_, expected)| format!("expected {expected}"));
    expected.unwrap_or_else(|| "not of the form of the kind".to_owned())
}

impl<K: Kind> Resource for Wire<K> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(dynamic: &()) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &()) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &()) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &()) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(unreadable) => &mut unreadable.metadata,
        }
    }
}

impl<K: Kind> TryFrom<Wire<K>> for Stored<K> {
    type Error = Unreadable;

    fn try_from(wire: Wire<K>) -> Result<Self, Unreadable> {
        wire.0.map(Self::new)
    }
}

impl<K: Kind> Watched<Stored<K>> for Wire<K> {}

/// Namespace and name with a slash between.
pub fn key_of(metadata: &ObjectMeta) -> String {
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    key(namespace.unwrap_or_default(), name.unwrap_or_default())
}

/// Namespace and name with a slash between.
pub fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Namespace and name of a key.
pub fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or_default()
}

/// What is asked of the metadata of any object.
pub trait Meta: Resource + Sized {
    /// `metadata.namespace`
    fn namespace_or_empty(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    /// `metadata.name`
    fn name_or_empty(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// `metadata.uid`
    fn uid_or_empty(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    /// Whether it has a deletion timestamp.
    fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    /// `metadata.creationTimestamp` in seconds since 1970.
    fn created(&self) -> i64 {
        self.meta().creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
    }

    /// `metadata.deletionTimestamp`
    fn deleted_at(&self) -> Option<Timestamp> {
        self.meta().deletion_timestamp.as_ref().map(|time| time.0)
    }

    /// One of its labels.
    fn label(&self, name: &str) -> Option<&str> {
        self.labels().get(name).map(String::as_str)
    }

    /// One of its annotations.
    fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations().get(name).map(String::as_str)
    }

    /// Whether it has this finalizer.
    fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers().iter().any(|one| one == finalizer)
    }

    /// Its controller, if it has one.
    fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references().iter().find(|owner| owner.controller == Some(true))
    }

    /// Whether the object of this UID is an owner.
    fn is_owned_by(&self, uid: &str) -> bool {
        self.owner_references().iter().any(|owner| owner.uid == uid)
    }
}

impl<K: Resource> Meta for K {}

/// Whether an owner reference names this kind, in whichever version.
pub fn names_kind(owner: &OwnerReference, group: &str, kind: &str) -> bool {
    let of_group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    owner.kind == kind && of_group == group
}

/// An owner reference to an object of a kind.
pub fn owner_reference<K: Kind>(object: &K, is_controller: bool) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: object.name_or_empty().to_owned(),
        uid: object.uid_or_empty().to_owned(),
        controller: is_controller.then_some(true),
        block_owner_deletion: is_controller.then_some(true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_machine_set_wrote_is_known_by_its_managers() {
        let entry = |manager: &str, labels: Value| {
            json!({
                "manager": manager, "operation": "Apply",
                "fieldsV1": {"f:metadata": {"f:labels": labels, "f:annotations": {"f:x/y": {}}}},
            })
        };
        let metadata = json!({"managedFields": [
            entry("capi-machineset", json!({".": {}, "f:a": {}})),
            entry("capi-machineset-metadata", json!({"f:a": {}, "f:b/c": {}})),
            entry("kubectl", json!({"f:mine": {}})),
            {"manager": "capi-machineset", "fieldsV1": {}},
        ]});
        let mut metadata: ObjectMeta = serde_json::from_value(metadata).expect("metadata");
        let found = SyncedKeys::take_from(&mut metadata);
        assert_eq!(
            (found.labels, found.annotations),
            (vec!["a".into(), "b/c".into()], vec!["x/y".to_owned()])
        );
        let left = metadata.managed_fields.unwrap_or_default();
        assert!(left.len() == 4 && left.iter().all(|entry| entry.fields_v1.is_none()));
    }

    #[test]
    fn an_object_that_cannot_be_read_is_named_and_not_quoted() {
        let wire = |spec: Value| {
            let machine = json!({"metadata": {"name": "m", "namespace": "n"}, "spec": spec});
            serde_json::from_value::<Wire<cluster_api::Machine>>(machine).expect("an object")
        };
        let unreadable = |spec: Value| {
            let wire = wire(spec);
            assert_eq!(wire.meta().name.as_deref(), Some("m"));
            Stored::try_from(wire).expect_err("it cannot be read").to_string()
        };
        let reference = json!({"apiGroup": "g", "kind": "X", "name": "x"});
        let good = json!({"clusterName": "c", "bootstrap": {}, "infrastructureRef": reference});
        assert!(Stored::try_from(wire(good.clone())).is_ok());
        let mut bad = good;
        bad["minReadySeconds"] = "hunter2".into();
        assert_eq!(unreadable(bad), "spec.minReadySeconds: expected i32");
        assert_eq!(without_values("unknown variant `a, expected b`, expected `c`"), "expected `c`");
        let nameless = json!({"metadata": {"name": []}});
        assert!(serde_json::from_value::<Wire<cluster_api::Machine>>(nameless).is_err());
    }
}
