//! What the watches show: the objects of the provider's kinds, and those of Cluster API's core.

use std::{borrow::Cow, time::Duration};

use cloudprovider::machines::Kinds;
use controller_kit::{
    cache::{Cache, CachedObject, Watched},
    services::ControlPlanes,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Object;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{
    auxiliary::{self, AuxiliaryStores},
    cluster_api::{Cluster, Machine},
    names::auxiliary_kinds,
    object::InfraObject,
    packed::Packed,
};

/// How long objects of auxiliary kinds are waited for before the controller begins. Steps that need them wait
/// longer.
const AUXILIARY_TIMEOUT: Duration = Duration::from_secs(10);

/// The caches of the controller. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Stores {
    /// Machines of the provider.
    pub machines: Cache<Packed>,
    /// Clusters of the provider.
    pub clusters: Cache<Packed>,
    /// Templates of machines of the provider.
    pub templates: Cache<Packed>,
    /// Machines of Cluster API.
    pub core_machines: Cache<Core<Machine>>,
    /// Clusters of Cluster API.
    pub core_clusters: Cache<Core<Cluster>>,
    /// Objects of the provider's auxiliary kinds, and of the controller's own.
    pub auxiliary: AuxiliaryStores,
}

impl Stores {
    /// Empty caches for these kinds, in this namespace or in all.
    pub fn of(kinds: &Kinds, namespace: Option<&str>) -> Self {
        let auxiliary: Vec<_> = auxiliary_kinds(kinds).collect();
        Self { auxiliary: AuxiliaryStores::new(&auxiliary).in_namespace(namespace), ..Self::default() }
    }

    /// Where the Clusters have their API servers.
    pub(super) fn control_planes(&self) -> ControlPlanes {
        ControlPlanes::new(self.core_clusters.clone(), |cluster| {
            Some(cluster.content.endpoint.as_ref()?.host.as_str())
        })
    }

    /// Waits until they show everything. An auxiliary kind that cannot be read stops only the steps that need
    /// it.
    pub(super) async fn arrived(&self) {
        self.synced().await;
        let _in_time = timeout(AUXILIARY_TIMEOUT, self.auxiliary.settled()).await;
    }

    /// Waits until all but the auxiliary ones have arrived.
    async fn synced(&self) {
        tokio::join!(
            self.machines.synced(),
            self.clusters.synced(),
            self.templates.synced(),
            self.core_machines.synced(),
            self.core_clusters.synced(),
        );
    }
}

/// The key of an object in a cache.
pub(super) fn key_of(namespace: &str, name: &str) -> String {
    auxiliary::key_of(Some(namespace), name)
}

/// A Machine or a Cluster of Cluster API's core, as far as it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Core<T> {
    key: String,
    version: String,
    /// Its UID.
    pub uid: String,
    /// What it says.
    pub content: T,
}

impl<T: Clone + PartialEq + Send + Sync + 'static> CachedObject for Core<T> {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.key)
    }

    fn resource_version(&self) -> &str {
        &self.version
    }

    fn set_resource_version(&mut self, version: &str) {
        version.clone_into(&mut self.version);
    }

    fn same_content(&self, other: &Self) -> bool {
        self.uid == other.uid && self.content == other.content
    }
}

impl<T> Core<T> {
    /// What is kept of an object as the API has it.
    pub fn of(metadata: ObjectMeta, spec: Value, status: Value, read: fn(&Value) -> T) -> Self {
        let key = key_of(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        );
        let about = json!({"labels": metadata.labels, "ownerReferences": metadata.owner_references});
        let whole = json!({"metadata": about, "spec": spec, "status": status});
        Self {
            key,
            version: metadata.resource_version.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            content: read(&whole),
        }
    }
}

/// An object of the provider's kinds, as it comes from the API server.
pub(super) type WireInfra = Object<Option<Value>, Map<String, Value>>;

impl From<WireInfra> for InfraObject {
    fn from(object: WireInfra) -> Self {
        let WireInfra { metadata, spec, status, .. } = object;
        let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        Self { metadata, spec, status }.lean()
    }
}

