//! The one watch on Nodes.

use component::watching;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::{Node, NodeStore, node::WireNode};
use crate::cache::{Watched, watch_objects};

/// How many Nodes one page of the list has. A whole page is in memory, with 15 kB or more for each Node.
const PAGE: u32 = 250;

/// Keeps `store` up to date until `stop` is cancelled, through outages of the API server too.
pub async fn watch_nodes(client: Client, store: NodeStore, stop: CancellationToken) {
    let api: Api<WireNode> = Api::all(watching::client(client));
    watch_objects("nodes", api, PAGE, store, stop).await;
}

impl Watched<Node> for WireNode {
    fn as_version(&self) -> Option<(&str, &str)> {
        self.only_version()
    }
}
