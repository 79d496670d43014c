//! The secure port, tested with curl.

mod access;
mod attackers;
mod certificates;
mod crowds;
pub(crate) mod curl;
mod endpoints;
mod keys;
mod lookups;
mod process;
mod siege;
mod zpages;

use std::{net::Ipv4Addr, path::Path, sync::Arc};

use ccm::{
    daemon::new_metrics,
    debug_state::DebugState,
    health::HealthChecks,
    metrics::Metrics,
    reload::{ReloadMetrics, ReloadReporter},
    serving::{AuthenticationOptions, AuthorizationOptions, Serving, ServingOptions, Shown},
};

pub(crate) use access::{grant, service_account};
pub(crate) use curl::{Answer, Curl};

use crate::scenarios::Trials;

pub(crate) fn trials() -> Trials {
    Trials::new()
        .and(access::trials())
        .and(certificates::trials())
        .and(crowds::trials())
        .and(endpoints::trials())
        .and(lookups::trials())
        .and(process::trials())
        .and(zpages::trials())
}

/// Trials that run after all others, one at a time.
pub(crate) fn alone() -> Trials {
    siege::trials()
}

/// Options for a free port on loopback, without an API server for authentication and authorization.
fn options() -> anyhow::Result<ServingOptions> {
    Ok(ServingOptions {
        bind_address: Ipv4Addr::LOCALHOST.into(),
        ..ServingOptions::new("cloud-controller-manager", test_env::free_port()?)
    })
}

/// The same, with the API server of this kubeconfig.
fn options_with(kubeconfig: &Path) -> anyhow::Result<ServingOptions> {
    Ok(ServingOptions {
        authentication: AuthenticationOptions {
            kubeconfig: Some(kubeconfig.to_owned()),
            ..AuthenticationOptions::default()
        },
        authorization: AuthorizationOptions {
            kubeconfig: Some(kubeconfig.to_owned()),
            ..AuthorizationOptions::default()
        },
        ..options()?
    })
}

/// A server that only has its own metrics.
struct Server {
    serving: Serving,
    metrics: Metrics,
}

impl Server {
    async fn start(options: &ServingOptions) -> anyhow::Result<Self> {
        let metrics = new_metrics()?;
        let shown = Shown {
            metrics: metrics.clone(),
            health: HealthChecks::new(),
            debug_state: DebugState::new(),
            set_verbosity: Some(Arc::new(|_| Ok(()))),
        };
        let reporter = ReloadReporter::new(metrics.get()?, None);
        let serving = Serving::start(options, shown, &reporter).await?;
        let mut serving = serving.ok_or_else(|| anyhow::anyhow!("nothing is served"))?;
        serving.knows_the_cluster().await?;
        Ok(Self { serving, metrics })
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.serving.address())
    }

    /// How often certificates of this kind were reloaded with this result.
    fn reloads(&self, file: &str, result: &str) -> u64 {
        let metrics = self.metrics.get::<ReloadMetrics>().expect("no name twice");
        metrics.config_reloads.with_label_values(&[file, result]).get()
    }
}
