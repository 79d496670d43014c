use std::sync::atomic::{AtomicUsize, Ordering};

use cloudprovider::AddressHolder;
use component::{
    events::{EventMetrics, event_recorder},
    metrics::MetricSet as _,
};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Service as ApiService;
use kube::ResourceExt as _;
use sandbox::{Action, Fault, Matcher, Sandbox};

use super::*;

struct World {
    sandbox: Sandbox,
    services: Arc<ClusterServices>,
    shown: ServiceStore,
}

impl World {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let shown = ServiceStore::new();
        let services = ClusterServices::new(sandbox.client(), sandbox.client(), shown.clone());
        Self { sandbox, services: Arc::new(services), shown }
    }

    fn begin_term(&self) -> AccessTerm {
        self.begin_term_behind(TermFence::default())
    }

    fn begin_term_behind(&self, fence: TermFence) -> AccessTerm {
        let (client, daemon) = (self.sandbox.client(), EventObject::lease("kube-system", "ccm", ""));
        let metrics = EventMetrics::unregistered().expect("metrics");
        let (events, _) = event_recorder("service-controller", client.clone(), daemon, metrics);
        self.services.begin_term(client, fence, events)
    }

    async fn create(&self, name: &str) -> ServiceRef {
        let service = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {"a": "1", "b": "1"}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerIP": "192.0.2.9"},
        }));
        let api: Api<ApiService> = Api::namespaced(self.sandbox.client(), "default");
        let created =
            api.create(&PostParams::default(), &service.expect("a Service")).await.expect("created");
        ServiceRef { namespace: "default".into(), name: name.into(), uid: created.uid().expect("a UID") }
    }
}

fn holder(service: &ServiceRef) -> AddressHolder {
    AddressHolder { service: service.clone(), sharing_key: None, ports: vec!["80/TCP".into()] }
}

fn claim(address: &str, service: &ServiceRef) -> AddressClaim {
    let address = address.parse().expect("an address");
    AddressClaim { address, holders: vec![holder(service)], version: String::new() }
}

