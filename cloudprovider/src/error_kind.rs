//! The kinds of errors.

use std::{fmt, str::FromStr};

use crate::UnknownWord;

/// What went wrong. Each kind is named for the decision that the caller takes. It prints as
/// [`as_str`](Self::as_str) and is parsed from the same word.
///
/// What people see on a Node when a look-up answers [`Unknown`](crate::InstanceLookup::Unknown) with an error
/// of this kind, or when an instance is [`incomplete`](crate::Instance::incomplete) because of one:
///
/// | Kind | Reason of the condition | The next try for a Node that is not initialised |
/// |---|---|---|
/// | `NotFound` | `InstanceNotFound`; `AbsenceNotConfirmed` in `CloudProviderInstanceExists` | after 60 s |
/// | `Ambiguous` | `InstanceAmbiguous` | after 60 s |
/// | `Unauthenticated` | `ProviderUnauthenticated` | after 60 s |
/// | `PermissionDenied` | `ProviderPermissionDenied` | after 60 s |
/// | `InvalidConfiguration` | `ProviderMisconfigured` | after 60 s |
/// | `InvalidInput` | `InvalidNode` | after 60 s |
/// | `Unsupported`, `ImplementedElsewhere` | `Unsupported` | after 60 s |
/// | `InProgress` | `InstanceIncomplete` | after 0.2 s, then with growing delays |
/// | `Conflict`, `RateLimited`, `Unavailable` | `ProviderUnavailable` | after 0.2 s, then with growing delays |
/// | `Timeout` | `ProviderTimeout` | after 0.2 s, then with growing delays |
/// | `Internal` | `ProviderError` | after 0.2 s, then with growing delays |
///
/// [`Error::retry_after`](crate::Error::retry_after) takes precedence over the last column, and a pushed
/// change over both. A new Node has the condition `CloudProviderInitialized=False`, and an event
/// `InitializationFailed` says the same. An initialised Node that is not Ready has the condition
/// `CloudProviderInstanceExists=Unknown`, without an event. The message is
/// [`Error::report`](crate::Error::report).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The cloud confirmed that the requested object does not exist. For instances, look-ups answer
    /// [`InstanceLookup::Absent`](crate::InstanceLookup::Absent) instead of this error.
    NotFound,
    /// More than one object matches where exactly one must. A person has to decide; nothing is guessed.
    Ambiguous,
    /// The credentials are missing, wrong or expired.
    Unauthenticated,
    /// The credentials are good, but do not allow this operation.
    PermissionDenied,
    /// The object exists already, or somebody else changed it in the meantime.
    Conflict,
    /// The provider's configuration is wrong; see [`Error::problems`](crate::Error::problems).
    InvalidConfiguration,
    /// The request itself is invalid, for example because of a malformed provider ID, annotation or port.
    InvalidInput,
    /// The cloud, or this provider, cannot do this at all.
    Unsupported,
    /// Another component does this on purpose (upstream's `ImplementedElsewhere`). For load balancers, the
    /// controller stops quietly: it leaves the Service alone and reports no failure.
    ImplementedElsewhere,
    /// The cloud has begun the operation but has not finished it (upstream's `RetryError`). The caller asks
    /// again after [`retry_after`](crate::Error::retry_after) and does not count this as a failure.
    InProgress,
    /// The cloud refuses the request for now because there were too many requests.
    RateLimited,
    /// The cloud cannot be reached or does not work at the moment.
    Unavailable,
    /// No answer before the deadline. It is not known whether the operation took place.
    Timeout,
    /// A fault in the provider itself, a panic included.
    Internal,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::NotFound,
        Self::Ambiguous,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::Conflict,
        Self::InvalidConfiguration,
        Self::InvalidInput,
        Self::Unsupported,
        Self::ImplementedElsewhere,
        Self::InProgress,
        Self::RateLimited,
        Self::Unavailable,
        Self::Timeout,
        Self::Internal,
    ];

    /// The kind as a word for metric labels and JSON, such as `not_found`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Ambiguous => "ambiguous",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::Conflict => "conflict",
            Self::InvalidConfiguration => "invalid_configuration",
            Self::InvalidInput => "invalid_input",
            Self::Unsupported => "unsupported",
            Self::ImplementedElsewhere => "implemented_elsewhere",
            Self::InProgress => "in_progress",
            Self::RateLimited => "rate_limited",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Internal => "internal",
        }
    }

    /// Whether the same call can succeed later without a change of the configuration or the request.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::NotFound
            | Self::Ambiguous
            | Self::Unauthenticated
            | Self::PermissionDenied
            | Self::InvalidConfiguration
            | Self::InvalidInput
            | Self::Unsupported
            | Self::ImplementedElsewhere => false,
            Self::Conflict
            | Self::InProgress
            | Self::RateLimited
            | Self::Unavailable
            | Self::Timeout
            | Self::Internal => true,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ErrorKind {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        UnknownWord::look_up("error kind", text, Self::ALL, Self::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_it_is_printed() {
        for kind in ErrorKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(*kind));
        }
        // `ALL` contains every kind.
        let last = ErrorKind::ALL.last().map(|kind| *kind as usize);
        assert_eq!(last, Some(ErrorKind::ALL.len() - 1));
        let error = "Timeout".parse::<ErrorKind>().expect_err("not as it is printed").to_string();
        assert!(error.starts_with("unknown error kind \"Timeout\", known: not_found, "), "{error}");
    }
}
