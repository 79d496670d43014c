//! Scenarios of the route controller.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use cloudprovider::{Route, testing::Operation};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use sandbox::kubelet;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    api::{Api, delete_node},
    daemon::InProcess,
    fake_cloud::{FakeCloud, unavailable},
    scenarios::Trials,
    support::*,
};

const SOON: Duration = Duration::from_secs(20);

/// Routes of this range are the cluster's.
const CLUSTER_CIDR: &str = "--cluster-cidr=10.64.0.0/12,fd00:64::/48";

/// `--cluster-name` without a flag.
const CLUSTER: &str = "kubernetes";

const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

pub(crate) fn trials() -> Trials {
    Trials::new()
        .both("routes_come_and_go_with_their_nodes", come_and_go)
        .sandbox("a_node_gets_no_route_to_what_is_not_its_pods", hostile)
        .both("a_route_that_cannot_be_made_is_said_and_mended", fails_at_first)
        .sandbox("a_new_daemon_makes_nothing_twice", restart)
        .sandbox("addresses_that_the_cloud_stores_follow_the_node", new_addresses)
        .sandbox("a_given_period_is_kept", given_period)
        .sandbox("a_thousand_routes", thousand)
        .sandbox("without_a_cluster_cidr_the_daemon_ends", no_cluster_cidr)
        .sandbox("routes_can_be_switched_off", switched_off)
}

/// A cloud with routes and nothing else.
fn cloud() -> FakeCloud {
    FakeCloud::new().without_instances().with_routes()
}

fn node(number: usize, cidrs: &[String]) -> Node {
    let mut node = kubelet::node(&format!("n{number}"), &uuid(number));
    let spec = node.spec.get_or_insert_default();
    spec.pod_cidr = cidrs.first().cloned();
    spec.pod_cidrs = Some(cidrs.to_vec());
    node
}

fn cidr(number: usize) -> String {
    format!("10.{}.{}.0/24", 64 + number / 250, number % 250)
}

fn ipv6_cidr(number: usize) -> String {
    format!("fd00:64:0:{number:x}::/64")
}

fn route(target: &str, cidr: &str) -> Route {
    Route { name: cidr.into(), target_node: target.into(), destination_cidr: cidr.into(), ..Route::default() }
}

/// Waits until these are the cloud's routes, as `target CIDR`.
async fn routes_become(cloud: &FakeCloud, expected: &[String]) -> anyhow::Result<()> {
    let mut expected = expected.to_vec();
    expected.sort();
    let shown = || {
        let routes = cloud.routes().into_iter();
        let mut routes: Vec<_> =
            routes.map(|r| format!("{} {}", r.target_node, r.destination_cidr)).collect();
        routes.sort();
        routes
    };
    let outcome =
        eventually(SOON, "the routes are there", || async { Ok((shown() == expected).then_some(())) });
    outcome.await.with_context(|| format!("{:?} instead of {expected:?}", shown()))
}

async fn condition_becomes(api: &Api, number: usize, expected: [&str; 3]) -> anyhow::Result<Node> {
    let is_there = |node: &Node| {
        condition(node, NETWORK_UNAVAILABLE)
            .is_some_and(|(status, reason, message)| [&*status, &*reason, &*message] == expected)
    };
    node_becomes(&api.client, &format!("n{number}"), SOON, expected[1], is_there).await
}

const CREATED: [&str; 3] = ["False", "RouteCreated", "RouteController created a route"];
const NOT_CREATED: [&str; 3] = ["True", "NoRouteCreated", "RouteController failed to create a route"];

