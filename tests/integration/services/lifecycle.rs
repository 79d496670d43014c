//! Which Services get a load balancer, the order of writes and calls, and how a load balancer ends.

use std::time::Duration;

use anyhow::ensure;
use cloudprovider::testing::Operation;
use serde_json::json;

use super::world::*;
use crate::{api::Api, fake_cloud::unavailable, scenarios::Trials};

const FOREIGN: &str = "example.com/foreign";

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("services::only_those_of_type_load_balancer_without_a_class", which)
        .both("services::the_finalizer_comes_first_and_goes_last", order)
        .both("services::another_type_ends_the_load_balancer", another_type)
        .sandbox("services::a_service_that_vanished_is_cleaned_up", vanished)
        .both("services::another_service_of_the_same_name_is_another_one", recreated)
        .both("services::what_others_wrote_stays", foreign)
        .both("services::a_service_that_is_being_deleted_gets_no_finalizer", late)
        .both("services::what_a_service_asks_for_reaches_the_cloud", handed_on)
        .sandbox("services::cleanup_of_what_an_earlier_controller_left", left_behind)
        .sandbox("services::what_no_watch_has_told_is_found", unseen)
        .sandbox("services::what_became_of_another_class_is_cleaned_up", class_meanwhile)
}

/// While no controller ran, a Service took the class of another one. Its load balancer is ours.
async fn class_meanwhile(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    let service = world.with_load_balancer("web").await?;
    daemon.crash().await;
    world.change("web", json!({"spec": {"type": "ClusterIP"}})).await?;
    let other = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/other"});
    world.change("web", json!({"spec": other})).await?;
    // This one has used the same finalizer for itself
    let theirs = json!({"finalizers": [CLEANUP]});
    world.create_with("theirs", theirs, other).await?;
    let both_looks_and_a_deletion =
        [Operation::GetLoadBalancer, Operation::GetLoadBalancer, Operation::DeleteLoadBalancer];
    for operation in both_looks_and_a_deletion {
        world.cloud.fail_next(operation, unavailable("the cloud is away"));
    }
    let daemon = world.start(&[])?;
    let limit = Duration::from_secs(60);
    world.becomes("web", limit, "lost our finalizer", |one| !has_finalizer(one)).await?;
    ensure!(world.load_balancer(&service).is_none(), "{:?}", world.tape.of("web"));
    world.pause().await;
    ensure!(has_finalizer(&world.get("theirs").await?), "{:?}", world.tape.of("theirs"));
    ensure!(world.tape.of("theirs").iter().all(|step| step == "get"), "{:?}", world.tape.of("theirs"));
    world.change("theirs", json!({"metadata": {"finalizers": null}})).await?;
    daemon.stop().await
}

/// One update replaces the Service that the controller knows by another one.
async fn unseen(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    let (old, gone) = (world.with_load_balancer("web").await?, world.with_load_balancer("gone").await?);
    let vanishing = async {
        world.force_delete("gone").await?;
        world.force_delete("web").await?;
        world.balanced("web").await.map(drop)
    };
    world.unseen(vanishing).await?;
    let new = world.is_balanced("web").await?;
    ensure!(world.load_balancer(&new).is_some() && has_finalizer(&new));
    for service in [&old, &gone] {
        crate::support::eventually(SOON, "the old load balancer is gone", || async {
            Ok(world.load_balancer(service).is_none().then_some(()))
        })
        .await?;
    }
    // The old one goes before the new one is made
    let steps = world.tape.of("web");
    let after = |what: &str| steps.iter().rposition(|step| step.starts_with(what));
    ensure!(after("delete") < after("ensure"), "{steps:?}");
    world.event("gone", "DeletedLoadBalancer").await?;
    // One that became another kind is cleaned up as well
    let old = world.get("web").await?;
    let replaced = async {
        world.force_delete("web").await?;
        world.create("web", json!({})).await.map(drop)
    };
    world.unseen(replaced).await?;
    crate::support::eventually(SOON, "the load balancer is gone", || async {
        Ok(world.load_balancer(&old).is_none().then_some(()))
    })
    .await?;
    // A class cannot be added, but it can come with the type
    world.change("web", json!({"spec": {"type": "LoadBalancer"}})).await?;
    let ours = world.is_balanced("web").await?;
    let with_class = async {
        world.change("web", json!({"spec": {"type": "ClusterIP"}})).await?;
        let spec = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/other"});
        world.change("web", json!({"spec": spec})).await.map(drop)
    };
    world.unseen(with_class).await?;
    world.becomes("web", SOON, "lost our finalizer", |one| !has_finalizer(one)).await?;
    ensure!(world.load_balancer(&ours).is_none(), "{:?}", world.tape.of("web"));
    daemon.stop().await
}

