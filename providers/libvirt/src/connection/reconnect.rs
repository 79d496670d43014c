//! The actor while it is not connected: it connects, and backs off before it tries again.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use cloudprovider::{Backoff, ErrorKind};
use futures::FutureExt;
use jiff::Timestamp;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    actor::{Actor, ReconnectLimit},
    connected::Connected,
};
use crate::{
    calls::{Calls, Failure},
    hypervisor::{Command, Hypervisor, Status},
    session::Session,
    sys::EventSink,
    uri,
    worker::{AbandonedThreads, Worker},
};

/// The pauses between tries to connect.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(30) };
/// A connection that lived this long starts the pauses over.
const STABLE_AFTER: Duration = Duration::from_secs(2);

/// Runs until `stop`.
pub(crate) async fn run(
    hypervisor: Arc<Hypervisor>,
    commands: mpsc::UnboundedReceiver<Command>,
    stop: CancellationToken,
) {
    let mut actor = Actor {
        hypervisor,
        commands,
        abandoned: AbandonedThreads::default(),
        reconnect_limit: ReconnectLimit::default(),
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = restarting(&mut actor) => {}
    }
    let failure = Failure::lost(ErrorKind::Unavailable, "the provider has stopped");
    actor.hypervisor.set_status(Status::Disconnected { since: Timestamp::now(), failure }, |_| ());
}

/// Keeps the connection, whatever happens: a panic must not leave an inventory behind that looks live.
async fn restarting(actor: &mut Actor) {
    loop {
        let ended = AssertUnwindSafe(actor.keep_connected()).catch_unwind().await;
        actor.take_end(ended).await;
    }
}

impl Actor {
    async fn take_end(&mut self, ended: std::thread::Result<()>) {
        if ended.is_err() {
            tracing::error!(hypervisor = self.name(), "a panic of the actor; it starts again");
            self.note_disconnected(Failure::lost(
                ErrorKind::Internal,
                "a fault of the provider: its actor panicked",
            ));
        }
        self.pause(BACKOFF.first).await;
    }

    async fn keep_connected(&mut self) {
        let mut failures = 0u32;
        loop {
            let failure = match self.connect().await {
                Ok(connected) => {
                    let began = Instant::now();
                    let failure = self.follow(connected).await;
                    tracing::warn!(hypervisor = self.name(), reason = failure.message, "connection lost");
                    if began.elapsed() >= STABLE_AFTER {
                        failures = 0;
                    }
                    failure
                }
                Err(failure) => failure,
            };
            self.note_disconnected(failure);
            failures = failures.saturating_add(1);
            self.pause(BACKOFF.after(failures)).await;
        }
    }

    fn note_disconnected(&self, failure: Failure) {
        let before = self.hypervisor.state().status.clone();
        match before {
            Status::Disconnected { failure: old, .. } => {
                if old != failure {
                    tracing::warn!(hypervisor = self.name(), reason = failure.message, "cannot connect");
                }
                self.hypervisor.still_disconnected(&failure);
            }
            Status::Starting | Status::Live => {
                if matches!(before, Status::Starting) {
                    tracing::warn!(hypervisor = self.name(), reason = failure.message, "cannot connect");
                }
                let status = Status::Disconnected { since: Timestamp::now(), failure };
                self.hypervisor.set_status(status, |state| state.confirmed = None);
            }
        }
    }

    /// Waits, and meanwhile refuses commands. An abandoned call that comes back ends the wait: libvirtd
    /// answers again.
    async fn pause(&mut self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut waiting = self.abandoned.get();
        while Instant::now() < until {
            tokio::select! {
                () = sleep(BACKOFF.first.min(until - Instant::now())) => {
                    if self.abandoned.get() < waiting {
                        return;
                    }
                    waiting = self.abandoned.get();
                }
                Some(command) = self.commands.recv() => self.refuse(command),
            }
        }
    }

    fn refuse(&self, command: Command) {
        match command {
            Command::Confirm(_, answer) => drop(answer.send(Err(self.why_disconnected()))),
            Command::Probe(_, answer) => drop(answer.send(Err(self.why_disconnected()))),
            // Dropped: who waits for borrowed work sees that, and the listing of the next connection has the
            // others.
            Command::Borrow(_) | Command::Reread(_) | Command::ReadLeases(_) => {}
        }
    }

    fn why_disconnected(&self) -> Failure {
        match &self.hypervisor.state().status {
            Status::Disconnected { failure, .. } => failure.clone(),
            _ => Failure::lost(ErrorKind::Unavailable, "not connected"),
        }
    }

    /// Connects and lists.
    async fn connect(&mut self) -> Result<Connected, Failure> {
        if !self.reconnect_limit.may_try(self.abandoned.get(), Instant::now()) {
            return Err(self.no_answer());
        }
        let config = self.hypervisor.config.clone();
        let keepalive = self.hypervisor.settings.keepalive;
        let calls = Calls { counts: Arc::clone(&self.hypervisor.counts), ..Calls::default() };
        let (event_sender, events) = mpsc::unbounded_channel();
        let sink: EventSink = Arc::new(move |event| {
            // the actor may have given this connection up
            let _ = event_sender.send(event);
        });
        let cannot = |error: std::io::Error| {
            Failure::lost(ErrorKind::Internal, format!("cannot start a thread: {error}"))
        };
        let worker = Worker::spawn(format!("libvirt-{}", self.name()), self.hypervisor.workers(), || None)
            .map_err(cannot)?;
        let began = std::time::Instant::now();
        let of_session = calls.clone();
        let known: Vec<_> = self.hypervisor.state().inventory.domains().map(|domain| domain.uuid).collect();
        let answer = worker.run(move |slot: &mut Option<Session>| {
            let session = slot.insert(Session::open(&config, keepalive, of_session, &sink)?);
            // once for a connection: it changes when the host gets other memory, with a restart
            let size = session.size()?;
            Ok((session.list(&known)?, size))
        });
        let (listing, size) = match self.in_time(answer, &calls.progress).await {
            Ok(answer) => answer,
            Err(failure) => {
                if failure.kind == ErrorKind::Timeout {
                    worker.abandon(&self.abandoned);
                }
                return Err(failure);
            }
        };

        let domains = listing.domains.len();
        let ran = self.hypervisor.running();
        self.hypervisor.set_status(Status::Live, |state| {
            // the new status makes the controllers look everything up again, so the differences are not
            // reported
            state.inventory.replace(listing);
            state.is_listed = true;
            state.size = size;
            state.confirmed = Some(began);
        });
        tracing::info!(
            hypervisor = self.name(),
            uri = uri::redacted(&self.hypervisor.config.uri),
            domains,
            milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "connected"
        );
        let agents = self.hypervisor.state().inventory.with_agent().collect();
        let refresh = self.hypervisor.settings.refresh_interval;
        let mut connected = Connected::new(worker, calls, events, agents, refresh);
        connected.note_unreadable(self.hypervisor.state().inventory.domains());
        let rules = &self.hypervisor.settings.addresses;
        connected.note_listed(&self.hypervisor.state().inventory, rules, &ran);
        self.ask_agents(&mut connected).await?;
        Ok(connected)
    }
}

#[cfg(test)]
mod tests;
