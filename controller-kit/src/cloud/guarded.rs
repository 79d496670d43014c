//! One call of the provider that can neither panic nor hang.

use std::{panic::AssertUnwindSafe, time::Duration};

use cloudprovider::{Error, ErrorKind, Result};
use futures::FutureExt;
use tokio::time::Instant;

use super::metrics::ProviderMetrics;

/// Deadline of one call, for providers that set none of their own.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallFault {
    /// The provider panicked. The panic's message is in the log, by the panic hook. It may contain anything, so it is not
    /// passed on.
    Panicked,
    /// There was no answer within this time.
    TimedOut(Duration),
}

impl CallFault {
    /// The error of that call. `about` says what a panic was about, such as `" over this node"`, or is empty.
    pub(super) fn into_error(self, about: &str) -> Error {
        match self {
            Self::Panicked => Error::new(
                ErrorKind::Internal,
                format!("the cloud provider panicked{about}; the log says more"),
            ),
            Self::TimedOut(limit) => Error::new(ErrorKind::Timeout, format!("no answer within {limit:?}")),
        }
    }
}

/// Makes a call with a deadline, catches its panic, and records its duration.
pub(super) async fn caught_in_time<T>(
    metrics: &ProviderMetrics,
    operation: &'static str,
    limit: Duration,
    call: impl Future<Output = T>,
) -> Result<T, CallFault> {
    let began = Instant::now();
    let mut call = Box::pin(AssertUnwindSafe(call).catch_unwind());
    let outcome = tokio::time::timeout(limit, &mut call).await;
    // Dropping a call that was given up runs the provider's code too, which may panic.
    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| drop(call)));
    metrics.call_duration(operation).observe(began.elapsed().as_secs_f64());
    match outcome {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(CallFault::Panicked),
        Err(_) => Err(CallFault::TimedOut(limit)),
    }
}

/// As [`caught_in_time`], for a call with one result, which is counted too.
pub(super) async fn guarded<T>(
    metrics: &ProviderMetrics,
    operation: &'static str,
    limit: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let outcome = caught_in_time(metrics, operation, limit, call).await;
    let outcome = outcome.unwrap_or_else(|fault| Err(fault.into_error("").with_operation(operation)));
    let result = outcome.as_ref().map_or_else(|error| error.kind().as_str(), |_| "ok");
    metrics.calls(operation, result).inc();
    outcome
}
