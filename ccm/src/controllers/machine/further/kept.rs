//! What is kept of an object.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use cloudprovider::machines::FurtherObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Object;
use serde_json::{Map, Value};

use crate::{
    cache::{CachedObject, Watched},
    controllers::machine::object::InfraObject,
};

/// The key of an object in a cache.
pub fn key_of(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// An object of a further kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What a step reads of it.
    pub object: Arc<FurtherObject>,
}

impl Kept {
    /// Whether this object is one of its owners.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
    }

    /// Whether this object was made for that one.
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        let mut owners = self.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.uid == uid && owner.controller == Some(true))
    }

    /// The same as an object of the controller's own kinds, for its conditions.
    pub(in crate::controllers::machine) fn as_infra(&self) -> InfraObject {
        let status = self.object.status.as_object().cloned().unwrap_or_default();
        let texts = |texts: &BTreeMap<String, String>| Some(texts.clone()).filter(|texts| !texts.is_empty());
        let (labels, annotations) = (texts(&self.object.labels), texts(&self.object.annotations));
        let metadata = ObjectMeta { labels, annotations, ..self.metadata.clone() };
        InfraObject { metadata, spec: Value::Null, status }
    }
}

impl CachedObject for Kept {
    fn key(&self) -> Cow<'_, str> {
        key_of(self.object.namespace.as_deref(), &self.object.name).into()
    }

    fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    fn set_resource_version(&mut self, version: &str) {
        self.metadata.resource_version = Some(version.to_owned());
    }

    fn same_content(&self, other: &Self) -> bool {
        let version = other.metadata.resource_version.clone();
        self.object == other.object
            && ObjectMeta { resource_version: version, ..self.metadata.clone() } == other.metadata
    }
}

/// An object of a further kind, as it comes from the API server.
pub type WireFurther = Object<Option<Value>, Value>;

impl From<WireFurther> for Kept {
    fn from(wire: WireFurther) -> Self {
        let WireFurther { metadata, spec, status, .. } = wire;
        let InfraObject { mut metadata, .. } =
            InfraObject { metadata, spec: Value::Null, status: Map::new() }.without_history();
        let mut object = FurtherObject::new(metadata.name.clone().unwrap_or_default())
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

impl Watched for WireFurther {
    type Kept = Kept;
}
