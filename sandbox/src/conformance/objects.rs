//! Create, read, update and delete.

use super::prelude::*;

pub(super) async fn create_get_delete(client: Client) -> Outcome {
    let name = unique("crud");
    let created = make_node(&client, &name, &json!({"spec": {"podCIDR": "10.9.0.0/24"}})).await?;
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        ensure!(created["metadata"][field].is_string(), "{field} is missing: {created}");
    }
    same!(created["kind"], "Node");
    let path = format!("{NODES}/{name}");
    let read = get(&client, &path).await?.ok()?;
    same!(read["metadata"]["uid"], created["metadata"]["uid"]);
    same!(read["spec"]["podCIDR"], "10.9.0.0/24");
    let again = post(&client, NODES, &json!({"metadata": {"name": name}})).await?;
    same!(again.refusal(), (409, "AlreadyExists"));
    same!(again.body["message"], format!("nodes {name:?} already exists"));
    same!(again.body["details"], json!({"name": name, "kind": "nodes"}));
    let deleted = delete(&client, &path, &Value::Null).await?.ok()?;
    same!(deleted["status"], "Success");
    same!(deleted["details"]["uid"], created["metadata"]["uid"]);
    same!(deleted["details"]["kind"], "nodes");
    let gone = get(&client, &path).await?;
    same!(gone.refusal(), (404, "NotFound"));
    same!(gone.body["message"], format!("nodes {name:?} not found"));
    Ok(())
}

pub(super) async fn create_refusals(client: Client) -> Outcome {
    let name = unique("refused");
    let unnamed = post(&client, NODES, &json!({"metadata": {}})).await?;
    same!(unnamed.refusal(), (422, "Invalid"));
    let versioned =
        post(&client, NODES, &json!({"metadata": {"name": name, "resourceVersion": "1"}})).await?;
    same!(versioned.code, 500);
    let kind =
        post(&client, NODES, &json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}})).await?;
    same!(kind.refusal(), (400, "BadRequest"));
    let broken = post(&client, NODES, &json!("{")).await?;
    same!(broken.refusal(), (400, "BadRequest"));
    let elsewhere = json!({"metadata": {"name": name, "namespace": "kube-system"}});
    same!(post(&client, CONFIG_MAPS, &elsewhere).await?.refusal(), (400, "BadRequest"));
    let nowhere = format!("/api/v1/namespaces/{name}/configmaps");
    let missing = post(&client, &nowhere, &json!({"metadata": {"name": name}})).await?;
    same!(missing.refusal(), (404, "NotFound"));
    same!(missing.body["message"], format!("namespaces {name:?} not found"));
    Ok(())
}

pub(super) async fn generate_name(client: Client) -> Outcome {
    let base = format!("{}-", unique("generated"));
    let created = post(&client, CONFIG_MAPS, &json!({"metadata": {"generateName": base}})).await?.ok()?;
    let name = created["metadata"]["name"].as_str().unwrap_or_default();
    ensure!(name.starts_with(&base) && name.len() == base.len() + 5, "name {name}");
    same!(created["metadata"]["namespace"], "default");
    delete(&client, &format!("{CONFIG_MAPS}/{name}"), &Value::Null).await?.ok()?;
    Ok(())
}

pub(super) async fn update_conflicts(client: Client) -> Outcome {
    let name = unique("conflict");
    let first = make_node(&client, &name, &json!({})).await?;
    let path = format!("{NODES}/{name}");
    let mut second = first.clone();
    second["metadata"]["labels"]["step"] = "2".into();
    let second = put(&client, &path, &second).await?.ok()?;
    ensure!(revision(&second) != revision(&first), "an update must change the resourceVersion");
    let mut stale = first.clone();
    stale["metadata"]["labels"]["step"] = "3".into();
    let refused = put(&client, &path, &stale).await?;
    same!(refused.refusal(), (409, "Conflict"));
    same!(
        refused.body["message"],
        format!(
            "Operation cannot be fulfilled on nodes {name:?}: the object has been modified; please apply your \
             changes to the latest version and try again"
        )
    );
    // Nodes may be overwritten without a resourceVersion, but fields that the server owns are kept
    let blind = json!({"metadata": {"name": name, "labels": {"step": "4"}}});
    let third = put(&client, &path, &blind).await?.ok()?;
    same!(third["metadata"]["labels"], json!({"step": "4"}));
    same!(third["metadata"]["uid"], first["metadata"]["uid"]);
    same!(third["metadata"]["creationTimestamp"], first["metadata"]["creationTimestamp"]);
    let same_again = put(&client, &path, &third).await?.ok()?;
    same!(revision(&same_again), revision(&third));
    let other_uid = json!({"metadata": {"name": name, "uid": "other"}});
    same!(put(&client, &path, &other_uid).await?.refusal(), (409, "Conflict"));
    remove_node(&client, &name).await
}

