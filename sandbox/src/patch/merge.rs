//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

/// Merges `patch` into `target`: null removes a member, objects are merged, everything else is replaced.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(target) = target {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_removes_and_lists_are_replaced() {
        let mut target = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1});
        merge(&mut target, &json!({"a": {"b": null, "c": [3], "e": {"f": null}}, "d": {"x": 1}}));
        assert_eq!(target, json!({"a": {"c": [3], "e": {}}, "d": {"x": 1}}));
    }
}
