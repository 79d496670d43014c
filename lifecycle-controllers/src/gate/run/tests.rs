//! A part beside a second elector, which plays the Go manager.

mod rounds;

use std::{sync::Arc, time::Duration};

use component::{
    events::{EventMetrics, event_recorder},
    metrics::MetricSet as _,
};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, Time},
};
use kube::api::PostParams;
use parking_lot::Mutex;
use sandbox::Sandbox;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::{
    super::part::{BOOTSTRAP, CORE},
    *,
};

const SECOND: Duration = Duration::from_secs(1);
const OWN: &str = "kube-system";

fn recorder(sandbox: &Sandbox) -> EventRecorder {
    let metrics = EventMetrics::unregistered().expect("metrics");
    let daemon = EventObject::lease(OWN, "ccm", "");
    let (events, writer) = event_recorder("ccm", sandbox.client(), daemon, metrics);
    tokio::spawn(writer.run(CancellationToken::new()));
    events
}

fn options(identity: &str, namespace: &str, name: &str) -> LeaderElectionOptions {
    LeaderElectionOptions {
        identity: identity.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        lease_duration: 15 * SECOND,
        renew_deadline: 10 * SECOND,
        retry_period: 2 * SECOND,
    }
}

fn gate(sandbox: &Sandbox, part: &'static Part, identity: &str) -> Gate {
    let client = sandbox.client();
    Gate {
        part,
        options: GateOptions {
            election: options(identity, OWN, "ccm"),
            namespace: None,
            dry_run: false,
            field_manager: "cloud-controller-manager".to_owned(),
        },
        fence: TermFence::default(),
        election: client.clone(),
        clients: ControllerClients { client: client.clone(), unthrottled: client },
        events: recorder(sandbox),
        events_from: "lifecycle",
        metrics: ElectionMetrics::unregistered().expect("metrics"),
        health: HealthChecks::new(),
        debug_state: DebugState::new(),
    }
}

/// The Go manager's part in the election.
fn go_manager(sandbox: &Sandbox, part: &Part, namespace: &str, identity: &str) -> Elector {
    let metrics = ElectionMetrics::unregistered().expect("metrics");
    Elector::new(sandbox.client(), options(identity, namespace, part.lease), &recorder(sandbox), metrics)
}

async fn namespace(sandbox: &Sandbox, name: &str, label: Option<&str>) {
    let labels = label.map(|label| [("cluster.x-k8s.io/provider".to_owned(), label.to_owned())].into());
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() };
    let object = Namespace { metadata, ..Namespace::default() };
    Api::all(sandbox.client()).create(&PostParams::default(), &object).await.expect("created");
}

async fn write(client: &Client, writer: &str) -> kube::Result<ConfigMap> {
    let object: ConfigMap = serde_json::from_value(json!({
        "metadata": {"generateName": "write-"}, "data": {"writer": writer},
    }))
    .expect("a ConfigMap");
    Api::namespaced(client.clone(), "default").create(&PostParams::default(), &object).await
}

async fn holder(sandbox: &Sandbox, part: &Part, namespace: &str) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(sandbox.client(), namespace);
    let lease = leases.get_opt(part.lease).await.expect("answered")?;
    Some(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default())
}

/// A part that runs. Its controllers do nothing.
struct Running {
    gate: Gate,
    /// The terms that began.
    terms: Arc<Mutex<Vec<PartTerm>>>,
    stop: CancellationToken,
    task: JoinHandle<cloudprovider::Result<()>>,
}

impl Running {
    fn start(gate: Gate) -> Self {
        let (stop, terms) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
        let begun = Arc::clone(&terms);
        let controllers = move |term: PartTerm, stop: CancellationToken, mut inspection: Inspection| {
            begun.lock().push(term);
            let work = async move {
                loop {
                    tokio::select! {
                        () = stop.cancelled() => return Ok(()),
                        question = inspection.question() => question.answer(json!({"works": true})),
                    }
                }
            };
            Box::pin(work) as BoxFuture<'static, cloudprovider::Result<()>>
        };
        let task = tokio::spawn(run(gate.clone(), stop.clone(), gate.inspection(), controllers));
        Self { gate, terms, stop, task }
    }

    fn terms(&self) -> usize {
        self.terms.lock().len()
    }

    async fn begins(&self, number: usize) -> PartTerm {
        let began = async {
            loop {
                if let Some(term) = self.terms.lock().get(number - 1) {
                    return term.clone();
                }
                sleep(SECOND / 100).await;
            }
        };
        timeout(3600 * SECOND, began).await.expect("a term begins")
    }

    fn check(&self) -> Result<(), String> {
        let name = self.gate.part.check_name();
        let checks = self.gate.health.all();
        let (.., check) = checks.into_iter().find(|(known, ..)| *known == name).expect("a check");
        check()
    }

