//! Why there are no bootstrap data.

use controller_kit::writes::WriteError;

use super::status::Progress;
use crate::engine::control::Failure;

/// Why there are no data.
pub(super) enum Problem {
    /// The status says it. It is looked at again after a while, since Secrets are not watched.
    Said(Progress),
    /// It is tried again.
    Failed(Failure),
}

impl From<WriteError> for Problem {
    fn from(error: WriteError) -> Self {
        Self::Failed(error.into())
    }
}

/// They wait for this.
pub(super) fn waits(message: impl Into<String>) -> Problem {
    Problem::Said(Progress::Waits(message.into()))
}