fn kind<T: fmt::Debug>(outcome: Result<T>) -> (ErrorKind, String) {
    let error = outcome.expect_err("refused");
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn an_address_is_claimed_once() {
    let world = World::new();
    let (services, _term) = (&world.services, world.begin_term());
    let (a, b) = (world.create("a").await, world.create("b").await);
    let first = services.write_claim(&claim("2001:DB8::1", &a)).await.expect("written");
    let (refusal, words) = kind(services.write_claim(&claim("2001:db8::1", &b)).await);
    assert_eq!((refusal, words.as_str()), (ErrorKind::Conflict, "2001:db8::1 is in use already"));
    let mut shared = first.clone();
    shared.holders.push(holder(&b));
    let shared = services.write_claim(&shared).await.expect("written");
    assert_ne!(first.version, shared.version);
    assert_eq!(services.use_of(shared.address).await.expect("read"), AddressUse::Claimed(shared.clone()));
    // An old version is refused.
    assert_eq!(kind(services.write_claim(&first).await).0, ErrorKind::Conflict);
    assert_eq!(kind(services.delete_claim(&first).await).0, ErrorKind::Conflict);
    // The first holder leaves.
    let rest = AddressClaim { holders: vec![holder(&b)], ..shared };
    let rest = services.write_claim(&rest).await.expect("written");
    assert_eq!(services.claims().await.expect("read"), std::slice::from_ref(&rest));
    services.delete_claim(&rest).await.expect("deleted");
    services.delete_claim(&rest).await.expect("gone already");
    assert_eq!(services.use_of(rest.address).await.expect("read"), AddressUse::Free);
    assert_eq!(kind(services.write_claim(&rest).await).0, ErrorKind::Conflict);
}

#[tokio::test]
async fn a_cluster_that_cannot_store_claims_is_told() {
    let world = World::new();
    let lists = Matcher::any().verb("list").resource("ipaddresses");
    world.sandbox.faults().inject(Fault::new(lists, Action::ErrorEvent(404)));
    let (kind, words) = kind(world.services.claims().await);
    assert_eq!(kind, ErrorKind::Unavailable);
    assert!(words.contains("Kubernetes 1.33"), "{words}");
}

#[tokio::test]
async fn addresses_of_others_stay_theirs() {
    let world = World::new();
    let (services, _term) = (&world.services, world.begin_term());
    let service = world.create("a").await;
    let mut object = claims::to_object(&claim("192.0.2.1", &service));
    object.labels_mut().clear();
    let api: Api<IPAddress> = Api::all(world.sandbox.client());
    api.create(&PostParams::default(), &object).await.expect("created");
    assert!(services.claims().await.expect("read").is_empty());
    let wanted = claim("192.0.2.1", &service);
    let user = AddressUse::Elsewhere("services default/a".to_owned());
    assert_eq!(services.use_of(wanted.address).await.expect("read"), user);
    world.sandbox.reset_requests();
    let (refusal, words) = kind(services.write_claim(&wanted).await);
    assert_eq!((refusal, words.as_str()), (ErrorKind::Conflict, "192.0.2.1 is in use already"));
    let requests = world.sandbox.requests_matching(&Matcher::any().resource("ipaddresses"));
    assert_eq!(requests.len(), 1, "nothing is read for the message: {requests:?}");
}

#[tokio::test]
async fn outside_of_a_term_nothing_is_written() {
    let world = World::new();
    let services = &world.services;
    let service = world.create("a").await;
    let change = ServiceChange { load_balancer_ip: Some(None), ..ServiceChange::default() };
    for _ in 0..2 {
        let claim = claim("192.0.2.1", &service);
        assert_eq!(kind(services.write_claim(&claim).await).0, ErrorKind::Unavailable);
        assert_eq!(kind(services.delete_claim(&claim).await).0, ErrorKind::Unavailable);
        assert_eq!(kind(services.change_service(&service, &change).await).0, ErrorKind::Unavailable);
        assert!(services.claims().await.expect("read").is_empty());
        world.begin_term().end().await.expect("everything has ended");
    }
}

#[tokio::test]
async fn a_daemon_leads_alone_in_its_term_only() {
    let world = World::new();
    let services = &world.services;
    assert_eq!(services.alone_for(), Duration::ZERO);
    let term = world.begin_term();
    assert_eq!(services.alone_for(), Duration::MAX, "without an election");
    term.end().await.expect("everything has ended");
    assert_eq!(services.alone_for(), Duration::ZERO);
    let closed = TermFence::from(component::leader_election::Fence::default());
    let _term = world.begin_term_behind(closed);
    assert_eq!(services.alone_for(), Duration::ZERO, "the election decides");
}

#[tokio::test]
async fn a_service_is_changed_as_far_as_it_is_this_one() {
    let world = World::new();
    let (services, _term) = (&world.services, world.begin_term());
    let service = world.create("a").await;
    let change = ServiceChange {
        annotations: [("a".into(), None), ("c".into(), Some("2".into()))].into(),
        labels: [("l".into(), Some("1".into()))].into(),
        load_balancer_ip: Some(Some("192.0.2.1".into())),
    };
    services.change_service(&service, &change).await.expect("changed");
    let api: Api<ApiService> = Api::namespaced(world.sandbox.client(), "default");
    let now = api.get("a").await.expect("there");
    let texts = |map: &std::collections::BTreeMap<String, String>| {
        map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    };
    assert_eq!(
        (texts(now.annotations()), texts(now.labels())),
        (vec!["b=1".into(), "c=2".into()], vec!["l=1".into()])
    );
    assert_eq!(now.spec.and_then(|spec| spec.load_balancer_ip).as_deref(), Some("192.0.2.1"));
    assert!(services.exists(&service).await.expect("read"));
    for other in [
        ServiceRef { uid: "1f0b2c4e-0000-0000-0000-000000000000".into(), ..service.clone() },
        ServiceRef { name: "nobody".into(), ..service.clone() },
    ] {
        assert_eq!(kind(services.change_service(&other, &change).await).0, ErrorKind::NotFound);
        assert!(!services.exists(&other).await.expect("read"));
    }
}

#[tokio::test]
async fn a_refused_change_says_what_is_missing() {
    let world = World::new();
    let (services, _term) = (&world.services, world.begin_term());
    let service = world.create("a").await;
    let change = ServiceChange { load_balancer_ip: Some(None), ..ServiceChange::default() };
    for (action, expected) in [
        (Action::ErrorEvent(403), ErrorKind::PermissionDenied),
        (Action::ErrorEvent(401), ErrorKind::Unauthenticated),
        (Action::TooManyRequests(7), ErrorKind::RateLimited),
        (Action::Conflict, ErrorKind::Conflict),
        (Action::InternalError, ErrorKind::Unavailable),
    ] {
        let patches = Matcher::any().verb("patch").resource("services");
        world.sandbox.faults().inject(Fault::new(patches, action).times(1));
        let error = services.change_service(&service, &change).await.expect_err("refused");
        let words = error.to_string();
        assert_eq!(error.kind(), expected, "{words}");
        assert!(words.starts_with("Service default/a cannot be changed: "), "{words}");
        let hint = "the service account needs patch on services";
        assert_eq!(words.contains(hint), expected == ErrorKind::PermissionDenied, "{words}");
        if expected == ErrorKind::RateLimited {
            assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        }
    }
}

#[tokio::test]
async fn in_a_call_a_service_is_changed_as_far_as_it_is_as_the_call_gave_it() {
    let world = World::new();
    let (services, _term) = (&world.services, world.begin_term());
    let service = world.create("a").await;
    let api: Api<ApiService> = Api::namespaced(world.sandbox.client(), "default");
    let shown = async || Service::from_json(json!(api.get("a").await.expect("there")));
    let change = |value: &str| ServiceChange {
        annotations: [("a".into(), Some(value.into()))].into(),
        ..ServiceChange::default()
    };
    let call = services.activity().begin(&shown().await);
    services.change_service(&service, &change("2")).await.expect("changed");
    services.change_service(&service, &change("3")).await.expect("changed once more in the same call");
    let label = Patch::Merge(json!({"metadata": {"labels": {"by": "somebody"}}}));
    api.patch("a", &PatchParams::default(), &label).await.expect("patched");
    assert_eq!(kind(services.change_service(&service, &change("4")).await).0, ErrorKind::Conflict);
    let changes = call.end();
    assert!(changes.is_outdated);
    assert_eq!(changes.applied_to(&shown().await).content.annotations["a"], "3");
    // Outside of a call nothing is known of what it was decided on.
    services.change_service(&service, &change("5")).await.expect("changed");
    assert_eq!(shown().await.content.annotations["a"], "5");
}

#[tokio::test]
async fn a_service_that_the_watch_shows_is_not_asked_for() {
    let world = World::new();
    let service = world.create("a").await;
    let lists = Matcher::any().verb("list").resource("services");
    let shown = Service::from_json(json!({
        "metadata": {"namespace": "default", "name": "a", "uid": service.uid}, "spec": {"type": "LoadBalancer"},
    }));
    world.shown.replace(vec![shown]);
    let of_old = ServiceRef { uid: "1f0b2c4e-0000-0000-0000-000000000000".into(), ..service.clone() };
    let lost = ServiceRef { uid: String::new(), ..service.clone() };
    for (service, exists, asked) in [(&service, true, 0), (&lost, true, 0), (&of_old, false, 1)] {
        world.sandbox.reset_requests();
        assert_eq!(world.services.exists(service).await.expect("read"), exists);
        assert_eq!(world.sandbox.requests_matching(&lists).len(), asked, "{service:?}");
    }
    // Only the API server can say that one is gone.
    world.shown.replace(Vec::new());
    world.sandbox.reset_requests();
    assert!(world.services.exists(&service).await.expect("read"));
    assert_eq!(world.sandbox.requests_matching(&lists).len(), 1);
}

#[tokio::test]
async fn addresses_in_the_status_are_assigned() {
    let world = World::new();
    let service = world.create("a").await;
    world.create("b").await;
    let api: Api<ApiService> = Api::namespaced(world.sandbox.client(), "default");
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}, {"hostname": "x"}]}}});
    api.patch_status("a", &PatchParams::default(), &Patch::Merge(status)).await.expect("patched");
    let assigned = world.services.assigned().await.expect("read");
    let expected = ["192.0.2.1", "2001:db8::1"].map(|ip| (service.clone(), ip.parse().expect("an address")));
    assert_eq!(assigned, expected);
}

