//! Makes the schema of a type a *structural* one, which is what a definition may have: each field has one type, and nothing is
//! null.

use serde_json::{Map, Value, json};

/// Keywords whose values are schemas by name.
const BY_NAME: &str = "properties";

/// Makes `schema`, as schemars writes it for the types of this crate, structural.
pub(super) fn structural(schema: Value) -> Value {
    let Value::Object(mut schema) = schema else {
        return schema;
    };
    choices(&mut schema);
    schema.remove("title");
    schema.remove("$schema");
    if schema.get("default").is_some_and(says_nothing) {
        schema.remove("default");
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = one_line(text);
    }
    if let Some(Value::Array(types)) = schema.get("type")
        && let Some(one) = types.iter().find(|one| *one != "null").cloned()
    {
        schema.insert("type".to_owned(), one);
    }
    for (keyword, value) in &mut schema {
        match (keyword.as_str(), value) {
            (BY_NAME, Value::Object(fields)) => {
                for field in fields.values_mut() {
                    *field = structural(field.take());
                }
            }
            ("items" | "additionalProperties", value) => *value = structural(value.take()),
            _ => {}
        }
    }
    Value::Object(schema)
}

/// Resolves choices: a value or nothing is the value, and a choice of words is one list of words.
fn choices(schema: &mut Map<String, Value>) {
    let is_either = schema.get("x-kubernetes-int-or-string").is_some();
    for keyword in ["anyOf", "oneOf"] {
        if is_either {
            // a number or a text, which has this keyword beside its choice
            continue;
        }
        let Some(Value::Array(variants)) = schema.remove(keyword) else {
            continue;
        };
        let variants: Vec<Value> = variants.into_iter().filter(|one| one["type"] != "null").collect();
        let (words, others): (Vec<_>, Vec<_>) = variants.into_iter().partition(|one| word(one).is_some());
        if !words.is_empty() {
            merge_words(schema, &words);
        }
        for other in others.into_iter().filter_map(|one| match one {
            Value::Object(fields) => Some(fields),
            _ => None,
        }) {
            for (keyword, value) in other {
                schema.entry(keyword).or_insert(value);
            }
            // what was a choice may contain one
            choices(schema);
        }
    }
}

/// The word that a variant without fields is.
fn word(variant: &Value) -> Option<&str> {
    variant.get("const").and_then(Value::as_str)
}

/// One list of words. What is said about each goes to the description.
fn merge_words(schema: &mut Map<String, Value>, variants: &[Value]) {
    let words: Vec<&str> = variants.iter().filter_map(word).collect();
    let mut about: Vec<String> = Vec::new();
    about.extend(schema.get("description").and_then(Value::as_str).map(one_line));
    for variant in variants {
        if let (Some(word), Some(text)) = (word(variant), variant["description"].as_str()) {
            about.push(format!("{word}: {}", one_line(text)));
        }
    }
    schema.insert("enum".to_owned(), json!(words));
    schema.insert("type".to_owned(), json!("string"));
    schema.insert("description".to_owned(), about.join(" ").into());
}

/// A default that an absent field means anyway.
fn says_nothing(default: &Value) -> bool {
    matches!(default, Value::Null | Value::Object(_) | Value::Array(_))
}

/// Comments have line breaks where the source has them.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_or_nothing_is_the_value() {
        let schema =
            json!({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}], "default": null});
        assert_eq!(structural(schema), json!({"type": "string", "maxLength": 3}));
        let schema = json!({"type": ["integer", "null"], "minimum": 0});
        assert_eq!(structural(schema), json!({"type": "integer", "minimum": 0}));
    }

    #[test]
    fn words_are_one_list_with_what_each_means() {
        let schema = json!({
            "description": "The order.",
            "oneOf": [
                {"const": "Newest", "description": "The last\none."},
                {"const": "Oldest"}
            ]
        });
        let expected = json!({
            "description": "The order. Newest: The last one.",
            "type": "string",
            "enum": ["Newest", "Oldest"]
        });
        assert_eq!(structural(schema), expected);
    }

    #[test]
    fn numbers_or_texts_keep_their_choice() {
        let schema = json!({
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}]
        });
        assert_eq!(structural(schema.clone()), schema);
    }

    #[test]
    fn defaults_that_mean_something_stay() {
        let schema = json!({
            "type": "object",
            "default": {},
            "properties": {"optional": {"type": "boolean", "default": false}}
        });
        let expected = json!({
            "type": "object",
            "properties": {"optional": {"type": "boolean", "default": false}}
        });
        assert_eq!(structural(schema), expected);
    }
}
