//! Kinds that are served because tools list them, and that have no objects.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;

/// `MachinePool`s. `clusterctl describe` lists them and ends where nobody serves the kind. Nothing here makes their machines, so one that
/// is applied is refused.
pub(super) fn machine_pools(
    version: &str,
    labels: BTreeMap<String, String>,
) -> Result<CustomResourceDefinition, serde_json::Error> {
    let never = json!([{
        "rule": "false",
        "message": "MachinePools are not served by the lifecycle controllers of this cluster: use a MachineDeployment",
    }]);
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "machinepools.cluster.x-k8s.io", "labels": labels},
        "spec": {
            "group": "cluster.x-k8s.io",
            "scope": "Namespaced",
            "names": {
                "kind": "MachinePool",
                "listKind": "MachinePoolList",
                "plural": "machinepools",
                "singular": "machinepool",
                "shortNames": ["mp"],
                "categories": ["cluster-api"],
            },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "Refused: there are no MachinePools here.",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "x-kubernetes-validations": never,
                }},
            }],
        },
    }))
}
