//! Load balancers on the fake.

use std::time::Duration;

use cloudprovider::{
    ErrorKind, LoadBalancerService, LoadBalancerStatus, NodeAddress, NodeIdentity, Protocol, Result,
    ServicePort,
};
use serde_json::{Value, json};

use crate::{
    support::{Running, node, start},
    testing::{FakeCattle, Fault},
};

mod leftovers;

const CLUSTER: &str = "kubernetes";
const NAME: &str = "lb-a2f5a1b306c1e4d2b8f439d3f0e6a7b1";

fn service(ports: &[(u16, u16)]) -> LoadBalancerService {
    let port = |(port, node_port): &(u16, u16)| ServicePort {
        port: *port,
        node_port: Some(*node_port),
        ..ServicePort::default()
    };
    LoadBalancerService {
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        uid: "2f5a1b30-6c1e-4d2b-8f43-9d3f0e6a7b11".to_owned(),
        ports: ports.iter().map(port).collect(),
        ..LoadBalancerService::default()
    }
}

/// A server with three hosts, and a provider that knows them.
async fn cluster() -> (FakeCattle, Running, Vec<NodeIdentity>) {
    let server = FakeCattle::start().await;
    for n in 1..=3 {
        server.add_host(&format!("node-{n}.example.org"), &format!("10.0.0.{n}"));
    }
    let running = start(&server, "loadBalancer: {retryInterval: 1s}\n").await;
    running.until(&node("node-3"), "present").await;
    let nodes = (1..=3).map(|n| node(&format!("node-{n}.example.org"))).collect();
    (server, running, nodes)
}

/// Ensures until it is done. Returns the status and how often it was still in progress.
async fn ensure(
    running: &Running,
    service: &LoadBalancerService,
    nodes: &[NodeIdentity],
) -> (LoadBalancerStatus, usize) {
    let nodes: Vec<_> = nodes.iter().collect();
    for tries in 0..20 {
        match running.balancers().ensure(CLUSTER, service, &nodes).await {
            Ok(status) => return (status, tries),
            Err(error) if error.kind() == ErrorKind::InProgress => {
                assert_eq!(error.retry_after(), Some(Duration::from_secs(1)), "{error}");
            }
            Err(error) => panic!("{}", error.report()),
        }
    }
    panic!("it never ends");
}

fn ips(status: &LoadBalancerStatus) -> Vec<&str> {
    status.ingress.iter().filter_map(|ingress| ingress.ip.as_deref()).collect()
}

/// The only load balancer.
fn balancer(server: &FakeCattle) -> Value {
    let cloud = server.cloud();
    let mut found = cloud
        .objects
        .iter()
        .filter(|((kind, _), _)| *kind == "loadBalancerService")
        .map(|(_, one)| one.clone());
    let one = found.next().expect("a load balancer");
    assert!(found.next().is_none(), "more than one");
    one
}

/// The names, addresses and states of the external services.
fn externals(server: &FakeCattle) -> Vec<String> {
    let cloud = server.cloud();
    let found = cloud.objects.iter().filter(|((kind, _), _)| *kind == "externalService");
    let shown = |one: &Value| {
        format!("{} {} {}", one["name"], one["externalIpAddresses"], one["state"]).replace('"', "")
    };
    let mut shown: Vec<_> = found.map(|(_, one)| shown(one)).collect();
    shown.sort();
    shown
}

/// The rules as `port -> node port on name`.
fn rules(server: &FakeCattle) -> Vec<String> {
    let balancer = balancer(server);
    let cloud = server.cloud();
    let name = |id: &Value| {
        let id = id.as_str().unwrap_or_default().to_owned();
        cloud.objects[&("externalService", id)]["name"].as_str().unwrap_or_default().to_owned()
    };
    let rules = balancer["lbConfig"]["portRules"].as_array().cloned().unwrap_or_default();
    let mut shown: Vec<_> = rules
        .iter()
        .map(|rule| {
            format!("{} -> {} on {}", rule["sourcePort"], rule["targetPort"], name(&rule["serviceId"]))
        })
        .collect();
    shown.sort();
    shown
}

