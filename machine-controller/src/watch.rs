//! One watch for each kind. They begin by themselves once the API server serves the kinds.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cloudprovider::machines::{AuxiliaryKind, Kinds};
use component::{
    health::{Concerns, HealthChecks},
    watching,
};
use controller_kit::cache::{Cache, CachedObject, Watched, watch_objects};
use kube::{
    Api, Client,
    core::{ApiResource, DynamicResourceScope, GroupVersionKind},
};
use parking_lot::Mutex;
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    auxiliary::{AuxiliaryStore, WireAuxiliary},
    discovery::{Served, discover, served_auxiliary},
    names::CORE_GROUP,
    object_key::ObjectKind,
    store::{Stores, WireCluster, WireInfra, WireMachine},
};

/// How often the API server is asked which kinds it serves while some are missing.
const MISSING_INTERVAL: Duration = Duration::from_secs(5);

/// How often otherwise: the version in which they are read may go.
const SERVED_INTERVAL: Duration = Duration::from_secs(300);

/// How often while auxiliary kinds are missing.
const AUXILIARY_INTERVAL: Duration = Duration::from_secs(15);

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
        self.0.lock().clone()
    }

    fn set(&self, found: Option<Result<Served, String>>) {
        *self.0.lock() = found;
    }

    /// Lets `/readyz` say what is missing, in a check of this name.
    pub(super) fn report_to(&self, health: &HealthChecks, name: &str) {
        let known = self.clone();
        health.add(name, Concerns::Readiness, move || match known.get() {
            Some(Err(missing)) => Err(missing),
            None => Err("the API server has not said yet which kinds it serves".to_owned()),
            Some(Ok(_)) => Ok(()),
        });
    }
}

/// The watches of auxiliary kinds.
#[derive(Default)]
struct AuxiliaryWatches {
    /// Those that are watched.
    kinds: BTreeSet<AuxiliaryKind>,
    /// Each ends only with the controller, or after a panic.
    tasks: JoinSet<()>,
}

impl Watches {
    /// Watches until `stop` is cancelled.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut watching: Option<(Served, JoinSet<()>)> = None;
        let mut auxiliary = AuxiliaryWatches::default();
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
            let is_known = found.is_ok();
            self.known.set(Some(found));
            if is_known && !self.watch_auxiliary(&mut auxiliary, &stop).await {
                interval = interval.min(AUXILIARY_INTERVAL);
            }
            let ended = async {
                match &mut watching {
                    Some((_, tasks)) => drop(tasks.join_next().await),
                    None => std::future::pending().await,
                }
            };
            let auxiliary_ended = async {
                match auxiliary.tasks.join_next().await {
                    Some(_) => {}
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(interval) => {}
                // Only after a panic.
                () = ended => break,
                () = auxiliary_ended => break,
            }
        }
        self.known.set(None);
    }

    /// Watches the auxiliary kinds that are served. Gives whether all of them are.
    async fn watch_auxiliary(&self, watching: &mut AuxiliaryWatches, stop: &CancellationToken) -> bool {
        let stores = self.stores.auxiliary.all();
        if stores.is_empty() {
            return true;
        }
        let kinds: Vec<_> = stores.iter().map(|store| store.kind).collect();
        let served = match served_auxiliary(&self.client, &kinds).await {
            Ok(served) => served,
            Err(why) => {
                tracing::warn!("further kinds of machines: {why}");
                return false;
            }
        };
        for (store, is_served) in stores.iter().zip(&served) {
            self.stores.auxiliary.set_served(store, *is_served);
            // One that is not served any more is tried on by its watch.
            if *is_served && watching.kinds.insert(store.kind) {
                watching.tasks.spawn(self.watch_one(store, stop));
            }
        }
        served.iter().all(|is_served| *is_served)
    }

    /// Watches an auxiliary kind, and says when its objects have arrived.
    fn watch_one(
        &self,
        store: &AuxiliaryStore,
        stop: &CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let AuxiliaryKind { group, version, kind, plural, is_namespaced, .. } = store.kind;
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        let client = watching::client(self.client.clone());
        let api = match self.namespace.as_deref().filter(|_| is_namespaced) {
            Some(namespace) => Api::<WireAuxiliary>::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let (cache, auxiliary) = (store.cache.clone(), self.stores.auxiliary.clone());
        let watch = watch_objects(plural, api, PAGE, cache.clone(), stop.clone());
        async move {
            let arrival = async {
                cache.synced().await;
                auxiliary.has_arrived();
            };
            tokio::join!(watch, arrival);
        }
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
        let Stores { machines, clusters, templates, core_machines, core_clusters, .. } = self.stores.clone();
        let own = |kind: ObjectKind| {
            let gvk = GroupVersionKind::gvk(group, version, &kind.kind(&self.kinds));
            ApiResource::from_gvk_with_plural(&gvk, &kind.plural(&self.kinds))
        };
        let core = |kind: &str, plural: &str| {
            let gvk = GroupVersionKind::gvk(CORE_GROUP, served.core_version, kind);
            ApiResource::from_gvk_with_plural(&gvk, plural)
        };
        tasks.spawn(self.watch::<WireInfra, _>(machine.plural, &own(ObjectKind::Machine), machines, stop));
        tasks.spawn(self.watch::<WireInfra, _>(cluster.plural, &own(ObjectKind::Cluster), clusters, stop));
        tasks.spawn(self.watch::<WireInfra, _>(
            "machine templates",
            &own(ObjectKind::Template),
            templates,
            stop,
        ));
        tasks.spawn(self.watch::<WireMachine, _>(
            "machines",
            &core("Machine", "machines"),
            core_machines,
            stop,
        ));
        tasks.spawn(self.watch::<WireCluster, _>(
            "clusters",
            &core("Cluster", "clusters"),
            core_clusters,
            stop,
        ));
        tasks
    }

    fn watch<W, Kept>(
        &self,
        name: &'static str,
        resource: &ApiResource,
        cache: Cache<Kept>,
        stop: &CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<W, Kept>
    where
        Kept: CachedObject,
        W: Watched<Kept, DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        let client = watching::client(self.client.clone());
        let api = match &self.namespace {
            Some(namespace) => Api::<W>::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        };
        watch_objects(name, api, PAGE, cache, stop.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_once_all_kinds_are_known_to_be_served() {
        let (health, known) = (HealthChecks::default(), Known::default());
        known.report_to(&health, "machine-kinds");
        let is_ready =
            || health.all().into_iter().find(|(name, ..)| name == "machine-kinds").expect("the check").2();
        assert_eq!(is_ready(), Err("the API server has not said yet which kinds it serves".to_owned()));
        known.set(Some(Err("there is no mymachines".to_owned())));
        assert_eq!(is_ready(), Err("there is no mymachines".to_owned()));
        known.set(Some(Ok(Served { core_version: "v1beta2" })));
        assert_eq!(is_ready(), Ok(()));
    }
}
