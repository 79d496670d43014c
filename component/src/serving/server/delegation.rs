//! The API clients for reviews, chosen as in upstream. Without an API server there is none. Any client can
//! cause a review, so reviews are limited.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use basics::error_chain;
use kube::{Client, Config, config::InClusterError};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{source::Source, turns::Turns};
use crate::{
    api_client::{ApiServer, ClientMetrics, ClientOptions, Location},
    reload::ReloadReporter,
    serving::{AuthenticationOptions, AuthorizationOptions},
};

/// Deadline of one review, with all retries; upstream's.
pub(super) const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Upstream's retries and their backoff.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const FACTOR: f64 = 1.5;

/// Upstream's rate limit of each client: reviews per second, and burst.
const RATE: (f64, u32) = (200.0, 400);

/// Maximum number of reviews in progress, for each client. Each review may take a connection to the API
/// server, and a share of the concurrency that the API server grants this user. The leader's Lease is renewed
/// as the same user.
const AT_ONCE: usize = 16;

/// Maximum number of those for one source. A source with many reviews leaves room for others, even if each
/// review takes long.
const OF_ONE_SOURCE: usize = 8;

/// Creates the clients.
#[derive(Debug)]
pub(super) struct Delegation<'a> {
    pub metrics: ClientMetrics,
    pub reporter: &'a ReloadReporter,
    pub stop: &'a CancellationToken,
    pub tasks: &'a mut JoinSet<()>,
}

impl Delegation<'_> {
    /// The client for `TokenReviews` and for the authentication settings in the cluster.
    ///
    /// # Errors
    /// A kubeconfig that cannot be used.
    pub(super) async fn authentication_client(
        &mut self,
        options: &AuthenticationOptions,
    ) -> anyhow::Result<Option<Client>> {
        self.client(options.kubeconfig.clone(), "authentication", "--authentication-kubeconfig").await
    }

    /// The client for `SubjectAccessReviews`.
    ///
    /// # Errors
    /// A kubeconfig that cannot be used.
    pub(super) async fn authorization_client(
        &mut self,
        options: &AuthorizationOptions,
    ) -> anyhow::Result<Option<Client>> {
        let client =
            self.client(options.kubeconfig.clone(), "authorization", "--authorization-kubeconfig").await?;
        if client.is_none() {
            // In upstream's words.
            tracing::warn!(
                "No authorization-kubeconfig provided, so SubjectAccessReview of authorization tokens won't work."
            );
        }
        Ok(client)
    }

    /// A client that follows its kubeconfig and credentials on disk. `--dry-run` does not affect it, since a
    /// review writes nothing.
    async fn client(
        &mut self,
        kubeconfig: Option<PathBuf>,
        what: &str,
        flag: &'static str,
    ) -> anyhow::Result<Option<Client>> {
        if kubeconfig.is_none()
            && let Err(error) = Config::incluster()
        {
            if !matches!(error, InClusterError::ReadEnvironmentVariable(_)) {
                tracing::warn!(
                    "failed to read in-cluster kubeconfig for delegated {what}: {}",
                    error_chain(&error)
                );
            }
            return Ok(None);
        }
        let is_named = kubeconfig.is_some();
        let location = Location::of_flag(flag, kubeconfig);
        let options = ClientOptions { limit: Some(RATE), ..ClientOptions::default() };
        let api_server = ApiServer::new(location, options, self.metrics.clone()).await;
        let api_server =
            if is_named { api_server? } else { api_server.with_context(|| format!("delegated {what}"))? };
        let client = api_server.client(&format!("delegated-{what}"));
        self.tasks.spawn(api_server.follow(self.reporter.clone(), self.stop.clone()));
        Ok(Some(client))
    }
}

/// Why a review has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Too many reviews are in progress.
    Busy,
    /// The failure, in words without addresses and tokens.
    Failed(String),
}

/// Sends reviews, few at a time. The number of requests limits how many reviews wait. Each source waits only
/// for its own.
#[derive(Debug)]
pub(super) struct Reviewer {
    turns: Turns,
}

impl Reviewer {
    pub(super) fn new() -> Self {
        Self { turns: Turns::new(AT_ONCE, OF_ONE_SOURCE) }
    }

    /// Retries until there is an answer, a refusal, or no time left. A review that was sent is finished even
    /// if the client is gone by then: cancelling it would cost a connection to the API server.
    ///
    /// # Errors
    /// The last failure, or that too many reviews are in progress.
    pub(super) async fn review<T, F>(
        &self,
        source: Source,
        ask: impl FnMut() -> F + Send + 'static,
    ) -> Result<T, Unanswered>
    where
        T: Send + 'static,
        F: Future<Output = kube::Result<T>> + Send + 'static,
    {
        let deadline = Instant::now() + REVIEW_TIMEOUT;
        let turn = tokio::time::timeout_at(deadline, self.turns.take(source)).await;
        let turn = turn.ok().flatten().ok_or(Unanswered::Busy)?;
        if Instant::now() >= deadline {
            return Err(Unanswered::Busy);
        }
        let asking = tokio::spawn(async move {
            let _turn = turn;
            try_until(deadline, ask).await
        });
        asking.await.unwrap_or_else(|_| Err(Unanswered::Failed("the review broke off".to_owned())))
    }
}

