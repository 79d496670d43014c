//! Whether Rancher makes the machines of a cluster: what its `provisioning.cattle.io` cluster says.

use cloudprovider::{ErrorKind, Result, dns};
use http::Request;
use kube::core::{ApiResource, GroupVersionKind, ObjectMeta};
use serde::Deserialize;

use super::{
    cluster::Cluster,
    history::Origin,
    kinds::is_missing,
    transport::{self, is_absent},
};
use crate::norman::reply::unavailable;

/// The namespace of clusters for which the server names none.
const NAMESPACE: &str = "fleet-default";

/// How the IDs of clusters begin that have such an object for certain.
const ID_PREFIX: &str = "c-m-";

/// Whose the machines of a cluster are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Provisioning {
    /// Rancher's.
    Rancher {
        /// Of the objects from which they are made.
        namespace: String,
        /// The name of the cluster in them.
        name: String,
        /// Of the object, without a resource version.
        origin: Origin,
    },
    /// Not Rancher's, as far as the token may see.
    Foreign(Foreign),
}

/// Why machines count as not Rancher's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// Rancher does not make the cluster.
    NotProvisioned,
    /// Rancher has no such object for it.
    NotFound,
    /// The token may not read the object.
    Forbidden,
}

impl Foreign {
    /// The reason in words.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::NotProvisioned => "Rancher does not provision the cluster",
            Self::NotFound => "Rancher has no provisioning.cattle.io cluster for it",
            Self::Forbidden => "the token may not read its provisioning.cattle.io cluster",
        }
    }
}

/// A `provisioning.cattle.io` cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProvisioningCluster {
    metadata: ObjectMeta,
    spec: ProvisioningSpec,
    status: ProvisioningStatus,
}

impl ProvisioningCluster {
    /// Whether it is the object that was asked for. Fields that are missing in anything else would have a
    /// meaning.
    fn is(&self, namespace: &str, name: &str) -> bool {
        let metadata = &self.metadata;
        metadata.namespace.as_deref() == Some(namespace)
            && metadata.name.as_deref() == Some(name)
            && metadata.uid.is_some()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProvisioningSpec {
    /// How Rancher makes the cluster. Imported clusters have none.
    rke_config: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProvisioningStatus {
    /// The ID of the cluster.
    cluster_name: Option<String>,
}

/// Whose the machines of this cluster are. `configured` is the namespace of the configuration, and
/// `was_rancher` whether they were Rancher's before.
///
/// # Errors
/// If that is not certain. A Node that is initialised for a mirrored machine keeps that provider ID for ever,
/// so only the API server's own word counts.
pub(super) async fn find(
    kubernetes: &kube::Client,
    cluster: &Cluster,
    configured: Option<&str>,
    was_rancher: bool,
) -> Result<Provisioning> {
    // Why there must be an object.
    let expected = if was_rancher {
        Some("its Machines were there before")
    } else if cluster.is_provisioned() == Some(true) {
        Some("Rancher says that it provisions the cluster")
    } else if cluster.id.starts_with(ID_PREFIX) {
        Some("clusters with such an ID have one")
    } else {
        configured.map(|_| "namespace is set, which is for clusters that have one")
    };
    let not_found = |what: String| match expected {
        None => Ok(Provisioning::Foreign(Foreign::NotFound)),
        Some(why) => Err(unavailable(format!(
            "{what}, but {why}; check namespace, and the cluster's name and fleetWorkspaceName in Rancher"
        ))),
    };
    // Names of other clusters may be any text.
    let Some(name) = cluster.name.clone().filter(|name| dns::is_subdomain(name)) else {
        return not_found(format!("cluster {} has no name that a provisioning cluster can have", cluster.id));
    };
    let of_server = cluster.fleet_workspace_name.as_deref().filter(|name| dns::is_label(name));
    let namespace = configured.or(of_server).unwrap_or(NAMESPACE);
    let operation = format!("read provisioning cluster {namespace}/{name}");
    let outcome = async {
        let kind = clusters();
        let path = format!("/apis/{}/namespaces/{namespace}/{}/{name}", kind.api_version, kind.plural);
        let request = Request::get(path).body(Vec::new());
        let request = request.map_err(|error| unavailable(error.to_string()))?;
        let error = match kubernetes.request::<ProvisioningCluster>(request).await {
            Ok(found) if !found.is(namespace, &name) => {
                return Err(unavailable("the answer is another object"));
            }
            Ok(found) if found.spec.rke_config.is_none() => {
                return match expected.filter(|_| was_rancher || cluster.is_provisioned() == Some(true)) {
                    None => Ok(Provisioning::Foreign(Foreign::NotProvisioned)),
                    Some(why) => Err(unavailable(format!("it has no rkeConfig, but {why}"))),
                };
            }
            Ok(found) if found.status.cluster_name.as_ref() == Some(&cluster.id) => {
                let (namespace, origin) = (namespace.to_owned(), Origin::of(&found.metadata));
                return Ok(Provisioning::Rancher { namespace, name: name.clone(), origin });
            }
            Ok(_) => return Err(unavailable(format!("it is not that of cluster {}", cluster.id))),
            Err(error) if is_absent(&error, &kind, &name) => {
                return not_found("there is no such object".to_owned());
            }
            Err(error) => error,
        };
        let is_404 = matches!(&error, kube::Error::Api(status) if status.code == 404);
        let error = transport::error(&error);
        if error.kind() == ErrorKind::PermissionDenied {
            let is_imported = cluster.is_provisioned() == Some(false) && !was_rancher;
            return match expected.filter(|_| !is_imported) {
                None => Ok(Provisioning::Foreign(Foreign::Forbidden)),
                Some(why) => Err(error.wrap(format!(
                    "the token needs the right get on clusters (provisioning.cattle.io) in namespace {namespace} of the management cluster, for {why}"
                ))),
            };
        }
        // Old servers do not have the kind.
        if is_404 && expected.is_none() && is_missing(kubernetes, &kind).await.unwrap_or(false) {
            return not_found(String::new());
        }
        Err(error)
    };
    outcome.await.map_err(|error| error.with_operation(operation))
}

fn clusters() -> ApiResource {
    let kind = GroupVersionKind::gvk("provisioning.cattle.io", "v1", "Cluster");
    ApiResource::from_gvk_with_plural(&kind, "clusters")
}

#[cfg(test)]
mod tests;
