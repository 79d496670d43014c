//! The fields that belong to the controller and not to a provider: those of Cluster API's contract.

use serde_json::{Value, json};

use super::structural::Schema;

/// Quantities as Kubernetes writes them: `4`, `500m`, `8Gi`.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// `spec.providerID` of a machine.
pub(super) const PROVIDER_ID: &str = "providerID";

/// `spec.controlPlaneEndpoint` of a cluster.
pub(super) const ENDPOINT: &str = "controlPlaneEndpoint";

/// Fields of a spec, by name.
pub(super) fn of_machine_spec() -> Schema {
    fields(json!({PROVIDER_ID: {
        "description": "The provider ID of the machine's Node. The controller sets it once the machine exists.",
        "type": "string", "minLength": 1, "maxLength": 512,
    }}))
}

/// Fields of a spec, by name. Kinds that other programs serve too are as loose as theirs: the endpoint may lack a part.
pub(super) fn of_cluster_spec(is_shared: bool) -> Schema {
    let mut endpoint = json!({
        "description": "Where the API server of the cluster is reached. Set by the user, or by the controller if the provider makes \
                        the endpoint.",
        "type": "object", "minProperties": 1,
        "properties": {
            "host": {"description": "A DNS name or an address.", "type": "string", "minLength": 1, "maxLength": 512},
            "port": {"description": "A TCP port.", "type": "integer", "format": "int32", "minimum": 1, "maximum": 65535},
        },
    });
    if !is_shared {
        endpoint["required"] = json!(["host", "port"]);
    }
    fields(json!({ ENDPOINT: endpoint }))
}

/// The rule that the provider ID stays as it is once it is set.
pub(super) fn provider_id_is_set_once() -> Value {
    set_once(PROVIDER_ID, &format!("has(oldSelf.{PROVIDER_ID})"))
}

/// The rule that the endpoint stays as it is once it has a host and a port.
pub(super) fn endpoint_is_set_once() -> Value {
    let parts = ["", ".host", ".port"].map(|part| format!("has(oldSelf.{ENDPOINT}{part})"));
    set_once(ENDPOINT, &parts.join(" && "))
}

fn set_once(field: &str, is_set: &str) -> Value {
    json!({
        "rule": format!("!({is_set}) || (has(self.{field}) && self.{field} == oldSelf.{field})"),
        "message": format!("{field} cannot change once it is set"),
        "fieldPath": format!(".{field}"),
    })
}

/// Fields of a status, by name.
pub(super) fn of_machine_status() -> Schema {
    let mut status = of_any_status("the machine exists and nothing was left to do");
    status.extend(fields(json!({
        "addresses": {
            "description": "The addresses of the machine.",
            "type": "array", "x-kubernetes-list-type": "atomic",
            "items": {"type": "object", "required": ["type", "address"], "properties": {
                "type": {
                    "description": "What kind of address it is.", "type": "string",
                    "enum": ["Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"],
                },
                "address": {"description": "The address.", "type": "string", "minLength": 1, "maxLength": 256},
            }},
        },
        "failureDomain": {
            "description": "The failure domain that the machine is really in.",
            "type": "string", "minLength": 1, "maxLength": 256,
        },
    })));
    status
}

/// Fields of a status, by name.
pub(super) fn of_cluster_status() -> Schema {
    let mut status = of_any_status("the infrastructure that the machines share is there");
    status.extend(fields(json!({"failureDomains": {
        "description": "Where machines can be.",
        "type": "array", "minItems": 1, "maxItems": 100,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {
            "name": {
                "description": "Its name, as in spec.failureDomain of a Machine.",
                "type": "string", "minLength": 1, "maxLength": 256,
            },
            "controlPlane": {"description": "Whether machines of the control plane may be there.", "type": "boolean"},
            "attributes": {
                "description": "Anything else about it, for people and tools.",
                "type": "object", "additionalProperties": {"type": "string"},
            },
        }},
    }})));
    status
}

/// Fields of a status, by name.
pub(super) fn of_machine_template_status() -> Schema {
    fields(json!({
        "capacity": {
            "description": "What a machine of this template will have, for scaling from zero.",
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": QUANTITY, "x-kubernetes-int-or-string": true,
            },
        },
        "nodeInfo": {
            "description": "What the Node of a machine of this template will report, for scaling from zero.",
            "type": "object", "minProperties": 1,
            "properties": {
                "architecture": {
                    "description": "The architecture of its processors.",
                    "type": "string", "enum": ["amd64", "arm64", "s390x", "ppc64le"],
                },
                "operatingSystem": {"description": "Its operating system, such as linux.", "type": "string"},
            },
        },
    }))
}

/// Labels and annotations for what is made from a template.
pub(super) fn template_metadata() -> Value {
    let texts = |of: &str| {
        json!({
            "description": format!("{of} of what is made from this template."),
            "type": "object", "additionalProperties": {"type": "string"},
        })
    };
    json!({
        "description": "Metadata of what is made from this template.",
        "type": "object",
        "properties": {"labels": texts("Labels"), "annotations": texts("Annotations")},
    })
}

fn of_any_status(provisioned: &str) -> Schema {
    fields(json!({
        "initialization": {
            "description": "How far the first creation is.",
            "type": "object", "minProperties": 1,
            "properties": {"provisioned": {
                "description": format!("True once {provisioned}. It never goes back."),
                "type": "boolean",
            }},
        },
        "ready": {
            "description": "The same as initialization.provisioned, for readers of the contract v1beta1.",
            "type": "boolean",
        },
        "conditions": conditions("What is known about it. Ready is the summary."),
    }))
}

/// `status.conditions`.
pub(crate) fn conditions(about: &str) -> Value {
    json!({
        "description": about,
        "type": "array", "maxItems": 32,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "items": condition(),
    })
}

/// `metav1.Condition`.
fn condition() -> Value {
    json!({
        "type": "object",
        "required": ["type", "status", "reason", "message", "lastTransitionTime"],
        "properties": {
            "type": {
                "description": "Its type.", "type": "string", "maxLength": 316,
                "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            },
            "status": {
                "description": "Whether it holds.", "type": "string", "enum": ["True", "False", "Unknown"],
            },
            "reason": {
                "description": "Why, for programs.", "type": "string", "minLength": 1, "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "message": {"description": "Why, for people.", "type": "string", "maxLength": 32768},
            "lastTransitionTime": {
                "description": "When the status changed last.", "type": "string", "format": "date-time",
            },
            "observedGeneration": {
                "description": "The metadata.generation that it is about.",
                "type": "integer", "format": "int64", "minimum": 0,
            },
        },
    })
}

fn fields(value: Value) -> Schema {
    match value {
        Value::Object(fields) => fields,
        _ => Schema::new(),
    }
}
