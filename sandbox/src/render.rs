//! Responses in the form that the client asked for: objects, their metadata, or a table.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    list::Page,
    object,
    request::{Form, Target},
    resources::ResourceKind,
    store::{Version, prefix},
    table,
};

/// Turns stored versions into responses.
#[derive(Debug, Clone)]
pub(crate) struct Renderer {
    form: Form,
    kind: Arc<ResourceKind>,
    /// Whether the stored bytes differ from this kind's form: they have another version or renamed fields.
    convert: bool,
    include_object: String,
}

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

impl Renderer {
    pub(crate) fn new(target: &Target, stored: &Arc<ResourceKind>) -> Self {
        Self {
            form: target.form,
            kind: target.kind.clone(),
            convert: !Arc::ptr_eq(stored, &target.kind),
            include_object: target.query.include_object.clone(),
        }
    }

    /// The version as an object of this kind.
    fn parse(&self, version: &Version) -> Value {
        // Cannot fail: the bytes were serialised here
        let mut value: Value = serde_json::from_slice(&version.json).unwrap_or_default();
        if self.convert {
            if let Value::Object(map) = &mut value {
                map.remove("kind");
                map.remove("apiVersion");
            }
            value = object::to_served(&self.kind, &value);
        }
        value
    }

    fn metadata(&self, version: &Version) -> Value {
        let mut object = self.parse(version);
        json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"].take(),
        })
    }

    /// One object.
    pub(crate) fn object(&self, version: &Version) -> Bytes {
        match self.form {
            Form::Object if !self.convert => version.json.clone(),
            Form::Object => self.parse(version).to_string().into(),
            Form::Metadata => self.metadata(version).to_string().into(),
            Form::Table => {
                let object = self.parse(version);
                let revision = object["metadata"]["resourceVersion"].clone();
                let metadata = json!({"resourceVersion": revision});
                table::table(&self.kind, &[object], &metadata, &self.include_object).to_string().into()
            }
        }
    }

    /// A list.
    pub(crate) fn list(&self, page: &Page) -> Bytes {
        let mut metadata = json!({"resourceVersion": page.revision.to_string()});
        if !page.continue_token.is_empty() {
            metadata["continue"] = page.continue_token.clone().into();
        }
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        let (kind, api_version) = match self.form {
            Form::Table => {
                let objects: Vec<Value> = page.versions.iter().map(|v| self.parse(v)).collect();
                return table::table(&self.kind, &objects, &metadata, &self.include_object)
                    .to_string()
                    .into();
            }
            Form::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            Form::Object => (format!("{}List", self.kind.kind), self.kind.api_version()),
        };
        let mut body =
            format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata},"items":["#)
                .into_bytes();
        // Items of typed lists have no kind and apiVersion, which the stored bytes begin with
        let skip = if self.kind.rules.bare_items { prefix(&self.kind).len() } else { 0 };
        for (at, version) in page.versions.iter().enumerate() {
            if at > 0 {
                body.push(b',');
            }
            match self.form {
                Form::Object if !self.convert && skip > 0 => {
                    body.push(b'{');
                    body.extend_from_slice(version.json.get(skip..).unwrap_or(b"}"));
                }
                _ => body.extend_from_slice(&self.object(version)),
            }
        }
        body.extend_from_slice(b"]}\n");
        body.into()
    }

    /// One watch event.
    pub(crate) fn event(&self, change: &str, version: &Version) -> Bytes {
        let object = self.object(version);
        let mut body = Vec::with_capacity(object.len() + 40);
        body.extend_from_slice(b"{\"type\":\"");
        body.extend_from_slice(change.as_bytes());
        body.extend_from_slice(b"\",\"object\":");
        body.extend_from_slice(&object);
        body.extend_from_slice(b"}\n");
        body.into()
    }

    /// DELETED for an object that no longer matches, with its last matching state and the new revision.
    pub(crate) fn left(&self, before: &Version, revision: u64) -> Bytes {
        self.event("DELETED", &before.at(revision))
    }

    /// BOOKMARK: an empty object with a resourceVersion.
    pub(crate) fn bookmark(&self, revision: u64, initial_events_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_events_end {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let (kind, api_version) = match self.form {
            Form::Object => (self.kind.kind.clone(), self.kind.api_version()),
            Form::Metadata => ("PartialObjectMetadata".to_owned(), "meta.k8s.io/v1".to_owned()),
            Form::Table => ("Table".to_owned(), "meta.k8s.io/v1".to_owned()),
        };
        let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        if self.form == Form::Table {
            object["columnDefinitions"] = Value::Null;
            object["rows"] = json!([]);
        }
        frame("BOOKMARK", &object)
    }
}

/// One watch event as a line of the body.
pub(crate) fn frame(change: &str, object: &Value) -> Bytes {
    let mut text = json!({"type": change, "object": object}).to_string();
    text.push('\n');
    text.into()
}
