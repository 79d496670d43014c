//! The clusters that the server knows.

use cloudprovider::{CloudProvider as _, Clusters, ControlPlaneEndpoint, ErrorKind};
use cloudprovider_rancher::RancherProvider;
use serde_json::json;

use crate::{
    rancher::{FakeRancher, Fault, POWERLESS, TOKEN},
    support::provider,
};

fn clusters(provider: &RancherProvider) -> &dyn Clusters {
    provider.clusters().expect("clusters")
}

/// A server with a cluster of each kind.
async fn server() -> FakeRancher {
    let server = FakeRancher::start().await;
    for (id, name) in
        [("local", "local"), ("c-1", "prod"), ("c-2", "stage"), ("c-m-1", "test"), ("c-3", "test")]
    {
        server.add_cluster(id, name, "fleet-default");
    }
    let fields = [
        ("c-1", json!("https://[fd00::1]:6443"), "active"),
        ("c-2", json!(null), "pending"),
        ("c-m-1", json!("https://10.0.0.1:6443"), "unavailable"),
    ];
    for (id, endpoint, state) in fields {
        server.set_state(id, state);
        for known in server.server().clusters.iter_mut().filter(|known| known["id"] == id) {
            known["apiEndpoint"] = endpoint.clone();
        }
    }
    server
}

#[tokio::test]
async fn all_pages_are_read() {
    let server = server().await;
    let provider = provider(&server.config("c-1", "pageSize: 2\n")).expect("a provider");
    // Two clusters are called test, so their IDs stand for them.
    let names = clusters(&provider).list().await.expect("a list");
    assert_eq!(names, ["c-3", "c-m-1", "local", "prod", "stage"]);
    assert_eq!(server.calls(), 3, "three pages");
}

/// The first cluster of the next page is gone before the page is read: the server begins anew, without a
/// word.
#[tokio::test]
async fn a_cluster_that_leaves_between_two_pages_makes_no_other_one_ambiguous() {
    let server = server().await;
    let provider = provider(&server.config("c-1", "pageSize: 2\n")).expect("a provider");
    server.server().leaves = Some(("/v3/clusters", 2, "c-2".to_owned()));
    let endpoint = clusters(&provider).control_plane_endpoint("prod").await.expect("one cluster");
    assert_eq!(endpoint.expect("an endpoint").to_string(), "[fd00::1]:6443");
    assert_eq!(server.calls(), 3, "the first page twice, and the last one");
}

#[tokio::test]
async fn a_cluster_that_was_connected_has_an_endpoint() {
    let server = server().await;
    let provider = provider(&server.config("c-1", "")).expect("a provider");
    let endpoint = async |cluster: &str| {
        let found = clusters(&provider).control_plane_endpoint(cluster).await;
        found.map(|found| found.as_ref().map(ControlPlaneEndpoint::to_string)).map_err(|error| error.kind())
    };
    let of = |text: &str| Ok(Some(text.to_owned()));
    assert_eq!(endpoint("prod").await, of("[fd00::1]:6443"));
    assert_eq!(endpoint("local").await, of("10.43.0.1:443"));
    assert_eq!(endpoint("c-m-1").await, of("10.0.0.1:6443"), "Rancher does not reach it, and others may");
    assert_eq!(endpoint("stage").await, Ok(None), "it was never connected");
    assert_eq!(endpoint("test").await, Err(ErrorKind::Ambiguous));
    assert_eq!(endpoint("nobody").await, Err(ErrorKind::NotFound));
}

#[tokio::test]
async fn what_goes_wrong_is_no_answer() {
    let server = server().await;
    let good = provider(&server.config("c-1", "")).expect("a provider");
    let errors = async |provider: &RancherProvider| {
        let clusters = clusters(provider);
        let listed = clusters.list().await.expect_err("no list");
        let found = clusters.control_plane_endpoint("nobody").await.expect_err("no endpoint");
        assert_eq!(listed.kind(), found.kind());
        listed.kind()
    };
    for (fault, expected) in [
        (Fault::unauthorized(), ErrorKind::Unauthenticated),
        (Fault::error(403, "PermissionDenied"), ErrorKind::PermissionDenied),
        (Fault::error(404, "NotFound"), ErrorKind::Unavailable),
        (Fault::error(429, "TooManyRequests"), ErrorKind::RateLimited),
        (Fault::error(500, "ServerError"), ErrorKind::Unavailable),
        (Fault::error(503, "ClusterUnavailable"), ErrorKind::Unavailable),
        (Fault::login_page(), ErrorKind::Unavailable),
        (Fault::redirect(), ErrorKind::Unavailable),
    ] {
        server.server().fault = Some(("/v3/clusters", fault));
        // A provider that was told to wait does not ask again.
        let fresh = provider(&server.config("c-1", "")).expect("a provider");
        assert_eq!(errors(&fresh).await, expected);
    }
    server.set_fault(None);
    // An empty list is what a token without rights gets: no proof of anything.
    let powerless = server.config("c-1", "").replace(TOKEN, POWERLESS);
    let powerless = provider(&powerless).expect("a provider");
    assert_eq!(errors(&powerless).await, ErrorKind::Unavailable);
    server.go_away();
    assert_eq!(errors(&good).await, ErrorKind::Unavailable);
    server.come_back();
    assert_eq!(clusters(&good).list().await.expect("a list").len(), 5);
}
