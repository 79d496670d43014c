//! Services read once, for tools that do not watch.

use std::sync::Arc;

use cloudprovider::UsedAddresses;
use kube::{Api, Client, api::ListParams};

use super::{Service, in_use, wire::WireService};
use crate::nodes::Node;

/// The addresses that these Nodes and the Services of the cluster use.
///
/// # Errors
/// The API server's.
pub async fn read_in_use(client: Client, nodes: &[Arc<Node>]) -> kube::Result<UsedAddresses> {
    let mut used: UsedAddresses = nodes.iter().flat_map(|node| in_use::of_node(node)).collect();
    let services = Api::<WireService>::all(client.clone()).list(&ListParams::default()).await?;
    used.extend(
        services.items.into_iter().map(Service::from).flat_map(|service| in_use::of_service(&service)),
    );
    used.extend(in_use::of_api_server(&client).await);
    Ok(used)
}

/// The Service of this name. It asks for a list, since the daemon has no permission to `get` Services.
///
/// # Errors
/// The API server's.
pub async fn read_service(client: Client, namespace: &str, name: &str) -> kube::Result<Option<Service>> {
    // A text that cannot be a Service's name could mean something else in a selector.
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Ok(None);
    }
    let selector = format!("metadata.name={name},metadata.namespace={namespace}");
    let params = ListParams::default().fields(&selector);
    let found = Api::<WireService>::all(client).list(&params).await?;
    let found = found.items.into_iter().map(Service::from);
    Ok(found
        .into_iter()
        .find(|service| service.content.namespace == namespace && service.content.name == name))
}
