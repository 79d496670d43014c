//! The objects that the controller writes: machines and clusters of a provider.

use std::collections::BTreeSet;

use cloudprovider::{
    ControlPlaneEndpoint,
    machines::{Kinds, Mark},
};
use controller_kit::cache::is_older;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::names::{
    BLOCK_MOVE_ANNOTATION, BLOCK_MOVE_VALUE, CLUSTER_NAME_LABEL, CORE_GROUP, MANAGED_BY, PAUSED_ANNOTATION,
    WATCH_FILTER_LABEL, cluster_annotation, identity_annotation,
};

/// An annotation of `kubectl apply` with the whole object once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The end of the domain of annotations that are read. Others may be long, and there are many of them.
const READ_DOMAIN: &str = "cluster.x-k8s.io";

/// The longest annotation that is kept.
const MAX_ANNOTATION: usize = 1024;

/// A machine, a cluster or a template of a provider, as the watch shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InfraObject {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its spec, whole.
    #[serde(default)]
    pub spec: Value,
    /// Its status, whole.
    #[serde(default)]
    pub status: Map<String, Value>,
}

impl InfraObject {
    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The generation of its spec.
    pub fn generation(&self) -> i64 {
        self.metadata.generation.unwrap_or_default()
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// An annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether it carries the annotation with which this controller holds `clusterctl move`.
    pub fn holds_move(&self) -> bool {
        self.annotation(BLOCK_MOVE_ANNOTATION) == Some(BLOCK_MOVE_VALUE)
    }

    /// A label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether the object itself is paused.
    pub fn is_paused(&self) -> bool {
        self.annotation(PAUSED_ANNOTATION).is_some()
    }

    /// Whether something else takes care of it.
    pub fn is_managed_elsewhere(&self) -> bool {
        self.annotation(MANAGED_BY).or_else(|| self.label(MANAGED_BY)).is_some()
    }

    /// Whether a controller with this watch filter works on it. Without a filter it works on all.
    pub fn passes(&self, watch_filter: Option<&str>) -> bool {
        watch_filter.is_none_or(|filter| self.label(WATCH_FILTER_LABEL) == Some(filter))
    }

    /// Whether it has a finalizer.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == name)
    }

    /// The owner of a kind of Cluster API's core. A new machine has another owner before its Machine.
    pub fn core_owner(&self, kind: &str) -> Option<&OwnerReference> {
        let is_core = |owner: &&OwnerReference| {
            owner.kind == kind && owner.api_version.split('/').next() == Some(CORE_GROUP)
        };
        self.metadata.owner_references.iter().flatten().find(is_core)
    }

    /// The name of its Cluster.
    pub fn cluster_name(&self) -> Option<&str> {
        let owner = || self.core_owner("Cluster").map(|owner| owner.name.as_str());
        self.label(CLUSTER_NAME_LABEL).filter(|name| !name.is_empty()).or_else(owner)
    }

    /// The identity that it has in an annotation.
    pub fn identity(&self, kinds: &Kinds) -> Option<&str> {
        self.annotation(&identity_annotation(kinds)).filter(|uid| !uid.is_empty())
    }

    /// The name of the Cluster that it was made for, which it has in an annotation.
    pub fn made_for(&self, kinds: &Kinds) -> Option<&str> {
        self.annotation(&cluster_annotation(kinds)).filter(|name| !name.is_empty())
    }

    /// The name of the Cluster in its mark. Objects of earlier versions have no annotation with it.
    pub fn marked_cluster(&self, kinds: &Kinds) -> Option<&str> {
        self.made_for(kinds).or_else(|| self.cluster_name())
    }

    /// The names of all Clusters that it may belong to: by its label, its owner, and what it was made for.
    pub fn cluster_names(&self, kinds: &Kinds) -> BTreeSet<&str> {
        let owner = self.core_owner("Cluster").map(|owner| owner.name.as_str());
        [self.cluster_name(), owner, self.made_for(kinds)].into_iter().flatten().collect()
    }

    /// Whether it has had its identity from the beginning. A copy has not, and neither has an object that has
    /// moved.
    pub fn is_original(&self, kinds: &Kinds) -> bool {
        self.identity(kinds) == self.metadata.uid.as_deref()
    }

