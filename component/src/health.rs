//! Health checks: parts of the daemon register them, `/healthz`, `/livez` and `/readyz` run them.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// `Err` holds why, for the log: a person who may only read health is not told.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Which of the endpoints run a check. `/healthz` runs what `/livez` runs: upstream's manifests restart on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concerns {
    /// A restart may help: `/healthz`, `/livez` and `/readyz`.
    Liveness,
    /// Waiting helps, a restart does not: `/readyz` alone.
    Readiness,
}

/// The checks of the daemon, in the order in which they were registered. Cloning shares them.
#[derive(Clone, Default)]
pub struct HealthChecks(Arc<Mutex<Vec<(String, Concerns, Check)>>>);

impl HealthChecks {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check; one of the same name gives way. Upstream names a controller's check by its canonical name and the
    /// election's `leaderElection`.
    pub fn add(
        &self,
        name: &str,
        concerns: Concerns,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let mut checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        checks.retain(|(known, ..)| known != name);
        checks.push((name.to_owned(), concerns, Arc::new(check)));
    }

    /// All checks as they are now: name, what it concerns, the check.
    pub fn all(&self) -> Vec<(String, Concerns, Check)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for HealthChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().iter().map(|(name, concerns, _)| (name, concerns))).finish()
    }
}
