//! The clients for reviews: whom upstream asks, and nobody where there is nobody to ask.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use cloudprovider::error_chain;
use kube::{Client, Config, config::InClusterError};
use tokio::time::Instant;

use super::{AuthenticationOptions, AuthorizationOptions};
use crate::api_client;

/// Deadline of one review, with all tries; upstream's.
pub(super) const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Upstream's rhythm of tries.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const FACTOR: f64 = 1.5;

/// The client for `TokenReviews` and for the cluster's authentication settings.
///
/// # Errors
/// A kubeconfig that cannot be used.
pub(super) async fn authentication_client(options: &AuthenticationOptions) -> anyhow::Result<Option<Client>> {
    client(options.kubeconfig.as_deref(), "authentication").await
}

/// The client for `SubjectAccessReviews`.
///
/// # Errors
/// A kubeconfig that cannot be used.
pub(super) async fn authorization_client(options: &AuthorizationOptions) -> anyhow::Result<Option<Client>> {
    let client = client(options.kubeconfig.as_deref(), "authorization").await?;
    if client.is_none() {
        // Upstream's words.
        tracing::warn!(
            "No authorization-kubeconfig provided, so SubjectAccessReview of authorization tokens won't work."
        );
    }
    Ok(client)
}

async fn client(kubeconfig: Option<&Path>, what: &str) -> anyhow::Result<Option<Client>> {
    let config = match kubeconfig {
        Some(path) => api_client::config(Some(path), "")
            .await
            .with_context(|| format!("--{what}-kubeconfig {}", path.display()))?,
        None => match Config::incluster() {
            Ok(config) => config,
            Err(error) => {
                if !matches!(error, InClusterError::ReadEnvironmentVariable(_)) {
                    tracing::warn!(
                        "failed to read in-cluster kubeconfig for delegated {what}: {}",
                        error_chain(&error)
                    );
                }
                return Ok(None);
            }
        },
    };
    Ok(Some(api_client::client(api_client::with_user_agent(&config, &format!("delegated-{what}")))?))
}

/// Asks until there is an answer, a refusal, or no time left.
///
/// # Errors
/// The last failure, in words that name no address and no token.
pub(super) async fn review<T, F>(mut ask: impl FnMut() -> F) -> Result<T, String>
where
    F: Future<Output = kube::Result<T>>,
{
    let deadline = Instant::now() + REVIEW_TIMEOUT;
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
            Err(_) => return Err(format!("no answer from the API server within {REVIEW_TIMEOUT:?}")),
        };
        if !may_help || tries == TRIES || Instant::now() + pause >= deadline {
            return Err(problem);
        }
        tokio::time::sleep(pause.mul_f64(fastrand::f64().mul_add(0.2, 1.0))).await;
        pause = pause.mul_f64(FACTOR);
    }
}
