//! The watch shows less than the API server has.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_status_that_is_wiped_while_the_watch_is_away_comes_back() {
    let working = Working::start().await;
    working.fake.set_latency(Duration::from_secs(10));
    working.create("web").await;
    // The finalizer is shown. The status is written and wiped without a watch.
    tokio::time::sleep(SOON).await;
    working.lose_watch();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(working.addresses("web").await, ["198.18.0.1"]);
    working.patch_status("web", json!({"status": {"loadBalancer": null}})).await;
    working.sandbox.faults().expire();
    working.sandbox.faults().clear();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(working.addresses("web").await, ["198.18.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn the_cloud_is_told_what_the_api_server_said_last() {
    let working = Working::start().await;
    working.refuse_writes(1);
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.lose_watch();
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    assert_eq!(working.calls_after(Duration::from_secs(5)).await, [Operation::EnsureLoadBalancer]);
    let told = working.fake.load_balancers().into_values().map(|balancer| balancer.service.annotations);
    assert_eq!(told.collect::<Vec<_>>(), [[("a".to_owned(), "b".to_owned())].into()]);
    working.sandbox.faults().clear();
    assert_eq!(working.calls_after(Duration::from_secs(60)).await, [], "it was told already");
}

impl Working {
    async fn finalizers(&self, name: &str) -> Vec<String> {
        self.get(name).await.finalizers().to_vec()
    }

    async fn set_class(&self, name: &str) {
        // A class can be set together with the type only.
        self.patch(name, json!({"spec": {"type": "ClusterIP"}})).await;
        let of_class = json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/other"}});
        self.patch(name, of_class).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_got_a_class_meanwhile_does_not_get_the_finalizer() {
    let working = Working::start().await;
    working.refuse_writes(1);
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    // The watch shows a Service without a class, of which the next try is due soon.
    working.lose_watch();
    working.set_class("web").await;
    working
        .patch_status("web", json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}}))
        .await;
    assert_eq!(working.calls_after(Duration::from_secs(30)).await, []);
    assert_eq!(working.finalizers("web").await, ["example.com/other"]);
    working.sandbox.faults().clear();
    assert_eq!(working.calls_after(Duration::from_secs(60)).await, []);
    assert_eq!(working.finalizers("web").await, ["example.com/other"]);
    assert_eq!(working.addresses("web").await, ["192.0.2.9"]);
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_comes_behind_those_of_others() {
    let working = Working::start().await;
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    assert_eq!(working.finalizers("web").await, ["example.com/other", LOAD_BALANCER_CLEANUP_FINALIZER]);
    working.patch("web", json!({"metadata": {"finalizers": ["a.example.com/1", "b.example.com/2"]}})).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let expected = ["a.example.com/1", "b.example.com/2", LOAD_BALANCER_CLEANUP_FINALIZER];
    assert_eq!(working.finalizers("web").await, expected);
}
