//! The parts that providers on the fake cloud have.

use crate::SecretName;

/// The parts of the providers that a handle creates.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) has_instances: bool,
    pub(super) has_changes: bool,
    pub(super) has_zones: bool,
    pub(super) has_load_balancers: bool,
    pub(super) has_routes: bool,
    pub(super) has_clusters: bool,
    pub(super) has_machines: bool,
    pub(super) secrets: Vec<SecretName>,
    pub(super) limits: Vec<String>,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            has_instances: true,
            has_changes: true,
            has_zones: false,
            has_load_balancers: false,
            has_routes: false,
            has_clusters: false,
            has_machines: false,
            secrets: Vec::new(),
            limits: Vec::new(),
        }
    }
}
