//! New Machines, and what was created for Machines that never came.

use std::collections::BTreeSet;

use cluster_api::{
    Cluster, ContractVersionedObjectReference, Machine, MachineSet, MachineSpec, names::finalizers,
};
use component::events::EventType;
use controller_kit::writes::WriteError;
use futures::{StreamExt as _, stream};
use kube::{ResourceExt as _, api::ObjectMeta};
use lifecycle::machine_set::{ALPHABET, RANDOM, machine_name};
use serde_json::{Value, json};

use super::sync::labels_of;
use crate::{
    core::{Core, Referenced, defined},
    engine::{
        control::Failure,
        external::{External, GroupKind, NotReadable},
        object::{MACHINE_SET_MANAGER, Meta as _, key, owner_reference},
        place::{Guard, Place},
        writer::to_json,
    },
    template::{Made, NoTemplate, Template, made_of},
};

/// How many Machines of a set are created at the same time.
const AT_ONCE: usize = 8;

/// Creates so many Machines. All are tried, whatever becomes of one.
pub(super) async fn create(core: &Core, set: &MachineSet, count: usize) -> Result<(), Failure> {
    let spec = &set.spec.template.spec;
    let config = match defined(&spec.bootstrap.config_ref) {
        Some(reference) => Some(template(core, set, reference).await?),
        None => None,
    };
    let infrastructure = template(core, set, &spec.infrastructure_ref).await?;
    let mut names = BTreeSet::new();
    while names.len() < count {
        let random: String =
            (0..RANDOM).map(|_| char::from(ALPHABET[fastrand::usize(..ALPHABET.len())])).collect();
        let template = set.spec.machine_naming.template.as_deref();
        let name = machine_name(template, &set.spec.cluster_name, set.name_or_empty(), &random)
            .map_err(|error| Failure::Failed(error.to_string()))?;
        if core.stores.machines.get(&key(set.namespace_or_empty(), &name)).is_none() {
            names.insert(name);
        }
    }
    let (config, infrastructure) = (config.as_ref(), &infrastructure);
    let created = names
        .into_iter()
        .map(|name| async move { create_one(core, set, &name, config, infrastructure).await });
    let results: Vec<_> = stream::iter(created).buffer_unordered(AT_ONCE).collect().await;
    results.into_iter().collect()
}

async fn create_one(
    core: &Core,
    set: &MachineSet,
    name: &str,
    config: Option<&Template>,
    infrastructure: &Template,
) -> Result<(), Failure> {
    let mut made = Vec::new();
    let result = create_all(core, set, name, config, infrastructure, &mut made).await;
    // The answer to the creation may have been lost, and the Machine may be there. What is left here is found by the next pass, which
    // looks for what has no Machine.
    if result.is_err() && !made.is_empty() && !exists(core, set.namespace_or_empty(), name).await {
        for (place, object) in made {
            let guard = Guard::of_any_version(&object);
            if let Err(error) = core.writer.delete_at(&place, guard).await {
                tracing::warn!(name = place.name, kind = place.plural, %error, "created in vain, and not deleted");
            }
        }
    }
    result
}

/// Whether there is a Machine of this name, or may be.
async fn exists(core: &Core, namespace: &str, name: &str) -> bool {
    let read = core.writer.read_at::<Value>(&Place::in_namespace::<Machine>(namespace, name)).await;
    !matches!(read, Err(WriteError::Gone))
}

