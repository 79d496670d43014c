use super::*;

#[tokio::test(start_paused = true)]
async fn a_load_balancer_is_made_and_then_left_alone() {
    let working = Working::start().await;
    working.create("web").await;
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
    assert_eq!(working.writes(), 2, "finalizer and status");
    assert!(working.has_finalizer("web").await);
    assert_eq!(working.get("web").await.finalizers().len(), 2);
    assert_eq!(working.addresses("web").await, ["198.18.0.1"]);
    assert_eq!(working.events().await, ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]);
    // Labels, a selector and heartbeats of Nodes are of no interest.
    working.patch("web", json!({"metadata": {"labels": {"a": "b"}}, "spec": {"selector": {"a": "b"}}})).await;
    working.patch_node("n1", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    assert_eq!(working.calls_after(PERIOD / 3).await, []);
    assert_eq!(working.writes(), 0);
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
    assert_eq!(working.writes(), 0, "the status is the same");
}

#[tokio::test(start_paused = true)]
async fn of_other_services_nothing_is_done() {
    let working = Working::start().await;
    for spec in [
        json!({"type": "ClusterIP", "ports": [{"port": 80}]}),
        json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/lb", "ports": [{"port": 80}]}),
    ] {
        let service = serde_json::from_value(json!({"metadata": {"generateName": "x"}, "spec": spec}));
        let params = PostParams::default();
        working.services().create(&params, &service.expect("a Service")).await.expect("created");
    }
    assert_eq!(working.calls_after(PERIOD).await, []);
    assert_eq!(working.writes(), 0);
    assert!(working.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_wiped_comes_back_without_the_cloud() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    for _ in 0..2 {
        working.sandbox.reset_requests();
        working.patch_status("web", json!({"status": {"loadBalancer": null}})).await;
        working.patch("web", json!({"metadata": {"finalizers": ["example.com/other"]}})).await;
        // A second time it is brought back after a while.
        tokio::time::sleep(Duration::from_secs(16)).await;
        assert_eq!(working.addresses("web").await, ["198.18.0.1"]);
        assert!(working.has_finalizer("web").await);
        let own_writes = working.writes() - 1;
        assert!((1..=2).contains(&own_writes), "{own_writes}");
    }
    assert_eq!(working.fake.count(Operation::EnsureLoadBalancer), 0);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_vanished_is_made_again() {
    let working = Working::start().await;
    let service = working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    let calls = working.calls_after(PERIOD).await;
    assert!((1..=2).contains(&calls.len()) && calls.iter().all(|call| *call == Operation::GetLoadBalancer));
    working.fake.lose_load_balancer(&default_load_balancer_name(&service.uid().expect("a UID")));
    let calls = working.calls_after(PERIOD).await;
    assert!(calls.starts_with(&[Operation::GetLoadBalancer, Operation::EnsureLoadBalancer]), "{calls:?}");
    assert_eq!(working.addresses("web").await, ["198.18.0.2"]);
}

#[tokio::test(start_paused = true)]
async fn another_provider_is_told_of_everything() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    let other = FakeCloud::new().with_load_balancers();
    working.call(other.provider());
    tokio::time::sleep(SOON).await;
    assert_eq!(other.load_balancers().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn services_are_worked_on_in_parallel_and_one_never_twice_at_once() {
    let working = Working::start().await;
    working.fake.set_latency(Duration::from_secs(10));
    for number in 0..100 {
        working.create(&format!("web-{number}")).await;
    }
    tokio::time::sleep(SOON).await;
    assert_eq!(working.fake.count(Operation::EnsureLoadBalancer), 64);
    // It changes while it is worked on: it has its turn afterwards, once.
    working.patch("web-0", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    working.patch("web-0", json!({"metadata": {"annotations": {"a": "c"}}})).await;
    working
        .patch_node(
            "n1",
            json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}}),
        )
        .await;
    tokio::time::sleep(SOON).await;
    assert_eq!(working.fake.count(Operation::EnsureLoadBalancer), 64);
    assert_eq!(working.fake.count(Operation::UpdateLoadBalancer), 0);
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(working.fake.count(Operation::EnsureLoadBalancer), 101);
    assert!(working.fake.load_balancers().values().all(|balancer| balancer.nodes == ["n2"]));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_does_not_change_the_cloud() {
    let sandbox = Sandbox::new();
    let fake = FakeCloud::new().with_load_balancers();
    let working = Working::on(sandbox, fake, ServiceControllerOptions { dry_run: true, ..options() });
    working.create("web").await;
    kubelet::register(&working.sandbox.client(), &kubelet::node("n1", "n1")).await.expect("registered");
    assert_eq!(working.calls_after(PERIOD).await, []);
    working.services().delete("web", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(working.calls_after(PERIOD).await, [Operation::GetLoadBalancer]);
}

#[tokio::test(start_paused = true)]
async fn the_api_server_confirms_the_finalizer_before_the_first_call() {
    let working = Working::start().await;
    let refused = Matcher::any().verb("watch").resource("services");
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    // The watch tells nothing any more, and another leader does what the Service asks for meanwhile.
    working.sandbox.faults().inject(sandbox::Fault::new(refused, sandbox::Action::ServiceUnavailable));
    working.sandbox.faults().drop_watches();
    tokio::time::sleep(SOON).await;
    let uid = working.get("web").await.uid().expect("a UID");
    working.patch("web", json!({"spec": {"type": "ClusterIP"}})).await;
    working.patch("web", json!({"metadata": {"finalizers": null}})).await;
    working.fake.lose_load_balancer(&default_load_balancer_name(&uid));
    working.fake.forget_calls();
    kubelet::register(&working.sandbox.client(), &kubelet::node("n3", "n3")).await.expect("registered");
    let expected = [Operation::UpdateLoadBalancer, Operation::GetLoadBalancer];
    assert_eq!(working.calls_after(Duration::from_secs(60)).await, expected);
    assert!(working.fake.load_balancers().is_empty());
    working.sandbox.faults().clear();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!working.has_finalizer("web").await);
}

#[tokio::test(start_paused = true)]
async fn of_a_class_with_our_finalizer_only_what_is_ours_is_deleted() {
    let sandbox = Sandbox::new();
    let working = Working::on(sandbox, FakeCloud::new().with_load_balancers(), options());
    let service = serde_json::from_value(json!({
        "metadata": {"name": "web", "finalizers": [LOAD_BALANCER_CLEANUP_FINALIZER]},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/lb", "ports": [{"port": 80}]},
    }));
    let params = PostParams::default();
    working.services().create(&params, &service.expect("a Service")).await.expect("created");
    assert_eq!(working.calls_after(PERIOD).await, [Operation::GetLoadBalancer]);
    assert!(working.has_finalizer("web").await && working.events().await.is_empty());
}
