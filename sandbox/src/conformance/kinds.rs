//! Kinds other than Node, and discovery.

use super::prelude::*;

pub(super) async fn leases(client: Client) -> Outcome {
    let name = unique("lease");
    let path = format!("{LEASES}/{name}");
    let lease = |holder: &str, version: &str| {
        json!({"metadata": {"name": name, "resourceVersion": version}, "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.123456Z"}})
    };
    // PUT creates a Lease
    let created = put(&client, &path, &lease("a", "")).await?;
    same!(created.code, 201);
    same!(created.body["spec"]["renewTime"], "2026-01-01T00:00:00.123456Z");
    // but never overwrites one without a resourceVersion
    same!(put(&client, &path, &lease("b", "")).await?.refusal(), (422, "Invalid"));
    let version = revision(&created.body).to_owned();
    same!(put(&client, &path, &lease("b", &version)).await?.code, 200);
    same!(put(&client, &path, &lease("c", &version)).await?.refusal(), (409, "Conflict"));
    let deleted = delete(&client, &path, &Value::Null).await?.ok()?;
    same!(deleted["details"]["group"], "coordination.k8s.io");
    Ok(())
}

pub(super) async fn events_in_both_groups(client: Client) -> Outcome {
    const CORE: &str = "/api/v1/namespaces/default/events";
    const NEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
    let name = unique("event");
    let node = json!({"kind": "Node", "name": name, "apiVersion": "v1"});
    let event = json!({
        "metadata": {"name": name}, "regarding": node, "reason": "Synced", "note": "text", "type": "Normal",
        "action": "Sync", "reportingController": "example.com/c", "reportingInstance": "i",
        "eventTime": "2026-01-01T00:00:00.000001Z",
    });
    post(&client, NEW, &event).await?.ok()?;
    let core = get(&client, &format!("{CORE}/{name}")).await?.ok()?;
    same!((&core["involvedObject"], &core["message"]), (&node, &json!("text")));
    same!(core["reportingComponent"], "example.com/c");
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000001Z"}});
    let patched = patch(&client, &format!("{NEW}/{name}"), MERGE_PATCH, &series).await?.ok()?;
    same!((&patched["series"]["count"], &patched["note"]), (&json!(2), &json!("text")));
    let selected = format!("{CORE}?fieldSelector=involvedObject.name%3D{name},involvedObject.kind%3DNode");
    same!(get(&client, &selected).await?.ok()?["items"][0]["reason"], "Synced");
    delete(&client, &format!("{CORE}/{name}"), &Value::Null).await?.ok()?;
    same!(get(&client, &format!("{NEW}/{name}")).await?.code, 404);
    // Events about cluster-scoped objects belong in the namespace default
    let misplaced =
        json!({"metadata": {"name": name}, "involvedObject": node, "reason": "r", "type": "Normal"});
    let refused = post(&client, "/api/v1/namespaces/kube-public/events", &misplaced).await?;
    same!(refused.refusal(), (422, "Invalid"));
    Ok(())
}

pub(super) async fn namespaces(client: Client) -> Outcome {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = get(&client, &format!("/api/v1/namespaces/{name}")).await?.ok()?;
        same!(namespace["status"]["phase"], "Active");
        same!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], name);
    }
    let dotted = post(&client, "/api/v1/namespaces", &json!({"metadata": {"name": "a.b"}})).await?;
    same!(dotted.refusal(), (422, "Invalid"));
    Ok(())
}

pub(super) async fn discovery(client: Client) -> Outcome {
    let version = get(&client, "/version").await?.ok()?;
    same!(version["major"], "1");
    same!(get(&client, "/api").await?.ok()?["versions"], json!(["v1"]));
    let resources = get(&client, "/api/v1").await?.ok()?;
    let resources = resources["resources"].as_array().cloned().unwrap_or_default();
    let nodes = resources.iter().find(|resource| resource["name"] == "nodes");
    let nodes = nodes.ok_or("no nodes")?;
    same!((&nodes["kind"], &nodes["namespaced"]), (&json!("Node"), &json!(false)));
    same!(nodes["shortNames"], json!(["no"]));
    ensure!(resources.iter().any(|resource| resource["name"] == "nodes/status"), "no nodes/status");
    let groups = get(&client, "/apis").await?.ok()?;
    let groups = groups["groups"].as_array().cloned().unwrap_or_default();
    let group =
        groups.iter().find(|group| group["name"] == "coordination.k8s.io").ok_or("no group of leases")?;
    same!(group["preferredVersion"]["groupVersion"], "coordination.k8s.io/v1");
    same!(get(&client, "/apis/coordination.k8s.io").await?.ok()?["kind"], "APIGroup");
    same!(get(&client, "/apis/coordination.k8s.io/v1").await?.ok()?["kind"], "APIResourceList");
    for path in ["/healthz", "/livez", "/readyz"] {
        same!(get(&client, path).await?.body, "ok");
    }
    Ok(())
}

