//! When a `RebootRemediation` is worked on.

use std::{collections::HashSet, sync::Arc};

use super::{Done, MachineController, turns::Turn};
use crate::{
    auxiliary::Auxiliary,
    concurrency::Permit,
    names::REBOOT_REMEDIATION,
    object_key::{ObjectKey, ObjectKind},
    plan::Inputs,
    store::key_of,
    view::View,
    work::{Ended, reboot::RebootWork},
};

impl MachineController {
    /// The kind of these objects: it comes after the provider's own.
    fn reboots(&self) -> Option<ObjectKind> {
        let position =
            self.stores.auxiliary.all().iter().position(|store| store.kind == REBOOT_REMEDIATION)?;
        u8::try_from(position).ok().map(ObjectKind::StatusOnly)
    }

    /// Whether an object is one of these.
    pub(super) fn is_reboot(&self, object_key: &ObjectKey) -> bool {
        self.reboots() == Some(object_key.kind)
    }

    /// What a pass is decided from.
    fn inputs_of_reboot(&self, found: &Auxiliary) -> Inputs {
        let namespace = found.object.namespace.as_deref().unwrap_or_default();
        let machine = self.stores.core_machines.get(&key_of(namespace, &found.object.name));
        let machine = machine.as_ref().map(|machine| &machine.content);
        let cluster = machine.and_then(|machine| machine.cluster.as_deref());
        let cluster = cluster.and_then(|name| self.stores.core_clusters.get(&key_of(namespace, name)));
        Inputs::of_reboot(found, machine, cluster.as_ref().map(|cluster| &cluster.content), self.provider)
    }

    pub(super) fn turn_of_reboot(&self, object_key: &ObjectKey, found: &Auxiliary) -> Turn {
        let memory = self.memories.get(object_key);
        let memory = memory.filter(|memory| memory.inputs == self.inputs_of_reboot(found));
        Turn::of(memory.map(|memory| memory.due))
    }

    pub(super) fn start_reboot(&mut self, object_key: ObjectKey, permit: Permit) {
        let stores = self.stores.clone();
        let found = stores.auxiliary.of(&REBOOT_REMEDIATION).and_then(|store| store.get(&object_key.key));
        let inputs = found.as_ref().map(|found| self.inputs_of_reboot(found)).unwrap_or_default();
        let machine = stores.core_machines.get(&object_key.key);
        let name = machine.as_ref().and_then(|machine| machine.content.infrastructure.as_deref());
        let view = name.and_then(|name| {
            let infrastructure = ObjectKey::new(ObjectKind::Machine, key_of(object_key.namespace(), name));
            View::of(&infrastructure, &stores, &self.index, None, &self.shared.kinds)
        });
        let memory = self.memories.get(&object_key);
        let work = RebootWork {
            shared: Arc::clone(&self.shared),
            core_version: self.watches.known.get().and_then(Result::ok).map(|served| served.core_version),
            inputs,
            view,
            provider: self.provider,
            failures: memory.map_or(0, |memory| memory.failures),
            counted: memory.and_then(|memory| memory.reboot),
            permit,
        };
        self.tasks.spawn(async move {
            let ended = match stores.auxiliary.of(&REBOOT_REMEDIATION) {
                Some(store) => Box::pin(work.act(store, &object_key.key)).await,
                None => Ended::NOTHING,
            };
            Done { object_key, ended }
        });
    }

    /// Machines changed: their remediations have their names.
    pub(super) fn schedule_reboots_of(&mut self, machines: &HashSet<String>) {
        let Some(kind) = self.reboots() else { return };
        let keys = machines.iter().map(|key| ObjectKey::new(kind, key.clone()));
        let keys: Vec<_> = keys.filter(|object_key| self.status_only.has(object_key)).collect();
        self.schedule_all(keys);
    }

    /// Clusters changed, in these namespaces. Remediations are few.
    pub(super) fn schedule_reboots_in(&mut self, clusters: &HashSet<String>) {
        let Some(kind) = self.reboots() else { return };
        let namespaces: HashSet<_> =
            clusters.iter().filter_map(|key| key.split_once('/')).map(|(namespace, _)| namespace).collect();
        let is_there =
            |object_key: &&ObjectKey| object_key.kind == kind && namespaces.contains(object_key.namespace());
        let keys: Vec<_> = self.status_only.all().filter(is_there).cloned().collect();
        self.schedule_all(keys);
    }
}