async fn which(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    world.create("cluster-ip", json!({})).await?;
    world.create("node-port", json!({"type": "NodePort"})).await?;
    world.create("headless", json!({"clusterIP": "None"})).await?;
    world.create("name", json!({"type": "ExternalName", "externalName": "example.com"})).await?;
    let with_class = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/other"});
    world.create("class", with_class).await?;
    // A class of another controller protects its finalizer too, as long as the type stays.
    let ours = json!({"finalizers": [FOREIGN]});
    let with_class = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/other"});
    world.create_with("class-finalizer", ours, with_class).await?;
    let early = world.balanced("early").await?;
    let daemon = world.start(&[])?;
    world.is_balanced("early").await?;
    let late = world.with_load_balancer("late").await?;
    // What does not matter for a Service without a load balancer
    for name in ["cluster-ip", "class"] {
        world.change(name, json!({"metadata": {"annotations": {"example.com/a": "b"}}})).await?;
    }
    world.pause().await;
    for name in ["cluster-ip", "node-port", "headless", "name", "class", "class-finalizer"] {
        ensure!(world.tape.of(name).is_empty(), "{name}: {:?}", world.tape.of(name));
        ensure!(!has_finalizer(&world.get(name).await?), "{name} has a finalizer");
        ensure!(world.events(name).await?.is_empty(), "{name}: {:?}", world.events(name).await?);
    }
    ensure!(world.load_balancer(&early).is_some() && world.load_balancer(&late).is_some());
    ensure!(world.cloud.load_balancers().len() == 2, "{:?}", world.cloud.load_balancers().keys());
    // A Service that becomes one
    let becomes = world.change("node-port", json!({"spec": {"type": "LoadBalancer"}})).await?;
    world.is_balanced("node-port").await?;
    ensure!(world.load_balancer(&becomes).is_some());
    daemon.stop().await
}

async fn order(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1", "n2"]).await?;
    let daemon = world.start(&[])?;
    let service = world.with_load_balancer("web").await?;
    ensure!(has_finalizer(&service));
    let address = ingress(&service).join(",");
    // A write is on the tape a moment after others see it.
    world.steps("web", "status", 1).await?;
    let steps = world.tape.of("web");
    ensure!(steps == ["+finalizer", "ensure n1,n2", &format!("status {address}")], "{steps:?}");
    let balancer = world.load_balancer(&service).ok_or_else(|| anyhow::anyhow!("no load balancer"))?;
    ensure!(balancer.cluster_name == "kubernetes", "{}", balancer.cluster_name);
    world.pause().await;
    ensure!(world.tape.of("web").len() == 3, "{:?}", world.tape.of("web"));

    world.tape.clear();
    world.delete("web").await?;
    world.vanishes("web", SOON).await?;
    world.steps("web", "-finalizer", 1).await?;
    let steps = world.tape.of("web");
    // No status shows an address of a load balancer that is being deleted
    ensure!(steps == ["get", "status ", "delete", "-finalizer"], "{steps:?}");
    world.pause().await;
    ensure!(world.tape.of("web").len() == 4, "{:?}", world.tape.of("web"));
    ensure!(world.cloud.load_balancers().is_empty());
    ensure!(world.tape.unprotected().is_empty(), "{:?}", world.tape.unprotected());
    daemon.stop().await
}

async fn another_type(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&["--cluster-name=blue"])?;
    for kind in ["ClusterIP", "NodePort"] {
        let service = world.with_load_balancer(kind.to_lowercase().as_str()).await?;
        let name = name_of(&service);
        ensure!(world.load_balancer(&service).is_some_and(|one| one.cluster_name == "blue"));
        world.tape.clear();
        world.change(&name, json!({"spec": {"type": kind}})).await?;
        let plain = world.becomes(&name, SOON, "has no finalizer", |one| !has_finalizer(one)).await?;
        ensure!(ingress(&plain).is_empty() && world.load_balancer(&plain).is_none());
        let steps = world.tape.of(&name);
        // The API server cleared the status with the type
        ensure!(steps == ["get", "nothing", "delete", "-finalizer"], "{steps:?}");
        world.pause().await;
        ensure!(world.tape.of(&name).len() == 4, "{:?}", world.tape.of(&name));
        // And back again
        world.change(&name, json!({"spec": {"type": "LoadBalancer"}})).await?;
        let again = world.is_balanced(&name).await?;
        ensure!(has_finalizer(&again) && world.load_balancer(&again).is_some());
    }
    daemon.stop().await
}

