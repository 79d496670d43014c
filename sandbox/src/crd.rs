//! Custom resource definitions: creating one serves its kinds, deleting it ends that.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::{
    object,
    resources::{Registry, ResourceKind},
    store::Store,
};

/// Whether these are the definitions themselves.
pub(crate) fn defines(kind: &ResourceKind) -> bool {
    kind.group == "apiextensions.k8s.io" && kind.plural == "customresourcedefinitions"
}

/// The status that the API server's own controllers write soon after the creation.
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
            "lastTransitionTime": object::now(),
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

/// Serves what a stored definition defines.
pub(crate) fn serve(registry: &Registry, stored: &ResourceKind, definition: &Value) {
    match serde_json::from_value::<CustomResourceDefinition>(object::to_served(stored, definition)) {
        Ok(definition) => {
            for kind in ResourceKind::from_crd(&definition) {
                registry.register(kind);
            }
        }
        // No schema is checked here; a real API server refuses such a definition
        Err(error) => tracing::warn!(%error, "a CustomResourceDefinition cannot be read and serves nothing"),
    }
}

/// Ends serving what a deleted definition (`plural.group`) defined, and deletes the objects.
pub(crate) fn end(registry: &Registry, store: &Store, name: &str) {
    if let Some((plural, group)) = name.split_once('.') {
        registry.unregister(group, plural);
        store.lock().empty(&format!("{group}/{plural}"));
    }
}
