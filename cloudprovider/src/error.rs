//! The one error type of the contract.

use std::{borrow::Cow, error::Error as StdError, fmt, time::Duration};

/// What every fallible method of the contract returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, named for what the caller decides on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The cloud confirmed that the thing asked for does not exist. For instances the answer is
    /// [`InstanceLookup::Absent`](crate::InstanceLookup::Absent), not this error.
    NotFound,
    /// More than one thing matches where exactly one must. A person has to decide; nothing is guessed.
    Ambiguous,
    /// The credentials are missing, wrong or expired.
    Unauthenticated,
    /// The credentials are good, but do not allow this operation.
    PermissionDenied,
    /// The thing exists already or was changed by somebody else meanwhile.
    Conflict,
    /// The provider's configuration is wrong; see [`Error::problems`].
    InvalidConfiguration,
    /// The request itself cannot be served: a malformed provider ID, annotation or port, say.
    InvalidInput,
    /// The cloud, or this provider, cannot do this at all.
    Unsupported,
    /// Another component does this on purpose: upstream's `ImplementedElsewhere`. For load balancers: stop quietly,
    /// leave the Service alone, report no failure.
    ImplementedElsewhere,
    /// The cloud has begun and is not done: upstream's `RetryError`. Ask again after
    /// [`retry_after`](Error::retry_after), without counting this as a failure.
    InProgress,
    /// The cloud refuses for now because of the rate of requests.
    RateLimited,
    /// The cloud cannot be reached or does not work at the moment.
    Unavailable,
    /// No answer within the deadline. Whether the operation took place is not known.
    Timeout,
    /// A fault in the provider itself, a panic included.
    Internal,
}

impl ErrorKind {
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

    /// Whether the same call can succeed later without anybody changing the configuration or the request.
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

/// One fault in a configuration: which key, and what would be right. Never the value where it may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Path of the key as the operator wrote it, such as `hypervisors[1].auth.passwordFile`.
    pub key: String,
    /// What is wrong and what would be right, without a trailing full stop.
    pub message: String,
}

impl ConfigProblem {
    /// A problem with `key`.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.key, self.message)
        }
    }
}

/// An error of a provider.
///
/// `Display` gives the operation and the message on one line, without the source; [`Error::report`] gives the
/// whole chain. Both end up in events and conditions that every user of the cluster can read, so a message never
/// holds a secret.
#[derive(Debug)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    operation: Option<Cow<'static, str>>,
    retry_after: Option<Duration>,
    problems: Vec<ConfigProblem>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind. `message` is a phrase in lower case without a full stop, free of secrets.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            inner: Box::new(Inner {
                kind,
                message: message.into(),
                operation: None,
                retry_after: None,
                problems: Vec::new(),
                source: None,
            }),
        }
    }

    /// The special outcome "somebody else does this": see [`ErrorKind::ImplementedElsewhere`].
    pub fn implemented_elsewhere(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::ImplementedElsewhere, message)
    }

    /// The special outcome "not done yet, ask again after `after`": see [`ErrorKind::InProgress`].
    pub fn in_progress(after: Duration, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InProgress, message).with_retry_after(after)
    }

    /// The special outcome "this cloud cannot do that": see [`ErrorKind::Unsupported`].
    pub fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// An [`ErrorKind::InvalidConfiguration`] that carries every fault found.
    pub fn invalid_configuration(problems: Vec<ConfigProblem>) -> Self {
        let mut error = Self::new(ErrorKind::InvalidConfiguration, "invalid configuration");
        error.inner.problems = problems;
        error
    }

    /// Says which operation failed, such as `list domains of kvm1`. The outermost name wins.
    #[must_use]
    pub fn with_operation(mut self, operation: impl Into<Cow<'static, str>>) -> Self {
        self.inner.operation = Some(operation.into());
        self
    }

    /// Says when another try can help.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.inner.retry_after = Some(after);
        self
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// A new error around this one, with the same kind, retry time and problems: context is added without losing
    /// what the caller decides on.
    #[must_use]
    pub fn wrap(self, message: impl Into<Cow<'static, str>>) -> Self {
        let mut outer = Self::new(self.kind(), message);
        outer.inner.retry_after = self.retry_after();
        outer.with_source(self)
    }

    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// How long to wait before another try, where the provider knows. `None` leaves it to the caller's backoff.
    pub fn retry_after(&self) -> Option<Duration> {
        self.inner.retry_after
    }

    /// Whether the same call can succeed later by itself.
    pub fn is_retryable(&self) -> bool {
        self.inner.retry_after.is_some() || self.inner.kind.is_retryable()
    }

    /// Which operation failed.
    pub fn operation(&self) -> Option<&str> {
        self.inner.operation.as_deref()
    }

    /// The faults of an [`ErrorKind::InvalidConfiguration`], all of them, wrapped or not.
    pub fn problems(&self) -> &[ConfigProblem] {
        if !self.inner.problems.is_empty() {
            return &self.inner.problems;
        }
        self.source().and_then(Self::find).map_or(&[], Self::problems)
    }

    /// The first `Error` of this crate in a chain of sources, so that special outcomes survive any wrapping.
    pub fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        match error.downcast_ref::<Self>() {
            Some(found) => Some(found),
            None => Self::find(error.source()?),
        }
    }

    /// The message and every source below it, on one line: for logs, events and conditions.
    pub fn report(&self) -> String {
        error_chain(self)
    }
}

