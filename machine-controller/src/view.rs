//! An object with what surrounds it, as the caches show it now.

use std::{collections::BTreeSet, sync::Arc};

use cloudprovider::machines::Kinds;
use serde_json::Value;

use super::{
    auxiliary::{AuxiliaryStores, Reads},
    cluster_api::{Bootstrap, Cluster, Machine},
    dependents::OwnedKey,
    index::{Index, Rival},
    names::finalizer,
    object::InfraObject,
    object_key::{ObjectKey, ObjectKind},
    plan::{InfraClusterContext, Inputs, MachineContext, Memory, Next, Scope},
    store::{Stores, key_of},
};

/// A machine or a cluster with what surrounds it.
#[derive(Clone, Debug)]
pub struct View {
    /// Which object it is.
    pub object_key: ObjectKey,
    /// The object.
    pub object: Arc<InfraObject>,
    /// What is remembered.
    pub memory: Option<Memory>,
    machine: Option<Machine>,
    /// The name of the Secret with its bootstrap data.
    pub bootstrap_secret: Option<String>,
    cluster: Option<Cluster>,
    /// The name of the Cluster that was looked for.
    cluster_name: Option<String>,
    infra_cluster: Option<InfraObject>,
    /// The names of the machines that a cluster still has.
    machines_left: Vec<String>,
    rival: Option<Rival>,
    /// What is there now in the places that the last step read.
    reads: Reads,
    /// The objects of the auxiliary kinds.
    pub(super) auxiliary: AuxiliaryStores,
    /// What the object may own.
    pub(super) owned: BTreeSet<OwnedKey>,
    kinds: Kinds,
}

impl View {
    /// The view of this object. `None` if it does not exist, and for templates.
    pub fn of(
        object_key: &ObjectKey,
        stores: &Stores,
        index: &Index,
        memory: Option<&Memory>,
        kinds: &Kinds,
    ) -> Option<Self> {
        let object = match object_key.kind {
            ObjectKind::Machine => stores.machines.get(&object_key.key)?,
            ObjectKind::Cluster => stores.clusters.get(&object_key.key)?,
            ObjectKind::Template | ObjectKind::StatusOnly(_) => return None,
        };
        let object = Arc::new(object.unpacked());
        let cluster_key = object.marked_cluster(kinds).map(|name| key_of(object.namespace(), name));
        let cluster = cluster_key.as_ref().and_then(|key| stores.core_clusters.get(key));
        let mut view = Self {
            object_key: object_key.clone(),
            memory: memory.cloned(),
            machine: None,
            bootstrap_secret: None,
            cluster: None,
            cluster_name: object.marked_cluster(kinds).map(str::to_owned),
            infra_cluster: None,
            machines_left: Vec::new(),
            rival: index.rival(object_key),
            reads: memory
                .map(|memory| stores.auxiliary.look_again(memory.inputs.reads()))
                .unwrap_or_default(),
            auxiliary: stores.auxiliary.clone(),
            owned: BTreeSet::new(),
            kinds: *kinds,
            object: Arc::clone(&object),
        };
        if object_key.kind == ObjectKind::Cluster {
            let owner = object.core_owner("Cluster");
            let is_owner = |uid: &str| owner.is_some_and(|owner| owner.uid == uid);
            view.cluster =
                cluster.filter(|cluster| is_owner(&cluster.uid)).map(|cluster| cluster.content.clone());
            // Also while it is not being deleted: it may be by the time that it is read again.
            view.machines_left = machines_left(object_key, &object, stores, index, kinds);
            return Some(view);
        }
        if let Some(owner) = object.core_owner("Machine") {
            let found = stores.core_machines.get(&key_of(object.namespace(), &owner.name));
            view.machine = found.filter(|found| found.uid == owner.uid).map(|found| found.content.clone());
        }
        view.bootstrap_secret = view.machine.as_ref().and_then(|machine| machine.bootstrap_secret.clone());
        view.cluster = cluster.as_ref().map(|cluster| cluster.content.clone());
        let infrastructure = view.cluster.as_ref().and_then(|cluster| cluster.infrastructure.as_ref());
        view.infra_cluster = infrastructure
            .filter(|(kind, _)| *kind == kinds.cluster.kind)
            .and_then(|(_, name)| stores.clusters.get(&key_of(object.namespace(), name)))
            .map(|cluster| cluster.unpacked());
        if let (None, Some(key)) = (&cluster, &cluster_key) {
            // The Cluster was removed by force. A deletion goes on with what is left.
            let left = index.infrastructure_of(key);
            view.infra_cluster = left
                .and_then(|object_key| stores.clusters.get(&object_key.key))
                .map(|cluster| cluster.unpacked());
        }
        Some(view)
    }

