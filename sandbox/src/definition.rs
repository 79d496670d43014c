//! Definitions of custom resources, as objects.

use serde_json::{Value, json};

use crate::{resources::ResourceKind, time};

/// Whether this is the kind of the definitions themselves.
pub(crate) fn defines(kind: &ResourceKind) -> bool {
    kind.group == "apiextensions.k8s.io" && kind.plural == "customresourcedefinitions"
}

/// Sets the status that the API server's own controllers write soon after the creation.
pub(crate) fn establish(definition: &mut Value) {
    let names = definition["spec"]["names"].clone();
    let versions = definition["spec"]["versions"].as_array();
    let stored: Vec<Value> = versions
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    let condition = |condition: &str, reason: &str, message: &str| {
        json!({
            "type": condition, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": time::now(),
        })
    };
    definition["status"] = json!({
        "acceptedNames": names,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": stored,
    });
}
