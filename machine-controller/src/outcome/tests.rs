use cloudprovider::{
    Instance, InstanceMetadata, NodeAddress, PowerState, ProviderId,
    machines::{FailureDomain, Mark},
};

use super::*;
use crate::names::reason_of;

const KINDS: Kinds =
    Kinds::new("v1", Kind::new("MyMachine", "mymachines"), Kind::new("MyCluster", "myclusters"));

fn object(metadata: Value, spec: Value) -> InfraObject {
    let mut object = json!({"metadata": metadata, "spec": spec});
    object["metadata"]["name"] = json!("one");
    object["metadata"]["uid"] = json!("u-1");
    object["metadata"]["resourceVersion"] = json!("7");
    serde_json::from_value(object).expect("an object")
}

fn new() -> InfraObject {
    object(json!({}), json!({}))
}

fn existing() -> InfraObject {
    object(json!({}), json!({"providerID": "my:///1"}))
}

fn instance() -> Instance {
    let metadata = InstanceMetadata {
        addresses: vec![NodeAddress::internal_ip("10.0.0.1")],
        ..InstanceMetadata::default()
    };
    Instance::new(ProviderId::new("my", "/1"), PowerState::Running).with_metadata(metadata)
}

/// After a step of a machine: what can be compared.
fn after_machine(object: &InfraObject, answer: Result<MachineReport, Error>, now: Instant) -> Outcome {
    Outcome::of_machine(object, &answer, 1, now)
}

#[tokio::test]
async fn what_a_step_of_a_machine_saw_is_said() {
    let now = Instant::now();
    let minute = Duration::from_secs(60);
    let task = || Wait::task("clone, 40 %").with_reason("WaitingForClone");
    let address = || Wait::address("no lease").look_again_after(minute);
    let present = |wait: Option<Wait>| Ok(PresentMachine::new(instance()).with_wait(wait).into());
    for (what, object, answer, reason, is_done, blocks, due) in [
        (
            "clone",
            new(),
            Ok(MachineReport::Creating(task())),
            "WaitingForClone",
            false,
            true,
            Due::WhenChanged,
        ),
        (
            "room",
            new(),
            Ok(MachineReport::Creating(Wait::capacity("full"))),
            "WaitingForCapacity",
            false,
            true,
            Due::WhenChanged,
        ),
        (
            "no address",
            new(),
            present(Some(address())),
            "WaitingForAddress",
            false,
            false,
            Due::At(now + minute),
        ),
        ("task later", existing(), present(Some(task())), "WaitingForClone", false, true, Due::WhenChanged),
        ("done", existing(), present(None), "Ready", true, false, Due::WhenChanged),
        (
            "done, with something to look at",
            existing(),
            Ok(PresentMachine::new(instance()).look_again_after(minute).into()),
            "Ready",
            true,
            false,
            Due::At(now + minute),
        ),
        ("lost", existing(), Ok(MachineReport::lost("gone")), "MachineLost", false, false, Due::WhenChanged),
    ] {
        let outcome = after_machine(&object, answer, now);
        assert_eq!(outcome.observed.ready.reason, reason, "{what}");
        assert_eq!(outcome.observed.ready.status == ConditionStatus::True, is_done, "{what}");
        assert_eq!(
            (outcome.observed.is_done, outcome.blocks_move, outcome.due),
            (is_done, Some(blocks), due),
            "{what}"
        );
        assert!(!outcome.has_failed && !outcome.is_gone, "{what}");
    }
}

