//! Converts objects between the versions of the API. Pure: JSON in, JSON out.
//!
//! Most fields are the same in both versions. `v1beta1` and `v1beta2` hold what is not, each as one function. Nothing is
//! lost on the way there and back: what the other version has no place for goes into an annotation, as everywhere in
//! Cluster API. It is written only if something would be lost, and taken out on the way back.
//!
//! One thing is said twice in v1beta2: `status.ready` of a machine and a cluster always repeats
//! `status.initialization.provisioned`.

mod duration;
mod rest;
mod shape;
mod v1beta1;
mod v1beta2;

use std::collections::BTreeMap;

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{BoundedObject, GROUP},
};
use serde_json::{Map, Value};

use self::shape::{Body, Shape};
use super::v1beta1::LATER_FIELDS;

/// Holds the whole object in the other version, without its metadata. Cluster API's own conversions use the same one.
const ANNOTATION: &str = "cluster.x-k8s.io/conversion-data";

/// Fields of any object that are not converted.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// A version of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1Beta1,
    V1Beta2,
}

/// An object whose fields get the names and forms of the other version.
struct Conversion<'a> {
    shape: Shape,
    namespace: Option<&'a str>,
}

/// The object in the version `to`, such as `v1beta2`.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if it is not an object of one of the kinds in a version that is known.
pub fn convert(object: Value, to: &str) -> Result<Value> {
    let invalid = |words: String| Error::new(ErrorKind::InvalidInput, words);
    let Value::Object(mut body) = object else {
        return Err(invalid("the object is not a JSON object".to_owned()));
    };
    let kind = body.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let shape = Shape::of(&kind).ok_or_else(|| invalid(format!("kind: {kind:?} has no versions here")))?;
    let api_version = body.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let from = api_version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/')).and_then(Version::of);
    let from = from.ok_or_else(|| invalid(format!("apiVersion: {api_version:?} is not known here")))?;
    let to = Version::of(to).ok_or_else(|| invalid(format!("the version {to:?} is not known here")))?;
    if body.get("metadata").is_some_and(|metadata| !metadata.is_object()) {
        return Err(invalid("metadata: a JSON object is needed here".to_owned()));
    }
    if from == to {
        return Ok(body.into());
    }
    let metadata = body.remove("metadata");
    let has_metadata = metadata.is_some();
    let mut metadata = match metadata {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    let kept = take_annotation(&mut metadata);
    body.retain(|name, _| !OF_EVERY_OBJECT.contains(&name.as_str()));
    let namespace = metadata.get("namespace").and_then(Value::as_str).map(ToOwned::to_owned);
    let conversion = Conversion { shape, namespace: namespace.as_deref() };
    let body = conversion.canonical(body, from);

    let mut converted = conversion.converted(body.clone(), to);
    if let Some(kept) = kept {
        let mut kept = conversion.canonical(kept, to);
        let later = conversion.take_later(&mut kept, to);
        let known = conversion.there_and_back(kept.clone(), to);
        rest::restore(&mut converted, &known, &kept);
        put_back_later_fields(shape, &mut converted, later);
    }
    if conversion.converted(converted.clone(), from) != body {
        let mut body = body;
        conversion.take_later(&mut body, from);
        add_annotation(&mut metadata, &body);
    }

    converted.insert("apiVersion".to_owned(), format!("{GROUP}/{}", to.name()).into());
    converted.insert("kind".to_owned(), kind.into());
    if has_metadata || !metadata.is_empty() {
        converted.insert("metadata".to_owned(), metadata.into());
    }
    Ok(converted.into())
}

impl Version {
    fn of(name: &str) -> Option<Self> {
        [Self::V1Beta1, Self::V1Beta2].into_iter().find(|version| version.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::V1Beta1 => "v1beta1",
            Self::V1Beta2 => "v1beta2",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::V1Beta1 => Self::V1Beta2,
            Self::V1Beta2 => Self::V1Beta1,
        }
    }
}

impl Conversion<'_> {
    /// The body in the version `to`, without what that version has no place for.
    fn converted(&self, mut body: Body, to: Version) -> Body {
        match to {
            Version::V1Beta1 => v1beta1::from_v1beta2(self.shape, self.namespace, &mut body),
            Version::V1Beta2 => {
                v1beta2::from_v1beta1(self.shape, &mut body);
                v1beta2::repeat_ready(self.shape, &mut body);
            }
        }
        body
    }

    /// Takes what is not kept out of a body in `version`.
    fn take_later(&self, body: &mut Body, version: Version) -> Map<String, Value> {
        match version {
            Version::V1Beta1 => Map::new(),
            Version::V1Beta2 => take_later_fields(self.shape, body),
        }
    }

    /// What is left of a body in `version` that was converted to the other one and back.
    fn there_and_back(&self, body: Body, version: Version) -> Body {
        self.converted(self.converted(body, version.other()), version)
    }

    /// The body with everything said that it says.
    fn canonical(&self, mut body: Body, version: Version) -> Body {
        if version == Version::V1Beta2 {
            v1beta2::repeat_ready(self.shape, &mut body);
        }
        body
    }
}

/// What an earlier conversion kept. Anything else under that name is dropped.
fn take_annotation(metadata: &mut Map<String, Value>) -> Option<Body> {
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let kept = annotations.remove(ANNOTATION)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    read_kept(kept.as_str()?)
}

/// What a conversion kept of an object with these annotations: all that it says in the other version.
pub(crate) fn kept(annotations: &BTreeMap<String, String>) -> Option<Map<String, Value>> {
    read_kept(annotations.get(ANNOTATION)?)
}

fn read_kept(text: &str) -> Option<Body> {
    // The text can be a stranger's.
    let Value::Object(mut kept) = BoundedObject::from_text(text).ok()? else { return None };
    kept.retain(|name, _| !OF_EVERY_OBJECT.contains(&name.as_str()));
    Some(kept)
}

fn add_annotation(metadata: &mut Map<String, Value>, body: &Body) {
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if let (Some(annotations), Ok(kept)) = (annotations.as_object_mut(), serde_json::to_string(body)) {
        annotations.insert(ANNOTATION.to_owned(), kept.into());
    }
}

/// Takes the fields out of a body in v1beta2 that v1beta1 got after v1beta2 had them.
///
/// While v1beta1 had no place for them, they were kept in the annotation alone, and objects that were stored then still have them there.
/// So they are never kept: what is found there is from that time.
fn take_later_fields(shape: Shape, body: &mut Body) -> Map<String, Value> {
    let Some(spec) = shape.spec(body).filter(|_| shape.has_clone_spec()) else { return Map::new() };
    LATER_FIELDS.into_iter().filter_map(|field| spec.remove_entry(field)).collect()
}

/// Puts the fields into a body that does not have them.
fn put_back_later_fields(shape: Shape, body: &mut Body, taken: Map<String, Value>) {
    if let Some(spec) = shape.spec(body) {
        for (field, value) in taken {
            spec.entry(field).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests;
