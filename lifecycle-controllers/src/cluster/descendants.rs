//! What belongs to a Cluster.

use std::sync::Arc;

use cluster_api::{
    Cluster, Condition as ApiCondition, Machine, MachineDeployment, MachineSet, names::labels,
};
use kube::ResourceExt as _;
use lifecycle::conditions::{Condition, Source};

use crate::{
    core::Core,
    engine::{
        conditions::read,
        control::Failure,
        object::{Kind, Meta as _, Stored, names_kind},
        stores::Store,
    },
    kept::Kept,
};

/// An object with its conditions.
#[derive(Debug)]
pub(super) struct WithConditions<K> {
    pub(super) object: Arc<Stored<K>>,
    pub(super) conditions: Vec<Condition>,
}

impl<K: Kind> WithConditions<K> {
    /// As the decisions see it.
    pub(super) fn source<'a>(&'a self, kind: &'a str) -> Source<'a> {
        Source {
            kind,
            name: self.object.name_or_empty(),
            is_control_plane_machine: self.object.labels().contains_key(labels::CONTROL_PLANE),
            conditions: &self.conditions,
        }
    }
}

/// What belongs to a Cluster, sorted by name.
#[derive(Debug)]
pub(super) struct Descendants {
    pub(super) machine_deployments: Vec<WithConditions<MachineDeployment>>,
    pub(super) machine_sets: Vec<WithConditions<MachineSet>>,
    /// Machines that are no control plane.
    pub(super) workers: Vec<Arc<Stored<Machine>>>,
    /// Machines that are the control plane.
    pub(super) control_plane_machines: Vec<Arc<Stored<Machine>>>,
}

impl Descendants {
    /// As the caches have them.
    pub(super) fn of(core: &Core, cluster: &Cluster) -> Self {
        let (namespace, name) = (cluster.namespace_or_empty(), cluster.name_or_empty());
        let stores = &core.stores;
        let machine_deployments =
            in_namespace(&stores.machine_deployments, namespace, |one| one.spec.cluster_name == name);
        let machine_sets = in_namespace(&stores.machine_sets, namespace, |one| one.spec.cluster_name == name);
        let machines = in_namespace(&stores.machines, namespace, |one| one.spec.cluster_name == name);
        let is_control_plane =
            |machine: &Arc<Stored<Machine>>| machine.labels().contains_key(labels::CONTROL_PLANE);
        let (control_plane_machines, workers) = machines.into_iter().partition(is_control_plane);
        Self {
            machine_deployments: with_conditions(machine_deployments, |one| {
                one.status.as_ref().map(|status| status.conditions.as_slice())
            }),
            machine_sets: with_conditions(machine_sets, |one| {
                one.status.as_ref().map(|status| status.conditions.as_slice())
            }),
            workers,
            control_plane_machines,
        }
    }

    /// The `MachineSet`s that the Cluster itself owns.
    pub(super) fn own_machine_sets<'a>(
        &'a self,
        cluster: &'a Cluster,
    ) -> impl Iterator<Item = &'a WithConditions<MachineSet>> {
        self.machine_sets.iter().filter(|set| is_of_cluster(&**set.object, cluster))
    }

    /// The Machines of workers that a status speaks of. Those of a `MachinePool` have their own way to be replaced, so upstream leaves
    /// them out; those that are kept are replaced already.
    pub(super) fn counted_workers(&self) -> impl Iterator<Item = &Arc<Stored<Machine>>> {
        let is_counted = |machine: &Machine| {
            !machine.labels().contains_key(labels::POOL_NAME) && Kept::of(machine).is_none()
        };
        self.workers.iter().filter(move |machine| is_counted(machine))
    }
}

/// Whether the Cluster is an owner of an object.
pub(super) fn is_of_cluster<K: Kind>(object: &K, cluster: &Cluster) -> bool {
    object.owner_references().iter().any(|owner| {
        names_kind(owner, "cluster.x-k8s.io", "Cluster") && owner.name == cluster.name_or_empty()
    })
}

fn in_namespace<K: Kind>(
    store: &Store<K>,
    namespace: &str,
    is_chosen: impl Fn(&K) -> bool,
) -> Vec<Arc<Stored<K>>> {
    let mut chosen: Vec<_> = {
        let all = store.read();
        let of_namespace = all.values().filter(|one| one.namespace_or_empty() == namespace);
        of_namespace.filter(|one| is_chosen(one)).cloned().collect()
    };
    chosen.sort_by(|one, other| one.name_or_empty().cmp(other.name_or_empty()));
    chosen
}

fn with_conditions<K: Kind>(
    objects: Vec<Arc<Stored<K>>>,
    conditions: impl Fn(&K) -> Option<&[ApiCondition]>,
) -> Vec<WithConditions<K>> {
    let read = |object: Arc<Stored<K>>| {
        let conditions = conditions(&object).map(read).unwrap_or_default();
        WithConditions { object, conditions }
    };
    objects.into_iter().map(read).collect()
}

/// So many names of each kind are asked for.
const NAMED: u32 = 6;

/// What the API server has of a Cluster now, by the label that all controllers write. The caches may not show yet what was created
/// a moment ago.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) machine_deployments: Vec<String>,
    pub(super) machine_sets: Vec<String>,
    /// Of workers and control plane.
    pub(super) machines: Vec<String>,
}

impl Listed {
    pub(super) async fn of(core: &Core, cluster: &Cluster) -> Result<Self, Failure> {
        let namespace = cluster.namespace_or_empty();
        let label = (labels::CLUSTER_NAME, cluster.name_or_empty());
        Ok(Self {
            machine_deployments: core.writer.names_of::<MachineDeployment>(namespace, label, NAMED).await?,
            machine_sets: core.writer.names_of::<MachineSet>(namespace, label, NAMED).await?,
            machines: core.writer.names_of::<Machine>(namespace, label, NAMED).await?,
        })
    }
}