/// Any error and every source below it, on one line. What a part says already is not said again.
pub fn error_chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let part = cause.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        source = cause.source();
    }
    text
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = &self.inner.operation {
            write!(f, "{operation}: ")?;
        }
        f.write_str(&self.inner.message)?;
        for (i, problem) in self.inner.problems.iter().enumerate() {
            f.write_str(if i == 0 { ": " } else { "; " })?;
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("ensure load balancer")]
    struct Foreign(#[source] Error);

    #[test]
    fn special_outcomes_survive_wrapping() {
        let after = Duration::from_secs(7);
        let wrapped = Error::in_progress(after, "creating").wrap("ensure").wrap("sync service");
        assert_eq!(wrapped.kind(), ErrorKind::InProgress);
        assert_eq!(wrapped.retry_after(), Some(after));

        let foreign = Foreign(Error::implemented_elsewhere("kube-vip does this").wrap("ensure"));
        let found = Error::find(&foreign).expect("the chain holds an Error");
        assert_eq!(found.kind(), ErrorKind::ImplementedElsewhere);
    }

    #[test]
    fn report_holds_the_whole_chain_once() {
        let error = Error::new(ErrorKind::Unavailable, "connection refused")
            .wrap("list domains failed")
            .with_operation("look up node-1");
        assert_eq!(error.report(), "look up node-1: list domains failed: connection refused");
        assert_eq!(error.to_string(), "look up node-1: list domains failed");
    }

    #[test]
    fn configuration_errors_name_every_key() {
        let error = Error::invalid_configuration(vec![
            ConfigProblem::new("hypervisors[0].uri", "missing"),
            ConfigProblem::new("addresses.families", "unknown family \"ipv5\", known: ipv4, ipv6"),
        ]);
        assert_eq!(
            error.to_string(),
            "invalid configuration: hypervisors[0].uri: missing; \
             addresses.families: unknown family \"ipv5\", known: ipv4, ipv6"
        );
        assert_eq!(error.problems().len(), 2);
        assert_eq!(error.wrap("outer").problems().len(), 2);
    }

    #[test]
    fn a_time_makes_any_error_retryable() {
        assert!(!Error::new(ErrorKind::NotFound, "x").is_retryable());
        assert!(Error::new(ErrorKind::NotFound, "x").with_retry_after(Duration::ZERO).is_retryable());
    }
}
