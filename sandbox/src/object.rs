//! The steps that the API server applies to every object before it stores it: metadata, defaults, empty
//! fields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    resources::ResourceKind,
    status::{ApiError, ApiResult},
};

/// A string field of the metadata; empty if absent.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Whether the object is being deleted and waits for its finalizers.
pub(crate) fn deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|v| !v.is_null())
}

/// Whether any finalizer is left.
pub(crate) fn has_finalizers(object: &Value) -> bool {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty())
}

/// Reads a body: checks and removes kind and apiVersion, and renames fields to their stored names.
pub(crate) fn to_storage(kind: &ResourceKind, body: Value) -> ApiResult<Value> {
    let Value::Object(mut map) = body else {
        return Err(ApiError::bad_request("the body of the request is not an object"));
    };
    if let Some(got) = map.remove("kind").as_ref().and_then(Value::as_str)
        && !got.is_empty()
        && got != kind.kind
    {
        return Err(ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: unexpected kind {got:?}",
            kind.kind, kind.version, kind.kind
        )));
    }
    if let Some(got) = map.remove("apiVersion").as_ref().and_then(Value::as_str)
        && !got.is_empty()
        && got != kind.api_version()
    {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({got}) does not match the expected API version ({})",
            kind.api_version()
        )));
    }
    for (stored, served) in kind.rules.renames {
        if let Some(value) = map.remove(*served) {
            map.insert((*stored).to_owned(), value);
        }
    }
    match map.get("metadata") {
        None | Some(Value::Null) => {
            map.insert("metadata".into(), json!({}));
        }
        // values that are not objects are refused by check_types, with the message for the request
        Some(_) => {}
    }
    Ok(Value::Object(map))
}

/// Checks the types of an object's fields (in storage form). The error says which one is wrong.
///
/// All later code may rely on the types in metadata, and in spec and status of built-in kinds.
pub(crate) fn check_types(kind: &ResourceKind, object: &mut Value) -> Result<(), String> {
    for pointer in ["/status/capacity", "/status/allocatable"] {
        quantities(kind, object.pointer_mut(pointer));
    }
    for containers in ["/spec/containers", "/spec/initContainers"] {
        let containers = object.pointer_mut(containers).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            for field in ["/resources/limits", "/resources/requests"] {
                quantities(kind, container.pointer_mut(field));
            }
        }
    }
    ObjectMeta::deserialize(&object["metadata"]).map_err(|error| error.to_string())?;
    (kind.rules.check)(object)
}

/// Quantities may be written as numbers, and are stored as text.
fn quantities(kind: &ResourceKind, map: Option<&mut Value>) {
    let map = map.filter(|_| kind.rules.strategic).and_then(Value::as_object_mut);
    for quantity in map.into_iter().flat_map(|map| map.values_mut()) {
        if let Value::Number(number) = quantity {
            *quantity = number.to_string().into();
        }
    }
}

/// The stored object in the form of this kind, with kind and apiVersion.
pub(crate) fn to_served(kind: &ResourceKind, stored: &Value) -> Value {
    let mut map = Map::new();
    map.insert("kind".into(), kind.kind.clone().into());
    map.insert("apiVersion".into(), kind.api_version().into());
    for (field, value) in stored.as_object().into_iter().flatten() {
        let served = kind.rules.renames.iter().find(|(stored, _)| stored == field).map(|(_, served)| *served);
        map.insert(served.unwrap_or(field).to_owned(), value.clone());
    }
    Value::Object(map)
}

/// Removes nulls, empty metadata fields and fields that `omitempty` removes.
pub(crate) fn normalise(kind: &ResourceKind, object: &mut Value) {
    drop_nulls(object);
    let empty = |v: &Value| match v {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        Value::Number(n) => n.as_i64() == Some(0),
    };
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.retain(|field, v| field == "deletionGracePeriodSeconds" || !empty(v));
        for field in ["managedFields", "selfLink"] {
            metadata.remove(field);
        }
    }
    for pointer in kind.rules.omit_empty {
        let Some((parent, field)) = pointer.rsplit_once('/') else { continue };
        if let Some(Value::Object(parent)) = object.pointer_mut(parent)
            && parent.get(field).is_some_and(empty)
        {
            parent.remove(field);
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Fields of a Node's `nodeInfo`, which are present even if empty.
const NODE_INFO: [&str; 10] = [
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];

/// Adds the fields that a kind's defaulting and creation strategy add.
pub(crate) fn defaults(kind: &ResourceKind, object: &mut Value) {
    if crate::definition::defines(kind) {
        crate::definition::establish(object);
    }
    if !kind.group.is_empty() {
        return;
    }
    match kind.plural.as_str() {
        "nodes" => {
            let taints = &mut object["spec"]["taints"];
            let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
            // The admission plugin TaintNodesByCondition, which is on by default
            match taints {
                Value::Array(taints)
                    if !taints
                        .iter()
                        .any(|t| t["key"] == not_ready["key"] && t["effect"] == "NoSchedule") =>
                {
                    taints.push(not_ready);
                }
                Value::Null => *taints = json!([not_ready]),
                _ => {}
            }
            let status = &mut object["status"];
            if status["allocatable"].is_null() && status["capacity"].is_object() {
                status["allocatable"] = status["capacity"].clone();
            }
            if status["daemonEndpoints"].is_null() {
                status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": 0}});
            }
            for field in NODE_INFO {
                if status["nodeInfo"][field].is_null() {
                    status["nodeInfo"][field] = "".into();
                }
            }
        }
        "namespaces" => {
            let name = meta(object, "name").to_owned();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        "services" => crate::kinds::services::defaults(object),
        "secrets" => secret_defaults(object),
        "events" => {
            if object["source"].is_null() {
                object["source"] = json!({});
            }
            for field in ["reportingComponent", "reportingInstance"] {
                if object[field].is_null() {
                    object[field] = "".into();
                }
            }
        }
        _ => {}
    }
}

/// `stringData` is write-only: it is merged into `data`.
fn secret_defaults(secret: &mut Value) {
    if secret["type"].is_null() {
        secret["type"] = "Opaque".into();
    }
    let plain = secret.as_object_mut().and_then(|map| map.remove("stringData"));
    for (key, value) in plain.iter().filter_map(Value::as_object).flatten() {
        let encoded = k8s_openapi::ByteString(value.as_str().unwrap_or_default().as_bytes().to_vec());
        secret["data"][key] = serde_json::to_value(encoded).unwrap_or_default();
    }
}

/// Five characters for `generateName`, from an alphabet without vowels.
pub(crate) fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    uuid::Uuid::new_v4().as_bytes()[..5]
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}