/// Somebody removed our finalizer, so the object was gone before its load balancer.
async fn vanished(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    world.with_load_balancer("web").await?;
    world.force_delete("web").await?;
    world.steps("web", "delete", 1).await?;
    ensure!(world.cloud.load_balancers().is_empty());
    world.event("web", "DeletedLoadBalancer").await?;
    ensure!(world.event("web", "DeletingLoadBalancer").await?.kind == "Normal");
    // A Service without a load balancer that vanishes is nobody's business
    world.create("plain", json!({})).await?;
    world.delete("plain").await?;
    world.pause().await;
    ensure!(world.tape.of("plain").is_empty(), "{:?}", world.tape.of("plain"));
    ensure!(world.tape.count("web", "delete") == 1, "{:?}", world.tape.of("web"));
    daemon.stop().await
}

async fn recreated(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    for round in 0..3 {
        let old = match round {
            0 => world.with_load_balancer("web").await?,
            _ => world.is_balanced("web").await?,
        };
        world.force_delete("web").await?;
        let new = world.balanced("web").await?;
        ensure!(old.metadata.uid != new.metadata.uid);
        let new = world.is_balanced("web").await?;
        world.has_backends(&new, &["n1"], SOON).await?;
        crate::support::eventually(SOON, "the old load balancer is gone", || async {
            Ok(world.load_balancer(&old).is_none().then_some(()))
        })
        .await?;
        ensure!(has_finalizer(&new), "round {round}");
        ensure!(world.cloud.load_balancers().len() == 1, "{:?}", world.cloud.load_balancers().keys());
    }
    daemon.stop().await
}

