//! The daemon: puts client, provider and controllers together and runs them until it is told to stop.

mod configz;
mod elected;
mod parts;
mod providers;
mod serving_options;
mod work;

use std::sync::Arc;

use anyhow::anyhow;
use cloudprovider::{CloudProvider, Registry, ServiceAccess};
use component::{
    api_client::{ApiServer, ClientOptions, Location, wait_for_api_server},
    command_line::FeatureMetrics,
    debug_state::DebugState,
    events::{EventObject, EventRecorder, event_recorder},
    health::{Concerns, HealthChecks},
    logging::LogLevel,
    metrics::Metrics,
    reload::ReloadReporter,
    serving::{Serving, ServingOptions, Shown},
};
use controller_kit::{
    clients::Clients,
    nodes::{NodeStore, protobuf, watch_nodes},
    secrets::ClusterSecrets,
    services::{ClusterServices, ServiceStore, Services, watch_services},
};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use crate::metrics::new_metrics;
pub use elected::run_elected;
pub use parts::Parts;
pub use providers::ProviderParts;
pub(crate) use providers::{fault_of_kinds, no_machines};

use providers::{Providers, Surroundings};

#[cfg(feature = "serving")]
use crate::webhooks::ConversionWebhook;
use crate::{
    controllers::{CONTROLLERS, ControllerDescriptor},
    flags::{Flags, SERVICE},
};

/// The component's name: on the pages of the secure port, in the names of its own certificate's files, and in
/// `source.component` of events about the daemon as a whole.
const COMPONENT: &str = "cloud-controller-manager";

/// Makes the provider of `--cloud-provider` and checks its configuration. Calls no cloud and no API server. What is odd in the
/// configuration is logged.
///
/// # Errors
/// No such flag, an unreadable file, an unknown provider, or every fault in its configuration.
pub fn create_provider(flags: &Flags, registry: &Registry) -> anyhow::Result<Arc<dyn CloudProvider>> {
    let parts = ProviderParts::of_cloud_provider(flags, registry)?;
    Ok(parts.ok_or_else(|| anyhow!("--cloud-provider is not given"))?.provider)
}

/// Makes the providers whose machines are served, as [`create_provider`] does.
///
/// # Errors
/// As [`create_provider`], and a provider that has no machines.
pub fn create_machine_providers(
    flags: &Flags,
    registry: &Registry,
) -> anyhow::Result<Vec<Arc<dyn CloudProvider>>> {
    let named = flags.named_machines();
    let main = named.of_main.then(|| create_provider(flags, registry)).transpose()?;
    let others = ProviderParts::of_others(&named, registry)?.into_iter().map(|parts| parts.provider);
    Ok(main.into_iter().chain(others).collect())
}

/// Runs the daemon until `stop` is cancelled, leading or standing by as the flags say.
///
/// # Errors
/// What waiting cannot help: a file or a port that cannot be used, as [`Misconfigured`]; a provider that cannot start; an API
/// server that is away or refuses us when the controllers are to start; [`PartEnded`], and
/// [`Lost`](component::leader_election::Lost). Each is the error's root.
pub async fn run(flags: &Flags, registry: &Registry, stop: CancellationToken) -> anyhow::Result<()> {
    let provider = ProviderParts::of_cloud_provider(flags, registry)?;
    let machine_providers = ProviderParts::of_machines(flags, registry)?;
    let metrics = new_metrics()?;
    metrics.get::<FeatureMetrics>()?.show(&flags.generic.feature_gates);
    let location = Location::new(flags.misc.kubeconfig.clone(), &flags.misc.master);
    let options = ClientOptions {
        limit: flags.generic.request_limit(),
        service_accounts: flags.generic.use_service_account_credentials,
        dry_run: flags.misc.dry_run,
    };
    // Connecting may run a credential plugin, and that may take long.
    let connecting = Box::pin(ApiServer::new(location, options, metrics.get()?));
    let Some(api_server) = stop.run_until_cancelled(connecting).await else { return Ok(()) };
    let api_server = api_server.map_err(Misconfigured)?;
    let clients = Clients::of(&api_server);
    let names =
        |all: &[ProviderParts]| all.iter().map(|parts| parts.provider.name()).collect::<Vec<_>>().join(",");
    let cloud_provider = names(provider.as_slice());
    match names(&machine_providers) {
        others if others.is_empty() => {
            tracing::info!(api_server = api_server.url(), cloud_provider, "starting");
        }
        others => tracing::info!(
            api_server = api_server.url(),
            cloud_provider,
            machine_providers = others,
            "starting"
        ),
    }
    let main = provider.iter().filter(|_| flags.served_machines().of_main);
    let served = main.chain(&machine_providers);
    let machine_types = served.filter_map(|parts| registry.machines(parts.provider.name())).collect();
    let parts = Parts {
        provider,
        machine_providers,
        api_server: Some(api_server),
        machine_types,
        metrics,
        serving: Some(ServingOptions::from(flags)),
        set_verbosity: Some(Arc::new(|level| {
            LogLevel::set(i32::try_from(level).unwrap_or(i32::MAX));
            Ok(())
        })),
        ..Parts::without_provider(clients)?
    };
    if flags.misc.dry_run {
        tracing::warn!("dry run: nothing is written, and no lease is held; another leader may work");
    }
    if flags.leader_election.enabled && !flags.misc.dry_run {
        Box::pin(run_elected(flags, parts, stop)).await
    } else {
        Box::pin(run_controllers(flags, parts, stop)).await
    }
}

