//! The error type of the contract.

use std::{
    borrow::Cow,
    error::Error as StdError,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use basics::error_chain;

use crate::ErrorKind;

/// The result of every fallible method of the contract.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One fault in a configuration: its key, and what would be right. Never contains a value that may be a
/// secret.
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
/// `Display` prints the operation and the message on one line, without the source. [`Error::report`] prints
/// the whole chain of sources. Both appear in events and conditions that every user of the cluster can read,
/// so a message must never contain a secret. What other tenants own must not stand there either: such facts go into
/// [a detail for the log](Error::with_log_detail), which only [`Error::log_report`] prints.
///
/// Clones share everything, the source included. If one fault concerns a whole batch, the provider creates
/// one error and clones it for each node
/// ([`InstanceLookup::all_unknown`](crate::InstanceLookup::all_unknown)).
#[derive(Clone, Debug)]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug)]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    operation: Option<Cow<'static, str>>,
    retry_after: Option<Duration>,
    problems: Vec<ConfigProblem>,
    log_detail: Option<Cow<'static, str>>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind. `message` is a phrase in lower case, without a full stop and without secrets.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                message: message.into(),
                operation: None,
                retry_after: None,
                problems: Vec::new(),
                log_detail: None,
                source: None,
            }),
        }
    }

    /// The special outcome "another component does this": see [`ErrorKind::ImplementedElsewhere`].
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

    /// An [`ErrorKind::InvalidConfiguration`] with all faults that were found.
    pub fn invalid_configuration(problems: Vec<ConfigProblem>) -> Self {
        let mut error = Self::new(ErrorKind::InvalidConfiguration, "invalid configuration");
        error.inner_mut().problems = problems;
        error
    }

    /// Names the operation that failed, such as `list domains of kvm1`. A later call replaces the name.
    #[must_use]
    pub fn with_operation(mut self, operation: impl Into<Cow<'static, str>>) -> Self {
        self.inner_mut().operation = Some(operation.into());
        self
    }

    /// Says how long to wait before another try can help.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.inner_mut().retry_after = Some(after);
        self
    }

    /// Adds what only an operator may read, in the daemon's log: the names and marks of objects of other tenants, hosts, paths.
    /// Users of a namespace read events and conditions, and neither `Display` nor [`report`](Self::report) prints it. It is
    /// no place for secrets. A later call replaces it.
    #[must_use]
    pub fn with_log_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.inner_mut().log_detail = Some(detail.into());
        self
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner_mut().source = Some(Arc::from(source.into()));
        self
    }

    /// Puts a new error around this one, to add context. Kind, retry time and problems stay the same, so the
    /// caller decides as before.
    #[must_use]
    pub fn wrap(self, message: impl Into<Cow<'static, str>>) -> Self {
        let mut outer = Self::new(self.kind(), message);
        outer.inner_mut().retry_after = self.retry_after();
        outer.with_source(self)
    }

    fn inner_mut(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.inner)
    }

    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// How long to wait before another try, if the provider knows. With `None` the caller uses its own
    /// backoff.
    pub fn retry_after(&self) -> Option<Duration> {
        self.inner.retry_after
    }

    /// Whether the same call can succeed later without a change of the configuration or the request.
    pub fn is_retryable(&self) -> bool {
        self.inner.retry_after.is_some() || self.inner.kind.is_retryable()
    }

    /// Which operation failed.
    pub fn operation(&self) -> Option<&str> {
        self.inner.operation.as_deref()
    }

    /// All faults of an [`ErrorKind::InvalidConfiguration`], even if the error was wrapped.
    pub fn problems(&self) -> &[ConfigProblem] {
        if !self.inner.problems.is_empty() {
            return &self.inner.problems;
        }
        self.source().and_then(Self::find).map_or(&[], Self::problems)
    }

    /// Finds the first `Error` of this crate in a chain of sources. So special outcomes survive any wrapping.
    pub fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Self> {
        match error.downcast_ref::<Self>() {
            Some(found) => Some(found),
            None => Self::find(error.source()?),
        }
    }

    /// The message and every source below it, on one line: for events and conditions.
    pub fn report(&self) -> String {
        error_chain(self)
    }

    /// [`report`](Self::report) with the [details for the log](Self::with_log_detail) of this error and of every source below
    /// it. For the daemon's log alone.
    pub fn log_report(&self) -> String {
        // A source may be foreign code that panics. The report says so.
        let details = catch_unwind(AssertUnwindSafe(|| self.log_details())).unwrap_or_default();
        let mut text = self.report();
        if !details.is_empty() {
            text = format!("{text} [{}]", details.join("; "));
        }
        text
    }

    fn log_details(&self) -> Vec<&str> {
        let own = self.inner.log_detail.as_deref();
        let below = self.source().and_then(Self::find).map(Self::log_details);
        own.into_iter().chain(below.into_iter().flatten()).collect()
    }
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
    fn only_the_log_shows_details_for_the_log() {
        let inner = Error::new(ErrorKind::Conflict, "the name is taken").with_log_detail("by team-b/web");
        assert_eq!(inner.log_report(), "the name is taken [by team-b/web]");
        let wrapped = inner.clone().wrap("create").with_operation("ensure node-1").with_log_detail("on kvm2");
        let foreign = Error::new(ErrorKind::Internal, "step").with_source(Foreign(wrapped.clone()));
        for (error, expected) in [
            (inner, ("the name is taken", "the name is taken [by team-b/web]")),
            (
                wrapped,
                (
                    "ensure node-1: create: the name is taken",
                    "ensure node-1: create: the name is taken [on kvm2; by team-b/web]",
                ),
            ),
            (
                foreign,
                (
                    "step: ensure load balancer: ensure node-1: create: the name is taken",
                    "step: ensure load balancer: ensure node-1: create: the name is taken [on kvm2; by team-b/web]",
                ),
            ),
            (Error::new(ErrorKind::Conflict, "taken"), ("taken", "taken")),
        ] {
            assert_eq!((error.report().as_str(), error.log_report().as_str()), expected);
            assert!(!error.to_string().contains("team-b"), "{error}");
        }
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
    fn a_clone_is_the_same_error_and_changes_alone() {
        let error = Error::new(ErrorKind::Unavailable, "away").with_source(std::io::Error::other("reset"));
        let clone = error.clone().with_operation("look up").with_retry_after(Duration::from_secs(1));
        assert_eq!(error.report(), "away: reset");
        assert_eq!((error.operation(), error.retry_after()), (None, None));
        assert_eq!(clone.report(), "look up: away: reset");
        assert!(std::ptr::addr_eq(
            std::ptr::from_ref(error.source().expect("a source")),
            std::ptr::from_ref(clone.source().expect("a source")),
        ));
    }

    #[derive(Debug)]
    struct Unprintable;

    impl fmt::Display for Unprintable {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            // Unwinds like a panic, but without a message on the terminal.
            std::panic::resume_unwind(Box::new("no text"))
        }
    }

    impl StdError for Unprintable {}

    #[test]
    fn a_source_that_panics_does_so_alone() {
        let error = Error::new(ErrorKind::Internal, "no answer").with_source(Unprintable).wrap("list");
        assert_eq!(error.report(), "list: no answer: an error whose text cannot be told: it panics");
        assert_eq!(error.log_report(), error.report());
    }

    #[test]
    fn a_time_makes_any_error_retryable() {
        assert!(!Error::new(ErrorKind::NotFound, "x").is_retryable());
        assert!(Error::new(ErrorKind::NotFound, "x").with_retry_after(Duration::ZERO).is_retryable());
    }
}
