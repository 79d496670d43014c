//! Watches the Nodes at the API server: which exist, and whether one was initialised as another.

use std::{collections::BTreeMap, sync::Arc};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Client,
    runtime::{WatchStreamExt as _, watcher, watcher::Event},
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::world::{Slot, World, now};
use crate::support::{
    SHUTDOWN, UNINITIALIZED, addresses, condition, condition_status, has_taint, label, nodes, provider_id,
};

/// Follows the Nodes until stopped. Errors go to `faults`.
pub(super) async fn run(
    world: World,
    client: Client,
    faults: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
) {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut listed: BTreeMap<String, String> = BTreeMap::new();
    let mut events = watcher(nodes(&client), watcher::Config::default()).default_backoff().boxed();
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        let Ok(event) = event else { continue };
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(node) => {
                look(&world, &node, &faults);
                if let (Some(name), Some(uid)) = (node.metadata.name, node.metadata.uid) {
                    listed.insert(name, uid);
                }
            }
            Event::InitDone => {
                for (name, uid) in &names {
                    if listed.get(name) != Some(uid) {
                        gone(&world, uid);
                    }
                }
                names.clone_from(&listed);
                world.lock().existing = names.values().cloned().collect();
            }
            Event::Apply(node) => {
                look(&world, &node, &faults);
                let (Some(name), Some(uid)) = (node.metadata.name, node.metadata.uid) else { continue };
                world.lock().existing.insert(uid.clone());
                if let Some(old) = names.insert(name, uid.clone()).filter(|old| *old != uid) {
                    gone(&world, &old);
                }
            }
            Event::Delete(node) => {
                let (Some(name), Some(uid)) = (node.metadata.name, node.metadata.uid) else { continue };
                gone(&world, &uid);
                if names.get(&name) == Some(&uid) {
                    names.remove(&name);
                }
            }
        }
    }
}

fn gone(world: &World, uid: &str) {
    let mut state = world.lock();
    state.existing.remove(uid);
    for told in state.told.values_mut() {
        told.remove(uid);
    }
    if let Some(slot) = state.slots.iter_mut().find(|slot| slot.uid.as_deref() == Some(uid)) {
        slot.uid = None;
        slot.note(format!("the Node {uid} is gone"));
    }
}

fn look(world: &World, node: &Node, faults: &Mutex<Vec<String>>) {
    let Some(uid) = node.metadata.uid.as_deref() else { return };
    let slot = {
        let mut state = world.lock();
        let slot = state.slots.iter_mut().find(|slot| slot.uid.as_deref() == Some(uid));
        let Some(slot) = slot else { return };
        slot.initialized = provider_id(node).is_some();
        let is_kept =
            condition(node, "CloudProviderInstanceExists").is_some_and(|(_, why, _)| why == "BreakerOpen");
        slot.kept_by_breaker = is_kept.then(|| slot.kept_by_breaker.unwrap_or_else(now));
        slot.clone()
    };
    if let Some(fault) = initialized_wrong(&slot, node) {
        let mut faults = faults.lock();
        faults.push(format!("{}: {fault}", slot.name()));
    }
}

/// What is wrong with an initialised Node, at any time.
fn initialized_wrong(slot: &Slot, node: &Node) -> Option<String> {
    let id = provider_id(node);
    if id.as_ref().is_some_and(|id| *id != slot.provider_id()) {
        return Some(format!("it has the provider ID {id:?}, and its machine {}", slot.provider_id()));
    }
    if has_taint(node, UNINITIALIZED) {
        return None;
    }
    if id.is_none() {
        return Some("it is initialised and has no provider ID".to_owned());
    }
    let own = format!("InternalIP {}", slot.address());
    (!addresses(node).contains(&own))
        .then(|| format!("it is initialised and has the addresses {:?}, not {own}", addresses(node)))
}

/// What is not in its final state after enough time without faults.
pub(super) fn unsettled(slot: &Slot, node: Option<&Node>) -> Option<String> {
    use super::world::{Machine, Mark};
    let absent = matches!(slot.machine, Machine::Gone(_));
    let Some(node) = node.filter(|node| node.metadata.uid == slot.uid) else {
        return (!absent).then(|| "its Node is not there".to_owned());
    };
    if absent {
        let is_kept = slot.excluded == Mark::Present;
        return (!is_kept).then(|| "its machine is gone and its Node is not deleted".to_owned());
    }
    if has_taint(node, UNINITIALIZED) {
        return Some("it is not initialised".to_owned());
    }
    if let Some(fault) = initialized_wrong(slot, node) {
        return Some(fault);
    }
    let of_type = label(node, "node.kubernetes.io/instance-type");
    if of_type != Some(&slot.instance_type()) {
        return Some(format!("its instance type is {of_type:?}, not {}", slot.instance_type()));
    }
    if label(node, "topology.kubernetes.io/zone") != Some("zone-a") {
        return Some("it has not its zone".to_owned());
    }
    if condition_status(node, "CloudProviderInstanceExists").is_some_and(|status| status == "False") {
        return Some("its condition says that its instance does not exist".to_owned());
    }
    if slot.tainted == Mark::Present && !has_taint(node, super::inject::OTHERS_TAINT) {
        return Some("the taint of others is lost".to_owned());
    }
    match (slot.machine, slot.told_ready, has_taint(node, SHUTDOWN)) {
        (Machine::Off, _, false) => Some("its machine is off and it has no shutdown taint".to_owned()),
        (Machine::Running, true, true) => Some("it is Ready and has the shutdown taint".to_owned()),
        (Machine::Running, false, _) if slot.kubelet => Some("its kubelet has not come back".to_owned()),
        _ => None,
    }
}
