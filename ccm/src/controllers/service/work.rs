//! The work on one Service: calls of the cloud, writes and events. Runs in a task, many at once.

mod clean_up;
mod ensure;

use std::sync::Arc;

use cloudprovider::ErrorKind;
use component::events::EventRecorder;
use controller_kit::{
    cache::CachedObject as _,
    clients::TermFence,
    cloud::Cloud,
    services::{ProviderActivity, ProviderChanges, Service, ServiceWriter},
    writes::{WriteError, WrittenVersion},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    action::Action,
    events::{Happening, record},
    memory::{Memory, Standing},
    metrics::ServiceMetrics,
    nodes::Backends,
    outcome::{Failure, Outcome},
    patch,
    plan::LOOK_INTERVAL,
    status::same_status,
};

/// How often a Service is read again in one piece of work because it changed while the provider was called for it.
const MAX_READS_AGAIN: usize = 3;

/// What the tasks share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) cloud: Cloud,
    /// Closed when another leader may call the cloud.
    pub(super) fence: TermFence,
    pub(super) cluster_name: String,
    pub(super) writer: ServiceWriter,
    /// What the provider does about Services.
    pub(super) activity: ProviderActivity,
    pub(super) events: EventRecorder,
    pub(super) metrics: ServiceMetrics,
    /// `--dry-run`: the cloud is not changed. Writes have no effect, and each is logged where it is answered.
    pub(super) dry_run: bool,
    /// Cancelled when calls of the cloud are given up.
    pub(super) cut: CancellationToken,
}

/// One piece of work.
pub(super) struct Task {
    pub(super) action: Action,
    /// The Service as the watch shows it; for [`Action::DeleteOld`] as it was last.
    pub(super) service: Arc<Service>,
    /// What is remembered of it.
    pub(super) memory: Memory,
    pub(super) backends: Backends,
}

/// The end of an action before its usual end.
type Early = Outcome;

impl Shared {
    /// Does it. What is in `told` is what the cloud is told of the Service. It is newer afterwards if the API server gave it, or
    /// if the provider changed it.
    pub(super) async fn act(&self, task: &Task, told: &mut Arc<Service>) -> Outcome {
        let service = &task.service;
        let outcome = match task.action {
            Action::Ensure => self.ensure(told, &task.memory, &task.backends).await,
            Action::UpdateNodes => self.update(service, &task.backends).await,
            Action::Repair => self.repair(service, &task.memory).await,
            Action::Verify => self.verify(service, &task.memory).await,
            Action::CleanUp => self.clean_up(told, &task.memory).await,
            Action::DeleteOld => self.delete_old(service).await,
        };
        outcome.unwrap_or_else(|early| early)
    }

    async fn update(&self, service: &Service, backends: &Backends) -> Result<Outcome, Early> {
        if self.dry_run {
            say(service, &format!("tell its load balancer of {} nodes", backends.nodes.len()));
            return Ok(Outcome::Updated);
        }
        self.metrics.load_balancer_syncs.inc();
        let began = Instant::now();
        let outcome = self.update_and_look(service, backends).await;
        self.metrics.update_latency.observe(began.elapsed().as_secs_f64());
        if let Err(Outcome::Failed(_)) = outcome {
            self.metrics.node_sync_errors.inc();
        }
        outcome
    }

    async fn update_and_look(&self, service: &Service, backends: &Backends) -> Result<Outcome, Early> {
        let (cluster, content) = (&self.cluster_name, &service.content);
        let call = self.cloud.update_load_balancer(cluster, content, &backends.nodes);
        let error = match self.in_term(call).await? {
            Ok(()) if backends.nodes.is_empty() => {
                self.record(service, &Happening::NoNodes);
                return Ok(Outcome::Updated);
            }
            Ok(()) => {
                self.record(service, &Happening::UpdatedNodes);
                return Ok(Outcome::Updated);
            }
            Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => return Ok(Outcome::Updated),
            Err(error) => error,
        };
        // It is a failure only while there is a load balancer.
        match self.in_term(self.cloud.get_load_balancer(cluster, content)).await? {
            Ok(None) => return Ok(Outcome::NothingToUpdate),
            Ok(Some(_)) => {}
            Err(error) => {
                tracing::debug!(service = %service.key(), error = %error.log_report(), "the cloud cannot tell whether there is a load balancer");
            }
        }
        let failure = Failure::of_cloud("", &error);
        self.record(service, &Happening::UpdateFailed(&backends.keys, &failure.why));
        tracing::warn!(service = %service.key(), error = failure.logged, "load balancer not told of its nodes, ensuring it");
        Err(Outcome::Failed(failure))
    }

