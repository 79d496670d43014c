//! Merge patches (RFC 7386) of what is different.

use serde_json::{Map, Value};

/// The merge patch that makes `after` of `before`. `None`: they are equal. Fields that neither has stay as they are.
pub(crate) fn difference(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let mut changes = Map::new();
            for (name, value) in after {
                match before.get(name) {
                    Some(old) => {
                        if let Some(change) = difference(old, value) {
                            changes.insert(name.clone(), change);
                        }
                    }
                    None => {
                        changes.insert(name.clone(), value.clone());
                    }
                }
            }
            for name in before.keys().filter(|name| !after.contains_key(*name)) {
                changes.insert(name.clone(), Value::Null);
            }
            (!changes.is_empty()).then(|| changes.into())
        }
        _ => (before != after).then(|| after.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_has_what_changed_alone() {
        let before = json!({"a": 1, "b": {"c": [1], "d": 2}, "e": 3});
        assert_eq!(difference(&before, &before), None);
        let after = json!({"a": 1, "b": {"c": [1, 2], "d": 2}, "f": {"g": 4}});
        let expected = json!({"b": {"c": [1, 2]}, "e": null, "f": {"g": 4}});
        assert_eq!(difference(&before, &after), Some(expected));
    }
}
