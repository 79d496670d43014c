//! Bindings: what sets have applied to a Cluster. The binding of a Cluster has its name.

use std::sync::Arc;

use cluster_api::{
    Cluster, ClusterResourceSet, ClusterResourceSetBinding, ClusterResourceSetBindingSpec,
    ClusterResourceSetStrategy as Strategy, ResourceBinding, ResourceRef, ResourceSetBinding,
    names::annotations,
};
use controller_kit::writes::WriteError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{ResourceExt as _, api::ObjectMeta};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::{
    core::Core,
    engine::{
        conditions::time,
        control::{Failure, Then},
        object::{Meta as _, Stored, key, owner_reference},
        place::Place,
        writer::to_json,
    },
};

/// How often a part of a binding is written anew after another set was faster.
const ATTEMPTS: usize = 5;

/// What the set has applied, as its part of a binding says.
pub(super) fn part_of(binding: &ClusterResourceSetBinding, set: &str) -> ResourceSetBinding {
    let found = binding.spec.bindings.iter().find(|part| part.cluster_resource_set_name == set);
    let none = || ResourceSetBinding { cluster_resource_set_name: set.to_owned(), resources: Vec::new() };
    found.cloned().unwrap_or_else(none)
}

fn is_of(binding: &ResourceBinding, resource: &ResourceRef) -> bool {
    binding.name == resource.name && binding.kind == resource.kind
}

/// Whether a resource with this hash is to be applied.
pub(super) fn needs_apply(
    part: &ResourceSetBinding,
    resource: &ResourceRef,
    strategy: Strategy,
    hash: Option<&str>,
) -> bool {
    let found = part.resources.iter().find(|one| is_of(one, resource)).filter(|one| one.applied);
    found.is_none_or(|one| strategy == Strategy::Reconcile && one.hash.as_deref() != hash)
}

/// Notes what became of a resource. A failure that is the same as before keeps its time.
pub(super) fn note(
    part: &mut ResourceSetBinding,
    resource: &ResourceRef,
    hash: Option<String>,
    applied: bool,
    now: i64,
) {
    let new = ResourceBinding {
        name: resource.name.clone(),
        kind: resource.kind,
        hash,
        last_applied_time: Some(time(now)),
        applied,
    };
    match part.resources.iter_mut().find(|one| is_of(one, resource)) {
        Some(old) if !applied && !old.applied && old.hash == new.hash => {}
        Some(old) => *old = new,
        None => part.resources.push(new),
    }
}

/// All parts of a binding, with this one.
fn with_part(binding: &ClusterResourceSetBinding, part: &ResourceSetBinding) -> Vec<ResourceSetBinding> {
    let mut all = binding.spec.bindings.clone();
    match all.iter_mut().find(|one| one.cluster_resource_set_name == part.cluster_resource_set_name) {
        Some(old) => old.clone_from(part),
        None => all.push(part.clone()),
    }
    all
}

/// The owners of a binding without the set, also without an older one of its name.
fn other_owners(binding: &ClusterResourceSetBinding, set: &ClusterResourceSet) -> Vec<OwnerReference> {
    let is_set =
        |owner: &OwnerReference| owner.kind == "ClusterResourceSet" && owner.name == set.name_or_empty();
    binding.owner_references().iter().filter(|owner| !is_set(owner)).cloned().collect()
}

/// The binding of a Cluster. It is created if there is none.
pub(super) async fn ensure(
    core: &Core,
    set: &ClusterResourceSet,
    cluster: &Cluster,
) -> Result<Arc<Stored<ClusterResourceSetBinding>>, Failure> {
    let bindings = &core.stores.cluster_resource_set_bindings;
    let (namespace, name) = (set.namespace_or_empty(), cluster.name_or_empty());
    if let Some(found) = bindings.get(&key(namespace, name)) {
        return Ok(found);
    }
    let binding = ClusterResourceSetBinding {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            owner_references: Some(vec![owner_reference(set, false)]),
            ..ObjectMeta::default()
        },
        spec: ClusterResourceSetBindingSpec { bindings: Vec::new(), cluster_name: name.to_owned() },
    };
    Ok(Arc::new(core.writer.create(bindings, &binding).await?))
}