async fn try_until<T, F>(deadline: Instant, mut ask: impl FnMut() -> F) -> Result<T, Unanswered>
where
    F: Future<Output = kube::Result<T>>,
{
    let mut pause = FIRST_PAUSE;
    let mut tries = 0;
    loop {
        tries += 1;
        let (problem, may_help) = match tokio::time::timeout_at(deadline, ask()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                let may_help = status.code == 429 || status.code >= 500;
                (format!("the API server answered {}: {}", status.code, status.message), may_help)
            }
            Ok(Err(error)) => {
                tracing::debug!(error = %error_chain(&error), "review failed");
                ("the API server cannot be reached".to_owned(), true)
            }
            Err(_) => (format!("no answer from the API server within {REVIEW_TIMEOUT:?}"), false),
        };
        if !may_help || tries == TRIES || Instant::now() + pause >= deadline {
            return Err(Unanswered::Failed(problem));
        }
        tokio::time::sleep(pause.mul_f64(fastrand::f64().mul_add(0.2, 1.0))).await;
        pause = pause.mul_f64(FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::IpAddr,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use super::*;

    fn there(last: u8) -> Source {
        Source::Address(IpAddr::from([192, 0, 2, last]))
    }

    /// Starts reviews from this source to which the API server never replies. Also returns how many were sent
    /// to it.
    fn unanswered(
        reviewer: &Arc<Reviewer>,
        source: Source,
        count: usize,
    ) -> (JoinSet<Result<(), Unanswered>>, Arc<AtomicUsize>) {
        let (mut reviews, asked) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..count {
            let (reviewer, asked) = (reviewer.clone(), asked.clone());
            reviews.spawn(async move {
                let ask = move || {
                    asked.fetch_add(1, Ordering::Relaxed);
                    std::future::pending::<kube::Result<()>>()
                };
                reviewer.review(source, ask).await
            });
        }
        (reviews, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn few_are_under_way_and_nobody_waits_for_others() {
        /// More than the maximum number of requests in progress.
        const MANY: usize = 2000;
        let reviewer = Arc::new(Reviewer::new());
        let (one, of_one) = unanswered(&reviewer, there(1), MANY);
        tokio::time::sleep(REVIEW_TIMEOUT / 2).await;
        assert_eq!(of_one.load(Ordering::Relaxed), OF_ONE_SOURCE);
        let ask = || async { Ok(()) };
        let start = Instant::now();
        assert_eq!(reviewer.review(there(2), ask).await, Ok(()));
        assert_eq!(start.elapsed(), Duration::ZERO, "a source waits for itself");
        let (others, of_others) = unanswered(&reviewer, there(2), MANY);
        let (third, of_third) = unanswered(&reviewer, there(3), 1);
        tokio::time::sleep(REVIEW_TIMEOUT / 4).await;
        let asked = [&of_one, &of_others, &of_third].map(|asked| asked.load(Ordering::Relaxed));
        assert_eq!(asked, [OF_ONE_SOURCE, AT_ONCE - OF_ONE_SOURCE, 0]);
        let ended = one.join_all().await;
        let busy = ended.iter().filter(|outcome| **outcome == Err(Unanswered::Busy)).count();
        assert_eq!(busy, MANY - OF_ONE_SOURCE, "their time ended before their turn came");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(of_third.load(Ordering::Relaxed), 1, "the next turn is that of another source");
        drop((others, third));
        tokio::time::sleep(REVIEW_TIMEOUT).await;
        assert_eq!(reviewer.review(there(1), ask).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_ends_by_itself() {
        let reviewer = Arc::new(Reviewer::new());
        let answered = Arc::new(AtomicUsize::new(0));
        let count = answered.clone();
        let ask = move || {
            let count = count.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        };
        let gone = tokio::time::timeout(Duration::from_millis(1), reviewer.review(there(1), ask)).await;
        gone.expect_err("the client is gone");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(answered.load(Ordering::Relaxed), 1);
        // Without a turn, no request is sent.
        let (under_way, _) = unanswered(&reviewer, there(1), OF_ONE_SOURCE);
        let (waiting, asked) = unanswered(&reviewer, there(1), 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop((waiting, under_way));
        tokio::time::sleep(REVIEW_TIMEOUT * 2).await;
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }
}
