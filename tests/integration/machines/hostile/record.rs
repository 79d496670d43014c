//! What the API server shows of the daemon's work: the order of its writes, and its Lease.

use std::{collections::HashSet, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    Client,
    api::{Api, DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use super::{objects::Kind, tenant::resource};
use crate::machines::world::condition;

/// The Lease of the daemon, and its namespace.
const LEASE: (&str, &str) = ("cloud-controller-manager", "kube-system");

/// The kinds whose changes are recorded.
const KINDS: [&str; 3] = ["LibvirtMachine", "VSphereMachine", "VSphereCluster"];

/// A change of an object.
struct Change {
    namespace: String,
    name: String,
    /// Whether the object says why it is not ready.
    is_refusal: bool,
}

/// The changes of the objects of one kind, in order.
type Changes = Arc<Mutex<Vec<Change>>>;

/// The order in which objects of all namespaces are changed, from now on.
pub(super) struct Order(Vec<(&'static str, Changes, JoinHandle<()>)>);

impl Order {
    pub(super) async fn record(client: &Client) -> Result<Self> {
        let mut all = Vec::new();
        for kind in KINDS {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
            let page = api.list(&ListParams::default().limit(1)).await?;
            let version = page.metadata.resource_version.context("a version")?;
            let changes = Changes::default();
            let task = tokio::spawn(follow(api, version, Arc::clone(&changes)));
            all.push((kind, changes, task));
        }
        Ok(Self(all))
    }

    /// How many changes of this namespace came before the first one of this machine. `None` if there is none.
    pub(super) fn before(&self, kind: Kind, namespace: &str, machine: (&str, &str)) -> Option<usize> {
        let kind = kind.of("Machine");
        let (_, changes, _) = self.0.iter().find(|one| one.0 == kind)?;
        let changes = changes.lock();
        let first = changes.iter().position(|one| (&*one.namespace, &*one.name) == machine)?;
        Some(changes[..first].iter().filter(|one| one.namespace == namespace).count())
    }

    /// How many objects of this namespace say why they are not ready.
    pub(super) fn refused(&self, namespace: &str) -> usize {
        let of_kind = |changes: &Changes| {
            let changes = changes.lock();
            let refusals = changes.iter().filter(|one| one.namespace == namespace && one.is_refusal);
            refusals.map(|one| &one.name).collect::<HashSet<_>>().len()
        };
        self.0.iter().map(|(_, changes, _)| of_kind(changes)).sum()
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        for (.., task) in &self.0 {
            task.abort();
        }
    }
}

/// The pause after a watch that the API server does not begin.
const PAUSE: Duration = Duration::from_millis(100);

/// Records changes. The API server ends a watch after some minutes, and then it goes on from the last version.
async fn follow(api: Api<DynamicObject>, mut version: String, changes: Changes) {
    loop {
        let Ok(events) = api.watch(&WatchParams::default(), &version).await else {
            sleep(PAUSE).await;
            continue;
        };
        let mut events = events.boxed();
        while let Some(Ok(event)) = events.next().await {
            let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = &event else { continue };
            version = object.metadata.resource_version.clone().unwrap_or_default();
            if let WatchEvent::Modified(object) = event {
                changes.lock().push(Change {
                    namespace: object.metadata.namespace.unwrap_or_default(),
                    name: object.metadata.name.unwrap_or_default(),
                    is_refusal: condition(&object.data, "Ready")["status"] == "False",
                });
            }
        }
    }
}

/// Who has the daemon's Lease, and how often that has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Term {
    holder: Option<String>,
    transitions: Option<i32>,
}

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), LEASE.1)
}

async fn set_holder(client: &Client, spec: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": spec}));
    leases(client).patch(LEASE.0, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Takes the Lease for somebody else.
pub(super) async fn take_lease(client: &Client) -> Result<()> {
    let now = MicroTime(Timestamp::now());
    set_holder(client, json!({"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": now}))
        .await
}

/// Gives it up again.
pub(super) async fn give_up_lease(client: &Client) -> Result<()> {
    set_holder(client, json!({"holderIdentity": "", "leaseDurationSeconds": 1})).await
}

pub(super) async fn term(client: &Client) -> Result<Term> {
    let spec = leases(client).get(LEASE.0).await?.spec.context("a spec")?;
    Ok(Term { holder: spec.holder_identity, transitions: spec.lease_transitions })
}
