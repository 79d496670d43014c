//! Deletes a load balancer.

use std::sync::Arc;

use cloudprovider::{Error, ErrorKind};
use controller_kit::{
    cache::CachedObject as _,
    services::{ProviderChanges, Service},
    writes::{WriteError, WrittenVersion},
};
use serde_json::Value;

use super::{Early, MAX_READS_AGAIN, Shared, say, take_over};
use crate::controllers::service::{
    events::Happening,
    memory::Memory,
    outcome::{Failure, Outcome},
    patch,
};

impl Shared {
    /// Clears the status, deletes the load balancer, removes the finalizer. In this order no status shows an address that
    /// another Service has by then, and after a crash at any point the finalizer says that there is something to do.
    pub(super) async fn clean_up(&self, told: &mut Arc<Service>, memory: &Memory) -> Result<Outcome, Early> {
        let service = Arc::clone(told);
        let get = self.cloud.get_load_balancer(&self.cluster_name, &whole(&service, memory).content);
        let exists = match self.in_term(get).await? {
            Ok(found) => found.is_some(),
            Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => false,
            Err(error) => {
                let tried = "failed to check if load balancer exists before cleanup";
                return Err(self.failed(&service, Failure::of_cloud(tried, &error)));
            }
        };
        if !exists && !memory.may_exist && !memory.has_our_finalizer && !service.needs_cleanup() {
            return Ok(Outcome::NotOurs);
        }
        let mut version = None;
        if exists {
            self.record(&service, &Happening::Deleting);
            let tried = "failed to update load balancer status";
            self.patch_and_read(told, &mut version, patch::clear_status(), tried).await?;
            if self.dry_run {
                say(&service, "delete its load balancer");
            } else {
                self.delete_changing(told, memory, &mut version).await?;
            }
        }
        let service = Arc::clone(told);
        // Who announces the addresses may have written the status once more. With the finalizer this costs nothing.
        let is_ours = exists || memory.may_exist || service.needs_cleanup();
        let clears_status =
            is_ours && (service.has_finalizer() || !service.content.status.ingress.is_empty());
        let mut is_denied = false;
        if let Some(body) = patch::clean_up(service.has_finalizer(), clears_status) {
            match self.writer.patch_status(&service, body).await {
                Ok(written) => version = Some(written),
                // The Service is gone, and its finalizer with it.
                Err(WriteError::Gone) => is_denied = true,
                Err(error) => {
                    let tried = "failed to remove load balancer cleanup finalizer";
                    let failure = Failure::of_write(tried, &error);
                    return Err(self.failed(&service, Failure { version, ..failure }));
                }
            }
        }
        self.record(&service, &Happening::Deleted);
        Ok(Outcome::CleanedUp { version, is_denied })
    }

    /// Sends this patch. The answer is the Service as it is now: what the watch shows may be older. Ends the work if the
    /// Service wants a load balancer after all. One that is gone has no status.
    async fn patch_and_read(
        &self,
        told: &mut Arc<Service>,
        version: &mut Option<WrittenVersion>,
        body: Value,
        tried: &str,
    ) -> Result<(), Early> {
        match self.writer.patch_status_and_read(told, body).await {
            Ok(now) => {
                *version = Some(now.resource_version.clone());
                if now.wants_load_balancer() && !now.deleting {
                    return Err(Outcome::Outdated { version: version.take(), cloud_called: true });
                }
                *told = Arc::new(now);
                Ok(())
            }
            Err(WriteError::Gone) => Ok(()),
            Err(error) => {
                let failure = Failure::of_write(tried, &error);
                Err(self.failed(told, Failure { version: version.take(), ..failure }))
            }
        }
    }

    /// Deletes the load balancer, with another try if the Service has changed before the provider could change it.
    async fn delete_changing(
        &self,
        told: &mut Arc<Service>,
        memory: &Memory,
        version: &mut Option<WrittenVersion>,
    ) -> Result<(), Early> {
        let mut reads = 0;
        loop {
            let service = Arc::clone(told);
            let (answer, changes) = self.delete(&service, whole(&service, memory)).await?;
            take_over(&changes, told, version);
            match answer {
                Ok(()) => return Ok(()),
                Err(_) if changes.is_outdated && reads < MAX_READS_AGAIN => {
                    reads += 1;
                    // Another component that writes the status may write it as often as it is cleared, as long as the
                    // provider has not told it to stop. Then the change of the provider would never get through.
                    let tried = "failed to read the service again";
                    self.patch_and_read(told, version, patch::nothing(), tried).await?;
                }
                Err(error) => {
                    let failure = Failure::of_cloud("failed to delete load balancer", &error);
                    return Err(self.failed(&service, Failure { version: version.take(), ..failure }));
                }
            }
        }
    }

    /// Deletes the load balancer of a Service that is gone, or that another one of the same name has replaced.
    pub(super) async fn delete_old(&self, service: &Service) -> Result<Outcome, Early> {
        self.record(service, &Happening::Deleting);
        if self.dry_run {
            say(service, "delete its load balancer");
            return Ok(Outcome::OldDeleted);
        }
        if let (Err(error), _) = self.delete(service, service).await? {
            let failure = Failure::of_cloud("", &error);
            tracing::warn!(service = %service.key(), error = failure.logged, "load balancer of a service that is gone not deleted");
            self.record(service, &Happening::DeletionFailed(&failure.why));
            return Err(Outcome::Failed(failure));
        }
        self.record(service, &Happening::Deleted);
        Ok(Outcome::OldDeleted)
    }

    /// Deletes a load balancer. One that another component makes counts as deleted. `known` is what the provider gets of the
    /// Service.
    async fn delete(
        &self,
        service: &Service,
        known: &Service,
    ) -> Result<(Result<(), Error>, ProviderChanges), Early> {
        let under_way = self.activity.begin(service);
        let call = self.cloud.delete_load_balancer(&self.cluster_name, &known.content);
        let answer = self.in_term(call).await?.or_else(|error| match error.kind() {
            ErrorKind::ImplementedElsewhere => Ok(()),
            _ => Err(error),
        });
        Ok((answer, under_way.end()))
    }
}

/// Little is kept of a Service that neither wants a load balancer nor has the finalizer. Then it is what the cloud was told.
fn whole<'a>(service: &'a Service, memory: &'a Memory) -> &'a Service {
    if service.is_whole() { service } else { &memory.told }
}