/// Writes the part of a set, and makes the set an owner. Other sets write their parts of the same binding at the same time. So a version
/// that is stale is read again: what is already in the cluster shall not be applied twice for it.
pub(super) async fn save(
    core: &Core,
    set: &ClusterResourceSet,
    binding: &Arc<Stored<ClusterResourceSetBinding>>,
    part: &ResourceSetBinding,
) -> Result<(), Failure> {
    let mut binding = Arc::clone(binding);
    for _ in 0..ATTEMPTS {
        let Some(patch) = patch(set, &binding, part)? else { return Ok(()) };
        let written = core.writer.patch(&core.stores.cluster_resource_set_bindings, &**binding, patch).await;
        match written {
            Ok(_) => return Ok(()),
            Err(WriteError::Stale(_)) => {
                let found = core.writer.read_at::<ClusterResourceSetBinding>(&Place::of(&**binding)).await?;
                binding = Arc::new(Stored::new(found));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::Stale)
}

/// What is different in a binding with this part. `None`: nothing is.
fn patch(
    set: &ClusterResourceSet,
    binding: &ClusterResourceSetBinding,
    part: &ResourceSetBinding,
) -> Result<Option<Value>, Failure> {
    let mut patch = Map::new();
    let all = with_part(binding, part);
    if all != binding.spec.bindings {
        patch.insert("spec".to_owned(), json!({"bindings": to_json(&all)?}));
    }
    if !binding.is_owned_by(set.uid_or_empty()) {
        let mut owners = other_owners(binding, set);
        owners.push(owner_reference(set, false));
        patch.insert("metadata".to_owned(), json!({"ownerReferences": to_json(&owners)?}));
    }
    Ok((!patch.is_empty()).then(|| patch.into()))
}

/// Takes a set out of a binding. A binding without any is deleted.
pub(super) async fn leave(
    core: &Core,
    set: &ClusterResourceSet,
    binding: &Stored<ClusterResourceSetBinding>,
) -> Result<(), Failure> {
    let bindings = &core.stores.cluster_resource_set_bindings;
    let mut rest = binding.spec.bindings.clone();
    rest.retain(|part| part.cluster_resource_set_name != set.name_or_empty());
    if rest.is_empty() {
        return Ok(core.writer.delete(bindings, &**binding).await?);
    }
    let owners = other_owners(binding, set);
    let patch = json!({
        "spec": {"bindings": to_json(&rest)?}, "metadata": {"ownerReferences": to_json(&owners)?},
    });
    core.writer.patch(bindings, &**binding, patch).await?;
    Ok(())
}

/// The bindings in which a set has a part, or which it owns.
pub(super) fn bindings_of(
    core: &Core,
    set: &ClusterResourceSet,
) -> Vec<Arc<Stored<ClusterResourceSetBinding>>> {
    let bindings = core.stores.cluster_resource_set_bindings.read();
    let of_set = bindings.values().filter(|binding| {
        let has_part = |part: &ResourceSetBinding| part.cluster_resource_set_name == set.name_or_empty();
        binding.namespace_or_empty() == set.namespace_or_empty()
            && (binding.is_owned_by(set.uid_or_empty()) || binding.spec.bindings.iter().any(has_part))
    });
    of_set.cloned().collect()
}

/// One pass over a binding: it goes with its Cluster.
pub(super) async fn reconcile(core: &Core, of: &str) -> Result<Then, Failure> {
    let bindings = &core.stores.cluster_resource_set_bindings;
    let is_ours = |binding: &Arc<Stored<ClusterResourceSetBinding>>| {
        core.is_ours(&***binding)
            && !binding.is_deleting()
            && !binding.annotations().contains_key(annotations::PAUSED)
    };
    let Some(binding) = bindings.get(of).filter(is_ours) else { return Ok(Then::WhenChanged) };
    let (namespace, cluster) = (binding.namespace_or_empty(), binding.spec.cluster_name.as_str());
    match core.cluster(namespace, cluster) {
        Some(cluster) if !cluster.is_deleting() => return Ok(Then::WhenChanged),
        Some(_) => {}
        // The cache may be late, as after a move.
        None => {
            match core.writer.read_at::<IgnoredAny>(&Place::in_namespace::<Cluster>(namespace, cluster)).await
            {
                Err(WriteError::Gone) => {}
                Ok(_) => return Ok(Then::WhenChanged),
                Err(error) => return Err(error.into()),
            }
        }
    }
    core.writer.delete(bindings, &**binding).await?;
    tracing::info!(
        cluster,
        namespace,
        "ClusterResourceSetBinding deleted, since its Cluster goes or is gone"
    );
    Ok(Then::WhenChanged)
}

#[cfg(test)]
mod tests {
    use cluster_api::ClusterResourceSetResourceKind as ResourceKind;

    use super::*;

    fn resource(name: &str) -> ResourceRef {
        ResourceRef { name: name.to_owned(), kind: ResourceKind::ConfigMap }
    }

    #[test]
    fn a_resource_is_applied_once_or_whenever_it_changed() {
        let mut part = part_of(&ClusterResourceSetBinding::default(), "s");
        let a = resource("a");
        let needs = |part: &ResourceSetBinding, hash| {
            [Strategy::ApplyOnce, Strategy::Reconcile]
                .map(|strategy| needs_apply(part, &a, strategy, Some(hash)))
        };
        assert_eq!(needs(&part, "1"), [true, true]);
        note(&mut part, &a, Some("1".to_owned()), false, 10);
        assert_eq!(needs(&part, "1"), [true, true]);
        note(&mut part, &a, Some("1".to_owned()), true, 20);
        assert_eq!(needs(&part, "1"), [false, false]);
        assert_eq!(needs(&part, "2"), [false, true]);
        let secret = ResourceRef { kind: ResourceKind::Secret, ..resource("a") };
        assert!(needs_apply(&part, &secret, Strategy::ApplyOnce, Some("1")), "the name alone is another one");
    }

    #[test]
    fn a_failure_that_stays_is_no_news() {
        let mut part = part_of(&ClusterResourceSetBinding::default(), "s");
        let since = |part: &ResourceSetBinding| {
            part.resources[0].last_applied_time.as_ref().map(|time| time.0.as_second())
        };
        note(&mut part, &resource("a"), None, false, 10);
        note(&mut part, &resource("a"), None, false, 20);
        assert_eq!(since(&part), Some(10));
        note(&mut part, &resource("a"), Some("1".to_owned()), false, 30);
        assert_eq!(since(&part), Some(30));
        note(&mut part, &resource("a"), Some("1".to_owned()), true, 40);
        note(&mut part, &resource("a"), Some("1".to_owned()), true, 50);
        assert_eq!((since(&part), part.resources.len()), (Some(50), 1));
    }

    #[test]
    fn the_parts_of_other_sets_stay() {
        let other = ResourceSetBinding { cluster_resource_set_name: "o".to_owned(), resources: Vec::new() };
        let mut binding = ClusterResourceSetBinding::default();
        binding.spec.bindings = vec![other.clone()];
        let mut part = part_of(&binding, "s");
        assert_eq!(with_part(&binding, &part), [other.clone(), part.clone()]);
        binding.spec.bindings.push(part.clone());
        note(&mut part, &resource("a"), None, false, 10);
        assert_eq!(with_part(&binding, &part), [other, part]);
    }
}
