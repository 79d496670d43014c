//! Kubelets that renew their Leases, whatever else the machine and the test do.

use std::{thread, time::Duration};

use kube::Client;
use sandbox::kubelet;
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{self, Api},
    trial::runtime,
};

/// They renew until this is dropped. On a paused clock they are a task; in real time they have a thread and a runtime of their own, so
/// that they do not queue behind the test and its daemon.
pub(crate) struct Beating {
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Beating {
    pub(crate) fn start(api: &Api, names: &[&str], period: Duration) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let Some(control_plane) = &api.control_plane else {
            let task = tokio::spawn(beat(api.client.clone(), names, period, stopped));
            return Self { stop, task: Some(task), thread: None };
        };
        let kubeconfig = control_plane.kubeconfig().to_owned();
        let thread = thread::spawn(move || {
            runtime(false).expect("a runtime").block_on(async {
                let client = api::client(&kubeconfig).await.expect("a client");
                beat(client, names, period, stopped).await;
            });
        });
        Self { stop, task: None, thread: Some(thread) }
    }

    /// Ends the kubelets. None renews after that.
    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
        if let Some(thread) = self.thread.take() {
            let _ = tokio::task::spawn_blocking(|| thread.join()).await;
        }
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn beat(client: Client, names: Vec<String>, period: Duration, stop: CancellationToken) {
    while !stop.is_cancelled() {
        for name in &names {
            let _ = kubelet::renew_lease(&client, name).await;
        }
        tokio::select! {
            () = sleep(period) => {}
            () = stop.cancelled() => {}
        }
    }
}