/// A kubelet may write any address of its Node. Those of Rancher's hosts alone are back ends.
#[tokio::test]
async fn a_node_that_is_no_host_gets_no_traffic() {
    let (server, running, mut nodes) = cluster().await;
    let web = service(&[(80, 30080)]);
    let written = || vec![NodeAddress::internal_ip("10.9.9.9"), NodeAddress::external_ip("192.0.2.9")];
    for node in &mut nodes {
        node.addresses = written();
    }
    let stranger = NodeIdentity { addresses: written(), ..node("stranger") };
    let foreign = NodeIdentity { provider_id: Some("k3s://other".to_owned()), ..stranger.clone() };
    let unknown = NodeIdentity { provider_id: Some("rancher://no-such-host".to_owned()), ..stranger.clone() };
    for (more, name) in [(stranger, "stranger"), (foreign, "foreign"), (unknown, "unknown")] {
        nodes.push(NodeIdentity { name: name.to_owned(), ..more });
    }
    ensure(&running, &web, &nodes).await;
    let expected: Vec<_> = (1..=3).map(|n| format!("node-{n}-example-org [10.0.0.{n}] active")).collect();
    assert_eq!(externals(&server), expected);
    assert_eq!(rules(&server).len(), 3);
    // One that came from such an address before goes.
    let id = server
        .cloud()
        .objects
        .iter()
        .find(|(_, one)| one["name"] == "node-3-example-org")
        .map(|((_, id), _)| id.clone());
    server.cloud().change(
        "externalService",
        &id.expect("its external service"),
        json!({"externalIpAddresses": ["10.9.9.9"]}),
    );
    ensure(&running, &web, &nodes).await;
    assert_eq!(externals(&server), expected);
    // Nor does one stay whose host is gone.
    let host = server
        .cloud()
        .objects
        .iter()
        .find(|(_, one)| one["hostname"] == "node-3.example.org")
        .map(|((_, id), _)| id.clone());
    server.remove_host(&host.expect("its host"));
    running.until(&node("node-3.example.org"), "absent").await;
    ensure(&running, &web, &nodes).await;
    assert_eq!(externals(&server), expected[..2]);
}

#[tokio::test]
async fn a_load_balancer_is_made_changed_and_deleted() {
    let (server, running, nodes) = cluster().await;
    server.cloud().late_endpoints = 3;
    let balancers = running.balancers();
    let web = service(&[(80, 30080)]);
    assert!(balancers.get(CLUSTER, &web).await.expect("an answer").is_none());
    let (status, tries) = ensure(&running, &web, &nodes[..2]).await;
    assert_eq!(ips(&status), ["10.0.0.1", "10.0.0.2"], "each address once");
    assert!(tries > 0, "the server takes its time, and no call waits for it");
    assert_eq!(balancers.get(CLUSTER, &web).await.expect("an answer"), Some(status.clone()));
    let made = balancer(&server);
    assert_eq!(made["name"], NAME);
    assert_eq!(
        made["launchConfig"],
        json!({"ports": ["80:80/tcp"], "imageUuid": "docker:rancher/lb-service-haproxy:v0.9.14"})
    );
    assert_eq!(rules(&server), ["80 -> 30080 on node-1-example-org", "80 -> 30080 on node-2-example-org"]);
    assert_eq!(
        externals(&server),
        ["node-1-example-org [10.0.0.1] active", "node-2-example-org [10.0.0.2] active"]
    );
    let stack =
        server.cloud().objects.iter().find(|((kind, _), _)| *kind == "stack").map(|(_, one)| one.clone());
    let stack = stack.expect("a stack");
    assert_eq!(
        (&stack["name"], &stack["externalId"]),
        (&json!("kubernetes-loadbalancers"), &json!("kubernetes-loadbalancers://"))
    );

    // Another port and another node: the same load balancer.
    let (again, _) = ensure(&running, &service(&[(80, 30080), (443, 30443)]), &nodes[1..]).await;
    assert_eq!(ips(&again), ips(&status));
    let changed = balancer(&server);
    assert_eq!(changed["id"], made["id"], "changed in place");
    assert_eq!(changed["launchConfig"]["ports"], json!(["80:80/tcp", "443:443/tcp"]));
    assert_eq!(rules(&server).len(), 4);
    assert_eq!(changed["links_of_test"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        externals(&server),
        ["node-2-example-org [10.0.0.2] active", "node-3-example-org [10.0.0.3] active"],
        "that of the node that left is gone"
    );

    // What is right costs reads only.
    let before = server.cloud().calls.clone();
    ensure(&running, &service(&[(80, 30080), (443, 30443)]), &nodes[1..]).await;
    let after = server.cloud().calls.clone();
    let cost = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
    assert_eq!((cost("loadbalancerservices"), cost("externalservices"), cost("hosts")), (1, 1, 0));

    server.cloud().slow_removal = 4;
    let error = balancers.delete(CLUSTER, &web).await.expect_err("not gone yet");
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::InProgress, Some(Duration::from_secs(1))));
    let error = balancers.ensure(CLUSTER, &web, &[]).await.expect_err("it is leaving");
    assert_eq!(error.kind(), ErrorKind::InProgress);
    while balancers.delete(CLUSTER, &web).await.is_err() {}
    balancers.delete(CLUSTER, &web).await.expect("deleted twice");
    assert!(balancers.get(CLUSTER, &web).await.expect("an answer").is_none());
    assert!(externals(&server).is_empty(), "nothing is left");
}

