//! What is left of an object when another version has no place for it.

use serde_json::{Map, Value};

/// References to objects: their parts belong together.
const ATOMIC: [&str; 1] = ["bootstrapRef"];

/// Puts back what was lost. `kept` is an object as it was, and `known` what was left of it in the other version. Where
/// `object` is still as `known` is, it becomes as `kept` is. Where somebody changed it meanwhile, it stays as it is.
/// Lists are compared as a whole.
pub(super) fn restore(
    object: &mut Map<String, Value>,
    known: &Map<String, Value>,
    kept: &Map<String, Value>,
) {
    for (name, kept) in kept {
        match (known.get(name), object.get_mut(name)) {
            (None, None) => {
                object.insert(name.clone(), kept.clone());
            }
            (Some(known), Some(value)) if known != kept => match (value, known, kept) {
                (Value::Object(value), Value::Object(known), Value::Object(kept))
                    if !ATOMIC.contains(&name.as_str()) =>
                {
                    restore(value, known, kept);
                }
                (value, known, kept) if *value == *known => *value = kept.clone(),
                _ => {}
            },
            _ => {}
        }
    }
    object.retain(|name, value| kept.contains_key(name) || known.get(name) != Some(value));
}
