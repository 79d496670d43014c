//! The loop of a gate: looks for the Leases, holds them, and has the controllers work meanwhile.

use std::{collections::BTreeSet, pin::pin, sync::Arc};

use basics::LogOnce;
use component::{
    api_client::ControllerClients,
    debug_state::DebugState,
    events::{EventObject, EventRecorder, EventType},
    health::{Concerns, HealthChecks},
    inspection::Inspection,
    leader_election::{ElectionMetrics, Elector, Fence, LeaderElectionOptions},
};
use controller_kit::clients::TermFence;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::{
    ForeignWrite, Part, PartFence, PartTerm, QUIET, Writers,
    foreign::Report,
    held::Held,
    places::Places,
    state::{Phase, State},
};

/// The reason of the event about a manager that writes without an election.
const FOREIGN_MANAGER: &str = "ForeignManager";

/// What flags say to a gate.
#[derive(Clone, Debug)]
pub struct GateOptions {
    /// The daemon's own election. The gate takes its identity, its durations and its namespace, which is where a Lease is
    /// held as long as the Go manager has no namespace.
    pub election: LeaderElectionOptions,
    /// The namespace whose objects the part works on. `None`: all of them.
    pub namespace: Option<String>,
    /// Nothing is written, so no Lease is held, and the part does nothing: each of its steps builds on what the one before has
    /// written, and workload clusters know no dry run.
    pub dry_run: bool,
    /// The field manager of this program's writes: the program's name, as the API server reads it from the user agent.
    pub field_manager: String,
}