#[tokio::test]
async fn a_load_balancer_of_the_old_manager_is_taken_over() {
    let (server, running, nodes) = cluster().await;
    let (stack, balancer_id, stale) = {
        let mut cloud = server.cloud();
        let stack = cloud.create(
            "stack",
            json!({"name": "kubernetes-loadbalancers", "externalId": "kubernetes-loadbalancers://", "state": "active"}),
        );
        let one = |name: &str, ip: &str| json!({"name": name, "stackId": stack, "externalIpAddresses": [ip], "state": "active"});
        // The host has another address now, and the old manager never noticed.
        let stale = cloud.create("externalService", one("node-1-example-org", "192.0.2.1"));
        let gone = cloud.create("externalService", one("node-9-example-org", "10.0.0.9"));
        let rule = |id: &str| json!({"sourcePort": 80, "targetPort": 30080, "serviceId": id, "protocol": "tcp", "priority": 1});
        let balancer = cloud.create("loadBalancerService", json!({
            "name": NAME, "stackId": stack, "state": "active", "scale": 1,
            "launchConfig": {"ports": ["80:80/tcp"], "imageUuid": "docker:rancher/lb-service-haproxy:v0.7.6", "labels": {"a": "b"}},
            "lbConfig": {"portRules": [rule(&stale), rule(&gone)]},
        }));
        // A load balancer of somebody else, in another stack and with another name.
        let other = cloud.create("stack", json!({"name": "shop", "state": "active"}));
        cloud.create("externalService", json!({"name": "node-2-example-org", "stackId": other, "externalIpAddresses": ["192.0.2.7"], "state": "active"}));
        (stack, balancer, stale)
    };
    let (status, _) = ensure(&running, &service(&[(80, 30080)]), &nodes[..2]).await;
    assert_eq!(ips(&status), ["10.0.0.1", "10.0.0.2"]);
    let taken = balancer(&server);
    assert_eq!(
        (taken["id"].as_str(), taken["stackId"].as_str()),
        (Some(balancer_id.as_str()), Some(stack.as_str()))
    );
    assert_eq!(taken["launchConfig"]["labels"], json!({"a": "b"}));
    assert_eq!(rules(&server), ["80 -> 30080 on node-1-example-org", "80 -> 30080 on node-2-example-org"]);
    assert_eq!(
        server.cloud().objects[&("externalService", stale)]["externalIpAddresses"],
        json!(["10.0.0.1"])
    );
    assert_eq!(
        externals(&server),
        [
            "node-1-example-org [10.0.0.1] active",
            "node-2-example-org [10.0.0.2] active",
            "node-2-example-org [192.0.2.7] active"
        ],
        "only those of the stack are ours"
    );
}

