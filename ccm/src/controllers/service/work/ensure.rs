//! Makes or changes a load balancer.

use std::sync::Arc;

use cloudprovider::{ErrorKind, LoadBalancerStatus};
use controller_kit::{
    cache::CachedObject as _,
    services::Service,
    writes::{WriteError, WrittenVersion},
};

use super::{Early, MAX_READS_AGAIN, Shared, say, take_over};
use crate::controllers::service::{
    events::Happening,
    memory::Memory,
    nodes::Backends,
    outcome::{Failure, Outcome},
    patch,
    status::{lacks_address_of, same_status},
};

/// How far it has come.
struct Progress<'a> {
    /// The Service as the cloud is told of it.
    told: &'a mut Arc<Service>,
    /// The version of the last write.
    version: Option<WrittenVersion>,
    /// Whether the cloud was called, and may have made something.
    is_called: bool,
    /// Whether the provider said in the last call that the Service waits for more.
    waits_for_more: bool,
}

impl Progress<'_> {
    /// Takes over what the API server says. Ends the work if the Service wants no load balancer any more.
    fn go_on_with(&mut self, now: Service) -> Result<(), Early> {
        self.version = Some(now.resource_version.clone());
        if !now.wants_load_balancer() || now.deleting {
            return Err(Outcome::Outdated { version: self.version.take(), cloud_called: self.is_called });
        }
        *self.told = Arc::new(now);
        Ok(())
    }
}

impl Shared {
    pub(super) async fn ensure(
        &self,
        told: &mut Arc<Service>,
        memory: &Memory,
        backends: &Backends,
    ) -> Result<Outcome, Early> {
        self.record(told, &Happening::Ensuring);
        let is_confirmed = memory.confirmed && told.has_finalizer();
        let mut progress = Progress { told, version: None, is_called: false, waits_for_more: false };
        if !is_confirmed {
            self.confirm(&mut progress).await?;
        }
        if backends.nodes.is_empty() {
            self.record(progress.told, &Happening::NoNodes);
        }
        if self.dry_run {
            let nodes = backends.nodes.len();
            say(progress.told, &format!("ensure its load balancer with {nodes} nodes"));
            return Ok(Outcome::Rehearsed { version: progress.version });
        }
        let mut status = self.call(&mut progress, backends).await?;
        self.record(progress.told, &Happening::Ensured);
        // An address that clients could find was not released as long as the status had it.
        if self.show(&mut progress, &status).await? {
            status = self.call(&mut progress, backends).await?;
            if self.show(&mut progress, &status).await? {
                return Ok(Outcome::Moving { version: progress.version });
            }
        }
        let Progress { version, waits_for_more, .. } = progress;
        Ok(Outcome::Ensured { status, version, waits_for_more })
    }

    /// Adds the finalizer before any call of the cloud, so that the Service cannot vanish while it has a load balancer. The
    /// answer is the Service as it is now: what the watch shows may be older. Where it is, the Service is read again, and gets
    /// the finalizer only if it still wants a load balancer.
    async fn confirm(&self, progress: &mut Progress<'_>) -> Result<(), Early> {
        for tries_left in (0..MAX_READS_AGAIN).rev() {
            let body = patch::add_finalizer(progress.told);
            let written = self.writer.patch_status_and_read(progress.told, body).await;
            if !(matches!(written, Err(WriteError::Stale(_))) && tries_left > 0) {
                return self.go_on_after(progress, written);
            }
            self.read_again(progress).await?;
        }
        Ok(())
    }

    async fn read_again(&self, progress: &mut Progress<'_>) -> Result<(), Early> {
        let read = self.writer.patch_status_and_read(progress.told, patch::nothing()).await;
        self.go_on_after(progress, read)
    }

    fn go_on_after(
        &self,
        progress: &mut Progress<'_>,
        written: Result<Service, WriteError>,
    ) -> Result<(), Early> {
        let service = Arc::clone(progress.told);
        let tried = "failed to add load balancer cleanup finalizer";
        match written.map_err(|error| self.not_written(&service, tried, &error)) {
            Ok(now) => progress.go_on_with(now),
            Err(Outcome::Failed(failure)) => {
                let (version, cloud_called) = (progress.version.take(), progress.is_called);
                Err(Outcome::Failed(Failure { cloud_called, version, ..failure }))
            }
            // What the cloud has made by now is deleted when the watch shows that too.
            Err(Outcome::Gone) if progress.is_called => {
                Err(Outcome::Outdated { version: progress.version.take(), cloud_called: true })
            }
            Err(early) => Err(early),
        }
    }

    /// Calls the cloud, again if the Service has changed before the provider could change it.
    async fn call(
        &self,
        progress: &mut Progress<'_>,
        backends: &Backends,
    ) -> Result<LoadBalancerStatus, Early> {
        let mut reads = 0;
        loop {
            let service = Arc::clone(progress.told);
            let under_way = self.activity.begin(&service);
            let call = self.cloud.ensure_load_balancer(&self.cluster_name, &service.content, &backends.nodes);
            progress.is_called = true;
            let answer = self.in_term(call).await?;
            let changes = under_way.end();
            take_over(&changes, progress.told, &mut progress.version);
            progress.waits_for_more = changes.waits_for_more;
            let error = match answer {
                Ok(status) => return Ok(status),
                Err(error) => error,
            };
            if changes.is_outdated && reads < MAX_READS_AGAIN {
                reads += 1;
                self.read_again(progress).await?;
                if !progress.told.has_finalizer() {
                    self.confirm(progress).await?;
                }
                continue;
            }
            let version = progress.version.clone();
            if error.kind() == ErrorKind::ImplementedElsewhere {
                tracing::debug!(service = %service.key(), why = %error.report(), "another component makes the load balancer");
                return Err(Outcome::Elsewhere { version, waits_for_more: progress.waits_for_more });
            }
            let failure = Failure::of_cloud("failed to ensure load balancer", &error);
            return Err(self.failed(&service, Failure { version, ..failure }));
        }
    }

    /// Writes the status if it means something else than the present one. Returns whether the cloud has to know of that: the
    /// status does not have an address any more that it had.
    async fn show(&self, progress: &mut Progress<'_>, status: &LoadBalancerStatus) -> Result<bool, Early> {
        let service = Arc::clone(progress.told);
        let before = &service.content.status;
        if same_status(status, before) {
            return Ok(false);
        }
        let body = patch::set_status(status);
        let lacks_address = lacks_address_of(status, before);
        let written = if lacks_address {
            let now = self.writer.patch_status_and_read(&service, body).await;
            now.map(Some)
        } else {
            let written = self.writer.patch_status(&service, body).await;
            written.map(|version| {
                progress.version = Some(version);
                None
            })
        };
        match written {
            // If it vanished meanwhile, it has no status any more.
            Ok(None) | Err(WriteError::Gone) => Ok(false),
            Ok(Some(now)) => progress.go_on_with(now).map(|()| true),
            Err(error) => {
                let failure = Failure::of_write("failed to update load balancer status", &error);
                let version = progress.version.clone();
                Err(self.failed(&service, Failure { cloud_called: true, version, ..failure }))
            }
        }
    }
}
