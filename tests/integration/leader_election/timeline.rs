//! The changes of the Lease and of the Nodes, in the API server's order.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use anyhow::Context;
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;

use super::{NAME, leases};
use crate::support::{is_initialized, label, nodes};

/// Records changes until dropped. Cloud providers are identified by the zones that they set.
pub(crate) struct Timeline {
    seen: Arc<Mutex<Seen>>,
    _watches: [AbortOnDropHandle<()>; 2],
}

#[derive(Default)]
struct Seen {
    /// Versions at which the Lease changed hands, and the new holder.
    holders: BTreeMap<u64, String>,
    /// For each Node, the version at which it lost its taint, and its zone then.
    filled_in: BTreeMap<String, (u64, String)>,
}

impl Timeline {
    pub(crate) async fn record(client: &Client) -> anyhow::Result<Self> {
        let seen = Arc::<Mutex<Seen>>::default();
        let (for_leases, for_nodes) = (seen.clone(), seen.clone());
        let leases = follow(leases(client), move |lease: &Lease, version| {
            if lease.name_any() == NAME {
                let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
                for_leases.lock().holders.insert(version, holder.unwrap_or_default());
            }
        })
        .await?;
        let nodes = follow(nodes(client), move |node: &Node, version| {
            if is_initialized(node) {
                let zone = label(node, "topology.kubernetes.io/zone").unwrap_or_default().to_owned();
                for_nodes.lock().filled_in.entry(node.name_any()).or_insert((version, zone));
            }
        })
        .await?;
        Ok(Self { seen, _watches: [leases, nodes] })
    }

    /// The number of Nodes that were initialised with this zone.
    pub(crate) fn filled_in_by(&self, zone: &str) -> usize {
        self.seen.lock().filled_in.values().filter(|(_, by)| by == zone).count()
    }

    /// The Nodes that were initialised by a daemon that did not hold the Lease at that version. `zones` are
    /// those of the daemons that take turns; a holder is identified with the zone of its first Node.
    pub(crate) fn filled_in_by_others(&self, zones: &[&str]) -> Vec<String> {
        let seen = self.seen.lock();
        let mut zone_of = BTreeMap::new();
        let mut strangers = Vec::new();
        let mut filled_in: Vec<_> = seen.filled_in.iter().collect();
        filled_in.sort_by_key(|(_, (version, _))| *version);
        for (node, (version, zone)) in filled_in {
            let holder = seen.holders.range(..version).next_back().map_or("", |(_, holder)| holder);
            let known = zone_of.entry(holder).or_insert(zone);
            if holder.is_empty() || *known != zone || !zones.contains(&zone.as_str()) {
                strangers.push(format!("{node} at {version} by {zone} while {holder:?} led"));
            }
        }
        strangers
    }
}

/// Calls `look` with each version from now on.
async fn follow<K>(
    api: Api<K>,
    look: impl Fn(&K, u64) + Send + 'static,
) -> anyhow::Result<AbortOnDropHandle<()>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let list = api.list(&ListParams::default()).await?;
    let mut version = list.metadata.resource_version.context("a version")?;
    let task = tokio::spawn(async move {
        loop {
            let Ok(events) = api.watch(&WatchParams::default(), &version).await else { return };
            pin_mut!(events);
            while let Some(Ok(event)) = events.next().await {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                    version = object.resource_version().unwrap_or_default();
                    look(&object, version.parse().expect("a real API server's versions are numbers"));
                }
            }
        }
    });
    Ok(AbortOnDropHandle::new(task))
}
