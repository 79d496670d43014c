//! The infrastructure cluster and the control plane of a Cluster.

use std::sync::Arc;

use cluster_api::{Cluster, ContractVersionedObjectReference, names::labels};
use controller_kit::writes::WriteError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::{
    core::{Core, Referenced, defined},
    engine::{
        control::{Failure, Then},
        external::{Endpoint, External},
        object::{Meta as _, Stored, key, names_kind, owner_reference},
        place::Guard,
        writer::to_json,
    },
};

/// What a Cluster refers to. `None`: the reference is empty.
#[derive(Clone, Debug)]
pub(super) struct RelatedObjects {
    pub(super) infrastructure: Option<Referenced>,
    pub(super) control_plane: Option<Referenced>,
}

impl RelatedObjects {
    /// Reads them, and makes the Cluster an owner of them, unless it is being deleted.
    pub(super) async fn observe(core: &Core, cluster: &Stored<Cluster>) -> Result<Self, Failure> {
        let of = async |reference: &ContractVersionedObjectReference| match defined(reference) {
            Some(reference) => owned(core, cluster, reference).await.map(Some),
            None => Ok(None),
        };
        let infrastructure = of(&cluster.spec.infrastructure_ref).await?;
        let control_plane = of(&cluster.spec.control_plane_ref).await?;
        Ok(Self { infrastructure, control_plane })
    }

    /// What of them cannot be read, for the log.
    pub(super) fn unreadable(&self, cluster: &Cluster) -> Option<String> {
        let of = |found: &Option<Referenced>, reference: &ContractVersionedObjectReference| match found {
            Some(Referenced::Unreadable(why)) => {
                Some(format!("{} {}: {why}", reference.kind, reference.name))
            }
            _ => None,
        };
        of(&self.infrastructure, &cluster.spec.infrastructure_ref)
            .or_else(|| of(&self.control_plane, &cluster.spec.control_plane_ref))
    }

    /// When to look again for one that does not exist.
    pub(super) fn until_there(&self) -> Then {
        let of = [&self.infrastructure, &self.control_plane];
        of.into_iter().flatten().map(Referenced::until_there).fold(Then::WhenChanged, Then::or)
    }
}

/// The object of a reference, if it is there and stays.
pub(super) fn lasting(found: Option<&Referenced>) -> Option<&External> {
    found.and_then(Referenced::object).filter(|object| !object.is_deleting())
}

/// The object of a reference. The Cluster is an owner of it from now on.
async fn owned(
    core: &Core,
    cluster: &Stored<Cluster>,
    reference: &ContractVersionedObjectReference,
) -> Result<Referenced, Failure> {
    let namespace = cluster.namespace_or_empty();
    let found = core.referenced(namespace, reference).await;
    let Referenced::There(kind, object) = &found else { return Ok(found) };
    let is_live = |owner: &OwnerReference| {
        let of_owner = core.stores.clusters.get(&key(namespace, &owner.name));
        of_owner.is_some_and(|found| found.uid_or_empty() == owner.uid)
    };
    if cluster.is_deleting() {
        // Another Cluster goes on using it.
        return Ok(if other_owner(object, cluster, is_live).is_some() { Referenced::Missing } else { found });
    }
    let patch = match ownership(object, cluster, is_live) {
        Ok(Some(patch)) => patch,
        Ok(None) => return Ok(found),
        Err(conflict) => return Ok(Referenced::Unreadable(conflict)),
    };
    let place = kind.place(namespace, &reference.name);
    match core.writer.patch_at::<External>(&place, Guard::of(&**object), patch).await {
        Ok(written) => Ok(Referenced::There(kind.clone(), Arc::new(written))),
        // The rest of the status is right whatever the provider's webhook says.
        Err(WriteError::Failed(why)) => Ok(Referenced::Unreadable(format!("it cannot be owned: {why}"))),
        Err(error) => Err(error.into()),
    }
}

/// Another Cluster that owns the object and exists.
fn other_owner<'a>(
    object: &'a External,
    cluster: &Cluster,
    is_live: impl Fn(&OwnerReference) -> bool,
) -> Option<&'a OwnerReference> {
    let is_other = |owner: &&OwnerReference| {
        names_kind(owner, "cluster.x-k8s.io", "Cluster") && owner.uid != cluster.uid_or_empty()
    };
    object.owner_references().iter().filter(is_other).find(|owner| is_live(owner))
}

