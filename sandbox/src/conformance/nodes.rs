//! Behaviour particular to Nodes.

use super::prelude::*;
use crate::kubelet;

pub(super) async fn provider_id_is_immutable(client: Client) -> Outcome {
    let name = unique("providerid");
    let path = format!("{NODES}/{name}");
    make_node(&client, &name, &json!({})).await?;
    let set = |id: Value| json!({"spec": {"providerID": id}});
    let patched = patch(&client, &path, STRATEGIC_PATCH, &set("test://1".into())).await?.ok()?;
    same!(patched["spec"]["providerID"], "test://1");
    for (id, what) in [(json!("test://2"), "modified"), (json!(""), "cleared"), (Value::Null, "cleared")] {
        let refused = patch(&client, &path, MERGE_PATCH, &set(id)).await?;
        same!(refused.refusal(), (422, "Invalid"));
        same!(
            refused.body["message"],
            format!(
                "Node {name:?} is invalid: spec.providerID: Invalid value: null: field cannot be {what} once set"
            )
        );
    }
    remove_node(&client, &name).await
}

pub(super) async fn taints_are_atomic(client: Client) -> Outcome {
    let name = unique("taints");
    let path = format!("{NODES}/{name}");
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let created = make_node(&client, &name, &json!({"spec": {"taints": [taint("a"), taint("b")]}})).await?;
    // Admission adds the not-ready taint to every new Node
    same!(created["spec"]["taints"], json!([taint("a"), taint("b"), taint("node.kubernetes.io/not-ready")]));
    let set = |taints: Value| json!({"spec": {"taints": taints}});
    let patched = patch(&client, &path, STRATEGIC_PATCH, &set(json!([taint("c")]))).await?.ok()?;
    same!(patched["spec"]["taints"], json!([taint("c")]));
    let emptied = patch(&client, &path, STRATEGIC_PATCH, &set(json!([]))).await?.ok()?;
    ensure!(emptied["spec"].get("taints").is_none(), "taints must vanish: {emptied}");
    remove_node(&client, &name).await
}

pub(super) async fn taints_are_checked(client: Client) -> Outcome {
    let name = unique("badtaints");
    for taints in [
        json!([{"key": "a", "effect": "Sometimes"}]),
        json!([{"key": "a"}]),
        json!([{"key": "a b", "effect": "NoSchedule"}]),
        json!([{"key": "a", "value": "b c", "effect": "NoSchedule"}]),
        json!([{"key": "a", "value": "1", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]),
    ] {
        let node = json!({"metadata": {"name": name}, "spec": {"taints": taints}});
        same!(post(&client, NODES, &node).await?.refusal(), (422, "Invalid"));
    }
    Ok(())
}

pub(super) async fn addresses_are_replaced(client: Client) -> Outcome {
    let name = unique("addresses");
    let status = format!("{NODES}/{name}/status");
    let address = |kind: &str, address: &str| json!({"type": kind, "address": address});
    make_node(&client, &name, &json!({"status": {"addresses": [address("Hostname", "n")]}})).await?;
    let set = async |addresses: Value| -> Fallible<Value> {
        let body = json!({"status": {"addresses": addresses}});
        Ok(patch(&client, &status, STRATEGIC_PATCH, &body).await?.ok()?["status"]["addresses"].clone())
    };
    // The merge key is the type, so a plain patch cannot contain two addresses of one type
    let merged = set(json!([address("InternalIP", "10.0.0.1")])).await?;
    same!(merged, json!([address("InternalIP", "10.0.0.1"), address("Hostname", "n")]));
    let dual =
        json!([address("InternalIP", "10.0.0.2"), address("InternalIP", "fd00::2"), {"$patch": "replace"}]);
    same!(set(dual).await?, json!([address("InternalIP", "10.0.0.2"), address("InternalIP", "fd00::2")]));
    // Addresses of one type are put at the position of the first of them
    let mixed = json!([
        address("ExternalIP", "192.0.2.1"), address("InternalIP", "10.0.0.2"), address("ExternalIP", "2001:db8::1"),
        address("InternalIP", "fd00::2"), {"$patch": "replace"},
    ]);
    let sorted = json!([
        address("ExternalIP", "192.0.2.1"),
        address("ExternalIP", "2001:db8::1"),
        address("InternalIP", "10.0.0.2"),
        address("InternalIP", "fd00::2"),
    ]);
    same!(set(mixed).await?, sorted);
    remove_node(&client, &name).await
}

pub(super) async fn status_is_apart(client: Client) -> Outcome {
    let name = unique("status");
    let path = format!("{NODES}/{name}");
    let status = format!("{path}/status");
    let node = make_node(&client, &name, &json!({"status": {"phase": "Running"}})).await?;
    same!(node["status"]["phase"], "Running");
    // A write to the main resource does not change the status
    let main = json!({"status": {"phase": "Pending"}, "metadata": {"labels": {"main": "1"}}});
    let patched = patch(&client, &path, MERGE_PATCH, &main).await?.ok()?;
    same!(
        (&patched["status"]["phase"], &patched["metadata"]["labels"]["main"]),
        (&json!("Running"), &json!("1"))
    );
    // A write to the status does not change the spec, but it does change labels and annotations
    let change = json!({
        "status": {"phase": "Pending"}, "spec": {"unschedulable": true}, "metadata": {"labels": {"status": "1"}}});
    let patched = patch(&client, &status, MERGE_PATCH, &change).await?.ok()?;
    same!(patched["status"]["phase"], "Pending");
    ensure!(patched["spec"].get("unschedulable").is_none(), "spec was written: {patched}");
    same!(patched["metadata"]["labels"]["status"], "1");
    let mut whole = get(&client, &status).await?.ok()?;
    whole["status"]["phase"] = "Terminated".into();
    same!(put(&client, &status, &whole).await?.ok()?["status"]["phase"], "Terminated");
    same!(put(&client, &status, &whole).await?.refusal(), (409, "Conflict"));
    remove_node(&client, &name).await
}

/// The helpers of [`kubelet`] act on this server as a kubelet does.
pub(super) async fn node_registration(client: Client) -> Outcome {
    let name = unique("kubelet");
    let node = kubelet::node_of_real_size(&name, "11111111-2222-4333-8444-555555555555");
    let registered = kubelet::register(&client, &node).await?;
    let taints = registered.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let keys: Vec<&str> = taints.iter().map(|taint| taint.key.as_str()).collect();
    same!(keys, [kubelet::UNINITIALIZED_TAINT, kubelet::NOT_READY_TAINT]);
    let ready = kubelet::heartbeat(&client, &name, true).await?;
    let status = ready.status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    ensure!(conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"), "conditions {conditions:?}");
    same!(status.images.map(|images| images.len()), Some(50));
    let first = kubelet::renew_lease(&client, &name).await?;
    let second = kubelet::renew_lease(&client, &name).await?;
    ensure!(first.metadata.resource_version != second.metadata.resource_version, "the lease was not renewed");
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/{name}", kubelet::LEASE_NAMESPACE);
    delete(&client, &lease, &Value::Null).await?.ok()?;
    remove_node(&client, &name).await
}