/// Runs the controllers that the flags enable, over any client and provider, until `stop` is cancelled. There
/// is no leader election, so no other process may run them.
///
/// # Errors
/// [`Misconfigured`] for a port or a file of the secure port that cannot be used, a provider that cannot
/// start, an API server that is unreachable for ten seconds, or [`PartEnded`].
pub async fn run_controllers(flags: &Flags, parts: Parts, stop: CancellationToken) -> anyhow::Result<()> {
    let starting = Base::start(CONTROLLERS, flags, &parts, &stop);
    let Some((base, mut support)) = starting.await? else { return Ok(()) };
    let stop = stop.child_token();
    let work = async {
        if base.meet_api_server(&stop).await?.is_none() {
            return anyhow::Ok(Work::NONE);
        }
        base.work(flags, |_| true, &base.clients.controllers.without_election(), &stop).await
    };
    let work = support.beside(work, &stop).await;
    support.end().await;
    work??.outcome()
}

/// What the controllers work with, on a standby too.
struct Base {
    table: &'static [ControllerDescriptor],
    clients: Clients,
    api_server: Option<ApiServer>,
    providers: Arc<Providers>,
    nodes: NodeStore,
    services: Services,
    events: EventRecorder,
    metrics: Metrics,
    health: HealthChecks,
    debug_state: DebugState,
}

/// What runs beside the controllers, on a standby too.
struct Support {
    parts: JoinSet<()>,
    providers: Arc<Providers>,
    serving: Option<Serving>,
    /// Stops these parts. They stop after the controllers.
    stop: CancellationToken,
    _ends_with_us: DropGuard,
}

/// How the controllers ended.
#[derive(Clone, Copy)]
struct Work {
    /// Whether they ended because one of them ended by itself.
    ended_early: bool,
    /// Whether all of them ended, and nothing of what they did goes on. Only then another leader may begin.
    all_ended: bool,
}

impl Work {
    /// No controller was started.
    const NONE: Self = Self { ended_early: false, all_ended: true };

    fn outcome(self) -> anyhow::Result<()> {
        if self.ended_early { Err(PartEnded.into()) } else { Ok(()) }
    }
}