#[tokio::test]
async fn the_provider_id_is_written_once_and_never_changed() {
    let now = Instant::now();
    let present = |id: Option<ProviderId>| {
        let instance = Instance::new(id, PowerState::Running);
        Ok(MachineReport::from(PresentMachine::new(instance)))
    };
    let first = after_machine(&new(), present(Some(ProviderId::new("my", "/1"))), now);
    assert_eq!(first.provider_id.as_deref(), Some("my:///1"));
    let again = after_machine(&existing(), present(Some(ProviderId::new("my", "/1"))), now);
    assert_eq!(again.provider_id, None);
    for (id, reason, words) in [
        (
            Some(ProviderId::new("my", "/2")),
            "ProviderIDMismatch",
            "the provider ID is \"my:///1\", and the machine that was found has \"my:///2\"",
        ),
        (None, "ProviderError", "the provider reported a machine without a provider ID"),
    ] {
        let outcome = after_machine(&existing(), present(id), now);
        assert_eq!((outcome.provider_id, outcome.has_failed, outcome.observed.is_done), (None, true, false));
        assert_eq!((&*outcome.observed.ready.reason, &*outcome.observed.ready.message), (reason, words));
    }
}

#[tokio::test]
async fn addresses_are_kept_while_nothing_is_known() {
    let now = Instant::now();
    let present = |instance: Instance| Ok(MachineReport::from(PresentMachine::new(instance)));
    let known = after_machine(&existing(), present(instance()), now);
    assert_eq!(known.observed.addresses, Some(vec![NodeAddress::internal_ip("10.0.0.1")]));
    let unwell = instance().with_incomplete(Error::new(ErrorKind::Unavailable, "the agent does not answer"));
    assert_eq!(after_machine(&existing(), present(unwell), now).observed.addresses, None);
    let lost = after_machine(&existing(), Ok(MachineReport::lost("gone")), now);
    assert_eq!(lost.observed.addresses, None);
}

#[tokio::test]
async fn each_kind_of_error_has_its_next_try() {
    let now = Instant::now();
    let minute = Due::At(now + Duration::from_secs(60));
    for kind in ErrorKind::ALL {
        let due = after_machine(&new(), Err(Error::new(*kind, "why")), now).due;
        match kind {
            ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::ImplementedElsewhere => {
                assert_eq!(due, Due::WhenChanged, "{kind:?}");
            }
            ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::Ambiguous
            | ErrorKind::Unauthenticated
            | ErrorKind::PermissionDenied
            | ErrorKind::InvalidConfiguration => assert_eq!(due, minute, "{kind:?}"),
            _ => {
                let second = Due::At(now + Duration::from_secs(1));
                let is_soon =
                    matches!((due, second), (Due::At(due), Due::At(second)) if due > now && due < second);
                assert!(is_soon, "{kind:?}: {due:?}");
            }
        }
        let error = Error::new(*kind, "why").with_retry_after(Duration::from_secs(5));
        let outcome = after_machine(&new(), Err(error), now);
        assert_eq!(outcome.due, Due::At(now + Duration::from_secs(5)), "{kind:?}");
        assert_eq!(
            (&*outcome.observed.ready.reason, &*outcome.observed.ready.message),
            (reason_of(*kind), "why")
        );
        assert_eq!((outcome.blocks_move, outcome.has_failed, outcome.is_gone), (None, true, false));
    }
    let error = || Err(Error::new(ErrorKind::Unavailable, "why"));
    let later = Outcome::of_machine(&new(), &error(), 8, now).due;
    assert!(matches!(later, Due::At(at) if at > now + Duration::from_secs(15)), "{later:?}");
}

#[tokio::test]
async fn a_deletion_ends_only_when_nothing_is_left() {
    let now = Instant::now();
    for (answer, reason, is_gone) in [
        (Ok(Deletion::Deleting(Wait::task("shutdown"))), "Deleting", false),
        (Ok(Deletion::Gone), "Deleting", true),
        (Err(Error::new(ErrorKind::NotFound, "no such pool")), "DependencyNotFound", false),
        (Err(Error::new(ErrorKind::Unavailable, "away")), "ProviderUnavailable", false),
    ] {
        let outcome = Outcome::of_deletion(&answer, 1, now);
        assert_eq!((&*outcome.observed.ready.reason, outcome.is_gone), (reason, is_gone), "{answer:?}");
        let says_that_it_waits = outcome.observed.ready.message.starts_with("not deleted yet: ");
        assert_eq!(says_that_it_waits, answer.is_err(), "{answer:?}");
        let with_finalizers = object(
            json!({
                "finalizers": ["other", "mymachine.infrastructure.cluster.x-k8s.io"],
                "annotations": {"clusterctl.cluster.x-k8s.io/block-move": "machine-controller"},
            }),
            json!({}),
        );
        let patch = outcome.patch(&with_finalizers, &KINDS, &KINDS.machine).unwrap_or_default();
        let finalizers = patch["metadata"].get("finalizers");
        assert_eq!(finalizers, is_gone.then_some(&json!(["other"])), "{answer:?}");
    }
}

