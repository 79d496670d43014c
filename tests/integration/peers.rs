//! Real peers that several tests share. They start when first needed and stop at the end of the run.

use std::{ops::Deref, thread};

use anyhow::Context;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{self, Event, Node},
};
use kube::{
    Client,
    api::{Api, DeleteParams, ListParams, Patch, PatchParams},
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use serde_json::json;
use test_env::{ControlPlane, ControlPlaneOptions, StartError};

use crate::{admission, api, trial::runtime};

/// Control planes of one version.
struct Shared {
    pool: Mutex<Pool>,
    returned: Condvar,
    /// The most control planes: each needs some 400 MB, and some seconds to start.
    most: usize,
    is_previous: bool,
}

struct Pool {
    idle: Vec<ControlPlane>,
    running: usize,
}

/// What a trial may do whose turn it is.
enum Turn {
    Take(Box<ControlPlane>),
    /// Start one more, which is counted already.
    Start,
}

static CURRENT: Shared = Shared::new(4, false);
static PREVIOUS: Shared = Shared::new(1, true);

/// A control plane that one test uses at a time, since another test's controllers would see its Nodes. What earlier tests have left
/// is deleted: Nodes, Leases, events, and all Services but that of the API server. Returned when dropped.
pub(crate) struct Borrowed(Option<ControlPlane>, &'static Shared);

impl Borrowed {
    /// Takes an idle one, starts a new one, or waits for one to be returned.
    pub(crate) fn control_plane() -> Result<Self, StartError> {
        CURRENT.borrow()
    }

    /// The same, with the API server of the previous minor version.
    pub(crate) fn previous_control_plane() -> Result<Self, StartError> {
        PREVIOUS.borrow()
    }
}

impl Pool {
    /// An idle one, or leave to start one. `None`: all `most` are taken.
    fn take(&mut self, most: usize) -> Option<Turn> {
        if let Some(control_plane) = self.idle.pop() {
            return Some(Turn::Take(Box::new(control_plane)));
        }
        (self.running < most).then(|| {
            self.running += 1;
            Turn::Start
        })
    }
}

impl Shared {
    const fn new(most: usize, is_previous: bool) -> Self {
        let pool = Mutex::new(Pool { idle: Vec::new(), running: 0 });
        Self { pool, returned: Condvar::new(), most, is_previous }
    }

    fn borrow(&'static self) -> Result<Borrowed, StartError> {
        let now = self.lock().take(self.most);
        match now.unwrap_or_else(|| admission::aside(|| self.wait())) {
            Turn::Take(control_plane) => {
                let borrowed = Borrowed(Some(*control_plane), self);
                borrowed.empty()?;
                Ok(borrowed)
            }
            Turn::Start => {
                let options = ControlPlaneOptions::default();
                let options = if self.is_previous { options.previous_version() } else { options };
                let started = ControlPlane::start(&options);
                if started.is_err() {
                    self.lock().running -= 1;
                    self.returned.notify_one();
                }
                Ok(Borrowed(Some(started?), self))
            }
        }
    }

    fn wait(&self) -> Turn {
        let mut pool = self.lock();
        loop {
            match pool.take(self.most) {
                Some(turn) => return turn,
                None => self.returned.wait(&mut pool),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock()
    }
}

impl Borrowed {
    /// Deletes what an earlier test has left. On a thread of its own, since the caller's may be one of an asynchronous runtime.
    fn empty(&self) -> anyhow::Result<()> {
        let empty = || {
            runtime(false)?.block_on(async {
                let client = api::client(self.kubeconfig()).await?;
                empty(&client).await.context("what an earlier test has left cannot be deleted")
            })
        };
        thread::scope(|scope| scope.spawn(empty).join().expect("nothing in it panics"))
    }
}

impl Deref for Borrowed {
    type Target = ControlPlane;
    fn deref(&self) -> &ControlPlane {
        self.0.as_ref().expect("taken only when dropped")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.1.lock().idle.extend(self.0.take());
        self.1.returned.notify_one();
    }
}

/// Stops all control planes.
pub(crate) fn stop_all() {
    for shared in [&CURRENT, &PREVIOUS] {
        shared.lock().idle.clear();
    }
}

async fn empty(client: &Client) -> anyhow::Result<()> {
    let (all, delete) = (ListParams::default(), DeleteParams::default());
    Api::<Node>::all(client.clone()).delete_collection(&delete, &all).await?;
    Api::<Lease>::namespaced(client.clone(), "kube-node-lease").delete_collection(&delete, &all).await?;
    // The Lease of a killed daemon would block the next one for a while.
    let election = Api::<Lease>::namespaced(client.clone(), "kube-system");
    for name in ["cloud-controller-manager", "cloud-provider-extraction-migration"] {
        match election.delete(name, &delete).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            outcome => outcome.map(drop)?,
        }
    }
    empty_services(client).await?;
    for namespace in ["default", "kube-system"] {
        Api::<Event>::namespaced(client.clone(), namespace).delete_collection(&delete, &all).await?;
    }
    Ok(())
}

/// Deletes all Services, and the finalizers that a test has left on them.
async fn empty_services(client: &Client) -> anyhow::Result<()> {
    let services = Api::<v1::Service>::default_namespaced(client.clone());
    let all = services.list(&ListParams::default()).await?;
    let names = all.into_iter().filter_map(|service| service.metadata.name);
    for name in names.filter(|name| name != "kubernetes") {
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        services.patch(&name, &PatchParams::default(), &free).await?;
        match services.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            outcome => outcome.map(drop)?,
        }
    }
    Ok(())
}
