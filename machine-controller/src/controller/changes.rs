//! Changes that the watches and the cloud report, and the objects that they concern.

use std::collections::HashSet;

use cloudprovider::InstanceChange;
use controller_kit::cache::Changes;

use super::MachineController;
use crate::{
    names::REBOOT_REMEDIATION,
    object_key::{ObjectKey, ObjectKind},
    phase::Phase,
    plan::Due,
};

impl MachineController {
    /// Objects appeared, changed or vanished.
    pub(super) fn changed(&mut self, kind: ObjectKind, keys: HashSet<String>) {
        let touched = self.note(kind, keys.iter().cloned());
        let own = keys.into_iter().map(|key| ObjectKey::new(kind, key));
        let all: HashSet<_> = own.chain(touched).collect();
        self.schedule_all(all);
        if kind == ObjectKind::Machine {
            self.wake_held();
        }
    }

    /// Notes what depends on what. Gives the others for which that makes a difference.
    pub(super) fn note(
        &mut self,
        kind: ObjectKind,
        keys: impl Iterator<Item = String>,
    ) -> HashSet<ObjectKey> {
        let mut touched = HashSet::new();
        let store = match kind {
            ObjectKind::Machine => self.stores.machines.clone(),
            ObjectKind::Cluster => self.stores.clusters.clone(),
            ObjectKind::Template | ObjectKind::StatusOnly(_) => return touched,
        };
        for key in keys {
            let object = store.get(&key).map(|object| object.unpacked());
            let object_key = ObjectKey::new(kind, key);
            let uid = self.index.uid(&object_key).map(str::to_owned);
            touched.extend(self.index.update(&object_key, object.as_ref(), &self.shared.kinds));
            if let Some(uid) = uid {
                self.forget_uid(&object_key, uid);
            }
            let phase = object.as_ref().map(Phase::of);
            let before = match phase {
                Some(phase) => self.phases.insert(object_key, phase),
                None => self.phases.remove(&object_key),
            };
            let gauge = |phase: Phase| self.shared.metrics.objects(kind.as_str(), phase.as_str());
            if let Some(phase) = before {
                gauge(phase).dec();
            }
            if let Some(phase) = phase {
                gauge(phase).inc();
            }
        }
        touched
    }

    /// Notes the objects of the auxiliary kinds. Gives the changes from then on, kind by kind.
    pub(super) fn note_auxiliary(&mut self) -> Vec<Changes> {
        let auxiliary = self.stores.auxiliary.clone();
        let changes = auxiliary.all().iter().enumerate().map(|(number, store)| {
            let mut changes = store.cache.subscribe();
            self.auxiliary_changed(number, changes.take());
            changes
        });
        changes.collect()
    }

    /// Objects of an auxiliary kind appeared, changed or vanished.
    pub(super) fn auxiliary_changed(&mut self, number: usize, keys: HashSet<String>) {
        let auxiliary = self.stores.auxiliary.clone();
        let Some(store) = auxiliary.all().get(number) else { return };
        for key in keys {
            let found = store.cache.get(&key).map(|found| found.unpacked());
            if found.is_none() {
                store.ended(&key);
            }
            let readers = self.dependents.readers_of(&store.kind, &key);
            for reader in &readers {
                if let Some(memory) = self.memories.get_mut(reader) {
                    auxiliary.share(memory.inputs.reads_mut());
                }
            }
            if store.kind.is_status_only
                && let Ok(number) = u8::try_from(number)
            {
                let object_key = ObjectKey::new(ObjectKind::StatusOnly(number), key.clone());
                let uid = found.as_ref().and_then(|found| found.metadata.uid.clone());
                if let Some(gone) = self.status_only.update(&object_key, uid) {
                    self.forget_uid(&object_key, gone);
                }
                if store.kind == REBOOT_REMEDIATION {
                    // Its status says when the next reboot is due. A write of it is no reason for one.
                    self.schedule(&object_key);
                } else {
                    // Another program may have changed the status.
                    self.wake(&object_key);
                }
            }
            if store.kind.is_made {
                let lost = self.dependents.update((store.kind, key), found.as_ref(), &self.shared.kinds);
                // Whose it is, no step reads.
                for object_key in lost {
                    self.wake(&object_key);
                }
            }
            self.schedule_all(readers);
        }
    }

    /// The cloud says that something changed.
    pub(super) fn pushed(&mut self, change: InstanceChange) {
        let object_keys: HashSet<_> = match change {
            InstanceChange::Changed(refs) => {
                let uids = refs.into_iter().filter_map(|one| one.machine);
                let of = |uid: String| {
                    let status_only = self.status_only.of_uid(&uid).cloned();
                    self.index.of_uid(&uid).into_iter().chain(status_only)
                };
                uids.flat_map(of).collect()
            }
            InstanceChange::Resync => self.memories.keys().cloned().collect(),
        };
        for object_key in object_keys {
            self.wake(&object_key);
        }
    }

    /// The next step of this object is due. One under way may have looked too early.
    pub(super) fn wake(&mut self, object_key: &ObjectKey) {
        if self.queue.is_at_work(&object_key.to_string()) {
            self.woken.insert(object_key.clone());
        }
        if let Some(memory) = self.memories.get_mut(object_key) {
            memory.due = Due::Now;
        }
        self.schedule(object_key);
    }

    /// Machines changed: a failure domain that stays for them may go.
    pub(super) fn wake_held(&mut self) {
        let is_held =
            |object_key: &&ObjectKey| self.memories.get(*object_key).is_some_and(|memory| memory.is_held);
        let held: Vec<_> = self.status_only.all().filter(is_held).cloned().collect();
        for object_key in held {
            self.wake(&object_key);
        }
    }

    /// This object had this UID. If no object of any namespace has it any more, the provider forgets it, once
    /// no step can use it. That is so whether there was a step towards gone or not.
    pub(super) fn forget_uid(&mut self, object_key: &ObjectKey, uid: String) {
        if !self.index.of_uid(&uid).is_empty() || self.status_only.of_uid(&uid).is_some() {
            return;
        }
        if self.queue.is_at_work(&object_key.to_string()) {
            self.gone_uids.entry(object_key.clone()).or_default().insert(uid);
        } else {
            self.shared.cloud.forget_object(&uid);
        }
    }
}