/// What a gate works with.
#[derive(Clone)]
pub struct Gate {
    /// The part.
    pub part: &'static Part,
    /// From flags.
    pub options: GateOptions,
    /// Until when the daemon leads.
    pub fence: TermFence,
    /// The client for Leases, whose renewals must not queue behind other requests.
    pub election: Client,
    /// The clients of the part's controllers. They end with the daemon's term, and with that of the part.
    pub clients: ControllerClients,
    /// For the events of the gate and of the controllers.
    pub events: EventRecorder,
    /// `source.component` of these events.
    pub events_from: &'static str,
    /// The metrics of elections.
    pub metrics: ElectionMetrics,
    /// For the check of `/readyz` that the part works, called after the part with `-lease` at the end.
    pub health: HealthChecks,
    /// For the state of the part, called after the part with `-lease` at the end.
    pub debug_state: DebugState,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate")
            .field("part", &self.part.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// How a term ended.
enum End {
    /// A Lease was lost.
    Lost,
    /// The Leases to hold are others.
    Moved,
    /// The controllers ended by themselves or because the daemon stops.
    Ended(cloudprovider::Result<()>),
}

/// Runs the controllers of a part whenever it holds its Leases, until `stop` is cancelled. Then they finish what is under way,
/// and the Leases are released.
///
/// `controllers` is called for each term. Its token is cancelled when the daemon stops. Where the term ends by itself, its future
/// is dropped.
///
/// # Errors
/// What the controllers return. The Leases are not released then, since something of the controllers may go on.
pub async fn run<F>(
    gate: Gate,
    stop: CancellationToken,
    inspection: Inspection,
    mut controllers: F,
) -> cloudprovider::Result<()>
where
    F: FnMut(PartTerm, CancellationToken, Inspection) -> BoxFuture<'static, cloudprovider::Result<()>> + Send,
{
    let state = State::new(gate.part, &gate.options.election.identity);
    gate.show(&state);
    let mut first = Some(inspection);
    let ended = loop {
        let mut own = first.take().unwrap_or_else(|| gate.inspection());
        if gate.options.dry_run {
            state.set(Phase::DryRun);
            tracing::info!(part = gate.part.name, "dry run: the lifecycle controllers do nothing");
            beside(&mut own, &state, stop.cancelled()).await;
            break Ok(());
        }
        let Some(namespaces) = gate.find(&state, &mut own, &stop).await else { break Ok(()) };
        let term = gate.term_in(&namespaces, &state, own, &stop, &mut controllers);
        match Box::pin(term).await {
            None if stop.is_cancelled() => break Ok(()),
            None | Some(End::Lost | End::Moved) => {}
            Some(End::Ended(ended)) => break ended,
        }
    };
    state.set(Phase::Ended);
    ended
}

impl Gate {
    /// The namespaces whose Leases the part has to hold. `None`: the daemon stops.
    async fn find(
        &self,
        state: &State,
        inspection: &mut Inspection,
        stop: &CancellationToken,
    ) -> Option<BTreeSet<String>> {
        state.set(Phase::Looks(None));
        let places = self.places();
        let mut failures = LogOnce::default();
        let failed = |why: String| {
            if failures.begins(&()) {
                tracing::warn!(part = self.part.name, "does not begin, trying again: {why}");
            }
            state.set(Phase::Looks(Some(why)));
        };
        let looking = beside(inspection, state, places.look_until_known(failed));
        let found = stop.run_until_cancelled(looking).await?;
        let namespaces = found.namespaces(self.part, &places.own);
        let ignored = found.ignored(self.part, &places.own);
        if !ignored.is_empty() {
            tracing::warn!(
                part = self.part.name,
                namespaces = ignored.iter().cloned().collect::<Vec<_>>().join(", "),
                "Deployments that look like a manager of Cluster API are ignored: label their namespaces \
                 cluster.x-k8s.io/provider={} to have their Leases held",
                self.part.provider.label
            );
        }
        state.begin(ignored.into_iter().collect());
        Some(namespaces)
    }

    /// Holds the Leases of these namespaces and runs the controllers. `None`: no term began, since the daemon stops or the
    /// namespaces changed.
    async fn term_in<F>(
        &self,
        namespaces: &BTreeSet<String>,
        state: &State,
        mut inspection: Inspection,
        stop: &CancellationToken,
        controllers: &mut F,
    ) -> Option<End>
    where
        F: FnMut(PartTerm, CancellationToken, Inspection) -> BoxFuture<'static, cloudprovider::Result<()>>
            + Send,
    {
        let places = self.places();
        let mut moved = pin!(places.changed(namespaces));
        let round = stop.child_token();
        let candidate = |namespace: &str| {
            let elector = self.candidate(namespace);
            state.show(elector.status());
            elector
        };
        let acquiring = async {
            let all = Held::all(namespaces.iter().map(String::as_str), candidate, &round);
            let mut acquiring = pin!(beside(&mut inspection, state, all));
            tokio::select! {
                held = &mut acquiring => held,
                () = &mut moved => {
                    round.cancel();
                    acquiring.await
                }
            }
        };
        let mut held = Box::pin(acquiring).await?;
        if round.is_cancelled() {
            held.release().await;
            return None;
        }
        let since = tokio::select! {
            biased;
            () = held.renew() => None,
            since = self.server_time(namespaces) => Some(since),
        };
        let Some(since) = since else {
            held.abandon();
            return Some(End::Lost);
        };
        let report = self.report(namespaces);
        let term = self.term(held.fences(), since, state, Some(Arc::new(report)));
        state.set(Phase::Works);
        let mut work = controllers(term, round.clone(), inspection);
        let end = tokio::select! {
            biased;
            () = held.renew() => End::Lost,
            () = &mut moved => End::Moved,
            ended = &mut work => End::Ended(ended),
        };
        // Ends the controllers at once. A request of theirs may still be under way, so the Leases are not released then: they
        // expire, or this process takes them again.
        drop(work);
        match &end {
            End::Ended(Ok(())) => held.release().await,
            _ => held.abandon(),
        }
        match &end {
            End::Ended(_) => {}
            End::Lost => tracing::warn!(part = self.part.name, "the controllers ended: a lease was lost"),
            End::Moved => tracing::info!(
                part = self.part.name,
                "the controllers start again: the namespaces of Cluster API's manager changed"
            ),
        }
        Some(end)
    }

    /// What is done where another manager writes without a Lease.
    fn report(&self, namespaces: &BTreeSet<String>) -> impl Fn(&ForeignWrite) + Send + Sync + 'static {
        let (part, events) = (self.part, self.events.clone());
        let leases: Vec<_> =
            namespaces.iter().map(|namespace| EventObject::lease(namespace, part.lease, "")).collect();
        move |write| {
            let minutes = QUIET.as_secs() / 60;
            let namespace = &write.namespace;
            tracing::error!(
                part = part.name,
                namespace,
                "stopped there for at least {minutes} min: a manager of Cluster API works without the lease {}: {write}",
                part.lease
            );
            for lease in &leases {
                let message = format!(
                    "{} stopped in namespace {namespace} for at least {minutes} min: a manager works without holding this \
                     lease: {write}; stop it, or let it run with --leader-elect",
                    part.name
                );
                events.record(lease.clone(), EventType::Warning, FOREIGN_MANAGER, message);
            }
        }
    }

    fn term(&self, leases: Vec<Fence>, since: Timestamp, state: &State, report: Option<Report>) -> PartTerm {
        let fence = PartFence::new(self.fence.clone(), leases, state.seen.clone());
        let clients = self.clients.clone().map(|client| fence.guard(client));
        PartTerm {
            part: self.part,
            events: self.events.for_component(self.events_from, clients.client.clone()),
            clients,
            fence,
            since,
            writers: Writers::new(self.part, &self.options.field_manager, since, state.seen.clone(), report),
        }
    }

    fn candidate(&self, namespace: &str) -> Elector {
        let options = LeaderElectionOptions {
            namespace: namespace.to_owned(),
            name: self.part.lease.to_owned(),
            ..self.options.election.clone()
        };
        let client = self.fence.guard(self.election.clone());
        Elector::new(client, options, &self.events, self.metrics.clone())
    }

    /// The API server's time of the write that acquired a Lease. This machine's time where the Lease does not say.
    async fn server_time(&self, namespaces: &BTreeSet<String>) -> Timestamp {
        let Some(namespace) = namespaces.first() else { return Timestamp::now() };
        let leases: Api<Lease> = Api::namespaced(self.election.clone(), namespace);
        let lease = leases.get_metadata(self.part.lease).await.ok();
        let entries = lease.and_then(|lease| lease.metadata.managed_fields).unwrap_or_default();
        let last = entries.into_iter().filter_map(|entry| entry.time).map(|time| time.0).max();
        last.unwrap_or_else(Timestamp::now)
    }

    fn places(&self) -> Places {
        Places {
            client: self.clients.unthrottled.clone(),
            part: self.part,
            own: self.options.election.namespace.clone(),
        }
    }

    fn inspection(&self) -> Inspection {
        Inspection::register(self.part.name, &self.health, &self.debug_state)
    }

    fn show(&self, state: &State) {
        let name = self.part.check_name();
        let checked = state.clone();
        self.health.add(&name, Concerns::Readiness, move || checked.check());
        let shown = state.clone();
        self.debug_state.share(&name, move || shown.to_json());
    }
}

/// Awaits something that may take long, and answers questions about the part meanwhile.
async fn beside<T>(inspection: &mut Inspection, state: &State, wait: impl Future<Output = T>) -> T {
    let mut wait = pin!(wait);
    loop {
        tokio::select! {
            done = &mut wait => return done,
            question = inspection.question() => question.answer(state.to_json()),
        }
    }
}

#[cfg(test)]
mod tests;
