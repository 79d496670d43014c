//! The one watch on Nodes.

use cloudprovider::error_chain;
use component::watching::{self, watch};
use futures::{StreamExt, pin_mut};
use kube::{Api, Client, runtime::watcher};
use tokio_util::sync::CancellationToken;

use super::{NodeStore, node::WireNode};

/// How many Nodes one page of the list has. A whole page is in memory, with 15 kB or more for each Node.
const PAGE: u32 = 250;

/// Keeps `store` up to date until `stop` is cancelled.
///
/// After a lost watch, an expired version (410 Gone), an event that cannot be read, or while the API server is away, it tries
/// again with backoff. Meanwhile the store shows what was last known.
pub async fn watch_nodes(client: Client, store: NodeStore, stop: CancellationToken) {
    let api: Api<WireNode> = Api::all(watching::client(client));
    let events = watch(api, watcher::Config::default().page_size(PAGE));
    pin_mut!(events);
    let mut listing = Vec::new();
    let mut failing = false;
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                // One line for each outage, not one for each try.
                if !failing {
                    tracing::warn!(error = %error_chain(&error), "watch of nodes failed, trying again");
                }
                failing = true;
                continue;
            }
        };
        if failing && !matches!(event, watcher::Event::Init) {
            failing = false;
            tracing::info!("watch of nodes works again");
        }
        match event {
            watcher::Event::Init => listing.clear(),
            // In a list each Node is complete.
            watcher::Event::InitApply(node) => listing.push(node.into()),
            watcher::Event::InitDone => store.replace(std::mem::take(&mut listing)),
            watcher::Event::Apply(node) => match node.as_version() {
                Some((name, version)) => store.set_version(name, version),
                None => store.apply(node.into()),
            },
            watcher::Event::Delete(node) => store.remove(super::Node::from(node).name()),
        }
    }
}
