//! What the controllers of the core part share.

use std::{sync::Arc, time::Duration};

use cluster_api::{
    Cluster, ContractVersionedObjectReference, Machine,
    names::{annotations, labels},
};
use component::events::{EventObject, EventRecorder, EventType};
use kube::ResourceExt as _;

use crate::{
    engine::{
        control::Then,
        external::{External, ExternalKind, Externals, GroupKind, NotReadable},
        object::{Kind, Meta as _, Stored, key},
        stores::Stores,
        writer::Writer,
    },
    options::LifecycleOptions,
    workload::{ClusterKey, WorkloadClusters, node_sync::AdditionalKeys},
};
use controller_kit::writes::WriteError;

/// The flags of the core part.
#[derive(Clone, Debug, Default)]
pub struct CoreOptions {
    /// `--namespace`. `None`: all of them.
    pub namespace: Option<String>,
    /// `--watch-filter`
    pub watch_filter: Option<String>,
    /// `--additional-sync-machine-labels`: more labels that Nodes have of their Machines.
    pub additional_labels: KeyFilter,
    /// `--additional-sync-machine-annotations`: the same for annotations.
    pub additional_annotations: KeyFilter,
}

/// Chooses keys of labels or annotations.
#[derive(Clone)]
pub struct KeyFilter(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl KeyFilter {
    /// Chooses what `is_chosen` does.
    pub fn new(is_chosen: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_chosen))
    }
}

impl Default for KeyFilter {
    /// Chooses none.
    fn default() -> Self {
        Self::new(|_| false)
    }
}

impl std::fmt::Debug for KeyFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyFilter").finish_non_exhaustive()
    }
}

impl CoreOptions {
    /// What the flags of all parts say to the core part.
    pub fn new(options: &LifecycleOptions) -> Self {
        let (labels, annotations) =
            (options.additional_machine_labels.clone(), options.additional_machine_annotations.clone());
        Self {
            namespace: options.namespace.clone(),
            watch_filter: options.watch_filter.clone(),
            additional_labels: KeyFilter::new(move |key| labels.match_name(key)),
            additional_annotations: KeyFilter::new(move |key| annotations.match_name(key)),
        }
    }

    /// More labels and annotations that Nodes have of their Machines.
    pub fn additional_keys(&self) -> AdditionalKeys<'_> {
        AdditionalKeys { labels: &*self.additional_labels.0, annotations: &*self.additional_annotations.0 }
    }
}

/// What the controllers of the core part share.
#[derive(Clone, Debug)]
pub struct Core {
    /// The caches.
    pub stores: Stores,
    /// The objects that Clusters and Machines refer to.
    pub externals: Externals,
    /// Writes in the management cluster.
    pub writer: Writer,
    /// The workload clusters.
    pub workload: WorkloadClusters,
    /// Events in the management cluster.
    pub events: EventRecorder,
    /// The flags.
    pub options: CoreOptions,
}

/// When to look again for an object that does not exist. Its kind may not exist either, and nothing says when one is installed.
pub const UNTIL_THERE: Duration = Duration::from_secs(30);

/// The object of a reference.
#[derive(Clone, Debug)]
pub enum Referenced {
    /// It is there.
    There(ExternalKind, Arc<External>),
    /// The API server confirms that there is none.
    Missing,
    /// It cannot be read.
    Unreadable(String),
}

impl Referenced {
    /// When to look again, if it does not exist.
    pub fn until_there(&self) -> Then {
        if matches!(self, Self::Missing) { Then::After(UNTIL_THERE) } else { Then::WhenChanged }
    }

    /// The object, if it is there.
    pub fn object(&self) -> Option<&External> {
        match self {
            Self::There(_, object) => Some(object),
            Self::Missing | Self::Unreadable(_) => None,
        }
    }
}

/// The reference, unless it is empty.
pub fn defined(reference: &ContractVersionedObjectReference) -> Option<&ContractVersionedObjectReference> {
    (!reference.name.is_empty()).then_some(reference)
}

/// Whether another program makes the control plane of a Cluster, with its certificates and its kubeconfig.
pub fn has_control_plane(cluster: &Cluster) -> bool {
    defined(&cluster.spec.control_plane_ref).is_some() || !cluster.spec.topology.is_null()
}

/// Whether a Cluster or the annotation of an object pauses it.
pub fn is_paused<K: Kind>(cluster: Option<&Cluster>, object: &K) -> bool {
    is_cluster_paused(cluster) || object.annotations().contains_key(annotations::PAUSED)
}

/// Whether the Cluster pauses everything of it.
pub fn is_cluster_paused(cluster: Option<&Cluster>) -> bool {
    cluster.is_some_and(|cluster| cluster.spec.paused.unwrap_or_default())
}

impl Core {
    /// Whether `--watch-filter` lets us reconcile it.
    pub fn is_ours<K: Kind>(&self, object: &K) -> bool {
        let filter = self.options.watch_filter.as_deref();
        filter.is_none_or(|filter| object.label(labels::WATCH_FILTER) == Some(filter))
    }

    /// The Cluster of this name.
    pub fn cluster(&self, namespace: &str, name: &str) -> Option<Arc<Stored<Cluster>>> {
        self.stores.clusters.get(&key(namespace, name))
    }

    /// The Machines of a namespace that are chosen.
    pub fn machines_in(
        &self,
        namespace: &str,
        is_chosen: impl Fn(&Machine) -> bool,
    ) -> Vec<Arc<Stored<Machine>>> {
        let machines = self.stores.machines.read();
        let chosen = machines.values().filter(|one| one.namespace_or_empty() == namespace && is_chosen(one));
        chosen.cloned().collect()
    }

    /// The object of a reference. One that the cache does not show is read, since it may have been created a moment ago, and since a
    /// deletion must not go on because a watch is late.
    pub async fn referenced(
        &self,
        namespace: &str,
        reference: &ContractVersionedObjectReference,
    ) -> Referenced {
        let of = GroupKind { group: reference.api_group.clone(), kind: reference.kind.clone() };
        let kind = match self.externals.of(&of).await {
            Ok(kind) => kind,
            Err(NotReadable::NoDefinition(_)) => return Referenced::Missing,
            Err(error) => return Referenced::Unreadable(error.to_string()),
        };
        if let Some(object) = kind.get(namespace, &reference.name) {
            return Referenced::There(kind, object);
        }
        match self.writer.read_at::<External>(&kind.place(namespace, &reference.name)).await {
            Ok(object) => Referenced::There(kind, Arc::new(object)),
            Err(WriteError::Gone) => Referenced::Missing,
            Err(error) => Referenced::Unreadable(error.to_string()),
        }
    }

    /// Records an event about an object.
    pub fn record<K: Kind>(&self, object: &K, event_type: EventType, reason: &'static str, message: String) {
        let about = EventObject {
            api_version: K::api_version(&()).into_owned().into(),
            kind: kind_name::<K>(),
            namespace: object.namespace_or_empty().to_owned(),
            name: object.name_or_empty().to_owned(),
            uid: object.uid_or_empty().to_owned(),
        };
        self.events.record(about, event_type, reason, message);
    }
}

/// The key of the workload cluster of an object in this namespace.
pub fn workload_key(namespace: &str, cluster: &str) -> ClusterKey {
    ClusterKey { namespace: namespace.to_owned(), name: cluster.to_owned() }
}

fn kind_name<K: Kind>() -> &'static str {
    match K::kind(&()) {
        std::borrow::Cow::Borrowed(kind) => kind,
        std::borrow::Cow::Owned(_) => "",
    }
}
