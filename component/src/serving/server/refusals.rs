//! Refusals with status 429. The log names the exhausted resource, but has no line for each request.

use std::time::Duration;

use super::{
    responses::{self, Answer},
    seldom::Seldom,
    source::Source,
};

/// Pause between two log lines about the same resource.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// The resource that was exhausted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Full {
    Requests,
    TokenReviews,
    AccessReviews,
    LargeAnswers,
}

impl Full {
    const ALL: [Self; 4] = [Self::Requests, Self::TokenReviews, Self::AccessReviews, Self::LargeAnswers];

    fn why(self) -> &'static str {
        match self {
            Self::Requests => "too many requests at the same time",
            Self::TokenReviews => "too many wait for a TokenReview",
            Self::AccessReviews => "too many wait for a SubjectAccessReview",
            Self::LargeAnswers => "too many wait for a large answer, as of /metrics",
        }
    }
}

/// Refuses requests.
#[derive(Debug)]
pub(super) struct Refusals {
    /// One for each resource, so that one message does not suppress another.
    said: [Seldom; Full::ALL.len()],
}

impl Refusals {
    pub(super) fn new() -> Self {
        Self { said: Full::ALL.map(|_| Seldom::new(LOG_PAUSE)) }
    }

    /// The response to a request from this source.
    pub(super) fn answer(&self, full: Full, source: Source) -> Answer {
        if self.said[full as usize].may() {
            tracing::warn!(?source, "the secure port answers 429: {}", full.why());
        }
        responses::too_many_requests()
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, sync::Arc};

    use http::StatusCode;
    use parking_lot::Mutex;
    use tracing_subscriber::{Layer, layer::Context, prelude::*};

    use super::*;

    /// The output of the log.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<String>>);

    impl<S: tracing::Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            event.record(&mut |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                let _ = writeln!(self.0.lock(), "{value:?}");
            });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_full_is_said_once_in_a_while() {
        let (kept, refusals) = (Kept::default(), Refusals::new());
        let all = || {
            for full in Full::ALL {
                for _ in 0..2 {
                    let answer = refusals.answer(full, Source::Here);
                    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
                }
            }
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(kept.clone()), all);
        let said = kept.0.lock().clone();
        for full in Full::ALL {
            assert_eq!(said.matches(full.why()).count(), 1, "{full:?}: {said}");
        }
    }
}
