//! The bootstrap config and the infrastructure machine of a Machine.

use cluster_api::{Cluster, ContractVersionedObjectReference, Machine, names::labels};
use controller_kit::writes::WriteError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use lifecycle::machine::Related;
use serde_json::{Value, json};

use crate::{
    core::{Core, Referenced, defined},
    engine::{
        control::Failure,
        external::{External, OWN_GROUP},
        object::{Meta as _, key, names_kind, owner_reference},
        writer::{shows, to_json},
    },
};

/// The owners of an object, in a JSON Patch.
const OWNERS: &str = "/metadata/ownerReferences";

/// What a Machine refers to.
#[derive(Debug)]
pub(super) struct RelatedObjects {
    /// `None`: a user gave the bootstrap data.
    pub(super) bootstrap: Option<Referenced>,
    pub(super) infrastructure: Referenced,
    /// Why the Machine was not made the controller of one of them. The pass goes on, and is then a failed one.
    pub(super) failure: Option<Failure>,
    /// Why the Machine, which is being deleted, has no provider ID though its infrastructure has one.
    pub(super) refused_provider_id: Option<String>,
}

impl RelatedObjects {
    /// Reads them, and makes the Machine their controller.
    pub(super) async fn observe(core: &Core, machine: &Machine, cluster: Option<&Cluster>) -> Self {
        let (bootstrap, of_bootstrap) = match defined(&machine.spec.bootstrap.config_ref) {
            Some(reference) => {
                let (found, failure) = owned(core, machine, cluster, reference).await;
                (Some(found), failure)
            }
            None => (None, None),
        };
        let (infrastructure, of_infrastructure) =
            owned(core, machine, cluster, &machine.spec.infrastructure_ref).await;
        let failure = of_bootstrap.or(of_infrastructure);
        Self { bootstrap, infrastructure, failure, refused_provider_id: None }
    }
}

/// The object of a reference. It is the Machine's from now on, unless that fails.
async fn owned(
    core: &Core,
    machine: &Machine,
    cluster: Option<&Cluster>,
    reference: &ContractVersionedObjectReference,
) -> (Referenced, Option<Failure>) {
    if machine.is_deleting() && reference.api_group == OWN_GROUP {
        // It was refused from the beginning.
        return (Referenced::Missing, None);
    }
    let found = core.referenced(machine.namespace_or_empty(), reference).await;
    let Referenced::There(kind, object) = &found else { return (found, None) };
    let ContractVersionedObjectReference { kind: of, name, .. } = reference;
    let ownership = match ownership(object, machine, cluster) {
        Ok(Some(ownership)) => ownership,
        Ok(None) => return (found, None),
        // It stays when this Machine goes.
        Err(_) if machine.is_deleting() => return (Referenced::Missing, None),
        Err(conflict) => {
            return (Referenced::Unreadable(format!("{of} {name} is not used: {conflict}")), None);
        }
    };
    let place = kind.place(machine.namespace_or_empty(), name);
    match core.writer.patch_at_by_operations::<External>(&place, object.uid_or_empty(), ownership).await {
        Ok(written) => {
            // The next pass would decide on what was before it, and be refused.
            let version = written.metadata.resource_version.as_deref().unwrap_or_default();
            let shown = shows(&kind.objects, &key(machine.namespace_or_empty(), name), version).await;
            (Referenced::There(kind.clone(), std::sync::Arc::new(written)), shown.err().map(Into::into))
        }
        // A Machine that goes takes it along, whatever is refused before.
        Err(WriteError::Failed(why)) if !machine.is_deleting() => {
            let why = format!("{of} {name} cannot be owned by the Machine: {why}");
            (Referenced::Unreadable(why), None)
        }
        Err(error) => (found, Some(error.into())),
    }
}

