//! What happens in histories of every kind.

use std::time::Duration;

use sandbox::{Action, Fault, Matcher};

use crate::{api::Api, faults::faults};

/// One of these.
pub(crate) fn pick<T: Clone>(random: &mut fastrand::Rng, from: &[T]) -> T {
    from[random.usize(..from.len())].clone()
}

/// A time of at most so many seconds. Most are short, so that much happens at the same time.
pub(crate) fn short_time(random: &mut fastrand::Rng, most: f64) -> Duration {
    Duration::from_secs_f64(random.f64() * random.f64() * random.f64() * most)
}

/// What happens to the API server.
#[derive(Clone, Debug)]
pub(crate) enum ApiTrouble {
    /// Some of its requests fail, are slow, or lose their answers.
    Fault { matcher: Matcher, action: Action, times: u64 },
    /// All watches end.
    DropWatches { with_history: bool },
}

impl ApiTrouble {
    /// A fault of these requests, or of others that every daemon makes.
    pub(crate) fn fault(random: &mut fastrand::Rng, own: &[Matcher]) -> Self {
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
        Self::Fault { matcher, action, times: random.u64(1..6) }
    }

    pub(crate) fn drop_watches(random: &mut fastrand::Rng) -> Self {
        Self::DropWatches { with_history: random.bool() }
    }

    /// Lets it happen, on the sandbox.
    pub(crate) fn happen(self, api: &Api) -> anyhow::Result<()> {
        let faults = faults(api)?;
        match self {
            Self::Fault { matcher, action, times } => faults.inject(Fault::new(matcher, action).times(times)),
            Self::DropWatches { with_history } => {
                if with_history {
                    faults.expire();
                }
                faults.drop_watches();
            }
        }
        Ok(())
    }
}
