//! The patch formats.

use super::prelude::*;

pub(super) async fn json_patch(client: Client) -> Outcome {
    let name = unique("json");
    let path = format!("{NODES}/{name}");
    make_node(&client, &name, &json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}})).await?;
    let operations = json!([
        {"op": "test", "path": "/spec/taints/0/key", "value": "a"},
        {"op": "test", "path": "/spec/providerID", "value": null},
        {"op": "remove", "path": "/spec/taints/0"},
        {"op": "add", "path": "/metadata/annotations", "value": {"example.com/x": "1"}},
        {"op": "replace", "path": "/spec/providerID", "value": "test://1"},
    ]);
    let patched = patch(&client, &path, JSON_PATCH, &operations).await?.ok()?;
    same!(patched["spec"]["providerID"], "test://1");
    same!(patched["metadata"]["annotations"], json!({"example.com/x": "1"}));
    let taints = patched["spec"]["taints"].as_array().cloned().unwrap_or_default();
    ensure!(taints.iter().all(|taint| taint["key"] != "a"), "taints {taints:?}");
    remove_node(&client, &name).await
}

pub(super) async fn json_patch_refusals(client: Client) -> Outcome {
    let name = unique("jsonbad");
    let path = format!("{NODES}/{name}");
    let node = make_node(&client, &name, &json!({})).await?;
    for operation in [
        json!({"op": "test", "path": "/metadata/name", "value": "other"}),
        json!({"op": "test", "path": "/spec/providerID", "value": "test://1"}),
        json!({"op": "remove", "path": "/spec/providerID"}),
        json!({"op": "add", "path": "/metadata/annotations/x", "value": "y"}),
        json!({"op": "frobnicate", "path": "/spec"}),
    ] {
        // The operation before it must be undone
        let first = json!({"op": "add", "path": "/metadata/labels/half", "value": "done"});
        let refused = patch(&client, &path, JSON_PATCH, &json!([first, operation])).await?;
        same!(refused.refusal(), (422, "Invalid"));
        same!(refused.body["message"], "the server rejected our request due to an error in our request");
    }
    same!(patch(&client, &path, JSON_PATCH, &json!({"op": "x"})).await?.refusal(), (400, "BadRequest"));
    let rename = json!([{"op": "replace", "path": "/metadata/name", "value": "other"}]);
    same!(patch(&client, &path, JSON_PATCH, &rename).await?.refusal(), (400, "BadRequest"));
    same!(revision(&get(&client, &path).await?.ok()?), revision(&node));
    same!(patch(&client, &path, "text/plain", &json!({})).await?.refusal(), (415, "UnsupportedMediaType"));
    remove_node(&client, &name).await
}

pub(super) async fn merge_patch(client: Client) -> Outcome {
    let name = unique("merge");
    let path = format!("{CONFIG_MAPS}/{name}");
    let data = json!({"keep": "1", "drop": "2", "change": "3"});
    post(&client, CONFIG_MAPS, &json!({"metadata": {"name": name}, "data": data})).await?.ok()?;
    let change =
        json!({"data": {"drop": null, "change": "4", "new": ""}, "metadata": {"labels": {"a": "b"}}});
    let patched = patch(&client, &path, MERGE_PATCH, &change).await?.ok()?;
    same!(patched["data"], json!({"keep": "1", "change": "4", "new": ""}));
    same!(patched["metadata"]["labels"], json!({"a": "b"}));
    let emptied =
        patch(&client, &path, MERGE_PATCH, &json!({"data": {}, "metadata": {"labels": null}})).await?;
    ensure!(emptied.ok()?["metadata"].get("labels").is_none(), "labels must vanish");
    same!(patch(&client, &path, MERGE_PATCH, &json!([1])).await?.refusal(), (400, "BadRequest"));
    delete(&client, &path, &Value::Null).await?.ok()?;
    Ok(())
}

fn types(conditions: &Value) -> Vec<&str> {
    conditions.as_array().into_iter().flatten().filter_map(|c| c["type"].as_str()).collect()
}

