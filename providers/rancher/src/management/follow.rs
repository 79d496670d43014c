//! Keeps the machines in memory up to date: finds the cluster, lists its machines, and watches them.

use std::time::Duration;

use cloudprovider::{Backoff, ErrorKind, Result};
use futures::{Stream, StreamExt as _, stream};
use kube::{
    Api,
    api::ListParams,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    runtime::watcher::{self, Event, watcher},
};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    cluster::{self, Cluster},
    history::Origin,
    inventory::{Change, Listing, Machines, SourceOfTruth},
    kinds::{is_missing, machine_version},
    machine::Machine,
    mirror::{self, MirrorEnd},
    nodes,
    objects::{self, MachineObject, Objects},
    provisioning::{self, Provisioning},
    transport::{self, kubernetes, watch_error},
    troubles::{self, Troubles},
    watches::{self, Step, ended, needs_rights, until_error},
};
use crate::{
    config::ManagementConfig,
    norman::{client::Client, reply::unavailable},
};

/// The shortest time between two listings.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The pauses between two listings that fail.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(10) };

/// The server that has the machines, and how often they are listed.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Of the API below `/v3`.
    pub(super) client: Client,
    /// The URL of the server.
    pub(super) url: String,
    pub(super) config: ManagementConfig,
    pub(super) page_size: u32,
    /// How often the machines are listed while they are watched.
    pub(super) refresh_interval: Duration,
    /// How often they are listed while they cannot be watched.
    pub(super) poll_interval: Duration,
}

/// Follows the machines until `stop` is cancelled.
pub(super) async fn run(source: Source, machines: &Machines, stop: CancellationToken) {
    stop.run_until_cancelled(follow(&source, machines)).await;
}

async fn follow(source: &Source, machines: &Machines) {
    let kubernetes = kubernetes(&source.client, &source.url);
    let (mut failures, mut followed, mut troubles) = (0, None, Troubles::default());
    loop {
        let began = Instant::now();
        let mut session = Session {
            source,
            machines,
            kubernetes: &kubernetes,
            began,
            followed: &mut followed,
            troubles: &mut troubles,
        };
        match session.run().await {
            Ok(()) => {
                failures = 0;
                sleep_until(began + MIN_INTERVAL).await;
            }
            Err(error) => {
                // A session that had worked for a while is no repeated failure.
                failures = if machines.state().staleness.is_some() { failures + 1 } else { 1 };
                let pause = BACKOFF.after(failures).max(error.retry_after().unwrap_or_default());
                troubles.not_listed(&error);
                machines.fail(error);
                sleep(pause).await;
            }
        }
    }
}

/// From one listing to the next.
struct Session<'a> {
    source: &'a Source,
    machines: &'a Machines,
    kubernetes: &'a kube::Client,
    began: Instant,
    /// The ID of the cluster whose Machines were followed, in this session or before.
    followed: &'a mut Option<String>,
    troubles: &'a mut Troubles,
}

/// An event of one of the watches.
enum WatchEvent {
    Machine(Box<watcher::Result<Event<MachineObject>>>),
    Bootstrap(watcher::Result<Event<PartialObjectMeta<DynamicObject>>>),
    CustomMachine(watcher::Result<Event<PartialObjectMeta<DynamicObject>>>),
}