#[tokio::test]
async fn a_config_map_is_followed() {
    let world = World::new();
    let name = ConfigMapName { namespace: "kube-system".into(), name: "kubevip".into() };
    let mut versions = world.services.follow_config_map(&name);
    assert_eq!(versions.next().await.expect("a version").expect("read"), None);
    let api: Api<ConfigMap> = Api::namespaced(world.sandbox.client(), "kube-system");
    let map = serde_json::from_value(
        json!({"metadata": {"name": "kubevip"}, "data": {"cidr-global": "192.0.2.0/24"}}),
    );
    api.create(&PostParams::default(), &map.expect("a map")).await.expect("created");
    let data = versions.next().await.expect("a version").expect("read").expect("there");
    assert_eq!(data["cidr-global"], "192.0.2.0/24");
    api.delete("kubevip", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(versions.next().await.expect("a version").expect("read"), None);
}

#[derive(Default)]
struct Ending {
    ended: AtomicUsize,
    hangs: bool,
    fails: bool,
}

#[async_trait]
impl EndOfTerm for Ending {
    async fn stand_down(&self) -> Result<()> {
        self.ended.fetch_add(1, Ordering::SeqCst);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        if self.fails { Err(Error::new(ErrorKind::Unavailable, "an address stays")) } else { Ok(()) }
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_term_is_told_and_not_waited_for_too_long() {
    let world = World::new();
    let quick = Arc::new(Ending::default());
    let hanging = Arc::new(Ending { hangs: true, ..Ending::default() });
    let gone = Arc::new(Ending::default());
    for one in [&quick, &hanging, &gone] {
        let weak = Arc::downgrade(one);
        world.services.at_end_of_term(weak);
    }
    drop(gone);
    for turn in 1..=2 {
        let began = tokio::time::Instant::now();
        let error = world.begin_term().end().await.expect_err("it hangs");
        assert_eq!((began.elapsed(), error.kind()), (END_OF_TERM_TIMEOUT, ErrorKind::Timeout));
        assert_eq!((quick.ended.load(Ordering::SeqCst), hanging.ended.load(Ordering::SeqCst)), (turn, turn));
        assert!(world.services.term().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_term_says_whether_something_goes_on() {
    let world = World::new();
    let good = Arc::new(Ending::default());
    let weak = Arc::downgrade(&good);
    world.services.at_end_of_term(weak);
    world.begin_term().end().await.expect("nothing goes on");
    let failing = Arc::new(Ending { fails: true, ..Ending::default() });
    let weak = Arc::downgrade(&failing);
    world.services.at_end_of_term(weak);
    let error = world.begin_term().end().await.expect_err("something goes on");
    assert_eq!(error.to_string(), "an address stays");
    assert_eq!(good.ended.load(Ordering::SeqCst), 2);
    assert!(world.services.term().is_err());
}
