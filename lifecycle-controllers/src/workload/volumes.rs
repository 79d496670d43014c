//! Volumes that are still attached to a Node whose Pods are gone.
//!
//! Source of the rules: `shouldWaitForNodeVolumes` in `core/reconcilers/machine/machine_controller.go` of Cluster API 1.14.2. A
//! virtual machine that is deleted before its volumes are detached may take their data with it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use controller_kit::of_kind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, api::ListParams};
use lifecycle::drain::Behavior;
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    Node, WorkloadCluster,
    drain::{DrainError, DrainRules, judged, pages, size_of},
    words::words,
};

/// When to look again: upstream's `waitForVolumeDetachRetryInterval`.
pub const RETRY: Duration = Duration::from_secs(20);
/// How long one look may take, with all its requests.
const LOOK: Duration = Duration::from_secs(60);
/// How many names a message has.
const NAMED: usize = 5;

/// What is still attached to a Node and has to be detached. Names are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// `PersistentVolumeClaim`s, as `namespace/name`, without those of Pods that the drain skipped.
    pub claims: BTreeSet<String>,
    /// `PersistentVolume`s that no `PersistentVolumeClaim` has.
    pub without_claim: BTreeSet<String>,
    /// Entries of the Node's `status.volumesAttached` for which there is no `PersistentVolume`.
    pub unknown_to_cluster: BTreeSet<String>,
    /// `PersistentVolume`s of `VolumeAttachment`s that do not exist.
    pub without_volume: BTreeSet<String>,
}

impl Attached {
    /// Whether nothing has to be waited for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The message of the Machine's condition `Deleting`. `started` is `status.deletion.waitForNodeVolumeDetachStartTime` as the
    /// API writes it.
    #[must_use]
    pub fn message(&self, started: &str) -> String {
        let mut text = format!("Waiting for Node volumes to be detached (started at {started})");
        for (names, what) in [
            (&self.claims, "PersistentVolumeClaims"),
            (&self.without_claim, "PersistentVolumes without a .spec.claimRef to a PersistentVolumeClaim"),
            (
                &self.unknown_to_cluster,
                "Node with .status.volumesAttached entries not matching a PersistentVolume",
            ),
            (
                &self.without_volume,
                "VolumeAttachment with .spec.source.persistentVolumeName not matching a PersistentVolume",
            ),
        ] {
            if names.is_empty() {
                continue;
            }
            let mut shown: Vec<Cow<'_, str>> =
                names.iter().take(NAMED).map(|name| words(name).into()).collect();
            if names.len() > NAMED {
                shown.push(format!("... ({} more)", names.len() - NAMED).into());
            }
            let _ = write!(text, "\n* {what}: {}", shown.join(", "));
        }
        text
    }
}

/// What is attached to a Node. `rules` are those of its drain. Nothing counts as attached to a Node that no kubelet answers for:
/// nobody there would detach it.
///
/// # Errors
/// As of a pass of the drain; a `VolumeAttachment` that names no `PersistentVolume`.
pub async fn attached(
    cluster: &WorkloadCluster,
    node: &Node,
    rules: &DrainRules,
) -> Result<Attached, DrainError> {
    if node.is_unreachable() {
        return Ok(Attached::default());
    }
    let looked = timeout(LOOK, look(cluster, node, rules)).await;
    looked
        .map_err(|_| DrainError(format!("the volumes of the Node could not be looked up within {LOOK:?}")))?
}

async fn look(cluster: &WorkloadCluster, node: &Node, rules: &DrainRules) -> Result<Attached, DrainError> {
    let of_node: BTreeSet<String> = node.volumes_attached.iter().cloned().collect();
    let mut of_attachments = BTreeSet::new();
    let mut unnamed = None;
    let api: Api<Attachment> = Api::all(cluster.client().clone());
    pages(&api, ListParams::default(), "VolumeAttachments", |attachment: Attachment| {
        if !attachment.status.attached || attachment.spec.node_name != node.name {
            return 0;
        }
        let Some(name) = attachment.spec.source.persistent_volume_name else {
            unnamed = attachment.metadata.name;
            return 0;
        };
        let size = size_of([&name]);
        of_attachments.insert(name);
        size
    })
    .await?;
    if let Some(name) = unnamed {
        let name = words(&name);
        return Err(DrainError(format!("VolumeAttachment {name} has no spec.source.persistentVolumeName")));
    }
    if of_node.is_empty() && of_attachments.is_empty() {
        return Ok(Attached::default());
    }
    let pods = judged(cluster, node, rules).await?;
    let skipped = pods.iter().filter(|(_, behavior)| *behavior == Behavior::Skip);
    let ignored: BTreeSet<String> = skipped
        .flat_map(|(pod, _)| pod.claims.iter().map(move |claim| format!("{}/{claim}", pod.namespace)))
        .collect();
    let mut volumes = BTreeMap::new();
    let api: Api<Volume> = Api::all(cluster.client().clone());
    pages(&api, ListParams::default(), "PersistentVolumes", |volume: Volume| {
        let handle = volume.handle().filter(|handle| of_node.contains(handle));
        let name = volume.metadata.name.clone().unwrap_or_default();
        if handle.is_none() && !of_attachments.contains(&name) {
            return 0;
        }
        let claim = volume.claim();
        let size = size_of([&name].into_iter().chain(&handle).chain(&claim));
        volumes.insert(name, (handle, claim));
        size
    })
    .await?;
    Ok(divided(of_node, of_attachments, &volumes, &ignored))
}

