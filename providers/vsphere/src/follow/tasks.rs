//! Follows the tasks of a vCenter, once steps of machines wait for them.
//!
//! A property collector of its own reports them. So the end of a task does not wait until the server has
//! compared all machines with what it last reported, and neither does a change of a machine wait for tasks.

use std::{future::pending, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    Connection, Follower, Watched,
    behind::{CHECK_INTERVAL, MAX_LAG},
    reference,
};
use crate::{
    moref::MoRef,
    session::ServiceContent,
    tasks::watched,
    vim::{
        CallError,
        objects::{CreateFilter, CreatePropertyCollector},
    },
};

/// For how long no end of a task need be told, at most, before they are listed anew.
const MAX_SILENCE: Duration = Duration::from_secs(60);

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
        let filter = || CreateFilter { spec: watched(manager), partial_updates: false };
        let Some(mut own) = own else {
            return match self.call(connection, &filter().of(&machines)).await {
                Ok(_) => pending().await,
                Err(error) => error,
            };
        };
        let mut max_silence = MAX_LAG;
        loop {
            if let Err(error) = self.call(connection, &filter().of(&own)).await {
                return error;
            }
            let ends = self.vcenter.state().tasks.ends();
            let mut watched = Watched::by(own.clone());
            tokio::select! {
                error = self.watch(connection, &mut watched) => return error,
                () = self.fall_silent(max_silence) => {}
            }
            let was_told = self.vcenter.state().tasks.ends() != ends;
            max_silence = if was_told { MAX_LAG } else { MAX_SILENCE.min(max_silence * 2) };
            own = match self.replace(connection, content, &own).await {
                Ok(own) => own,
                Err(error) => return error,
            };
        }
    }

    /// Returns when somebody waits for a task, and no end was told for this time. The tasks may take long, or the
    /// server tells them late: then the listing of another property collector has them.
    async fn fall_silent(&self, max_silence: Duration) {
        let (mut ends, mut since) = (self.vcenter.state().tasks.ends(), Instant::now());
        loop {
            sleep(CHECK_INTERVAL).await;
            let state = self.vcenter.state();
            if state.tasks.ends() != ends {
                (ends, since) = (state.tasks.ends(), Instant::now());
            }
            if since.elapsed() >= max_silence
                && state.tasks.longest_wait().is_some_and(|waited| waited >= max_silence)
            {
                return;
            }
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