    /// The mark of what a machine's steps create.
    pub fn machine_mark(&self, kinds: &Kinds) -> Mark {
        let cluster = self.marked_cluster(kinds).unwrap_or_default();
        Mark::machine(self.uid(kinds), self.namespace(), cluster, self.name())
    }

    /// The mark of what a cluster's steps create.
    pub fn cluster_mark(&self, kinds: &Kinds) -> Mark {
        let cluster = self.marked_cluster(kinds).unwrap_or_else(|| self.name());
        Mark::cluster(self.uid(kinds), self.namespace(), cluster)
    }

    fn uid(&self, kinds: &Kinds) -> &str {
        let own = || self.metadata.uid.as_deref().unwrap_or_default();
        self.identity(kinds).unwrap_or_else(own)
    }

    /// `spec.providerID`.
    pub fn provider_id(&self) -> Option<&str> {
        self.spec["providerID"].as_str().filter(|id| !id.is_empty())
    }

    /// `spec.controlPlaneEndpoint`.
    pub fn endpoint(&self) -> Option<ControlPlaneEndpoint> {
        read_endpoint(&self.spec["controlPlaneEndpoint"])
    }

    /// `status.initialization.provisioned`.
    pub fn is_provisioned(&self) -> bool {
        self.status.get("initialization").is_some_and(|initialization| initialization["provisioned"] == true)
    }

    /// A condition of its status.
    pub fn condition(&self, condition_type: &str) -> Option<&Value> {
        let conditions = self.status.get("conditions")?.as_array()?;
        conditions.iter().find(|condition| condition["type"] == condition_type)
    }
}

impl InfraObject {
    /// Its namespace and name: `default/node-1`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace(), self.name())
    }

    /// Whether it is older than `written`, the version that one of our own writes produced.
    pub fn is_older_than(&self, written: &str) -> bool {
        is_older(self.metadata.resource_version.as_deref().unwrap_or_default(), written)
    }

    /// The same without long values, and without what the controller does not read. Patches name what they
    /// change, so that nothing of it is lost.
    #[must_use]
    pub fn lean(mut self) -> Self {
        self = self.without_history();
        if let Some(annotations) = &mut self.metadata.annotations {
            annotations.retain(|name, value| {
                let is_read = name.split_once('/').is_some_and(|(domain, _)| domain.ends_with(READ_DOMAIN));
                value.truncate(value.floor_char_boundary(MAX_ANNOTATION));
                value.shrink_to_fit();
                is_read
            });
        }
        self
    }

    /// The same without what says how it came to be.
    #[must_use]
    pub(super) fn without_history(mut self) -> Self {
        self.metadata.managed_fields = None;
        if let Some(annotations) = &mut self.metadata.annotations {
            annotations.remove(LAST_APPLIED);
        }
        self
    }
}

/// A merge patch for this very version of an object: it replaces whole lists, so a newer version has to be
/// read first.
pub(super) fn guarded(metadata: &ObjectMeta, mut patch: Value) -> Value {
    patch["metadata"]["uid"] = json!(metadata.uid);
    patch["metadata"]["resourceVersion"] = json!(metadata.resource_version);
    patch
}

/// An endpoint, as the API has it. An empty host is none, as v1beta1 writes it.
pub(super) fn read_endpoint(value: &Value) -> Option<ControlPlaneEndpoint> {
    let host = value["host"].as_str().filter(|host| !host.is_empty())?.to_owned();
    let port = value["port"].as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)?;
    Some(ControlPlaneEndpoint { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_annotations_only_what_is_read_is_kept_and_nothing_long() {
        let long = "ä".repeat(100_000);
        let object: InfraObject = serde_json::from_value(json!({"metadata": {"annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": long, "team-a/notes": long, "plain": long,
            "cluster.x-k8s.io/paused": long,
            "infrastructure.cluster.x-k8s.io/cluster-name": "prod",
            "clusterctl.cluster.x-k8s.io/block-move": "machine-controller",
        }}}))
        .expect("an object");
        let lean = object.lean();
        assert!(lean.is_paused() && lean.holds_move());
        assert_eq!(lean.annotation("infrastructure.cluster.x-k8s.io/cluster-name"), Some("prod"));
        let annotations = lean.metadata.annotations.expect("annotations");
        assert_eq!(annotations.len(), 3);
        assert!(annotations.values().all(|value| value.len() <= MAX_ANNOTATION));
    }
}