impl Session<'_> {
    /// Lists the machines, and watches them until the next listing is due.
    ///
    /// # Errors
    /// Why the inventory is stale.
    async fn run(&mut self) -> Result<()> {
        let cluster = cluster::find(&self.source.client, &self.source.config.cluster).await?;
        let was_rancher = self.followed.as_ref() == Some(&cluster.id);
        let namespace = self.source.config.namespace.as_deref();
        match provisioning::find(self.kubernetes, &cluster, namespace, was_rancher).await? {
            Provisioning::Rancher { namespace, name, origin } => {
                self.troubles.origin(&cluster.id, None);
                *self.followed = Some(cluster.id.clone());
                self.watch(&cluster, &namespace, &name, origin).await
            }
            Provisioning::Foreign(why) => {
                self.troubles.origin(&cluster.id, Some(why));
                *self.followed = None;
                self.mirror(&cluster).await
            }
        }
    }

    /// Watches the server's nodes until the next listing is due. Where they cannot be watched, they are only
    /// listed, once.
    async fn mirror(&mut self, cluster: &Cluster) -> Result<()> {
        let source = self.source;
        let mirror = mirror::Mirror {
            kubernetes: self.kubernetes,
            cluster,
            machines: self.machines,
            began: self.began,
            page_size: source.page_size,
            refresh_interval: source.refresh_interval,
        };
        match mirror.watch(self.troubles).await? {
            MirrorEnd::Due => Ok(()),
            MirrorEnd::NotWatched { why, is_listed } => {
                let limit = mirror::limit(&why);
                if is_listed {
                    self.machines.note_unwatched(self.began);
                    self.machines.note_limit(limit);
                } else {
                    self.list_nodes(cluster, limit).await?;
                }
                self.troubles.mirror(Some(&why));
                self.until_next_poll().await;
                Ok(())
            }
        }
    }

    /// Lists the server's nodes by `/v3`. `limit` is why they are not watched.
    async fn list_nodes(&mut self, cluster: &Cluster, limit: String) -> Result<()> {
        let listed = nodes::list(&self.source.client, &cluster.id).await?;
        self.troubles.listed(listed.machines.len());
        self.troubles.unreadable(listed.unreadable.as_deref());
        let listing = Listing {
            cluster: cluster.id.clone(),
            source_of_truth: SourceOfTruth::Mirror,
            is_active: cluster.is_active(),
            machines: listed.machines,
            limits: vec![limit],
            ..Listing::default()
        };
        self.machines.replace(listing, self.began);
        Ok(())
    }

    /// Waits until the next listing of what cannot be watched is due.
    async fn until_next_poll(&self) {
        tokio::select! {
            () = sleep_until(self.began + self.source.poll_interval) => {}
            () = self.machines.listing_wanted() => {}
        }
    }

    /// Lists the Machines and what belongs to them, and watches them until the next listing is due.
    async fn watch(&mut self, cluster: &Cluster, namespace: &str, name: &str, origin: Origin) -> Result<()> {
        let kinds = Kinds {
            machines: objects::machines(machine_version(self.kubernetes).await?),
            bootstraps: objects::bootstraps(),
            custom_machines: objects::custom_machines(),
        };
        let origin = Origin { revision: self.revision(&kinds.machines, namespace).await?, ..origin };
        let mut events = self.watch_events(namespace, &kinds);
        let mut objects = Objects::default();
        let mut limits = Vec::new();
        // One for each stream.
        let mut unlisted = 3;
        loop {
            let is_listed = unlisted == 0;
            let next = tokio::select! {
                next = events.next() => next,
                () = self.machines.listing_wanted(), if is_listed => return Ok(()),
                () = sleep_until(self.began + self.source.refresh_interval), if is_listed => return Ok(()),
            };
            let step = match next {
                None => return Err(unavailable("the watches ended")),
                Some(WatchEvent::Machine(event)) => match *event {
                    Ok(event) => Step::of(event, |object: MachineObject, is_there| match is_there {
                        true if object.spec.cluster_name != name => None,
                        true => objects.put_machine(object).map(put),
                        false => objects.remove_machine(&object).map(Change::Remove),
                    }),
                    Err(fault) => ended(&fault, &kinds.machines, namespace)?,
                },
                Some(WatchEvent::Bootstrap(Ok(event))) => {
                    if matches!(event, Event::InitDone) {
                        self.troubles.addresses(None);
                    }
                    Step::of(event, |object, is_there| {
                        let machine = if is_there {
                            objects.put_bootstrap(&object.metadata)
                        } else {
                            objects.remove_bootstrap(&object.metadata)
                        };
                        machine.map(put)
                    })
                }
                Some(WatchEvent::Bootstrap(Err(fault))) => match self.without_addresses(&fault) {
                    Some((step, limit)) if is_listed => {
                        self.machines.note_limit(limit);
                        step
                    }
                    Some((step, limit)) => {
                        limits.push(limit);
                        step
                    }
                    None => self.ended_unless_missing(&fault, &kinds.bootstraps, namespace).await?,
                },
                Some(WatchEvent::CustomMachine(Ok(event))) => Step::of(event, |object, is_there| {
                    let owner = objects.set_infrastructure(&object.metadata, is_there)?;
                    Some(Change::Infrastructure(owner, object.metadata.name.filter(|_| is_there)))
                }),
                Some(WatchEvent::CustomMachine(Err(fault))) => {
                    self.ended_unless_missing(&fault, &kinds.custom_machines, namespace).await?
                }
            };
            let change = match step {
                Step::Begun => None,
                // What is known stays, until the next listing replaces it at once.
                Step::Expired if is_listed => return Ok(()),
                Step::Expired => return Err(unavailable("a watch was too old before it began (410)")),
                Step::Listed => {
                    unlisted -= 1;
                    None
                }
                Step::Changed(change) => change,
            };
            if is_listed {
                if let Some(change) = change {
                    self.machines.apply(change);
                }
            } else if unlisted == 0 {
                let machines = objects.machines();
                self.troubles.listed(machines.len());
                let listing = Listing {
                    cluster: cluster.id.clone(),
                    source_of_truth: SourceOfTruth::Machines,
                    is_watched: true,
                    origin: Some(origin.clone()),
                    is_active: cluster.is_active(),
                    machines,
                    infrastructure: objects.owners.clone(),
                    limits: std::mem::take(&mut limits),
                };
                self.machines.replace(listing, self.began);
            }
        }
    }

    /// What an error of the watch of bootstraps means if it is a refusal, and what that costs. They serve for
    /// addresses only, so all else works without them.
    fn without_addresses(&mut self, fault: &watcher::Error) -> Option<(Step, String)> {
        let error = watch_error(fault);
        if error.kind() != ErrorKind::PermissionDenied {
            return None;
        }
        self.troubles.addresses(Some(&error));
        let is_of_listing = matches!(fault, watcher::Error::InitialListFailed(_));
        let step = if is_of_listing { Step::Listed } else { Step::Changed(None) };
        Some((step, format!("{}: {}", troubles::NO_ADDRESSES, error.report())))
    }

    /// The resource version that the management cluster has now. `None` if it is no number.
    async fn revision(&self, machines: &ApiResource, namespace: &str) -> Result<Option<u64>> {
        let api: Api<MachineObject> = Api::namespaced_with(self.kubernetes.clone(), namespace, machines);
        let listed = api.list(&ListParams::default().limit(1)).await;
        let listed = listed.map_err(|error| {
            needs_rights(transport::error(&error), machines, namespace).with_operation("list one Machine")
        })?;
        Ok(listed.metadata.resource_version.and_then(|version| version.parse().ok()))
    }

    /// What an error means for a kind that a management cluster may not have: then there are no objects of
    /// it.
    ///
    /// # Errors
    /// As [`ended`]. Also for a 404 while the server's own lists do not say that the kind is missing.
    async fn ended_unless_missing(
        &self,
        fault: &watcher::Error,
        kind: &ApiResource,
        namespace: &str,
    ) -> Result<Step> {
        let is_404 = matches!(
            fault,
            watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404
        );
        if is_404 && is_missing(self.kubernetes, kind).await.unwrap_or(false) {
            return Ok(Step::Listed);
        }
        ended(fault, kind, namespace)
    }

    fn watch_events(&self, namespace: &str, kinds: &Kinds) -> impl Stream<Item = WatchEvent> + Unpin + use<> {
        let config = watches::config(self.source.page_size);
        let machines: Api<MachineObject> =
            Api::namespaced_with(self.kubernetes.clone(), namespace, &kinds.machines);
        // Such a client asks for metadata only.
        let metadata = |kind| {
            let api: Api<PartialObjectMeta<DynamicObject>> =
                Api::namespaced_with(self.kubernetes.clone(), namespace, kind);
            until_error(watcher(api, config.clone()))
        };
        stream::select_all([
            until_error(watcher(machines, config.clone()))
                .map(|event| WatchEvent::Machine(Box::new(event)))
                .boxed(),
            metadata(&kinds.bootstraps).map(WatchEvent::Bootstrap).boxed(),
            metadata(&kinds.custom_machines).map(WatchEvent::CustomMachine).boxed(),
        ])
    }
}

/// The kinds that are watched.
struct Kinds {
    machines: ApiResource,
    bootstraps: ApiResource,
    custom_machines: ApiResource,
}

fn put(machine: Machine) -> Change {
    Change::Put(Box::new(machine))
}

#[cfg(test)]
mod tests;
