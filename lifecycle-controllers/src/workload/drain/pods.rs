//! The Pods of a Node, and what decides about them.

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider::dns;
use cluster_api::names::labels::POD_DRAIN;
use component::api_client::describe;
use controller_kit::of_kind;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::{
    api::{apps::v1::DaemonSet as DaemonSetObject, core::v1::Namespace},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Api, api::ListParams, core::PartialObjectMeta};
use lifecycle::drain::{DaemonSet, Pod};
use serde::{Deserialize, de::DeserializeOwned};

use super::error::DrainError;
use crate::workload::{WorkloadCluster, words::words};

/// How many objects one page of a list has.
const PAGE: u32 = 100;
/// The most Pods of a Node. Kubernetes recommends 110.
const MOST_PODS: usize = 2_000;
/// The most objects of another list.
const MOST: usize = 100_000;
/// What is kept of a list, in bytes.
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// `DaemonSet`s that are looked up at once.
const LOOKUPS: usize = 4;
/// The annotation of a Pod whose source is a file on the Node.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A Pod as the drain works with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::workload) struct PodOnNode {
    /// What decides.
    pub(in crate::workload) judged: Pod,
    pub(in crate::workload) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    /// The `DaemonSet` that controls it, if it is not finished.
    daemon_set: Option<String>,
    /// The `PersistentVolumeClaim`s that it uses.
    pub(in crate::workload) claims: Vec<String>,
}