async fn come_and_go(api: &Api) -> anyhow::Result<()> {
    let cloud = cloud();
    for (target, cidr) in [("gone", "192.168.7.0/24"), ("gone", "10.64.99.0/24"), ("n1", "10.200.0.0/24")] {
        cloud.put_route(CLUSTER, route(target, cidr));
    }
    cloud.put_route("another", route("gone", "10.64.98.0/24"));
    let foreign = ["gone 10.64.98.0/24".to_owned()];
    kubelet::register(&api.client, &node(1, &[cidr(1), ipv6_cidr(1)])).await?;
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[CLUSTER_CIDR])?;
    let of_n1 = [format!("n1 {}", cidr(1)), format!("n1 {}", ipv6_cidr(1))];
    routes_become(&cloud, &[&foreign[..], &of_n1].concat()).await?;
    let written = condition_becomes(api, 1, CREATED).await?;
    let conditions = written.status.and_then(|status| status.conditions).unwrap_or_default();
    let written = conditions.iter().find(|condition| condition.type_ == NETWORK_UNAVAILABLE).context("it")?;
    ensure!(written.last_transition_time.is_some() && written.last_heartbeat_time.is_some(), "{written:?}");
    ensure!(conditions.len() == 5, "the kubelet's conditions stay: {conditions:?}");

    // One that comes later, and one without a CIDR, about which nothing is said.
    kubelet::register(&api.client, &node(2, &[cidr(2)])).await?;
    kubelet::register(&api.client, &node(3, &[])).await?;
    condition_becomes(api, 2, CREATED).await?;
    let of_n2 = [format!("n2 {}", cidr(2))];
    routes_become(&cloud, &[&foreign[..], &of_n1, &of_n2].concat()).await?;

    delete_node(&api.client, "n1").await?;
    routes_become(&cloud, &[&foreign[..], &of_n2].concat()).await?;
    ensure!(condition_status(&nodes(&api.client).get("n3").await?, NETWORK_UNAVAILABLE).is_none());
    // It gets its CIDR.
    merge(&api.client, "n3", json!({"spec": {"podCIDR": cidr(3), "podCIDRs": [cidr(3)]}})).await?;
    condition_becomes(api, 3, CREATED).await?;
    let writes = api.requests.writes();
    ensure!(writes == [("PATCH nodes/status".to_owned(), 3)].into(), "{writes:?}");
    let text = daemon.metrics.text();
    ensure!(
        text.contains("route_controller_route_sync_total{outcome=\"changed\",trigger=\"node_change\"}"),
        "{text}"
    );
    ensure!(
        text.contains("running_managed_controllers{manager=\"cloud-controller-manager\",name=\"route\"} 1")
    );
    daemon.stop().await?;
    api.nothing_was_refused()
}

/// Two Nodes of kubelets that were taken over: one wants the traffic to another network, one that of another Node's pods.
async fn hostile(api: &Api) -> anyhow::Result<()> {
    let cloud = cloud();
    kubelet::register(&api.client, &node(1, &[cidr(1)])).await?;
    // What the daemon of an earlier version made.
    cloud.put_route(CLUSTER, route("n2", "1.0.0.0/8"));
    kubelet::register(&api.client, &node(2, &["1.0.0.0/8".to_owned(), ipv6_cidr(2)])).await?;
    kubelet::register(&api.client, &node(3, &["10.64.0.0/12".to_owned()])).await?;
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[CLUSTER_CIDR])?;
    let outside = "RouteController created no route: the pod CIDR 1.0.0.0/8 is not in --cluster-cidr";
    condition_becomes(api, 2, ["True", "NoRouteCreated", outside]).await?;
    let whole = "RouteController created no route: the pod CIDR 10.64.0.0/12 is a whole range of --cluster-cidr, in which other \
                 nodes have their pods";
    condition_becomes(api, 3, ["True", "NoRouteCreated", whole]).await?;
    condition_becomes(api, 1, CREATED).await?;
    routes_become(&cloud, &[format!("n1 {}", cidr(1)), format!("n2 {}", ipv6_cidr(2))]).await?;
    for name in ["n2", "n3"] {
        let event = event(&api.client, "default", name, "FailedToCreateRoute").await?;
        ensure!(event.message.is_some_and(|message| message.contains("--cluster-cidr")));
    }
    daemon.stop().await?;
    api.nothing_was_refused()
}

