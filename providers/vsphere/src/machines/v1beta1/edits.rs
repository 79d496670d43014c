//! Changes of schemas, by the names of fields.

use serde_json::{Value, json};

/// The schema of a field below `schema`. `[]` stands for the items of a list.
pub(super) fn at<'a>(schema: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    path.iter().try_fold(schema, |schema, &name| match name {
        "[]" => schema.get_mut("items"),
        name => schema.get_mut("properties")?.get_mut(name),
    })
}

/// Adds a field, or changes what it is.
pub(super) fn insert(schema: &mut Value, field: &str, is: Value) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert(field.to_owned(), is);
    }
}

/// Removes a field, and returns what it was.
pub(super) fn remove(schema: &mut Value, field: &str) -> Option<Value> {
    schema.get_mut("properties")?.as_object_mut()?.remove(field)
}

/// Gives a field another name.
pub(super) fn rename(schema: &mut Value, field: &str, to: &str) {
    if let Some(is) = remove(schema, field) {
        insert(schema, to, is);
    }
}

/// A field must be there.
pub(super) fn require(schema: &mut Value, field: &str) {
    match schema.get_mut("required").and_then(Value::as_array_mut) {
        Some(required) => required.push(field.into()),
        None => schema["required"] = json!([field]),
    }
}

/// A field may be missing.
pub(super) fn allow_missing(schema: &mut Value, field: &str) {
    let Some(keywords) = schema.as_object_mut() else { return };
    if let Some(required) = keywords.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|one| one != field);
        if required.is_empty() {
            keywords.remove("required");
        }
    }
}

/// Sets what a field is if it is missing.
pub(super) fn set_default(schema: &mut Value, field: &str, value: Value) {
    if let Some(field) = at(schema, &[field]).and_then(Value::as_object_mut) {
        field.insert("default".to_owned(), value);
    }
}

/// Takes limits of texts, lists and numbers away, at any depth.
pub(super) fn loosen(schema: &mut Value) {
    const LIMITS: [&str; 4] = ["minLength", "maxLength", "maxItems", "minimum"];
    let Some(keywords) = schema.as_object_mut() else { return };
    keywords.retain(|keyword, _| !LIMITS.contains(&keyword.as_str()));
    for (keyword, below) in keywords {
        match keyword.as_str() {
            "properties" => {
                below.as_object_mut().into_iter().flat_map(|fields| fields.values_mut()).for_each(loosen);
            }
            "items" | "additionalProperties" => loosen(below),
            _ => {}
        }
    }
}

/// Adds the fields of `more`.
pub(super) fn extend(fields: &mut Value, more: Value) {
    if let (Some(fields), Value::Object(more)) = (fields.as_object_mut(), more) {
        fields.extend(more);
    }
}
