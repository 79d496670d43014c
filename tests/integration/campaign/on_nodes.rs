//! The faults on single Nodes.

use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use sandbox::kubelet::LEASE_NAMESPACE;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    faults::Fault,
    inject::{OTHERS_TAINT, Stage, TIMEOUT},
    world::{Machine, Mark, Micros, SECOND, Slot, now},
};
use crate::support::{SHUTDOWN, nodes};

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-lifecycle-management";
const ALLOW: &str = "node.cloudprovider.kubernetes.io/allow-deletion";

impl Stage {
    /// Plays an operator who knows which machines are gone, and allows deletions that the breaker holds back.
    pub(super) async fn operate(&self) -> ! {
        /// How long the operator takes to react.
        const PATIENCE: Micros = 15 * SECOND;
        loop {
            sleep(Duration::from_secs(1)).await;
            let found = self
                .world
                .lock()
                .slots
                .iter()
                .find(|slot| {
                    matches!(slot.machine, Machine::Gone(_))
                        && slot.allowed == Mark::Absent
                        && slot.kept_by_breaker.is_some_and(|since| now() - since > PATIENCE)
                })
                .cloned();
            if let Some(slot) = found {
                self.world.with(slot.number, |slot| slot.note("an operator lets it go"));
                self.mark(&slot, |slot| &mut slot.allowed, &allowance(Some("true")), Mark::Present).await;
            }
        }
    }

