//! Custom resource definitions: their kinds are served from the creation of the definition until its
//! deletion.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::{
    object,
    resources::{Registry, ResourceKind},
    store::Store,
};

/// Serves the kinds of a stored definition.
pub(crate) fn serve(registry: &Registry, stored: &ResourceKind, definition: &Value) {
    match serde_json::from_value::<CustomResourceDefinition>(object::to_served(stored, definition)) {
        Ok(definition) => {
            for kind in ResourceKind::from_crd(&definition) {
                registry.register(kind);
            }
        }
        // Schemas are not checked here; a real API server refuses such a definition
        Err(error) => tracing::warn!(%error, "a CustomResourceDefinition cannot be read and serves nothing"),
    }
}

/// Stops serving the kinds of a deleted definition (`plural.group`), and deletes their objects.
pub(crate) fn end(registry: &Registry, store: &Store, name: &str) {
    if let Some((plural, group)) = name.split_once('.') {
        registry.unregister(group, plural);
        store.lock().empty(&format!("{group}/{plural}"));
    }
}
