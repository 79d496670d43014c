//! A provider that changes the Services that it is called for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cloudprovider::{
    LoadBalancer, LoadBalancerService, LoadBalancerStatus, NodeIdentity, Result, ServiceAccess as _,
    ServiceChange, ServiceRef, StartContext, async_trait,
};

use super::*;

const WRITTEN: &str = "example.com/written";

/// Writes an annotation with each call, and leaves the status to somebody else.
#[derive(Debug)]
struct Announced {
    inner: Arc<dyn CloudProvider>,
    access: Arc<ClusterServices>,
    /// Writes another value each time.
    always_writes: bool,
    /// Who announces the addresses writes the status whenever it is empty, as long as there is the annotation.
    announcer: Option<Api<ApiService>>,
    /// Fails after it has written.
    fails: AtomicBool,
    /// Has less than the Services ask for.
    lacks_something: AtomicBool,
    ensured: AtomicUsize,
}

impl Announced {
    async fn annotate(&self, service: &LoadBalancerService, value: Option<String>) -> Result<()> {
        if service.annotations.get(WRITTEN) == value.as_ref() {
            return Ok(());
        }
        let change = ServiceChange {
            annotations: [(WRITTEN.to_owned(), value)].into(),
            labels: [("written".to_owned(), Some("yes".to_owned()))].into(),
            load_balancer_ip: Some(Some("198.18.0.9".to_owned())),
        };
        self.access.change_service(&reference(service), &change).await
    }
}

fn reference(service: &LoadBalancerService) -> ServiceRef {
    let LoadBalancerService { namespace, name, uid, .. } = service.clone();
    ServiceRef { namespace, name, uid }
}

#[async_trait]
impl LoadBalancer for Announced {
    fn name(&self, cluster_name: &str, service: &LoadBalancerService) -> String {
        self.inner.load_balancer().expect("load balancers").name(cluster_name, service)
    }
    async fn get(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
    ) -> Result<Option<LoadBalancerStatus>> {
        self.inner.load_balancer().expect("load balancers").get(cluster_name, service).await
    }
    async fn ensure(
        &self,
        cluster_name: &str,
        service: &LoadBalancerService,
        nodes: &[&NodeIdentity],
    ) -> Result<LoadBalancerStatus> {
        self.inner.load_balancer().expect("load balancers").ensure(cluster_name, service, nodes).await?;
        let count = self.ensured.fetch_add(1, Ordering::Relaxed);
        let value = if self.always_writes { format!("{count}") } else { "once".to_owned() };
        self.annotate(service, Some(value)).await?;
        if self.lacks_something.load(Ordering::Relaxed) {
            self.access.waits_for_more(&reference(service));
        }
        if self.fails.load(Ordering::Relaxed) {
            return Err(quota());
        }
        Err(Error::implemented_elsewhere("somebody announces it"))
    }
    async fn update(&self, _: &str, _: &LoadBalancerService, _: &[&NodeIdentity]) -> Result<()> {
        Err(Error::implemented_elsewhere("no list of nodes"))
    }
    async fn delete(&self, cluster_name: &str, service: &LoadBalancerService) -> Result<()> {
        if let Some(announcer) = &self.announcer {
            announce(announcer, &service.name).await;
        }
        self.annotate(service, None).await?;
        self.inner.load_balancer().expect("load balancers").delete(cluster_name, service).await
    }
}

#[async_trait]
impl CloudProvider for Announced {
    fn name(&self) -> &str {
        self.inner.name()
    }
    async fn start(&self, context: StartContext) -> Result<()> {
        self.inner.start(context).await
    }
    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        Some(self)
    }
}

/// Writes the status if it is empty.
async fn announce(services: &Api<ApiService>, name: &str) {
    let status = services.get(name).await.expect("there").status.and_then(|status| status.load_balancer);
    if status.and_then(|status| status.ingress).is_none_or(|ingress| ingress.is_empty()) {
        let patch = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.18.0.9"}]}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        services.patch_status(name, &params, &patch).await.expect("announced");
    }
}

impl Working {
    /// Calls such a provider from now on.
    fn announced(&self, always_writes: bool) -> Arc<Announced> {
        self.announced_by(always_writes, None)
    }

    fn announced_by(&self, always_writes: bool, announcer: Option<Api<ApiService>>) -> Arc<Announced> {
        let announced = Arc::new(Announced {
            inner: self.fake.provider(),
            access: Arc::clone(&self.access),
            always_writes,
            announcer,
            fails: AtomicBool::new(false),
            lacks_something: AtomicBool::new(false),
            ensured: AtomicUsize::new(0),
        });
        self.call(Arc::clone(&announced) as Arc<dyn CloudProvider>);
        announced
    }

