//! What came of an action.

use std::time::Duration;

use cloudprovider::{Error, ErrorKind, LoadBalancerStatus};
use controller_kit::writes::WrittenVersion;

/// What came of an action.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// The load balancer is ensured, and the status is written. The version is that of the last write, if there was one.
    Ensured {
        status: LoadBalancerStatus,
        version: Option<WrittenVersion>,
        /// Whether the Service waits for more than it got.
        waits_for_more: bool,
    },
    /// The load balancer is ensured, and the status is written. The last answer of the cloud lacks an address of before, as the one
    /// before it did, so the cloud has yet to know of this status.
    Moving {
        version: Option<WrittenVersion>,
    },
    /// The Service is not as the watch shows it: what was to be done is not wanted any more.
    Outdated {
        version: Option<WrittenVersion>,
        /// Whether the cloud was called, and may have done something.
        cloud_called: bool,
    },
    /// There is no load balancer of ours, and the finalizer may be somebody else's.
    NotOurs,
    /// Another component makes the load balancer.
    Elsewhere {
        version: Option<WrittenVersion>,
        /// Whether the Service waits for more than it got.
        waits_for_more: bool,
    },
    /// `--dry-run`: what would be done was said.
    Rehearsed {
        version: Option<WrittenVersion>,
    },
    /// The load balancer knows the back ends.
    Updated,
    /// There is no load balancer that could be told.
    NothingToUpdate,
    /// Finalizer and status are as they should be.
    Repaired {
        version: Option<WrittenVersion>,
    },
    /// The cloud's load balancer is as it was.
    Verified,
    /// The cloud's load balancer is gone or another one.
    Differs,
    /// The cloud cannot tell.
    NotVerified {
        retry_after: Option<Duration>,
    },
    /// The load balancer is gone, and so is the finalizer.
    CleanedUp {
        version: Option<WrittenVersion>,
        /// Whether the API server says that the Service is gone, and its finalizer with it.
        is_denied: bool,
    },
    /// The load balancer of a Service that is gone was deleted.
    OldDeleted,
    /// The API server does not have this Service any more.
    Gone,
    Failed(Failure),
    /// The controller stops, or its term has ended. The next leader goes on.
    Stopped,
}

/// Why an action failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// For events.
    pub(super) why: String,
    /// For the log, which may show more.
    pub(super) logged: String,
    /// When the cloud wants to be asked again.
    pub(super) retry_after: Option<Duration>,
    /// Whether the cloud cannot do this at all.
    pub(super) unsupported: bool,
    /// Whether the cloud was called, and may have done something.
    pub(super) cloud_called: bool,
    /// The version that was written before.
    pub(super) version: Option<WrittenVersion>,
}

impl Failure {
    /// An error of the cloud, after upstream's words for what was tried.
    pub(super) fn of_cloud(tried: &str, error: &Error) -> Self {
        let after_tried = |error: String| if tried.is_empty() { error } else { format!("{tried}: {error}") };
        Self {
            why: after_tried(error.report()),
            logged: after_tried(error.log_report()),
            retry_after: error.retry_after(),
            unsupported: error.kind() == ErrorKind::Unsupported && error.retry_after().is_none(),
            cloud_called: true,
            version: None,
        }
    }

    /// An error of the API server. No call of the cloud came before it, as far as this says.
    pub(super) fn of_write(tried: &str, error: &controller_kit::writes::WriteError) -> Self {
        let why = format!("{tried}: {error}");
        let logged = why.clone();
        Self { why, logged, retry_after: None, unsupported: false, cloud_called: false, version: None }
    }
}