/// Config and infrastructure come first: a Machine that refers to nothing would say so.
async fn create_all(
    core: &Core,
    set: &MachineSet,
    name: &str,
    config: Option<&Template>,
    infrastructure: &Template,
    made: &mut Vec<(Place, External)>,
) -> Result<(), Failure> {
    let namespace = set.namespace_or_empty();
    for template in config.into_iter().chain([infrastructure]) {
        let place = template.makes.place(namespace, name);
        let body = template.object(Made {
            namespace,
            name,
            cluster: &set.spec.cluster_name,
            labels: labels_of(set),
            annotations: set.spec.template.metadata.annotations.clone(),
            owner: owner_reference(set, false),
        })?;
        let object: External = core.writer.apply_at(&place, MACHINE_SET_MANAGER, &body).await?;
        made.push((place, object));
    }
    let reference = |template: &Template| ContractVersionedObjectReference {
        api_group: template.makes.of.group.clone(),
        kind: template.makes.of.kind.clone(),
        name: name.to_owned(),
    };
    let mut spec = set.spec.template.spec.clone();
    spec.cluster_name.clone_from(&set.spec.cluster_name);
    spec.infrastructure_ref = reference(infrastructure);
    spec.bootstrap.config_ref = config.map(reference).unwrap_or_default();
    let machine = Machine {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            labels: Some(labels_of(set)),
            annotations: Some(set.spec.template.metadata.annotations.clone()).filter(|all| !all.is_empty()),
            finalizers: Some(vec![finalizers::MACHINE.to_owned()]),
            owner_references: Some(vec![owner_reference(set, true)]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    };
    core.writer.apply(&core.stores.machines, MACHINE_SET_MANAGER, &machine).await?;
    tracing::info!(machine = name, machine_set = set.name_or_empty(), namespace, "Machine created");
    core.record(set, EventType::Normal, "SuccessfulCreate", format!("Created Machine {name:?}"));
    Ok(())
}

/// Reads a template.
async fn template(
    core: &Core,
    set: &MachineSet,
    reference: &ContractVersionedObjectReference,
) -> Result<Template, Failure> {
    let ContractVersionedObjectReference { api_group, kind, name } = reference;
    let of = GroupKind { group: api_group.clone(), kind: kind.clone() };
    Template::read(core, set.namespace_or_empty(), of, name).await.map_err(|error| {
        let why = match error {
            NoTemplate::Absent(why) => why,
            NoTemplate::Unknown(failure) => failure.to_string(),
        };
        Failure::Failed(format!("{kind} {name} cannot be cloned: {why}"))
    })
}

/// Deletes bootstrap configs and infrastructure machines that the set created for Machines that it then could not create. Each is of a
/// Machine of its own name, and is kept where the API server knows that Machine.
pub(super) async fn delete_orphans(core: &Core, set: &MachineSet) -> Result<(), Failure> {
    let spec = &set.spec.template.spec;
    for reference in defined(&spec.bootstrap.config_ref).into_iter().chain([&spec.infrastructure_ref]) {
        let template = GroupKind { group: reference.api_group.clone(), kind: reference.kind.clone() };
        let Some(of) = made_of(&template) else { continue };
        let kind = match core.externals.of(&of).await {
            Ok(kind) => kind,
            Err(NotReadable::NoDefinition(_) | NotReadable::NoContract(_)) => continue,
            Err(NotReadable::Unknown(why)) => return Err(Failure::Failed(why)),
        };
        let orphans = kind.objects.all().into_iter().filter(|object| {
            object.namespace_or_empty() == set.namespace_or_empty()
                && !object.is_deleting()
                && object.is_owned_by(set.uid_or_empty())
                && core.stores.machines.get(&object_key(object)).is_none()
        });
        for orphan in orphans {
            let (namespace, name) = (orphan.namespace_or_empty(), orphan.name_or_empty());
            match core.writer.read_at::<Value>(&Place::in_namespace::<Machine>(namespace, name)).await {
                Err(WriteError::Gone) => {}
                // The cache is late: a set that now lets go would leave the Machine, and one that scales would make one too many.
                Ok(_) => return Err(Failure::Stale),
                Err(error) => return Err(error.into()),
            }
            match core.writer.delete_at(&kind.place(namespace, name), Guard::of(&*orphan)).await {
                Ok(()) => {
                    tracing::info!(name, namespace, kind = kind.of.kind, "deleted what no Machine came for");
                }
                Err(WriteError::Gone) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn object_key(object: &External) -> String {
    key(object.namespace_or_empty(), object.name_or_empty())
}

/// The templates that cannot be used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unusable {
    /// The kinds of those that do not exist.
    pub(crate) missing: Vec<String>,
    /// Why others cannot be read.
    pub(crate) unreadable: Vec<String>,
}

/// The templates of a `MachineSet` or `MachineDeployment` that cannot be used. Each that can has the Cluster as an owner from now on, so
/// that `clusterctl move` takes it along.
pub(crate) async fn unusable_templates(
    core: &Core,
    namespace: &str,
    spec: &MachineSpec,
    cluster: &Cluster,
) -> Result<Unusable, Failure> {
    let mut unusable = Unusable::default();
    for reference in defined(&spec.bootstrap.config_ref).into_iter().chain([&spec.infrastructure_ref]) {
        match core.referenced(namespace, reference).await {
            Referenced::Missing => unusable.missing.push(reference.kind.clone()),
            Referenced::Unreadable(why) => {
                unusable.unreadable.push(format!("{} {}: {why}", reference.kind, reference.name));
            }
            Referenced::There(kind, object) => {
                if !object.is_owned_by(cluster.uid_or_empty()) && !object.is_deleting() {
                    let mut owners = object.owner_references().to_vec();
                    owners.retain(|owner| owner.kind != "Cluster" || owner.name != cluster.name_or_empty());
                    owners.push(owner_reference(cluster, false));
                    let body = json!({"metadata": {"ownerReferences": to_json(&owners)?}});
                    let place = kind.place(namespace, &reference.name);
                    match core.writer.patch_at::<External>(&place, Guard::of(&*object), body).await {
                        Ok(_) => {}
                        Err(WriteError::Failed(why)) => {
                            let what = format!("{} {}", reference.kind, reference.name);
                            unusable.unreadable.push(format!("{what}: it cannot be owned: {why}"));
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
    }
    Ok(unusable)
}
