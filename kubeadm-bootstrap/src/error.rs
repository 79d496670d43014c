//! Why there are no bootstrap data.

/// Why there are no bootstrap data. No error contains a value that may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field is wrong. Only a change of the object helps.
    #[error("{field}: {problem}")]
    Invalid {
        /// The path of the field, such as `spec.files[0].path`.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A fact is missing that another controller or a user has yet to provide.
    #[error("{what}")]
    NotReady {
        /// What is missing.
        what: String,
    },
}

impl Error {
    pub(crate) fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }

    pub(crate) fn not_ready(what: impl Into<String>) -> Self {
        Self::NotReady { what: what.into() }
    }
}