pub(super) async fn strategic_patch_lists(client: Client) -> Outcome {
    let name = unique("strategic");
    make_node(&client, &name, &json!({})).await?;
    let status = format!("{NODES}/{name}/status");
    let conditions = async |patched: Value| -> Fallible<Value> {
        let body = json!({"status": patched});
        Ok(patch(&client, &status, STRATEGIC_PATCH, &body).await?.ok()?["status"]["conditions"].clone())
    };
    conditions(json!({"conditions": [{"type": "Ready", "status": "True", "reason": "r"}]})).await?;
    // New entries come before those that the patch does not contain
    let grown =
        conditions(json!({"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}));
    same!(types(&grown.await?), ["A", "B", "Ready"]);
    let merged = conditions(json!({"conditions": [{"type": "Ready", "status": "False"}]})).await?;
    same!(merged[2]["status"], "False");
    same!(merged[2]["reason"], "r");
    let deleted = conditions(json!({"conditions": [{"type": "A", "$patch": "delete"}]})).await?;
    same!(types(&deleted), ["B", "Ready"]);
    let ordered = conditions(json!({
        "conditions": [{"type": "C", "status": "True"}],
        "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "C"}, {"type": "B"}],
    }));
    same!(types(&ordered.await?), ["Ready", "C", "B"]);
    let keyless = json!({"status": {"conditions": [{"status": "True"}]}});
    same!(patch(&client, &status, STRATEGIC_PATCH, &keyless).await?.code, 500);

    let path = format!("{NODES}/{name}");
    let finalizers = async |metadata: Value| -> Fallible<Value> {
        let patched = patch(&client, &path, STRATEGIC_PATCH, &json!({"metadata": metadata})).await?.ok()?;
        Ok(patched["metadata"]["finalizers"].clone())
    };
    finalizers(json!({"finalizers": ["example.com/a", "example.com/b"]})).await?;
    let changed = finalizers(json!({
        "finalizers": ["example.com/c"], "$deleteFromPrimitiveList/finalizers": ["example.com/a"]}));
    same!(changed.await?, json!(["example.com/c", "example.com/b"]));
    remove_node(&client, &name).await
}

pub(super) async fn strategic_patch_directives(client: Client) -> Outcome {
    let name = unique("directive");
    let path = format!("{NODES}/{name}");
    make_node(&client, &name, &json!({})).await?;
    let labels = async |labels: Value| -> Fallible<Value> {
        let body = json!({"metadata": {"labels": labels}});
        Ok(patch(&client, &path, STRATEGIC_PATCH, &body).await?.ok()?["metadata"]["labels"].clone())
    };
    same!(labels(json!({"$patch": "replace", "a": "1", "b": "2"})).await?, json!({"a": "1", "b": "2"}));
    same!(labels(json!({"$retainKeys": ["b", "c"], "c": "3"})).await?, json!({"b": "2", "c": "3"}));
    same!(labels(json!({"b": null})).await?, json!({"c": "3"}));
    let unknown = json!({"metadata": {"labels": {"$patch": "frobnicate"}}});
    same!(patch(&client, &path, STRATEGIC_PATCH, &unknown).await?.code, 500);
    same!(labels(json!({"$patch": "delete"})).await?, Value::Null);
    remove_node(&client, &name).await
}

pub(super) async fn patch_preconditions(client: Client) -> Outcome {
    let name = unique("guarded");
    let path = format!("{NODES}/{name}");
    let node = make_node(&client, &name, &json!({})).await?;
    for content_type in [MERGE_PATCH, STRATEGIC_PATCH] {
        let change = |field: &str, value: &Value| json!({"metadata": {field: value, "labels": {"x": "y"}}});
        let stale = patch(&client, &path, content_type, &change("resourceVersion", &"1".into())).await?;
        same!(stale.refusal(), (409, "Conflict"));
        let other = patch(&client, &path, content_type, &change("uid", &"other".into())).await?;
        same!(other.refusal(), (422, "Invalid"));
        let fits = change("uid", &node["metadata"]["uid"]);
        patch(&client, &path, content_type, &fits).await?.ok()?;
        let current = get(&client, &path).await?.ok()?;
        let fits = change("resourceVersion", &current["metadata"]["resourceVersion"]);
        patch(&client, &path, content_type, &fits).await?.ok()?;
    }
    remove_node(&client, &name).await
}

pub(super) async fn patch_without_change(client: Client) -> Outcome {
    let name = unique("same");
    let path = format!("{NODES}/{name}");
    let node = make_node(&client, &name, &json!({})).await?;
    let status = format!("{path}/status");
    for (path, content_type, body) in [
        (&path, MERGE_PATCH, json!({})),
        (&path, STRATEGIC_PATCH, json!({"metadata": {"labels": {"case": name}}})),
        (&path, JSON_PATCH, json!([])),
        (&path, MERGE_PATCH, json!({"spec": {"taints": node["spec"]["taints"]}})),
        (&status, STRATEGIC_PATCH, json!({})),
    ] {
        let patched = patch(&client, path, content_type, &body).await?.ok()?;
        same!(revision(&patched), revision(&node));
    }
    remove_node(&client, &name).await
}

pub(super) async fn apply_patch(client: Client) -> Outcome {
    let name = unique("apply");
    let path = format!("{CONFIG_MAPS}/{name}?fieldManager=conformance");
    let text = |data: &str| {
        Value::String(format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata: {data}\n"))
    };
    let created = patch(&client, &path, APPLY_PATCH, &text("{a: x}")).await?;
    same!(created.code, 201);
    let changed = patch(&client, &path, APPLY_PATCH, &text("{a: z}")).await?;
    same!(changed.code, 200);
    same!(changed.body["data"], json!({"a": "z"}));
    let plain = format!("{CONFIG_MAPS}/{name}");
    same!(patch(&client, &plain, APPLY_PATCH, &text("{}")).await?.refusal(), (422, "Invalid"));
    delete(&client, &plain, &Value::Null).await?.ok()?;
    Ok(())
}

pub(super) async fn metadata_answers(client: Client) -> Outcome {
    const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let name = unique("partial");
    let path = format!("{NODES}/{name}");
    make_node(&client, &name, &json!({})).await?;
    let request =
        Request::patch(&path).header(header::CONTENT_TYPE, MERGE_PATCH).header(header::ACCEPT, METADATA);
    let patched = send(&client, request, &json!({"metadata": {"labels": {"x": "y"}}})).await?.ok()?;
    same!(
        (&patched["kind"], &patched["apiVersion"]),
        (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"))
    );
    same!(patched["metadata"]["labels"]["x"], "y");
    ensure!(
        patched.get("spec").is_none() && patched.get("status").is_none(),
        "more than metadata: {patched}"
    );
    let request = Request::get(format!("{NODES}?fieldSelector=metadata.name%3D{name}"))
        .header(header::ACCEPT, METADATA.replace("Metadata;", "MetadataList;"));
    let list = send(&client, request, &Value::Null).await?.ok()?;
    same!(list["kind"], "PartialObjectMetadataList");
    same!(list["items"][0]["kind"], "PartialObjectMetadata");
    same!(list["items"][0]["metadata"]["name"], name);
    remove_node(&client, &name).await
}
