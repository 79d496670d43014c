//! The process is killed at every call that it makes for a machine, before and after the call takes place.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::json;
use test_env::Vcsim;
use tokio::runtime::Runtime;

use crate::{bootstrap, controller::*, placement, support::*, zones};

/// The calls at which a process may be killed. A wait for changes is not one: it is under way all the time. Logging out is what a
/// process does that is not killed.
pub(crate) const NEVER: [&str; 4] =
    ["soap:WaitForUpdatesEx", "soap:Logout", "soap:CancelWaitForUpdates", "rest:DELETE*"];

/// A machine whose life has every kind of call. It is in a failure domain with a VM group, and on a datastore cluster.
fn object(vcsim: &Vcsim, number: usize) -> Object {
    let more = json!({
        "hardwareVersion": "vmx-21",
        "datastore": placement::POD,
        "dataDisks": [{"name": "volume", "sizeGiB": 1}],
        "powerOffMode": "trySoft",
    });
    let mut object = Object::new(vcsim, number, &more);
    object.request.failure_domain = Some("a".to_owned());
    object.request.objects = zones::objects(vcsim, &[("a", zones::domain_with_group())]);
    object
}

/// The whole life of a machine, from where it is: until it is complete, and then until it is gone.
async fn life(vcsim: Arc<Vcsim>, written: Arc<Mutex<Object>>) {
    let running = bootstrap::removing(&vcsim).await;
    let mut controller = Controller::new(&running).writing(&written);
    let mut object = written.lock().clone();
    if object.request.bootstrap.is_some() {
        controller.make(&mut object).await;
        controller.join(&mut object).await;
        vcsim.act(&object.name(), "volume", "").expect("a volume");
    }
    controller.delete(&mut object).await;
    running.stop().await;
}

/// Whether a process was killed at the call that the rule names, rather than coming to the end of its life.
pub(crate) fn is_killed(vcsim: &Vcsim, life: impl Future<Output = ()> + Send + 'static) -> bool {
    let runtime = Runtime::new().expect("a runtime");
    let life = runtime.spawn(life);
    loop {
        let counts = vcsim.counts().expect("counts");
        if counts.keys().any(|name| name.starts_with("hit:")) {
            // Every task of the process ends where it is, as its connections do.
            runtime.shutdown_timeout(LIMIT);
            return true;
        }
        if life.is_finished() {
            runtime.block_on(life).expect("no panic");
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Kills one process after the other, each at a later call, until one comes to its end. Returns how many were killed.
fn kill_at_each(vcsim: &Arc<Vcsim>, is_after: bool) -> usize {
    for at in 0.. {
        let rule = json!({
            "methods": ["*"], "except": NEVER, "skip": at, "times": 1, "hang": true, "after": is_after,
        });
        vcsim.reset_counts().expect("reset");
        vcsim.set_rules(&json!([rule])).expect("a rule");
        let before = object(vcsim, at);
        let written = Arc::new(Mutex::new(before.clone()));
        let was_killed = is_killed(vcsim, life(Arc::clone(vcsim), Arc::clone(&written)));
        vcsim.set_rules(&json!([])).expect("no rule");
        let when = format!("killed {} call {at}", if is_after { "after" } else { "before" });
        if was_killed {
            // every other time, what the last step said was not written
            if at % 2 == usize::from(is_after) {
                written.lock().record = before.record.clone();
            }
            let runtime = Runtime::new().expect("a runtime");
            runtime.block_on(recover(vcsim, &written, &when));
        }
        assert_eq!(names(vcsim), [machine(0)], "{when}");
        if !was_killed {
            return at;
        }
    }
    0
}

/// Another process takes over. A machine that was not to be deleted yet is made, once.
async fn recover(vcsim: &Arc<Vcsim>, written: &Arc<Mutex<Object>>, when: &str) {
    let mut object = written.lock().clone();
    let running = bootstrap::removing(vcsim).await;
    let mut controller = Controller::new(&running);
    if object.request.bootstrap.is_some() {
        controller.make(&mut object).await;
        let found = vcsim.inventory().expect("an inventory");
        assert_eq!(found.len(), 2, "{when}: {found:?}");
        assert_eq!(found[1]["instanceUuid"], object.request.mark.uid, "{when}: {found:?}");
        assert_eq!(found[1]["power"], "poweredOn", "{when}: {found:?}");
        let members = &vcsim.vm_groups().expect("groups")["machines"];
        assert_eq!(*members, [machine(0), object.name()], "{when}");
        controller.join(&mut object).await;
        let left = bootstrap::guest_info(vcsim, &object.name());
        assert!(!left.contains_key("guestinfo.userdata"), "{when}: {left:?}");
    }
    controller.delete(&mut object).await;
    assert!(controller.errors.is_empty(), "{when}: {:?}", controller.errors);
    running.stop().await;
}

#[test]
fn killed_at_every_call() {
    let sides = [false, true].map(|is_after| {
        std::thread::spawn(move || {
            let vcsim = Arc::new(simulator(&placement::with_pod())?);
            zones::tag(&vcsim, 1);
            zones::make_groups(&vcsim);
            Some(kill_at_each(&vcsim, is_after))
        })
    });
    for side in sides {
        let Some(killed) = side.join().expect("no panic") else { return };
        assert!(killed >= 17, "{killed} calls");
    }
}
