//! Services, as far as a controller of load balancers sees them.

use super::prelude::*;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";
const FOREIGN: &str = "example.com/foreign";

fn path_of(name: &str) -> String {
    format!("{SERVICES}/{name}")
}

fn with(name: &str, spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": name}, "spec": spec});
    if service["spec"]["ports"].is_null() {
        service["spec"]["ports"] = json!([{"port": 80}]);
    }
    service
}

async fn create(client: &Client, base: &str, spec: Value) -> Fallible<(String, Value)> {
    let name = unique(base);
    let created = post(client, SERVICES, &with(&name, spec)).await?.ok()?;
    Ok((path_of(&name), created))
}

async fn remove(client: &Client, path: &str) -> Outcome {
    patch(client, path, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await?;
    delete(client, path, &Value::Null).await?;
    Ok(())
}

/// The fields of the spec, sorted.
fn fields(service: &Value) -> Vec<&str> {
    let mut fields: Vec<&str> =
        service["spec"].as_object().into_iter().flatten().map(|(field, _)| field.as_str()).collect();
    fields.sort_unstable();
    fields
}

pub(super) async fn service_defaults(client: Client) -> Outcome {
    let spec = json!({"type": "LoadBalancer", "selector": {"a": "b"}});
    let (path, created) = create(&client, "svc", spec).await?;
    same!(
        fields(&created),
        [
            "allocateLoadBalancerNodePorts",
            "clusterIP",
            "clusterIPs",
            "externalTrafficPolicy",
            "internalTrafficPolicy",
            "ipFamilies",
            "ipFamilyPolicy",
            "ports",
            "selector",
            "sessionAffinity",
            "type"
        ]
    );
    let of = |field: &str| created["spec"][field].clone();
    same!(of("clusterIPs"), json!([of("clusterIP")]));
    ensure!(of("clusterIP").as_str().is_some_and(|ip| ip.starts_with("10.0.")), "{created}");
    same!((of("ipFamilies"), of("ipFamilyPolicy")), (json!(["IPv4"]), json!("SingleStack")));
    same!((of("externalTrafficPolicy"), of("internalTrafficPolicy")), (json!("Cluster"), json!("Cluster")));
    same!((of("sessionAffinity"), of("allocateLoadBalancerNodePorts")), (json!("None"), json!(true)));
    let port = &of("ports")[0];
    let node_port = port["nodePort"].as_i64().unwrap_or_default();
    ensure!((30_000..=32_767).contains(&node_port), "no node port: {created}");
    same!(*port, json!({"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": node_port}));
    same!(created["status"], json!({"loadBalancer": {}}));
    // Ports merge by number
    let ports = json!({"spec": {"ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}]}});
    let merged = patch(&client, &path, STRATEGIC_PATCH, &ports).await?.ok()?;
    same!(merged["spec"]["ports"][0]["nodePort"], node_port);
    same!(merged["spec"]["ports"].as_array().map(Vec::len), Some(2));
    remove(&client, &path).await?;

    let spec = json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "sessionAffinity": "ClientIP",
        "allocateLoadBalancerNodePorts": false,
        "ports": [{"port": 53, "protocol": "UDP", "name": "dns", "targetPort": "dns", "appProtocol": "example.com/dns"}],
    });
    let (path, created) = create(&client, "svc", spec).await?;
    let check = created["spec"]["healthCheckNodePort"].as_i64().unwrap_or_default();
    ensure!((30_000..=32_767).contains(&check), "no port for health checks: {created}");
    same!(created["spec"]["sessionAffinityConfig"], json!({"clientIP": {"timeoutSeconds": 10800}}));
    same!(
        created["spec"]["ports"][0],
        json!({"port": 53, "protocol": "UDP", "name": "dns", "targetPort": "dns", "appProtocol": "example.com/dns"})
    );
    // PUT without the allocated values keeps them
    let name = created["metadata"]["name"].as_str().unwrap_or_default();
    let mut blind = with(name, created["spec"].clone());
    for field in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
        blind["spec"][field] = Value::Null;
    }
    let written = put(&client, &path, &blind).await?.ok()?;
    same!(written["spec"], created["spec"]);
    same!(revision(&written), revision(&created));
    // Another policy gives the port back
    let cluster = json!({"spec": {"externalTrafficPolicy": "Cluster", "sessionAffinity": "None"}});
    let patched = patch(&client, &path, MERGE_PATCH, &cluster).await?.ok()?;
    for field in ["healthCheckNodePort", "sessionAffinityConfig"] {
        ensure!(patched["spec"].get(field).is_none(), "{field} stays: {patched}");
    }
    remove(&client, &path).await
}

pub(super) async fn service_families(client: Client) -> Outcome {
    let (path, created) = create(&client, "dual", json!({"ipFamilyPolicy": "PreferDualStack"})).await?;
    same!(created["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    let ips = created["spec"]["clusterIPs"].as_array().cloned().unwrap_or_default();
    same!((ips.len(), &ips[0]), (2, &created["spec"]["clusterIP"]));
    ensure!(ips[1].as_str().is_some_and(|ip| ip.starts_with("fd00:10::")), "{created}");
    let single = json!({"spec": {"ipFamilyPolicy": "SingleStack"}});
    let patched = patch(&client, &path, MERGE_PATCH, &single).await?.ok()?;
    same!(patched["spec"]["ipFamilies"], json!(["IPv4"]));
    same!(patched["spec"]["clusterIPs"], json!([ips[0]]));
    let dual = json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}});
    let patched = patch(&client, &path, MERGE_PATCH, &dual).await?.ok()?;
    same!(patched["spec"]["clusterIPs"].as_array().map(Vec::len), Some(2));
    remove(&client, &path).await?;
    let (path, created) = create(&client, "six", json!({"ipFamilies": ["IPv6"]})).await?;
    same!(created["spec"]["ipFamilyPolicy"], "SingleStack");
    ensure!(created["spec"]["clusterIP"].as_str().is_some_and(|ip| ip.contains(':')), "{created}");
    remove(&client, &path).await?;
    let (path, created) =
        create(&client, "headless", json!({"clusterIP": "None", "selector": {"a": "b"}})).await?;
    same!(created["spec"]["clusterIPs"], json!(["None"]));
    same!(created["spec"]["ipFamilies"], json!(["IPv4"]));
    remove(&client, &path).await
}

