//! Makes the schema of a provider's type a *structural* one, which is what a CRD may have: every field has one type,
//! choices only add checks to fields that stand beside them, and nothing refers to anything.

mod choices;

use serde_json::{Value, json};

pub(super) use self::choices::Schema;

/// Lets everything through. The API server keeps fields of such a value as they are.
const ANYTHING: &str = "x-kubernetes-preserve-unknown-fields";

/// Formats of integers that the API server does not know, with one that it knows. The limits stay.
const INTEGER_FORMATS: [(&str, &str); 8] = [
    ("int8", "int32"),
    ("uint8", "int32"),
    ("int16", "int32"),
    ("uint16", "int32"),
    ("uint32", "int64"),
    ("uint64", "int64"),
    ("uint", "int64"),
    ("int", "int64"),
];

/// Makes `schema` structural. `path` names it in the problems that are added: what a CRD cannot say.
pub(super) fn structural(path: &str, schema: &Value, problems: &mut Vec<String>) -> Schema {
    let mut schema = match schema {
        Value::Object(schema) => schema.clone(),
        Value::Bool(true) => Schema::new(),
        other => {
            problems.push(format!("{path}: {other} is not the schema of anything"));
            Schema::new()
        }
    };
    let mut made = Schema::new();
    if choices::is_null(&schema) {
        // The unit type says nothing.
        made.insert("type".to_owned(), json!("object"));
        return made;
    }
    choices::flatten(path, &mut schema, problems);
    for (keyword, value) in &schema {
        translate(path, keyword, value, &mut made, problems);
    }
    set_limits(&schema, &mut made);
    set_type(path, &schema, &mut made, problems);
    made
}

fn translate(path: &str, keyword: &str, value: &Value, made: &mut Schema, problems: &mut Vec<String>) {
    match keyword {
        // Without `nullable` a field has one way to be absent, and `has()` in rules means what it says. The rest is for
        // people, or is done elsewhere.
        "$schema" | "components" | "title" | "example" | "examples" | "deprecated" | "readOnly"
        | "writeOnly" | "nullable" | "type" | "minimum" | "maximum" | "exclusiveMinimum"
        | "exclusiveMaximum" => {}
        "$ref" => problems.push(format!("{path}: a type that contains itself cannot be in a CRD")),
        "properties" => {
            let fields = value.as_object().into_iter().flatten();
            let fields = fields.map(|(name, field)| {
                (name.clone(), Value::Object(structural(&format!("{path}.{name}"), field, problems)))
            });
            let fields: Schema = fields.collect();
            made.insert(keyword.to_owned(), Value::Object(fields));
        }
        "items" if value.is_array() => {
            problems.push(format!("{path}: a tuple cannot be in a CRD, whose lists have items of one type"));
        }
        "items" => {
            let items = structural(&format!("{path}[]"), value, problems);
            made.insert(keyword.to_owned(), Value::Object(items));
        }
        // Unknown fields are removed anyway, and reported to clients that ask for it.
        "additionalProperties" if *value == json!(false) => {}
        "additionalProperties" if *value == json!(true) || *value == json!({}) => {
            made.insert(ANYTHING.to_owned(), json!(true));
        }
        "additionalProperties" => {
            let values = structural(&format!("{path}{{}}"), value, problems);
            made.insert(keyword.to_owned(), Value::Object(values));
        }
        "uniqueItems" => {
            if *value == json!(true) {
                made.insert("x-kubernetes-list-type".to_owned(), json!("set"));
            }
        }
        // What a missing field means anyway would only make objects longer.
        "default" if is_empty(value) => {}
        "format" => {
            let known = INTEGER_FORMATS.iter().find(|(format, _)| value == format);
            made.insert(keyword.to_owned(), known.map_or_else(|| value.clone(), |(_, known)| json!(known)));
        }
        "enum" => {
            let values = value.as_array().into_iter().flatten().filter(|value| !value.is_null());
            made.insert(keyword.to_owned(), values.cloned().collect());
        }
        "description" | "pattern" | "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
        | "maxProperties" | "multipleOf" | "required" | "default" | "oneOf" | "anyOf" => {
            made.insert(keyword.to_owned(), value.clone());
        }
        extension if extension.starts_with("x-kubernetes-") => {
            made.insert(keyword.to_owned(), value.clone());
        }
        other => problems.push(format!("{path}: \"{other}\" cannot be in a CRD")),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Sets the limits of a number. In a CRD, `exclusiveMinimum` says whether `minimum` itself is excluded.
fn set_limits(schema: &Schema, made: &mut Schema) {
    for (limit, exclusive, is_lower) in
        [("minimum", "exclusiveMinimum", true), ("maximum", "exclusiveMaximum", false)]
    {
        let (inner, outer) = (schema.get(limit), schema.get(exclusive).filter(|value| value.is_number()));
        let excludes = match (inner.and_then(Value::as_f64), outer.and_then(Value::as_f64)) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(inner), Some(outer)) => {
                if is_lower {
                    outer >= inner
                } else {
                    outer <= inner
                }
            }
        };
        if let Some(value) = if excludes { outer } else { inner } {
            made.insert(limit.to_owned(), value.clone());
        }
        if excludes {
            made.insert(exclusive.to_owned(), json!(true));
        }
    }
    if schema.get("format").is_some_and(|format| format == "uint32") && !made.contains_key("maximum") {
        made.insert("maximum".to_owned(), json!(u32::MAX));
    }
}

fn set_type(path: &str, schema: &Schema, made: &mut Schema, problems: &mut Vec<String>) {
    match schema.get("type") {
        Some(Value::String(one)) => {
            made.insert("type".to_owned(), json!(one));
        }
        Some(Value::Array(types)) => {
            match types.iter().filter(|one| *one != "null").collect::<Vec<_>>()[..] {
                [one] => {
                    made.insert("type".to_owned(), one.clone());
                }
                _ => problems.push(format!("{path}: more than one type cannot be in a CRD")),
            }
        }
        _ if made.contains_key("properties") || made.contains_key("additionalProperties") => {
            made.insert("type".to_owned(), json!("object"));
        }
        _ if made.contains_key("x-kubernetes-int-or-string") => {}
        _ => {
            made.insert(ANYTHING.to_owned(), json!(true));
        }
    }
    if made.contains_key("properties") && made.contains_key("additionalProperties") {
        made.remove("additionalProperties");
        problems.push(format!("{path}: a map beside named fields cannot be in a CRD"));
    }
    let items_are_plain = |items: &Value| !matches!(items["type"].as_str(), Some("object" | "array") | None);
    if made.get("x-kubernetes-list-type").is_some_and(|list| list == "set")
        && !made.get("items").is_some_and(items_are_plain)
    {
        problems.push(format!("{path}: a set in a CRD has texts, numbers or booleans only"));
    }
}

#[cfg(test)]
mod tests;
