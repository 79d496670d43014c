//! The part and a Go manager are started, stopped and killed at random times. Never do both write.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
};
use sandbox::{Action, Fault, Matcher};

use super::*;

const ROUNDS: usize = 200;
const SEED: u64 = 33;

/// One of the two programs.
enum Program {
    Down,
    Up { stop: CancellationToken, task: JoinHandle<()> },
}

/// Writes with this client at random times.
async fn writes(client: Client, writer: String) {
    loop {
        // What fails is tried again later.
        let _ = write(&client, &writer).await;
        sleep(Duration::from_millis(fastrand::u64(20..2_000))).await;
    }
}

async fn ours(gate: Gate, stop: CancellationToken) {
    let identity = gate.options.election.identity.clone();
    let controllers = move |term: PartTerm, stop: CancellationToken, inspection: Inspection| {
        let writing = writes(term.clients.client.clone(), identity.clone());
        let work = async move {
            tokio::select! {
                () = stop.cancelled() => Ok(()),
                () = inspection.beside(writing) => Ok(()),
            }
        };
        Box::pin(work) as BoxFuture<'static, cloudprovider::Result<()>>
    };
    let inspection = gate.inspection();
    run(gate, stop, inspection, controllers).await.expect("a clean end");
}

/// As client-go: the process ends when leadership is lost, and is started again.
async fn go(sandbox: Sandbox, identity: String, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let elector = go_manager(&sandbox, &CORE, "capi-system", &identity);
        let Some(mut leadership) = elector.acquire(&stop).await else { return };
        tokio::select! {
            biased;
            () = leadership.renew() => {}
            () = stop.cancelled() => leadership.release().await,
            () = writes(sandbox.client(), identity.clone()) => {}
        }
    }
}

/// Starts, stops or kills a program.
async fn change(program: &mut Program, start: impl FnOnce(CancellationToken) -> JoinHandle<()>) {
    *program = match std::mem::replace(program, Program::Down) {
        Program::Down => {
            let stop = CancellationToken::new();
            let task = start(stop.clone());
            Program::Up { stop, task }
        }
        Program::Up { stop, task } => {
            if fastrand::bool() {
                task.abort();
            } else {
                stop.cancel();
            }
            if let Err(error) = task.await {
                assert!(error.is_cancelled(), "{error}");
            }
            Program::Down
        }
    };
}

fn version(object: &impl kube::Resource) -> u64 {
    object.meta().resource_version.as_deref().and_then(|version| version.parse().ok()).expect("a version")
}

#[tokio::test(start_paused = true)]
async fn two_hundred_rounds_without_two_writers() {
    fastrand::seed(SEED);
    let sandbox = Sandbox::new();
    namespace(&sandbox, "capi-system", Some("cluster-api")).await;
    sandbox.faults().seed(SEED);
    // The Lease's history, by version.
    let holders: Arc<Mutex<BTreeMap<u64, String>>> = Arc::default();
    let history = {
        let (holders, client) = (Arc::clone(&holders), sandbox.client());
        tokio::spawn(async move {
            let leases: Api<Lease> = Api::namespaced(client, "capi-system");
            let mut from = "0".to_owned();
            loop {
                // A fault may hit this watch too. It goes on where it was.
                let Ok(events) = leases.watch(&WatchParams::default(), &from).await else {
                    sleep(SECOND).await;
                    continue;
                };
                let mut events = events.boxed();
                while let Ok(Some(event)) = events.try_next().await {
                    let (WatchEvent::Added(lease) | WatchEvent::Modified(lease)) = event else { continue };
                    from = lease.resource_version().expect("a version");
                    let holder = lease.spec.clone().and_then(|spec| spec.holder_identity).unwrap_or_default();
                    holders.lock().insert(version(&lease), holder);
                }
            }
        })
    };
    for fault in [
        Fault::new(Matcher::any().resource("leases").verb("update"), Action::Delay(3 * SECOND))
            .probability(0.05),
        Fault::new(Matcher::any().resource("leases"), Action::InternalError).probability(0.05),
        Fault::new(Matcher::any().resource("leases").verb("update"), Action::LoseResponse).probability(0.05),
        Fault::new(Matcher::any().resource("configmaps"), Action::Delay(SECOND)).probability(0.1),
    ] {
        sandbox.faults().inject(fault);
    }
    let (mut part, mut manager) = (Program::Down, Program::Down);
    for round in 0..ROUNDS {
        if fastrand::bool() {
            change(&mut part, |stop| {
                tokio::spawn(ours(gate(&sandbox, &CORE, &format!("ours_{round}")), stop))
            })
            .await;
        } else {
            change(&mut manager, |stop| tokio::spawn(go(sandbox.clone(), format!("go_{round}"), stop))).await;
        }
        if fastrand::u8(..5) == 0 {
            // The leader cannot renew, and goes on otherwise.
            let renewals = Matcher::any().resource("leases").verb("update");
            sandbox
                .faults()
                .inject(Fault::new(renewals, Action::ServiceUnavailable).times(fastrand::u64(5..30)));
        }
        sleep(Duration::from_millis(fastrand::u64(0..40_000))).await;
    }
    sandbox.faults().clear();
    let maps: Api<ConfigMap> = Api::namespaced(sandbox.client(), "default");
    let written = maps.list(&ListParams::default()).await.expect("listed");
    sleep(10 * SECOND).await;
    history.abort();
    let holders = holders.lock();
    let mut writers: BTreeMap<&str, usize> = BTreeMap::new();
    for object in &written.items {
        let writer = object.data.as_ref().and_then(|data| data.get("writer")).expect("a writer");
        let at = version(object);
        let holder = holders.range(..at).next_back().map(|(_, holder)| holder);
        assert_eq!(holder, Some(writer), "written at version {at}");
        *writers.entry(if writer.starts_with("ours") { "ours" } else { "go" }).or_default() += 1;
    }
    let transitions = holders.values().collect::<std::collections::BTreeSet<_>>().len();
    assert!(writers.len() == 2 && writers.values().all(|count| *count > 200), "{writers:?}");
    assert!(transitions > 40, "{transitions} holders");
}
