//! Which changes of a Service reach the cloud: upstream's table.

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::world::*;
use crate::{api::Api, scenarios::Trials};

pub(super) fn trials() -> Trials {
    Trials::new()
        .both("services::changes_that_matter_reach_the_cloud_once", that_matter)
        .sandbox("services::changes_that_do_not_matter_cost_nothing", that_do_not)
}

/// What each change does to a Service with two ports, in the order in which they are made.
fn rows() -> Vec<(&'static str, Value)> {
    let ports = |first: Value, second: Value| json!({"spec": {"ports": [first, second]}});
    let http = json!({"name": "http", "port": 80, "targetPort": 80, "nodePort": 30100});
    let with = |port: &Value, field: &str, value: Value| {
        let mut port = port.clone();
        port[field] = value;
        port
    };
    let tls = json!({"name": "https", "port": 443, "targetPort": 443, "nodePort": 30101});
    let renamed = with(&http, "name", "web".into());
    let udp = with(&renamed, "protocol", "UDP".into());
    let moved = with(&udp, "port", 81.into());
    let target = with(&moved, "targetPort", 8080.into());
    let node_port = with(&target, "nodePort", 30110.into());
    let with_app = with(&node_port, "appProtocol", "example.com/app".into());
    vec![
        ("annotation added", json!({"metadata": {"annotations": {"example.com/a": "1"}}})),
        ("annotation changed", json!({"metadata": {"annotations": {"example.com/a": "2"}}})),
        ("annotation removed", json!({"metadata": {"annotations": {"example.com/a": null}}})),
        ("source ranges set", json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8", "10.1.0.0/16"]}})),
        (
            "source ranges reordered",
            json!({"spec": {"loadBalancerSourceRanges": ["10.1.0.0/16", "10.0.0.0/8"]}}),
        ),
        ("source ranges removed", json!({"spec": {"loadBalancerSourceRanges": null}})),
        ("port added", ports(http.clone(), tls.clone())),
        ("ports reordered", ports(tls.clone(), http.clone())),
        ("port renamed", ports(tls.clone(), renamed)),
        ("protocol", ports(tls.clone(), udp)),
        ("port number", ports(tls.clone(), moved)),
        ("target port", ports(tls.clone(), target)),
        ("node port", ports(tls.clone(), node_port)),
        ("app protocol", ports(tls.clone(), with_app)),
        ("port removed", json!({"spec": {"ports": [tls]}})),
        ("session affinity", json!({"spec": {"sessionAffinity": "ClientIP"}})),
        (
            "session affinity timeout",
            json!({"spec": {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}}),
        ),
        ("load balancer IP", json!({"spec": {"loadBalancerIP": "192.0.2.77"}})),
        ("external IPs set", json!({"spec": {"externalIPs": ["198.51.100.1", "198.51.100.2"]}})),
        ("external IPs reordered", json!({"spec": {"externalIPs": ["198.51.100.2", "198.51.100.1"]}})),
        ("external IPs removed", json!({"spec": {"externalIPs": null}})),
        // It gets a health check node port too
        ("traffic policy", json!({"spec": {"externalTrafficPolicy": "Local"}})),
        ("IP families", json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}})),
    ]
}

async fn that_matter(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    let port = json!([{"name": "http", "port": 80, "nodePort": 30100}]);
    world.create("web", json!({"type": "LoadBalancer", "ports": port})).await?;
    world.is_balanced("web").await?;
    ensure!(world.tape.count("web", "ensure") == 1, "{:?}", world.tape.of("web"));
    for (count, (what, patch)) in rows().into_iter().enumerate() {
        let changed = world.change("web", patch).await.context(what)?;
        world.steps("web", "ensure", count + 2).await.context(what)?;
        world.has_settled().await.context(what)?;
        let ensures = world.tape.count("web", "ensure");
        ensure!(ensures == count + 2, "{what}: {} calls", ensures - count - 1);
        let known = world.load_balancer(&changed).context("no load balancer")?.service;
        ensure!(known.annotations == changed.metadata.annotations.unwrap_or_default(), "{what}");
        ensure!(
            known.ports.len() == changed.spec.and_then(|spec| spec.ports).map_or(0, |all| all.len()),
            "{what}"
        );
    }
    // The address was given at the beginning, and the finalizer was there: nothing else was written.
    let steps = world.tape.of("web");
    let writes: Vec<_> = steps.iter().filter(|step| !step.starts_with("ensure")).collect();
    ensure!(writes.len() == 2, "{writes:?}");
    daemon.stop().await
}

async fn that_do_not(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[NO_VERIFICATION])?;
    world.with_load_balancer("web").await?;
    world.has_settled().await?;
    world.tape.clear();
    for (what, patch) in [
        ("labels", json!({"metadata": {"labels": {"example.com/l": "1"}}})),
        ("selector", json!({"spec": {"selector": {"app": "web"}}})),
        ("internal traffic policy", json!({"spec": {"internalTrafficPolicy": "Local"}})),
        ("node ports", json!({"spec": {"allocateLoadBalancerNodePorts": false}})),
        ("addresses that are not ready", json!({"spec": {"publishNotReadyAddresses": true}})),
        ("traffic distribution", json!({"spec": {"trafficDistribution": "PreferClose"}})),
        ("another finalizer", json!({"metadata": {"finalizers": [CLEANUP, "example.com/other"]}})),
    ] {
        world.change("web", patch).await.context(what)?;
        world.has_settled().await.context(what)?;
        ensure!(world.tape.of("web").is_empty(), "{what}: {:?}", world.tape.of("web"));
    }
    let condition = json!({
        "type": "example.com/Ready", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    world.change_status("web", json!({"status": {"conditions": [condition]}})).await?;
    world.pause().await;
    ensure!(world.tape.of("web").is_empty(), "a condition: {:?}", world.tape.of("web"));
    world.change("web", json!({"metadata": {"finalizers": [CLEANUP]}})).await?;
    daemon.stop().await
}
