//! Machines and clusters that wait for another configuration of the daemon, for `check`.

use cloudprovider::{ErrorKind, machines::Kinds};
use controller_kit::writes::{WriteError, within_deadline};
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, GroupVersionKind},
};

use super::{
    names::{READY, finalizer, reason_of},
    object::InfraObject,
    object_key::ObjectKind,
    store::WireInfra,
};

/// How many objects one request lists.
const PAGE: u32 = 500;

/// What is said of each object whose condition `Ready` says that the configuration does not fit it, such as
/// one on a server that is not configured any more. For people.
///
/// # Errors
/// The API server does not list them.
pub async fn misconfigured(
    client: &Client,
    kinds: &Kinds,
    namespace: Option<&str>,
) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for (of, kind) in [(ObjectKind::Machine, &kinds.machine), (ObjectKind::Cluster, &kinds.cluster)] {
        let version = GroupVersionKind::gvk(kinds.group, kinds.version, kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&version, &of.plural(kinds));
        let objects: Api<WireInfra> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let listed = match within_deadline(objects.list(&page)).await {
                Ok(listed) => listed,
                Err(WriteError::Gone) => break,
                Err(why) => return Err(format!("{} cannot be listed: {why}", resource.plural)),
            };
            let all = listed.items.into_iter().map(InfraObject::from);
            found.extend(all.filter_map(|object| what_is_said(&object, kind.kind, &finalizer(kinds, kind))));
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
    }
    Ok(found)
}

fn what_is_said(object: &InfraObject, kind: &str, finalizer: &str) -> Option<String> {
    let ready = object.condition(READY)?;
    if ready["reason"] != reason_of(ErrorKind::InvalidConfiguration) {
        return None;
    }
    let (namespace, name) = (object.namespace(), object.name());
    let message = ready["message"].as_str().unwrap_or_default();
    let kept = match object.metadata.deletion_timestamp {
        Some(_) => format!(" (it is being deleted, and the finalizer {finalizer} keeps it)"),
        None => String::new(),
    };
    Some(format!("{kind} {namespace}/{name}{kept}: {message}"))
}
