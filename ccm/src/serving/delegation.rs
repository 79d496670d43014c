//! The clients for reviews: whom upstream asks, and nobody where there is nobody to ask. Anybody can cause a review, so
//! they are bounded.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use cloudprovider::error_chain;
use kube::{Client, Config, config::InClusterError};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{AuthenticationOptions, AuthorizationOptions};
use crate::{
    api_client::{ApiServer, ClientMetrics, ClientOptions, Location},
    reload::ReloadReporter,
};

/// Deadline of one review, with all tries; upstream's.
pub(super) const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Upstream's rhythm of tries.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const FACTOR: f64 = 1.5;

/// Upstream's rate of reviews a second and their burst, of each client.
const RATE: (f64, u32) = (200.0, 400);

/// Reviews of one client under way at the same time. Each may take a connection to the API server, and a place there among
/// what it does for this user: the lease is renewed as the same one.
const AT_ONCE: usize = 16;

/// Reviews of one client that wait for that. Whoever comes after them is asked to come again.
const WAITING: usize = 512;

/// Makes the clients.
#[derive(Debug)]
pub(super) struct Delegation<'a> {
    pub metrics: ClientMetrics,
    pub reporter: &'a ReloadReporter,
    pub stop: &'a CancellationToken,
    pub tasks: &'a mut JoinSet<()>,
}

impl Delegation<'_> {
    /// The client for `TokenReviews` and for the cluster's authentication settings.
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
            // Upstream's words.
            tracing::warn!(
                "No authorization-kubeconfig provided, so SubjectAccessReview of authorization tokens won't work."
            );
        }
        Ok(client)
    }

    /// It follows the files that it is made from. `--dry-run` does not concern it: a review writes nothing.
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

/// Why nobody can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Too many ask.
    Busy,
    /// In words that name no address and no token.
    Failed(String),
}

/// Asks for reviews, few at a time.
#[derive(Debug)]
pub(super) struct Reviewer {
    under_way: Semaphore,
    /// Those under way and those that wait for it.
    all: Semaphore,
}

impl Reviewer {
    pub(super) fn new() -> Self {
        Self { under_way: Semaphore::new(AT_ONCE), all: Semaphore::new(AT_ONCE + WAITING) }
    }

    /// Asks until there is an answer, a refusal, or no time left.
    ///
    /// # Errors
    /// The last failure, or that too many ask.
    pub(super) async fn review<T, F>(&self, mut ask: impl FnMut() -> F) -> Result<T, Unanswered>
    where
        F: Future<Output = kube::Result<T>>,
    {
        let deadline = Instant::now() + REVIEW_TIMEOUT;
        let _place = self.all.try_acquire().map_err(|_| Unanswered::Busy)?;
        let turn = tokio::time::timeout_at(deadline, self.under_way.acquire()).await;
        // Nobody closes it.
        let _turn = turn.ok().and_then(Result::ok).ok_or(Unanswered::Busy)?;
        if Instant::now() >= deadline {
            return Err(Unanswered::Busy);
        }
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
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn few_are_under_way_and_not_many_wait() {
        let (reviewer, asked) = (Arc::new(Reviewer::new()), Arc::new(AtomicUsize::new(0)));
        let mut reviews = JoinSet::new();
        for _ in 0..AT_ONCE + WAITING {
            let (reviewer, asked) = (reviewer.clone(), asked.clone());
            reviews.spawn(async move {
                let ask = || {
                    asked.fetch_add(1, Ordering::Relaxed);
                    std::future::pending::<kube::Result<()>>()
                };
                reviewer.review(ask).await
            });
        }
        tokio::time::sleep(REVIEW_TIMEOUT / 2).await;
        assert_eq!(asked.load(Ordering::Relaxed), AT_ONCE);
        let ask = || async { Ok(()) };
        assert_eq!(reviewer.review(ask).await, Err(Unanswered::Busy));
        let ended = reviews.join_all().await;
        let busy = ended.iter().filter(|outcome| **outcome == Err(Unanswered::Busy)).count();
        assert_eq!(busy, WAITING, "their time ended before their turn came");
        assert_eq!(reviewer.review(ask).await, Ok(()));
    }
}