/// The patch that makes the Cluster an owner of an object. `None`: it is already, or the object is on its way out.
///
/// It is not the controller, so that another program can be; of a Cluster with a topology it is. `is_live`: whether the Cluster of an
/// owner reference exists.
///
/// # Errors
/// If another Cluster owns it. Both would write their name to it in turns, and the first that is deleted would take it along.
fn ownership(
    object: &External,
    cluster: &Cluster,
    is_live: impl Fn(&OwnerReference) -> bool,
) -> Result<Option<Value>, String> {
    if object.is_deleting() {
        return Ok(None);
    }
    let owners = object.owner_references();
    let is_owned = object.is_owned_by(cluster.uid_or_empty());
    let other = other_owner(object, cluster, is_live);
    if let Some(other) = other
        && !is_owned
    {
        return Err(format!("Cluster {} owns it", other.name));
    }
    let wanted = owner_reference(cluster, !cluster.spec.topology.is_null());
    // A Cluster of this name that is gone, as after a move.
    let is_own = |owner: &OwnerReference| {
        owner.uid == wanted.uid
            || (names_kind(owner, "cluster.x-k8s.io", "Cluster") && owner.name == wanted.name)
    };
    let is_controller = |owner: &OwnerReference| owner.controller == Some(true);
    let is_wanted = |owner: &OwnerReference| {
        owner.api_version == wanted.api_version
            && owner.kind == wanted.kind
            && owner.name == wanted.name
            && owner.uid == wanted.uid
            && is_controller(owner) == is_controller(&wanted)
    };
    let name = cluster.name_or_empty();
    let has_label = object.label(labels::CLUSTER_NAME) == Some(name) || other.is_some();
    let mut of_cluster = owners.iter().filter(|owner| is_own(owner));
    if has_label && of_cluster.next().is_some_and(is_wanted) && of_cluster.next().is_none() {
        return Ok(None);
    }
    let others: Vec<_> = owners.iter().filter(|owner| !is_own(owner)).cloned().collect();
    if is_controller(&wanted)
        && let Some(controller) = others.iter().find(|owner| is_controller(owner))
    {
        return Err(format!("{} {} controls it", controller.kind, controller.name));
    }
    let owners: Vec<_> = others.into_iter().chain([wanted]).collect();
    let owners = to_json(&owners).map_err(|error| error.to_string())?;
    let mut metadata = json!({"ownerReferences": owners});
    if other.is_none() {
        metadata["labels"] = json!({labels::CLUSTER_NAME: name});
    }
    Ok(Some(json!({"metadata": metadata})))
}

/// The longest host of an endpoint that the definition of Clusters permits, in characters.
const LONGEST_HOST: usize = 512;

/// Where the API server is, once infrastructure or control plane say so. `None`: nothing is to be copied.
pub(super) fn endpoint<'a>(cluster: &Cluster, related: &'a RelatedObjects) -> Option<&'a Endpoint> {
    if cluster.is_deleting() || has_endpoint(cluster) {
        return None;
    }
    let before = cluster.status.as_ref().map(|status| &status.initialization);
    let was_provisioned = before.and_then(|one| one.infrastructure_provisioned).unwrap_or_default();
    let was_initialized = before.and_then(|one| one.control_plane_initialized).unwrap_or_default();
    let of_infrastructure = lasting(related.infrastructure.as_ref())
        .filter(|object| object.provisioned || was_provisioned)
        .and_then(|object| object.endpoint.as_ref());
    let of_control_plane = || {
        lasting(related.control_plane.as_ref())
            .filter(|object| object.control_plane_initialized || was_initialized)
            .and_then(|object| object.endpoint.as_ref())
    };
    let found = of_infrastructure.or_else(of_control_plane);
    found.filter(|endpoint| endpoint.host.chars().count() <= LONGEST_HOST)
}

