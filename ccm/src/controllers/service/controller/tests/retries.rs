use super::*;

#[tokio::test(start_paused = true)]
async fn upstreams_backoff() {
    let working = Working::start().await;
    working.fake.fail(Operation::EnsureLoadBalancer, Fault::from(quota()));
    working.create("web").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    for (wait, count) in [(0, 1), (4, 1), (2, 2), (8, 2), (3, 3), (17, 3), (4, 4)] {
        tokio::time::sleep(Duration::from_secs(wait)).await;
        assert_eq!(working.fake.count(Operation::EnsureLoadBalancer), count, "{wait}");
    }
    // A change does not wait.
    working.patch("web", json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}})).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(working.fake.count(Operation::EnsureLoadBalancer), 5);
    working.fake.mend();
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(working.addresses("web").await.len(), 1);
    assert!(working.events().await.contains(&"SyncLoadBalancerFailed".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_time_that_the_cloud_asks_for_is_kept_to() {
    let working = Working::start().await;
    let busy = || Error::in_progress(Duration::from_secs(77), "busy").wrap("ensure").wrap("sync");
    for _ in 0..3 {
        working.fake.fail_next(Operation::EnsureLoadBalancer, busy());
    }
    working.fake.fail_next(Operation::EnsureLoadBalancer, quota());
    working.create("web").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    for count in 2..=4 {
        tokio::time::sleep(Duration::from_secs(75)).await;
        assert_eq!(working.fake.count(Operation::EnsureLoadBalancer), count - 1);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(working.fake.count(Operation::EnsureLoadBalancer), count);
    }
    // None of them counted as a failure, so the first wait is the shortest.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(working.fake.count(Operation::EnsureLoadBalancer), 5);
}

#[tokio::test(start_paused = true)]
async fn what_the_cloud_cannot_do_is_said_once() {
    let working = Working::start().await;
    working.fake.fail(Operation::EnsureLoadBalancer, Fault::from(Error::unsupported("SCTP").wrap("ensure")));
    working.create("web").await;
    assert_eq!(working.calls_after(PERIOD).await, [Operation::EnsureLoadBalancer]);
    assert_eq!(working.events().await, ["EnsuringLoadBalancer", "SyncLoadBalancerFailed"]);
    working.fake.mend();
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
}

#[tokio::test(start_paused = true)]
async fn what_another_component_does_is_left_to_it() {
    let working = Working::start().await;
    let elsewhere = || Fault::from(Error::implemented_elsewhere("kube-vip").wrap("ensure").wrap("sync"));
    for operation in
        [Operation::EnsureLoadBalancer, Operation::DeleteLoadBalancer, Operation::GetLoadBalancer]
    {
        working.fake.fail(operation, elsewhere());
    }
    working.create("web").await;
    assert_eq!(working.calls_after(PERIOD).await, [Operation::EnsureLoadBalancer]);
    assert!(working.has_finalizer("web").await && working.addresses("web").await.is_empty());
    assert_eq!(working.events().await, ["EnsuringLoadBalancer"]);
    working.services().delete("web", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(working.calls_after(SOON).await, [Operation::GetLoadBalancer]);
    assert!(!working.has_finalizer("web").await);
}

#[tokio::test(start_paused = true)]
async fn writes_that_fail_are_tried_again() {
    let working = Working::start().await;
    let patches = || Matcher::any().verb("patch").resource("services").subresource("status");
    let refused = sandbox::Fault::new(patches(), sandbox::Action::InternalError);
    working.sandbox.faults().inject(refused.times(1));
    working.create("web").await;
    assert_eq!(working.calls_after(SOON).await, [], "without the finalizer the cloud is not called");
    assert_eq!(working.calls_after(Duration::from_secs(5)).await, [Operation::EnsureLoadBalancer]);
    // The write of the status.
    let refused = sandbox::Fault::new(patches(), sandbox::Action::Conflict);
    working.patch_status("web", json!({"status": {"loadBalancer": null}})).await;
    working.sandbox.faults().inject(refused.times(1));
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(working.addresses("web").await, ["198.18.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_follows_its_nodes_whatever_its_service_asks_for() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.fail(Operation::EnsureLoadBalancer, Fault::from(Error::unsupported("SCTP")));
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    let excluded = |value: Value| json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": value}}});
    let (update, get) = (Operation::UpdateLoadBalancer, Operation::GetLoadBalancer);
    working.patch_node("n1", excluded(json!(""))).await;
    assert_eq!(working.calls_after(SOON).await, [update]);
    // A failure is tried again, and not as an ensure, which the cloud cannot do.
    working.fake.fail_next(update, quota());
    working.patch_node("n1", excluded(json!(null))).await;
    assert_eq!(working.calls_after(SOON).await, [update, get]);
    assert_eq!(working.calls_after(Duration::from_secs(5)).await, [update]);
}

#[tokio::test(start_paused = true)]
async fn a_node_does_not_hurry_a_load_balancer_that_failed() {
    let working = Working::start().await;
    let (ensure, update, get) =
        (Operation::EnsureLoadBalancer, Operation::UpdateLoadBalancer, Operation::GetLoadBalancer);
    let busy = Error::in_progress(Duration::from_secs(100), "busy");
    working.fake.fail_next(ensure, busy);
    working.create("web").await;
    assert_eq!(working.calls_after(SOON).await, [ensure]);
    // There is none, so it is to be made: when the cloud said.
    kubelet::register(&working.sandbox.client(), &kubelet::node("n3", "n3")).await.expect("registered");
    assert_eq!(working.calls_after(Duration::from_secs(90)).await, [update, get]);
    assert_eq!(working.calls_after(Duration::from_secs(20)).await, [ensure]);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_cannot_tell_is_asked_again_within_bounds() {
    for (asks_for, earliest, latest) in [
        (Duration::ZERO, 1, 6_000),
        // For ever is a day.
        (Duration::MAX, 1, 1),
    ] {
        let working = Working::start().await;
        working.create("web").await;
        tokio::time::sleep(SOON).await;
        working.fake.forget_calls();
        let unknown = Error::new(ErrorKind::Unavailable, "no").with_retry_after(asks_for);
        working.fake.fail(Operation::GetLoadBalancer, Fault::from(unknown));
        tokio::time::sleep(PERIOD).await;
        let count = working.fake.count(Operation::GetLoadBalancer);
        assert!((earliest..=latest).contains(&count), "{asks_for:?}: {count}");
        assert!(!working.run.is_finished());
    }
}

#[tokio::test(start_paused = true)]
async fn a_repair_that_works_ends_a_row_of_failures() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    let wipe = async || working.patch_status("web", json!({"status": {"loadBalancer": null}})).await;
    // After 5 and after 10 more seconds.
    wipe().await;
    working.refuse_writes(2);
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(working.addresses("web").await, ["198.18.0.1"]);
    wipe().await;
    working.refuse_writes(1);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(working.addresses("web").await, ["198.18.0.1"], "the first wait again");
}

#[tokio::test(start_paused = true)]
async fn the_event_says_what_could_not_be_brought_back() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    let is_said = async |what: &str| {
        working.refuse_writes(1);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let messages = working.messages().await;
        assert!(messages.iter().any(|message| message.contains(what)), "{what} in {messages:?}");
        assert!(working.has_finalizer("web").await && !working.addresses("web").await.is_empty());
    };
    working.patch("web", json!({"metadata": {"finalizers": null}})).await;
    is_said("failed to add load balancer cleanup finalizer").await;
    working.patch_status("web", json!({"status": {"loadBalancer": null}})).await;
    is_said("failed to update load balancer status").await;
}