async fn fails_at_first(api: &Api) -> anyhow::Result<()> {
    let cloud = cloud();
    cloud.fail(Operation::CreateRoute, unavailable("the route table is full"));
    kubelet::register(&api.client, &node(1, &[cidr(1)])).await?;
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[CLUSTER_CIDR])?;
    condition_becomes(api, 1, NOT_CREATED).await?;
    let event = event(&api.client, "default", "n1", "FailedToCreateRoute").await?;
    let uid = nodes(&api.client).get("n1").await?.metadata.uid.context("a UID")?;
    let message = event.message.unwrap_or_default();
    let begin = format!("Could not create route {uid} {} for node n1 after ", cidr(1));
    ensure!(message.starts_with(&begin) && message.ends_with(": the route table is full"), "{message}");
    ensure!(event.type_.as_deref() == Some("Warning"));
    let component = event.source.and_then(|source| source.component);
    ensure!(component.as_deref() == Some("route_controller"), "{component:?}");
    cloud.mend();
    condition_becomes(api, 1, CREATED).await?;
    ensure!(cloud.routes().len() == 1);
    daemon.stop().await
}

async fn restart(api: &Api) -> anyhow::Result<()> {
    let cloud = cloud();
    for number in 1..4 {
        kubelet::register(&api.client, &node(number, &[cidr(number)])).await?;
    }
    // It is killed while it makes the routes.
    cloud.set_latency(Duration::from_millis(300));
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[CLUSTER_CIDR])?;
    eventually(SOON, "a route is being made", || async {
        Ok((cloud.count(Operation::CreateRoute) > 0).then_some(()))
    })
    .await?;
    daemon.crash().await;
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[CLUSTER_CIDR])?;
    for number in 1..4 {
        condition_becomes(api, number, CREATED).await?;
    }
    daemon.stop().await?;
    ensure!(cloud.routes().len() == 3, "{:?}", cloud.routes());

    // A third one has nothing to do.
    cloud.forget_calls();
    api.requests.reset();
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[CLUSTER_CIDR])?;
    eventually(SOON, "the routes are listed", || async {
        Ok((cloud.count(Operation::ListRoutes) > 0).then_some(()))
    })
    .await?;
    sleep(Duration::from_secs(5)).await;
    daemon.stop().await?;
    let calls: Vec<Operation> = cloud.calls().into_iter().map(|call| call.operation).collect();
    let of_routes = calls.iter().filter(|call| !matches!(call, Operation::Start | Operation::Ended));
    ensure!(of_routes.copied().collect::<Vec<_>>() == [Operation::ListRoutes], "{calls:?}");
    ensure!(api.requests.writes().is_empty(), "{:?}", api.requests.writes());
    Ok(())
}

async fn new_addresses(api: &Api) -> anyhow::Result<()> {
    let cloud = cloud();
    let stored = Route { node_addresses_enabled: true, ..route("n1", &cidr(1)) };
    cloud.put_route(CLUSTER, stored);
    kubelet::register(&api.client, &node(1, &[cidr(1)])).await?;
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[CLUSTER_CIDR])?;
    // The Node has a hostname, and the route no address.
    eventually(SOON, "the route is made anew", || async {
        Ok(cloud.routes().iter().any(|route| route.target_node_addresses.len() == 1).then_some(()))
    })
    .await?;
    condition_becomes(api, 1, CREATED).await?;
    let calls: Vec<Operation> = cloud.calls().into_iter().map(|call| call.operation).collect();
    let ends = [Operation::ListRoutes, Operation::DeleteRoute, Operation::CreateRoute];
    ensure!(calls.ends_with(&ends), "{calls:?}");
    daemon.stop().await
}

