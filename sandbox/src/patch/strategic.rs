//! Strategic merge patch: some lists are merged by key, as the Go types define.
//!
//! The merge keys are part of the API (`patchStrategy` and `patchMergeKey` of `k8s.io/api`). Only those of
//! the kinds served here are listed.

use serde_json::{Map, Value};

use crate::{
    resources::ResourceKind,
    status::{ApiError, ApiResult},
};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

/// How a patch changes a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    /// The list is replaced.
    Atomic,
    /// A set of plain values.
    Set,
    /// Objects, identified by this field.
    Keyed(&'static str),
}

/// The strategy of the list at `path` (field names joined by dots, list indexes left out).
fn strategy(kind: &ResourceKind, path: &str) -> Strategy {
    let key = match (kind.plural.as_str(), path) {
        (_, "metadata.finalizers") | ("nodes", "spec.podCIDRs") => return Strategy::Set,
        (_, "metadata.ownerReferences") => "uid",
        ("nodes", "status.addresses" | "status.conditions")
        | ("services" | "namespaces" | "pods", "status.conditions") => "type",
        ("services", "spec.ports") => "port",
        ("serviceaccounts", "secrets")
        | (
            "pods",
            "spec.containers"
            | "spec.initContainers"
            | "spec.ephemeralContainers"
            | "spec.containers.env"
            | "spec.initContainers.env"
            | "spec.volumes"
            | "spec.imagePullSecrets"
            | "spec.schedulingGates"
            | "spec.resourceClaims",
        ) => "name",
        ("pods", "spec.containers.ports" | "spec.initContainers.ports") => "containerPort",
        ("pods", "spec.containers.volumeMounts" | "spec.initContainers.volumeMounts") => "mountPath",
        ("pods", "spec.containers.volumeDevices" | "spec.initContainers.volumeDevices") => "devicePath",
        ("pods", "spec.hostAliases" | "status.podIPs" | "status.hostIPs") => "ip",
        ("pods", "spec.topologySpreadConstraints") => "topologyKey",
        _ => return Strategy::Atomic,
    };
    Strategy::Keyed(key)
}

/// Merges `patch` into `object`.
///
/// As upstream: 400 for directives of the wrong type; 500 for unknown ones and for a list entry without its
/// merge key.
pub(super) fn merge(kind: &ResourceKind, object: &mut Value, patch: &Value) -> ApiResult<()> {
    let mut merged = object.take();
    if !merged.is_object() {
        merged = Value::Object(Map::new());
    }
    if let (Value::Object(target), Value::Object(patch)) = (&mut merged, patch) {
        merge_map(kind, "", target, patch)?;
    }
    *object = merged;
    Ok(())
}

