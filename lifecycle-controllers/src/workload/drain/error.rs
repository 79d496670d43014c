//! Why a drain, or a look at volumes, came to nothing.

/// Why a pass was not made. It can be tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DrainError(pub(in crate::workload) String);
