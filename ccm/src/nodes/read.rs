//! Nodes read once, for tools that do not watch.

use kube::{Api, Client, api::ListParams};

use super::node::{Node, WireNode};

/// How many Nodes one page of a list has.
const PAGE: u32 = 500;

/// The Node of this name. This is a list request, because the daemon's role allows `list` and not `get`.
///
/// # Errors
/// Errors of the API server.
pub async fn read_node(client: Client, name: &str) -> kube::Result<Option<Node>> {
    // A name with other characters is not a Node's name, and would mean something else in a field selector.
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
