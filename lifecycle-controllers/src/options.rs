//! What the flags say to the controllers.

use std::time::Duration;

/// The options of all parts.
#[derive(Clone, Debug)]
pub struct LifecycleOptions {
    /// The namespace whose objects the controllers work on. `None`: all of them.
    pub namespace: Option<String>,
    /// Nothing is written.
    pub dry_run: bool,
    /// How often an object to which nothing happens is reconciled.
    pub sync_period: Duration,
}
