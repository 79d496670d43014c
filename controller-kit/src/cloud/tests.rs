//! What a provider may do, and what the controllers see of it.

mod batches;
mod routes;

use cloudprovider::{
    Instance, PowerState, ProviderId, StartContext, Zone,
    testing::{FakeCloud, Fault, Operation},
};
use component::metrics::{MetricSet as _, Metrics};
use tokio::time::Instant;

use super::*;

/// Panics without a message on the terminal.
fn fall() -> ! {
    std::panic::resume_unwind(Box::new("the provider falls"))
}

/// The provider ID of the instance of the node with this name.
fn id_for(name: &str) -> Option<ProviderId> {
    match name {
        "nameless" => None,
        "empty" => Some(ProviderId::new("unruly", "")),
        "other" => Some(ProviderId::new("other", "1")),
        _ => Some(ProviderId::new("unruly", "/1")),
    }
}

/// A provider that misbehaves as the names of the nodes say.
fn unruly() -> FakeCloud {
    let fake = FakeCloud::named("unruly").with_zones();
    for (name, fault) in
        [("panic", Fault::Panic), ("hang", Fault::HangThenPanic), ("short", Fault::NoAnswers)]
    {
        fake.fail_nodes(move |node| node.name.starts_with(name), fault);
    }
    fake.answer_with(|node| Instance::new(id_for(&node.name), PowerState::Running).into());
    fake.own_with(|id| match id {
        "panic" => fall(),
        _ => id.starts_with("unruly:///") && id != "unruly:///",
    });
    fake.zones_with(|node| match node.name.as_str() {
        "no-zone-for-this" => fall(),
        "nowhere" => Err(Error::new(ErrorKind::Unavailable, "tags are away")),
        _ => Ok(Zone { zone: Some("z".into()), region: None }),
    });
    fake.changes_with(|| {
        stream::iter([0, 1]).map(|i| if i == 0 { InstanceChange::Resync } else { fall() }).boxed()
    });
    fake.fail(Operation::Ended, Fault::Hang);
    fake
}

fn cloud() -> Cloud {
    started(CancellationToken::new())
}

fn started(stop: CancellationToken) -> Cloud {
    with(&unruly(), stop)
}

fn with(fake: &FakeCloud, stop: CancellationToken) -> Cloud {
    Cloud::new(Started::new(fake.provider(), stop), CloudMetrics::unregistered().expect("metrics"))
}

/// A provider whose calls can be inspected, and the boundary around it.
fn watched() -> (FakeCloud, Cloud) {
    let fake = unruly();
    let cloud = with(&fake, CancellationToken::new());
    (fake, cloud)
}

/// How many look-ups there were since this function was last called.
fn calls(fake: &FakeCloud) -> usize {
    let count = fake.count(Operation::Lookup);
    fake.forget_calls();
    count
}

/// `count` nodes, of which those in `others` have other names.
fn many(count: usize, others: &[(usize, &str)]) -> Vec<Arc<Node>> {
    let name = |index| match others.iter().find(|(place, _)| *place == index) {
        Some((_, other)) => format!("{other}-{index}"),
        None => format!("n{index}"),
    };
    (0..count).map(|index| node(&name(index), None)).collect()
}

fn node(name: &str, provider_id: Option<&str>) -> Arc<Node> {
    let provider_id = provider_id.map(str::to_owned);
    let identity = NodeIdentity { name: name.into(), provider_id, ..NodeIdentity::default() };
    Arc::new(Node { identity, ..Node::default() })
}

fn error_of(answer: &InstanceLookup) -> &Error {
    match answer {
        InstanceLookup::Unknown(error) => error,
        other => panic!("there is an answer: {other:?}"),
    }
}

/// The names of the nodes without an answer.
fn without_answer(nodes: &[Arc<Node>], answers: &[InstanceLookup]) -> Vec<String> {
    assert_eq!(nodes.len(), answers.len());
    let unknown = nodes.iter().zip(answers).filter(|(_, a)| matches!(a, InstanceLookup::Unknown(_)));
    unknown.map(|(node, _)| node.name().to_owned()).collect()
}

fn nodes(names: &[&str]) -> Vec<Arc<Node>> {
    names.iter().map(|name| node(name, None)).collect()
}

