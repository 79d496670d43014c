//! What the API server stores of objects in another version than it is asked for. It removes what the stored version has no
//! field for, so the conversion has to keep all that is said.

use std::collections::BTreeMap;

use machine_controller::crds::Definitions;
use serde_json::{Map, Value, json};

use crate::registry;

/// An object with every field of the schema.
fn full(schema: &Value) -> Value {
    if let Some(values) = schema["enum"].as_array() {
        return values[0].clone();
    }
    match schema["type"].as_str().unwrap_or_default() {
        "object" => {
            let mut object = Map::new();
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                object.insert(name.clone(), full(field));
            }
            if schema["additionalProperties"].is_object() {
                object.insert("key".to_owned(), full(&schema["additionalProperties"]));
            }
            object.into()
        }
        "array" => json!([full(&schema["items"])]),
        "boolean" => json!(true),
        "integer" => json!(7),
        _ => json!("text"),
    }
}

/// What is left of `value` with this schema.
fn pruned(value: &Value, schema: &Value) -> Value {
    match value {
        Value::Object(fields) if schema["x-kubernetes-preserve-unknown-fields"] != json!(true) => {
            let kept = fields.iter().filter_map(|(name, value)| {
                let schema = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"))?;
                Some((name.clone(), pruned(value, schema)))
            });
            kept.collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(|item| pruned(item, &schema["items"])).collect(),
        other => other.clone(),
    }
}

#[test]
fn nothing_is_lost_where_it_is_stored() {
    let registry = registry().expect("our own providers");
    let mut seen = 0;
    for provider in registry.names() {
        let Some(types) = registry.machines(provider) else { continue };
        let Some(older) = types.older else { continue };
        for crd in Definitions::of(provider, &types).expect("our own types are right").crds() {
            let schemas: BTreeMap<&str, Value> = crd.spec.versions.iter().map(schema).collect();
            for (version, schema) in &schemas {
                for (other, schema_of_other) in schemas.iter().filter(|(other, _)| *other != version) {
                    let mut object = full(schema);
                    object["apiVersion"] = json!(format!("{}/{version}", crd.spec.group));
                    object["kind"] = json!(crd.spec.names.kind);
                    object["metadata"] = json!({"name": "a", "namespace": "b"});
                    let there = (older.convert)(object.clone(), other).expect("converted");
                    let mut kept = pruned(&there, schema_of_other);
                    // The API server knows its fields by itself.
                    kept["metadata"] = there["metadata"].clone();
                    let back = (older.convert)(kept.clone(), version).expect("converted");
                    assert_eq!(back, object, "{} {version} to {other}", crd.spec.names.kind);
                    seen += 1;
                }
            }
        }
    }
    if cfg!(feature = "vsphere") {
        assert_eq!(seen, 16, "eight kinds, both ways");
    }
}

type Version =
    k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion;

fn schema(version: &Version) -> (&str, Value) {
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
    (&version.name, serde_json::to_value(schema).expect("JSON"))
}
