//! The statuses in v1beta1. The conditions of v1beta2 are below `v1beta2`.

use cloudprovider::machines::schema_of;
use serde_json::{Value, json};

use super::edits::{insert, remove};
use crate::machines::status::{ReadyStatus, V1Beta1Status, VSphereMachineStatus, VSphereVMStatus};

pub(super) fn of_machines() -> Value {
    let mut status = with_failures(of_others());
    insert(
        &mut status,
        "addresses",
        json!({
            "description": "The addresses of the machine.",
            "type": "array",
            "items": {"type": "object", "required": ["type", "address"], "properties": {
                "type": {
                    "description": "What kind of address it is.", "type": "string",
                    "enum": ["Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"],
                },
                "address": {"description": "The address.", "type": "string", "minLength": 1, "maxLength": 256},
            }},
        }),
    );
    insert(
        &mut status,
        "failureDomain",
        json!({"description": "The failure domain that the machine is really in.", "type": "string"}),
    );
    // What the steps remember is stored too.
    let mut remembered = schema_of::<VSphereMachineStatus>();
    remove(&mut remembered, "deprecated");
    if let (Some(fields), Some(Value::Object(remembered))) =
        (status["properties"].as_object_mut(), remembered.get_mut("properties").map(Value::take))
    {
        fields.extend(remembered);
    }
    status
}

pub(super) fn of_vms() -> Value {
    let mut others = with_failures(of_others());
    let mut status = schema_of::<VSphereVMStatus>();
    remove(&mut status, "deprecated");
    for field in ["conditions", "v1beta2", "failureReason", "failureMessage"] {
        if let Some(is) = remove(&mut others, field) {
            insert(&mut status, field, is);
        }
    }
    status
}

pub(super) fn of_clusters() -> Value {
    let mut status = of_others();
    insert(
        &mut status,
        "vCenterVersion",
        json!({"description": "The version of the vCenter.", "type": "string"}),
    );
    insert(
        &mut status,
        "failureDomains",
        json!({
            "description": "Where machines can be, by name.",
            "type": "object",
            "additionalProperties": {"type": "object", "properties": {
                "controlPlane": {
                    "description": "Whether machines of the control plane may be there.", "type": "boolean",
                },
                "attributes": {
                    "description": "Anything else about it, for people and tools.",
                    "type": "object", "additionalProperties": {"type": "string"},
                },
            }},
        }),
    );
    status
}

/// What a machine of a template will have. The controller writes it for scaling from zero.
pub(super) fn of_machine_templates() -> Value {
    json!({
        "description": "What a machine of this template will be.",
        "type": "object",
        "properties": {
            "capacity": {
                "description": "What a machine of this template will have, for scaling from zero.",
                "type": "object",
                "additionalProperties": {
                    "anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true,
                },
            },
            "nodeInfo": {
                "description": "What the Node of a machine of this template will report, for scaling from zero.",
                "type": "object",
                "properties": {
                    "architecture": {"description": "The architecture of its processors.", "type": "string"},
                    "operatingSystem": {"description": "Its operating system, such as linux.", "type": "string"},
                },
            },
        },
    })
}

/// Conditions in both forms, and whether it is ready.
pub(super) fn of_others() -> Value {
    let mut status = schema_of::<ReadyStatus>();
    remove(&mut status, "deprecated");
    if let Some(new) = remove(&mut status, "conditions") {
        insert(
            &mut status,
            "v1beta2",
            json!({
                "description": "The conditions in their newer form.",
                "type": "object",
                "properties": {"conditions": new},
            }),
        );
    }
    let mut old = schema_of::<V1Beta1Status>();
    if let Some(old) = remove(&mut old, "conditions") {
        insert(&mut status, "conditions", old);
    }
    status
}

fn with_failures(mut status: Value) -> Value {
    for (field, about) in [
        ("failureReason", "Why another program has given it up, for programs. Not set here, and removed."),
        ("failureMessage", "Why another program has given it up, for people. Not set here, and removed."),
    ] {
        insert(&mut status, field, json!({"description": about, "type": "string"}));
    }
    status
}
