//! The daemon: puts client, provider and controllers together and runs them until it is told to stop.

mod configz;
mod elected;
mod serving_options;

use std::{sync::Arc, time::Duration};

use anyhow::anyhow;
use cloudprovider::{CloudProvider, Registry, SecretSource, ServiceAccess, StartContext};
use component::{
    api_client::{ApiServer, ClientOptions, Location, wait_for_api_server},
    command_line::FeatureMetrics,
    debug_state::DebugState,
    events::{EventObject, EventRecorder, event_recorder},
    files::FilesRead,
    health::{Concerns, HealthChecks},
    inspection::Inspection,
    logging::LogLevel,
    metrics::Metrics,
    reload::ReloadReporter,
    serving::{Serving, ServingOptions, SetVerbosity, Shown},
};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use crate::metrics::new_metrics;
pub use elected::run_elected;

use crate::{
    clients::{Clients, TermClients},
    cloud::{Cloud, Started},
    cloud_config::{CloudConfig, Follower},
    controllers::{CONTROLLERS, Capability, ControllerContext, ControllerDescriptor, ControllerMetrics},
    flags::{ControllerNames, Flags, ROUTE_CONTROLLER, SERVICE},
    nodes::{NodeStore, protobuf, watch_nodes},
    secrets::ClusterSecrets,
    services::{ClusterServices, ServiceStore, Services, watch_services},
};

/// The component's name: on the pages of the secure port, in the names of its own certificate's files, and in
/// `source.component` of events about the daemon as a whole.
const COMPONENT: &str = "cloud-controller-manager";

/// How long writes under way may take when the daemon stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a provider may take to start. It does not wait for its cloud then.
const PROVIDER_START_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes the provider that the flags name and checks its configuration. Calls no cloud and no API server. What is odd in the
/// configuration is logged.
///
/// # Errors
/// An unreadable file, an unknown provider, or every fault in its configuration.
pub fn create_provider(flags: &Flags, registry: &Registry) -> anyhow::Result<Arc<dyn CloudProvider>> {
    CloudConfig::new(flags, registry).create(&FilesRead::new())
}

