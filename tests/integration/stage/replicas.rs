//! Daemons that compete for a lease, crash, stop, and stand still for longer than it lasts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::Request;
use kube::{Client, client::Body};
use tokio::{sync::watch, time::Instant};

use crate::daemon::InProcess;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pulse {
    Runs,
    Frozen,
    Dead,
}

/// Whether a daemon's requests and calls are served.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    number: u64,
    pulse: Arc<watch::Sender<Pulse>>,
}

impl Life {
    pub(crate) fn new() -> Self {
        static LIVES: AtomicU64 = AtomicU64::new(0);
        let number = LIVES.fetch_add(1, Ordering::Relaxed);
        Self { number, pulse: Arc::new(watch::Sender::new(Pulse::Runs)) }
    }

    /// Another one for each daemon.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Requests and calls wait until the [thaw](Self::thaw).
    fn freeze(&self) {
        self.pulse.send_replace(Pulse::Frozen);
    }

    fn thaw(&self) {
        self.pulse.send_replace(Pulse::Runs);
    }

    /// No request and no call gets through any more.
    fn end(&self) {
        self.pulse.send_replace(Pulse::Dead);
    }

    /// Waits while it stands still, for ever after its end.
    pub(crate) async fn allows(&self) {
        let mut pulse = self.pulse.subscribe();
        if pulse.wait_for(|pulse| *pulse == Pulse::Runs).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The same client, of a daemon with this life.
    pub(crate) fn client(&self, client: &Client) -> Client {
        let parts = (client.clone(), self.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, life) = parts.clone();
            async move {
                life.allows().await;
                let answer = client.send(request).await;
                life.allows().await;
                answer
            }
        });
        Client::new(service, "default")
    }
}

/// A daemon with its life.
pub(crate) struct Replica {
    pub(crate) process: InProcess,
    pub(crate) life: Life,
}

impl Replica {
    /// Ends it as SIGKILL would: nothing that it has begun goes on.
    pub(crate) async fn crash(self) {
        self.life.end();
        self.process.crash().await;
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.process.stop().await
    }
}

/// A number of daemons. Those that ended are started again by [`keep`](Self::keep), as the kubelet does.
pub(crate) struct Replicas {
    /// The daemons, and until when they stand still.
    all: Vec<Option<(Replica, Option<Instant>)>>,
}

impl Replicas {
    pub(crate) fn new(count: usize) -> Self {
        Self { all: (0..count).map(|_| None).collect() }
    }

    /// Those that ended are started again. Those whose time is over go on.
    pub(crate) async fn keep(
        &mut self,
        mut start: impl FnMut() -> anyhow::Result<Replica>,
    ) -> anyhow::Result<()> {
        for place in &mut self.all {
            if let Some((replica, frozen)) = place
                && frozen.is_some_and(|until| until <= Instant::now())
            {
                *frozen = None;
                replica.life.thaw();
            }
            if place.as_ref().is_some_and(|(replica, _)| replica.process.has_ended())
                && let Some((replica, _)) = place.take()
            {
                replica.crash().await;
            }
            if place.is_none() {
                *place = Some((start()?, None));
            }
        }
        Ok(())
    }

    pub(crate) async fn crash(&mut self, number: usize) {
        if let Some((replica, _)) = self.all[number].take() {
            replica.crash().await;
        }
    }

    pub(crate) async fn crash_all(&mut self) {
        for number in 0..self.all.len() {
            self.crash(number).await;
        }
    }

    /// Stops it as SIGTERM would. One that stands still is killed in the end.
    pub(crate) async fn stop(&mut self, number: usize) {
        if let Some((replica, frozen)) = self.all[number].take() {
            if frozen.is_some() || replica.process.has_ended() {
                replica.crash().await;
            } else {
                // It may have lost its lease just now
                let _ = replica.stop().await;
            }
        }
    }

    /// Nothing of it gets through for this time.
    pub(crate) fn freeze(&mut self, number: usize, time: Duration) {
        if let Some((replica, frozen)) = &mut self.all[number] {
            replica.life.freeze();
            *frozen = Some(Instant::now() + time);
        }
    }

    pub(crate) fn thaw_all(&mut self) {
        for (replica, frozen) in self.all.iter_mut().flatten() {
            if frozen.take().is_some() {
                replica.life.thaw();
            }
        }
    }

    /// Stops all of them, and fails if one of them ended badly.
    pub(crate) async fn end(&mut self) -> anyhow::Result<()> {
        for (replica, _) in self.all.iter_mut().filter_map(Option::take) {
            replica.stop().await?;
        }
        Ok(())
    }
}
