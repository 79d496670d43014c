//! Services as the service controller sees them: one shared watch, which keeps only the fields that are read.

mod access;
mod activity;
mod claims;
mod in_use;
mod read;
mod service;
mod watch;
mod wire;
mod writer;

use std::sync::Arc;

pub use access::{AccessTerm, ClusterServices};
pub use activity::ProviderActivity;
pub use activity::ProviderChanges;
pub use in_use::ControlPlanes;
pub use read::read_in_use;
pub use read::read_service;
pub use service::{LOAD_BALANCER_CLEANUP_FINALIZER, Service};
pub use watch::watch_services;
pub use writer::ServiceWriter;

/// What there is of the cluster's Services. Clones share it.
#[derive(Clone, Debug)]
pub struct Services {
    /// The Services as a watch shows them.
    pub store: ServiceStore,
    /// What providers do with them.
    pub access: Arc<ClusterServices>,
}

/// All Services of the cluster, by [key](crate::cache::CachedObject::key), kept up to date by [`watch_services`].
pub type ServiceStore = crate::cache::Cache<Service>;