#[tokio::test]
async fn an_id_that_is_not_the_providers_decides_before_the_look_up() {
    let (fake, cloud) = watched();
    let nodes = [
        node("a", None),
        node("b", Some("unruly:///7")),
        node("broken", Some("unruly://")),
        node("foreign", Some("aws:///i-1")),
        node("unclear", Some("panic")),
    ];
    let answers = cloud.lookup(&nodes).await;
    assert_eq!(fake.calls().pop().expect("a call").nodes, ["a", "b"]);
    assert_eq!(without_answer(&nodes, &answers), ["broken", "foreign", "unclear"]);
    for (answer, kind, words) in [
        (&answers[2], ErrorKind::InvalidInput, "\"unruly://\" begins with unruly:// and is not of the form"),
        (&answers[3], ErrorKind::InvalidInput, "\"aws:///i-1\" is of another cloud than unruly"),
        (&answers[4], ErrorKind::Internal, "panicked over whether it owns provider ID \"panic\""),
    ] {
        let error = error_of(answer);
        assert_eq!(error.kind(), kind);
        assert!(error.report().contains(words), "{}", error.report());
    }
    calls(&fake);
    cloud.lookup(&nodes[2..]).await;
    assert_eq!(calls(&fake), 0, "there is nothing to ask");
}