fn child(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

fn bad(what: &str) -> ApiError {
    ApiError::bad_request(format!("invalid strategic merge patch: {what}"))
}

fn directive(map: &Map<String, Value>) -> ApiResult<Option<&str>> {
    match map.get(DIRECTIVE) {
        None => Ok(None),
        Some(Value::String(text)) if matches!(text.as_str(), "replace" | "delete") => Ok(Some(text)),
        Some(other) => Err(ApiError::new(
            http::StatusCode::INTERNAL_SERVER_ERROR,
            "",
            format!("unknown patch type: {} in map", other.as_str().unwrap_or_default()),
        )),
    }
}

fn merge_map(
    kind: &ResourceKind,
    path: &str,
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> ApiResult<()> {
    match directive(patch)? {
        Some("replace") => {
            target.clear();
            target.extend(patch.iter().filter(|(k, _)| *k != DIRECTIVE).map(|(k, v)| (k.clone(), v.clone())));
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        _ => {}
    }
    if let Some(keys) = patch.get(RETAIN) {
        let keys = keys.as_array().ok_or_else(|| bad("$retainKeys is not a list"))?;
        target.retain(|key, _| keys.iter().any(|k| k == key.as_str()));
    }
    for (field, value) in patch {
        if let Some(list) = field.strip_prefix(DELETE) {
            let gone = value.as_array().ok_or_else(|| bad("$deleteFromPrimitiveList is not a list"))?;
            if let Some(Value::Array(items)) = target.get_mut(list) {
                items.retain(|item| !gone.contains(item));
            }
        }
    }
    for (field, value) in patch {
        if field == DIRECTIVE || field == RETAIN || field.starts_with(DELETE) || field.starts_with(ORDER) {
            continue;
        }
        match value {
            Value::Null => {
                target.remove(field);
            }
            Value::Object(inner) => {
                let slot = target.entry(field.as_str()).or_insert_with(|| Value::Object(Map::new()));
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(slot) = slot {
                    merge_map(kind, &child(path, field), slot, inner)?;
                }
            }
            Value::Array(items) => {
                let before = match target.remove(field) {
                    Some(Value::Array(before)) => before,
                    _ => Vec::new(),
                };
                let order = patch.get(&format!("{ORDER}{field}")).and_then(Value::as_array);
                let merged = merge_list(kind, &child(path, field), before, items, order.map(Vec::as_slice))?;
                target.insert(field.clone(), Value::Array(merged));
            }
            other => {
                target.insert(field.clone(), other.clone());
            }
        }
    }
    // With an order but no patch of the list itself, only the order changes
    for (field, order) in patch {
        let Some(list) = field.strip_prefix(ORDER).filter(|list| !patch.contains_key(*list)) else {
            continue;
        };
        let order = order.as_array().ok_or_else(|| bad("$setElementOrder is not a list"))?;
        if let Some(Value::Array(items)) = target.get_mut(list) {
            let strategy = strategy(kind, &child(path, list));
            let before = items.clone();
            *items = arrange(strategy, std::mem::take(items), order, &before);
        }
    }
    Ok(())
}

fn merge_list(
    kind: &ResourceKind,
    path: &str,
    before: Vec<Value>,
    patch: &[Value],
    order: Option<&[Value]>,
) -> ApiResult<Vec<Value>> {
    let strategy = strategy(kind, path);
    let mut kept = Vec::new();
    let mut replace = false;
    let mut merged = before.clone();
    for item in patch {
        let directive = item.as_object().map(directive).transpose()?.flatten();
        match directive {
            Some("replace") => replace = true,
            Some("delete") => {
                if let Strategy::Keyed(key) = strategy {
                    let wanted = merge_key(item, key)?;
                    merged.retain(|entry| entry.get(key) != Some(wanted));
                }
            }
            _ => kept.push(item),
        }
    }
    if strategy == Strategy::Atomic {
        return Ok(kept.into_iter().cloned().collect());
    }
    if replace {
        let merged: Vec<Value> = kept.into_iter().cloned().collect();
        let order = merged.clone();
        return Ok(arrange(strategy, merged, &order, &before));
    }
    for item in &kept {
        match strategy {
            Strategy::Keyed(key) => {
                let wanted = merge_key(item, key)?;
                let found = merged.iter_mut().find(|entry| entry.get(key) == Some(wanted));
                let Some(fields) = item.as_object() else { continue };
                match found {
                    Some(Value::Object(entry)) => merge_map(kind, path, entry, fields)?,
                    _ => {
                        let mut entry = Map::new();
                        merge_map(kind, path, &mut entry, fields)?;
                        merged.push(Value::Object(entry));
                    }
                }
            }
            _ if merged.contains(item) => {}
            _ => merged.push((*item).clone()),
        }
    }
    let patched: Vec<Value> = kept.into_iter().cloned().collect();
    Ok(arrange(strategy, merged, order.unwrap_or(&patched), &before))
}

fn merge_key<'a>(item: &'a Value, key: &str) -> ApiResult<&'a Value> {
    item.get(key).ok_or_else(|| {
        ApiError::new(
            http::StatusCode::INTERNAL_SERVER_ERROR,
            "",
            format!("map: {item} does not contain declared merge key: {key}"),
        )
    })
}

/// Orders a merged list: the entries of the patch in its order, with the other entries at their positions on
/// the server. So entries that are new to the server come before those that are not in the patch.
fn arrange(strategy: Strategy, merged: Vec<Value>, order: &[Value], before: &[Value]) -> Vec<Value> {
    let same = |a: &Value, b: &Value| match strategy {
        Strategy::Keyed(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        _ => a == b,
    };
    let position = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| position(order, item).is_some());
    named.sort_by_key(|item| position(order, item));
    others.sort_by_key(|item| position(before, item));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        if let Some(at) = position(before, &item) {
            while let Some(other) =
                others.next_if(|other| position(before, other).is_some_and(|other| other < at))
            {
                result.push(other);
            }
        }
        result.push(item);
    }
    result.extend(others);
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::Registry;

    fn patched(plural: &str, before: Value, patch: Value) -> Value {
        let kind = Registry::built_in().find("", "v1", plural).unwrap();
        let mut object = before;
        merge(&kind, &mut object, &patch).unwrap();
        object
    }

    #[test]
    fn addresses_merge_by_type_or_are_replaced() {
        let before = json!({"status": {"addresses": [
            {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}]}});
        let merged = patched(
            "nodes",
            before.clone(),
            json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}}),
        );
        assert_eq!(merged["status"]["addresses"][0]["address"], "10.0.0.2");
        assert_eq!(merged["status"]["addresses"].as_array().unwrap().len(), 2);
        let replaced = patched(
            "nodes",
            before.clone(),
            json!({"status": {"addresses": [
                {"type": "InternalIP", "address": "a"}, {"type": "InternalIP", "address": "b"},
                {"$patch": "replace"}]}}),
        );
        assert_eq!(replaced["status"]["addresses"].as_array().unwrap().len(), 2);
        let deleted = patched(
            "nodes",
            before,
            json!({"status": {"addresses": [{"type": "Hostname", "$patch": "delete"}]}}),
        );
        assert_eq!(
            deleted,
            json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}})
        );
    }

    #[test]
    fn taints_are_atomic_and_finalizers_a_set() {
        let before = json!({"metadata": {"finalizers": ["a/1", "a/2"]}, "spec": {"taints": [{"key": "x"}]}});
        let after = patched(
            "nodes",
            before,
            json!({"metadata": {"finalizers": ["a/3"], "$deleteFromPrimitiveList/finalizers": ["a/1"]},
                   "spec": {"taints": [{"key": "y"}]}}),
        );
        assert_eq!(
            after,
            json!({"metadata": {"finalizers": ["a/3", "a/2"]}, "spec": {"taints": [{"key": "y"}]}})
        );
    }

    #[test]
    fn order_and_retained_keys() {
        let before = json!({"spec": {"ports": [{"port": 1}, {"port": 2}, {"port": 3}], "a": 1, "b": 2}});
        let after = patched(
            "services",
            before,
            json!({"spec": {"$setElementOrder/ports": [{"port": 3}, {"port": 1}], "$retainKeys": ["ports", "b"]}}),
        );
        assert_eq!(after, json!({"spec": {"ports": [{"port": 2}, {"port": 3}, {"port": 1}], "b": 2}}));
        let map = patched("nodes", json!({"spec": {"a": 1}}), json!({"spec": {"$patch": "replace", "b": 1}}));
        assert_eq!(map, json!({"spec": {"b": 1}}));
    }
}