#[tokio::test]
async fn a_cluster_has_its_endpoint_once() {
    let now = Instant::now();
    let endpoint = |port| ControlPlaneEndpoint { host: "a".into(), port };
    let done = |port| Ok(ClusterReport::done().with_control_plane_endpoint(endpoint(port)));
    let first = Outcome::of_cluster(&new(), &done(6443), 1, now);
    assert_eq!((first.endpoint, first.observed.is_done), (Some(endpoint(6443)), true));
    let has = object(json!({}), json!({"controlPlaneEndpoint": {"host": "a", "port": 6443}}));
    let again = Outcome::of_cluster(&has, &done(6443), 1, now);
    assert_eq!((again.endpoint, again.observed.is_done), (None, true));
    let other = Outcome::of_cluster(&has, &done(7443), 1, now);
    assert_eq!((other.endpoint, other.observed.is_done), (None, false));
    assert_eq!(other.observed.ready.reason, "ControlPlaneEndpointMismatch");
    assert_eq!(
        other.observed.ready.message,
        "the control plane's endpoint is a:6443, and the provider made a:7443"
    );
    let report = ClusterReport::done()
        .with_failure_domains([FailureDomain::new("a")])
        .with_wait(Wait::task("network"));
    let waiting = Outcome::of_cluster(&new(), &Ok(report), 1, now);
    assert_eq!((waiting.observed.is_done, waiting.blocks_move), (false, Some(true)));
    assert_eq!(waiting.observed.failure_domains, Some(vec![FailureDomain::new("a")]));
}

#[tokio::test]
async fn fields_of_a_clusters_spec_are_written_where_they_differ() {
    let report = ClusterReport::done()
        .with_spec_field("modules", json!(["a"]))
        .with_spec_field("zones", json!([{"name": "east"}]));
    let has = object(json!({}), json!({"modules": ["a"], "zones": [], "pool": "fast"}));
    let outcome = Outcome::of_cluster(&has, &Ok(report.clone()), 1, Instant::now());
    let patch = outcome.patch(&has, &KINDS, &KINDS.cluster).expect("a patch");
    assert_eq!(patch["spec"], json!({"zones": [{"name": "east"}]}));
    let has = object(json!({}), json!({"modules": ["a"], "zones": [{"name": "east"}]}));
    let outcome = Outcome::of_cluster(&has, &Ok(report), 1, Instant::now());
    assert_eq!(outcome.patch(&has, &KINDS, &KINDS.cluster), None);
}

