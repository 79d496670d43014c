//! Load balancers that are changed at the same time. They share the external services.

use std::collections::BTreeSet;

use cloudprovider::{ErrorKind, LoadBalancerService, NodeIdentity, Result, ServicePort};
use futures::future::join_all;
use serde_json::Value;

use crate::{
    support::{Running, node, start},
    testing::FakeCattle,
};

const CLUSTER: &str = "kubernetes";

/// A Service with a port of its own.
fn service(n: u16) -> LoadBalancerService {
    LoadBalancerService {
        namespace: "default".to_owned(),
        name: format!("web-{n}"),
        uid: format!("2f5a{n:04}-6c1e-4d2b-8f43-9d3f0e6a7b11"),
        ports: vec![ServicePort { port: 1000 + n, node_port: Some(30000 + n), ..ServicePort::default() }],
        ..LoadBalancerService::default()
    }
}

/// The name of its load balancer.
fn name(n: u16) -> String {
    format!("lb-a2f5a{n:04}6c1e4d2b8f439d3f0e6a7b1")
}

async fn cluster(hosts: u16) -> (FakeCattle, Running, Vec<NodeIdentity>) {
    let server = FakeCattle::start().await;
    for n in 1..=hosts {
        server.add_host(&format!("node-{n}"), &format!("10.0.0.{n}"));
    }
    let running = start(&server, "").await;
    running.until(&node(&format!("node-{hosts}")), "present").await;
    let nodes = (1..=hosts).map(|n| node(&format!("node-{n}"))).collect();
    (server, running, nodes)
}

/// Repeats a call while the server works on what was asked for. Any other failure is one.
async fn settled<T, F: Future<Output = Result<T>>>(call: impl Fn() -> F) -> T {
    for _ in 0..50 {
        match call().await {
            Ok(value) => return value,
            Err(error) if error.kind() == ErrorKind::InProgress => tokio::task::yield_now().await,
            Err(error) => panic!("{}", error.report()),
        }
    }
    panic!("it never ends");
}

async fn ensure(running: &Running, service: &LoadBalancerService, nodes: &[NodeIdentity]) {
    let nodes: Vec<_> = nodes.iter().collect();
    settled(|| running.balancers().ensure(CLUSTER, service, &nodes)).await;
}

/// Checks that each rule leads to an external service, and returns the names of the external services.
fn external_services(server: &FakeCattle) -> BTreeSet<String> {
    let cloud = server.cloud();
    for ((kind, id), one) in &cloud.objects {
        for rule in one["lbConfig"]["portRules"].as_array().into_iter().flatten() {
            let to = rule["serviceId"].as_str().unwrap_or_default().to_owned();
            assert!(cloud.objects.contains_key(&("externalService", to)), "{kind} {id}: {rule}");
        }
    }
    let found = cloud.objects.iter().filter(|((kind, _), _)| *kind == "externalService");
    let names: Vec<_> = found.map(|(_, one)| one["name"].as_str().unwrap_or_default().to_owned()).collect();
    let set: BTreeSet<_> = names.iter().cloned().collect();
    assert_eq!(set.len(), names.len(), "two of one name: {names:?}");
    set
}

#[tokio::test]
async fn a_load_balancer_that_takes_its_time_holds_up_no_other() {
    let (server, running, nodes) = cluster(2).await;
    let (slow, quick) = (service(1), service(2));
    assert_eq!(running.balancers().name(CLUSTER, &slow), name(1));
    // Requests about it wait: those that look for it, its creation, or the change of its rules.
    for held in [name(1), "1001:1001/tcp".to_owned(), "30001".to_owned()] {
        server.cloud().held = Some(held);
        let slow_one = ensure(&running, &slow, &nodes);
        let others = async {
            ensure(&running, &quick, &nodes).await;
            running.balancers().update(CLUSTER, &quick, &[&nodes[0]]).await.expect("updated");
            ensure(&running, &quick, &nodes).await;
            settled(|| running.balancers().delete(CLUSTER, &quick)).await;
            server.cloud().held = None;
        };
        futures::join!(slow_one, others);
        settled(|| running.balancers().delete(CLUSTER, &slow)).await;
    }
    assert!(external_services(&server).is_empty());
}

#[tokio::test]
async fn many_at_once_share_the_external_services() {
    const MANY: u16 = 20;
    let (server, running, nodes) = cluster(4).await;
    let services: Vec<_> = (0..MANY).map(service).collect();
    let balancers = running.balancers();
    // All of them want the stack and the same external services, which nobody has made yet.
    join_all(services.iter().map(|one| ensure(&running, one, &nodes[..3]))).await;
    assert_eq!(external_services(&server).len(), 3);
    let stacks = server.cloud().objects.keys().filter(|(kind, _)| *kind == "stack").count();
    assert_eq!(stacks, 1);
    // One Node leaves, another comes, while some load balancers go and come.
    for round in 0..3 {
        let some: Vec<_> = nodes.iter().skip(round % 2).collect();
        let changes = services.iter().enumerate().map(async |(n, one)| {
            if n % 4 == round {
                settled(|| balancers.delete(CLUSTER, one)).await;
                settled(|| balancers.ensure(CLUSTER, one, &some)).await;
            } else {
                settled(|| balancers.update(CLUSTER, one, &some)).await;
            }
        });
        join_all(changes).await;
        let expected: BTreeSet<_> = some.iter().map(|node| node.name.clone()).collect();
        assert_eq!(external_services(&server), expected, "round {round}");
    }
    join_all(services.iter().map(|one| settled(|| balancers.delete(CLUSTER, one)))).await;
    assert!(external_services(&server).is_empty());
    let left: Vec<Value> =
        server.cloud().objects.values().filter(|one| one["type"] == "loadBalancerService").cloned().collect();
    assert!(left.is_empty(), "{left:?}");
}
