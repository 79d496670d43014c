//! IP addresses as objects: what an allocator relies on that never gives one address twice.

use super::prelude::*;

const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

/// An address of `2001:db8::/32` that no other run uses.
fn unique_address() -> String {
    let random = uuid::Uuid::new_v4();
    let [a, b, c, d, ..] = random.as_bytes();
    // No group is 0, so this is the canonical form
    std::net::Ipv6Addr::from([
        0x2001,
        0xdb8,
        u16::from_be_bytes([*a, *b]) | 1,
        u16::from_be_bytes([*c, *d]) | 1,
        1,
        1,
        1,
        1,
    ])
    .to_string()
}

fn address(name: &str, service: &str) -> Value {
    let parent = json!({"group": "", "resource": "services", "namespace": "default", "name": service});
    json!({"metadata": {"name": name, "labels": {"case": service}}, "spec": {"parentRef": parent}})
}

pub(super) async fn one_object_for_each_address(client: Client) -> Outcome {
    let (name, case) = (unique_address(), unique("ip"));
    let created = post(&client, ADDRESSES, &address(&name, &case)).await?;
    same!(created.code, 201);
    same!(created.body["metadata"]["name"], name);
    same!(created.body["spec"]["parentRef"]["name"], case);
    ensure!(created.body["metadata"].get("namespace").is_none(), "it has a namespace: {:?}", created.body);
    let taken = post(&client, ADDRESSES, &address(&name, "other")).await?;
    same!(taken.refusal(), (409, "AlreadyExists"));
    same!(taken.body["message"], format!("ipaddresses.networking.k8s.io {name:?} already exists"));
    // PUT does not create one
    let other = unique_address();
    let put_first = put(&client, &format!("{ADDRESSES}/{other}"), &address(&other, &case)).await?;
    same!(put_first.refusal(), (404, "NotFound"));
    let listed = get(&client, &format!("{ADDRESSES}?labelSelector=case%3D{case}")).await?.ok()?;
    same!(listed["kind"], "IPAddressList");
    same!(listed["items"].as_array().map(Vec::len), Some(1));
    delete(&client, &format!("{ADDRESSES}/{name}"), &Value::Null).await?.ok()?;
    same!(get(&client, &format!("{ADDRESSES}/{name}")).await?.refusal(), (404, "NotFound"));
    // A free address can be taken again
    post(&client, ADDRESSES, &address(&name, &case)).await?.ok()?;
    delete(&client, &format!("{ADDRESSES}/{name}"), &Value::Null).await?.ok()?;
    Ok(())
}

pub(super) async fn address_names(client: Client) -> Outcome {
    for name in ["10.0.0.01", "2001:DB8::1", "2001:db8:0::7", "10.0.0.0/24", "name"] {
        let refused = post(&client, ADDRESSES, &address(name, "s")).await?;
        same!((name, refused.refusal()), (name, (422, "Invalid")));
    }
    let name = unique_address();
    for spec in
        [json!({}), json!({"parentRef": {"name": "s"}}), json!({"parentRef": {"resource": "services"}})]
    {
        let body = json!({"metadata": {"name": name}, "spec": spec});
        same!(post(&client, ADDRESSES, &body).await?.refusal(), (422, "Invalid"));
    }
    Ok(())
}

pub(super) async fn parents_are_immutable(client: Client) -> Outcome {
    let (name, case) = (unique_address(), unique("ip"));
    let path = format!("{ADDRESSES}/{name}");
    let created = post(&client, ADDRESSES, &address(&name, &case)).await?.ok()?;
    let parent = json!({"spec": {"parentRef": {"name": "other"}}});
    let refused = patch(&client, &path, MERGE_PATCH, &parent).await?;
    same!(refused.refusal(), (422, "Invalid"));
    ensure!(
        refused.body["message"].as_str().is_some_and(|text| text.contains("field is immutable")),
        "{refused:?}"
    );
    // Labels and annotations are not
    let label = json!({"metadata": {"annotations": {"example.com/x": "1"}}});
    let patched = patch(&client, &path, MERGE_PATCH, &label).await?.ok()?;
    ensure!(revision(&patched) != revision(&created), "nothing was written");
    let mut stale = created.clone();
    stale["metadata"]["labels"]["x"] = "y".into();
    same!(put(&client, &path, &stale).await?.refusal(), (409, "Conflict"));
    let guarded = json!({"metadata": {"resourceVersion": revision(&created), "labels": {"x": "y"}}});
    same!(patch(&client, &path, MERGE_PATCH, &guarded).await?.refusal(), (409, "Conflict"));
    stale["metadata"]["resourceVersion"] = revision(&patched).into();
    let written = put(&client, &path, &stale).await?.ok()?;
    same!(written["metadata"]["labels"]["x"], "y");
    // Without a resourceVersion the last writer wins
    let mut blind = written.clone();
    blind["metadata"]["resourceVersion"] = Value::Null;
    blind["metadata"]["labels"]["x"] = "z".into();
    same!(put(&client, &path, &blind).await?.ok()?["metadata"]["labels"]["x"], "z");
    delete(&client, &path, &Value::Null).await?.ok()?;
    Ok(())
}

pub(super) async fn address_preconditions(client: Client) -> Outcome {
    let (name, case) = (unique_address(), unique("ip"));
    let path = format!("{ADDRESSES}/{name}");
    let created = post(&client, ADDRESSES, &address(&name, &case)).await?.ok()?;
    let uid = created["metadata"]["uid"].clone();
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    let changed = patch(&client, &path, MERGE_PATCH, &label).await?.ok()?;
    for preconditions in [
        json!({"uid": "11111111-2222-4333-8444-555555555555"}),
        json!({"uid": uid, "resourceVersion": revision(&created)}),
    ] {
        let refused = delete(&client, &path, &json!({"preconditions": preconditions})).await?;
        same!(refused.refusal(), (409, "Conflict"));
    }
    let fits = json!({"preconditions": {"uid": uid, "resourceVersion": revision(&changed)}});
    delete(&client, &path, &fits).await?.ok()?;
    Ok(())
}