#[tokio::test]
async fn only_what_differs_is_patched_and_only_on_this_version() {
    let now = Instant::now();
    let block = |value: &str| {
        object(
            json!({"annotations": {"clusterctl.cluster.x-k8s.io/block-move": value}}),
            json!({"providerID": "my:///1"}),
        )
    };
    let present = |wait: Option<Wait>| Ok(PresentMachine::new(instance()).with_wait(wait).into());
    let patch = |object: &InfraObject, wait: Option<Wait>| {
        after_machine(object, present(wait), now).patch(object, &KINDS, &KINDS.machine)
    };
    let this = |mut patch: Value| {
        patch["metadata"]["uid"] = json!("u-1");
        patch["metadata"]["resourceVersion"] = json!("7");
        Some(patch)
    };
    let annotation = |value: Value| json!({"annotations": {"clusterctl.cluster.x-k8s.io/block-move": value}});
    assert_eq!(patch(&existing(), None), None);
    assert_eq!(patch(&new(), None), this(json!({"spec": {"providerID": "my:///1"}})));
    assert_eq!(patch(&block("machine-controller"), None), this(json!({"metadata": annotation(Value::Null)})));
    assert_eq!(patch(&block("somebody"), None), None);
    let task = || Some(Wait::task("resize"));
    assert_eq!(patch(&block("machine-controller"), task()), None);
    assert_eq!(patch(&block("somebody"), task()), None);
    assert_eq!(
        patch(&existing(), task()),
        this(json!({"metadata": annotation(json!("machine-controller"))}))
    );
}

#[test]
fn finalizer_and_mark_are_one_write() {
    let uid = "infrastructure.cluster.x-k8s.io/uid";
    let cluster = "infrastructure.cluster.x-k8s.io/cluster-name";
    let labels = json!({"cluster.x-k8s.io/cluster-name": "prod"});
    let block = "clusterctl.cluster.x-k8s.io/block-move";
    let ours = "mymachine.infrastructure.cluster.x-k8s.io";
    for (metadata, kind, finalizers, annotations) in [
        (
            json!({"labels": labels}),
            &KINDS.machine,
            json!([ours]),
            json!({uid: "u-1", cluster: "prod", block: "machine-controller"}),
        ),
        (
            json!({"finalizers": ["other"], "labels": labels, "annotations": {uid: "u-0", block: "somebody"}}),
            &KINDS.machine,
            json!(["other", ours]),
            json!({uid: "u-0", cluster: "prod"}),
        ),
        (
            json!({}),
            &KINDS.cluster,
            json!(["mycluster.infrastructure.cluster.x-k8s.io"]),
            json!({uid: "u-1", cluster: "one"}),
        ),
    ] {
        let patch = adoption(&object(metadata, json!({})), &KINDS, kind);
        let expected = json!({"metadata": {
            "uid": "u-1", "resourceVersion": "7", "finalizers": finalizers, "annotations": annotations,
        }});
        assert_eq!(patch, expected);
    }
    let moved = adoption(&existing(), &KINDS, &KINDS.machine);
    assert!(moved["metadata"]["annotations"].get(block).is_none(), "its provider ID is written");
}

#[tokio::test]
async fn people_hear_of_each_change_once() {
    let now = Instant::now();
    let said = |status: &str, reason: &str| {
        let mut object = existing();
        let condition = json!({"type": "Ready", "status": status, "reason": reason, "message": "before"});
        object.status.insert("conditions".into(), json!([condition]));
        object
    };
    let lost = || Ok(MachineReport::lost("domain 1 is gone"));
    let event = after_machine(&said("True", "Ready"), lost(), now).event(&said("True", "Ready"));
    let expected = Event {
        event_type: EventType::Warning,
        reason: "MachineLost".into(),
        message: "domain 1 is gone".into(),
    };
    assert_eq!(event, Some(expected));
    let again = said("False", "MachineLost");
    assert_eq!(after_machine(&again, lost(), now).event(&again), None);
    let done = Ok(MachineReport::from(PresentMachine::new(instance())));
    let event = after_machine(&again, done, now).event(&again).expect("it is back");
    assert_eq!(
        (event.event_type, &*event.reason, &*event.message),
        (EventType::Normal, "Ready", "provisioned")
    );
    let failed = Err(Error::new(ErrorKind::Conflict, "a foreign domain"));
    let event = after_machine(&again, failed, now).event(&again).expect("it is new");
    assert_eq!((event.event_type, &*event.message), (EventType::Warning, "a foreign domain"));
}