    pub(super) async fn on_node(&self, fault: &Fault, slot: &Slot) -> anyhow::Result<()> {
        let number = slot.number;
        let with = |act: &dyn Fn(&mut Slot)| self.world.with(number, |slot| act(slot));
        match *fault {
            Fault::MachineVanishes => {
                self.world.lock().lose_machine(number);
                self.push_maybe(slot);
                // The place is free again when its Node is gone and another machine is installed.
            }
            Fault::MachineOff(time) => {
                with(&|slot| {
                    slot.machine = Machine::Off;
                    slot.kubelet = false;
                });
                self.push_maybe(slot);
                self.hold_still(time).await;
                with(&|slot| {
                    slot.machine = Machine::Running;
                    slot.kubelet = true;
                    slot.note("on again");
                });
                self.push_maybe(slot);
                self.free_when_ready(number).await;
            }
            Fault::KubeletStops(time) => {
                with(&|slot| slot.kubelet = false);
                self.hold_still(time).await;
                with(&|slot| {
                    slot.kubelet = true;
                    slot.note("the kubelet runs again");
                });
                self.free_when_ready(number).await;
            }
            Fault::NodeReplaced => {
                self.world.lock().lose_machine(number);
                self.push_maybe(slot);
                self.delete_node(slot).await;
                self.world.lock().replace_now(number, slot.uid.as_deref());
                self.free_when_ready(number).await;
            }
            Fault::NodeDeletedByOthers => {
                with(&|slot| slot.kubelet = false);
                self.delete_node(slot).await;
                with(&|now_there| {
                    if now_there.uid == slot.uid {
                        now_there.uid = None;
                    }
                    now_there.kubelet = true;
                    now_there.note("deleted by others; the kubelet starts again");
                });
                self.free_when_ready(number).await;
            }
            Fault::Excluded(time) => {
                self.mark(slot, |slot| &mut slot.excluded, &label(EXCLUDE, Some("")), Mark::Present).await;
                self.hold_still(time).await;
                self.mark(slot, |slot| &mut slot.excluded, &label(EXCLUDE, None), Mark::Absent).await;
            }
            Fault::Allowed(time) => {
                self.mark(slot, |slot| &mut slot.allowed, &allowance(Some("true")), Mark::Present).await;
                self.hold_still(time).await;
                self.mark(slot, |slot| &mut slot.allowed, &allowance(None), Mark::Absent).await;
            }
            Fault::TaintOfOthers(time) => {
                self.taint(slot, OTHERS_TAINT, None, Mark::Present).await;
                self.hold_still(time).await;
                self.taint(slot, OTHERS_TAINT, None, Mark::Absent).await;
            }
            Fault::ShutdownTaintOfOthers { value } => {
                self.add_taint(slot, SHUTDOWN, value.then_some("others")).await;
                with(&|slot| slot.busy = None);
            }
            Fault::AbsurdLease(seconds, time) => {
                with(&|slot| slot.lease_seconds = seconds);
                self.hold(time).await;
                with(&|slot| slot.lease_seconds = 40);
                // until the kubelet has written the normal duration
                let since = now();
                self.until(number, move |slot| slot.renewed > since).await;
                with(&|slot| slot.busy = None);
            }
            Fault::ReadyFlips(times) => {
                for _ in 0..times {
                    with(&|slot| {
                        slot.ready = false;
                        slot.told_ready = false;
                    });
                    sleep(Duration::from_millis(600)).await;
                    with(&|slot| slot.ready = true);
                    sleep(Duration::from_millis(600)).await;
                }
                self.free_when_ready(number).await;
            }
            Fault::LeaseDeleted => {
                with(&|slot| slot.lease_exists = false);
                let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASE_NAMESPACE);
                let name = slot.name();
                let parameters = DeleteParams::default();
                self.try_for_long(|| leases.delete(&name, &parameters).map(|done| done.map(drop))).await;
                let since = now();
                self.until(number, move |slot| slot.renewed > since).await;
                with(&|slot| slot.busy = None);
            }
            Fault::InstanceResized => {
                with(&|slot| slot.flavour += 1);
                self.push_maybe(slot);
            }
            _ => {}
        }
        Ok(())
    }

    async fn delete_node(&self, slot: &Slot) {
        let uid = slot.uid.clone().unwrap_or_default();
        self.deleted().insert(uid.clone());
        let preconditions = Preconditions { uid: Some(uid), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let (api, name) = (nodes(&self.client), slot.name());
        self.try_for_long(|| api.delete(&name, &parameters).map(|done| done.map(drop))).await;
    }

    /// Writes something on this Node (by UID), and keeps track of its state.
    async fn mark(&self, slot: &Slot, field: fn(&mut Slot) -> &mut Mark, patch: &Value, then: Mark) {
        let mut patch = patch.clone();
        patch["metadata"]["uid"] = json!(slot.uid);
        let set = |mark: Mark| {
            self.world.with(slot.number, |now_there| {
                if now_there.uid == slot.uid {
                    *field(now_there) = mark;
                }
            });
        };
        set(Mark::Changing);
        let (api, name) = (nodes(&self.client), slot.name());
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&patch));
        self.try_for_long(|| api.patch(&name, &parameters, &patch).map(|done| done.map(drop))).await;
        set(then);
    }

    /// Adds a taint to this Node (by UID) or removes it, and keeps track of its state.
    async fn taint(&self, slot: &Slot, key: &str, value: Option<&str>, then: Mark) {
        let set = |mark: Mark| {
            self.world.with(slot.number, |now_there| {
                if now_there.uid == slot.uid {
                    now_there.tainted = mark;
                }
            });
        };
        set(Mark::Changing);
        let change = |taints: &mut Vec<Value>| {
            taints.retain(|taint| taint["key"] != key);
            if then == Mark::Present {
                taints.push(json!({"key": key, "value": value, "effect": "NoSchedule"}));
            }
        };
        if self.change_taints(slot, &change).await {
            set(then);
        }
    }

    async fn add_taint(&self, slot: &Slot, key: &str, value: Option<&str>) {
        let add = |taints: &mut Vec<Value>| {
            taints.retain(|taint| taint["key"] != key);
            taints.push(json!({"key": key, "value": value, "effect": "NoSchedule"}));
        };
        self.change_taints(slot, &add).await;
    }

    /// Works as kubectl does: reads, changes, and replaces the list, and retries after a conflict. `false` if
    /// the Node is gone.
    async fn change_taints(&self, slot: &Slot, change: &(dyn Fn(&mut Vec<Value>) + Sync)) -> bool {
        let (api, name) = (nodes(&self.client), slot.name());
        loop {
            let attempt = async {
                let node = api.get(&name).await?;
                if node.metadata.uid != slot.uid {
                    return Ok(false);
                }
                let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
                let mut taints: Vec<Value> = taints.iter().map(|taint| json!(taint)).collect();
                change(&mut taints);
                let patch = json!({
                    "metadata": {"uid": slot.uid, "resourceVersion": node.metadata.resource_version},
                    "spec": {"taints": taints},
                });
                api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
                Ok::<_, kube::Error>(true)
            };
            match timeout(TIMEOUT, attempt).await {
                Ok(Ok(done)) => return done,
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 422) => return false,
                _ => sleep(Duration::from_millis(200)).await,
            }
        }
    }
}

fn allowance(value: Option<&str>) -> Value {
    json!({"metadata": {"annotations": {ALLOW: value}}})
}

fn label(key: &str, value: Option<&str>) -> Value {
    json!({"metadata": {"labels": {key: value}}})
}