#[tokio::test]
async fn a_host_that_leaves_is_taken_out_and_one_with_another_address_is_followed() {
    let (server, running, nodes) = cluster().await;
    let web = service(&[(80, 30080)]);
    ensure(&running, &web, &nodes).await;
    let id = {
        let cloud = server.cloud();
        let host = cloud
            .objects
            .iter()
            .find(|((kind, _), one)| *kind == "host" && one["hostname"] == "node-2.example.org");
        host.map(|((_, id), _)| id.clone()).expect("a host")
    };
    server.change_host(&id, json!({"agentIpAddress": "10.0.0.22"}));
    for _ in 0..100 {
        running.balancers().update(CLUSTER, &web, &nodes.iter().collect::<Vec<_>>()).await.expect("updated");
        if externals(&server).contains(&"node-2-example-org [10.0.0.22] active".to_owned()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.remove_host(&id);
    let rest: Vec<_> = nodes.iter().filter(|node| !node.name.starts_with("node-2")).collect();
    running.balancers().update(CLUSTER, &web, &rest).await.expect("updated");
    assert_eq!(rules(&server), ["80 -> 30080 on node-1-example-org", "80 -> 30080 on node-3-example-org"]);
    assert_eq!(externals(&server).len(), 2);
}

#[tokio::test]
async fn without_a_host_no_load_balancer_is_certainly_absent() {
    let (server, running, nodes) = cluster().await;
    let web = service(&[(80, 30080)]);
    ensure(&running, &web, &nodes).await;
    drop(running);
    // A key of another project sees neither hosts nor load balancers.
    let objects = std::mem::take(&mut server.cloud().objects);
    let running = start(&server, "").await;
    let some: Vec<_> = nodes.iter().collect();
    let answers: [Result<()>; 3] = [
        running.balancers().get(CLUSTER, &web).await.map(drop),
        running.balancers().ensure(CLUSTER, &web, &some).await.map(drop),
        running.balancers().delete(CLUSTER, &web).await,
    ];
    for answer in answers {
        let error = answer.expect_err("no proof");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(
            error.report().contains("cannot tell whether there is a load balancer"),
            "{}",
            error.report()
        );
    }
    server.cloud().objects = objects;
    running.until(&node("node-1"), "present").await;
    assert!(running.balancers().get(CLUSTER, &web).await.expect("an answer").is_some());
}

#[tokio::test]
async fn source_ranges_are_set_and_taken_away() {
    let (server, running, nodes) = cluster().await;
    let limited = LoadBalancerService {
        load_balancer_source_ranges: vec!["10.0.0.0/8".to_owned()],
        ..service(&[(80, 30080)])
    };
    ensure(&running, &limited, &nodes).await;
    let text = balancer(&server)["lbConfig"]["config"].as_str().unwrap_or_default().to_owned();
    assert!(
        text.contains("frontend 80") && text.contains("src 10.0.0.0/8") && text.contains("reject unless"),
        "{text}"
    );
    ensure(&running, &service(&[(80, 30080)]), &nodes).await;
    assert_eq!(balancer(&server)["lbConfig"]["config"], json!(""));
}

#[tokio::test]
async fn ports_that_cannot_be_changed_make_it_anew() {
    let (server, running, nodes) = cluster().await;
    ensure(&running, &service(&[(80, 30080)]), &nodes).await;
    let made = balancer(&server)["id"].clone();
    server.cloud().fixes_ports = true;
    let (_, tries) = ensure(&running, &service(&[(443, 30443)]), &nodes).await;
    assert!(tries > 0);
    assert_ne!(balancer(&server)["id"], made);
    assert_eq!(balancer(&server)["launchConfig"]["ports"], json!(["443:443/tcp"]));
}

#[tokio::test]
async fn ports_that_take_their_time_do_not_make_it_anew() {
    let (server, running, nodes) = cluster().await;
    ensure(&running, &service(&[(80, 30080)]), &nodes).await;
    let made = balancer(&server)["id"].clone();
    // The answer to the change, and some reads after it, show the ports from before.
    server.cloud().slow_ports = 4;
    let (_, tries) = ensure(&running, &service(&[(443, 30443)]), &nodes).await;
    assert!(tries > 0, "no call waits for it");
    let changed = balancer(&server);
    assert_eq!((&changed["id"], &changed["launchConfig"]["ports"]), (&made, &json!(["443:443/tcp"])));
    assert_eq!(rules(&server).len(), 3);
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_before_anything_is_made() {
    let (server, running, nodes) = cluster().await;
    let mut dns = service(&[(53, 30053)]);
    dns.ports[0].protocol = Protocol::Udp;
    let error = running.balancers().ensure(CLUSTER, &dns, &[&nodes[0]]).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.to_string(),
        "a load balancer of Rancher cannot serve port 53/UDP: only TCP is possible"
    );
    assert!(!server.cloud().calls.contains_key("loadbalancerservices"));
    // Whatever the Service asks for now: what was made is deleted.
    ensure(&running, &service(&[(53, 30053)]), &nodes).await;
    running.balancers().delete(CLUSTER, &dns).await.expect("deleted");
    assert!(externals(&server).is_empty());
}

#[tokio::test]
async fn faults_say_nothing_about_load_balancers() {
    let (server, running, nodes) = cluster().await;
    let web = service(&[(80, 30080)]);
    let (status, _) = ensure(&running, &web, &nodes).await;
    let some: Vec<_> = nodes.iter().collect();
    for fault in [
        Fault::error(401, "Unauthorized"),
        Fault::error(404, "NotFound"),
        Fault::error(500, "ServerError"),
        Fault::login_page(),
        Fault::redirect(),
        Fault::error(429, "TooMany").with_header("retry-after", "1"),
    ] {
        server.set_fault(Some(fault));
        let answers: [Result<()>; 4] = [
            running.balancers().get(CLUSTER, &web).await.map(drop),
            running.balancers().ensure(CLUSTER, &web, &some).await.map(drop),
            running.balancers().update(CLUSTER, &web, &some).await,
            running.balancers().delete(CLUSTER, &web).await,
        ];
        for answer in answers {
            let kind = answer.expect_err("a fault").kind();
            assert!(!matches!(kind, ErrorKind::NotFound | ErrorKind::Unsupported), "{kind}");
        }
        server.set_fault(None);
    }
    // Nobody calls a server that has asked for a pause.
    let calls = server.calls();
    let error = running.balancers().get(CLUSTER, &web).await.expect_err("a pause");
    assert_eq!((error.kind(), server.calls()), (ErrorKind::RateLimited, calls));
    tokio::time::sleep(error.retry_after().expect("a time")).await;
    assert_eq!(running.balancers().get(CLUSTER, &web).await.expect("an answer"), Some(status));
    // Two of one name: a person has to decide.
    let copy = balancer(&server);
    server.cloud().create("loadBalancerService", copy);
    let error = running.balancers().get(CLUSTER, &web).await.expect_err("two");
    assert_eq!(error.kind(), ErrorKind::Ambiguous);
}

#[tokio::test]
async fn a_load_balancer_loses_no_node_because_the_hosts_are_not_known() {
    let (server, running, nodes) = cluster().await;
    let web = service(&[(80, 30080)]);
    ensure(&running, &web, &nodes).await;
    drop(running);
    let all: Vec<_> = nodes.iter().collect();
    // Another daemon, which cannot list the hosts.
    server.cloud().bad_page = Some((1, Fault::error(500, "ServerError")));
    let running = start(&server, "").await;
    for _ in 0..3 {
        let error = running.balancers().update(CLUSTER, &web, &all).await.expect_err("nobody knows");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
    }
    assert_eq!((rules(&server).len(), externals(&server).len()), (3, 3));
    server.cloud().bad_page = None;
    running.until(&node("node-1"), "present").await;
    running.balancers().update(CLUSTER, &web, &all).await.expect("updated");
    assert_eq!(rules(&server).len(), 3);
}

#[tokio::test]
async fn a_stack_that_is_being_removed_is_waited_for() {
    let (server, running, nodes) = cluster().await;
    let web = service(&[(80, 30080)]);
    let stack = server
        .cloud()
        .create("stack", json!({"name": "kubernetes-loadbalancers", "state": "removing", "externalId": ""}));
    let error = running.balancers().ensure(CLUSTER, &web, &[&nodes[0]]).await.expect_err("not yet");
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::InProgress, Some(Duration::from_secs(1))));
    running.balancers().delete(CLUSTER, &web).await.expect("there is nothing");
    server.cloud().objects.remove(&("stack", stack));
    ensure(&running, &web, &nodes).await;
}

#[tokio::test]
async fn an_empty_setting_hides_no_value() {
    let (server, running, nodes) = cluster().await;
    for object in server.cloud().objects.values_mut().filter(|one| one["name"] == "lb.instance.image") {
        object["activeValue"] = object["value"].clone();
        object["value"] = json!("");
    }
    ensure(&running, &service(&[(80, 30080)]), &nodes).await;
    assert_eq!(
        balancer(&server)["launchConfig"]["imageUuid"],
        json!("docker:rancher/lb-service-haproxy:v0.9.14")
    );
}

#[tokio::test]
async fn a_missing_image_is_told() {
    let (server, running, nodes) = cluster().await;
    server.cloud().objects.retain(|(kind, _), _| *kind != "setting");
    let error = running
        .balancers()
        .ensure(CLUSTER, &service(&[(80, 30080)]), &[&nodes[0]])
        .await
        .expect_err("no image");
    assert!(error.report().contains("setting lb.instance.image has no value"), "{}", error.report());
}
