use super::*;

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

impl Working {
    /// The back ends of the only load balancer.
    fn back_ends(&self) -> Vec<String> {
        self.fake.load_balancers().into_values().next().map(|balancer| balancer.nodes).unwrap_or_default()
    }
}

#[tokio::test(start_paused = true)]
async fn changes_of_the_set_are_told() {
    let working = Working::start().await;
    working.create("web").await;
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
    assert_eq!(working.back_ends(), ["n1", "n2"]);
    let taints = |taints: Value| json!({"spec": {"taints": taints}});
    for (patch, back_ends) in [
        (json!({"metadata": {"labels": {EXCLUDED: "true"}}}), &["n2"][..]),
        (json!({"metadata": {"labels": {EXCLUDED: "false"}}}), &["n1", "n2"]),
        (taints(json!([{"key": TO_BE_DELETED_TAINT, "effect": "NoSchedule"}])), &["n2"]),
        (taints(json!([])), &["n1", "n2"]),
        (json!({"spec": {"providerID": "fake:///1"}}), &["n1", "n2"]),
        (json!({"metadata": {"finalizers": ["example.com/slow"]}}), &[]),
    ] {
        working.patch_node("n1", patch.clone()).await;
        let expected = if back_ends.is_empty() { vec![] } else { vec![Operation::UpdateLoadBalancer] };
        assert_eq!(working.calls_after(SOON).await, expected, "{patch}");
        if !back_ends.is_empty() {
            assert_eq!(working.back_ends(), back_ends, "{patch}");
        }
    }
    // With a deletion timestamp it leaves at once, and not only when it is gone.
    working.nodes().delete("n1", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(working.calls_after(SOON).await, [Operation::UpdateLoadBalancer]);
    assert_eq!(working.back_ends(), ["n2"]);
    working.patch_node("n1", json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(working.calls_after(SOON).await, []);
    kubelet::register(&working.sandbox.client(), &kubelet::node("n3", "n3")).await.expect("registered");
    assert_eq!(working.calls_after(SOON).await, [Operation::UpdateLoadBalancer]);
    assert_eq!(working.metrics.load_balancer_syncs.get(), 7);
    assert_eq!(working.metrics.node_sync_errors.get(), 0);
    assert_eq!(working.metrics.node_sync_latency.get_sample_count(), 7);
    assert_eq!(working.metrics.update_latency.get_sample_count(), 7);
    let events = working.events().await;
    assert_eq!(events.last().map(String::as_str), Some("UpdatedLoadBalancer"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn without_nodes_a_warning() {
    let working = Working::on(Sandbox::new(), FakeCloud::new().with_load_balancers(), options());
    working.create("web").await;
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
    let expected = ["EnsuringLoadBalancer", "UnAvailableLoadBalancer", "EnsuredLoadBalancer"];
    assert_eq!(working.events().await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_failed_update_is_an_ensure() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    let quota = || Error::new(ErrorKind::Unavailable, "quota");
    working.fake.fail_next(Operation::UpdateLoadBalancer, quota());
    working.patch_node("n1", json!({"metadata": {"labels": {EXCLUDED: ""}}})).await;
    let calls = working.calls_after(SOON).await;
    let (update, get) = (Operation::UpdateLoadBalancer, Operation::GetLoadBalancer);
    assert_eq!(calls, [update, get, Operation::EnsureLoadBalancer]);
    assert_eq!(working.metrics.node_sync_errors.get(), 1);
    assert!(working.events().await.contains(&"UpdateLoadBalancerFailed".to_owned()));
    // The cloud says when.
    let later = quota().with_retry_after(Duration::from_secs(40)).wrap("busy");
    working.fake.fail_next(update, later);
    working.patch_node("n1", json!({"metadata": {"labels": {EXCLUDED: null}}})).await;
    assert_eq!(working.calls_after(Duration::from_secs(39)).await, [update, get]);
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
    // Another component does it.
    working.fake.fail_next(update, Error::implemented_elsewhere("x").wrap("y"));
    working.patch_node("n1", json!({"metadata": {"labels": {EXCLUDED: ""}}})).await;
    assert_eq!(working.calls_after(SOON).await, [update]);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_is_not_there_is_made() {
    let working = Working::start().await;
    let service = working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    working.fake.lose_load_balancer(&default_load_balancer_name(&service.uid().expect("a UID")));
    working.patch_node("n1", json!({"metadata": {"labels": {EXCLUDED: ""}}})).await;
    let ensure = Operation::EnsureLoadBalancer;
    // Once more since it has another address.
    let expected = [Operation::UpdateLoadBalancer, Operation::GetLoadBalancer, ensure, ensure];
    assert_eq!(working.calls_after(SOON).await, expected);
    assert!(!working.events().await.contains(&"UpdateLoadBalancerFailed".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_will_not_be_told_is_not_waited_for() {
    for fault in [Error::unsupported("SCTP"), Error::implemented_elsewhere("x")] {
        let working = Working::start().await;
        working.fake.fail_next(Operation::EnsureLoadBalancer, fault);
        working.create("never").await;
        tokio::time::sleep(SOON).await;
        working.create("web").await;
        tokio::time::sleep(SOON).await;
        working.fake.forget_calls();
        working.patch_node("n1", json!({"metadata": {"labels": {EXCLUDED: ""}}})).await;
        assert_eq!(working.calls_after(SOON).await, [Operation::UpdateLoadBalancer]);
        assert_eq!(working.metrics.node_sync_latency.get_sample_count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn who_chooses_the_nodes_elsewhere_is_asked_once_for_each_set_and_gets_no_event() {
    let working = Working::start().await;
    for name in ["a", "b", "c"] {
        working.create(name).await;
    }
    tokio::time::sleep(SOON).await;
    let elsewhere = Error::implemented_elsewhere("every node forwards").wrap("pools");
    working.fake.fail(Operation::UpdateLoadBalancer, Fault::from(elsewhere));
    let before = working.events().await;
    working.fake.forget_calls();
    for value in [json!(""), json!(null)] {
        working.patch_node("n1", json!({"metadata": {"labels": {EXCLUDED: value}}})).await;
        assert_eq!(working.calls_after(SOON * 10).await, [Operation::UpdateLoadBalancer; 3]);
    }
    assert_eq!(working.events().await, before);
    // Upstream counts these too.
    assert_eq!(working.metrics.load_balancer_syncs.get(), 6);
    assert_eq!(working.metrics.node_sync_errors.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_leaves_while_the_load_balancer_cannot_be_ensured() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.fail(Operation::EnsureLoadBalancer, Fault::from(quota()));
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    tokio::time::sleep(SOON).await;
    working.fake.fail_next(Operation::UpdateLoadBalancer, quota());
    working.patch_node("n1", json!({"metadata": {"labels": {EXCLUDED: ""}}})).await;
    tokio::time::sleep(SOON).await;
    assert_eq!(working.back_ends(), ["n1", "n2"], "the update failed");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(working.back_ends(), ["n2"]);
    // Nothing is told again that is known.
    working.fake.forget_calls();
    let calls = working.calls_after(Duration::from_secs(600)).await;
    assert!(!calls.contains(&Operation::UpdateLoadBalancer), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_leaves_with_a_change_that_cannot_be_ensured() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    // The first call hangs, so that the Node leaves before the next one begins, which fails.
    working.fake.fail(Operation::EnsureLoadBalancer, Fault::from(quota()));
    working.fake.set_latency(Duration::from_secs(1));
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    working.patch("web", json!({"metadata": {"annotations": {"a": "c"}}})).await;
    working.patch_node("n1", json!({"metadata": {"labels": {EXCLUDED: ""}}})).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(working.back_ends(), ["n2"]);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_fails_all_the_time_is_not_called_all_the_time() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    for operation in [Operation::EnsureLoadBalancer, Operation::UpdateLoadBalancer] {
        working.fake.fail(operation, Fault::from(quota()));
    }
    working.fake.forget_calls();
    working.patch_node("n1", json!({"metadata": {"labels": {EXCLUDED: ""}}})).await;
    let calls = working.calls_after(Duration::from_secs(3600)).await;
    let count = |operation| calls.iter().filter(|call| **call == operation).count();
    // Waits of 5 s to 5 minutes.
    for operation in [Operation::EnsureLoadBalancer, Operation::UpdateLoadBalancer] {
        assert!((15..22).contains(&count(operation)), "{operation:?}: {}", count(operation));
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_that_fails_ensures_at_once_also_while_an_ensure_waits() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    let (ensure, update, get) =
        (Operation::EnsureLoadBalancer, Operation::UpdateLoadBalancer, Operation::GetLoadBalancer);
    working.fake.fail_next(ensure, quota());
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    working.fake.fail_next(update, quota());
    working.patch_node("n1", json!({"metadata": {"labels": {EXCLUDED: ""}}})).await;
    assert_eq!(working.calls_after(SOON).await, [update, get, ensure]);
    assert_eq!(working.back_ends(), ["n2"]);
    // But not before the time that the cloud asked for.
    working.fake.fail_next(ensure, quota().with_retry_after(Duration::from_secs(40)));
    working.patch("web", json!({"metadata": {"annotations": {"a": "c"}}})).await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    working.fake.fail_next(update, quota());
    working.patch_node("n1", json!({"metadata": {"labels": {EXCLUDED: null}}})).await;
    assert_eq!(working.calls_after(SOON).await, [update, get]);
}
