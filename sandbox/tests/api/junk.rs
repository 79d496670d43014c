//! Bad input gets an error response, and never causes a panic.

use http::{Request, header};
use http_body_util::BodyExt;
use kube::client::Body;
use sandbox::Sandbox;
use serde_json::{Value, json};

/// Puts junk into every field that the server reads, for every kind and every write verb.
#[tokio::test]
async fn junk_in_every_field() {
    const FIELDS: &[&str] = &[
        "",
        "/metadata",
        "/metadata/name",
        "/metadata/namespace",
        "/metadata/labels",
        "/metadata/annotations",
        "/metadata/finalizers",
        "/metadata/ownerReferences",
        "/metadata/resourceVersion",
        "/metadata/uid",
        "/metadata/deletionTimestamp",
        "/spec",
        "/spec/taints",
        "/spec/ports",
        "/spec/parentRef",
        "/spec/ipFamilies",
        "/spec/clusterIPs",
        "/spec/sessionAffinityConfig",
        "/spec/names",
        "/spec/versions",
        "/spec/providerID",
        "/spec/containers",
        "/spec/selector",
        "/spec/finalizers",
        "/status",
        "/status/nodeInfo",
        "/status/daemonEndpoints",
        "/status/conditions",
        "/status/addresses",
        "/status/loadBalancer",
        "/status/loadBalancer/ingress",
        "/status/capacity",
        "/data",
        "/stringData",
        "/source",
        "/series",
        "/subsets",
        "/involvedObject",
        "/regarding",
        "/eventTime",
        "/kind",
        "/apiVersion",
        "/preconditions",
    ];
    let junk = [
        json!(null),
        json!(5),
        json!(true),
        json!("x"),
        json!(""),
        json!([]),
        json!({}),
        json!([5]),
        json!([[]]),
        json!([{}]),
        json!([null]),
        json!({"a": 5}),
        json!({"a": null}),
        json!({"$patch": "x"}),
        json!([{"$patch": "replace"}]),
        json!({"$retainKeys": 1, "$setElementOrder/x": 5}),
    ];
    let sandbox = Sandbox::new();
    let client = sandbox.client();
    let send = async |request: http::request::Builder, body: &Value| {
        let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
        client.send(request).await.unwrap().into_body().collect().await.unwrap().to_bytes()
    };
    let paths = [
        "/api/v1/nodes",
        "/api/v1/namespaces",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/services",
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces/default/events",
        "/apis/events.k8s.io/v1/namespaces/default/events",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        "/apis/networking.k8s.io/v1/ipaddresses",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ];
    for path in paths {
        for field in FIELDS {
            for value in &junk {
                let mut object = json!({"metadata": {"name": "junk"}});
                let (parent, last) = field.rsplit_once('/').unwrap_or_default();
                match object.pointer_mut(parent) {
                    _ if field.is_empty() => object = value.clone(),
                    Some(parent) => parent[last] = value.clone(),
                    None => object[&parent[1..]] = json!({last: value}),
                }
                send(Request::post(path).header(header::CONTENT_TYPE, "application/json"), &object).await;
                let one = format!("{path}/junk");
                send(Request::put(&one).header(header::CONTENT_TYPE, "application/json"), &object).await;
                for content_type in ["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"] {
                    for uri in [format!("{one}?fieldManager=t"), format!("{one}/status?fieldManager=t")] {
                        let content_type = format!("application/{content_type}");
                        send(Request::patch(uri).header(header::CONTENT_TYPE, content_type), &object).await;
                    }
                }
                let operations =
                    json!([{"op": "add", "path": field, "value": value}, {"op": value, "path": value}]);
                let json_patch = "application/json-patch+json";
                send(Request::patch(&one).header(header::CONTENT_TYPE, json_patch), &operations).await;
            }
        }
        let table = Request::get(path).header(header::ACCEPT, "application/json;as=Table;g=meta.k8s.io;v=v1");
        send(table, &Value::Null).await;
        let one = format!("{path}/junk");
        send(
            Request::delete(&one).header(header::CONTENT_TYPE, "application/json"),
            &json!({"preconditions": 5}),
        )
        .await;
        send(Request::delete(path).header(header::CONTENT_TYPE, "application/json"), &Value::Null).await;
    }
    for uri in [
        "/api/v1/nodes?limit=x",
        "/api/v1/nodes?limit=1&continue=1.99999999999999999999",
        "/api//v1/%00/%ff",
        "/api/v1/nodes?watch=1&timeoutSeconds=99999999999999999999",
        "/api/v1/nodes?labelSelector=a%20in%20(",
        "/api/v1/nodes?labelSelector=((,)),in,!,%3D",
        "/apis/",
        "/api/v1/nodes?fieldSelector=%3D",
        "/api/v1/nodes?watch=1&timeoutSeconds=1&resourceVersion=18446744073709551615",
        "/api/v1/nodes?watch=1&timeoutSeconds=18446744073709551615&resourceVersion=x",
        "/openapi/v3/apis/x/y",
    ] {
        send(Request::get(uri), &Value::Null).await;
    }
    let endless = Request::get("/api/v1/nodes?watch=1&timeoutSeconds=18446744073709551615");
    assert!(client.send(endless.body(Body::empty()).unwrap()).await.unwrap().status().is_success());
}
