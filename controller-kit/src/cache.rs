//! Caches of objects that a watch keeps up to date: one for each kind, shared by everything that reads them.

mod store;
mod watch;

use std::borrow::Cow;

pub use store::{Cache, Changes};
pub use watch::{Watched, watch_objects};

/// An object in a [`Cache`]. It holds only the fields that are read.
pub trait CachedObject: Clone + Send + Sync + 'static {
    /// What it is stored under: the name, with the namespace and a slash before it where there is one.
    fn key(&self) -> Cow<'_, str>;

    /// `metadata.resourceVersion`.
    fn resource_version(&self) -> &str;

    /// Sets `metadata.resourceVersion`.
    fn set_resource_version(&mut self, version: &str);

    /// Whether everything but the resource version is the same.
    fn same_content(&self, other: &Self) -> bool;

    /// Whether the cached version is older than `written`, the version that one of our own writes produced.
    /// Versions that are not numbers are never older.
    fn is_older_than(&self, written: &str) -> bool {
        is_older(self.resource_version(), written)
    }
}

/// Whether one version is older than another. Versions that are not numbers never are.
pub fn is_older(version: &str, other: &str) -> bool {
    match (version.parse::<u64>(), other.parse::<u64>()) {
        (Ok(version), Ok(other)) => version < other,
        _ => false,
    }
}