async fn foreign(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    let metadata = json!({
        "finalizers": [FOREIGN, "example.com/second"],
        "labels": {"example.com/l": "1"}, "annotations": {"example.com/a": "1"}});
    world.create_with("web", metadata, json!({"type": "LoadBalancer"})).await?;
    let service = world.is_balanced("web").await?;
    let mut finalizers = service.metadata.finalizers.clone().unwrap_or_default();
    finalizers.sort();
    ensure!(finalizers == [FOREIGN, "example.com/second", CLEANUP], "{finalizers:?}");
    // Another controller's condition survives our next write of the status
    let condition = json!({
        "type": "example.com/Ready", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    world.change_status("web", json!({"status": {"conditions": [condition]}})).await?;
    world.change("web", json!({"spec": {"loadBalancerIP": "192.0.2.7"}})).await?;
    world.cloud.lose_load_balancer(&load_balancer_name(&service));
    world.change("web", json!({"metadata": {"annotations": {"example.com/a": "2"}}})).await?;
    let moved = world
        .becomes("web", SOON, "has the new address", |service| ingress(service) == ["192.0.2.7"])
        .await?;
    let conditions = moved.status.clone().and_then(|status| status.conditions).unwrap_or_default();
    ensure!(conditions.len() == 1 && conditions[0].type_ == "example.com/Ready", "{conditions:?}");
    ensure!(moved.metadata.labels == service.metadata.labels);
    // It is deleted, and others still have work to do
    world.delete("web").await?;
    let waiting = world.becomes("web", SOON, "lost our finalizer", |one| !has_finalizer(one)).await?;
    let finalizers = waiting.metadata.finalizers.clone().unwrap_or_default();
    ensure!(finalizers == [FOREIGN, "example.com/second"], "{finalizers:?}");
    ensure!(world.cloud.load_balancers().is_empty());
    world.tape.clear();
    world.change("web", json!({"metadata": {"annotations": {"example.com/a": "3"}}})).await?;
    world.pause().await;
    ensure!(world.tape.of("web").is_empty(), "{:?}", world.tape.of("web"));
    world.change("web", json!({"metadata": {"finalizers": null}})).await?;
    world.vanishes("web", SOON).await?;
    daemon.stop().await
}

/// The deletion came before the controller, or while it was about to add its finalizer.
async fn late(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let others = json!({"finalizers": [FOREIGN]});
    world.create_with("early", others.clone(), json!({"type": "LoadBalancer"})).await?;
    world.delete("early").await?;
    let daemon = world.start(&[])?;
    world.with_load_balancer("other").await?;
    world.pause().await;
    ensure!(world.tape.count("early", "ensure") == 0, "{:?}", world.tape.of("early"));
    ensure!(world.tape.count("early", "+finalizer") == 0, "{:?}", world.tape.of("early"));
    ensure!(world.tape.count("early", "refused") == 0, "{:?}", world.tape.of("early"));
    // It is deleted while the load balancer is made: then it is unmade.
    world.cloud.set_latency(Duration::from_millis(700));
    world.create_with("web", others, json!({"type": "LoadBalancer"})).await?;
    world.steps("web", "ensure", 1).await?;
    world.delete("web").await?;
    world.becomes("web", SOON, "lost our finalizer", |one| !has_finalizer(one)).await?;
    ensure!(world.cloud.load_balancers().len() == 1, "{:?}", world.cloud.load_balancers().keys());
    ensure!(world.tape.count("web", "+finalizer") == 1, "{:?}", world.tape.of("web"));
    ensure!(world.tape.count("web", "refused") == 0, "{:?}", world.tape.of("web"));
    for name in ["early", "web"] {
        world.change(name, json!({"metadata": {"finalizers": null}})).await?;
    }
    daemon.stop().await
}

async fn handed_on(api: &Api) -> anyhow::Result<()> {
    use cloudprovider::{ExternalTrafficPolicy, Protocol, SessionAffinity, TargetPort};
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    let spec = json!({
        "type": "LoadBalancer", "loadBalancerIP": "192.0.2.9", "externalTrafficPolicy": "Local",
        "loadBalancerSourceRanges": ["10.0.0.0/8", "2001:db8::/32"], "externalIPs": ["198.51.100.7"],
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 30}},
        "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"],
        "ports": [
            {"name": "http", "port": 80, "targetPort": "web", "appProtocol": "kubernetes.io/h2c", "nodePort": 30180},
            {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 5353},
        ],
    });
    let metadata = json!({"labels": {"app": "web"}, "annotations": {"example.com/size": "small"}});
    let made = world.create_with("web", metadata, spec).await?;
    let service = world.is_balanced("web").await?;
    ensure!(ingress(&service) == ["192.0.2.9"], "{:?}", ingress(&service));
    let balancer = world.load_balancer(&service).ok_or_else(|| anyhow::anyhow!("no load balancer"))?;
    let got = balancer.service;
    ensure!((got.namespace.as_str(), got.name.as_str()) == ("default", "web"));
    ensure!(Some(&got.uid) == made.metadata.uid.as_ref());
    ensure!(got.labels["app"] == "web" && got.annotations["example.com/size"] == "small");
    ensure!(got.load_balancer_ip.as_deref() == Some("192.0.2.9"));
    ensure!(got.load_balancer_source_ranges == ["10.0.0.0/8", "2001:db8::/32"]);
    ensure!(got.external_ips == ["198.51.100.7"] && got.ip_families == ["IPv6", "IPv4"]);
    let spec = made.spec.unwrap_or_default();
    ensure!(Some(got.cluster_ips) == spec.cluster_ips);
    ensure!(got.session_affinity == SessionAffinity::ClientIp { timeout_seconds: 30 });
    ensure!(got.external_traffic_policy == ExternalTrafficPolicy::Local);
    ensure!(got.health_check_node_port.map(i32::from) == spec.health_check_node_port);
    let [http, dns] = got.ports.as_slice() else { anyhow::bail!("{:?}", got.ports) };
    ensure!((http.name.as_str(), http.port, http.protocol) == ("http", 80, Protocol::Tcp));
    ensure!(http.target_port == Some(TargetPort::Name("web".into())) && http.node_port == Some(30180));
    ensure!(http.app_protocol.as_deref() == Some("kubernetes.io/h2c"));
    ensure!((dns.name.as_str(), dns.port, dns.protocol) == ("dns", 53, Protocol::Udp));
    ensure!(dns.target_port == Some(TargetPort::Number(5353)) && dns.node_port.is_some());
    daemon.stop().await
}

/// Upstream's controller, or this one in an earlier life, has left its finalizer.
async fn left_behind(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let ours = json!({"finalizers": [CLEANUP]});
    // Its type has changed in the meantime
    let plain = world.create_with("plain", ours.clone(), json!({})).await?;
    // It is being deleted
    world.create_with("deleted", ours.clone(), json!({"type": "LoadBalancer"})).await?;
    world.delete("deleted").await?;
    // It is still wanted
    world.create_with("wanted", ours, json!({"type": "LoadBalancer"})).await?;
    let daemon = world.start(&[])?;
    world.becomes("plain", SOON, "has no finalizer", |one| !has_finalizer(one)).await?;
    world.vanishes("deleted", SOON).await?;
    world.is_balanced("wanted").await?;
    // There was nothing to delete in the cloud, which upstream still reports.
    ensure!(world.load_balancer(&plain).is_none());
    ensure!(world.tape.of("plain") == ["get", "-finalizer"], "{:?}", world.tape.of("plain"));
    world.event("plain", "DeletedLoadBalancer").await?;
    world.no_event("plain", "DeletingLoadBalancer").await?;
    ensure!(world.tape.count("wanted", "+finalizer") == 0, "{:?}", world.tape.of("wanted"));
    daemon.stop().await
}
