//! Why a peer did not start.

use std::fmt;

/// Why a peer did not start.
#[derive(Debug)]
pub enum StartError {
    /// This machine cannot run the peer. The text says what is missing and how to get it. A test that needs
    /// the peer is skipped with a message, or fails if all peers are expected to be available (`CI=true`).
    Unavailable(String),
    /// The peer was started and did not become ready. The error contains the end of its log.
    Failed(anyhow::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(reason) => write!(f, "not available on this machine: {reason}"),
            // the alternate form includes the causes, which a test's last line must show
            Self::Failed(error) => write!(f, "{error:#}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<anyhow::Error> for StartError {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<std::io::Error> for StartError {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// `Unavailable` if any of `programs` is not on `PATH`, with their names.
pub(crate) fn need_programs(programs: &[&str]) -> Result<(), StartError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // a user's PATH often lacks the folders of daemons
    let folders: Vec<_> =
        std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(Into::into)).collect();
    let missing: Vec<_> = programs
        .iter()
        .filter(|program| !folders.iter().any(|folder| folder.join(program).is_file()))
        .copied()
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(StartError::Unavailable(format!(
        "no {} here; `tests/env/install.sh test` installs what the tests need",
        missing.join(", ")
    )))
}