/// A definition adds its kind. Objects of the kind have a generation, and a status subresource.
pub(super) async fn custom_resources(client: Client) -> Outcome {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let group = format!("{}.example.com", unique("crd"));
    let definition = json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    post(&client, DEFINITIONS, &definition).await?.ok()?;
    let widgets = format!("/apis/{group}/v1/namespaces/default/widgets");
    let path = format!("{widgets}/w");
    let widget = json!({
        "kind": "Widget", "apiVersion": format!("{group}/v1"), "metadata": {"name": "w"}, "spec": {"size": 1},
        "status": {"ready": true}});
    // A real server needs a moment until it serves the kind
    let mut created = post(&client, &widgets, &widget).await?;
    for _ in 0..100 {
        if created.code != 404 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        created = post(&client, &widgets, &widget).await?;
    }
    let created = created.ok()?;
    same!(created["metadata"]["generation"], 1);
    ensure!(created.get("status").is_none(), "status was written: {created}");
    let status = json!({"status": {"ready": true}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}});
    let patched = patch(&client, &format!("{path}/status"), MERGE_PATCH, &status).await?.ok()?;
    same!((&patched["status"], &patched["spec"]), (&json!({"ready": true}), &json!({"size": 1})));
    same!(patched["metadata"]["generation"], 1);
    ensure!(patched["metadata"].get("labels").is_none(), "labels were written: {patched}");
    let spec = json!({"spec": {"size": 2}, "status": {"ready": false}});
    let patched = patch(&client, &path, MERGE_PATCH, &spec).await?.ok()?;
    same!((&patched["status"], &patched["metadata"]["generation"]), (&json!({"ready": true}), &json!(2)));
    let labelled =
        patch(&client, &path, MERGE_PATCH, &json!({"metadata": {"labels": {"a": "b"}}})).await?.ok()?;
    same!(labelled["metadata"]["generation"], 2);
    same!(patch(&client, &path, STRATEGIC_PATCH, &spec).await?.refusal(), (415, "UnsupportedMediaType"));
    same!(put(&client, &path, &widget).await?.refusal(), (422, "Invalid"));
    let list = get(&client, &widgets).await?.ok()?;
    same!((&list["kind"], &list["items"][0]["kind"]), (&json!("WidgetList"), &json!("Widget")));
    let finalizer = json!({"metadata": {"finalizers": ["example.com/wait"]}});
    patch(&client, &path, MERGE_PATCH, &finalizer).await?.ok()?;
    let waiting = delete(&client, &path, &Value::Null).await?.ok()?;
    same!(waiting["metadata"]["generation"], 3);
    patch(&client, &path, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await?.ok()?;
    same!(get(&client, &path).await?.refusal(), (404, "NotFound"));
    delete(&client, &format!("{DEFINITIONS}/widgets.{group}"), &Value::Null).await?.ok()?;
    Ok(())
}

pub(super) async fn endpoint_slices(client: Client) -> Outcome {
    const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let name = unique("slice");
    let path = format!("{SLICES}/{name}");
    let slice = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": true}, "nodeName": "n1"}],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    });
    let created = post(&client, SLICES, &slice).await?.ok()?;
    same!(created["metadata"]["generation"], 1);
    same!(created["endpoints"], slice["endpoints"]);
    let listed = get(&client, &format!("{SLICES}?labelSelector=kubernetes.io/service-name%3D{name}")).await?;
    same!(listed.ok()?["items"].as_array().map(Vec::len), Some(1));
    let emptied = json!({"endpoints": []});
    same!(patch(&client, &path, MERGE_PATCH, &emptied).await?.ok()?["metadata"]["generation"], 2);
    delete(&client, &path, &Value::Null).await?.ok()?;
    Ok(())
}
