//! Health checks. Parts of the daemon register them, and `/healthz`, `/livez` and `/readyz` run them.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

/// `Err` contains the reason, for the log. A client that may only read health does not get it.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Which endpoints run a check. `/healthz` runs the same checks as `/livez`, since upstream's manifests
/// restart the program if `/healthz` fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concerns {
    /// A restart may help: run by `/healthz`, `/livez` and `/readyz`.
    Liveness,
    /// Waiting helps, a restart does not: run by `/readyz` only.
    Readiness,
}

/// The checks of the daemon, in the order of their registration. Clones share them.
#[derive(Clone, Default)]
pub struct HealthChecks(Arc<Mutex<Vec<(String, Concerns, Check)>>>);

impl HealthChecks {
    /// No checks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check, in place of any other with the same name. Upstream names a controller's check by the
    /// controller's canonical name, and the election's check `leaderElection`.
    pub fn add(
        &self,
        name: &str,
        concerns: Concerns,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let mut checks = self.0.lock();
        checks.retain(|(known, ..)| known != name);
        checks.push((name.to_owned(), concerns, Arc::new(check)));
    }

    /// All present checks: the name, what it concerns, and the check.
    pub fn all(&self) -> Vec<(String, Concerns, Check)> {
        self.0.lock().clone()
    }
}

impl fmt::Debug for HealthChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().iter().map(|(name, concerns, _)| (name, concerns))).finish()
    }
}
