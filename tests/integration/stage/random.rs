//! What happens in histories of every kind.

use std::time::Duration;

use cloudprovider::testing::{Fault, Operation};
use sandbox::{Action, Matcher};

/// One of these.
pub(crate) fn pick<T: Clone>(random: &mut fastrand::Rng, from: &[T]) -> T {
    from[random.usize(..from.len())].clone()
}

/// A time of at most so many seconds. Most are short, so that much happens at the same time.
pub(crate) fn short_time(random: &mut fastrand::Rng, most: f64) -> Duration {
    Duration::from_secs_f64(random.f64() * random.f64() * random.f64() * most)
}

/// What happens to the API server, the cloud and the daemons.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// Some requests to the API server fail, are slow, or lose their answers.
    ApiFault {
        matcher: Matcher,
        action: Action,
        times: u64,
    },
    /// All watches end.
    DropWatches {
        with_history: bool,
    },
    /// The next call of the cloud fails.
    CloudFault {
        operation: Operation,
        fault: Fault,
    },
    /// Of the cloud.
    Latency(Duration),
    Crash {
        daemon: usize,
    },
    Stop {
        daemon: usize,
    },
    /// Nothing of the daemon gets through for this time.
    Freeze {
        daemon: usize,
        time: Duration,
    },
    Wait(Duration),
}

impl Trouble {
    /// A fault of these requests, or of others that every daemon makes.
    pub(crate) fn api_fault(random: &mut fastrand::Rng, own: &[Matcher]) -> Self {
        let action = pick(
            random,
            &[
                Action::Conflict,
                Action::TooManyRequests(1),
                Action::InternalError,
                Action::ServiceUnavailable,
                Action::LoseResponse,
                Action::ResetConnection,
                Action::Delay(Duration::from_secs(4)),
            ],
        );
        let of_all = [
            Matcher::any().verb("list"),
            Matcher::any().verb("watch"),
            Matcher::any().resource("leases"),
            Matcher::any().resource("events"),
        ];
        let matcher = pick(random, &[own, &of_all].concat());
        Self::ApiFault { matcher, action, times: random.u64(1..6) }
    }

    pub(crate) fn drop_watches(random: &mut fastrand::Rng) -> Self {
        Self::DropWatches { with_history: random.bool() }
    }

    pub(crate) fn latency(random: &mut fastrand::Rng) -> Self {
        Self::Latency(pick(random, &[0, 0, 50, 1000, 8000].map(Duration::from_millis)))
    }

    pub(crate) fn freeze(random: &mut fastrand::Rng, daemon: usize) -> Self {
        Self::Freeze { daemon, time: Duration::from_secs(random.u64(3..40)) }
    }

    pub(crate) fn wait(random: &mut fastrand::Rng, most: f64) -> Self {
        Self::Wait(short_time(random, most))
    }
}
