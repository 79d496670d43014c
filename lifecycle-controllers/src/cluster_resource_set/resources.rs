//! The `ConfigMap`s and Secrets of a set.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use cloudprovider::dns;
use cluster_api::{
    ClusterResourceSet, ClusterResourceSetResourceKind as ResourceKind, ResourceRef,
    names::secrets::RESOURCE_SET_TYPE,
};
use controller_kit::writes::WriteError;
use kube::api::ObjectMeta;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::json;

use crate::{
    core::Core,
    engine::{
        control::Failure,
        object::{Meta as _, owner_reference},
        place::{Guard, Place},
        writer::to_json,
    },
};

/// The values of a `ConfigMap` or Secret. They may be secret, so the type cannot be printed.
pub(super) struct Content {
    /// By key, in order.
    pub(super) values: BTreeMap<String, Vec<u8>>,
}

impl Content {
    /// `sha256:` and the digest of all values one after the other, as Cluster API's bindings have it.
    pub(super) fn hash(&self) -> String {
        let mut context = Context::new(&SHA256);
        for value in self.values.values() {
            context.update(value);
        }
        let digest = context.finish();
        let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
        let digits = digest.as_ref().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
        "sha256:".chars().chain(digits).collect()
    }
}

/// What is under the name of a resource.
pub(super) enum Found {
    /// It is there, with its values or with what is wrong about them.
    There(Box<ObjectMeta>, Result<Content, String>),
    /// There is none.
    Missing,
    /// A Secret that is not for sets. It is not read any further.
    WrongType,
}

/// As the API server sends it. It cannot be printed either.
#[derive(Deserialize)]
struct Wire {
    metadata: ObjectMeta,
    #[serde(rename = "type")]
    type_: Option<String>,
    data: Option<BTreeMap<String, String>>,
}

/// A resource, for people. What is no name may be any text.
pub(super) fn name_of(resource: &ResourceRef) -> String {
    let ResourceRef { name, kind } = resource;
    if dns::is_subdomain(name) { format!("{kind:?} {name}") } else { format!("{kind:?} {name:?}") }
}

/// Reads a resource.
///
/// # Errors
/// If its name is none, or the API server does not answer.
pub(super) async fn read(core: &Core, namespace: &str, resource: &ResourceRef) -> Result<Found, Failure> {
    let place = place(namespace, resource)?;
    match core.writer.read_at::<Wire>(&place).await {
        Ok(wire) => Ok(found(resource.kind, wire)),
        Err(WriteError::Gone) => Ok(Found::Missing),
        Err(error) => Err(Failure::Failed(format!("{} cannot be read: {error}", name_of(resource)))),
    }
}

/// Where a resource is. The name is a user's, and becomes a part of a path.
fn place(namespace: &str, resource: &ResourceRef) -> Result<Place, Failure> {
    if !dns::is_subdomain(&resource.name) {
        let why = format!("spec.resources: {:?} is not the name of an object", resource.name);
        return Err(Failure::Failed(why));
    }
    let plural = match resource.kind {
        ResourceKind::Secret => "secrets",
        ResourceKind::ConfigMap => "configmaps",
    };
    Ok(Place::of_core(plural, namespace, &resource.name))
}

fn found(kind: ResourceKind, wire: Wire) -> Found {
    let is_secret = kind == ResourceKind::Secret;
    if is_secret && wire.type_.as_deref() != Some(RESOURCE_SET_TYPE) {
        return Found::WrongType;
    }
    let content = match wire.data {
        None => Err("it has no data".to_owned()),
        Some(data) => values(data, is_secret),
    };
    Found::There(Box::new(wire.metadata), content)
}

fn values(data: BTreeMap<String, String>, is_secret: bool) -> Result<Content, String> {
    let value = |(key, value): (String, String)| {
        let value = if is_secret {
            BASE64_STANDARD.decode(value).map_err(|_| format!("data.{key} is no base64"))?
        } else {
            value.into_bytes()
        };
        Ok((key, value))
    };
    Ok(Content { values: data.into_iter().map(value).collect::<Result<_, String>>()? })
}

/// Makes the set an owner of a resource, so that `clusterctl move` takes it along.
pub(super) async fn own(
    core: &Core,
    set: &ClusterResourceSet,
    resource: &ResourceRef,
    metadata: &ObjectMeta,
) -> Result<(), Failure> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    if owners.iter().any(|owner| owner.uid == set.uid_or_empty()) {
        return Ok(());
    }
    // A set of this name that is gone, as after a move.
    let is_older = |kind: &str, name: &str| kind == "ClusterResourceSet" && name == set.name_or_empty();
    let mut owners: Vec<_> =
        owners.iter().filter(|owner| !is_older(&owner.kind, &owner.name)).cloned().collect();
    owners.push(owner_reference(set, false));
    let guard = Guard {
        uid: metadata.uid.as_deref().unwrap_or_default(),
        version: metadata.resource_version.as_deref(),
    };
    let body = json!({"metadata": {"ownerReferences": to_json(&owners)?}});
    let _: IgnoredAny =
        core.writer.patch_at(&place(set.namespace_or_empty(), resource)?, guard, body).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(object: serde_json::Value) -> Wire {
        serde_json::from_value(object).expect("an object")
    }

    #[test]
    fn the_hash_is_cluster_apis() {
        let data = json!({"b": "two", "a": "one"});
        let found = found(ResourceKind::ConfigMap, wire(json!({"metadata": {}, "data": data})));
        let Found::There(_, Ok(content)) = found else { panic!("it is there") };
        // printf onetwo | sha256sum
        let expected = "sha256:25b6746d5172ed6352966a013d93ac846e1110d5a25e8f183b5931f4688842a1";
        assert_eq!(content.hash(), expected);
    }

    #[test]
    fn only_secrets_for_sets_are_read() {
        for type_ in [json!(null), json!("Opaque"), json!("cluster.x-k8s.io/secret")] {
            let secret = wire(json!({"metadata": {}, "type": type_, "data": {"value": "eA=="}}));
            assert!(matches!(found(ResourceKind::Secret, secret), Found::WrongType));
        }
        let secret = |data: serde_json::Value| {
            let secret = wire(json!({"metadata": {}, "type": RESOURCE_SET_TYPE, "data": data}));
            match found(ResourceKind::Secret, secret) {
                Found::There(_, content) => content.map(|content| content.values),
                Found::Missing | Found::WrongType => panic!("it is there"),
            }
        };
        assert_eq!(secret(json!({"a": "eA=="})), Ok([("a".to_owned(), b"x".to_vec())].into()));
        assert_eq!(secret(json!({"a": "?"})), Err("data.a is no base64".to_owned()));
        assert_eq!(secret(json!(null)), Err("it has no data".to_owned()));
    }

    #[test]
    fn a_name_reaches_no_other_namespace() {
        for name in ["../../kube-system/secrets/x", "..", "", "a/b", "a?x=y", "A", "a%2fb"] {
            let resource = ResourceRef { name: name.to_owned(), kind: ResourceKind::Secret };
            assert!(
                place("n", &resource).is_err_and(|why| why.to_string().contains("spec.resources")),
                "{name}"
            );
        }
        let resource = ResourceRef { name: "a.b".to_owned(), kind: ResourceKind::ConfigMap };
        let place = place("n", &resource).expect("a place");
        assert_eq!((place.plural.as_str(), place.namespace.as_str()), ("configmaps", "n"));
    }
}