/// A Pod as it comes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WirePod {
    metadata: ObjectMeta,
    spec: WireSpec,
    status: WireStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    node_name: Option<String>,
    volumes: Option<Vec<WireVolume>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireVolume {
    persistent_volume_claim: Option<WireClaim>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireClaim {
    claim_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    phase: Option<String>,
}

of_kind!(WirePod, k8s_openapi::api::core::v1::Pod);

impl WirePod {
    /// The Pod, unless its name is none that a Pod can have.
    fn read(self, now: Timestamp) -> Option<PodOnNode> {
        let Self { metadata, spec, status } = self;
        let name = metadata.name.filter(|name| dns::is_subdomain(name))?;
        let namespace = metadata.namespace.filter(|name| dns::is_subdomain(name))?;
        let finished = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let owners = metadata.owner_references.unwrap_or_default();
        let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
        let daemon_set = controller
            .filter(|owner| owner.kind == "DaemonSet" && !finished && dns::is_subdomain(&owner.name))
            .map(|owner| owner.name);
        let labels = metadata.labels.unwrap_or_default();
        let claims =
            spec.volumes.unwrap_or_default().into_iter().filter_map(|volume| volume.persistent_volume_claim);
        let judged = Pod {
            name: format!("{namespace}/{name}"),
            deleting_for: metadata
                .deletion_timestamp
                .map(|Time(time)| now.as_second().saturating_sub(time.as_second())),
            finished,
            daemon_set: None,
            mirror: metadata.annotations.is_some_and(|annotations| annotations.contains_key(MIRROR)),
            label: labels.get(POD_DRAIN).cloned(),
        };
        Some(PodOnNode {
            judged,
            namespace,
            name,
            uid: metadata.uid.unwrap_or_default(),
            labels,
            daemon_set,
            claims: claims.map(|claim| claim.claim_name).collect(),
        })
    }
}

impl PodOnNode {
    fn size(&self) -> usize {
        size_of(self.labels.iter().flat_map(|(key, value)| [key, value]))
            + size_of(&self.claims)
            + size_of([&self.uid])
    }
}

/// The Pods that are on a Node, by namespace and name.
pub(super) async fn list(
    cluster: &WorkloadCluster,
    node: &str,
    now: Timestamp,
) -> Result<Vec<PodOnNode>, DrainError> {
    let api: Api<WirePod> = Api::all(cluster.client().clone());
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let mut pods = Vec::new();
    pages(&api, of_node, "Pods", |pod: WirePod| {
        let on_node = pod.spec.node_name.as_deref() == Some(node);
        let Some(pod) = on_node.then(|| pod.read(now)).flatten() else { return 0 };
        let size = pod.size();
        pods.push(pod);
        // The number of Pods is limited too.
        size.max(MOST_BYTES / MOST_PODS)
    })
    .await?;
    pods.sort_by(|one: &PodOnNode, other| one.judged.name.cmp(&other.judged.name));
    Ok(pods)
}

/// Calls `each` with every object of a list. It gives about how many bytes it keeps of the object.
pub(in crate::workload) async fn pages<K>(
    api: &Api<K>,
    mut params: ListParams,
    kind: &str,
    mut each: impl FnMut(K) -> usize,
) -> Result<(), DrainError>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    params.limit = Some(PAGE);
    let (mut count, mut bytes) = (0, 0);
    loop {
        let page = api.list(&params).await.map_err(|error| unread(kind, &error))?;
        // An empty page counts as well, since the next one may be asked for again and again.
        count += page.items.len().max(1);
        for object in page.items {
            bytes += each(object);
        }
        if count > MOST || bytes > MOST_BYTES {
            return Err(DrainError(format!(
                "{kind} cannot be listed: there are too many, or they are too large"
            )));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

/// About how many bytes some texts take.
pub(in crate::workload) fn size_of<'a>(texts: impl IntoIterator<Item = &'a String>) -> usize {
    texts.into_iter().map(|text| 64 + text.len()).sum()
}

fn unread(kind: &str, error: &kube::Error) -> DrainError {
    DrainError(format!("{kind} cannot be read: {}", words(&describe(error))))
}

/// Finds out which `DaemonSet`s exist.
pub(super) async fn look_up_daemon_sets(
    cluster: &WorkloadCluster,
    pods: &mut [PodOnNode],
) -> Result<(), DrainError> {
    let wanted: BTreeSet<(String, String)> =
        pods.iter().filter_map(|pod| Some((pod.namespace.clone(), pod.daemon_set.clone()?))).collect();
    let look_up = |(namespace, name): (String, String)| async move {
        let api: Api<PartialObjectMeta<DaemonSetObject>> =
            Api::namespaced(cluster.client().clone(), &namespace);
        let found = api
            .get_opt(&name)
            .await
            .map_err(|error| unread(&format!("DaemonSet {namespace}/{name}"), &error))?;
        let state = if found.is_some() { DaemonSet::Exists } else { DaemonSet::Gone };
        Ok::<_, DrainError>(((namespace, name), state))
    };
    let found: BTreeMap<_, _> =
        stream::iter(wanted).map(look_up).buffer_unordered(LOOKUPS).try_collect().await?;
    for pod in pods {
        if let Some(name) = &pod.daemon_set {
            pod.judged.daemon_set = found.get(&(pod.namespace.clone(), name.clone())).copied();
        }
    }
    Ok(())
}

/// The labels of all Namespaces, by name.
pub(super) async fn namespaces(
    cluster: &WorkloadCluster,
) -> Result<BTreeMap<String, BTreeMap<String, String>>, DrainError> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(cluster.client().clone());
    let mut namespaces = BTreeMap::new();
    pages(&api, ListParams::default(), "Namespaces", |namespace| {
        let metadata = namespace.metadata;
        let Some(name) = metadata.name.filter(|name| dns::is_label(name)) else { return 0 };
        let labels = metadata.labels.unwrap_or_default();
        let size = size_of(labels.iter().flat_map(|(key, value)| [key, value]).chain([&name]));
        namespaces.insert(name, labels);
        size
    })
    .await?;
    Ok(namespaces)
}

#[cfg(test)]
pub(super) fn from_json(pod: serde_json::Value) -> PodOnNode {
    let wire: WirePod = serde_json::from_value(pod).expect("a Pod");
    wire.read(Timestamp::now()).expect("a name")
}
