//! The client of the Kubernetes API server: where it is, who we are, how fast we may ask.

use std::{
    num::NonZeroU32,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use cloudprovider::error_chain;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::Request;
use kube::{
    Client,
    client::{Body, ClientBuilder},
    config::{Config, KubeConfigOptions, Kubeconfig},
};
use tower::{Layer, Service};

/// How long the API server may be away when the daemon starts; upstream's.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two tries of that.
const START_RETRY: Duration = Duration::from_secs(1);

/// Finds the API server as upstream does: `--kubeconfig`, with `--master` in place of its server; else the
/// configuration of the cluster that runs this pod.
///
/// # Errors
/// A file that cannot be read or understood, with its path and without its content.
pub async fn config(kubeconfig: Option<&Path>, master: &str) -> anyhow::Result<Config> {
    let mut config = match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => {
            read_kubeconfig(path).await.with_context(|| format!("--kubeconfig {}", path.display()))?
        }
        None if master.is_empty() => Config::incluster().map_err(|error| {
            anyhow!("neither --kubeconfig nor --master is given, and this is no pod: {}", error_chain(&error))
        })?,
        None => Config::new(master.parse().with_context(|| format!("--master {master:?} is not a URL"))?),
    };
    if !master.is_empty() {
        config.cluster_url = master.parse().with_context(|| format!("--master {master:?} is not a URL"))?;
    }
    if config.cluster_url.host().is_none() || config.cluster_url.scheme().is_none() {
        let source = if master.is_empty() { "the kubeconfig's server" } else { "--master" };
        bail!("{source} is not the URL of an API server; expected https://host:port");
    }
    Ok(config)
}

async fn read_kubeconfig(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).context("the file cannot be read")?;
    // With snippets the error would quote the lines around the fault, tokens and keys among them.
    let options = serde_saphyr::options! { with_snippet: false };
    let mut kubeconfig: Kubeconfig = serde_saphyr::from_str_with_options(&text, options)
        .map_err(|error| anyhow!("the file is not a kubeconfig: {error}"))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    resolve_paths(&mut kubeconfig, folder);
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| anyhow!("the file cannot be used: {}", error_chain(&error)))
}

/// Relative paths in a kubeconfig are relative to its folder.
fn resolve_paths(kubeconfig: &mut Kubeconfig, folder: &Path) {
    let resolve = |path: &mut Option<String>| {
        if let Some(path) = path.as_mut().filter(|path| !path.is_empty()) {
            *path = folder.join(&*path).to_string_lossy().into_owned();
        }
    };
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        resolve(&mut cluster.certificate_authority);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        resolve(&mut user.client_certificate);
        resolve(&mut user.client_key);
        resolve(&mut user.token_file);
    }
}

/// The same configuration for a client that the API server's audit log shows as `part` of this program.
///
/// # Errors
/// A `part` that cannot stand in a header.
pub fn with_user_agent(config: &Config, part: &str) -> anyhow::Result<Config> {
    let agent = format!("cloud-controller-manager/{} {part}", env!("CARGO_PKG_VERSION"));
    let mut config = config.clone();
    config.headers.push((http::header::USER_AGENT, agent.parse()?));
    Ok(config)
}

/// A client; `limit` is the average rate a second and the burst, `None` for no limit.
///
/// # Errors
/// Certificates or keys that cannot be used.
pub fn client(config: Config, limit: Option<(f64, u32)>) -> anyhow::Result<Client> {
    let stack = ClientBuilder::try_from(config)
        .map_err(|error| anyhow!("no client for the API server: {}", error_chain(&error)))?;
    Ok(match limit.and_then(|(qps, burst)| quota(qps, burst)) {
        Some(quota) => stack.with_layer(&ThrottleLayer(Arc::new(RateLimiter::direct(quota)))).build(),
        None => stack.build(),
    })
}

fn quota(qps: f64, burst: u32) -> Option<Quota> {
    let burst = NonZeroU32::new(burst)?;
    Some(Quota::with_period(Duration::try_from_secs_f64(1.0 / qps).ok()?)?.allow_burst(burst))
}

/// Waits until the API server answers a list of Nodes, so that a wrong address, wrong credentials and a missing
/// permission are said at the start.
///
/// # Errors
/// The API server refuses the credentials, or is not there or not willing within ten seconds.
pub async fn wait_for_api_server(client: &Client, url: &str) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + START_TIMEOUT;
    loop {
        let request = Request::get("/api/v1/nodes?limit=1").body(Vec::new())?;
        let problem = match tokio::time::timeout_at(deadline, client.request_text(request)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(kube::Error::Api(status))) if status.code == 401 => {
                bail!("the API server at {url} refuses our credentials (401 Unauthorized)")
            }
            Ok(Err(kube::Error::Api(status))) => {
                format!("the API server at {url} does not list nodes: {} ({})", status.message, status.code)
            }
            Ok(Err(error)) => format!("cannot reach the API server at {url}: {}", error_chain(&error)),
            Err(_) => format!("no answer from the API server at {url}"),
        };
        if tokio::time::Instant::now() + START_RETRY >= deadline {
            bail!("{problem} (tried for {START_TIMEOUT:?})");
        }
        tracing::warn!("{problem}; trying again");
        tokio::time::sleep(START_RETRY).await;
    }
}

/// Makes every request wait for its turn.
struct ThrottleLayer(Arc<DefaultDirectRateLimiter>);

impl<S> Layer<S> for ThrottleLayer {
    type Service = Throttle<S>;
    fn layer(&self, inner: S) -> Self::Service {
        Throttle { inner, limiter: self.0.clone() }
    }
}

struct Throttle<S> {
    inner: S,
    limiter: Arc<DefaultDirectRateLimiter>,
}

impl<S> Service<Request<Body>> for Throttle<S>
where
    S: Service<Request<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let limiter = self.limiter.clone();
        // The stack below sends nothing before its future is polled.
        let response = self.inner.call(request);
        Box::pin(async move {
            limiter.until_ready().await;
            response.await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), content).expect("written");
        file
    }

    #[tokio::test]
    async fn faults_name_the_flag_and_hold_no_secret() {
        let broken =
            file("apiVersion: v1\nusers:\n- name: a\n  user:\n    token: hunter2\n   bad: indentation\n");
        let error = format!("{:#}", config(Some(broken.path()), "").await.expect_err("broken"));
        assert!(error.starts_with("--kubeconfig ") && error.contains("is not a kubeconfig"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        let missing = config(Some(Path::new("/nonexistent/kubeconfig")), "").await.expect_err("missing");
        assert!(
            format!("{missing:#}").contains("--kubeconfig /nonexistent/kubeconfig: the file cannot be read")
        );
        let error = format!("{:#}", config(None, "not a url").await.expect_err("no URL"));
        assert!(error.contains("--master \"not a url\" is not a URL"), "{error}");
        assert!(config(None, "localhost").await.is_err());
    }

    #[tokio::test]
    async fn master_overrides_the_kubeconfig() {
        let kubeconfig = file(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: c, cluster: {server: https://a:1}}]\n\
             contexts: [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n",
        );
        let read = config(Some(kubeconfig.path()), "").await.expect("good");
        assert_eq!(read.cluster_url.to_string(), "https://a:1/");
        let read = config(Some(kubeconfig.path()), "https://b:2").await.expect("good");
        assert_eq!(read.cluster_url.to_string(), "https://b:2/");
    }
}
