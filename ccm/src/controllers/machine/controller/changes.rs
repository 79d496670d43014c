//! What the watches and the cloud tell, and whom it concerns.

use std::collections::HashSet;

use cloudprovider::InstanceChange;

use super::MachineController;
use crate::{
    cache::Changes,
    controllers::machine::{
        phase::Phase,
        plan::Due,
        subject::{Subject, SubjectKind},
    },
};

impl MachineController {
    /// Objects appeared, changed or vanished.
    pub(super) fn changed(&mut self, kind: SubjectKind, keys: HashSet<String>) {
        let touched = self.note(kind, keys.iter().cloned());
        let own = keys.into_iter().map(|key| Subject::new(kind, key));
        let all: HashSet<_> = own.chain(touched).collect();
        self.schedule_all(all);
        if kind == SubjectKind::Machine {
            self.wake_held();
        }
    }

    /// Notes what depends on what. Gives the others for which that makes a difference.
    pub(super) fn note(&mut self, kind: SubjectKind, keys: impl Iterator<Item = String>) -> HashSet<Subject> {
        let mut touched = HashSet::new();
        let store = match kind {
            SubjectKind::Machine => self.stores.machines.clone(),
            SubjectKind::Cluster => self.stores.clusters.clone(),
            SubjectKind::Template | SubjectKind::StatusOnly(_) => return touched,
        };
        for key in keys {
            let object = store.get(&key).map(|object| object.unpacked());
            let subject = Subject::new(kind, key);
            let uid = self.index.uid(&subject).map(str::to_owned);
            touched.extend(self.index.update(&subject, object.as_ref(), &self.shared.kinds));
            if let Some(uid) = uid {
                self.forget_uid(&subject, uid);
            }
            let phase = object.as_ref().map(Phase::of);
            let before = match phase {
                Some(phase) => self.phases.insert(subject, phase),
                None => self.phases.remove(&subject),
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
        let further = self.stores.further.clone();
        let changes = further.all().iter().enumerate().map(|(number, store)| {
            let mut changes = store.cache.subscribe();
            self.auxiliary_changed(number, changes.take());
            changes
        });
        changes.collect()
    }

    /// Objects of an auxiliary kind appeared, changed or vanished.
    pub(super) fn auxiliary_changed(&mut self, number: usize, keys: HashSet<String>) {
        let further = self.stores.further.clone();
        let Some(store) = further.all().get(number) else { return };
        for key in keys {
            let found = store.cache.get(&key).map(|found| found.unpacked());
            if found.is_none() {
                store.ended(&key);
            }
            let readers = self.dependents.readers_of(&store.kind, &key);
            for reader in &readers {
                if let Some(memory) = self.memories.get_mut(reader) {
                    further.share(memory.inputs.reads_mut());
                }
            }
            if store.kind.is_told
                && let Ok(number) = u8::try_from(number)
            {
                let subject = Subject::new(SubjectKind::StatusOnly(number), key.clone());
                let uid = found.as_ref().and_then(|found| found.metadata.uid.clone());
                if let Some(gone) = self.status_only.update(&subject, uid) {
                    self.forget_uid(&subject, gone);
                }
                // Somebody may have changed the status.
                self.wake(&subject);
            }
            if store.kind.is_made {
                let lost = self.dependents.update((store.kind, key), found.as_ref(), &self.shared.kinds);
                // Whose it is, no step reads.
                for subject in lost {
                    self.wake(&subject);
                }
            }
            self.schedule_all(readers);
        }
    }

    /// The cloud says that something changed.
    pub(super) fn pushed(&mut self, change: InstanceChange) {
        let subjects: HashSet<_> = match change {
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
        for subject in subjects {
            self.wake(&subject);
        }
    }

    /// The next step of this object is due. One under way may have looked too early.
    pub(super) fn wake(&mut self, subject: &Subject) {
        if self.queue.is_at_work(&subject.to_string()) {
            self.woken.insert(subject.clone());
        }
        if let Some(memory) = self.memories.get_mut(subject) {
            memory.due = Due::Now;
        }
        self.schedule(subject);
    }

    /// Machines changed: a failure domain that stays for them may go.
    pub(super) fn wake_held(&mut self) {
        let is_held = |subject: &&Subject| self.memories.get(*subject).is_some_and(|memory| memory.is_held);
        let held: Vec<_> = self.status_only.all().filter(is_held).cloned().collect();
        for subject in held {
            self.wake(&subject);
        }
    }

    /// This object had this UID. If no object of any namespace has it any more, the provider forgets it, once no step can use it. That
    /// is so whether there was a step towards gone or not.
    pub(super) fn forget_uid(&mut self, subject: &Subject, uid: String) {
        if !self.index.of_uid(&uid).is_empty() || self.status_only.of_uid(&uid).is_some() {
            return;
        }
        if self.queue.is_at_work(&subject.to_string()) {
            self.gone_uids.entry(subject.clone()).or_default().insert(uid);
        } else {
            self.shared.cloud.forget_object(&uid);
        }
    }
}