impl Base {
    /// Starts it, without waiting for an API server. `None`: `stop` was cancelled first.
    async fn start(
        table: &'static [ControllerDescriptor],
        flags: &Flags,
        parts: &Parts,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<(Self, Support)>> {
        let Parts { clients, provider, machine_providers, metrics, health, debug_state, .. } = parts.clone();
        let stop_support = CancellationToken::new();
        let ends_with_us = stop_support.clone().drop_guard();
        let election = &flags.leader_election;
        let daemon = EventObject::lease(&election.resource_namespace, &election.resource_name, "");
        let (events, event_writer) = event_recorder(COMPONENT, clients.main.clone(), daemon, metrics.get()?);
        // The port opens first, so that a port in use is reported at once, and health is served from the
        // beginning.
        let serving = match stop.run_until_cancelled(Box::pin(start_serving(parts, &events, stop))).await {
            None => return Ok(None),
            Some(serving) => serving.map_err(Misconfigured)?,
        };
        #[cfg(feature = "serving")]
        let webhook = {
            let reporter = ReloadReporter::new(metrics.get()?, Some(events.clone()));
            let starting =
                ConversionWebhook::start(flags, &parts.machine_types, &clients.main, &health, &reporter);
            match stop.run_until_cancelled(Box::pin(starting)).await {
                None => return Ok(None),
                Some(webhook) => webhook.map_err(Misconfigured)?,
            }
        };
        let services = ServiceStore::new();
        let (nodes, mut support) = (NodeStore::new(), JoinSet::new());
        let url = parts.api_server.as_ref().map(ApiServer::url);
        let access = ClusterServices::new(clients.main.clone(), clients.informers.clone(), services.clone())
            .with_users(nodes.clone(), url.as_deref());
        let access = Arc::new(access);
        let surroundings = Surroundings {
            flags,
            secrets: Arc::new(ClusterSecrets::new(clients.informers.clone())),
            services: Arc::clone(&access) as Arc<dyn ServiceAccess>,
            nodes: &nodes,
            metrics: &metrics,
            events: &events,
            debug_state: &debug_state,
            stop: &stop_support,
        };
        let starting = Box::pin(Providers::start(provider, machine_providers, &surroundings, &mut support));
        let Some(providers) = stop.run_until_cancelled(starting).await else { return Ok(None) };
        let providers = Arc::new(providers?);
        if providers.has_nodes() {
            let content_type = &flags.generic.kube_api_content_type;
            let informers = protobuf::client_for(content_type, clients.informers.clone());
            support.spawn(watch_nodes(informers, nodes.clone(), stop_support.clone()));
        }
        let services = Services { store: services, access: Arc::clone(&access) };
        let runs = |row: &ControllerDescriptor| {
            flags.enables(row.names.name) && providers.of(row).iter().any(|cloud| row.can_run_on(cloud))
        };
        if table.iter().any(|row| row.names == SERVICE && runs(row)) {
            let client = clients.informers.clone();
            support.spawn(watch_services(client, services.store.clone(), stop_support.clone()));
        }
        if let Some(api_server) = parts.api_server.clone() {
            let reporter = ReloadReporter::new(metrics.get()?, Some(events.clone()));
            support.spawn(api_server.follow(reporter, stop_support.clone()));
        }
        support.spawn(event_writer.run(stop_support.clone()));
        #[cfg(feature = "serving")]
        if let Some(webhook) = webhook {
            support.spawn(webhook.run(stop_support.clone()));
        }
        let support = Support {
            parts: support,
            providers: Arc::clone(&providers),
            serving,
            stop: stop_support,
            _ends_with_us: ends_with_us,
        };
        let api_server = parts.api_server.clone();
        let base = Self {
            table,
            clients,
            api_server,
            providers,
            nodes,
            services,
            events,
            metrics,
            health,
            debug_state,
        };
        Ok(Some((base, support)))
    }

    /// Waits ten seconds for the API server before the controllers start, as upstream. `None` if `stop` was
    /// cancelled first.
    async fn meet_api_server(&self, stop: &CancellationToken) -> anyhow::Result<Option<()>> {
        let Some(api_server) = &self.api_server else { return Ok(Some(())) };
        let url = api_server.url();
        // Without Nodes there is no right to list them. Every account may list the versions.
        let (path, resources) =
            if self.providers.has_nodes() { ("/api/v1/nodes", "nodes") } else { ("/api", "API versions") };
        let waiting = wait_for_api_server(&self.clients.informers, &url, path, resources);
        stop.run_until_cancelled(waiting).await.transpose()
    }
}

impl Support {
    /// Runs `work` to its end. A part beside it that cannot go on cancels `stop`, and the error is about that part.
    async fn beside<T>(
        &mut self,
        work: impl Future<Output = T>,
        stop: &CancellationToken,
    ) -> anyhow::Result<T> {
        tokio::pin!(work);
        let serving = async {
            match &mut self.serving {
                Some(serving) => serving.failed().await,
                None => std::future::pending().await,
            }
        };
        let failure = tokio::select! {
            biased;
            done = &mut work => return Ok(done),
            Some(_) = self.parts.join_next() => None,
            failure = serving => failure,
        };
        stop.cancel();
        work.await;
        Err(failure.map_or_else(|| PartEnded.into(), |error| Misconfigured(error).into()))
    }

    /// Stops all parts. Each has some time for what it still has to write.
    async fn end(mut self) {
        self.stop.cancel();
        let parts = async { while self.parts.join_next().await.is_some() {} };
        tokio::join!(parts, self.providers.stop());
        // The port closes last. Until then it reports that the daemon is not ready.
        if let Some(serving) = self.serving {
            serving.stop().await;
        }
        tracing::info!("stopped");
    }
}

/// Opens the secure port, which serves what concerns the whole daemon.
async fn start_serving(
    parts: &Parts,
    events: &EventRecorder,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Serving>> {
    let Some(options) = &parts.serving else { return Ok(None) };
    let stop = stop.clone();
    // Name and message are upstream's.
    parts.health.add("shutdown", Concerns::Readiness, move || {
        if stop.is_cancelled() { Err("process is shutting down".to_owned()) } else { Ok(()) }
    });
    let shown = Shown {
        metrics: parts.metrics.clone(),
        health: parts.health.clone(),
        debug_state: parts.debug_state.clone(),
        set_verbosity: parts.set_verbosity.clone(),
    };
    let reporter = ReloadReporter::new(parts.metrics.get()?, Some(events.clone()));
    Serving::start(options, shown, &reporter).await
}

/// A flag is well-formed, but the file, port or address that it names cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub struct Misconfigured(anyhow::Error);

/// A part of the daemon ended by itself. Only a panic does that. The daemon ends then, since a restart is better than a daemon
/// that does half of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part of the daemon ended by itself")]
pub struct PartEnded;

#[cfg(test)]
mod tests;