    async fn debug(&self) -> Value {
        self.gate.debug_state.ask().await
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("no panic").expect("a clean end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_waits_for_the_go_manager_and_begins_when_that_releases() {
    let sandbox = Sandbox::new();
    namespace(&sandbox, "capi-system", None).await;
    let never = CancellationToken::new();
    let mut go = go_manager(&sandbox, &CORE, "capi-system", "go_1").acquire(&never).await.expect("it leads");
    let part = Running::start(gate(&sandbox, &CORE, "ours"));
    assert!(timeout(60 * SECOND, go.renew()).await.is_err(), "it goes on leading");
    assert_eq!(part.terms(), 0);
    assert_eq!(part.check(), Err("held by go_1".to_owned()));
    let shown = part.debug().await;
    assert_eq!(shown["lifecycle-core-lease"]["state"], "held by go_1");
    assert_eq!(
        shown["lifecycle-core-lease"]["leases"][0]["lease"],
        "capi-system/controller-leader-election-capi"
    );
    assert_eq!(shown["lifecycle-core"]["state"], "held by go_1", "the loop of the gate answers");
    let released = Instant::now();
    go.release().await;
    let term = part.begins(1).await;
    assert!(released.elapsed() < SECOND, "{:?}", released.elapsed());
    assert_eq!(part.check(), Ok(()));
    assert_eq!(part.debug().await["lifecycle-core"]["works"], true);
    write(&term.clients.client, "ours").await.expect("it leads");
    assert_eq!(term.fence.pass(std::future::ready(1)).await, Ok(1));
    part.stop().await;
    assert_eq!(holder(&sandbox, &CORE, "capi-system").await.as_deref(), Some(""), "released");
    write(&term.clients.client, "ours").await.expect_err("the term is over");
    assert!(term.fence.pass(std::future::ready(1)).await.is_err());
    assert_eq!(holder(&sandbox, &CORE, OWN).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_ends_the_controllers_and_the_part_is_a_candidate_again() {
    let sandbox = Sandbox::new();
    namespace(&sandbox, "capi-system", None).await;
    let core = Running::start(gate(&sandbox, &CORE, "ours"));
    let other = Running::start(gate(&sandbox, &BOOTSTRAP, "ours"));
    let (first, _) = (core.begins(1).await, other.begins(1).await);
    let leases: Api<Lease> = Api::namespaced(sandbox.client(), "capi-system");
    let taken = json!({"spec": {"holderIdentity": "go_1", "leaseDurationSeconds": 15}});
    let patch = kube::api::Patch::Merge(taken);
    leases.patch(CORE.lease, &kube::api::PatchParams::default(), &patch).await.expect("taken from it");
    sleep(3 * SECOND).await;
    assert_eq!(core.check(), Err("held by go_1".to_owned()));
    write(&first.clients.client, "ours").await.expect_err("the term is over");
    assert_eq!((core.terms(), other.terms()), (1, 1));
    assert_eq!(other.check(), Ok(()), "the other part goes on");
    // Nobody renews it.
    let second = core.begins(2).await;
    write(&second.clients.client, "ours").await.expect("it leads");
    write(&first.clients.client, "ours").await.expect_err("a term that is over does not begin again");
}

#[tokio::test(start_paused = true)]
async fn without_a_namespace_the_lease_is_beside_the_daemons_until_one_appears() {
    let sandbox = Sandbox::new();
    let part = Running::start(gate(&sandbox, &BOOTSTRAP, "ours"));
    let first = part.begins(1).await;
    assert_eq!(holder(&sandbox, &BOOTSTRAP, OWN).await.as_deref(), Some("ours"));
    namespace(&sandbox, "a", Some("bootstrap-kubeadm")).await;
    let go = go_manager(&sandbox, &BOOTSTRAP, "a", "go_1");
    let second = part.begins(2).await;
    write(&first.clients.client, "ours").await.expect_err("the first term is over");
    write(&second.clients.client, "ours").await.expect("the second is not");
    assert_eq!(holder(&sandbox, &BOOTSTRAP, "a").await.as_deref(), Some("ours"));
    let never = CancellationToken::new();
    assert!(timeout(60 * SECOND, go.acquire(&never)).await.is_err(), "the Go manager waits");
    part.stop().await;
}

#[tokio::test(start_paused = true)]
async fn of_several_leases_all_are_held_or_none() {
    let sandbox = Sandbox::new();
    let never = CancellationToken::new();
    for name in ["a", "b"] {
        namespace(&sandbox, name, Some("cluster-api")).await;
    }
    let mut go = go_manager(&sandbox, &CORE, "b", "go_b").acquire(&never).await.expect("it leads");
    let part = Running::start(gate(&sandbox, &CORE, "ours"));
    assert!(timeout(20 * SECOND, go.renew()).await.is_err(), "it goes on leading");
    assert_eq!(part.check(), Err("held by go_b".to_owned()));
    // The other manager can work.
    let other = go_manager(&sandbox, &CORE, "a", "go_a").acquire(&never);
    let mut other = timeout(60 * SECOND, other).await.expect("in time").expect("it leads");
    let both = async { tokio::join!(go.renew(), other.renew()) };
    assert!(timeout(20 * SECOND, both).await.is_err(), "they go on leading");
    assert_eq!(part.terms(), 0);
    go.release().await;
    assert!(timeout(20 * SECOND, other.renew()).await.is_err(), "it goes on leading");
    assert_eq!(part.terms(), 0, "one is not enough");
    other.release().await;
    let term = part.begins(1).await;
    for name in ["a", "b"] {
        assert_eq!(holder(&sandbox, &CORE, name).await.as_deref(), Some("ours"), "{name}");
    }
    write(&term.clients.client, "ours").await.expect("it leads");
    // One of them is enough to end the term.
    let leases: Api<Lease> = Api::namespaced(sandbox.client(), "a");
    let taken = json!({"spec": {"holderIdentity": "go_a"}});
    let patch = kube::api::Patch::Merge(taken);
    leases.patch(CORE.lease, &kube::api::PatchParams::default(), &patch).await.expect("taken from it");
    sleep(3 * SECOND).await;
    write(&term.clients.client, "ours").await.expect_err("the term is over");
    assert_eq!(part.check(), Err("held by go_a".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_manager_without_an_election_stops_the_part_where_it_writes_until_it_is_quiet() {
    let sandbox = Sandbox::new();
    namespace(&sandbox, "capi-system", None).await;
    let part = Running::start(gate(&sandbox, &CORE, "ours"));
    let term = part.begins(1).await;
    let object = ObjectMeta {
        namespace: Some("default".to_owned()),
        name: Some("b".to_owned()),
        managed_fields: Some(vec![ManagedFieldsEntry {
            manager: Some("manager".to_owned()),
            subresource: Some("status".to_owned()),
            time: Some(Time(term.since + jiff::SignedDuration::from_secs(60))),
            ..ManagedFieldsEntry::default()
        }]),
        ..ObjectMeta::default()
    };
    let workload = term.fence.guard_workload("default", sandbox.client());
    let of_other = term.fence.guard_workload("team", sandbox.client());
    write(&workload, "ours").await.expect("nobody else writes");
    term.writers.saw("Cluster", &object);
    sleep(SECOND).await;
    let why = part.debug().await[CORE.check_name()]["state"].as_str().unwrap_or_default().to_owned();
    assert!(
        why.starts_with("stopped in namespace default: \"manager\" wrote Cluster default/b at "),
        "{why}"
    );
    assert_eq!(
        part.check(),
        Ok(()),
        "a user of one namespace does not decide on the readiness of the daemon"
    );
    for client in [&term.clients.client, &term.clients.unthrottled, &workload] {
        let error = write(client, "ours").await.expect_err("no tug of war");
        assert!(format!("{error:?}").contains("ForeignManagerWorks"), "{error:?}");
    }
    write(&of_other, "ours").await.expect("the workload clusters of other namespaces");
    namespace(&sandbox, "team", None).await;
    let elsewhere: Api<ConfigMap> = Api::namespaced(term.clients.client.clone(), "team");
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("a ConfigMap");
    elsewhere.create(&PostParams::default(), &map).await.expect("other namespaces");
    Api::<ConfigMap>::namespaced(term.clients.client.clone(), "default")
        .list(&kube::api::ListParams::default())
        .await
        .expect("reads go on");
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(sandbox.client(), "capi-system");
    let events = events.list(&kube::api::ListParams::default()).await.expect("listed");
    assert!(events.items.iter().any(|event| event.reason.as_deref() == Some(FOREIGN_MANAGER)));
    sleep(QUIET).await;
    assert_eq!((part.check(), part.terms()), (Ok(()), 1));
    write(&term.clients.client, "ours").await.expect("quiet");
    part.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_holds_nothing() {
    let sandbox = Sandbox::new();
    let mut gate = gate(&sandbox, &CORE, "ours");
    gate.options.dry_run = true;
    let part = Running::start(gate);
    sleep(3600 * SECOND).await;
    assert_eq!((holder(&sandbox, &CORE, OWN).await, part.check(), part.terms()), (None, Ok(()), 0));
    part.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_goes_on_keeps_the_lease() {
    let sandbox = Sandbox::new();
    let gate = gate(&sandbox, &CORE, "ours");
    let stop = CancellationToken::new();
    let goes_on = || cloudprovider::Error::new(cloudprovider::ErrorKind::Unavailable, "a drain goes on");
    let controllers = move |_: PartTerm, stop: CancellationToken, _: Inspection| {
        let work = async move {
            stop.cancelled().await;
            Err(goes_on())
        };
        Box::pin(work) as BoxFuture<'static, cloudprovider::Result<()>>
    };
    let task = tokio::spawn(run(gate.clone(), stop.clone(), gate.inspection(), controllers));
    sleep(5 * SECOND).await;
    stop.cancel();
    task.await.expect("no panic").expect_err("it says so");
    assert_eq!(holder(&sandbox, &CORE, OWN).await.as_deref(), Some("ours"));
}
