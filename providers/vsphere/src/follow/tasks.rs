//! Follows the tasks of a vCenter, once steps of machines wait for them.
//!
//! A property collector of its own reports them. So the end of a task does not wait until the server has
//! compared all machines with what it last reported, and neither does a change of a machine wait for tasks.

use std::future::pending;

use super::{Connection, Follower, Watched, reference};
use crate::{
    moref::MoRef,
    session::ServiceContent,
    tasks::watched,
    vim::{
        CallError,
        objects::{CreateFilter, CreatePropertyCollector},
    },
};

impl Follower<'_> {
    /// Follows tasks until that fails, and returns the error. Makes no call before tasks are wanted.
    ///
    /// `machines` is the property collector that reports machines. It reports tasks too where the session has
    /// no other one.
    pub(super) async fn follow_tasks(
        &self,
        connection: &Connection,
        content: &ServiceContent,
        machines: MoRef,
    ) -> CallError {
        self.vcenter.tasks_wanted().await;
        let Some(manager) = &content.task_manager else { return pending().await };
        let own = match self.collector_of_tasks(connection, content, &machines).await {
            Ok(own) => own,
            Err(error) => return error,
        };
        let filter = CreateFilter { spec: watched(manager), partial_updates: false };
        let collector = own.as_ref().unwrap_or(&machines);
        if let Err(error) = self.call(connection, &filter.of(collector)).await {
            return error;
        }
        match own {
            Some(own) => self.watch(connection, &mut Watched::by(own)).await,
            None => pending().await,
        }
    }

    /// Creates another property collector. `None` if vCenter refuses that.
    async fn collector_of_tasks(
        &self,
        connection: &Connection,
        content: &ServiceContent,
        machines: &MoRef,
    ) -> Result<Option<MoRef>, CallError> {
        if *machines == content.property_collector {
            return Ok(None);
        }
        let create = CreatePropertyCollector {}.of(&content.property_collector);
        match self.call(connection, &create).await {
            Ok(answer) => reference(&answer, create.method).map(Some),
            Err(error @ CallError::Fault { .. }) if !error.is_session_lost() => {
                tracing::debug!(
                    vcenter = self.vcenter.name(),
                    %error,
                    "vCenter makes no further property collector; one reports machines and tasks"
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