/// Runs the daemon until `stop` is cancelled, leading or standing by as the flags say.
///
/// # Errors
/// What waiting cannot help: a file or a port that cannot be used, as [`Misconfigured`]; a provider that cannot start; an API
/// server that is away or refuses us when the controllers are to start; [`PartEnded`], and
/// [`Lost`](component::leader_election::Lost). Each is the error's root.
pub async fn run(flags: &Flags, registry: &Registry, stop: CancellationToken) -> anyhow::Result<()> {
    let (cloud_config, files) = (CloudConfig::new(flags, registry), FilesRead::new());
    let provider = cloud_config.create(&files)?;
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
    tracing::info!(api_server = api_server.url(), cloud_provider = provider.name(), "starting");
    let parts = Parts {
        api_server: Some(api_server),
        cloud_config: Some((cloud_config, files)),
        metrics,
        serving: Some(ServingOptions::from(flags)),
        set_verbosity: Some(Arc::new(|level| {
            LogLevel::set(i32::try_from(level).unwrap_or(i32::MAX));
            Ok(())
        })),
        ..Parts::with(clients, provider)?
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

/// What the daemon is put together from. [`run`] takes it from the flags, and a test as it needs it.
#[derive(Clone)]
pub struct Parts {
    /// The clients of the parts.
    pub clients: Clients,
    /// Where the clients come from. If it is given, the daemon waits for it and follows changes of its configuration.
    pub api_server: Option<ApiServer>,
    /// The cloud provider, not started yet.
    pub provider: Arc<dyn CloudProvider>,
    /// What the provider was made from, and the files that were read for that. Changes of them are followed.
    pub cloud_config: Option<(CloudConfig, FilesRead)>,
    /// The metrics.
    pub metrics: Metrics,
    /// Where parts register their health checks.
    pub health: HealthChecks,
    /// Where parts register what they show on `/debug/state`.
    pub debug_state: DebugState,
    /// The options of the secure port. `None` for no secure port.
    pub serving: Option<ServingOptions>,
    /// For the secure port: changes the verbosity of the log.
    pub set_verbosity: Option<SetVerbosity>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl Parts {
    /// Uses one client for everything, and makes all other parts new.
    ///
    /// # Errors
    /// As [`new_metrics`].
    pub fn new(client: Client, provider: Arc<dyn CloudProvider>) -> anyhow::Result<Self> {
        Self::with(Clients::same(&client), provider)
    }

    /// Uses these clients, and makes all other parts new.
    ///
    /// # Errors
    /// As [`new_metrics`].
    pub fn with(clients: Clients, provider: Arc<dyn CloudProvider>) -> anyhow::Result<Self> {
        Ok(Self {
            clients,
            api_server: None,
            provider,
            cloud_config: None,
            metrics: new_metrics()?,
            health: HealthChecks::new(),
            debug_state: DebugState::new(),
            serving: None,
            set_verbosity: None,
        })
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
    cloud: Cloud,
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
    cloud: Cloud,
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
        let Parts { clients, provider, cloud_config, metrics, health, debug_state, .. } = parts.clone();
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
        let stop_provider = stop_support.child_token();
        let secrets: Arc<dyn SecretSource> = Arc::new(ClusterSecrets::new(clients.informers.clone()));
        let services = ServiceStore::new();
        let access = ClusterServices::new(clients.main.clone(), clients.informers.clone(), services.clone());
        let access = Arc::new(access);
        let context = StartContext::new(stop_provider, &flags.generic.cluster_name)
            .with_secrets(Arc::clone(&secrets))
            .with_services(Arc::clone(&access) as Arc<dyn ServiceAccess>)
            .with_takeover_after(election.takeover_after());
        let name = provider.name().to_owned();
        let starting = Box::pin(Started::start(provider, context, PROVIDER_START_TIMEOUT));
        let Some(started) = stop.run_until_cancelled(starting).await else { return Ok(None) };
        let started =
            started.map_err(|error| anyhow!("cloud provider {name} cannot start: {}", error.report()))?;
        let cloud = Cloud::new(started, metrics.get()?)
            .with_labels(flags.controllers.cloud_node.node_labels.0.clone());
        debug_state.share("provider", {
            let cloud = cloud.clone();
            move || capabilities(&*cloud.provider())
        });
        let nodes = NodeStore::new();
        let mut support = JoinSet::new();
        let informers = protobuf::client_for(&flags.generic.kube_api_content_type, clients.informers.clone());
        support.spawn(watch_nodes(informers, nodes.clone(), stop_support.clone()));
        let services = Services { store: services, access: Arc::clone(&access) };
        if table.iter().any(|row| row.names == SERVICE && row.can_run(flags, &cloud)) {
            let client = clients.informers.clone();
            support.spawn(watch_services(client, services.store.clone(), stop_support.clone()));
        }
        if let Some(api_server) = parts.api_server.clone() {
            let reporter = ReloadReporter::new(metrics.get()?, Some(events.clone()));
            support.spawn(api_server.follow(reporter, stop_support.clone()));
        }
        support.spawn(event_writer.run(stop_support.clone()));
        if let Some((config, files)) = cloud_config {
            let reporter = ReloadReporter::new(metrics.get()?, Some(events.clone()));
            let (cloud, nodes, name) = (cloud.clone(), nodes.clone(), &flags.generic.cluster_name);
            let follower = Follower::new(config, files, cloud, nodes, name, reporter)
                .with_secrets(secrets)
                .with_services(access)
                .with_takeover_after(election.takeover_after());
            let status = follower.status();
            debug_state.share("cloud-config", move || status.to_json());
            support.spawn(follower.run(stop_support.clone()));
        }
        let support = Support {
            parts: support,
            cloud: cloud.clone(),
            serving,
            stop: stop_support,
            _ends_with_us: ends_with_us,
        };
        let api_server = parts.api_server.clone();
        let base =
            Self { table, clients, api_server, cloud, nodes, services, events, metrics, health, debug_state };
        Ok(Some((base, support)))
    }

    /// Waits ten seconds for the API server before the controllers start, as upstream. `None` if `stop` was
    /// cancelled first.
    async fn meet_api_server(&self, stop: &CancellationToken) -> anyhow::Result<Option<()>> {
        let Some(api_server) = &self.api_server else { return Ok(Some(())) };
        let url = api_server.url();
        let waiting = wait_for_api_server(&self.clients.informers, &url, "/api/v1/nodes", "nodes");
        stop.run_until_cancelled(waiting).await.transpose()
    }

    /// Runs those of the enabled controllers that `runs` picks until `stop` is cancelled. Then they finish what is under way,
    /// and their last events are written. A controller that ends by itself cancels `stop`. Dropping the future ends them at
    /// once. They write with `clients`.
    async fn work(
        &self,
        flags: &Flags,
        runs: impl Fn(&str) -> bool,
        clients: &TermClients,
        stop: &CancellationToken,
    ) -> anyhow::Result<Work> {
        let mut controllers =
            self.controllers(flags, |name| flags.enables(name) && runs(name), clients, stop)?;
        let mut all_ended = true;
        let ended_early = tokio::select! {
            () = stop.cancelled() => false,
            Some(ended) = controllers.join_next() => {
                all_ended &= nothing_goes_on(ended);
                !stop.is_cancelled()
            }
        };
        stop.cancel();
        let drained = async {
            while let Some(ended) = controllers.join_next().await {
                all_ended &= nothing_goes_on(ended);
            }
        };
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            all_ended = false;
            tracing::warn!("writes under way did not end within {DRAIN_TIMEOUT:?}");
        }
        // The controllers' events are written with the same clients, which end with the term.
        self.events.flush().await;
        Ok(Work { ended_early, all_ended })
    }

    fn controllers(
        &self,
        flags: &Flags,
        runs: impl Fn(&str) -> bool,
        clients: &TermClients,
        stop: &CancellationToken,
    ) -> anyhow::Result<JoinSet<cloudprovider::Result<()>>> {
        let mut controllers = JoinSet::new();
        let enabled = || self.table.iter().filter(|controller| runs(controller.names.name));
        for capability in Capability::ALL.into_iter().filter(|capability| !capability.is_of(&self.cloud)) {
            let without = enabled().filter(|row| row.needs == Some(capability));
            let without = without.map(|row| row.names.name).collect::<Vec<_>>().join(", ");
            if !without.is_empty() {
                let what = capability.what();
                tracing::warn!(
                    controllers = without,
                    "not started: the cloud provider does not support {what}"
                );
            }
        }
        if let Some(flag) = flags.switched_off_by(ROUTE_CONTROLLER).filter(|flag| *flag != "--controllers") {
            tracing::info!(controller = ROUTE_CONTROLLER, "not started: {flag}");
        }
        let running = self.metrics.get::<ControllerMetrics>()?;
        let mut pause = Duration::ZERO;
        for controller in enabled().filter(|row| row.needs.is_none_or(|needs| needs.is_of(&self.cloud))) {
            let shared = (&self.nodes, &self.services, &self.cloud);
            let run = (controller.build)(ControllerContext::new(
                controller,
                flags,
                shared,
                (&self.metrics, &self.health),
                &self.events,
                clients,
            ))?;
            let (ControllerNames { name, alias, .. }, running) = (controller.names, running.clone());
            let (health, debug_state) = (self.health.clone(), self.debug_state.clone());
            let begin = move |stop| {
                let inspection = Inspection::register(name, &health, &debug_state);
                let runs = running.runs(alias);
                tracing::info!(controller = name, "started");
                async move {
                    let ended = run(stop, inspection).await;
                    drop(runs);
                    ended
                }
            };
            let stop = stop.clone();
            if controllers.is_empty() {
                controllers.spawn(begin(stop));
            } else {
                // Upstream pauses after each start, so the pauses add up.
                pause = pause.saturating_add(start_pause(flags));
                controllers.spawn(async move {
                    if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                        return Ok(());
                    }
                    // The health check is registered only here: a controller that does not run yet would
                    // not answer it and would count as hanging.
                    begin(stop).await
                });
            }
        }
        Ok(controllers)
    }
}

/// Whether nothing goes on of what a controller did that ended like this.
fn nothing_goes_on(ended: Result<cloudprovider::Result<()>, JoinError>) -> bool {
    match ended {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(error = error.report(), "what only a leader does may go on for some seconds");
            false
        }
        // After a panic nobody has ended what it did.
        Err(_) => false,
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
        tokio::join!(parts, self.cloud.stop());
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

/// `--controller-start-interval`, times a random number from 1 to 2 as upstream.
fn start_pause(flags: &Flags) -> Duration {
    let interval = flags.generic.controller_start_interval;
    interval.saturating_add(
        Duration::try_from_secs_f64(interval.as_secs_f64() * fastrand::f64()).unwrap_or_default(),
    )
}

/// What the provider can do, for `/debug/state`.
fn capabilities(provider: &dyn CloudProvider) -> Value {
    json!({
        "name": provider.name(),
        "instances": provider.instances().is_some(),
        "zones": provider.zones().is_some(),
        "loadBalancer": provider.load_balancer().is_some(),
        "routes": provider.routes().is_some(),
        "clusters": provider.clusters().is_some(),
        "machines": provider.machines().is_some(),
    })
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