    async fn repair(&self, service: &Service, memory: &Memory) -> Result<Outcome, Early> {
        let Standing::Ensured(status) = &memory.standing else {
            return Ok(Outcome::Repaired { version: None });
        };
        let status = Some(status).filter(|status| !same_status(status, &service.content.status));
        let Some(body) = patch::repair(service, status) else {
            return Ok(Outcome::Repaired { version: None });
        };
        match self.writer.patch_status(service, body).await {
            // What the watch shows next decides. It is behind, and not looked at all the time.
            Err(error @ WriteError::Stale(_)) => {
                let failure = Failure::of_write("the service has changed meanwhile", &error);
                Err(Outcome::Failed(Failure { retry_after: Some(LOOK_INTERVAL), ..failure }))
            }
            Ok(version) => {
                tracing::info!(service = %service.key(), "brought back what somebody changed of its load balancer");
                Ok(Outcome::Repaired { version: Some(version) })
            }
            Err(error) => {
                let tried = match status {
                    Some(_) => "failed to update load balancer status",
                    None => "failed to add load balancer cleanup finalizer",
                };
                Err(self.not_written(service, tried, &error))
            }
        }
    }

    async fn verify(&self, service: &Service, memory: &Memory) -> Result<Outcome, Early> {
        let call = self.cloud.get_load_balancer(&self.cluster_name, &service.content);
        let Standing::Ensured(remembered) = &memory.standing else { return Ok(Outcome::Verified) };
        Ok(match self.in_term(call).await? {
            Ok(Some(status)) if same_status(&status, remembered) => Outcome::Verified,
            Ok(found) => {
                let found = if found.is_some() { "is another one" } else { "is gone" };
                tracing::warn!(service = %service.key(), "the cloud's load balancer {found}: ensuring it");
                Outcome::Differs
            }
            Err(error) => {
                tracing::debug!(service = %service.key(), error = %error.log_report(), "the cloud cannot tell of the load balancer");
                Outcome::NotVerified { retry_after: error.retry_after() }
            }
        })
    }

    /// Makes a call of the cloud, which is given up at the end of the term, and soon after the controller was told to stop.
    async fn in_term<T>(&self, call: impl Future<Output = T>) -> Result<T, Early> {
        self.cut.run_until_cancelled(self.fence.pass(call)).await.flatten().ok_or(Outcome::Stopped)
    }

    fn not_written(&self, service: &Service, tried: &str, error: &WriteError) -> Early {
        match error {
            WriteError::Gone => Outcome::Gone,
            error => self.failed(service, Failure::of_write(tried, error)),
        }
    }

    /// Reports a failed sync.
    fn failed(&self, service: &Service, failure: Failure) -> Early {
        tracing::warn!(service = %service.key(), error = failure.logged, "load balancer not synced");
        self.record(service, &Happening::SyncFailed(&failure.why));
        Outcome::Failed(failure)
    }

    fn record(&self, service: &Service, happening: &Happening<'_>) {
        record(&self.events, service, happening);
    }
}

/// Takes over what the provider changed in a call for this Service.
fn take_over(changes: &ProviderChanges, told: &mut Arc<Service>, version: &mut Option<WrittenVersion>) {
    if let Some(written) = changes.version() {
        *version = Some(written.clone());
        *told = Arc::new(changes.applied_to(told));
    }
}

/// In a dry run: says what a daemon would do.
fn say(service: &Service, what: &str) {
    tracing::info!(service = %service.key(), "dry run: a daemon would {what} in the cloud");
}

impl Outcome {
    /// The version of the last write.
    pub(super) fn version(&self) -> Option<&WrittenVersion> {
        match self {
            Self::Ensured { version, .. }
            | Self::Moving { version }
            | Self::Outdated { version, .. }
            | Self::Elsewhere { version, .. }
            | Self::Rehearsed { version }
            | Self::Repaired { version }
            | Self::CleanedUp { version, .. } => version.as_ref(),
            Self::Failed(failure) => failure.version.as_ref(),
            _ => None,
        }
    }
}
