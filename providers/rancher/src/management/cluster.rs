//! Clusters in `/v3/clusters`.

use cloudprovider::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::{
    config::ClusterSelector,
    norman::{
        client::Client,
        reply::{or_default, unavailable},
    },
};

/// A cluster that the server knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cluster {
    /// Such as `local`, `c-abcde` or `c-m-abcdefgh`.
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// `active` while the server reaches the cluster.
    #[serde(default)]
    pub(crate) state: Option<String>,
    /// The URL of its API server, once the cluster was connected.
    #[serde(default)]
    pub(crate) api_endpoint: Option<String>,
    /// The namespace of the objects from which Rancher makes the cluster.
    #[serde(default)]
    pub(crate) fleet_workspace_name: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) annotations: Annotations,
}

/// The annotations of a cluster that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Annotations {
    /// Rancher's own note on clusters that have a `provisioning.cattle.io` cluster: `true` if Rancher makes
    /// their machines, `false` if they were imported.
    #[serde(rename = "provisioning.cattle.io/administrated", default)]
    pub(crate) is_administrated: Option<String>,
}

impl Cluster {
    /// Whether the server reaches the cluster, so that what it says of its Nodes is up to date.
    pub(crate) fn is_active(&self) -> bool {
        self.state.as_deref() == Some("active")
    }

    /// Whether Rancher makes the cluster's machines, if it says so at the cluster.
    pub(crate) fn is_provisioned(&self) -> Option<bool> {
        self.annotations.is_administrated.as_deref()?.parse().ok()
    }
}

/// Finds the cluster of the configuration.
///
/// # Errors
/// If the server does not show it. That is no proof that there is none: a token without rights sees empty
/// lists.
pub(crate) async fn find(client: &Client, selector: &ClusterSelector) -> Result<Cluster> {
    match selector {
        ClusterSelector::Id(id) => {
            let operation = format!("read cluster {id}");
            let cluster: Cluster = client
                .get(client.url(&format!("clusters/{id}")))
                .await
                .map_err(|error| error.with_operation(operation.clone()))?;
            if cluster.id != *id {
                return Err(unavailable("the answer is another cluster").with_operation(operation));
            }
            Ok(cluster)
        }
        ClusterSelector::Name(name) => {
            let clusters: Vec<Cluster> = client.list("clusters", &[("name", name)]).await?;
            only(name, clusters)
        }
    }
}

/// The cluster with this name. The server ignores filters that it does not know.
fn only(name: &str, clusters: Vec<Cluster>) -> Result<Cluster> {
    let mut found = clusters.into_iter().filter(|cluster| cluster.name.as_deref() == Some(name));
    match (found.next(), found.next()) {
        (Some(cluster), None) => Ok(cluster),
        (Some(one), Some(other)) => {
            let words =
                format!("the clusters {} and {} are both called so; give clusterID", one.id, other.id);
            Err(Error::new(ErrorKind::Ambiguous, words).with_operation("find the cluster of clusterName"))
        }
        (None, _) => {
            let words =
                "the server shows no cluster of this name; check clusterName, and what the token may see";
            Err(unavailable(words).with_operation("find the cluster of clusterName"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_must_be_one_clusters() {
        let cluster = |id: &str, name: &str| Cluster {
            id: id.to_owned(),
            name: Some(name.to_owned()),
            ..Cluster::default()
        };
        let all = vec![cluster("c-1", "prod"), cluster("c-2", "test"), cluster("c-3", "test")];
        assert_eq!(only("prod", all.clone()).map(|found| found.id).expect("one"), "c-1");
        for (name, kind) in [("test", ErrorKind::Ambiguous), ("none", ErrorKind::Unavailable)] {
            assert_eq!(only(name, all.clone()).expect_err(name).kind(), kind);
        }
    }
}
