//! Which kinds the management cluster has, by its own lists.

use cloudprovider::{Error, ErrorKind, Result};
use http::Request;
use kube::core::ApiResource;
use serde::Deserialize;

use super::transport;
use crate::norman::reply::unavailable;

/// The versions of a group.
#[derive(Debug, Deserialize)]
struct Group {
    versions: Vec<GroupVersion>,
}

#[derive(Debug, Deserialize)]
struct GroupVersion {
    version: String,
}

/// The version of Cluster API to use. The fields that matter are the same in both.
///
/// # Errors
/// Also if the server has none that is known.
pub(super) async fn machine_version(kubernetes: &kube::Client) -> Result<&'static str> {
    let operation = "find Cluster API in the management cluster";
    let request = Request::get("/apis/cluster.x-k8s.io").body(Vec::new());
    let request = request.map_err(|error| Error::new(ErrorKind::InvalidInput, error.to_string()))?;
    let group: Group = kubernetes
        .request(request)
        .await
        .map_err(|error| transport::error(&error).with_operation(operation))?;
    let has = |known: &&str| group.versions.iter().any(|one| one.version == *known);
    ["v1beta2", "v1beta1"].into_iter().find(has).ok_or_else(|| {
        unavailable("it has neither v1beta2 nor v1beta1 of cluster.x-k8s.io").with_operation(operation)
    })
}

/// Whether the server does not have this kind, by its own lists of groups and resources. A 404 proves
/// nothing: it may be a proxy's.
///
/// # Errors
/// If a list cannot be read.
pub(super) async fn is_missing(kubernetes: &kube::Client, kind: &ApiResource) -> Result<bool> {
    let groups = kubernetes.list_api_groups().await.map_err(|error| transport::error(&error))?.groups;
    if groups.is_empty() {
        return Err(unavailable("the list of API groups is empty"));
    }
    let mut versions =
        groups.iter().filter(|group| group.name == kind.group).flat_map(|group| &group.versions);
    if !versions.any(|one| one.version == kind.version) {
        return Ok(true);
    }
    let list = kubernetes.list_api_group_resources(&kind.api_version).await;
    let list = list.map_err(|error| transport::error(&error))?;
    if list.group_version != kind.api_version {
        return Err(unavailable(format!("the list of resources is not that of {}", kind.api_version)));
    }
    Ok(!list.resources.iter().any(|resource| resource.name == kind.plural))
}

#[cfg(test)]
mod tests {
    use super::super::{
        objects::custom_machines,
        testing::{GROUPS, NO_GROUPS, RESOURCES, answering},
    };
    use super::*;

    #[tokio::test]
    async fn only_the_servers_own_lists_say_that_a_kind_is_missing() {
        let page = "<html>not found</html>";
        for (groups, resources, expected) in [
            ((200, NO_GROUPS), (404, page), Some(true)),
            ((200, GROUPS), (200, RESOURCES), Some(false)),
            ((200, GROUPS), (200, &*RESOURCES.replace("custommachines", "others")), Some(true)),
            ((200, GROUPS), (404, page), None),
            ((200, GROUPS), (200, "{}"), None),
            ((200, "{}"), (200, "{}"), None),
            ((404, page), (404, page), None),
        ] {
            let (groups, resources) =
                ((groups.0, groups.1.to_owned()), (resources.0, resources.1.to_owned()));
            let kubernetes =
                answering(move |path| Ok(if path == "/apis" { groups.clone() } else { resources.clone() }));
            assert_eq!(is_missing(&kubernetes, &custom_machines()).await.ok(), expected);
        }
    }
}
