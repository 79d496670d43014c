//! The clusters that the server knows, as a part of the contract.

use std::collections::BTreeMap;

use cloudprovider::{Clusters, ControlPlaneEndpoint, Error, ErrorKind, Result, async_trait};
use reqwest::Url;

use super::cluster::Cluster;
use crate::norman::{client::Client, reply::unavailable};

/// The clusters of a Rancher 2.x server.
#[derive(Debug)]
pub(crate) struct ManagementClusters {
    client: Client,
}

impl ManagementClusters {
    /// The clusters that this client is shown.
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// All clusters.
    ///
    /// # Errors
    /// Also if the server shows none: it always has one itself, and a token without rights sees an empty
    /// list.
    async fn all(&self) -> Result<Vec<Cluster>> {
        let all: Vec<Cluster> = self.client.list("clusters", &[]).await?;
        if all.is_empty() {
            return Err(unavailable("the server shows no cluster at all; check what the token may see"));
        }
        Ok(all)
    }
}

#[async_trait]
impl Clusters for ManagementClusters {
    async fn list(&self) -> Result<Vec<String>> {
        let all = self.all().await.map_err(|error| error.with_operation("list clusters"))?;
        Ok(names(&all))
    }

    async fn control_plane_endpoint(&self, cluster: &str) -> Result<Option<ControlPlaneEndpoint>> {
        let all = self.all().await;
        let endpoint = all.and_then(|all| endpoint(find(&all, cluster)?));
        endpoint.map_err(|error| error.with_operation("find the control plane"))
    }
}

/// What the clusters are called, sorted: by their names, or by their IDs where several share a name or one
/// has none.
fn names(all: &[Cluster]) -> Vec<String> {
    let mut by_name: BTreeMap<&str, Vec<&Cluster>> = BTreeMap::new();
    for cluster in all {
        by_name.entry(cluster.name.as_deref().unwrap_or_default()).or_default().push(cluster);
    }
    let called = by_name.into_iter().flat_map(|(name, clusters)| match clusters.as_slice() {
        [_] if !name.is_empty() => vec![name.to_owned()],
        several => several.iter().map(|cluster| cluster.id.clone()).collect(),
    });
    let mut called: Vec<String> = called.collect();
    called.sort_unstable();
    called.dedup();
    called
}

/// The cluster with this ID, or else with this name.
///
/// # Errors
/// [`ErrorKind::NotFound`] if there is none, [`ErrorKind::Ambiguous`] if several have the name.
fn find<'a>(all: &'a [Cluster], called: &str) -> Result<&'a Cluster> {
    if let Some(found) = all.iter().find(|cluster| cluster.id == called) {
        return Ok(found);
    }
    let mut found = all.iter().filter(|cluster| cluster.name.as_deref() == Some(called));
    match (found.next(), found.next()) {
        (Some(cluster), None) => Ok(cluster),
        (Some(one), Some(other)) => {
            let words = format!("the clusters {} and {} are both called so; give the ID", one.id, other.id);
            Err(Error::new(ErrorKind::Ambiguous, words))
        }
        (None, _) => Err(Error::new(
            ErrorKind::NotFound,
            format!("the server shows no cluster {called:?}; check what the token may see"),
        )),
    }
}

/// The API server of a cluster, which Rancher knows as soon as the cluster was connected once.
fn endpoint(cluster: &Cluster) -> Result<Option<ControlPlaneEndpoint>> {
    let Some(text) = cluster.api_endpoint.as_deref().filter(|text| !text.is_empty()) else { return Ok(None) };
    let odd = || unavailable(format!("cluster {} has an apiEndpoint that is no URL", cluster.id));
    let url = Url::parse(text).map_err(|_| odd())?;
    let host = url.host_str().ok_or_else(odd)?.trim_matches(['[', ']']).to_owned();
    let port = url.port_or_known_default().ok_or_else(odd)?;
    Ok(Some(ControlPlaneEndpoint { host, port }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(id: &str, name: &str, api_endpoint: &str) -> Cluster {
        Cluster {
            id: id.to_owned(),
            name: Some(name.to_owned()),
            api_endpoint: Some(api_endpoint.to_owned()),
            ..Cluster::default()
        }
    }

    #[test]
    fn names_are_sorted_and_each_once() {
        let all = [
            cluster("local", "local", ""),
            cluster("c-2", "test", ""),
            cluster("c-1", "prod", ""),
            cluster("c-3", "test", ""),
            cluster("c-4", "", ""),
            Cluster { id: "c-5".to_owned(), ..Cluster::default() },
        ];
        assert_eq!(names(&all), ["c-2", "c-3", "c-4", "c-5", "local", "prod"]);
    }

    #[test]
    fn a_cluster_is_found_by_its_id_or_by_its_name() {
        let all = [cluster("c-1", "prod", ""), cluster("c-2", "test", ""), cluster("c-3", "test", "")];
        let id = |called| find(&all, called).map(|found| found.id.as_str()).map_err(|error| error.kind());
        assert_eq!((id("prod"), id("c-3")), (Ok("c-1"), Ok("c-3")));
        assert_eq!((id("test"), id("none")), (Err(ErrorKind::Ambiguous), Err(ErrorKind::NotFound)));
    }

    #[test]
    fn endpoints_are_urls() {
        let text = |api_endpoint: &str| {
            let found = endpoint(&cluster("c-1", "prod", api_endpoint)).map_err(|error| error.kind());
            found.map(|found| found.map(|found| found.to_string()))
        };
        for (given, expected) in [
            ("https://10.0.0.1:6443", "10.0.0.1:6443"),
            ("https://api.example.org", "api.example.org:443"),
            ("https://[fd00::1]:6443/", "[fd00::1]:6443"),
        ] {
            assert_eq!(text(given), Ok(Some(expected.to_owned())));
        }
        assert_eq!(text(""), Ok(None), "the cluster was never connected");
        for odd in ["10.0.0.1:6443", "nowhere", "data:x"] {
            assert_eq!(text(odd), Err(ErrorKind::Unavailable), "{odd}");
        }
    }
}