#[tokio::test]
async fn a_wait_on_the_way_is_no_event() {
    let now = Instant::now();
    let creating = |wait: Wait| Ok(MachineReport::Creating(wait));
    let present = |wait: Wait| Ok(PresentMachine::new(instance()).with_wait(Some(wait)).into());
    let mut complete = existing();
    complete.status.insert("initialization".to_owned(), json!({"provisioned": true}));
    for (what, object, answer, expected) in [
        ("a clone", new(), creating(Wait::task("clone")), None),
        ("an address", existing(), present(Wait::address("no lease")), None),
        ("no room", new(), creating(Wait::capacity("full")), Some("WaitingForCapacity")),
        ("complete once", complete, present(Wait::address("no lease")), Some("WaitingForAddress")),
    ] {
        let event = after_machine(&object, answer, now).event(&object);
        assert_eq!(event.map(|event| event.reason), expected.map(str::to_owned), "{what}");
    }
    let deletion = Ok(Deletion::Deleting(Wait::task("power-off")));
    let event = Outcome::of_deletion(&deletion, 1, now).event(&existing());
    assert_eq!(event.map(|event| event.reason), Some("Deleting".to_owned()));
}

#[tokio::test]
async fn a_move_waits_for_a_task_that_is_not_told() {
    let now = Instant::now();
    let of = |wait: Wait| Outcome::of_deletion(&Ok(Deletion::Deleting(wait)), 0, now);
    let held = object(json!({"annotations": {BLOCK_MOVE_ANNOTATION: "somebody"}}), json!({}));
    assert_eq!(of(Wait::task("power-off")).hold(&held), None);
    assert_eq!(of(Wait::address("no task")).hold(&new()), None);
    let patch = of(Wait::task("power-off")).hold(&new()).expect("a patch");
    let expected = json!({
        "uid": "u-1", "resourceVersion": "7", "annotations": {BLOCK_MOVE_ANNOTATION: BLOCK_MOVE_VALUE},
    });
    assert_eq!(patch["metadata"], expected);
}

#[test]
fn trouble_with_companions_has_a_condition_of_its_own() {
    for (kind, reason) in [
        (ErrorKind::Unavailable, "NotWritten"),
        (ErrorKind::Conflict, "ForeignObject"),
        (ErrorKind::Unsupported, "Unsupported"),
    ] {
        let condition = about_owned(&Error::new(kind, "Guest default/one: why"));
        assert_eq!(
            (&*condition.condition_type, condition.status),
            ("CompanionsUpToDate", ConditionStatus::False)
        );
        assert_eq!(&*condition.reason, reason);
        assert!(condition.message.contains("Guest default/one: why"), "{}", condition.message);
    }
    let (now, soon) = (Instant::now(), Duration::from_secs(1));
    let (early, late) = (Due::At(now), Due::At(now + soon));
    for (one, other, expected) in
        [(early, late, early), (late, Due::WhenChanged, late), (late, Due::Now, Due::Now)]
    {
        assert_eq!((one.or(other), other.or(one)), (expected, expected));
    }
}

#[tokio::test]
async fn whose_something_foreign_is_only_the_log_says() {
    let found = Mark::machine("u-2", "team-b", "prod", "secret-name");
    let mark = Mark::machine("u-1", "team-a", "prod", "one");
    let error = || mark.conflict("domain \"one\"", Some(&found)).wrap("step");
    let ensured = after_machine(&new(), Err(error()), Instant::now());
    let deleted = Outcome::of_deletion(&Err(error()), 1, Instant::now());
    for outcome in [ensured, deleted] {
        let event = outcome.event(&new()).expect("an event").message;
        for told in [&*outcome.observed.ready.message, &event] {
            assert!(told.contains("belongs to another object"), "{told}");
            for foreign in ["u-2", "team-b", "secret-name"] {
                assert!(!told.contains(foreign), "{told}");
            }
        }
    }
    let owned = about_owned(&error()).message;
    assert!(owned.contains("another object") && !owned.contains("team-b"), "{owned}");
    assert!(error().log_report().contains("machine team-b/secret-name of cluster prod (uid u-2)"));
}