/// Whether `spec.controlPlaneEndpoint` has a host and a port.
pub(super) fn has_endpoint(cluster: &Cluster) -> bool {
    let endpoint = &cluster.spec.control_plane_endpoint;
    endpoint.host.as_ref().is_some_and(|host| !host.is_empty()) && endpoint.port.is_some_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(topology: &Value) -> Cluster {
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "c", "namespace": "n", "uid": "u"},
            "spec": {"topology": topology},
        });
        serde_json::from_value(cluster).expect("a Cluster")
    }

    fn owner(kind: &str, name: &str, uid: &str, controller: Option<bool>) -> Value {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "uid": uid, "controller": controller,
            "blockOwnerDeletion": controller,
        })
    }

    fn object(owners: &[&Value], label: &str) -> External {
        let metadata =
            json!({"name": "i", "ownerReferences": owners, "labels": {labels::CLUSTER_NAME: label}});
        External { metadata: serde_json::from_value(metadata).expect("metadata"), ..External::default() }
    }

    /// Owners and the label.
    type Patched = Option<(Vec<Value>, Option<String>)>;

    /// The owners and the label of the patch. The Cluster `live` exists.
    fn patched(object: &External, cluster: &Cluster) -> Result<Patched, String> {
        let patch = ownership(object, cluster, |owner| owner.name == "live")?;
        Ok(patch.map(|patch| {
            let metadata = &patch["metadata"];
            let owners = metadata["ownerReferences"].as_array().cloned().unwrap_or_default();
            (owners, metadata["labels"][labels::CLUSTER_NAME].as_str().map(str::to_owned))
        }))
    }

    fn bare(mut owner: Value) -> Value {
        owner.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
        owner
    }

    #[test]
    fn a_cluster_owns_what_it_refers_to_and_leaves_its_control_to_others() {
        let ours = owner("Cluster", "c", "u", None);
        let other = owner("Tool", "t", "t", Some(true));
        let cluster = cluster(&Value::Null);
        let expected = |owners: &[&Value]| {
            let owners = owners.iter().map(|owner| bare((*owner).clone())).collect::<Vec<_>>();
            Ok(Some((owners, Some("c".to_owned()))))
        };
        assert_eq!(patched(&object(&[], "c"), &cluster), expected(&[&ours]));
        assert_eq!(patched(&object(&[&ours], "c"), &cluster), Ok(None));
        assert_eq!(patched(&object(&[&ours], "x"), &cluster), expected(&[&ours]));
        let both = [&other, &ours];
        assert_eq!(patched(&object(&both, "c"), &cluster), Ok(None));
        assert_eq!(patched(&object(&both[..1], "c"), &cluster), expected(&[&other, &ours]));
        // What earlier versions or a Cluster before a move left behind.
        let controls = owner("Cluster", "c", "u", Some(true));
        assert_eq!(patched(&object(&[&controls], "c"), &cluster), expected(&[&ours]));
        let moved = owner("Cluster", "c", "before", None);
        assert_eq!(patched(&object(&[&moved], "c"), &cluster), expected(&[&ours]));
        assert_eq!(
            patched(&object(&[&ours, &moved], "c"), &cluster),
            expected(&[&owner("Cluster", "c", "u", None)])
        );
    }

    #[test]
    fn a_cluster_with_a_topology_is_the_controller() {
        let cluster = cluster(&json!({"version": "v1.37.1"}));
        let controls = owner("Cluster", "c", "u", Some(true));
        assert_eq!(patched(&object(&[&controls], "c"), &cluster), Ok(None));
        let of_others = object(&[&owner("Tool", "t", "t", Some(true))], "c");
        assert_eq!(patched(&of_others, &cluster), Err("Tool t controls it".to_owned()));
    }

    #[test]
    fn what_another_cluster_owns_stays_with_it() {
        let cluster = cluster(&Value::Null);
        let (live, gone) = (owner("Cluster", "live", "l", None), owner("Cluster", "gone", "g", None));
        assert_eq!(patched(&object(&[&live], "live"), &cluster), Err("Cluster live owns it".to_owned()));
        let ours = owner("Cluster", "c", "u", None);
        let owners = vec![bare(gone.clone()), bare(ours.clone())];
        assert_eq!(patched(&object(&[&gone], "gone"), &cluster), Ok(Some((owners, Some("c".to_owned())))));
        // Shared by both from before: neither takes the label from the other.
        assert_eq!(patched(&object(&[&live, &ours], "live"), &cluster), Ok(None));
    }
}
