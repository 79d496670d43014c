//! Patches, applied as the API server does.

use serde_json::{Value, json};

/// Applies a patch as the API server would. Returns the API server's refusal if that fails; `object` may then
/// be partly changed.
pub(super) fn apply(object: &mut Value, content_type: &str, patch: &Value) -> Option<Value> {
    if let Some(refusal) = is_about_another(object, patch) {
        return Some(refusal);
    }
    match content_type {
        "application/merge-patch+json" => json_patch::merge(object, patch),
        "application/json-patch+json" => {
            let applied = serde_json::from_value::<json_patch::Patch>(patch.clone())
                .map_err(|error| error.to_string())
                .and_then(|patch| json_patch::patch(object, &patch).map_err(|error| error.to_string()));
            if let Err(message) = applied {
                return Some(refusal("Invalid", 422, &message));
            }
        }
        "application/strategic-merge-patch+json" => merge_strategically(object, patch),
        _ => {}
    }
    None
}

/// The refusal of a merge patch whose UID or version is not that of the object.
fn is_about_another(object: &Value, patch: &Value) -> Option<Value> {
    let differs = ["uid", "resourceVersion"].into_iter().find(|field| {
        let wanted = &patch["metadata"][field];
        !wanted.is_null() && *wanted != object["metadata"][field]
    })?;
    Some(refusal("Conflict", 409, &format!("the {differs} is another one")))
}

/// The API server's response to a request that it refuses.
pub(super) fn refusal(reason: &str, code: u16, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "code": code, "message": message,
    })
}

/// Applies a strategic merge patch, as far as controllers use them. Lists with a merge key are merged, others
/// are replaced.
fn merge_strategically(object: &mut Value, patch: &Value) {
    let (Some(fields), Some(object)) = (patch.as_object(), object.as_object_mut()) else { return };
    for (name, new) in fields.iter().filter(|(name, _)| !name.starts_with('$')) {
        if new.is_null() {
            object.remove(name);
            continue;
        }
        let old = object.entry(name.clone()).or_insert(Value::Null);
        match (merge_key(name, new), old.as_array_mut()) {
            (Some(key), Some(old)) => merge_list(old, new, key),
            (Some(key), None) => {
                let mut merged = Vec::new();
                merge_list(&mut merged, new, key);
                *old = merged.into();
            }
            (None, _) if new.is_object() => {
                if !old.is_object() {
                    *old = json!({});
                }
                merge_strategically(old, new);
            }
            (None, _) => old.clone_from(new),
        }
    }
}

/// The merge key of a list, by the Go types of Nodes and Services and their metadata.
fn merge_key(list: &str, value: &Value) -> Option<&'static str> {
    let key = match list {
        "conditions" | "addresses" => "type",
        "ownerReferences" => "uid",
        _ => return None,
    };
    value.is_array().then_some(key)
}

fn merge_list(list: &mut Vec<Value>, patch: &Value, key: &str) {
    let elements = patch.as_array().map(Vec::as_slice).unwrap_or_default();
    // The directive concerns the whole list, wherever it is.
    if elements.iter().any(|new| new["$patch"] == "replace") {
        *list = elements.iter().filter(|new| new["$patch"].is_null()).cloned().collect();
        return;
    }
    for new in elements {
        match list.iter_mut().find(|old| old[key] == new[key]) {
            Some(_) if new["$patch"] == "delete" => list.retain(|old| old[key] != new[key]),
            Some(old) => merge_strategically(old, new),
            None if new["$patch"].is_null() => list.push(new.clone()),
            None => {}
        }
    }
}

/// Removes what differs in otherwise equal writes: times, versions and the names of events.
pub(super) fn without_times(mut body: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| {
                    !key.ends_with("Time") && !key.ends_with("Timestamp") && key != "resourceVersion"
                });
                map.values_mut().for_each(strip);
            }
            Value::Array(values) => {
                values.retain(|value| value["path"] != "/metadata/resourceVersion");
                values.iter_mut().for_each(strip);
            }
            _ => {}
        }
    }
    strip(&mut body);
    if body.get("involvedObject").is_some() {
        body["metadata"] = json!({});
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRATEGIC: &str = "application/strategic-merge-patch+json";

    #[test]
    fn patches_are_applied() {
        let mut object = json!({"metadata": {"uid": "1", "labels": {"a": "1"}}});
        let merge = json!({"metadata": {"labels": {"a": null, "b": "2"}}});
        assert!(apply(&mut object, "application/merge-patch+json", &merge).is_none());
        assert_eq!(object["metadata"]["labels"], json!({"b": "2"}));
        let good = json!([{"op": "test", "path": "/metadata/uid", "value": "1"}, {"op": "add", "path": "/spec", "value": {}}]);
        assert!(apply(&mut object, "application/json-patch+json", &good).is_none());
        assert_eq!(object["spec"], json!({}));
        let status = json!({"status": {
            "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "phase": "x",
        }});
        assert!(apply(&mut object, STRATEGIC, &status).is_none());
        let patch = json!({"status": {
            "$setElementOrder/conditions": [{"type": "B"}],
            "conditions": [{"type": "B", "status": "False"}],
            "addresses": [
                {"type": "InternalIP", "address": "fd00::1"},
                {"type": "InternalIP", "address": "fd00::2"},
                {"$patch": "replace"},
            ],
            "phase": null,
        }});
        assert!(apply(&mut object, STRATEGIC, &patch).is_none());
        let expected = json!({
            "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}],
            "addresses": [{"type": "InternalIP", "address": "fd00::1"}, {"type": "InternalIP", "address": "fd00::2"}],
        });
        assert_eq!(object["status"], expected);
        let stale = json!([{"op": "test", "path": "/metadata/uid", "value": "2"}]);
        let refusal = apply(&mut object, "application/json-patch+json", &stale).expect("refused");
        assert_eq!(refusal["code"], 422);
        let other = json!({"metadata": {"uid": "2", "labels": {"c": "3"}}});
        for content_type in ["application/merge-patch+json", STRATEGIC] {
            let refusal = apply(&mut object, content_type, &other).expect("refused");
            assert_eq!((&refusal["code"], &object["metadata"]["labels"]), (&json!(409), &json!({"b": "2"})));
        }
    }
}
