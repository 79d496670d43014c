//! One watch for each kind. They begin by themselves once the API server serves the kinds.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloudprovider::machines::Kinds;
use component::{
    health::{Concerns, HealthChecks},
    watching,
};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicResourceScope, GroupVersionKind},
};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    discovery::{Served, discover},
    names::CORE_GROUP,
    store::{Stores, WireCluster, WireInfra, WireMachine},
    subject::SubjectKind,
};
use crate::cache::{Cache, Watched, watch_objects};

/// How often the API server is asked which kinds it serves while some are missing.
const MISSING_INTERVAL: Duration = Duration::from_secs(5);

/// How often otherwise: the version in which they are read may go.
const SERVED_INTERVAL: Duration = Duration::from_secs(300);

/// The name of the check that all kinds are served.
pub(super) const KINDS_CHECK: &str = "machine-kinds";

/// How many objects one page of a list has. An object has a few kB.
const PAGE: u32 = 500;

/// What the watches need.
#[derive(Clone)]
pub(super) struct Watches {
    /// Reads objects, and asks which kinds there are.
    pub(super) client: Client,
    pub(super) kinds: Kinds,
    pub(super) stores: Stores,
    /// `--namespace`
    pub(super) namespace: Option<String>,
    pub(super) known: Known,
}

impl std::fmt::Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watches").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

/// Which kinds are served, as far as it is known. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(Arc<Mutex<Option<Result<Served, String>>>>);

impl Known {
    pub(super) fn get(&self) -> Option<Result<Served, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, found: Option<Result<Served, String>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// Lets `/readyz` say what is missing.
    pub(super) fn report_to(&self, health: &HealthChecks) {
        let known = self.clone();
        health.add(KINDS_CHECK, Concerns::Readiness, move || match known.get() {
            Some(Err(missing)) => Err(missing),
            None | Some(Ok(_)) => Ok(()),
        });
    }
}

impl Watches {
    /// Watches until `stop` is cancelled.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut watching: Option<(Served, JoinSet<()>)> = None;
        while !stop.is_cancelled() {
            let found = discover(&self.client, &self.kinds).await;
            self.tell(&found, watching.is_some());
            let mut interval = SERVED_INTERVAL;
            match &found {
                Ok(served) if watching.as_ref().is_none_or(|(known, _)| known != served) => {
                    tracing::info!(version = served.core_version, "watching machines of Cluster API");
                    // The old ones end when they are dropped.
                    watching = Some((*served, self.start(*served, &stop)));
                }
                Ok(_) => {}
                // Those that are watched are tried on by their watches.
                Err(_) => interval = MISSING_INTERVAL,
            }
            self.known.set(Some(found));
            let ended = async {
                match &mut watching {
                    Some((_, tasks)) => drop(tasks.join_next().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(interval) => {}
                // Only after a panic.
                () = ended => break,
            }
        }
        self.known.set(None);
    }

    /// One line for each change.
    fn tell(&self, found: &Result<Served, String>, is_watching: bool) {
        let Err(missing) = found else { return };
        if self.known.get().as_ref() == Some(found) {
            return;
        }
        if is_watching {
            tracing::warn!("machines of Cluster API: {missing}");
        } else {
            tracing::warn!("machine-controller waits: {missing}");
        }
    }

    fn start(&self, served: Served, stop: &CancellationToken) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let Kinds { group, version, machine, cluster, .. } = self.kinds;
        let Stores { machines, clusters, templates, core_machines, core_clusters } = self.stores.clone();
        let own = |kind: SubjectKind| {
            let gvk = GroupVersionKind::gvk(group, version, &kind.kind(&self.kinds));
            ApiResource::from_gvk_with_plural(&gvk, &kind.plural(&self.kinds))
        };
        let core = |kind: &str, plural: &str| {
            let gvk = GroupVersionKind::gvk(CORE_GROUP, served.core_version, kind);
            ApiResource::from_gvk_with_plural(&gvk, plural)
        };
        tasks.spawn(self.watch::<WireInfra>(machine.plural, &own(SubjectKind::Machine), machines, stop));
        tasks.spawn(self.watch::<WireInfra>(cluster.plural, &own(SubjectKind::Cluster), clusters, stop));
        tasks.spawn(self.watch::<WireInfra>(
            "machine templates",
            &own(SubjectKind::Template),
            templates,
            stop,
        ));
        tasks.spawn(self.watch::<WireMachine>("machines", &core("Machine", "machines"), core_machines, stop));
        tasks.spawn(self.watch::<WireCluster>("clusters", &core("Cluster", "clusters"), core_clusters, stop));
        tasks
    }

    fn watch<W: Watched<DynamicType = ApiResource, Scope = DynamicResourceScope>>(
        &self,
        name: &'static str,
        resource: &ApiResource,
        cache: Cache<W::Kept>,
        stop: &CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<W> {
        let client = watching::client(self.client.clone());
        let api = match &self.namespace {
            Some(namespace) => Api::<W>::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        };
        watch_objects(name, api, PAGE, cache, stop.clone())
    }
}
