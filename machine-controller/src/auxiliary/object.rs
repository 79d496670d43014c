//! What is kept of an object.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use cloudprovider::machines::AuxiliaryObject;
use controller_kit::cache::{CachedObject, Watched};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Object;
use serde_json::{Map, Value};

use crate::{object::InfraObject, packed::Text};

/// The key of an object in a cache.
pub fn key_of(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// An object of an auxiliary kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Auxiliary {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What a step reads of it.
    pub object: Arc<AuxiliaryObject>,
}

impl Auxiliary {
    /// Whether this object is one of its owners.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
    }

    /// The version of the object.
    pub fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// Whether this object was made for that one.
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        let mut owners = self.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.uid == uid && owner.controller == Some(true))
    }

    /// The same as an object of the controller's own kinds, for its conditions.
    pub(crate) fn as_infra(&self) -> InfraObject {
        let status = self.object.status.as_object().cloned().unwrap_or_default();
        let texts = |texts: &BTreeMap<String, String>| Some(texts.clone()).filter(|texts| !texts.is_empty());
        let (labels, annotations) = (texts(&self.object.labels), texts(&self.object.annotations));
        let metadata = ObjectMeta { labels, annotations, ..self.metadata.clone() };
        InfraObject { metadata, spec: Value::Null, status }
    }
}

/// An object of an auxiliary kind, as its cache keeps it.
#[derive(Clone, Debug)]
pub struct PackedAuxiliary {
    key: Box<str>,
    version: Box<str>,
    /// The UIDs of its owners.
    owners: Box<[String]>,
    /// Its metadata without its version.
    metadata: Text<ObjectMeta>,
    object: Arc<Text<AuxiliaryObject>>,
}

impl PackedAuxiliary {
    /// The object.
    pub fn unpacked(&self) -> Auxiliary {
        let mut metadata = self.metadata.read();
        metadata.resource_version = Some(self.version.to_string()).filter(|version| !version.is_empty());
        Auxiliary { metadata, object: Arc::new(self.object.read()) }
    }

    /// What a step reads of it.
    pub(super) fn object(&self) -> &Arc<Text<AuxiliaryObject>> {
        &self.object
    }

    /// Its name, if it is in this namespace and names this object as an owner.
    pub(super) fn name_if_owned_by(&self, namespace: &str, uid: &str) -> Option<&str> {
        let name = self.key.strip_prefix(namespace)?.strip_prefix('/')?;
        self.owners.iter().any(|owner| owner == uid).then_some(name)
    }
}

impl From<Auxiliary> for PackedAuxiliary {
    fn from(kept: Auxiliary) -> Self {
        let Auxiliary { mut metadata, object } = kept;
        let version = metadata.resource_version.take().unwrap_or_default();
        Self {
            key: key_of(object.namespace.as_deref(), &object.name).into(),
            version: version.into(),
            owners: object.owners.clone().into(),
            metadata: Text::of(&metadata),
            object: Arc::new(Text::of(&object)),
        }
    }
}

impl CachedObject for PackedAuxiliary {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.key)
    }

    fn resource_version(&self) -> &str {
        &self.version
    }

    fn set_resource_version(&mut self, version: &str) {
        self.version = version.into();
    }

    fn same_content(&self, other: &Self) -> bool {
        self.object == other.object && self.metadata == other.metadata
    }
}

/// An object of an auxiliary kind, as it comes from the API server.
pub type WireAuxiliary = Object<Option<Value>, Value>;

impl From<WireAuxiliary> for Auxiliary {
    fn from(wire: WireAuxiliary) -> Self {
        let WireAuxiliary { metadata, spec, status, .. } = wire;
        let InfraObject { mut metadata, .. } =
            InfraObject { metadata, spec: Value::Null, status: Map::new() }.without_history();
        let mut object = AuxiliaryObject::new(metadata.name.clone().unwrap_or_default())
            .with_uid(metadata.uid.clone().unwrap_or_default())
            // There they are once.
            .with_labels(metadata.labels.take().unwrap_or_default())
            .with_annotations(metadata.annotations.take().unwrap_or_default())
            .with_owners(metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()))
            .deleting(metadata.deletion_timestamp.is_some())
            .with_spec(spec.unwrap_or_default())
            .with_status(status.unwrap_or_default());
        object.namespace = metadata.namespace.clone().filter(|namespace| !namespace.is_empty());
        Self { metadata, object: Arc::new(object) }
    }
}

impl From<WireAuxiliary> for PackedAuxiliary {
    fn from(wire: WireAuxiliary) -> Self {
        Auxiliary::from(wire).into()
    }
}

impl Watched<PackedAuxiliary> for WireAuxiliary {}
