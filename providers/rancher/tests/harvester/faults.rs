//! What goes wrong on the way to Harvester, and objects of others.

use cloudprovider::{CloudProvider as _, Error, ErrorKind, LoadBalancerService};
use serde_json::json;

use crate::{
    front::{Fault, Front},
    harvester::{STRANGER, control_plane},
    support::{CLUSTER, Running, World, ip},
};

const NONE: &str = ", announcedBy: none";

/// The errors of the calls that ask Harvester. None of them may succeed.
async fn all_calls(running: &Running, service: &LoadBalancerService) -> Vec<Error> {
    let balancers = running.balancers();
    vec![
        running.get(service).await.map(drop).expect_err("get"),
        balancers.ensure(CLUSTER, service, &[]).await.map(drop).expect_err("ensure"),
        balancers.delete(CLUSTER, service).await.expect_err("delete"),
    ]
}

fn status(code: u16, reason: &str) -> String {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "scripted",
        "details": {"retryAfterSeconds": 3},
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_is_taken_for_an_absence() {
    let Some(world) = World::start().await else { return };
    let running = world.running(NONE).await;
    let web = world.service("web");
    let made = running.ensure(&web).await.expect("ensured");
    let rancher = |code: u16, word: &str| {
        json!({"type": "error", "status": code, "code": word, "message": "scripted"}).to_string()
    };
    for (code, body, expected) in [
        (401, rancher(401, "Unauthorized"), ErrorKind::Unauthenticated),
        (403, rancher(403, "PermissionDenied"), ErrorKind::PermissionDenied),
        (404, rancher(404, "NotFound"), ErrorKind::Unavailable),
        (404, "404 page not found\n".to_owned(), ErrorKind::Unavailable),
        (429, status(429, "TooManyRequests"), ErrorKind::RateLimited),
        (500, status(500, "InternalError"), ErrorKind::Unavailable),
        (500, status(500, "ServerTimeout"), ErrorKind::Timeout),
        (503, rancher(503, "ClusterUnavailable"), ErrorKind::Unavailable),
        (504, status(504, "Timeout"), ErrorKind::Timeout),
        (200, "<html><title>Log in</title></html>".to_owned(), ErrorKind::Unavailable),
        (302, String::new(), ErrorKind::Unavailable),
    ] {
        let answer = body.clone();
        world.front.fault_with(move |_, _| Some(Fault::Answer(code, answer.clone())));
        for error in all_calls(&running, &web).await {
            assert_eq!(error.kind(), expected, "{code} {body}: {}", error.report());
        }
    }
    world.front.heal();
    assert_eq!(running.get(&web).await.expect("an answer"), Some(made), "nothing was deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_changes_nothing() {
    let Some(world) = World::start().await else { return };
    let running = world.running(NONE).await;
    let web = world.service("web");
    let made = running.ensure(&web).await.expect("ensured");
    world.front.go_away();
    for error in all_calls(&running, &web).await {
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{}", error.report());
    }
    world.front.come_back();
    assert_eq!(running.get(&web).await.expect("an answer"), Some(made));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_servers_own_refusals() {
    let Some(world) = World::start().await else { return };
    let web = world.service("web");
    world.write_kubeconfig("not-a-token");
    for error in all_calls(&world.running(NONE).await, &web).await {
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{}", error.report());
        assert!(!error.report().contains("not-a-token"));
    }
    world.write_kubeconfig(world.harvester.token(STRANGER));
    for error in all_calls(&world.running(NONE).await, &web).await {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", error.report());
    }
    world.write_kubeconfig(world.harvester.token(crate::harvester::USER));
    let running = world.running(&format!("{NONE}, namespace: no-such")).await;
    let error = running.ensure(&web).await.expect_err("there is no such namespace");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.report().contains("namespace"), "{}", error.report());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_the_kind_says_nothing_about_load_balancers() {
    let Some(world) = World::start().await else { return };
    let Some(other) = tokio::task::spawn_blocking(control_plane).await.expect("a control plane") else {
        return;
    };
    let (url, token) = (other.url(), other.admin_token().to_owned());
    let ca = std::fs::read_to_string(other.ca_pem()).expect("a certificate");
    world.harvester.kubeconfig(world.folder.path(), &url, &ca, &token);
    let running = world.running(NONE).await;
    for error in all_calls(&running, &world.service("web")).await {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
        assert!(error.report().contains("kind LoadBalancer"), "{}", error.report());
    }
    tokio::task::spawn_blocking(move || drop(other)).await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_others_are_left_alone() {
    let Some(world) = World::start().await else { return };
    let running = world.running(NONE).await;
    let web = world.service("web");
    let name = running.balancers().name(CLUSTER, &web);
    let spec = json!({"workloadType": "cluster", "ipam": "pool"});
    world.harvester.create(&name, json!({"cloudprovider.harvesterhci.io/serviceName": "web"}), spec).await;
    let error = running.ensure(&web).await.expect_err("foreign");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("kubectl label"), "{error}");
    assert_eq!(running.get(&web).await.expect("an answer"), None);
    running.delete(&web).await.expect("ours is not there");
    let object = world.harvester.only().await.expect("it is still there");
    assert_eq!(object["metadata"]["deletionTimestamp"], serde_json::Value::Null);
    assert_eq!(object["spec"]["listeners"], serde_json::Value::Null);
    // As the message says, a person can hand it over.
    let label = "service.cloudprovider.kubernetes.io/uid=uid-of-web";
    let arguments = [
        "label",
        "--namespace",
        &world.harvester.namespace,
        "loadbalancers.loadbalancer.harvesterhci.io",
        &name,
        label,
    ];
    world.harvester.control_plane.kubectl_output(&arguments).expect("labelled");
    assert!(!ip(&running.ensure(&web).await.expect("ensured")).is_empty());
    running.delete(&web).await.expect("deleted");
    assert_eq!(world.harvester.only().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_somebody_else_in_between_is_no_failure() {
    let Some(world) = World::start().await else { return };
    let running = world.running(NONE).await;
    let mut web = world.service("web");
    let status = running.ensure(&web).await.expect("ensured");
    web.ports[0].node_port = Some(30081);
    let conflict = status_text();
    let is_patch = |method: &http::Method| *method == http::Method::PATCH;
    let mut left = 2;
    world.front.fault_with(move |_, method| {
        let fails = is_patch(method) && left > 0;
        left -= i32::from(fails);
        fails.then(|| Fault::Answer(409, conflict.clone()))
    });
    let error = running.balancers().ensure(CLUSTER, &web, &[]).await.expect_err("a conflict");
    assert_eq!(error.kind(), ErrorKind::InProgress);
    assert_eq!(running.ensure(&web).await.expect("ensured"), status);
    assert_eq!(
        world.harvester.only().await.expect("an object")["spec"]["listeners"][0]["backendPort"],
        30081
    );
}

fn status_text() -> String {
    status(409, "Conflict")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_somebody_else_is_refused() {
    let Some(world) = World::start().await else { return };
    let other = Front::start(world.harvester.control_plane.url()).await;
    world.harvester.kubeconfig(world.folder.path(), &other.url, &world.front.ca, "token");
    for error in all_calls(&world.running(NONE).await, &world.service("web")).await {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.report().to_lowercase().contains("certificate"), "{}", error.report());
    }
    assert!(other.state().calls.is_empty(), "no token was sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_cluster_must_allow_depends_on_who_announces() {
    let Some(world) = World::start().await else { return };
    let needs = |more: &str| world.provider(more).expect("a provider").service_access_needs();
    assert!(needs("").changes && !needs("").claims);
    assert_eq!(needs(NONE), cloudprovider::ServiceAccessNeeds::default());
}