    async fn annotation(&self, name: &str, key: &str) -> Option<String> {
        self.get(name).await.annotations().get(key).cloned()
    }
}

#[tokio::test(start_paused = true)]
async fn what_it_writes_is_no_reason_for_another_call() {
    for always_writes in [false, true] {
        let working = Working::start().await;
        working.announced(always_writes);
        working.create("web").await;
        assert_eq!(working.calls_after(PERIOD).await, [Operation::EnsureLoadBalancer]);
        assert!(working.annotation("web", WRITTEN).await.is_some());
        // What a person writes is one, whether it is that annotation or another one.
        working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
        assert_eq!(working.calls_after(PERIOD).await, [Operation::EnsureLoadBalancer]);
        working.patch("web", json!({"metadata": {"annotations": {WRITTEN: "mine"}}})).await;
        assert_eq!(working.calls_after(PERIOD).await, [Operation::EnsureLoadBalancer]);
        working.services().delete("web", &DeleteParams::default()).await.expect("deleted");
        let expected = [Operation::GetLoadBalancer, Operation::DeleteLoadBalancer];
        assert_eq!(working.calls_after(PERIOD).await, expected);
        assert_eq!(working.annotation("web", WRITTEN).await, None);
        assert!(!working.has_finalizer("web").await);
    }
}

#[tokio::test(start_paused = true)]
async fn what_it_writes_before_it_fails_does_not_hurry_the_next_try() {
    let working = Working::start().await;
    let announced = working.announced(true);
    announced.fails.store(true, Ordering::Relaxed);
    working.create("web").await;
    assert_eq!(working.calls_after(Duration::from_secs(4)).await, [Operation::EnsureLoadBalancer]);
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
    assert_eq!(working.calls_after(Duration::from_secs(8)).await, []);
}

#[tokio::test(start_paused = true)]
async fn what_it_decides_on_an_old_view_is_refused_and_decided_again() {
    let working = Working::start().await;
    working.announced(true);
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    // The watch shows one change, and not the next one.
    working.fake.set_latency(Duration::from_secs(1));
    working.patch("web", json!({"metadata": {"annotations": {"a": "old"}}})).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    working.lose_watch();
    working.patch("web", json!({"metadata": {"annotations": {"a": "new"}}})).await;
    assert_eq!(working.calls_after(Duration::from_secs(10)).await, [Operation::EnsureLoadBalancer; 2]);
    let told = working.fake.load_balancers().into_values().next().expect("a load balancer");
    assert_eq!(told.service.annotations.get("a").map(String::as_str), Some("new"));
    assert_eq!(working.annotation("web", WRITTEN).await.as_deref(), Some("2"));
    assert!(!working.events().await.contains(&"SyncLoadBalancerFailed".to_owned()));
    working.sandbox.faults().clear();
    assert_eq!(working.calls_after(Duration::from_secs(60)).await, []);
}

