//! What the endpoints show of the daemon.

use std::{fmt, sync::Arc};

use crate::{debug_state::DebugState, health::HealthChecks, metrics::Metrics};

/// Changes the verbosity of the log.
///
/// # Errors
/// The reason why it cannot be changed.
pub type SetVerbosity = Arc<dyn Fn(u32) -> Result<(), String> + Send + Sync>;

/// What the server shows of the daemon.
#[derive(Clone)]
pub struct Shown {
    /// For `/metrics`.
    pub metrics: Metrics,
    /// For `/healthz`, `/livez` and `/readyz`.
    pub health: HealthChecks,
    /// For `/debug/state`.
    pub debug_state: DebugState,
    /// For `/debug/flags/v`. If `None`, that path answers 404.
    pub set_verbosity: Option<SetVerbosity>,
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("health", &self.health).finish_non_exhaustive()
    }
}
