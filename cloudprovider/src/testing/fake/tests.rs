use std::sync::atomic::{AtomicBool, Ordering};

use futures::{FutureExt as _, StreamExt as _};
use tokio::time::Instant;

use super::*;
use crate::{Error, ErrorKind, Instances, LoadBalancerService, PowerState, StartContext};

fn node(name: &str, provider_id: Option<&str>, system_uuid: Option<&str>) -> NodeIdentity {
    let [provider_id, system_uuid] = [provider_id, system_uuid].map(|text| text.map(str::to_owned));
    NodeIdentity { name: name.to_owned(), provider_id, system_uuid, ..NodeIdentity::default() }
}

/// What the cloud says of these nodes: `ID address`, `absent`, or the error.
async fn answers(cloud: &FakeCloud, nodes: &[NodeIdentity]) -> Vec<String> {
    let provider = cloud.provider();
    let nodes: Vec<_> = nodes.iter().collect();
    let answers = provider.instances().expect("instances").lookup(&nodes).await;
    answers.into_iter().map(words).collect()
}

fn words(answer: InstanceLookup) -> String {
    match answer {
        InstanceLookup::Present(instance) => {
            let id = instance.provider_id.map_or_else(|| "no ID".to_owned(), |id| id.to_string());
            format!("{id} {}", instance.power_state)
        }
        InstanceLookup::Absent => "absent".to_owned(),
        InstanceLookup::Unknown(error) => format!("{}: {}", error.kind(), error.report()),
    }
}

fn cloud_of_two() -> FakeCloud {
    let cloud = FakeCloud::new();
    cloud.put("u1", FakeInstance::running("10.0.0.1").named("one"));
    cloud.put("u2", FakeInstance { power_state: PowerState::Off, ..FakeInstance::running("10.0.0.2") });
    cloud
}

#[tokio::test]
async fn by_provider_id_alone_else_by_uuid_then_name() {
    let cloud = cloud_of_two();
    let nodes = [
        node("one", Some("fake:///u2"), Some("u1")),
        node("one", Some("fake:///u9"), Some("u1")),
        node("one", None, Some("U2")),
        node("one", None, Some("u9")),
        node("nobody", None, None),
    ];
    let expected = ["fake:///u2 off", "absent", "fake:///u2 off", "fake:///u1 running", "absent"];
    assert_eq!(answers(&cloud, &nodes).await, expected);
    cloud.put("u3", FakeInstance::running("10.0.0.3").named("one"));
    assert_eq!(answers(&cloud, &nodes[3..4]).await, ["ambiguous: instances u1 and u3 have this name"]);
    cloud.ignore_provider_ids();
    assert_eq!(answers(&cloud, &nodes[1..2]).await, ["fake:///u1 running"]);
}

#[tokio::test]
async fn instances_may_be_incomplete_and_without_an_id() {
    let cloud = FakeCloud::new();
    let why = Error::in_progress(Duration::from_secs(1), "no lease yet");
    let instance = FakeInstance { has_provider_id: false, ..FakeInstance::running("10.0.0.1") };
    cloud.put("u1", instance.with_incomplete(why));
    let provider = cloud.provider();
    let u1 = node("", None, Some("u1"));
    let mut found = provider.instances().expect("instances").lookup(&[&u1]).await;
    let Some(InstanceLookup::Present(instance)) = found.pop() else { panic!("{found:?}") };
    assert_eq!(instance.provider_id, None);
    assert_eq!(instance.incomplete.expect("a reason").report(), "no lease yet");
    assert_eq!(instance.metadata.addresses[0].address, "10.0.0.1");
}

#[tokio::test(start_paused = true)]
async fn faults_of_a_call_go_before_those_of_all_calls_and_nodes() {
    let cloud = cloud_of_two();
    let (one, two) = (node("one", None, Some("u1")), node("two", Some("fake:///u2"), None));
    let nodes = [one.clone(), two];
    let error = |words: &'static str| Error::new(ErrorKind::Unavailable, words);
    cloud.fail_instance("u2", Fault::Error(error("of the instance")));
    cloud.fail_nodes(|node| node.name == "one", error("of the node"));
    assert_eq!(answers(&cloud, &nodes).await, ["unavailable: of the node", "unavailable: of the instance"]);
    cloud.fail(Operation::Lookup, Fault::Error(error("of all")));
    cloud.fail_next(Operation::Lookup, Fault::Absent);
    cloud.fail_next(Operation::Lookup, Fault::NoAnswers);
    assert_eq!(answers(&cloud, &nodes).await, ["absent", "absent"]);
    assert_eq!(answers(&cloud, &nodes).await, [""; 0]);
    assert_eq!(answers(&cloud, &nodes).await, ["unavailable: of all", "unavailable: of all"]);
    cloud.fail(Operation::Lookup, None);
    cloud.fail_instance("u2", None);
    assert_eq!(answers(&cloud, &nodes).await, ["unavailable: of the node", "fake:///u2 off"]);
    cloud.mend();
    assert_eq!(answers(&cloud, &nodes).await, ["fake:///u1 running", "fake:///u2 off"]);
}

