//! Watches.

use super::prelude::*;

fn step(change: &str, name: &str) -> (String, String) {
    (change.to_owned(), name.to_owned())
}

pub(super) async fn replay(client: Client) -> Outcome {
    let name = unique("replay");
    let path = format!("{NODES}/{name}");
    let node = make_node(&client, &name, &json!({})).await?;
    patch(&client, &path, MERGE_PATCH, &json!({"metadata": {"labels": {"x": "1"}}})).await?.ok()?;
    patch(&client, &path, MERGE_PATCH, &json!({})).await?.ok()?;
    delete(&client, &path, &Value::Null).await?.ok()?;
    let query = format!("&resourceVersion={}&fieldSelector=metadata.name%3D{name}", revision(&node));
    let mut watch = Watch::open(&client, NODES, &query).await?;
    let modified = watch.next().await?;
    same!(
        (&modified["type"], &modified["object"]["metadata"]["labels"]["x"]),
        (&json!("MODIFIED"), &json!("1"))
    );
    let deleted = watch.next().await?;
    same!(deleted["type"], "DELETED");
    ensure!(
        revision(&deleted["object"]) != revision(&modified["object"]),
        "a deletion has a version of its own"
    );
    // The watch continues with later changes
    make_node(&client, &name, &json!({})).await?;
    same!(watch.step().await?, step("ADDED", &name));
    remove_node(&client, &name).await
}

pub(super) async fn initial_state(client: Client) -> Outcome {
    let name = unique("initial");
    make_node(&client, &name, &json!({})).await?;
    for version in ["", "&resourceVersion=0"] {
        let query = format!("{version}&fieldSelector=metadata.name%3D{name}");
        let mut watch = Watch::open(&client, NODES, &query).await?;
        same!(watch.step().await?, step("ADDED", &name));
    }
    let short = format!("&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3D{name}");
    let mut watch = Watch::open(&client, NODES, &short).await?;
    same!(watch.step().await?, step("ADDED", &name));
    same!(watch.event().await?, None);
    remove_node(&client, &name).await
}

pub(super) async fn streaming_list(client: Client) -> Outcome {
    let name = unique("stream");
    make_node(&client, &name, &json!({})).await?;
    let query = format!(
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true\
         &labelSelector=case%3D{name}"
    );
    let mut watch = Watch::open(&client, NODES, &query).await?;
    same!(watch.step().await?, step("ADDED", &name));
    let bookmark = watch.next().await?;
    same!(bookmark["type"], "BOOKMARK");
    same!(bookmark["object"]["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    ensure!(!revision(&bookmark["object"]).is_empty(), "no resourceVersion in {bookmark}");
    remove_node(&client, &name).await?;
    let mut last = watch.next().await?;
    while last["type"] == "MODIFIED" || last["type"] == "BOOKMARK" {
        last = watch.next().await?;
    }
    same!(last["type"], "DELETED");
    let lonely = get(&client, &format!("{NODES}?watch=true&sendInitialEvents=true")).await?;
    same!(lonely.refusal(), (422, "Invalid"));
    Ok(())
}

pub(super) async fn bookmarks(client: Client) -> Outcome {
    let name = unique("bookmark");
    let node = make_node(&client, &name, &json!({})).await?;
    let query = format!(
        "&resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds=8&fieldSelector=metadata.name%3D{name}",
        revision(&node)
    );
    let mut watch = Watch::open(&client, NODES, &query).await?;
    let bookmark = watch.next().await?;
    same!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("Node")));
    let (at, from): (u64, u64) = (revision(&bookmark["object"]).parse()?, revision(&node).parse()?);
    ensure!(at >= from, "bookmark at {at}, watch from {from}");
    while let Some(event) = watch.event().await? {
        same!(event["type"], "BOOKMARK");
    }
    remove_node(&client, &name).await
}

pub(super) async fn selector_transitions(client: Client) -> Outcome {
    let name = unique("transition");
    let path = format!("{NODES}/{name}");
    let node = make_node(&client, &name, &json!({})).await?;
    let query = format!("&resourceVersion={}&labelSelector=shown%3D{name}", revision(&node));
    let mut watch = Watch::open(&client, NODES, &query).await?;
    for labels in [
        json!({"shown": name}),
        json!({"other": "1"}),
        json!({"shown": null}),
        json!({"other": "2"}),
        json!({"shown": name, "other": "3"}),
    ] {
        patch(&client, &path, MERGE_PATCH, &json!({"metadata": {"labels": labels}})).await?.ok()?;
    }
    same!(watch.step().await?, step("ADDED", &name));
    same!(watch.step().await?, step("MODIFIED", &name));
    let left = watch.next().await?;
    same!(left["type"], "DELETED");
    // The event shows the last state that matched
    same!(left["object"]["metadata"]["labels"]["shown"], name);
    same!(watch.step().await?, step("ADDED", &name));
    remove_node(&client, &name).await
}

pub(super) async fn unreadable_version(client: Client) -> Outcome {
    same!(get(&client, &format!("{NODES}?watch=true&resourceVersion=x&timeoutSeconds=1")).await?.code, 500);
    Ok(())
}

pub(super) async fn metadata_only(client: Client) -> Outcome {
    let name = unique("metawatch");
    make_node(&client, &name, &json!({})).await?;
    let request = Request::get(format!("{NODES}?watch=true&fieldSelector=metadata.name%3D{name}"))
        .header(header::ACCEPT, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let mut watch = Watch::from_request(&client, request).await?;
    let event = watch.next().await?;
    same!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!("PartialObjectMetadata")));
    ensure!(event["object"].get("status").is_none(), "more than metadata: {event}");
    remove_node(&client, &name).await
}
