//! Changes of an object, collected as JSON Patch.

use serde::Serialize;
use serde_json::{Value, json};

use crate::names::labels;

/// An operation of JSON Patch (RFC 6902).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Operation {
    /// What is done. It is always `add`, which replaces a value that is there.
    pub op: &'static str,
    /// The field, as RFC 6901 writes it.
    pub path: String,
    /// Its new value.
    pub value: Value,
}

/// An object and what has changed in it so far.
pub(super) struct Changes {
    object: Value,
    operations: Vec<Operation>,
}

impl Changes {
    pub(super) fn new(object: &Value) -> Self {
        Self { object: object.clone(), operations: Vec::new() }
    }

    /// The value of a field, with the changes so far. None also for `null`.
    pub(super) fn get(&self, path: &str) -> Option<&Value> {
        self.object.pointer(path).filter(|value| !value.is_null())
    }

    /// The text in a field. None if it is empty, or something else than a text.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        self.get(path).and_then(Value::as_str).filter(|text| !text.is_empty()).map(ToOwned::to_owned)
    }

    /// Whether a map or a list has nothing in it, or is not there.
    pub(super) fn is_empty(&self, path: &str) -> bool {
        match self.get(path) {
            None => true,
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(_) => false,
        }
    }

    /// Sets a field that is missing, `null` or an empty text, as Go's clients see them.
    pub(super) fn fill(&mut self, path: &str, value: Value) {
        if self.get(path).is_none_or(|there| *there == json!("")) {
            self.set(path, value);
        }
    }

    /// Sets a field, and the objects around it where they are missing. Where one of them is no object, nothing is set: the
    /// schema will refuse it.
    pub(super) fn set(&mut self, path: &str, value: Value) {
        if self.get(path) == Some(&value) {
            return;
        }
        for (at, _) in path.match_indices('/').skip(1) {
            let parent = path.get(..at).unwrap_or_default();
            match self.get(parent) {
                // A type shows an object that the user left out as an empty one.
                Some(Value::Object(fields)) if !fields.is_empty() => {}
                None | Some(Value::Object(_)) => self.write(parent, json!({})),
                Some(_) => return,
            }
        }
        self.write(path, value);
    }

    fn write(&mut self, path: &str, value: Value) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let name = name.replace("~1", "/").replace("~0", "~");
        if let Some(Value::Object(fields)) = self.object.pointer_mut(parent) {
            fields.insert(name, value.clone());
            self.operations.push(Operation { op: "add", path: path.to_owned(), value });
        }
    }

    pub(super) fn into_operations(self) -> Vec<Operation> {
        self.operations
    }
}

/// A name as part of a path.
pub(super) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The label with the name of the Cluster follows the spec.
pub(super) fn cluster_label(changes: &mut Changes) {
    if let Some(cluster) = changes.text("/spec/clusterName") {
        changes.set(&format!("/metadata/labels/{}", escape(labels::CLUSTER_NAME)), json!(cluster));
    }
}

/// An object cannot have its defaults, or metadata that the schema does not see is wrong. The text names the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The field, such as `spec.selector`.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.field, self.reason)
    }
}

impl std::error::Error for Refused {}
