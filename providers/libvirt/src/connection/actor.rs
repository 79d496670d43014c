//! The actor, and how it waits for the answers of its worker.

use std::{sync::Arc, time::Duration};

use cloudprovider::ErrorKind;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::connected::Connected;
use crate::{
    calls::{Failure, Progress},
    hypervisor::{Command, Hypervisor},
    session::Session,
    worker::AbandonedThreads,
};

/// How often the actor checks whether a call is past its deadline.
const TICK: Duration = Duration::from_millis(100);

/// The task that keeps the connection to one hypervisor.
pub(super) struct Actor {
    pub(super) hypervisor: Arc<Hypervisor>,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    /// Threads of earlier connections that were not answered in time.
    pub(super) abandoned: AbandonedThreads,
    pub(super) reconnect_limit: ReconnectLimit,
}

impl Actor {
    pub(super) fn name(&self) -> &str {
        self.hypervisor.name()
    }

    pub(super) async fn on_worker<T: Send + 'static>(
        &self,
        connected: &Connected,
        job: impl FnOnce(&mut Session) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let answer = connected.worker.run(move |slot: &mut Option<Session>| match slot {
            Some(session) => job(session),
            None => Err(Failure::lost(ErrorKind::Internal, "not connected")),
        });
        self.in_time(answer, &connected.calls.progress).await
    }

    /// The answer of a worker, or a failure if one call of it takes longer than allowed.
    pub(super) async fn in_time<T>(
        &self,
        mut answer: oneshot::Receiver<Result<T, Failure>>,
        progress: &Progress,
    ) -> Result<T, Failure> {
        loop {
            match tokio::time::timeout(TICK, &mut answer).await {
                Ok(Ok(result)) => {
                    if result.is_ok() {
                        self.hypervisor.note_answer();
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

/// With this many threads still waiting for the answers of earlier connections, tries become rare: nothing
/// ever ends a wait for a host that has vanished from the network, and each try may cost one more thread.
const MANY_THREADS: usize = 16;
/// The first pause between rare tries; doubled each time ...
const RARE: Duration = Duration::from_secs(300);
/// ... up to this.
const RAREST: Duration = Duration::from_secs(3600);

/// Limits tries to connect while many threads still wait for the answers of earlier ones.
#[derive(Debug, Default)]
pub(super) struct ReconnectLimit {
    /// When the last try began, and how long after it there may be another one.
    last: Option<(Instant, Duration)>,
}

impl ReconnectLimit {
    /// Whether there may be a try now, while so many threads wait; if so, it is taken as begun.
    pub(super) fn may_try(&mut self, waiting: usize, now: Instant) -> bool {
        let pause = match self.last {
            _ if waiting < MANY_THREADS => RARE,
            Some((last, pause)) if now < last + pause => return false,
            Some((_, pause)) => (pause * 2).min(RAREST),
            None => RARE,
        };
        self.last = Some((now, pause));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_become_rare_and_never_end() {
        let mut limit = ReconnectLimit::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(limit.may_try(0, at(0)) && limit.may_try(MANY_THREADS - 1, at(1)), "few threads wait");
        assert!(!limit.may_try(MANY_THREADS, at(300)));
        assert!(limit.may_try(MANY_THREADS, at(301)));
        assert!(!limit.may_try(MANY_THREADS, at(900)));
        assert!(limit.may_try(50, at(901)), "however many there are");
        let (mut now, mut tries) = (901, Vec::new());
        while tries.len() < 10 {
            now += 60;
            if limit.may_try(50, at(now)) {
                tries.push(now);
            }
        }
        let last = tries.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
        assert!((3600..3600 + 60).contains(&last), "{tries:?}");
        assert!(limit.may_try(0, at(now + 1)), "a thread has come back");
    }
}