async fn given_period(api: &Api) -> anyhow::Result<()> {
    const LISTS: usize = 8;
    let cloud = cloud();
    kubelet::register(&api.client, &node(1, &[cidr(1)])).await?;
    let arguments = [CLUSTER_CIDR, "--route-reconciliation-period=1s"];
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &arguments)?;
    condition_becomes(api, 1, CREATED).await?;
    let theirs = json!({"status": {"conditions": [
        {"type": NETWORK_UNAVAILABLE, "status": "False", "reason": "CalicoIsUp", "message": "Calico is running on this node"},
    ]}});
    nodes(&api.client).patch_status("n1", &PatchParams::default(), &Patch::Strategic(theirs)).await?;
    condition_becomes(api, 1, CREATED).await?;
    cloud.forget_calls();
    let began = Instant::now();
    let listed = || async { Ok((cloud.count(Operation::ListRoutes) >= LISTS).then_some(())) };
    eventually(Duration::from_secs(10), "routes are listed each second", listed).await?;
    ensure!(began.elapsed() >= Duration::from_secs(6), "{LISTS} lists in {:?}", began.elapsed());
    daemon.stop().await
}

async fn no_cluster_cidr(api: &Api) -> anyhow::Result<()> {
    for (flag, words) in [
        ("--cluster-cidr=", "--cluster-cidr is empty"),
        ("--cluster-cidr=10.0.0.0/8,10.1.0.0/16", "--cluster-cidr has two ranges of the same family"),
    ] {
        let daemon = InProcess::start(&api.daemon_client, cloud().provider(), &[flag])?;
        let error = daemon.ended().await.err().context("it goes on")?;
        ensure!(format!("{error:#}").contains(words), "{error:#}");
    }
    // Nobody needs it where there are no routes.
    let daemon = InProcess::start(&api.daemon_client, FakeCloud::new().provider(), &[])?;
    sleep(Duration::from_secs(2)).await;
    daemon.stop().await
}

async fn switched_off(api: &Api) -> anyhow::Result<()> {
    kubelet::register(&api.client, &node(1, &[cidr(1)])).await?;
    for flag in
        ["--configure-cloud-routes=false", "--controllers=*,-route", "--controllers=*,-node-route-controller"]
    {
        let cloud = cloud();
        let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[flag])?;
        sleep(Duration::from_secs(2)).await;
        daemon.stop().await?;
        ensure!(cloud.count(Operation::ListRoutes) == 0, "{flag}");
    }
    ensure!(condition_status(&nodes(&api.client).get("n1").await?, NETWORK_UNAVAILABLE).is_none());
    Ok(())
}

async fn thousand(api: &Api) -> anyhow::Result<()> {
    const NODES: usize = 1000;
    let cloud = cloud();
    let post = |numbers: std::ops::Range<usize>| {
        stream::iter(numbers).for_each_concurrent(8, |number| async move {
            kubelet::register(&api.client, &node(number, &[cidr(number)])).await.expect("posted");
        })
    };
    post(0..NODES).await;
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[CLUSTER_CIDR])?;
    let all = nodes(&api.client);
    eventually(Duration::from_secs(120), "all conditions are written", || async {
        let list = all.list(&ListParams::default()).await?;
        sleep(Duration::from_millis(500)).await;
        let is_written =
            |node: &Node| condition_status(node, NETWORK_UNAVAILABLE).as_deref() == Some("False");
        Ok((list.items.len() == NODES && list.items.iter().all(is_written)).then_some(()))
    })
    .await?;
    sleep(Duration::from_secs(3)).await;
    let made = [Operation::ListRoutes, Operation::CreateRoute, Operation::DeleteRoute];
    let made = made.map(|operation| cloud.count(operation));
    ensure!(made == [1, NODES, 0], "{made:?}");
    let writes = api.requests.writes();
    ensure!(writes == [("PATCH nodes/status".to_owned(), NODES)].into(), "{writes:?}");
    daemon.stop().await
}
