//! Schemas of Kubernetes' own types, which have none themselves.

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::{patterns, rules};

/// Any object. The API server keeps it as it is.
pub(crate) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A time as RFC 3339 says it.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time", "x-kubernetes-validations": rules::TIME})
}

/// A number or a percentage.
pub(crate) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})
}

/// A choice of objects by their labels. What controllers could not read is refused, and limits let rules go through it.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchExpressions": {
                "type": "array",
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "maxLength": 317, "pattern": patterns::QUALIFIED_NAME},
                        "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": {
                            "type": "array",
                            "maxItems": 64,
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string", "maxLength": 63, "pattern": patterns::LABEL_VALUE}
                        }
                    },
                    "x-kubernetes-validations": rules::EXPRESSION
                }
            },
            "matchLabels": {
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {
                    "type": "string",
                    "maxLength": 63,
                    "pattern": patterns::LABEL_VALUE
                }
            }
        },
        "x-kubernetes-map-type": "atomic"
    })
}

/// What a kubelet says about its host.
pub(crate) fn node_system_info(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": [
            "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion",
            "kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID"
        ],
        "properties": {
            "architecture": {"type": "string"},
            "bootID": {"type": "string"},
            "containerRuntimeVersion": {"type": "string"},
            "kernelVersion": {"type": "string"},
            "kubeProxyVersion": {"type": "string"},
            "kubeletVersion": {"type": "string"},
            "machineID": {"type": "string"},
            "operatingSystem": {"type": "string"},
            "osImage": {"type": "string"},
            "swap": {
                "type": "object",
                "properties": {"capacity": {"type": "integer", "format": "int64"}}
            },
            "systemUUID": {"type": "string"}
        }
    })
}

/// The taints of a Node.
pub(crate) fn taints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 0,
        "maxItems": 100,
        "items": {
            "type": "object",
            "required": ["effect", "key"],
            "properties": {
                "effect": {"type": "string"},
                "key": {"type": "string"},
                "timeAdded": {
                    "type": "string",
                    "format": "date-time",
                    "x-kubernetes-validations": rules::TIME
                },
                "value": {"type": "string"}
            }
        }
    })
}

/// Bytes in base64, up to 50 KiB of text.
pub(crate) fn bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "byte", "minLength": 1, "maxLength": 51200})
}

/// The environment of a static pod of the control plane.
pub(crate) fn environment(_: &mut SchemaGenerator) -> Schema {
    let key_of_object = json_schema!({
        "type": "object",
        "required": ["key"],
        "properties": {
            "key": {"type": "string"},
            "name": {"type": "string", "default": ""},
            "optional": {"type": "boolean"}
        },
        "x-kubernetes-map-type": "atomic"
    });
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 100,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "value": {"type": "string"},
                "valueFrom": {
                    "type": "object",
                    "properties": {
                        "configMapKeyRef": key_of_object,
                        "secretKeyRef": key_of_object,
                        "fieldRef": {
                            "type": "object",
                            "required": ["fieldPath"],
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "fieldPath": {"type": "string"}
                            },
                            "x-kubernetes-map-type": "atomic"
                        },
                        "fileKeyRef": {
                            "type": "object",
                            "required": ["key", "path", "volumeName"],
                            "properties": {
                                "key": {"type": "string"},
                                "optional": {"type": "boolean", "default": false},
                                "path": {"type": "string"},
                                "volumeName": {"type": "string"}
                            },
                            "x-kubernetes-map-type": "atomic"
                        },
                        "resourceFieldRef": {
                            "type": "object",
                            "required": ["resource"],
                            "properties": {
                                "containerName": {"type": "string"},
                                "divisor": {
                                    "x-kubernetes-int-or-string": true,
                                    "anyOf": [{"type": "integer"}, {"type": "string"}],
                                    "pattern": QUANTITY
                                },
                                "resource": {"type": "string"}
                            },
                            "x-kubernetes-map-type": "atomic"
                        }
                    }
                }
            }
        }
    })
}

/// A quantity of Kubernetes, such as `500m` or `2Gi`.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
