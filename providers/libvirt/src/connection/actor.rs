//! The actor, and how it waits for what libvirt answers.

use std::{sync::Arc, time::Duration};

use cloudprovider::ErrorKind;
use tokio::sync::{mpsc, oneshot};

use super::{connected::Connected, rare::Rare};
use crate::{
    calls::{Failure, Progress},
    hypervisor::{Command, Hypervisor},
    lane::ThreadCount,
    session::Session,
};

/// How often a deadline is looked at.
const TICK: Duration = Duration::from_millis(100);

/// The one who keeps the connection.
pub(super) struct Actor {
    pub(super) hypervisor: Arc<Hypervisor>,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    /// Threads of earlier connections that were not answered in time.
    pub(super) abandoned: ThreadCount,
    pub(super) rare: Rare,
}

impl Actor {
    pub(super) fn name(&self) -> &str {
        self.hypervisor.name()
    }

    pub(super) async fn on_lane<T: Send + 'static>(
        &self,
        connected: &Connected,
        job: impl FnOnce(&mut Session) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let answer = connected.lane.run(move |slot: &mut Option<Session>| match slot {
            Some(session) => job(session),
            None => Err(Failure::lost(ErrorKind::Internal, "not connected")),
        });
        self.in_time(answer, &connected.calls.progress).await
    }

    /// The answer of a lane, or a failure where one call of it takes longer than allowed.
    pub(super) async fn in_time<T>(
        &self,
        mut answer: oneshot::Receiver<Result<T, Failure>>,
        progress: &Progress,
    ) -> Result<T, Failure> {
        loop {
            match tokio::time::timeout(TICK, &mut answer).await {
                Ok(Ok(result)) => {
                    if result.is_ok() {
                        self.hypervisor.heard();
                    }
                    return result;
                }
                Ok(Err(_)) => {
                    return Err(Failure::lost(ErrorKind::Internal, "the thread of the connection has died"));
                }
                Err(_) if progress.waiting() > self.hypervisor.settings.call_timeout => {
                    return Err(self.no_answer());
                }
                Err(_) => {}
            }
        }
    }

    pub(super) fn no_answer(&self) -> Failure {
        let limit = self.hypervisor.settings.call_timeout.as_secs();
        Failure::lost(ErrorKind::Timeout, format!("libvirt has not answered within {limit} s"))
    }
}