    /// The object that has the better claim to its identity, for the log.
    pub(super) fn rival(&self) -> Option<&str> {
        self.rival.as_ref().map(|rival| rival.key.as_str())
    }

    /// With what the object may own.
    #[must_use]
    pub(super) fn with_owned(mut self, owned: BTreeSet<OwnedKey>) -> Self {
        self.owned = owned;
        self
    }

    /// The failure domain that it asks for, or its Machine.
    pub(super) fn failure_domain(&self) -> Option<&str> {
        let asked = self.machine.as_ref().and_then(|machine| machine.failure_domain.as_deref());
        asked.or_else(|| self.object.spec["failureDomain"].as_str())
    }

    /// What it says itself, and what the infrastructure of its Cluster says.
    pub(super) fn specs(&self) -> impl Iterator<Item = &Value> {
        let cluster = self.infra_cluster.as_ref().map(|cluster| &cluster.spec);
        std::iter::once(&self.object.spec).chain(cluster)
    }

    /// The bootstrap data before anybody has read them.
    pub(super) fn unread(&self) -> Bootstrap {
        if self.bootstrap_secret.is_some() { Bootstrap::Unread } else { Bootstrap::Missing }
    }

    /// Whether the caches do not show this write yet.
    pub(super) fn is_older_than(&self, version: &str) -> bool {
        self.object.is_older_than(version)
    }

    /// Whether nothing new is to be begun about it.
    pub(super) fn is_paused(&self, object: &InfraObject) -> bool {
        object.is_paused() || self.cluster_of(object).is_some_and(|cluster| cluster.is_paused)
    }

    /// Its Cluster, unless the object names another one by now than it did when this view was made.
    fn cluster_of(&self, object: &InfraObject) -> Option<&Cluster> {
        self.cluster.as_ref().filter(|_| object.marked_cluster(&self.kinds) == self.cluster_name.as_deref())
    }

    /// What is to be done about it next.
    pub fn next(&self, object: &InfraObject, bootstrap: &Bootstrap, scope: &Scope<'_>) -> Next {
        match self.object_key.kind {
            ObjectKind::Machine => self.machine_context(object, bootstrap).next(scope),
            _ => self.cluster_context(object).next(scope),
        }
    }

    /// What the next step gets, for [`Memory`].
    pub(super) fn inputs(&self, object: &InfraObject, bootstrap: &Bootstrap, scope: &Scope<'_>) -> Inputs {
        match self.object_key.kind {
            ObjectKind::Machine => self.machine_context(object, bootstrap).inputs(scope),
            _ => self.cluster_context(object).inputs(scope),
        }
    }

    pub(super) fn machine_context<'a>(
        &'a self,
        object: &'a InfraObject,
        bootstrap: &'a Bootstrap,
    ) -> MachineContext<'a> {
        MachineContext {
            object,
            machine: self.machine.as_ref(),
            cluster: self.cluster_of(object),
            infra_cluster: self.infra_cluster.as_ref(),
            bootstrap,
            rival: self.rival.as_ref(),
            reads: Some(&self.reads),
            memory: self.memory.as_ref(),
        }
    }

    pub(super) fn cluster_context<'a>(&'a self, object: &'a InfraObject) -> InfraClusterContext<'a> {
        InfraClusterContext {
            object,
            cluster: self.cluster_of(object),
            machines: &self.machines_left,
            rival: self.rival.as_ref(),
            reads: Some(&self.reads),
            memory: self.memory.as_ref(),
        }
    }
}

/// The names of the machines that a cluster still has. A machine whose Cluster is not known counts too, if it
/// has the finalizer and its Machine names no other Cluster.
fn machines_left(
    object_key: &ObjectKey,
    cluster: &InfraObject,
    stores: &Stores,
    index: &Index,
    kinds: &Kinds,
) -> Vec<String> {
    let names = cluster.cluster_names(kinds);
    let is_its_own = |stray: &ObjectKey| {
        let Some(object) = stores.machines.get(&stray.key) else { return false };
        let object = object.unpacked();
        let owner = object.core_owner("Machine").map(|owner| key_of(object.namespace(), &owner.name));
        let machine = owner.and_then(|key| stores.core_machines.get(&key));
        let name = machine.as_ref().and_then(|machine| machine.content.cluster.as_deref());
        object.has_finalizer(&finalizer(kinds, &kinds.machine))
            && name.is_none_or(|name| names.contains(name))
    };
    let all = index.machines_of(object_key).into_iter();
    let own = all.filter(|machine| !index.is_stray(machine) || is_its_own(machine));
    own.map(|machine| machine.key.rsplit('/').next().unwrap_or_default().to_owned()).collect()
}

#[cfg(test)]
mod tests;
