//! An object with what surrounds it, as the caches show it now.

use std::sync::Arc;

use cloudprovider::machines::Kinds;

use super::{
    index::Index,
    object::InfraObject,
    plan::{ClusterSituation, Inputs, MachineSituation, Memory, Next, Scope},
    store::{Stores, key_of},
    subject::{Subject, SubjectKind},
    surroundings::{Bootstrap, Cluster, Machine},
};
use crate::cache::CachedObject as _;

/// A machine or a cluster with what surrounds it.
#[derive(Clone, Debug)]
pub struct View {
    /// Which object it is.
    pub subject: Subject,
    /// The object.
    pub object: Arc<InfraObject>,
    /// What is remembered.
    pub memory: Option<Memory>,
    machine: Option<Machine>,
    /// The name of the Secret with its bootstrap data.
    pub bootstrap_secret: Option<String>,
    cluster: Option<Cluster>,
    infra_cluster: Option<Arc<InfraObject>>,
    machines_left: usize,
    rival: Option<String>,
}

impl View {
    /// The view of this object. `None` if it does not exist, and for templates.
    pub fn of(
        subject: &Subject,
        stores: &Stores,
        index: &Index,
        memory: Option<&Memory>,
        kinds: &Kinds,
    ) -> Option<Self> {
        let object = match subject.kind {
            SubjectKind::Machine => stores.machines.get(&subject.key)?,
            SubjectKind::Cluster => stores.clusters.get(&subject.key)?,
            SubjectKind::Template => return None,
        };
        let cluster_key = object.cluster_name().map(|name| key_of(object.namespace(), name));
        let cluster = cluster_key.as_ref().and_then(|key| stores.core_clusters.get(key));
        let mut view = Self {
            subject: subject.clone(),
            memory: memory.cloned(),
            machine: None,
            bootstrap_secret: None,
            cluster: None,
            infra_cluster: None,
            machines_left: 0,
            rival: index.rival(subject),
            object: Arc::clone(&object),
        };
        if subject.kind == SubjectKind::Cluster {
            let owner = object.core_owner("Cluster");
            let is_owner = |uid: &str| owner.is_some_and(|owner| owner.uid == uid);
            view.cluster =
                cluster.filter(|cluster| is_owner(&cluster.uid)).map(|cluster| cluster.content.clone());
            let deleted = cluster_key.filter(|_| object.is_deleting());
            view.machines_left = deleted.map_or(0, |key| index.machines_of_cluster(&key));
            return Some(view);
        }
        if let Some(owner) = object.core_owner("Machine") {
            let found = stores.core_machines.get(&key_of(object.namespace(), &owner.name));
            view.machine = found.filter(|found| found.uid == owner.uid).map(|found| found.content.clone());
        }
        view.bootstrap_secret = view.machine.as_ref().and_then(|machine| machine.bootstrap_secret.clone());
        view.cluster = cluster.map(|cluster| cluster.content.clone());
        let infrastructure = view.cluster.as_ref().and_then(|cluster| cluster.infrastructure.as_ref());
        view.infra_cluster = infrastructure
            .filter(|(kind, _)| *kind == kinds.cluster.kind)
            .and_then(|(_, name)| stores.clusters.get(&key_of(object.namespace(), name)));
        Some(view)
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
        object.is_paused() || self.cluster.as_ref().is_some_and(|cluster| cluster.is_paused)
    }

    /// What is to be done about it next.
    pub fn next(&self, object: &InfraObject, bootstrap: &Bootstrap, scope: &Scope<'_>) -> Next {
        match self.subject.kind {
            SubjectKind::Machine => self.machine_situation(object, bootstrap).next(scope),
            SubjectKind::Cluster | SubjectKind::Template => self.cluster_situation(object).next(scope),
        }
    }

    /// What the next step gets, for [`Memory`].
    pub(super) fn inputs(&self, object: &InfraObject, bootstrap: &Bootstrap, scope: &Scope<'_>) -> Inputs {
        match self.subject.kind {
            SubjectKind::Machine => self.machine_situation(object, bootstrap).inputs(scope),
            SubjectKind::Cluster | SubjectKind::Template => self.cluster_situation(object).inputs(scope),
        }
    }

    pub(super) fn machine_situation<'a>(
        &'a self,
        object: &'a InfraObject,
        bootstrap: &'a Bootstrap,
    ) -> MachineSituation<'a> {
        MachineSituation {
            object,
            machine: self.machine.as_ref(),
            cluster: self.cluster.as_ref(),
            infra_cluster: self.infra_cluster.as_deref(),
            bootstrap,
            rival: self.rival.as_deref(),
            memory: self.memory.as_ref(),
        }
    }

    pub(super) fn cluster_situation<'a>(&'a self, object: &'a InfraObject) -> ClusterSituation<'a> {
        ClusterSituation {
            object,
            cluster: self.cluster.as_ref(),
            machines: self.machines_left,
            rival: self.rival.as_deref(),
            memory: self.memory.as_ref(),
        }
    }
}
