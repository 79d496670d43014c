//! Nodes read once, for tools that do not watch.

use kube::{Api, Client, api::ListParams};

use super::node::{Node, WireNode};

/// How many Nodes one page of a list has.
const PAGE: u32 = 500;

/// The Node of this name. It asks for a list, since the daemon has no permission to `get` Nodes.
///
/// # Errors
/// The API server's.
pub async fn read_node(client: Client, name: &str) -> kube::Result<Option<Node>> {
    // A text that cannot be a Node's name could mean something else in a selector.
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')) {
        return Ok(None);
    }
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = Api::<WireNode>::all(client).list(&params).await?;
    Ok(found.items.into_iter().next().map(Node::from))
}

/// All Nodes.
///
/// # Errors
/// Errors of the API server.
pub async fn read_nodes(client: Client) -> kube::Result<Vec<Node>> {
    let api = Api::<WireNode>::all(client);
    let mut params = ListParams::default().limit(PAGE);
    let mut nodes = Vec::new();
    loop {
        let page = api.list(&params).await?;
        nodes.extend(page.items.into_iter().map(Node::from));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(nodes),
        }
    }
}
