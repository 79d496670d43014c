//! A Service read once, for tools that do not watch.

use kube::{Api, Client, api::ListParams};

use super::{Service, wire::WireService};

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
