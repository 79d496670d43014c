//! Lists, selectors, pages and tables.

use super::prelude::*;

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect()
}

pub(super) async fn selectors(client: Client) -> Outcome {
    let case = unique("select");
    let (a, b) = (format!("{case}-a"), format!("{case}-b"));
    for (name, size, unschedulable) in [(&a, "1", false), (&b, "2", true)] {
        let metadata = json!({"name": name, "labels": {"case": case, "size": size}});
        post(&client, NODES, &json!({"metadata": metadata, "spec": {"unschedulable": unschedulable}}))
            .await?
            .ok()?;
    }
    for (query, wanted) in [
        (format!("labelSelector=case%3D{case}"), vec![&a, &b]),
        (format!("labelSelector=case%3D{case},size%20in%20(2,3)"), vec![&b]),
        (format!("labelSelector=case%3D%3D{case},size!%3D2"), vec![&a]),
        (format!("labelSelector=case%3D{case},!none,size%20notin%20(1)"), vec![&b]),
        (format!("labelSelector=case%3D{case}&fieldSelector=spec.unschedulable%3Dtrue"), vec![&b]),
        (format!("labelSelector=case%3D{case}&fieldSelector=metadata.name!%3D{b}"), vec![&a]),
        (format!("fieldSelector=metadata.name%3D{a}"), vec![&a]),
    ] {
        let list = get(&client, &format!("{NODES}?{query}")).await?.ok()?;
        ensure!(names(&list).iter().eq(wanted.iter()), "{query}: {:?}", names(&list));
        // Items of a typed list have no kind
        ensure!(list["items"][0].get("kind").is_none() && list["kind"] == "NodeList", "kinds in {query}");
    }
    for query in ["fieldSelector=spec.other%3D1", "labelSelector=a%20b", "fieldSelector=x"] {
        same!(get(&client, &format!("{NODES}?{query}")).await?.refusal(), (400, "BadRequest"));
    }
    remove_node(&client, &a).await?;
    remove_node(&client, &b).await
}

pub(super) async fn pages(client: Client) -> Outcome {
    let case = unique("pages");
    let make = async |n: usize| -> Fallible<Value> {
        let metadata = json!({"name": format!("{case}-{n}"), "labels": {"case": case}});
        post(&client, CONFIG_MAPS, &json!({"metadata": metadata})).await?.ok()
    };
    for n in 0..5 {
        make(n).await?;
    }
    let query = format!("{CONFIG_MAPS}?labelSelector=case%3D{case}&limit=2");
    let first = get(&client, &query).await?.ok()?;
    same!(names(&first), [format!("{case}-0"), format!("{case}-1")]);
    let mut token = first["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    ensure!(!token.is_empty(), "no continue token");
    // All pages show the same state: later objects are not in them
    make(5).await?;
    let mut seen = 2;
    while !token.is_empty() {
        let page = get(&client, &format!("{query}&continue={token}")).await?.ok()?;
        same!(revision(&page), revision(&first));
        seen += names(&page).len();
        page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
    }
    same!(seen, 5);
    same!(get(&client, &format!("{query}&continue=nonsense")).await?.refusal(), (400, "BadRequest"));
    delete(&client, &format!("{CONFIG_MAPS}?labelSelector=case%3D{case}"), &Value::Null).await?.ok()?;
    Ok(())
}

pub(super) async fn resource_versions(client: Client) -> Outcome {
    let name = unique("versions");
    let node = make_node(&client, &name, &json!({})).await?;
    let version = revision(&node);
    let query = format!("{NODES}?fieldSelector=metadata.name%3D{name}");
    // "0" is answered from a cache that may be older than the write. Once the cache has served that version,
    // it is not.
    for more in [&format!("&resourceVersion={version}"), "&resourceVersion=0"] {
        let list = get(&client, &format!("{query}{more}")).await?.ok()?;
        same!(names(&list), [&name]);
    }
    remove_node(&client, &name).await?;
    let exact = format!("{query}&resourceVersion={version}&resourceVersionMatch=Exact");
    let then = get(&client, &exact).await?.ok()?;
    same!(names(&then), [&name]);
    same!(revision(&then), version);
    let lonely = get(&client, &format!("{query}&resourceVersionMatch=Exact")).await?;
    same!(lonely.refusal(), (422, "Invalid"));
    same!(get(&client, &format!("{query}&resourceVersion=x")).await?.refusal(), (400, "BadRequest"));
    Ok(())
}

pub(super) async fn tables(client: Client) -> Outcome {
    let name = unique("table");
    let more = json!({
        "metadata": {"name": name, "labels": {"node-role.kubernetes.io/worker": ""}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.2.3", "osImage": "os"},
        },
    });
    make_node(&client, &name, &more).await?;
    let request = Request::get(format!("{NODES}?fieldSelector=metadata.name%3D{name}"))
        .header(header::ACCEPT, "application/json;as=Table;g=meta.k8s.io;v=v1,application/json");
    let table = send(&client, request, &Value::Null).await?.ok()?;
    same!(table["kind"], "Table");
    let columns = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
    let titles: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
    same!(
        titles,
        [
            "Name",
            "Status",
            "Roles",
            "Age",
            "Version",
            "Internal-IP",
            "External-IP",
            "OS-Image",
            "Kernel-Version",
            "Container-Runtime"
        ]
    );
    let mut cells = table["rows"][0]["cells"].clone();
    cells[3].take();
    same!(
        cells,
        json!([
            name,
            "Ready,SchedulingDisabled",
            "worker",
            null,
            "v1.2.3",
            "10.0.0.1",
            "<none>",
            "os",
            "<unknown>",
            "<unknown>"
        ])
    );
    same!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    remove_node(&client, &name).await
}
