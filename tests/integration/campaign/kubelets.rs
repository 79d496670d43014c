//! Kubelets, and kube-controller-manager's reaction to silent ones.

use std::time::Duration;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use sandbox::kubelet::{self, LEASE_NAMESPACE};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::world::{Machine, Mark, SECOND, World, micros, now};
use crate::support::set_ready_unknown;

/// The interval at which a kubelet checks for work.
const TICK: Duration = Duration::from_millis(150);
/// The timeout of a kubelet's requests.
const TIMEOUT: Duration = Duration::from_secs(10);
/// After this time kube-controller-manager marks a silent kubelet. Shorter than in a cluster (50 s), so that
/// more happens.
const GRACE: i64 = 9 * SECOND;

/// What the kubelet of one place has done so far.
#[derive(Default)]
struct Done {
    generation: u32,
    uid: Option<String>,
    /// The status that the Node shows.
    ready: Option<bool>,
    renew_at: Option<Instant>,
}

/// Runs the kubelet of one place until stopped. It starts and ends as the world says.
pub(super) async fn run(number: usize, world: World, client: Client, stop: CancellationToken) {
    let mut done = Done::default();
    let mut wait = Duration::ZERO;
    while stop.run_until_cancelled(sleep(TICK + wait)).await.is_some() {
        wait = match step(number, &world, &client, &mut done).await {
            Ok(()) => Duration::ZERO,
            // retries with backoff, as a kubelet does
            Err(_) => (wait * 2).clamp(Duration::from_millis(100), Duration::from_secs(7)),
        };
    }
}

async fn step(number: usize, world: &World, client: &Client, done: &mut Done) -> anyhow::Result<()> {
    let slot = world.with(number, |slot| slot.clone());
    if slot.generation != done.generation || !slot.kubelet || slot.uid != done.uid {
        *done = Done { generation: slot.generation, uid: slot.uid.clone(), ..Done::default() };
    }
    if !slot.kubelet {
        world.with(number, |slot| {
            slot.due = None;
            slot.told_ready = false;
        });
        return Ok(());
    }
    let name = slot.name();
    if slot.uid.is_none() {
        let node = kubelet::node(&name, &slot.uuid());
        let registered = timeout(TIMEOUT, kubelet::register(client, &node)).await;
        let uid = match registered {
            Ok(Ok(node)) => node.metadata.uid,
            // The Node may exist: the response may have been lost.
            _ => existing(client, &name, &slot.uuid()).await?,
        };
        world.with(number, |now_there| {
            if now_there.generation == slot.generation && uid.is_some() {
                now_there.uid.clone_from(&uid);
                now_there.registered = now();
                now_there.marked_unknown = false;
                now_there.told_ready = false;
                now_there.initialized = false;
                now_there.kept_by_breaker = None;
                now_there.excluded = Mark::Absent;
                now_there.allowed = Mark::Absent;
                now_there.tainted = Mark::Absent;
                now_there.note(format!("registered as {}", uid.as_deref().unwrap_or_default()));
            }
        });
        return Ok(());
    }
    if done.renew_at.is_none_or(|at| Instant::now() >= at) {
        // From here on, any delay is the API server's.
        world.with(number, |slot| slot.due = None);
        // Some give up before the API server answers again, and retry a little later than others.
        let limit = Duration::from_millis(fastrand::u64(2000..10_000));
        timeout(limit, renew(client, &name, slot.lease_seconds)).await??;
        let quarter = Duration::from_secs(u64::try_from(slot.lease_seconds.clamp(2, 40)).unwrap_or(40)) / 4;
        let pause = quarter.mul_f64(0.04f64.mul_add(fastrand::f64(), 1.0));
        done.renew_at = Some(Instant::now() + pause);
        world.with(number, |there| {
            if there.generation == slot.generation {
                there.renewed = now();
                there.due = there.kubelet.then(|| now() + micros(pause));
                there.lease_exists = true;
            }
        });
    }
    if done.ready != Some(slot.ready) || slot.ready != slot.told_ready {
        timeout(TIMEOUT, kubelet::heartbeat(client, &name, slot.ready)).await??;
        done.ready = Some(slot.ready);
        world.with(number, |there| {
            there.marked_unknown = false;
            there.told_ready = slot.ready && there.kubelet && there.uid == slot.uid;
        });
    }
    Ok(())
}

/// The Node of this machine, if it exists.
async fn existing(client: &Client, name: &str, uuid: &str) -> anyhow::Result<Option<String>> {
    let node = timeout(TIMEOUT, Api::<Node>::all(client.clone()).get_opt(name)).await??;
    let is_ours = |node: &Node| {
        node.status
            .as_ref()
            .and_then(|status| status.node_info.as_ref())
            .is_some_and(|info| info.system_uuid == uuid)
            && node.metadata.deletion_timestamp.is_none()
    };
    Ok(node.filter(is_ours).and_then(|node| node.metadata.uid))
}

async fn renew(client: &Client, name: &str, seconds: i32) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let patch = json!({"spec": {
        "holderIdentity": name,
        "leaseDurationSeconds": seconds,
        "renewTime": format!("{:.6}", jiff::Timestamp::now()),
    }});
    match leases.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            kubelet::renew_lease(client, name).await?;
            Ok(())
        }
        outcome => Ok(outcome.map(drop)?),
    }
}

/// Plays kube-controller-manager's handling of silent kubelets, and its garbage collection of leases.
pub(super) async fn controller_manager(world: World, client: Client, stop: CancellationToken) {
    while stop.run_until_cancelled(sleep(Duration::from_millis(500))).await.is_some() {
        let silent: Vec<(usize, String)> = {
            let state = world.lock();
            let silent = state.slots.iter().filter(|slot| {
                let since = now() - slot.renewed.max(slot.registered);
                slot.uid.is_some() && !slot.kubelet && !slot.marked_unknown && since > GRACE
            });
            silent.map(|slot| (slot.number, slot.name())).collect()
        };
        for (number, name) in silent {
            if let Ok(Ok(())) = timeout(TIMEOUT, set_ready_unknown(&client, &name)).await {
                world.with(number, |slot| {
                    slot.marked_unknown = !slot.kubelet;
                    // A kubelet that is back reports its status again.
                    slot.told_ready = false;
                    slot.note("Ready is Unknown");
                });
            }
        }
        let orphans: Vec<(usize, String)> = {
            let state = world.lock();
            let orphans = state
                .slots
                .iter()
                .filter(|slot| slot.uid.is_none() && matches!(slot.machine, Machine::Gone(_)));
            orphans.map(|slot| (slot.number, slot.name())).collect()
        };
        for (number, name) in orphans {
            let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
            match timeout(TIMEOUT, leases.delete(&name, &DeleteParams::default())).await {
                Ok(Ok(_)) => {}
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => {}
                _ => continue,
            }
            // An operator installs another machine in its place.
            let mut state = world.lock();
            let slot = &state.slots[number];
            if slot.uid.is_none() && matches!(slot.machine, Machine::Gone(_)) {
                state.replace_machine(number);
                state.slots[number].busy = None;
            }
        }
    }
}