#[tokio::test(start_paused = true)]
async fn what_it_decides_on_an_old_view_is_decided_again_when_it_deletes() {
    let working = Working::start().await;
    working.announced(false);
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    working.fake.set_latency(Duration::from_secs(1));
    let patches = Matcher::any().verb("patch").resource("services").subresource("");
    working.sandbox.faults().inject(sandbox::Fault::new(patches, sandbox::Action::Conflict).times(1));
    working.services().delete("web", &DeleteParams::default()).await.expect("deleted");
    let expected = [Operation::GetLoadBalancer, Operation::DeleteLoadBalancer];
    assert_eq!(working.calls_after(Duration::from_secs(4)).await, expected);
    assert_eq!(working.annotation("web", WRITTEN).await, None);
    assert!(!working.events().await.contains(&"SyncLoadBalancerFailed".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_announcer_that_writes_the_status_whenever_it_is_cleared_does_not_hold_the_deletion_up() {
    let working = Working::start().await;
    working.announced_by(false, Some(working.services()));
    working.create("web").await;
    tokio::time::sleep(SOON).await;
    working.fake.forget_calls();
    working.services().delete("web", &DeleteParams::default()).await.expect("deleted");
    let expected = [Operation::GetLoadBalancer, Operation::DeleteLoadBalancer];
    assert_eq!(working.calls_after(SOON).await, expected);
    assert_eq!(working.annotation("web", WRITTEN).await, None);
    assert!(working.addresses("web").await.is_empty() && !working.has_finalizer("web").await);
    assert!(!working.events().await.contains(&"SyncLoadBalancerFailed".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn it_is_told_when_the_announcer_shows_an_address_no_longer() {
    let working = Working::start().await;
    working.announced(false);
    working.create("web").await;
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
    let show = async |addresses: &[&str]| {
        let ingress: Vec<_> = addresses.iter().map(|address| json!({"ip": address})).collect();
        let patch = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        working.services().patch_status("web", &params, &patch).await.expect("shown");
    };
    show(&["198.18.0.1"]).await;
    assert_eq!(working.calls_after(SOON).await, [], "one more");
    // A person asks for another address, and the provider keeps the old one for now.
    working.patch("web", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
    show(&["198.18.0.1", "198.18.0.2"]).await;
    assert_eq!(working.calls_after(SOON).await, []);
    show(&["198.18.0.2"]).await;
    assert_eq!(working.calls_after(PERIOD).await, [Operation::EnsureLoadBalancer]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_more_is_ensured_when_there_may_be_more() {
    let working = Working::start().await;
    let announced = working.announced(false);
    for (name, lacks) in [("fine", false), ("one-family", true)] {
        announced.lacks_something.store(lacks, Ordering::Relaxed);
        working.create(name).await;
        assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
    }
    for lacks in [true, false] {
        announced.lacks_something.store(lacks, Ordering::Relaxed);
        working.access.retry_waiting();
        assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer], "the one that waits");
    }
    working.access.retry_waiting();
    assert_eq!(working.calls_after(SOON).await, [], "nothing waits");
}

#[tokio::test(start_paused = true)]
async fn without_an_end_to_the_changes_the_event_says_so() {
    let working = Working::start().await;
    working.announced(true);
    let patches = Matcher::any().verb("patch").resource("services").subresource("");
    working.sandbox.faults().inject(sandbox::Fault::new(patches, sandbox::Action::Conflict));
    working.create("web").await;
    assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer; 4]);
    let messages = working.messages().await;
    let words = "failed to ensure load balancer: Service default/web cannot be changed";
    assert!(messages.iter().any(|message| message.contains(words)), "{messages:?}");
    working.sandbox.faults().clear();
    assert_eq!(working.calls_after(Duration::from_secs(5)).await, [Operation::EnsureLoadBalancer]);
}

#[tokio::test(start_paused = true)]
async fn what_was_made_for_a_service_that_vanished_meanwhile_is_deleted() {
    for is_gone in [true, false] {
        let working = Working::start().await;
        working.announced(false);
        working.fake.set_latency(Duration::from_secs(1));
        working.create("web").await;
        // While the cloud is called, somebody removes the Service, and the provider learns of a conflict only.
        tokio::time::sleep(Duration::from_millis(500)).await;
        working.lose_watch();
        working.patch("web", json!({"metadata": {"finalizers": null}})).await;
        working.services().delete("web", &DeleteParams::default()).await.expect("deleted");
        let patches = Matcher::any().verb("patch").resource("services").subresource("");
        working.sandbox.faults().inject(sandbox::Fault::new(patches, sandbox::Action::Conflict).times(1));
        if !is_gone {
            working.refuse_writes(1);
        }
        assert_eq!(working.calls_after(SOON).await, [Operation::EnsureLoadBalancer]);
        working.sandbox.faults().clear();
        tokio::time::sleep(PERIOD).await;
        assert!(working.fake.load_balancers().is_empty(), "{is_gone}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_tried_when_it_asks_for_that() {
    let working = Working::start().await;
    let ensure = Operation::EnsureLoadBalancer;
    for (name, error) in
        [("fine", None), ("full", Some(quota())), ("never", Some(Error::unsupported("SCTP")))]
    {
        if let Some(error) = error {
            working.fake.fail_next(ensure, error);
        }
        working.create(name).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(working.calls_after(SOON).await.len(), 3);
    working.access.retry_waiting();
    assert_eq!(working.calls_after(SOON).await, [ensure, ensure]);
    working.access.retry_waiting();
    assert_eq!(working.calls_after(SOON).await, [], "nothing waits");
    // It asks while a call is under way that began before the news.
    working.fake.set_latency(Duration::from_secs(1));
    working.fake.fail_next(ensure, quota());
    working.create("late").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    working.access.retry_waiting();
    assert_eq!(working.calls_after(Duration::from_secs(3)).await, [ensure, ensure]);
    assert_eq!(working.addresses("late").await.len(), 1);
}
