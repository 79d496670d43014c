//! Tables for `kubectl get`.

use serde_json::{Value, json};

use crate::resources::ResourceKind;

/// `meta.k8s.io/v1` Table of these objects.
pub(crate) fn table(kind: &ResourceKind, objects: &[Value], metadata: &Value, include: &str) -> Value {
    let _ = kind;
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut row = json!({"cells": [object["metadata"]["name"], ""]});
            match include {
                "None" => {}
                "Object" => row["object"] = object.clone(),
                _ => {
                    row["object"] = json!({
                        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                        "metadata": object["metadata"],
                    });
                }
            }
            row
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
            {"name": "Age", "type": "string", "format": "", "description": "", "priority": 0},
        ],
        "rows": rows,
    })
}
