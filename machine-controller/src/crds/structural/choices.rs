//! Choices between variants: what serde makes of an enum.

use serde_json::{Map, Value, json};

/// A schema, by its keywords.
pub(in crate::crds) type Schema = Map<String, Value>;

/// The keywords of choices.
const CHOICES: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// What a variant with fields may say. Anything else cannot be taken apart.
const OF_AN_OBJECT: [&str; 6] =
    ["type", "properties", "required", "additionalProperties", "description", "title"];

/// Replaces the choices of `schema` by fields beside them. What is left of a choice only says which of the fields must be
/// there, and which of their values go together.
pub(super) fn flatten(path: &str, schema: &mut Schema, problems: &mut Vec<String>) {
    let mut left = Vec::new();
    while let Some((keyword, variants)) = CHOICES.iter().find_map(|one| Some((*one, schema.remove(*one)?))) {
        let variants = variants.as_array().into_iter().flatten().filter_map(Value::as_object);
        // An optional value is a choice between the value and nothing.
        let variants: Vec<&Schema> = variants.filter(|variant| !is_null(variant)).collect();
        if variants.is_empty() {
            // Only `null` is left, which is no choice.
        } else if let [only] = variants[..] {
            for (keyword, value) in only {
                schema.entry(keyword).or_insert_with(|| value.clone());
            }
        } else if is_extension(schema) {
            // Checks that the type adds itself, beside `x-kubernetes-int-or-string`.
            left.push((keyword, variants.into_iter().cloned().map(Value::Object).collect()));
        } else if keyword != "allOf" && variants.iter().all(|variant| words(variant).is_some()) {
            merge_words(schema, &variants);
        } else if keyword != "allOf" && is_int_or_string(&variants) {
            schema.insert("x-kubernetes-int-or-string".to_owned(), json!(true));
        } else if keyword != "allOf" && variants.iter().all(|variant| is_object(variant)) {
            let rest = merge_fields(path, schema, &variants, problems);
            if rest.iter().any(|variant| variant != &json!({})) {
                left.push((keyword, rest.into()));
            }
        } else {
            problems.push(format!("{path}: a choice between different types cannot be in a CRD"));
        }
    }
    for (keyword, variants) in left {
        if schema.insert(keyword.to_owned(), variants).is_some() {
            problems.push(format!("{path}: two choices beside each other cannot be in a CRD"));
        }
    }
}

/// Whether it is the schema of nothing but `null`.
pub(super) fn is_null(variant: &Schema) -> bool {
    variant.get("type").is_some_and(|one| one == "null")
        || variant.get("enum").is_some_and(|values| *values == json!([null]))
}

fn is_extension(schema: &Schema) -> bool {
    schema.get("x-kubernetes-int-or-string").is_some_and(|value| *value == json!(true))
}

fn is_object(variant: &Schema) -> bool {
    variant.get("type").is_none_or(|one| one == "object")
        && variant.keys().all(|keyword| OF_AN_OBJECT.contains(&keyword.as_str()))
}

fn is_int_or_string(variants: &[&Schema]) -> bool {
    let is = |variant: &&Schema, kind: &str| variant.get("type").is_some_and(|one| one == kind);
    variants.len() == 2 && ["integer", "string"].iter().all(|kind| variants.iter().any(|one| is(one, kind)))
}

/// The words that a variant allows, if it allows nothing else.
fn words(variant: &Schema) -> Option<&Vec<Value>> {
    let words = variant.get("enum")?.as_array()?;
    words.iter().all(Value::is_string).then_some(words)
}

/// Variants without fields: one enum of all words. What is said about each goes to the description.
fn merge_words(schema: &mut Schema, variants: &[&Schema]) {
    let all: Vec<Value> = variants.iter().filter_map(|variant| words(variant)).flatten().cloned().collect();
    let mut lines: Vec<String> =
        schema.get("description").and_then(Value::as_str).map(Into::into).into_iter().collect();
    for variant in variants {
        let about = variant.get("description").and_then(Value::as_str);
        if let (Some(about), Some([Value::String(word)])) = (about, words(variant).map(Vec::as_slice)) {
            lines.push(format!("- {word}: {about}"));
        }
    }
    if !lines.is_empty() {
        schema.insert("description".to_owned(), lines.join("\n").into());
    }
    schema.insert("type".to_owned(), json!("string"));
    schema.insert("enum".to_owned(), all.into());
}

/// Variants with fields: all fields side by side. Returns what is left of each variant.
fn merge_fields(
    path: &str,
    schema: &mut Schema,
    variants: &[&Schema],
    problems: &mut Vec<String>,
) -> Vec<Value> {
    let mut fields = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    for variant in variants {
        let of_variant = properties(variant);
        let is_only = of_variant.len() == 1;
        for (name, field) in of_variant {
            let mut field = field.clone();
            if let (true, Some(about), Some(field)) =
                (is_only, variant.get("description"), field.as_object_mut())
            {
                field.entry("description").or_insert_with(|| about.clone());
            }
            match fields.get_mut(name) {
                None => {
                    fields.insert(name.clone(), field);
                }
                Some(known) if *known == field => {}
                Some(known) => match (known.as_object().and_then(words), field.as_object().and_then(words)) {
                    (Some(some), Some(more)) => {
                        let more = more.iter().filter(|word| !some.contains(word));
                        let all: Vec<Value> = some.iter().chain(more).cloned().collect();
                        known["enum"] = all.into();
                    }
                    _ => problems.push(format!(
                        "{path}.{name}: a field of two variants with different types cannot be in a CRD"
                    )),
                },
            }
        }
    }
    let is_in_all = |name: &&Value| variants.iter().all(|variant| required(variant).contains(name));
    let common: Vec<Value> = required(variants[0]).iter().filter(is_in_all).cloned().collect();
    let left = variants.iter().map(|variant| {
        let mut left = Schema::new();
        let narrower = properties(variant).into_iter().filter_map(|(name, field)| {
            let (here, all) = (words(field.as_object()?)?, words(fields[name].as_object()?)?);
            (here.len() < all.len()).then(|| (name.clone(), json!({"enum": here})))
        });
        let narrower: Schema = narrower.collect();
        if !narrower.is_empty() {
            left.insert("properties".to_owned(), narrower.into());
        }
        let required: Vec<_> =
            required(variant).iter().filter(|name| !common.contains(name)).cloned().collect();
        if !required.is_empty() {
            left.insert("required".to_owned(), required.into());
        }
        Value::Object(left)
    });
    let left = left.collect();
    if !common.is_empty() {
        let more = common.into_iter().filter(|name| !required(schema).contains(name));
        let all = required(schema).iter().cloned().chain(more).collect();
        schema.insert("required".to_owned(), all);
    }
    schema.insert("properties".to_owned(), fields.into());
    schema.insert("type".to_owned(), json!("object"));
    left
}

fn required(schema: &Schema) -> &[Value] {
    schema.get("required").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn properties(variant: &Schema) -> Vec<(&String, &Value)> {
    variant.get("properties").and_then(Value::as_object).into_iter().flatten().collect()
}
