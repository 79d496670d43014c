//! The order of what the cloud is told and what the status shows, when an address changes.

use super::*;

impl Working {
    /// Whether the cloud was called with a status that has this address, in the last call.
    fn last_told(&self) -> Vec<String> {
        let balancer = self.fake.load_balancers().into_values().next();
        let ingress = balancer.map(|balancer| balancer.service.status.ingress).unwrap_or_default();
        ingress.into_iter().filter_map(|ingress| ingress.ip).collect()
    }

    /// A Service whose load balancer gets another address with the next call.
    async fn with_a_move_ahead(&self) {
        let service = self.create("web").await;
        tokio::time::sleep(SOON).await;
        self.fake.lose_load_balancer(&default_load_balancer_name(&service.uid().expect("a UID")));
        self.fake.forget_calls();
    }
}

#[tokio::test(start_paused = true)]
async fn the_cloud_is_told_when_the_status_lacks_an_address_of_before() {
    let working = Working::start().await;
    working.with_a_move_ahead().await;
    assert!(working.fake.load_balancers().is_empty());
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer; 2]);
    assert_eq!(working.addresses("web").await, ["198.18.0.2"]);
    assert_eq!(working.last_told(), ["198.18.0.2"]);
    let events = working.events().await;
    let ensured = events.iter().filter(|event| *event == "EnsuredLoadBalancer").count();
    assert!(ensured <= 2, "one more for both calls: {events:?}");
    assert_eq!(working.calls_after(PERIOD / 3).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_with_another_address_each_time_is_asked_again_after_a_wait() {
    let working = Working::start().await;
    let service = working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    working.fake.set_latency(Duration::from_millis(100));
    let (fake, name) = (working.fake.clone(), default_load_balancer_name(&service.uid().expect("a UID")));
    let moving = tokio::spawn(async move {
        loop {
            fake.lose_load_balancer(&name);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    assert_eq!(working.calls_after(Duration::from_secs(4)).await, [Operation::EnsureLoadBalancer; 2]);
    assert_eq!(working.calls_after(Duration::from_secs(4)).await, [Operation::EnsureLoadBalancer; 2]);
    moving.abort();
    // The first call makes it once more, and the second one says that the status has that address.
    assert_eq!(working.calls_after(Duration::from_secs(15)).await, [Operation::EnsureLoadBalancer; 2]);
    assert_eq!(working.last_told(), working.addresses("web").await);
    assert_eq!(working.calls_after(PERIOD / 3).await, []);
    assert!(!working.events().await.contains(&"SyncLoadBalancerFailed".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn as_long_as_the_status_is_not_written_nothing_is_given_away() {
    let working = Working::start().await;
    working.with_a_move_ahead().await;
    working.refuse_writes(1);
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
    assert_eq!(
        (working.addresses("web").await, working.last_told()),
        (vec!["198.18.0.1".into()], vec!["198.18.0.1".into()])
    );
    assert_eq!(working.calls_after(Duration::from_secs(5)).await, [Operation::EnsureLoadBalancer; 2]);
    assert_eq!(
        (working.addresses("web").await, working.last_told()),
        (vec!["198.18.0.2".into()], vec!["198.18.0.2".into()])
    );
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_tells_what_the_one_before_did_not() {
    let working = Working::start().await;
    working.with_a_move_ahead().await;
    // The status is written, and nothing comes after it.
    working.fake.set_latency(Duration::from_secs(10));
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    working.run.abort();
    working.fake.set_latency(Duration::ZERO);
    assert_eq!(
        (working.addresses("web").await, working.last_told()),
        (vec!["198.18.0.2".into()], vec!["198.18.0.1".into()])
    );
    let next = Working::on(working.sandbox.clone(), working.fake.clone(), options());
    tokio::time::sleep(SOON).await;
    assert_eq!(next.last_told(), ["198.18.0.2"]);
}