#[tokio::test(start_paused = true)]
async fn panics_and_hangs_are_of_the_whole_call() {
    let cloud = cloud_of_two();
    let nodes = [node("one", None, Some("u1")), node("two", None, Some("u2"))];
    let falls = async |fault: Fault| {
        cloud.fail_instance("u2", fault);
        let found = std::panic::AssertUnwindSafe(answers(&cloud, &nodes)).catch_unwind();
        tokio::time::timeout(Duration::from_secs(3600), found).await.map(|answers| answers.is_err())
    };
    assert_eq!(falls(Fault::Panic).await, Ok(true));
    falls(Fault::Hang).await.expect_err("it hangs");
    assert_eq!(answers(&cloud, &nodes[..1]).await, ["fake:///u1 running"], "the others are well");
    // The call is dropped, and panics while it is dropped.
    cloud.fail_instance("u2", Fault::HangThenPanic);
    let given_up = std::panic::AssertUnwindSafe(async {
        assert!(answers(&cloud, &nodes).now_or_never().is_none());
    });
    given_up.catch_unwind().await.expect_err("it panics when it is given up");
    cloud.fail_instance("u2", Fault::NoAnswers);
    assert_eq!(answers(&cloud, &nodes).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_that_of_its_beginning_however_long_it_takes() {
    let cloud = cloud_of_two();
    cloud.set_latency(Duration::from_secs(1));
    cloud.set_latency_per_node(Duration::from_secs(2));
    let (began, one) = (Instant::now(), [node("one", None, None), node("x", None, None)]);
    let (found, ()) = tokio::join!(answers(&cloud, &one), async { cloud.remove("u1") });
    assert_eq!(found, ["fake:///u1 running", "absent"]);
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

#[tokio::test]
async fn a_test_answers_itself() {
    let cloud = FakeCloud::named("every").with_zones();
    cloud.answer_with(|node| Error::new(ErrorKind::Internal, format!("about {}", node.name)).into());
    cloud.own_with(|id| id == "mine");
    cloud.zones_with(|_| Ok(Zone { zone: Some("z".into()), region: None }));
    let n = node("n", None, None);
    assert_eq!(answers(&cloud, std::slice::from_ref(&n)).await, ["internal: about n"]);
    let provider = cloud.provider();
    let instances = provider.instances().expect("instances");
    assert!(instances.owns("mine") && !instances.owns("every:///1"));
    let zones = provider.zones().expect("zones").zones(&[&n]).await;
    assert_eq!(zones[0].as_ref().expect("known").zone.as_deref(), Some("z"));
    cloud.changes_with(|| futures::stream::iter([InstanceChange::Resync]).boxed());
    let changes: Vec<_> = instances.changes().expect("a stream").collect().await;
    assert_eq!(changes, [InstanceChange::Resync]);
}

#[tokio::test]
async fn owns_its_own_complete_ids() {
    let provider = FakeCloud::new().provider();
    let instances = provider.instances().expect("instances");
    for (id, is_ours) in [
        ("fake:///1", true),
        ("fake:///", false),
        ("fake:////", false),
        ("fake://1", false),
        ("fakes:///1", false),
        ("1", false),
        ("", false),
    ] {
        assert_eq!(instances.owns(id), is_ours, "{id:?}");
    }
    assert_eq!(instances.provider_id_form(), Some("fake:///<id>"));
}

#[tokio::test]
async fn changes_reach_every_stream_until_the_stop() {
    let cloud = FakeCloud::new();
    let stop = CancellationToken::new();
    let provider = cloud.provider();
    let instances = provider.instances().expect("instances");
    let mut early = instances.changes().expect("a stream");
    provider.start(StartContext::new(stop.clone(), "c")).await.expect("started");
    let mut late = instances.changes().expect("a stream");
    assert!(cloud.is_started() && !cloud.is_stopped());
    cloud.put("u1", FakeInstance::running("10.0.0.1").named("one"));
    cloud.change("u1", |instance| instance.power_state = PowerState::Off);
    cloud.lose("u1");
    cloud.remove("u1");
    let of = |name: Option<&str>| {
        let name = name.map(str::to_owned);
        let provider_id = Some("fake:///u1".to_owned());
        InstanceChange::Changed(vec![InstanceRef {
            provider_id,
            system_uuid: Some("u1".to_owned()),
            name,
            machine: None,
        }])
    };
    for stream in [&mut early, &mut late] {
        assert_eq!(stream.next().await, Some(of(Some("one"))));
        assert_eq!(stream.next().await, Some(of(Some("one"))));
        assert_eq!(stream.next().await, Some(of(None)));
        assert!(stream.next().now_or_never().is_none());
    }
    stop.cancel();
    assert!(cloud.is_stopped());
    for stream in [&mut early, &mut late] {
        assert_eq!(stream.next().await, None);
    }
    // Another provider of the same cloud still works.
    let other = cloud.provider();
    let mut changes = other.instances().and_then(Instances::changes).expect("a stream");
    cloud.push(InstanceChange::Resync);
    assert_eq!(changes.next().await, Some(InstanceChange::Resync));
}

#[tokio::test]
async fn a_lost_connection_is_unknown_and_a_resync_afterwards() {
    let cloud = cloud_of_two().with_routes();
    let provider = cloud.provider();
    let mut changes = provider.instances().and_then(Instances::changes).expect("a stream");
    cloud.disconnect();
    cloud.remove("u1");
    let one = [node("one", None, Some("u1"))];
    assert_eq!(answers(&cloud, &one).await, ["unavailable: the fake cloud cannot be reached"]);
    let error = provider.routes().expect("routes").list("c").await.expect_err("away");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(changes.next().now_or_never().is_none());
    cloud.reconnect();
    assert_eq!(changes.next().await, Some(InstanceChange::Resync));
    assert_eq!(answers(&cloud, &one).await, ["absent"]);
}

#[tokio::test(start_paused = true)]
async fn start_and_end_fail_as_told() {
    let cloud = FakeCloud::new();
    let start = async || {
        let provider = cloud.provider();
        let context = StartContext::new(CancellationToken::new(), "c");
        let started = std::panic::AssertUnwindSafe(provider.start(context)).catch_unwind();
        tokio::time::timeout(Duration::from_secs(9), started).await
    };
    cloud.fail_next(Operation::Start, Error::new(ErrorKind::Unauthenticated, "no such user"));
    cloud.fail_next(Operation::Start, Fault::Panic);
    cloud.fail_next(Operation::Start, Fault::Hang);
    assert!(matches!(start().await, Ok(Ok(Err(error))) if error.kind() == ErrorKind::Unauthenticated));
    assert!(matches!(start().await, Ok(Err(_))));
    start().await.expect_err("it hangs");
    assert!(matches!(start().await, Ok(Ok(Ok(())))));
    cloud.provider().ended().await;
    cloud.fail(Operation::Ended, Fault::Hang);
    assert!(cloud.provider().ended().now_or_never().is_none());
}

#[tokio::test]
async fn calls_are_recorded() {
    let cloud = cloud_of_two();
    answers(&cloud, &[node("one", None, None), node("two", None, None)]).await;
    answers(&cloud, &[]).await;
    let calls = cloud.calls();
    assert_eq!(calls[0].nodes, ["one", "two"]);
    assert_eq!((calls.len(), cloud.count(Operation::Lookup), cloud.count(Operation::Start)), (2, 2, 0));
    cloud.forget_calls();
    assert_eq!((cloud.calls().len(), cloud.count(Operation::Lookup)), (0, 0));
    // A look-up is recorded with 50,000 names, but the records are limited.
    let many = vec![node("n", None, None); 50_000];
    for _ in 0..6 {
        answers(&cloud, &many).await;
    }
    assert_eq!((cloud.calls().len(), cloud.count(Operation::Lookup)), (4, 6));
}

#[tokio::test]
async fn parts_are_those_that_a_test_asks_for() {
    let cloud = FakeCloud::new();
    let plain = cloud.provider();
    assert!(plain.instances().is_some_and(|instances| instances.changes().is_some()));
    assert!(plain.zones().is_none() && plain.load_balancer().is_none());
    assert!(plain.routes().is_none() && plain.clusters().is_none() && plain.secrets().is_empty());
    let secret = SecretName { namespace: "kube-system".into(), name: "vc".into() };
    let full = cloud.clone().with_zones().with_load_balancers().with_routes().with_clusters();
    let full = full.with_secrets([secret.clone()]).without_changes().provider();
    assert!(full.instances().is_some_and(|instances| instances.changes().is_none()));
    assert!(full.zones().is_some() && full.load_balancer().is_some());
    assert!(full.routes().is_some() && full.clusters().is_some());
    assert_eq!(full.secrets(), [secret]);
    assert!(cloud.without_instances().provider().instances().is_none());
}

#[tokio::test]
async fn load_balancers_live() {
    let cloud = FakeCloud::new().with_load_balancers();
    let provider = cloud.provider();
    let balancers = provider.load_balancer().expect("load balancers");
    let service = LoadBalancerService { uid: "1-2".into(), ..LoadBalancerService::default() };
    let (n1, n2) = (node("n1", None, None), node("n2", None, None));
    let error = balancers.update("c", &service, &[&n1]).await.expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(balancers.get("c", &service).await.expect("works"), None);
    let status = balancers.ensure("c", &service, &[&n1]).await.expect("made");
    assert_eq!(status.ingress[0].ip.as_deref(), Some("198.18.0.1"));
    assert_eq!(balancers.ensure("c", &service, &[&n1]).await.expect("is there"), status);
    balancers.update("c", &service, &[&n1, &n2]).await.expect("updated");
    assert_eq!(balancers.get("c", &service).await.expect("works"), Some(status));
    assert_eq!(cloud.load_balancers()["a12"].nodes, ["n1", "n2"]);
    cloud.fail_next(Operation::EnsureLoadBalancer, Error::implemented_elsewhere("kube-vip does this"));
    let error = balancers.ensure("c", &service, &[]).await.expect_err("fails");
    assert_eq!(error.kind(), ErrorKind::ImplementedElsewhere);
    for _ in 0..2 {
        balancers.delete("c", &service).await.expect("gone");
    }
    assert!(cloud.load_balancers().is_empty());
    let ensured = cloud.calls().into_iter().filter(|call| call.operation == Operation::EnsureLoadBalancer);
    let ensured: Vec<_> = ensured.map(|call| (call.subject, call.nodes.len())).collect();
    assert_eq!(ensured, [("a12".to_owned(), 1), ("a12".to_owned(), 1), ("a12".to_owned(), 0)]);
    cloud.set_load_balancer_status(LoadBalancerStatus::default());
    assert_eq!(balancers.ensure("c", &service, &[]).await.expect("made"), LoadBalancerStatus::default());
    cloud.lose_load_balancer("a12");
    assert_eq!(balancers.get("c", &service).await.expect("works"), None);
}

#[tokio::test]
async fn routes_and_clusters_live() {
    let cloud = FakeCloud::new().with_routes().with_clusters();
    let provider = cloud.provider();
    let routes = provider.routes().expect("routes");
    let wanted = Route { destination_cidr: "10.1.0.0/24".into(), ..Route::default() };
    routes.create("c", "uid", &wanted).await.expect("made");
    routes.create("c", "uid", &wanted).await.expect("it is there");
    let to_another = Route { target_node: "n".into(), ..wanted.clone() };
    let error = routes.create("c", "other", &to_another).await.expect_err("there is one");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    cloud.put_route("d", wanted.clone());
    let listed = routes.list("c").await.expect("works");
    assert_eq!((listed.len(), cloud.routes().len()), (1, 2));
    for _ in 0..2 {
        routes.delete("c", &listed[0]).await.expect("gone");
    }
    assert_eq!(cloud.routes(), [wanted]);

    let clusters = provider.clusters().expect("clusters");
    let endpoint = ControlPlaneEndpoint { host: "10.0.0.1".into(), port: 6443 };
    cloud.put_cluster("prod", Some(endpoint.clone()));
    cloud.put_cluster("a", None);
    assert_eq!(clusters.list().await.expect("works"), ["a", "prod"]);
    assert_eq!(clusters.control_plane_endpoint("prod").await.expect("works"), Some(endpoint));
    assert_eq!(clusters.control_plane_endpoint("a").await.expect("works"), None);
    let error = clusters.control_plane_endpoint("x").await.expect_err("unknown");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
#[should_panic(expected = "there is no instance \"u9\" to change")]
fn a_change_of_nothing_is_a_mistake_of_the_test() {
    let is_called = AtomicBool::new(false);
    FakeCloud::new().change("u9", |_| is_called.store(true, Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn held_calls_answer_when_they_are_let_go() {
    let cloud = cloud_of_two();
    let held = cloud.hold(Operation::Lookup);
    let look = || {
        let cloud = cloud.clone();
        tokio::spawn(async move { answers(&cloud, &[node("one", None, None)]).await })
    };
    let first = look();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((held.inside(), cloud.count(Operation::Lookup)), (1, 1));
    cloud.remove("u1");
    held.let_go();
    assert_eq!(first.await.expect("answered"), ["fake:///u1 running"], "as it was when the call began");
    let second = look();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((held.inside(), second.is_finished()), (1, false), "later ones are held");
    drop(held);
    assert_eq!(second.await.expect("answered"), ["absent"]);
    assert_eq!(look().await.expect("answered"), ["absent"], "no call is held any more");
}
