//! Kubelets that renew their Leases, whatever else the machine and the test do.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use kube::Client;
use sandbox::kubelet;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{self, Api},
    trial::runtime,
};

/// They renew until this is dropped. On a paused clock they are a task; in real time they have a thread and a runtime of their own, so
/// that they do not queue behind the test and its daemon.
pub(crate) struct Beating {
    stop: CancellationToken,
    last: Arc<Mutex<Instant>>,
    task: Option<JoinHandle<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Beating {
    pub(crate) fn start(api: &Api, names: &[&str], period: Duration) -> Self {
        let kubeconfig =
            api.control_plane.as_ref().map(|control_plane| control_plane.kubeconfig().to_owned());
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let stop = CancellationToken::new();
        let last = Arc::new(Mutex::new(Instant::now()));
        let (mut task, mut thread) = (None, None);
        match kubeconfig {
            None => {
                task = Some(tokio::spawn(beat(
                    api.client.clone(),
                    names,
                    period,
                    stop.clone(),
                    Arc::clone(&last),
                )))
            }
            Some(kubeconfig) => {
                let (stop, last) = (stop.clone(), Arc::clone(&last));
                thread = Some(thread::spawn(move || {
                    runtime(false).expect("a runtime").block_on(async {
                        let client = api::client(&kubeconfig).await.expect("a client");
                        beat(client, names, period, stop, last).await;
                    });
                }));
            }
        }
        Self { stop, last, task, thread }
    }

    /// Ends the kubelets, and returns the time before which the last renewal did not begin.
    pub(crate) async fn end(mut self) -> Instant {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
        if let Some(thread) = self.thread.take() {
            let _ = tokio::task::spawn_blocking(|| thread.join()).await;
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn beat(
    client: Client,
    names: Vec<String>,
    period: Duration,
    stop: CancellationToken,
    last: Arc<Mutex<Instant>>,
) {
    while !stop.is_cancelled() {
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        for name in &names {
            let _ = kubelet::renew_lease(&client, name).await;
        }
        tokio::select! {
            () = sleep(period) => {}
            () = stop.cancelled() => {}
        }
    }
}
