//! Services as the service controller sees them: one shared watch, which keeps only the fields that are read.

mod read;
mod service;
mod watch;
mod wire;
mod writer;

pub use read::read_service;
pub use service::{LOAD_BALANCER_CLEANUP_FINALIZER, Service};
pub use watch::watch_services;
pub use writer::ServiceWriter;

/// All Services of the cluster, by [key](crate::cache::CachedObject::key), kept up to date by [`watch_services`].
pub type ServiceStore = crate::cache::Cache<Service>;
