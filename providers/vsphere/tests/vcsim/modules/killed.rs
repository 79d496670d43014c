//! Processes that are killed at every call between the first machine of a cluster and the end of its module.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use serde_json::json;
use test_env::Vcsim;
use tokio::runtime::Runtime;

use super::{Cluster, MODULES, count, found, id, ids, keeping_apart, worker};
use crate::{controller::*, crashes::is_killed, support::*};

/// The calls at which a process is not killed.
const NEVER: [&str; 4] =
    ["soap:WaitForUpdatesEx", "soap:Logout", "soap:CancelWaitForUpdates", "rest:DELETE /session"];

/// The whole life of a machine and its cluster, from where they are.
async fn life(vcsim: Arc<Vcsim>, cluster: Cluster, written: Arc<Mutex<Object>>) {
    let running = keeping_apart(&vcsim).await;
    let mut controller = Controller::new(&running).writing(&written);
    let mut object = written.lock().clone();
    cluster.step(&running).await.expect("a step of the cluster");
    if object.request.bootstrap.is_some() {
        cluster.make(&running, &mut controller, &mut object).await;
        let modules = vcsim.cluster_modules().expect("modules");
        let own = modules.iter().filter(|one| one["machines"] == json!([object.name()]));
        let recorded = cluster.recorded();
        assert_eq!(own.clone().count(), 1, "{modules:?}");
        assert!(own.clone().all(|one| recorded.len() == 1 && recorded[0]["moduleUUID"] == one["module"]));
    }
    controller.delete(&mut object).await;
    cluster.delete(&running).await;
    running.stop().await;
}

/// Kills one process after the other, each at a later call, until one comes to its end. Returns how many were killed.
fn kill_at_each(vcsim: &Arc<Vcsim>, is_after: bool) -> usize {
    let mut lost = BTreeSet::new();
    for at in 0.. {
        let rule = json!({
            "methods": ["*"], "except": NEVER, "skip": at, "times": 1, "hang": true, "after": is_after,
        });
        vcsim.reset_counts().expect("reset");
        vcsim.set_rules(&json!([rule])).expect("a rule");
        let cluster = Cluster::new(vcsim, &json!({}));
        let before = worker(vcsim, at);
        let written = Arc::new(Mutex::new(before.clone()));
        let was_killed = is_killed(vcsim, life(Arc::clone(vcsim), cluster.clone(), Arc::clone(&written)));
        vcsim.set_rules(&json!([])).expect("no rule");
        if was_killed {
            // every other time, what the last step said was not written
            if at % 2 == usize::from(is_after) {
                written.lock().record = before.record.clone();
            }
            // the lock of a step that was killed is nobody's any more
            let later = Cluster { turn: Arc::default(), ..cluster.clone() };
            let runtime = Runtime::new().expect("a runtime");
            runtime.block_on(life(Arc::clone(vcsim), later, written));
        }
        let when = format!("killed {} call {at}", if is_after { "after" } else { "before" });
        assert_eq!(names(vcsim), [machine(0)], "{when}");
        let left = found(vcsim);
        assert!(left.iter().all(|(_, machines)| machines.is_empty()), "{when}: {left:?}");
        // What is recorded goes with the cluster. A process that ends before it has recorded its module loses that one, and no other.
        let (all, create) = (ids(vcsim), format!("POST {MODULES}"));
        let held_back = if is_after { 0 } else { count(vcsim, &format!("hit:rest:{create}")) };
        let made = count(vcsim, &format!("rest:{create}")) - held_back;
        let recorded: BTreeSet<_> = cluster.recorded().iter().map(|one| id(&one["moduleUUID"])).collect();
        let new: BTreeSet<_> = all.difference(&lost).cloned().collect();
        assert!(lost.is_subset(&all), "{when}: those of other clusters stay");
        assert!(new.is_disjoint(&recorded), "{when}: {new:?}, {recorded:?}");
        assert_eq!((new.len() + recorded.len()) as u64, made, "{when}: {new:?}, {recorded:?}");
        assert!(new.len() <= usize::from(was_killed), "{when}: {new:?}");
        lost = all;
        if !was_killed {
            return at;
        }
    }
    0
}

#[test]
fn killed_at_every_call() {
    let sides = [false, true].map(|is_after| {
        std::thread::spawn(move || {
            let vcsim = Arc::new(simulator(&factory_options())?);
            Some(kill_at_each(&vcsim, is_after))
        })
    });
    for side in sides {
        let Some(killed) = side.join().expect("no panic") else { return };
        assert!(killed >= 15, "{killed} calls");
    }
}
