//! A Kubernetes API for unit tests.

use cloudprovider::{Error, Result};
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;

/// Lists of groups: with the kinds that are watched, and of a server that has none of them.
pub(super) const GROUPS: &str = r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[
    {"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]},
    {"name":"rke.cattle.io","versions":[{"groupVersion":"rke.cattle.io/v1","version":"v1"}]}]}"#;
pub(super) const NO_GROUPS: &str = r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[
    {"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]}]}"#;

/// The list of resources of `rke.cattle.io/v1`.
pub(super) const RESOURCES: &str = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"rke.cattle.io/v1",
    "resources":[{"name":"custommachines","singularName":"","namespaced":true,"kind":"CustomMachine","verbs":["list"]},
    {"name":"rkebootstraps","singularName":"","namespaced":true,"kind":"RKEBootstrap","verbs":["list"]}]}"#;

/// A client of an API that answers each path at once: with a status and a body, or with the error of the
/// transport.
pub(super) fn answering(
    answer: impl Fn(&str) -> Result<(u16, String), Error> + Send + 'static,
) -> kube::Client {
    serving(move |path| Box::pin(std::future::ready(answer(path))))
}

/// The same, with answers that take their time. The path has its query.
pub(super) fn serving(
    answer: impl Fn(&str) -> BoxFuture<'static, Result<(u16, String), Error>> + Send + 'static,
) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let answered = answer(request.uri().path_and_query().map_or("/", |path| path.as_str()));
        async move {
            let (status, body) = answered.await?;
            let response = Response::builder().status(status).body(Body::from(body.into_bytes()));
            Ok::<_, Error>(response.expect("a response"))
        }
    });
    kube::Client::new(service, "default")
}