impl From<WireInfra> for Packed {
    fn from(object: WireInfra) -> Self {
        InfraObject::from(object).into()
    }
}

impl Watched<Packed> for WireInfra {}

/// The spec of a Machine.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct MachineSpec(Value);

/// A Machine, as it comes from the API server.
pub(super) type WireMachine = Object<MachineSpec, Value>;

impl From<WireMachine> for Core<Machine> {
    fn from(object: WireMachine) -> Self {
        let WireMachine { metadata, spec, status, .. } = object;
        Self::of(metadata, spec.0, status.unwrap_or_default(), Machine::from_json)
    }
}

impl Watched<Core<Machine>> for WireMachine {}

/// The spec of a Cluster, which may have none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct ClusterSpec(Value);

/// A Cluster, as it comes from the API server.
pub(super) type WireCluster = Object<Option<ClusterSpec>, Value>;

impl From<WireCluster> for Core<Cluster> {
    fn from(object: WireCluster) -> Self {
        let WireCluster { metadata, spec, status, .. } = object;
        Self::of(metadata, spec.unwrap_or_default().0, status.unwrap_or_default(), Cluster::from_json)
    }
}

impl Watched<Core<Cluster>> for WireCluster {}

#[cfg(test)]
mod tests {
    use cloudprovider::{AddressUser, ServiceAccess as _};
    use controller_kit::services::{ClusterServices, ServiceStore};

    use super::*;

    #[tokio::test]
    async fn the_endpoints_of_clusters_are_in_use() {
        let sandbox = sandbox::Sandbox::new();
        let services = ClusterServices::new(sandbox.client(), sandbox.client(), ServiceStore::new());
        // Of two providers, each has a watch.
        let all = [Stores::default(), Stores::default()];
        for stores in &all {
            services.add_control_planes(stores.control_planes());
        }
        assert!(all.iter().all(|stores| stores.core_clusters.subscribers() == 0), "nobody takes their keys");
        let cluster = |version: &str, host: &str| {
            let metadata = json!({"namespace": "a", "name": "prod", "resourceVersion": version});
            let metadata: ObjectMeta = serde_json::from_value(metadata).expect("metadata");
            let spec = json!({"controlPlaneEndpoint": {"host": host, "port": 6443}});
            Core::of(metadata, spec, json!({}), Cluster::from_json)
        };
        let shown = async || {
            let used = services.in_use().await.expect("read");
            used.iter().map(|(address, user)| (address.to_string(), user.clone())).collect::<Vec<_>>()
        };
        assert_eq!(shown().await, []);
        for (version, host, address) in [
            ("1", "192.0.2.1", Some("192.0.2.1")),
            ("2", "2001:db8::1", Some("2001:db8::1")),
            ("3", "prod.example.org", None),
            ("4", "192.0.2.2", Some("192.0.2.2")),
        ] {
            for stores in &all {
                stores.core_clusters.apply(cluster(version, host));
            }
            let user = AddressUser::ControlPlane { namespace: "a".into(), name: "prod".into() };
            assert_eq!(shown().await, Vec::from_iter(address.map(|address| (address.to_owned(), user))));
        }
        for stores in &all {
            stores.core_clusters.remove("a/prod");
        }
        assert_eq!(shown().await, []);
    }

    #[test]
    fn what_is_kept_of_a_machine_says_what_made_it() {
        for (metadata, is_control_plane, group) in [
            (
                json!({
                    "labels": {"cluster.x-k8s.io/control-plane": ""},
                    "ownerReferences": [{
                        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
                        "name": "masters", "uid": "u-1", "controller": true,
                    }],
                }),
                true,
                "masters",
            ),
            (json!({"labels": {"cluster.x-k8s.io/deployment-name": "workers"}}), false, "workers"),
        ] {
            let metadata: ObjectMeta = serde_json::from_value(metadata).expect("metadata");
            let kept = Core::of(metadata, json!({}), json!({}), Machine::from_json).content;
            assert_eq!((kept.is_control_plane, kept.group.as_deref()), (is_control_plane, Some(group)));
        }
    }
}
