//! The first request to the API server.

use std::time::Duration;

use anyhow::bail;
use basics::error_chain;
use http::Request;
use kube::Client;

/// How long the API server may be away when the daemon starts, as in upstream.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two such requests.
const START_RETRY: Duration = Duration::from_secs(1);

/// Waits until the API server answers a list of `resources`, such as `nodes`, at this path. So a wrong
/// address, wrong credentials or a missing permission are reported at the start.
///
/// # Errors
/// The API server cannot be reached, or refuses the credentials or the request, for ten seconds.
pub async fn wait_for_api_server(
    client: &Client,
    url: &str,
    path: &str,
    resources: &str,
) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + START_TIMEOUT;
    loop {
        let request = Request::get(format!("{path}?limit=1")).body(Vec::new())?;
        let problem = match tokio::time::timeout_at(deadline, client.request_text(request)).await {
            Ok(Ok(_)) => return Ok(()),
            // Tries again: the API server may have just started, or the token is being renewed.
            Ok(Err(kube::Error::Api(status))) if status.code == 401 => {
                format!("the API server at {url} refuses our credentials (401 Unauthorized)")
            }
            Ok(Err(kube::Error::Api(status))) => {
                format!(
                    "the API server at {url} does not list {resources}: {} ({})",
                    status.message, status.code
                )
            }
            Ok(Err(error)) => format!("cannot reach the API server at {url}: {}", error_chain(&error)),
            Err(_) => format!("no answer from the API server at {url}, or it asks to wait"),
        };
        if tokio::time::Instant::now() + START_RETRY >= deadline {
            bail!("{problem} (tried for {START_TIMEOUT:?})");
        }
        tracing::warn!("{problem}; trying again");
        tokio::time::sleep(START_RETRY).await;
    }
}