pub(super) async fn update_by_name(client: Client) -> Outcome {
    let name = unique("byname");
    let path = format!("{NODES}/{name}");
    let object = json!({"metadata": {"name": name}});
    same!(put(&client, &path, &object).await?.refusal(), (404, "NotFound"));
    let other = put(&client, &path, &json!({"metadata": {"name": "other"}})).await?;
    same!(other.refusal(), (400, "BadRequest"));
    same!(put(&client, &path, &json!({"metadata": {}})).await?.refusal(), (400, "BadRequest"));
    same!(post(&client, &path, &object).await?.code, 405);
    Ok(())
}

pub(super) async fn delete_preconditions(client: Client) -> Outcome {
    let name = unique("precondition");
    let node = make_node(&client, &name, &json!({})).await?;
    let path = format!("{NODES}/{name}");
    let wrong_uid = delete(&client, &path, &json!({"preconditions": {"uid": "other"}})).await?;
    same!(wrong_uid.refusal(), (409, "Conflict"));
    let wrong_version = delete(&client, &path, &json!({"preconditions": {"resourceVersion": "1"}})).await?;
    same!(wrong_version.refusal(), (409, "Conflict"));
    let right = json!({"preconditions": {
        "uid": node["metadata"]["uid"], "resourceVersion": node["metadata"]["resourceVersion"]}});
    delete(&client, &path, &right).await?.ok()?;
    same!(delete(&client, &path, &right).await?.refusal(), (404, "NotFound"));
    Ok(())
}

