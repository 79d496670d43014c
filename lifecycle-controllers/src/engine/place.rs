//! Which object a request is for: where it is, and which version of it.

use cloudprovider::dns;
use controller_kit::writes::WriteError;
use kube::Resource;
use serde_json::Value;

use super::object::{Kind, Meta as _};

/// Where an object is in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its API group, empty for the core one.
    pub group: String,
    /// The version that is read and written.
    pub version: String,
    /// The plural of its kind.
    pub plural: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Place {
    /// The place of an object of a kind.
    pub fn of<K: Kind>(object: &K) -> Self {
        Self::in_namespace::<K>(object.namespace_or_empty(), object.name_or_empty())
    }

    /// The place of the object of this name.
    pub fn in_namespace<K: Kind>(namespace: &str, name: &str) -> Self {
        Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The place of an object of one of Kubernetes' own kinds, such as `secrets`.
    pub fn of_core(plural: &str, namespace: &str, name: &str) -> Self {
        Self {
            group: String::new(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The path of all objects of the kind in the namespace.
    pub(super) fn all(&self) -> Result<String, WriteError> {
        let Self { group, version, plural, namespace, .. } = self;
        let group_path = match group.as_str() {
            "" => "/api".to_owned(),
            _ => format!("/apis/{}", part(group)?),
        };
        let (version, namespace, plural) = (part(version)?, part(namespace)?, part(plural)?);
        Ok(format!("{group_path}/{version}/namespaces/{namespace}/{plural}"))
    }

    /// The path of the object.
    pub(super) fn path(&self) -> Result<String, WriteError> {
        Ok(format!("{}/{}", self.all()?, part(&self.name)?))
    }
}

/// A part of a path. Users write names and groups into references, and a text such as `../x` would lead to another namespace.
fn part(text: &str) -> Result<&str, WriteError> {
    if dns::is_subdomain(text) {
        Ok(text)
    } else {
        Err(WriteError::Failed(format!("{text:?} is not the name of an object, a kind or a group")))
    }
}

/// The object that a write is for: its UID, and the version that the decision was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard<'a> {
    /// `metadata.uid`
    pub uid: &'a str,
    /// `metadata.resourceVersion`. `None`: any version.
    pub version: Option<&'a str>,
}

impl Guard<'_> {
    /// Of exactly this version.
    pub fn of<K: Resource>(object: &K) -> Guard<'_> {
        Guard { uid: object.uid_or_empty(), version: object.meta().resource_version.as_deref() }
    }

    /// Of this object, whatever was written to it since.
    pub fn of_any_version<K: Resource>(object: &K) -> Guard<'_> {
        Guard { version: None, ..Guard::of(object) }
    }

    /// Adds the preconditions to the metadata of a merge patch.
    pub(super) fn add_to(self, mut body: Value) -> Value {
        let mut metadata = body.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        metadata.insert("uid".to_owned(), self.uid.into());
        if let Some(version) = self.version {
            metadata.insert("resourceVersion".to_owned(), version.into());
        }
        body["metadata"] = metadata.into();
        body
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_leads_to_no_other_path() {
        let place = |group: &str, namespace: &str, name: &str| Place {
            group: group.to_owned(),
            version: "v1".to_owned(),
            plural: "boxes".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let path = |place: Place| place.path().map_err(|why| why.to_string());
        assert_eq!(path(place("", "n", "a.b")).as_deref(), Ok("/api/v1/namespaces/n/boxes/a.b"));
        assert_eq!(path(place("x.y", "n", "a")).as_deref(), Ok("/apis/x.y/v1/namespaces/n/boxes/a"));
        for (group, namespace, name) in [
            ("x.y", "n", "../../m/boxes/a"),
            ("x.y", "n", ".."),
            ("x.y", "n", ""),
            ("x.y", "n", "a?fieldManager=x"),
            ("x.y", "n", "a%2f.."),
            ("x.y", "", "a"),
            ("x.y", "../m", "a"),
            ("x/../..", "n", "a"),
        ] {
            let why = path(place(group, namespace, name));
            assert!(why.is_err_and(|why| why.contains("is not the name")), "{group} {namespace} {name}");
        }
    }

    #[test]
    fn a_kind_of_kubernetes_itself_is_in_the_core_group() {
        let place = Place::of_core("secrets", "n", "a");
        assert_eq!(place.path().ok().as_deref(), Some("/api/v1/namespaces/n/secrets/a"));
    }

    #[test]
    fn a_guard_is_in_the_metadata() {
        let guard = Guard { uid: "u", version: Some("7") };
        let body = guard.add_to(json!({"metadata": {"labels": {"a": "b"}}}));
        assert_eq!(body, json!({"metadata": {"labels": {"a": "b"}, "uid": "u", "resourceVersion": "7"}}));
        assert_eq!(guard.add_to(json!({"status": {}}))["metadata"]["uid"], "u");
    }
}