#[tokio::test]
async fn an_id_that_nobody_could_read_is_not_written() {
    for (name, words) in [
        ("empty", "gives provider ID \"unruly://\", which is not of the form <provider>://<id>"),
        ("other", "gives provider ID \"other://1\", which it does not own itself"),
    ] {
        let answers = cloud().lookup(&[node(name, None), node(name, Some("unruly:///9"))]).await;
        let [InstanceLookup::Present(new), InstanceLookup::Present(old)] = &answers[..] else {
            panic!("{answers:?}")
        };
        let why = new.incomplete.as_ref().expect("it waits");
        assert_eq!(why.kind(), ErrorKind::Internal);
        assert!(why.report().contains(words), "{}", why.report());
        assert!(old.incomplete.is_none(), "the node keeps its own");
    }
    let answers = cloud().lookup(&[node("nameless", None)]).await;
    assert!(matches!(&answers[..], [InstanceLookup::Present(new)] if new.provider_id.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_goes_wrong_is_an_error() {
    let start = async |fault: Option<Fault>| {
        let (fake, stop) = (unruly(), CancellationToken::new());
        fake.fail(Operation::Start, fault);
        let context = StartContext::new(stop.clone(), "c");
        let started = Started::start(fake.provider(), context, Duration::from_secs(9)).await;
        (started.map(drop).map_err(|error| error.report()), stop.is_cancelled())
    };
    let refused = Fault::Error(Error::new(ErrorKind::Unauthenticated, "no such user"));
    for (fault, words) in [
        (Fault::Panic, "it panicked; the log says more"),
        (Fault::Hang, "not done within 9s"),
        (refused, "no such user"),
    ] {
        assert_eq!(start(Some(fault)).await, (Err(words.to_owned()), true));
    }
    assert_eq!(start(None).await.0, Ok(()));
}

#[tokio::test]
async fn zones_fill_what_instances_lack() {
    let answers = cloud().lookup_with_zones(&nodes(&["a", "nowhere"])).await;
    let [InstanceLookup::Present(a), InstanceLookup::Present(nowhere)] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(a.metadata.zone.as_deref(), Some("z"));
    assert!(a.incomplete.is_none());
    let report = nowhere.incomplete.as_ref().map(Error::report);
    assert_eq!(report.as_deref(), Some("zone look-up failed: tags are away"));
}

#[tokio::test]
async fn a_provider_without_zones_is_asked_once() {
    let metrics = Metrics::new("cloud_controller_manager").expect("metrics");
    for (has_zones, zone_calls) in [(false, 0), (true, 1)] {
        let fake = FakeCloud::named("unruly");
        let fake = if has_zones { fake.with_zones() } else { fake };
        fake.answer_with(|node| Instance::new(id_for(&node.name), PowerState::Running).into());
        let started = Started::new(fake.provider(), CancellationToken::new());
        let cloud = Cloud::new(started, metrics.get().expect("metrics"));
        let answers = cloud.lookup_with_zones(&nodes(&["a", "b"])).await;
        assert!(answers.iter().all(|answer| matches!(answer, InstanceLookup::Present(_))), "{answers:?}");
        assert_eq!((fake.count(Operation::Lookup), fake.count(Operation::Zones)), (1, zone_calls));
        assert_eq!(
            metrics.text().contains("operation=\"zones\""),
            has_zones,
            "what was not asked is not counted"
        );
    }
}

#[tokio::test]
async fn zones_that_fail_for_one_node_fail_for_no_other() {
    let names = ["a", "no-zone-for-this", "c"];
    let answers = cloud().lookup_with_zones(&nodes(&names)).await;
    let whole: Vec<bool> = answers
        .iter()
        .map(|answer| matches!(answer, InstanceLookup::Present(instance) if instance.incomplete.is_none()))
        .collect();
    assert_eq!(whole, [true, false, true]);
}

#[tokio::test]
async fn every_instance_has_the_labels_of_the_command_line() {
    let labels = BTreeMap::from([("example.com/rack".to_owned(), "a1".to_owned())]);
    let answers = cloud().with_labels(labels.clone()).lookup(&nodes(&["a", "b"])).await;
    for answer in answers {
        let InstanceLookup::Present(instance) = answer else { panic!("{answer:?}") };
        assert_eq!(instance.metadata.additional_labels, labels);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_stream_is_a_resync_and_begins_anew_later() {
    let (fake, cloud) = watched();
    let mut changes = cloud.changes();
    for round in 1..4 {
        assert_eq!(changes.next().await, Some(InstanceChange::Resync));
        assert_eq!(changes.next().await, Some(InstanceChange::Resync));
        assert!(changes.next().now_or_never().is_none());
        let began = Instant::now();
        assert_eq!(changes.next().await, Some(InstanceChange::Resync), "changes were missed");
        assert_eq!(began.elapsed(), CHANGES_AGAIN_AFTER);
        assert_eq!(fake.count(Operation::Changes), round + 1);
    }
}

#[test]
fn a_panic_in_owns_owns_nothing() {
    assert!(cloud().owns(&node("n", Some("unruly:///1"))));
    assert!(!cloud().owns(&node("n", Some("panic"))));
    assert!(!cloud().owns(&Node::default()));
    assert_eq!(cloud().owner_of(&node("n", Some("panic"))), Owner::Unclear);
    assert_eq!(cloud().owner_of(&Node::default()), Owner::Nobody);
}

#[test]
fn a_broken_id_of_ours_is_not_foreign() {
    for (id, owner) in [
        ("unruly:///1", Owner::Us),
        ("unruly:///", Owner::UsBroken),
        ("unruly", Owner::Foreign),
        ("unrulier:///1", Owner::Foreign),
        ("://", Owner::Foreign),
    ] {
        assert_eq!(cloud().owner_of(&node("n", Some(id))), owner, "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_never_answered_has_an_age() {
    let metrics = Metrics::new("cloud_controller_manager").expect("metrics");
    let started = Started::new(unruly().provider(), CancellationToken::new());
    let cloud = Cloud::new(started, metrics.get().expect("metrics"));
    let age = || {
        let text = metrics.text();
        let line =
            text.lines().find(|line| line.starts_with("cloud_controller_manager_inventory_age_seconds{"));
        line.map(|line| line.rsplit(' ').next().unwrap_or_default().to_owned())
    };
    assert_eq!(age(), None, "nobody has asked");
    for expected in ["60", "120"] {
        cloud.lookup(&nodes(&["hang"])).await;
        assert_eq!(age().as_deref(), Some(expected));
    }
    cloud.lookup(&nodes(&["a"])).await;
    assert_eq!(age().as_deref(), Some("0"));
    // A node that is asked about apart from the others counts as part of the look-up.
    cloud.lookup(&nodes(&["a", "panic", "b"])).await;
    tokio::time::advance(Duration::from_secs(7)).await;
    for _ in 0..3 {
        cloud.lookup(&nodes(&["a", "panic", "b"])).await;
    }
    assert_eq!(age().as_deref(), Some("7"));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_does_not_end_is_not_waited_for_longer() {
    let stop = CancellationToken::new();
    let cloud = started(stop.clone());
    let began = tokio::time::Instant::now();
    cloud.stop().await;
    assert!(stop.is_cancelled());
    assert_eq!(began.elapsed(), END_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_provider_of_machines_alone_tells_its_changes() {
    for has_machines in [true, false] {
        let fake = FakeCloud::named("alone").without_instances();
        let fake = if has_machines { fake.with_machines() } else { fake };
        fake.changes_with(|| stream::iter([InstanceChange::Resync]).chain(stream::pending()).boxed());
        let mut changes = with(&fake, CancellationToken::new()).changes();
        let first = changes.next().now_or_never().flatten();
        assert_eq!(first, has_machines.then_some(InstanceChange::Resync));
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_replaced_ends_with_its_last_call() {
    let stop = [CancellationToken::new(), CancellationToken::new()];
    let cloud = started(stop[0].clone());
    let mut changes = cloud.changes();
    assert_eq!(changes.next().await, Some(InstanceChange::Resync));
    assert_eq!(changes.next().await, Some(InstanceChange::Resync));
    assert!(changes.next().now_or_never().is_none());
    let hanging = tokio::spawn({
        let cloud = cloud.clone();
        async move { cloud.lookup(&nodes(&["hang"])).await }
    });
    tokio::task::yield_now().await;
    cloud.replace_with(&started(stop[1].clone()));
    assert!(!stop[0].is_cancelled(), "a call is under way");
    for word in ["taken over", "its own first", "its panic"] {
        assert_eq!(changes.next().await, Some(InstanceChange::Resync), "{word}");
    }
    assert!(changes.next().now_or_never().is_none());
    assert!(matches!(cloud.lookup(&nodes(&["a"])).await[..], [InstanceLookup::Present(_)]));
    hanging.await.expect("timed out");
    assert!(stop[0].is_cancelled() && !stop[1].is_cancelled());
    drop((cloud, changes));
    assert!(stop[1].is_cancelled());
}