/// Another type loses what was given for the old one, and the status of the load balancer with it.
pub(super) async fn type_changes(client: Client) -> Outcome {
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "selector": {"a": "b"}});
    let (path, created) = create(&client, "type", spec).await?;
    let status = format!("{path}/status");
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    patch(&client, &status, MERGE_PATCH, &ingress).await?.ok()?;
    let condition = json!({
        "type": "example.com/Ready", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let conditions = json!({"status": {"conditions": [condition]}});
    patch(&client, &status, STRATEGIC_PATCH, &conditions).await?.ok()?;
    let change = async |spec: Value| -> Fallible<Value> {
        patch(&client, &path, MERGE_PATCH, &json!({"spec": spec})).await?.ok()
    };
    let plain = change(json!({"type": "ClusterIP"})).await?;
    same!(
        fields(&plain),
        [
            "clusterIP",
            "clusterIPs",
            "internalTrafficPolicy",
            "ipFamilies",
            "ipFamilyPolicy",
            "ports",
            "selector",
            "sessionAffinity",
            "type"
        ]
    );
    same!(plain["spec"]["clusterIP"], created["spec"]["clusterIP"]);
    same!(plain["spec"]["ports"], json!([{"port": 80, "protocol": "TCP", "targetPort": 80}]));
    same!(plain["status"], json!({"loadBalancer": {}, "conditions": [condition]}));
    // A late answer of a cloud does not reach the status any more
    let late = patch(&client, &status, MERGE_PATCH, &ingress).await?;
    same!(late.refusal(), (422, "Invalid"));
    let node_port = change(json!({"type": "NodePort"})).await?;
    ensure!(node_port["spec"]["ports"][0]["nodePort"].is_i64(), "no node port: {node_port}");
    ensure!(node_port["spec"].get("allocateLoadBalancerNodePorts").is_none(), "{node_port}");
    let balanced = change(json!({"type": "LoadBalancer"})).await?;
    same!(balanced["spec"]["ports"], node_port["spec"]["ports"]);
    let named = change(json!({"type": "ExternalName", "externalName": "example.com"})).await?;
    same!(fields(&named), ["externalName", "ports", "selector", "sessionAffinity", "type"]);
    let back = change(json!({"type": "ClusterIP", "externalName": null})).await?;
    ensure!(back["spec"]["clusterIP"].is_string(), "no cluster IP: {back}");
    remove(&client, &path).await
}

pub(super) async fn load_balancer_class(client: Client) -> Outcome {
    let class = |class: Value| json!({"spec": {"loadBalancerClass": class}});
    let (path, _) = create(&client, "class", json!({"type": "LoadBalancer"})).await?;
    let added = patch(&client, &path, MERGE_PATCH, &class("example.com/lb".into())).await?;
    same!(added.refusal(), (422, "Invalid"));
    remove(&client, &path).await?;
    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/lb"});
    let (path, created) = create(&client, "class", spec).await?;
    same!(created["spec"]["loadBalancerClass"], "example.com/lb");
    for other in [json!("example.com/other"), Value::Null] {
        let refused = patch(&client, &path, MERGE_PATCH, &class(other)).await?;
        same!(refused.refusal(), (422, "Invalid"));
        ensure!(
            refused.body["message"].as_str().is_some_and(|text| text.ends_with("may not change once set")),
            "{refused:?}"
        );
    }
    // It goes with the type
    let plain = patch(&client, &path, MERGE_PATCH, &json!({"spec": {"type": "ClusterIP"}})).await?.ok()?;
    ensure!(plain["spec"].get("loadBalancerClass").is_none(), "the class stays: {plain}");
    let balanced =
        patch(&client, &path, MERGE_PATCH, &json!({"spec": {"type": "LoadBalancer"}})).await?.ok()?;
    ensure!(balanced["spec"].get("loadBalancerClass").is_none(), "the class is back: {balanced}");
    same!(
        patch(&client, &path, MERGE_PATCH, &class("example.com/lb".into())).await?.refusal(),
        (422, "Invalid")
    );
    remove(&client, &path).await?;
    let plain = with(&unique("class"), json!({"loadBalancerClass": "example.com/lb"}));
    let refused = post(&client, SERVICES, &plain).await?;
    same!(refused.refusal(), (422, "Invalid"));
    Ok(())
}

pub(super) async fn service_status(client: Client) -> Outcome {
    let (path, created) = create(&client, "status", json!({"type": "LoadBalancer"})).await?;
    let status = format!("{path}/status");
    let ingress = |list: Value| json!({"status": {"loadBalancer": {"ingress": list}}});
    // The main resource does not write it
    let main = patch(&client, &path, MERGE_PATCH, &ingress(json!([{"ip": "192.0.2.1"}]))).await?.ok()?;
    same!(main["status"], json!({"loadBalancer": {}}));
    same!(revision(&main), revision(&created));
    let full = json!([
        {"ip": "192.0.2.1", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP"}]},
        {"ip": "2001:db8::1"},
        {"hostname": "lb.example.com"},
    ]);
    let written = patch(&client, &status, STRATEGIC_PATCH, &ingress(full)).await?.ok()?;
    same!(
        written["status"]["loadBalancer"]["ingress"],
        json!([
            {"ip": "192.0.2.1", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP"}]},
            {"ip": "2001:db8::1", "ipMode": "VIP"},
            {"hostname": "lb.example.com"},
        ])
    );
    for bad in [
        json!([{"ip": "not-an-ip"}]),
        json!([{"hostname": "lb.example.com", "ipMode": "VIP"}]),
        json!([{"hostname": "192.0.2.1"}]),
        json!([{"ip": "192.0.2.1", "ipMode": "Other"}]),
    ] {
        same!(patch(&client, &status, MERGE_PATCH, &ingress(bad)).await?.refusal(), (422, "Invalid"));
    }
    // Empty and absent are the same
    for empty in [json!([]), Value::Null] {
        patch(&client, &status, MERGE_PATCH, &ingress(json!([{"ip": "192.0.2.1"}]))).await?.ok()?;
        let cleared = patch(&client, &status, MERGE_PATCH, &ingress(empty)).await?.ok()?;
        same!(cleared["status"], json!({"loadBalancer": {}}));
    }
    patch(&client, &status, MERGE_PATCH, &ingress(json!([{"ip": "192.0.2.1"}]))).await?.ok()?;
    let cleared = json!({"status": {"loadBalancer": null}});
    let cleared = patch(&client, &status, STRATEGIC_PATCH, &cleared).await?.ok()?;
    same!(cleared["status"], json!({"loadBalancer": {}}));
    remove(&client, &path).await?;
    let absent = patch(&client, &status, STRATEGIC_PATCH, &ingress(json!([]))).await?;
    same!(absent.refusal(), (404, "NotFound"));
    let (path, _) = create(&client, "status", json!({})).await?;
    let plain = ingress(json!([{"ip": "192.0.2.1"}]));
    let refused = patch(&client, &format!("{path}/status"), MERGE_PATCH, &plain).await?;
    same!(refused.refusal(), (422, "Invalid"));
    remove(&client, &path).await
}

/// The patches of a controller: on the status, with metadata, and without the spec.
pub(super) async fn status_patches(client: Client) -> Outcome {
    let name = unique("patched");
    let path = path_of(&name);
    let mut service = with(&name, json!({"type": "LoadBalancer"}));
    service["metadata"]["finalizers"] = json!([FOREIGN]);
    let created = post(&client, SERVICES, &service).await?.ok()?;
    let status = format!("{path}/status");
    // Labels, annotations and finalizers are written, and the spec is not
    let all = json!({
        "metadata": {
            "labels": {"a": "b"}, "annotations": {"example.com/a": "b"},
            "$setElementOrder/finalizers": [FOREIGN, CLEANUP], "finalizers": [CLEANUP],
        },
        "spec": {"sessionAffinity": "ClientIP", "loadBalancerIP": "192.0.2.7"},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    });
    let patched = patch(&client, &status, STRATEGIC_PATCH, &all).await?.ok()?;
    same!(patched["spec"], created["spec"]);
    same!(patched["metadata"]["finalizers"], json!([FOREIGN, CLEANUP]));
    same!(patched["metadata"]["labels"], json!({"a": "b"}));
    same!(patched["metadata"]["annotations"], json!({"example.com/a": "b"}));
    same!(patched["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.1");
    // The same once more changes nothing
    let again = patch(&client, &status, STRATEGIC_PATCH, &all).await?.ok()?;
    same!(revision(&again), revision(&patched));
    // Without the list itself only the order changes
    let order = json!({"metadata": {"$setElementOrder/finalizers": [CLEANUP, FOREIGN]}});
    let ordered = patch(&client, &status, STRATEGIC_PATCH, &order).await?.ok()?;
    same!(ordered["metadata"]["finalizers"], json!([CLEANUP, FOREIGN]));
    // What the order does not name stays
    let gone = json!({"metadata": {
        "$deleteFromPrimitiveList/finalizers": [CLEANUP], "$setElementOrder/finalizers": [FOREIGN]}});
    let gone = patch(&client, &status, STRATEGIC_PATCH, &gone).await?.ok()?;
    same!(gone["metadata"]["finalizers"], json!([FOREIGN]));
    let added = json!({"metadata": {"finalizers": ["example.com/second"]}});
    let added = patch(&client, &status, STRATEGIC_PATCH, &added).await?.ok()?;
    same!(added["metadata"]["finalizers"].as_array().map(Vec::len), Some(2));
    let stale = json!({"metadata": {"resourceVersion": revision(&created), "labels": {"a": "c"}}});
    same!(patch(&client, &status, STRATEGIC_PATCH, &stale).await?.refusal(), (409, "Conflict"));
    remove(&client, &path).await
}

/// The finalizer of a controller is the last one, and its removal deletes the object.
pub(super) async fn cleanup_finalizer(client: Client) -> Outcome {
    let (path, _) = create(&client, "cleanup", json!({"type": "LoadBalancer"})).await?;
    let status = format!("{path}/status");
    let add = json!({"metadata": {"$setElementOrder/finalizers": [CLEANUP], "finalizers": [CLEANUP]}});
    patch(&client, &status, STRATEGIC_PATCH, &add).await?.ok()?;
    let waiting = delete(&client, &path, &Value::Null).await?.ok()?;
    ensure!(waiting["metadata"]["deletionTimestamp"].is_string(), "no deletion timestamp: {waiting}");
    let late = json!({"metadata": {"finalizers": [FOREIGN]}});
    same!(patch(&client, &status, STRATEGIC_PATCH, &late).await?.refusal(), (422, "Invalid"));
    // The status can still be written
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    patch(&client, &status, STRATEGIC_PATCH, &ingress).await?.ok()?;
    let remove = json!({"metadata": {
        "$deleteFromPrimitiveList/finalizers": [CLEANUP], "$setElementOrder/finalizers": []}});
    let last = patch(&client, &status, STRATEGIC_PATCH, &remove).await?.ok()?;
    ensure!(last["metadata"].get("finalizers").is_none(), "a finalizer is left: {last}");
    same!(get(&client, &path).await?.refusal(), (404, "NotFound"));
    same!(patch(&client, &status, STRATEGIC_PATCH, &remove).await?.refusal(), (404, "NotFound"));
    Ok(())
}

pub(super) async fn deleted_services(client: Client) -> Outcome {
    let (path, created) = create(&client, "deleted", json!({"type": "LoadBalancer"})).await?;
    let other = json!({"preconditions": {"uid": "11111111-2222-4333-8444-555555555555"}});
    same!(delete(&client, &path, &other).await?.refusal(), (409, "Conflict"));
    let gone = delete(&client, &path, &Value::Null).await?.ok()?;
    same!((&gone["kind"], &gone["metadata"]["uid"]), (&json!("Service"), &created["metadata"]["uid"]));
    // Another one of the same name is another object
    let name = created["metadata"]["name"].as_str().unwrap_or_default();
    let again = put(&client, &path, &with(name, json!({"type": "LoadBalancer"}))).await?;
    same!(again.code, 201);
    ensure!(again.body["metadata"]["uid"] != created["metadata"]["uid"], "the same UID");
    remove(&client, &path).await
}

pub(super) async fn service_refusals(client: Client) -> Outcome {
    for spec in [
        json!({"type": "Other"}),
        json!({"ports": []}),
        json!({"ports": [{"port": 80}, {"port": 81}]}),
        json!({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]}),
        json!({"ports": [{"port": 70000}]}),
        json!({"ports": [{"port": 80, "protocol": "ICMP"}]}),
        json!({"type": "ClusterIP", "externalTrafficPolicy": "Local"}),
        json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.1"]}),
        json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}),
        json!({"type": "LoadBalancer", "clusterIP": "None"}),
        json!({"type": "LoadBalancer", "healthCheckNodePort": 31999}),
        json!({"sessionAffinity": "Cookie"}),
        json!({"type": "ExternalName"}),
        json!({"allocateLoadBalancerNodePorts": true}),
    ] {
        let refused = post(&client, SERVICES, &with(&unique("refused"), spec.clone())).await?;
        same!((&spec, refused.refusal()), (&spec, (422, "Invalid")));
    }
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let (path, created) = create(&client, "refused", spec).await?;
    let port = created["spec"]["healthCheckNodePort"].as_i64().unwrap_or_default();
    for (field, value) in [
        ("healthCheckNodePort", json!(if port == 32_000 { 32_001 } else { 32_000 })),
        ("clusterIPs", json!(["10.0.255.250"])),
    ] {
        let refused = patch(&client, &path, MERGE_PATCH, &json!({"spec": {field: value}})).await?;
        same!((field, refused.refusal()), (field, (422, "Invalid")));
    }
    remove(&client, &path).await
}