/// The JSON Patch that makes the Machine the controller of an object. `None`: it is already, or the object is on its way out. Where the
/// object has owners, the patch depends on them alone: each provider writes into a new object in the same moment.
///
/// An object is created before its Machine, so its first owner is what creates both: a `MachineSet`, or the control plane of a Machine of
/// the control plane. Both give way to the Machine.
///
/// # Errors
/// If something else controls it. Two Machines that refer to one object would otherwise share it.
fn ownership(
    object: &External,
    machine: &Machine,
    cluster: Option<&Cluster>,
) -> Result<Option<Vec<Value>>, String> {
    if object.is_deleting() {
        return Ok(None);
    }
    let control_plane = cluster.and_then(|cluster| defined(&cluster.spec.control_plane_ref));
    let control_plane = control_plane.filter(|_| machine.labels().contains_key(labels::CONTROL_PLANE));
    let is_creator = |owner: &OwnerReference| {
        names_kind(owner, "cluster.x-k8s.io", "MachineSet")
            || control_plane.is_some_and(|of| names_kind(owner, &of.api_group, &of.kind))
    };
    let owners = object.owner_references();
    let wanted = owner_reference(machine, true);
    let others: Vec<_> =
        owners.iter().filter(|owner| !is_creator(owner) && owner.uid != wanted.uid).cloned().collect();
    if let Some(other) = others.iter().find(|owner| owner.controller == Some(true)) {
        return Err(format!("{} {} controls it", other.kind, other.name));
    }
    let cluster_name = &machine.spec.cluster_name;
    let has_owner = owners.len() == others.len() + 1 && owners.contains(&wanted);
    let is_labelled = object.label(labels::CLUSTER_NAME) == Some(cluster_name);
    if has_owner && is_labelled {
        return Ok(None);
    }
    let json = |owners: &[OwnerReference]| to_json(owners).map_err(|error| error.to_string());
    let mut operations = Vec::new();
    if owners.is_empty() || object.labels().is_empty() {
        let version = object.metadata.resource_version.as_deref();
        operations.push(json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
    } else {
        operations.push(json!({"op": "test", "path": OWNERS, "value": json(owners)?}));
    }
    let owners: Vec<_> = others.into_iter().chain([wanted]).collect();
    operations.push(json!({"op": "add", "path": OWNERS, "value": json(&owners)?}));
    if object.labels().is_empty() {
        let all = json!({labels::CLUSTER_NAME: cluster_name});
        operations.push(json!({"op": "add", "path": "/metadata/labels", "value": all}));
    } else if !is_labelled {
        let path = format!("/metadata/labels/{}", labels::CLUSTER_NAME.replace('/', "~1"));
        operations.push(json!({"op": "add", "path": path, "value": cluster_name}));
    }
    Ok(Some(operations))
}

/// What a condition says of the object of a reference.
pub(super) fn related(found: &Referenced) -> Related<'_> {
    match found {
        Referenced::There(_, object) => Related::There { ready: object.condition("Ready") },
        Referenced::Missing => Related::Missing,
        Referenced::Unreadable(why) => Related::Refused { why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(kind: &str, uid: &str, controller: Option<bool>) -> Value {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": "x", "uid": uid, "controller": controller,
            "blockOwnerDeletion": controller,
        })
    }

    fn machine() -> Machine {
        let machine = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": "x", "namespace": "n", "uid": "m"},
            "spec": {
                "clusterName": "c", "bootstrap": {},
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "X", "name": "x"},
            },
        });
        serde_json::from_value(machine).expect("a Machine")
    }

    fn object(owners: &Value, cluster: &str) -> External {
        let metadata = json!({"name": "x", "resourceVersion": "7", "ownerReferences": owners, "labels": {labels::CLUSTER_NAME: cluster}});
        External { metadata: serde_json::from_value(metadata).expect("metadata"), ..External::default() }
    }

    #[test]
    fn what_created_it_gives_way_to_the_machine() {
        let machine = machine();
        let of = |owners: &Value, cluster: &str| ownership(&object(owners, cluster), &machine, None);
        let wanted = owner("Machine", "m", Some(true));
        // As the API server has them: without what is not set.
        let stored = |owners: &Value| json!(object(owners, "c").owner_references());
        let test = |owners: &Value| json!({"op": "test", "path": OWNERS, "value": stored(owners)});
        let add = |owners: Value| json!({"op": "add", "path": OWNERS, "value": owners});
        let patched = |owners: &Value, after: Value| Ok(Some(vec![test(owners), add(after)]));
        assert_eq!(of(&json!([wanted]), "c"), Ok(None));
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "o"});
        for (before, after) in [
            (json!([owner("MachineSet", "s", Some(true))]), json!([wanted])),
            (json!([other, owner("MachineSet", "s", None)]), json!([other, wanted])),
            // The Machine of an earlier pass, without the flag.
            (json!([owner("Machine", "m", None)]), json!([wanted])),
        ] {
            assert_eq!(of(&before, "c"), patched(&before, after), "{before}");
        }
        // Without owners there is nothing to compare but the version.
        let version = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        assert_eq!(of(&json!([]), "c"), Ok(Some(vec![version, add(json!([wanted]))])));
        let label =
            json!({"op": "add", "path": "/metadata/labels/cluster.x-k8s.io~1cluster-name", "value": "c"});
        let all = json!([wanted]);
        assert_eq!(of(&all, "other"), Ok(Some(vec![test(&all), add(all.clone()), label])));
        assert_eq!(
            of(&json!([owner("Machine", "other", Some(true))]), "c"),
            Err("Machine x controls it".to_owned())
        );
    }

    #[test]
    fn an_object_without_labels_gets_one() {
        let wanted = json!([owner("Machine", "m", Some(true))]);
        let mut object = object(&wanted, "");
        object.metadata.labels = None;
        let operations = ownership(&object, &machine(), None).expect("no conflict").expect("a patch");
        assert_eq!(operations[0]["path"], "/metadata/resourceVersion");
        let labels = json!({"op": "add", "path": "/metadata/labels", "value": {labels::CLUSTER_NAME: "c"}});
        assert_eq!(operations.last(), Some(&labels));
    }
}
