//! How the caches keep objects: as text, which is read for each look.
//!
//! A tree of values takes many times the room of its text: each of its maps has a node of 640 bytes, however
//! little is in it. A tenant may have thousands of objects, and of nearly all of them nothing is due.

use std::{borrow::Cow, marker::PhantomData};

use controller_kit::cache::CachedObject;
use serde::{Serialize, de::DeserializeOwned};

use super::object::InfraObject;

/// A value as JSON text. Texts are equal if the values are.
#[derive(Debug)]
pub struct Text<T> {
    json: Box<[u8]>,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Text<T> {
    fn clone(&self) -> Self {
        Self { json: self.json.clone(), of: PhantomData }
    }
}

impl<T> PartialEq for Text<T> {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl<T> Eq for Text<T> {}

impl<T: Serialize + DeserializeOwned + Default> Text<T> {
    /// The text of this value.
    pub fn of(value: &T) -> Self {
        // What comes from JSON can be written as JSON.
        let json = serde_json::to_vec(value).unwrap_or_default();
        Self { json: json.into(), of: PhantomData }
    }

    /// The value.
    pub fn read(&self) -> T {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }
}

/// A machine, a cluster or a template of a provider, as its cache keeps it.
#[derive(Clone, Debug)]
pub struct Packed {
    key: Box<str>,
    version: Box<str>,
    /// The object without its version.
    text: Text<InfraObject>,
}

impl Packed {
    /// The object.
    pub fn unpacked(&self) -> InfraObject {
        let mut object = self.text.read();
        object.metadata.resource_version =
            Some(self.version.to_string()).filter(|version| !version.is_empty());
        object
    }
}

impl From<InfraObject> for Packed {
    fn from(mut object: InfraObject) -> Self {
        let key = object.key().into();
        let version = object.metadata.resource_version.take().unwrap_or_default();
        Self { key, version: version.into(), text: Text::of(&object) }
    }
}

impl CachedObject for Packed {
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
        self.text == other.text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(version: &str, spec: Value) -> InfraObject {
        serde_json::from_value(json!({
            "metadata": {
                "name": "one", "namespace": "default", "uid": "u-1", "resourceVersion": version, "generation": 3,
                "labels": {"cluster.x-k8s.io/cluster-name": "prod"}, "finalizers": ["a"],
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": null,
                "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u-2"}],
            },
            "spec": spec,
            "status": {"ready": true, "conditions": [{"type": "Ready", "message": "\u{e4}\n\"\u{1f980}"}], "none": null},
        }))
        .expect("an object")
    }

    #[test]
    fn what_is_read_is_what_was_kept() {
        for spec in
            [json!(null), json!({}), json!({"a": [1, -2, 0.1, 1e300, u64::MAX, i64::MIN], "b": {"c": null}})]
        {
            for version in ["7", ""] {
                let mut object = object(version, spec.clone());
                object.metadata.resource_version = Some(version.to_owned()).filter(|one| !one.is_empty());
                let packed = Packed::from(object.clone());
                assert_eq!((&*packed.key(), packed.resource_version()), ("default/one", version));
                assert_eq!(packed.unpacked(), object);
            }
        }
    }

    #[test]
    fn two_versions_that_say_the_same_are_the_same() {
        let packed = |version, spec| Packed::from(object(version, spec));
        let mut one = packed("1", json!({"a": 1, "b": 2}));
        assert!(one.same_content(&packed("2", json!({"b": 2, "a": 1}))));
        assert!(!one.same_content(&packed("1", json!({"a": 1}))));
        one.set_resource_version("3");
        assert_eq!(one.unpacked(), object("3", json!({"a": 1, "b": 2})));
    }
}