pub(super) async fn finalizers(client: Client) -> Outcome {
    let name = unique("finalizer");
    let metadata = json!({"name": name, "finalizers": ["example.com/wait"]});
    let created = post(&client, NODES, &json!({"metadata": metadata})).await?.ok()?;
    let path = format!("{NODES}/{name}");
    let waiting = delete(&client, &path, &Value::Null).await?.ok()?;
    ensure!(waiting["metadata"]["deletionTimestamp"].is_string(), "not waiting: {waiting}");
    same!(waiting["metadata"]["deletionGracePeriodSeconds"], 0);
    ensure!(revision(&waiting) != revision(&created), "the deletion must be a new version");
    let again = delete(&client, &path, &Value::Null).await?.ok()?;
    same!(revision(&again), revision(&waiting));
    let more = json!({"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}});
    same!(patch(&client, &path, MERGE_PATCH, &more).await?.refusal(), (422, "Invalid"));
    let undo = json!({"metadata": {"deletionTimestamp": null}});
    patch(&client, &path, MERGE_PATCH, &undo).await?;
    let still = get(&client, &path).await?.ok()?;
    same!(still["metadata"]["deletionTimestamp"], waiting["metadata"]["deletionTimestamp"]);
    let released = json!({"metadata": {"finalizers": null}});
    patch(&client, &path, MERGE_PATCH, &released).await?.ok()?;
    same!(get(&client, &path).await?.code, 404);
    Ok(())
}

pub(super) async fn delete_collection(client: Client) -> Outcome {
    let label = unique("collection");
    for n in 0..3 {
        let metadata = json!({"name": format!("{label}-{n}"), "labels": {"case": label}});
        post(&client, CONFIG_MAPS, &json!({"metadata": metadata})).await?.ok()?;
    }
    let selected = format!("{CONFIG_MAPS}?labelSelector=case%3D{label}");
    delete(&client, &selected, &Value::Null).await?.ok()?;
    same!(get(&client, &selected).await?.ok()?["items"], json!([]));
    Ok(())
}

pub(super) async fn dry_run(client: Client) -> Outcome {
    let name = unique("dry");
    let path = format!("{NODES}/{name}");
    post(&client, &format!("{NODES}?dryRun=All"), &json!({"metadata": {"name": name}})).await?.ok()?;
    same!(get(&client, &path).await?.code, 404);
    let node = make_node(&client, &name, &json!({})).await?;
    let change = json!({"metadata": {"labels": {"dry": "yes"}}});
    let shown = patch(&client, &format!("{path}?dryRun=All"), MERGE_PATCH, &change).await?.ok()?;
    same!(shown["metadata"]["labels"]["dry"], "yes");
    delete(&client, &format!("{path}?dryRun=All"), &Value::Null).await?.ok()?;
    let kept = get(&client, &path).await?.ok()?;
    same!(revision(&kept), revision(&node));
    remove_node(&client, &name).await
}

pub(super) async fn names_and_labels_are_checked(client: Client) -> Outcome {
    let name = unique("checked");
    for (metadata, field) in [
        (json!({"name": "Upper_Case"}), "metadata.name"),
        (json!({"name": name, "labels": {"a b": "x"}}), "metadata.labels"),
        (json!({"name": name, "labels": {"a": "x y"}}), "metadata.labels"),
        (json!({"name": name, "annotations": {"/x": ""}}), "metadata.annotations"),
        (json!({"name": name, "finalizers": ["plain"]}), "metadata.finalizers[0]"),
    ] {
        let refused = post(&client, NODES, &json!({"metadata": metadata})).await?;
        same!(refused.refusal(), (422, "Invalid"));
        same!(refused.body["details"]["causes"][0]["field"], field);
    }
    Ok(())
}

pub(super) async fn missing_things(client: Client) -> Outcome {
    let name = unique("missing");
    let path = format!("{NODES}/{name}");
    same!(delete(&client, &path, &Value::Null).await?.refusal(), (404, "NotFound"));
    same!(patch(&client, &path, MERGE_PATCH, &json!({})).await?.refusal(), (404, "NotFound"));
    same!(get(&client, "/api/v1/widgets").await?.code, 404);
    same!(get(&client, &format!("{NODES}/{name}/nothing")).await?.code, 404);
    same!(get(&client, "/apis/none.example.com/v1").await?.code, 404);
    let lease = get(&client, &format!("{LEASES}/{name}")).await?;
    same!(lease.body["message"], format!("leases.coordination.k8s.io {name:?} not found"));
    same!(lease.body["details"], json!({"name": name, "group": "coordination.k8s.io", "kind": "leases"}));
    Ok(())
}

pub(super) async fn types_are_checked(client: Client) -> Outcome {
    let name = unique("types");
    for wrong in [
        json!({"metadata": {"name": name, "labels": 5}}),
        json!({"metadata": {"name": name, "labels": {"a": 5}}}),
        json!({"metadata": {"name": name}, "spec": "text"}),
        json!({"metadata": {"name": name}, "spec": {"taints": {}}}),
        json!({"metadata": {"name": name}, "status": {"nodeInfo": []}}),
    ] {
        same!(post(&client, NODES, &wrong).await?.refusal(), (400, "BadRequest"));
    }
    let capacity = json!({"metadata": {"name": name}, "status": {"capacity": {"cpu": 4}}});
    let node = post(&client, NODES, &capacity).await?.ok()?;
    same!(node["status"]["allocatable"], json!({"cpu": "4"}));
    let path = format!("{NODES}/{name}");
    for wrong in [
        json!({"metadata": {"labels": 5}}),
        json!({"spec": 5}),
        json!({"spec": {"taints": 5}}),
        json!({"spec": {"providerID": 5}}),
    ] {
        same!(patch(&client, &path, MERGE_PATCH, &wrong).await?.refusal(), (422, "Invalid"));
        same!(patch(&client, &path, STRATEGIC_PATCH, &wrong).await?.refusal(), (422, "Invalid"));
    }
    for pointer in ["", "/metadata", "/spec"] {
        let wrong = json!([{"op": "replace", "path": pointer, "value": 5}]);
        same!(patch(&client, &path, JSON_PATCH, &wrong).await?.refusal(), (422, "Invalid"));
    }
    remove_node(&client, &name).await
}