/// Handle and claim of `PersistentVolume`s that are attached, by their names.
type Volumes = BTreeMap<String, (Option<String>, Option<String>)>;

fn divided(
    mut of_node: BTreeSet<String>,
    mut of_attachments: BTreeSet<String>,
    volumes: &Volumes,
    ignored: &BTreeSet<String>,
) -> Attached {
    let mut attached = Attached::default();
    for (name, (handle, claim)) in volumes {
        of_attachments.remove(name);
        if let Some(handle) = handle {
            of_node.remove(handle);
        }
        match claim {
            Some(claim) if ignored.contains(claim) => {}
            Some(claim) => drop(attached.claims.insert(claim.clone())),
            None => drop(attached.without_claim.insert(name.clone())),
        }
    }
    Attached { unknown_to_cluster: of_node, without_volume: of_attachments, ..attached }
}

/// A `VolumeAttachment` as it comes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Attachment {
    metadata: ObjectMeta,
    spec: AttachmentSpec,
    status: AttachmentStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentSpec {
    node_name: String,
    source: AttachmentSource,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentSource {
    persistent_volume_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct AttachmentStatus {
    attached: bool,
}

/// A `PersistentVolume` as it comes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Volume {
    metadata: ObjectMeta,
    spec: VolumeSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeSpec {
    csi: Option<Csi>,
    claim_ref: Option<ClaimRef>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Csi {
    driver: String,
    volume_handle: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimRef {
    kind: String,
    namespace: String,
    name: String,
}

impl Volume {
    /// Its name in `status.volumesAttached` of a Node.
    fn handle(&self) -> Option<String> {
        let Csi { driver, volume_handle } = self.spec.csi.as_ref()?;
        Some(format!("kubernetes.io/csi/{driver}^{volume_handle}"))
    }

    fn claim(&self) -> Option<String> {
        let claim = self.spec.claim_ref.as_ref().filter(|claim| claim.kind == "PersistentVolumeClaim")?;
        Some(format!("{}/{}", claim.namespace, claim.name))
    }
}

of_kind!(Attachment, k8s_openapi::api::storage::v1::VolumeAttachment);
of_kind!(Volume, k8s_openapi::api::core::v1::PersistentVolume);

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_is_attached_is_divided() {
        let volumes: Volumes = [
            ("pv1", Some("csi^1"), Some("a/c1")),
            ("pv2", Some("csi^2"), Some("a/skipped")),
            ("pv3", None, Some("b/c3")),
            ("pv4", Some("csi^4"), None),
        ]
        .into_iter()
        .map(|(name, handle, claim)| (name.to_owned(), (handle.map(str::to_owned), claim.map(str::to_owned))))
        .collect();
        let found = divided(
            set(&["csi^1", "csi^2", "csi^4", "csi^9"]),
            set(&["pv1", "pv3", "pv8"]),
            &volumes,
            &set(&["a/skipped"]),
        );
        let expected = Attached {
            claims: set(&["a/c1", "b/c3"]),
            without_claim: set(&["pv4"]),
            unknown_to_cluster: set(&["csi^9"]),
            without_volume: set(&["pv8"]),
        };
        assert_eq!(found, expected);
        assert_eq!(
            found.message("2026-01-02T03:04:05Z"),
            "Waiting for Node volumes to be detached (started at 2026-01-02T03:04:05Z)\n\
             * PersistentVolumeClaims: a/c1, b/c3\n\
             * PersistentVolumes without a .spec.claimRef to a PersistentVolumeClaim: pv4\n\
             * Node with .status.volumesAttached entries not matching a PersistentVolume: csi^9\n\
             * VolumeAttachment with .spec.source.persistentVolumeName not matching a PersistentVolume: pv8"
        );
        let many = Attached {
            claims: set(&["a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7"]),
            ..Attached::default()
        };
        assert!(
            many.message("t").ends_with("* PersistentVolumeClaims: a/1, a/2, a/3, a/4, a/5, ... (2 more)")
        );
        let hostile = Attached { unknown_to_cluster: set(&["x\n* forged"]), ..Attached::default() };
        assert!(hostile.message("t").ends_with(": x * forged"), "{}", hostile.message("t"));
        let all_skipped = divided(
            set(&["csi^2"]),
            set(&[]),
            &volumes_of("pv2", "csi^2", "a/skipped"),
            &set(&["a/skipped"]),
        );
        assert!(all_skipped.is_empty());
    }

    fn volumes_of(name: &str, handle: &str, claim: &str) -> Volumes {
        [(name.to_owned(), (Some(handle.to_owned()), Some(claim.to_owned())))].into()
    }
}
