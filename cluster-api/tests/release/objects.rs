//! Objects that the schemas of a release let through.

use cluster_api::{
    Cluster, ClusterResourceSet, ClusterResourceSetBinding, KubeadmConfig, KubeadmConfigTemplate, Machine,
    MachineDeployment, MachineDrainRule, MachineHealthCheck, MachineSet,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

/// Fields that our types leave out.
const LEFT_OUT: [&str; 2] = ["topology", "deprecated"];

/// Reads an object of a kind and writes it again.
pub(crate) fn round_trip(kind: &str, object: &Value) -> Value {
    match kind {
        "Cluster" => through::<Cluster>(object),
        "Machine" => through::<Machine>(object),
        "MachineSet" => through::<MachineSet>(object),
        "MachineDeployment" => through::<MachineDeployment>(object),
        "MachineHealthCheck" => through::<MachineHealthCheck>(object),
        "MachineDrainRule" => through::<MachineDrainRule>(object),
        "ClusterResourceSet" => through::<ClusterResourceSet>(object),
        "ClusterResourceSetBinding" => through::<ClusterResourceSetBinding>(object),
        "KubeadmConfig" => through::<KubeadmConfig>(object),
        "KubeadmConfigTemplate" => through::<KubeadmConfigTemplate>(object),
        other => panic!("no type for {other}"),
    }
}

fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let read: T =
        serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object:#}"));
    json!(read)
}

/// An object with every field.
pub(crate) fn whole(definition: &Value) -> Value {
    object(definition, &|_| true)
}

/// An object with the fields that must be there, and no other.
pub(crate) fn smallest(definition: &Value) -> Value {
    object(definition, &|is_required| is_required)
}

fn object(definition: &Value, is_there: &dyn Fn(bool) -> bool) -> Value {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let version = versions.into_iter().find(|version| version["name"] == "v1beta2").expect("v1beta2");
    let schema = &version["schema"]["openAPIV3Schema"];
    let spec = value("spec", &schema["properties"]["spec"], is_there);
    let mut object = json!({
        "apiVersion": format!("{}/v1beta2", definition["spec"]["group"].as_str().expect("a group")),
        "kind": definition["spec"]["names"]["kind"],
        "metadata": {"name": "one", "namespace": "default"},
        "spec": spec.unwrap_or_else(|| json!({})),
    });
    if let Some(status) = schema["properties"].get("status").filter(|_| is_there(false)) {
        object["status"] = value("status", status, is_there).expect("a status");
    }
    object
}

/// A value that `schema` lets through. None where the schema has no type.
fn value(name: &str, schema: &Value, is_there: &dyn Fn(bool) -> bool) -> Option<Value> {
    if schema["x-kubernetes-int-or-string"] == true {
        return Some(json!("25%"));
    }
    if let Some(first) = schema["enum"].get(0) {
        return Some(first.clone());
    }
    Some(match schema["type"].as_str()? {
        "string" => text(name, schema).into(),
        "integer" => schema.get("minimum").filter(|least| **least != 0).cloned().unwrap_or_else(|| json!(7)),
        "boolean" => json!(false),
        "array" => json!([value(name, &schema["items"], is_there)?]),
        "object" if schema.get("additionalProperties").is_some() => {
            json!({"key": value(name, &schema["additionalProperties"], is_there)?})
        }
        "object" => fields(schema, is_there),
        other => panic!("{name} is a {other}"),
    })
}

fn fields(schema: &Value, is_there: &dyn Fn(bool) -> bool) -> Value {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut fields = Map::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let is_required = required.contains(&name.as_str());
        if LEFT_OUT.contains(&name.as_str()) || !is_there(is_required) {
            continue;
        }
        if let Some(value) = value(name, field, is_there) {
            fields.insert(name.clone(), value);
        }
    }
    Value::Object(fields)
}

/// A text. Formats and patterns that the types look at are met; the others are the API server's.
fn text(name: &str, schema: &Value) -> String {
    match (schema["format"].as_str(), name) {
        (Some("date-time"), _) => "2026-01-02T03:04:05Z".to_owned(),
        (Some("byte"), _) => "YWJj".to_owned(),
        (Some(other), _) => panic!("the format {other}"),
        (None, name) => format!("a {name}"),
    }
}
