use cloudprovider::LoadBalancerIngress;
use controller_kit::services::LOAD_BALANCER_CLEANUP_FINALIZER;
use serde_json::{Value, json};

use super::*;
use crate::controllers::service::memory::Retry;

const AN_HOUR: Duration = Duration::from_secs(3600);

fn address(ip: &str) -> cloudprovider::LoadBalancerStatus {
    let ingress = LoadBalancerIngress { ip: Some(ip.into()), ..LoadBalancerIngress::default() };
    cloudprovider::LoadBalancerStatus { ingress: vec![ingress] }
}

/// A Service that is as it should be, with these changes.
fn service(changes: &[(&str, Value)]) -> Service {
    let mut json = json!({
        "metadata": {
            "namespace": "a", "name": "b", "uid": "u", "resourceVersion": "5",
            "finalizers": [LOAD_BALANCER_CLEANUP_FINALIZER], "deletionTimestamp": null, "annotations": {},
        },
        "spec": {"type": "LoadBalancer", "loadBalancerClass": null, "ports": [{"port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}},
    });
    for (place, value) in changes {
        *json.pointer_mut(place).expect(place) = value.clone();
    }
    Service::from_json(json)
}

const TYPE: &str = "/spec/type";
const CLASS: &str = "/spec/loadBalancerClass";
const UID: &str = "/metadata/uid";
const VERSION: &str = "/metadata/resourceVersion";
const FINALIZERS: &str = "/metadata/finalizers";
const DELETED: &str = "/metadata/deletionTimestamp";
const STATUS: &str = "/status/loadBalancer";
const ANNOTATIONS: &str = "/metadata/annotations";
const PORTS: &str = "/spec/ports";

fn cluster_ip() -> (&'static str, Value) {
    (TYPE, json!("ClusterIP"))
}

fn deleted() -> (&'static str, Value) {
    (DELETED, json!("2026-01-02T03:04:05Z"))
}

struct Case {
    world: World,
    memory: Memory,
}

impl Case {
    /// Everything is settled.
    fn new() -> Self {
        let nodes = Arc::new(vec![("n1".to_owned(), None)]);
        let world = World { nodes: nodes.clone(), provider: 0, retries: 0, now: Instant::now() + AN_HOUR };
        let mut memory = Memory::new(&Arc::new(service(&[])), 0);
        memory.standing = Standing::Ensured(address("192.0.2.1"));
        (memory.may_exist, memory.nodes) = (true, Some(nodes));
        Self { world, memory }
    }

    fn standing(standing: Standing) -> Self {
        let mut case = Self::new();
        case.memory.standing = standing;
        case
    }

    /// This action failed and is tried again after this time.
    fn retrying(mut self, action: Action, after: Duration) -> Self {
        self.memory.retry = Some(Retry { action, at: self.world.now + after, is_asked: false });
        self
    }

    fn other_nodes(mut self) -> Self {
        self.world.nodes = Arc::default();
        self
    }

    fn next(&self, changes: &[(&str, Value)]) -> Next {
        next(Some(&service(changes)), Some(&self.memory), &self.world)
    }

    fn next_when_gone(&self) -> Next {
        next(None, Some(&self.memory), &self.world)
    }

    fn at(&self, after: Duration, action: Action) -> Next {
        Next::At(self.world.now + after, action)
    }
}

#[test]
fn without_memory() {
    let world = Case::new().world;
    let none = || (FINALIZERS, json!([]));
    for (changes, expected) in [
        (vec![], Next::Now(Action::Ensure)),
        (vec![none()], Next::Now(Action::Ensure)),
        // It may have been ours before.
        (vec![(CLASS, json!("x/y"))], Next::Now(Action::CleanUp)),
        (vec![(CLASS, json!("x/y")), none()], Next::Forget),
        (vec![cluster_ip(), none()], Next::Forget),
        (vec![cluster_ip()], Next::Now(Action::CleanUp)),
        (vec![deleted()], Next::Now(Action::CleanUp)),
        // Never seen with a load balancer, and being deleted: nothing is begun.
        (vec![deleted(), none()], Next::Forget),
    ] {
        assert_eq!(next(Some(&service(&changes)), None, &world), expected, "{changes:?}");
    }
    assert_eq!(next(None, None, &world), Next::Forget);
}

#[test]
fn what_is_settled_waits() {
    let case = Case::new();
    assert_eq!(case.next(&[]), Next::Wait);
    assert_eq!(case.next(&[(VERSION, json!("9"))]), Next::Wait);
    assert_eq!(Case::standing(Standing::Elsewhere).next(&[(VERSION, json!("9"))]), Next::Wait);
    for standing in [Standing::Unsupported, Standing::Rehearsed] {
        assert_eq!(Case::standing(standing.clone()).next(&[(STATUS, json!({}))]), Next::Wait, "{standing:?}");
    }
}

#[test]
fn changes_are_told_at_once() {
    let changes = [(ANNOTATIONS, json!({"k": "v"})), (PORTS, json!([{"port": 81}]))];
    for change in changes {
        for standing in [
            Standing::Ensured(address("192.0.2.1")),
            Standing::Due,
            Standing::Elsewhere,
            Standing::Unsupported,
            Standing::Rehearsed,
        ] {
            let case = Case::standing(standing).retrying(Action::Ensure, AN_HOUR);
            assert_eq!(case.next(std::slice::from_ref(&change)), Next::Now(Action::Ensure), "{change:?}");
        }
    }
    let mut case = Case::standing(Standing::Unsupported);
    case.world.provider = 1;
    assert_eq!(case.next(&[]), Next::Now(Action::Ensure), "another provider may be able to");
}

#[test]
fn our_own_write_is_waited_for() {
    let mut case = Case::new();
    case.memory.written = Some("6".to_owned());
    let old = [(STATUS, json!({})), (ANNOTATIONS, json!({"k": "v"}))];
    let again = Next::LookAt(case.world.now + LOOK_INTERVAL);
    assert_eq!(case.next(&old), again, "what shows it may be no news");
    let shown = [&old[..], &[(VERSION, json!("6"))]].concat();
    assert_eq!(case.next(&shown), Next::Now(Action::Ensure));
}

#[test]
fn nodes_are_told_of() {
    assert_eq!(Case::new().other_nodes().next(&[]), Next::Now(Action::UpdateNodes));
    assert_eq!(Case::standing(Standing::Rehearsed).other_nodes().next(&[]), Next::Now(Action::UpdateNodes));
    for standing in [Standing::Elsewhere, Standing::Unsupported] {
        // There may be a load balancer of before.
        let mut case = Case::standing(standing).other_nodes();
        assert_eq!(case.next(&[]), Next::Now(Action::UpdateNodes));
        case.memory.was_ensured = false;
        assert_eq!(case.next(&[]), Next::Wait);
        case.memory.was_ensured = true;
        let case = case.retrying(Action::UpdateNodes, AN_HOUR);
        assert_eq!(case.next(&[]), case.at(AN_HOUR, Action::UpdateNodes));
    }
    // A failing load balancer is told too. One that is ensured anyway is not told before.
    let due = || Case::standing(Standing::Due);
    assert_eq!(due().other_nodes().next(&[]), Next::Now(Action::Ensure));
    let waiting = due().retrying(Action::Ensure, AN_HOUR).other_nodes();
    assert_eq!(waiting.next(&[]), Next::Now(Action::UpdateNodes));
}

#[test]
fn a_failure_is_tried_again_in_time() {
    let due = || Case::standing(Standing::Due);
    assert_eq!(due().next(&[]), Next::Now(Action::Ensure));
    let waiting = due().retrying(Action::Ensure, AN_HOUR);
    assert_eq!(waiting.next(&[]), waiting.at(AN_HOUR, Action::Ensure));
    assert_eq!(due().retrying(Action::Ensure, Duration::ZERO).next(&[]), Next::Now(Action::Ensure));
    // The wait of one action is not that of another.
    let mut cleaning = due().retrying(Action::CleanUp, AN_HOUR);
    assert_eq!(cleaning.next(&[deleted()]), Next::Now(Action::CleanUp), "it has changed");
    cleaning.memory.told = Arc::new(service(&[deleted()]));
    assert_eq!(cleaning.next(&[deleted()]), cleaning.at(AN_HOUR, Action::CleanUp));
    let little = [cluster_ip(), (FINALIZERS, json!([]))];
    assert_eq!(cleaning.next(&little), cleaning.at(AN_HOUR, Action::CleanUp), "too little is known of it");
    assert_eq!(cleaning.next(&[]), Next::Now(Action::Ensure));
    assert_eq!(waiting.next(&[deleted()]), Next::Now(Action::CleanUp));
}

#[test]
fn what_waits_is_tried_again_when_the_provider_asks_for_it() {
    for (standing, next) in [
        (Standing::Due, Next::Now(Action::Ensure)),
        (Standing::Unsupported, Next::Now(Action::Ensure)),
        (Standing::Ensured(address("192.0.2.1")), Next::Wait),
        (Standing::Elsewhere, Next::Wait),
        (Standing::Rehearsed, Next::Wait),
    ] {
        let mut case = Case::standing(standing.clone()).retrying(Action::Ensure, AN_HOUR);
        case.world.retries = 1;
        assert_eq!(case.next(&[]), next, "{standing:?}");
        // This try had the news.
        case.memory.retries = 1;
        let again = if standing == Standing::Due { case.at(AN_HOUR, Action::Ensure) } else { Next::Wait };
        assert_eq!(case.next(&[]), again, "{standing:?}");
    }
}

#[test]
fn what_waits_for_more_is_tried_again_when_the_provider_asks_for_it() {
    for standing in [Standing::Ensured(address("192.0.2.1")), Standing::Elsewhere] {
        let mut case = Case::standing(standing);
        case.memory.waits_for_more = true;
        assert_eq!(case.next(&[]), Next::Wait, "there is no news");
        case.world.retries = 1;
        assert_eq!(case.next(&[]), Next::Now(Action::Ensure));
        case.memory.retries = 1;
        assert_eq!(case.next(&[]), Next::Wait, "this try had the news");
    }
}

#[test]
fn an_address_that_another_component_shows_no_longer_is_told() {
    let case = Case::standing(Standing::Elsewhere);
    let ingress = |addresses: &[&str]| {
        let all: Vec<_> = addresses.iter().map(|address| json!({"ip": address})).collect();
        [(STATUS, json!({"ingress": all}))]
    };
    for (shown, next) in [
        (ingress(&["192.0.2.1"]), Next::Wait),
        (ingress(&["192.0.2.2", "192.0.2.1"]), Next::Wait),
        (ingress(&["192.0.2.2"]), Next::Now(Action::Ensure)),
        (ingress(&[]), Next::Now(Action::Ensure)),
    ] {
        assert_eq!(case.next(&shown), next, "{shown:?}");
        // The provider was told of this status.
        let mut told = Case::standing(Standing::Elsewhere);
        told.memory.told = Arc::new(service(&shown));
        assert_eq!(told.next(&shown), Next::Wait, "{shown:?}");
    }
}

#[test]
fn what_somebody_changed_is_brought_back() {
    let other = json!({"ingress": [{"ip": "192.0.2.9"}]});
    for change in [(STATUS, json!({})), (STATUS, other), (FINALIZERS, json!(["x/y"]))] {
        let mut case = Case::new();
        let change = [change];
        assert_eq!(case.next(&change), Next::Now(Action::Repair), "{change:?}");
        case.memory.repaired = Some(case.world.now - REPAIR_INTERVAL);
        assert_eq!(case.next(&change), Next::Now(Action::Repair), "{change:?}");
        let second = Duration::from_secs(1);
        case.memory.repaired = Some(case.world.now - second);
        assert_eq!(case.next(&change), case.at(Duration::from_secs(14), Action::Repair), "{change:?}");
        case.memory.verify_at = Some(case.world.now + second);
        assert_eq!(case.next(&change), case.at(second, Action::Verify), "{change:?}");
        let waiting = case.retrying(Action::Repair, AN_HOUR);
        assert_eq!(waiting.next(&change), waiting.at(second, Action::Verify));
    }
}

#[test]
fn a_load_balancer_is_verified_in_its_time() {
    let mut case = Case::new();
    case.memory.verify_at = Some(case.world.now + AN_HOUR);
    assert_eq!(case.next(&[]), case.at(AN_HOUR, Action::Verify));
    case.memory.verify_at = Some(case.world.now);
    assert_eq!(case.next(&[]), Next::Now(Action::Verify));
    case.memory.standing = Standing::Elsewhere;
    assert_eq!(case.next(&[]), Next::Wait);
}

#[test]
fn the_end_of_a_load_balancer() {
    let none = || (FINALIZERS, json!([]));
    for standing in
        [Standing::Ensured(address("192.0.2.1")), Standing::Due, Standing::Elsewhere, Standing::Unsupported]
    {
        let case = Case::standing(standing);
        for changes in [
            vec![deleted()],
            vec![cluster_ip()],
            // Somebody removed the finalizer meanwhile.
            vec![deleted(), none()],
            vec![cluster_ip(), none()],
            vec![(CLASS, json!("x/y"))],
        ] {
            assert_eq!(case.next(&changes), Next::Now(Action::CleanUp), "{changes:?}");
        }
        assert_eq!(case.next_when_gone(), Next::Now(Action::DeleteOld));
        assert_eq!(case.next(&[(UID, json!("other"))]), Next::Now(Action::DeleteOld));
    }
    let failing = Case::new().retrying(Action::DeleteOld, AN_HOUR);
    assert_eq!(failing.next_when_gone(), failing.at(AN_HOUR, Action::DeleteOld));
    let mut other_provider = failing;
    other_provider.world.provider = 1;
    assert_eq!(other_provider.next_when_gone(), Next::Now(Action::DeleteOld));
    let mut never = Case::new();
    never.memory.may_exist = false;
    assert_eq!(never.next_when_gone(), Next::Forget);
    assert_eq!(never.next(&[(UID, json!("other"))]), Next::Now(Action::Ensure));
    assert_eq!(never.next(&[cluster_ip(), none()]), Next::Forget);
}

#[test]
fn what_is_cleaned_up_is_done() {
    let mut case = Case::standing(Standing::CleanedUp);
    case.memory.may_exist = false;
    case.memory.told = Arc::new(service(&[deleted()]));
    assert_eq!(case.next(&[deleted()]), Next::Wait, "the watch has not shown it yet");
    case.memory.written = Some("6".to_owned());
    assert_eq!(case.next(&[deleted()]), Next::LookAt(case.world.now + LOOK_INTERVAL));
    let shown = (VERSION, json!("7"));
    assert_eq!(case.next(&[shown.clone(), cluster_ip(), (FINALIZERS, json!([]))]), Next::Forget);
    assert_eq!(case.next(&[shown.clone(), (FINALIZERS, json!([]))]), Next::Now(Action::Ensure));
    assert_eq!(
        case.next(&[shown, deleted()]),
        Next::Now(Action::CleanUp),
        "somebody added the finalizer again"
    );
    assert_eq!(case.next_when_gone(), Next::Forget);
}

#[test]
fn another_class_with_our_finalizer_is_looked_at_once() {
    let mut case = Case::standing(Standing::NotOurs);
    case.memory.may_exist = false;
    let class = || (CLASS, json!("x/y"));
    assert_eq!(case.next(&[class()]), Next::Wait);
    // The first look failed.
    let mut failed = Case::standing(Standing::Due).retrying(Action::CleanUp, AN_HOUR);
    failed.memory.may_exist = false;
    failed.memory.told = Arc::new(service(&[class()]));
    assert_eq!(failed.next(&[class()]), failed.at(AN_HOUR, Action::CleanUp));
    assert_eq!(case.next(&[class(), deleted()]), Next::Now(Action::CleanUp));
    assert_eq!(case.next(&[]), Next::Now(Action::Ensure));
}
