//! The daemon: puts client, provider and controllers together and runs them until it is told to stop.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use cloudprovider::{CloudProvider, FactoryInput, Registry, StartContext};
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    api_client,
    cloud::Cloud,
    controllers::{
        node::{NodeController, NodeControllerOptions},
        node_lifecycle::{BreakerLimits, NodeLifecycleController, NodeLifecycleOptions},
    },
    events::event_recorder,
    flags::{Flags, NODE_CONTROLLER, NODE_LIFECYCLE_CONTROLLER},
    metrics::Metrics,
    nodes::{NodeStore, NodeWriter, watch_nodes},
};

/// How long writes under way may take when the daemon stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the provider that the flags name and checks its configuration. Calls nobody.
///
/// # Errors
/// An unreadable file, an unknown provider, or every fault in its configuration.
pub fn create_provider(flags: &Flags, registry: &Registry) -> anyhow::Result<Arc<dyn CloudProvider>> {
    let input = match flags.cloud_config.as_ref().filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("--cloud-config {}: the file cannot be read", path.display()))?;
            FactoryInput::new(text).with_path(path)
        }
        None => FactoryInput::default(),
    };
    registry.create(&flags.cloud_provider, &input).map_err(|error| anyhow!("{}", error.report()))
}

/// Runs the daemon until `stop` is cancelled.
///
/// # Errors
/// What no waiting can mend: no client, an API server that is away or refuses us at the start, a provider that cannot
/// start, a part that ended by itself.
pub async fn run(flags: &Flags, registry: &Registry, stop: CancellationToken) -> anyhow::Result<()> {
    let provider = create_provider(flags, registry)?;
    let config = api_client::config(flags.kubeconfig.as_deref(), &flags.master).await?;
    let url = without_credentials(&config.cluster_url);
    let client = api_client::client(config, flags.request_limit())?;
    match stop.run_until_cancelled(api_client::wait_for_api_server(&client, &url)).await {
        None => return Ok(()),
        Some(reached) => reached?,
    }
    tracing::info!(api_server = url, cloud_provider = provider.name(), "starting");
    run_controllers(flags, client, provider, Metrics::new()?, stop).await
}

/// A URL for logs and messages: a password may stand before the host.
fn without_credentials(url: &http::Uri) -> String {
    let host = url.host().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}", url.scheme_str().unwrap_or("https"))
}

/// Runs the controllers that the flags enable, over any client and provider, until `stop` is cancelled.
///
/// # Errors
/// A provider that cannot start, or a part that ended by itself.
pub async fn run_controllers(
    flags: &Flags,
    client: Client,
    provider: Arc<dyn CloudProvider>,
    metrics: Metrics,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    // Parts stop in this order, each when its token is cancelled: controllers, then what they work with.
    let stop_support = CancellationToken::new();
    let _support_ends_with_us = stop_support.clone().drop_guard();

    let starting = provider.start(StartContext::new(stop_support.clone(), &flags.cluster_name));
    match stop.run_until_cancelled(starting).await {
        None => return Ok(()),
        Some(started) => started.map_err(|error| {
            anyhow!("cloud provider {} cannot start: {}", provider.name(), error.report())
        })?,
    }
    let cloud = Cloud::new(provider, metrics.clone());
    let (events, event_writer) = event_recorder(client.clone(), metrics.clone());
    let nodes = NodeStore::new();
    let writer = NodeWriter::new(client.clone());

    let mut support = JoinSet::new();
    support.spawn(watch_nodes(client.clone(), nodes.clone(), stop_support.clone()));
    support.spawn(event_writer.run(stop_support.clone()));

    let mut controllers = JoinSet::new();
    if !cloud.has_instances() {
        tracing::warn!("the cloud provider does not support instances: the node controllers do not start");
    } else {
        if flags.enables(NODE_CONTROLLER) {
            let options = NodeControllerOptions {
                concurrent_syncs: usize::try_from(flags.concurrent_node_syncs).unwrap_or(1),
                status_update_frequency: flags.node_status_update_frequency,
            };
            let controller =
                NodeController::new(nodes.clone(), cloud.clone(), writer, &events, metrics.clone(), options);
            controllers.spawn(controller.run(stop.clone()));
            tracing::info!(controller = NODE_CONTROLLER, "started");
        }
        if flags.enables(NODE_LIFECYCLE_CONTROLLER) {
            let options = NodeLifecycleOptions {
                monitor_period: flags.node_monitor_period,
                deletion_grace_period: flags.node_deletion_grace_period,
                deletion_minimum_age: flags.node_deletion_minimum_age,
                breaker: BreakerLimits {
                    count: flags.node_deletion_breaker_count,
                    percent: flags.node_deletion_breaker_percent,
                },
            };
            let controller = NodeLifecycleController::new(nodes, cloud, client, &events, metrics, options);
            controllers.spawn(controller.run(stop.clone()));
            tracing::info!(controller = NODE_LIFECYCLE_CONTROLLER, "started");
        }
    }

    let ended_early = tokio::select! {
        () = stop.cancelled() => false,
        Some(_) = controllers.join_next() => !stop.is_cancelled(),
        Some(_) = support.join_next() => !stop.is_cancelled(),
    };
    // Only a panic ends a part by itself: better a restart than a daemon that does half of its work.
    if ended_early {
        return Err(anyhow!("a part of the daemon ended by itself"));
    }
    let drained = async { while controllers.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
        tracing::warn!("writes under way did not end within {DRAIN_TIMEOUT:?}");
    }
    stop_support.cancel();
    while support.join_next().await.is_some() {}
    tracing::info!("stopped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            ("https://u:hunter2@api:6443/path", "https://api:6443"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("https://api", "https://api"),
        ] {
            assert_eq!(without_credentials(&url.parse().expect("a URL")), shown);
        }
    }
}
