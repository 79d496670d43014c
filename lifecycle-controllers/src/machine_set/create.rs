//! New Machines, and what was created for Machines that never came.

use std::collections::{BTreeMap, BTreeSet};

use cluster_api::{
    Cluster, ContractVersionedObjectReference, Machine, MachineSet, MachineSpec,
    names::{annotations, finalizers, labels},
};
use component::events::EventType;
use controller_kit::writes::WriteError;
use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{ResourceExt as _, api::ObjectMeta};
use lifecycle::machine_set::{ALPHABET, RANDOM, machine_name};
use serde_json::{Map, Value, json};

use super::sync::labels_of;
use crate::{
    core::{Core, Referenced, defined},
    engine::{
        control::Failure,
        external::{External, ExternalKind, GroupKind, NotReadable},
        object::{MACHINE_SET_MANAGER, Meta as _, key, owner_reference},
        writer::{Guard, Place, to_json},
    },
};

/// How many Machines of a set are created at the same time.
const AT_ONCE: usize = 8;

/// The suffix of the kinds of templates.
const TEMPLATE: &str = "Template";

/// A template, and the kind that is made of it.
struct Source {
    kind: ExternalKind,
    /// `spec.template`
    template: Value,
    /// Its name, and its kind with the group after a dot, for the annotations of what is made.
    cloned_from: (String, String),
}

/// Creates so many Machines. All are tried, whatever becomes of one.
pub(super) async fn create(core: &Core, set: &MachineSet, count: usize) -> Result<(), Failure> {
    let spec = &set.spec.template.spec;
    let config = match defined(&spec.bootstrap.config_ref) {
        Some(reference) => Some(source(core, set, reference).await?),
        None => None,
    };
    let infrastructure = source(core, set, &spec.infrastructure_ref).await?;
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
    config: Option<&Source>,
    infrastructure: &Source,
) -> Result<(), Failure> {
    let mut made = Vec::new();
    let result = create_all(core, set, name, config, infrastructure, &mut made).await;
    // The answer to the creation may have been lost, and the Machine may be there. What is left here is found by the next pass, which
    // looks for what has no Machine.
    if result.is_err() && !made.is_empty() && !exists(core, set.namespace_or_empty(), name).await {
        for (place, object) in made {
            let guard = Guard { version: None, ..Guard::of(&object) };
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
    config: Option<&Source>,
    infrastructure: &Source,
    made: &mut Vec<(Place, External)>,
) -> Result<(), Failure> {
    let namespace = set.namespace_or_empty();
    for source in config.into_iter().chain([infrastructure]) {
        let place = source.kind.place(namespace, name);
        let body = clone_of(source, set, name)?;
        let object: External = core.writer.apply_at(&place, MACHINE_SET_MANAGER, &body).await?;
        made.push((place, object));
    }
    let reference = |source: &Source| ContractVersionedObjectReference {
        api_group: source.kind.of.group.clone(),
        kind: source.kind.of.kind.clone(),
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
async fn source(
    core: &Core,
    set: &MachineSet,
    reference: &ContractVersionedObjectReference,
) -> Result<Source, Failure> {
    let ContractVersionedObjectReference { api_group, kind, name } = reference;
    let cannot = |why: String| Failure::Failed(format!("{kind} {name} cannot be cloned: {why}"));
    let made = kind.strip_suffix(TEMPLATE).filter(|made| !made.is_empty());
    let made = made.ok_or_else(|| cannot(format!("its kind does not end with {TEMPLATE}")))?;
    let of = |kind: &str| GroupKind { group: api_group.clone(), kind: kind.to_owned() };
    let template_kind = core.externals.of(&of(kind)).await.map_err(|error| cannot(error.to_string()))?;
    let made = core.externals.of(&of(made)).await.map_err(|error| cannot(error.to_string()))?;
    let place = template_kind.place(set.namespace_or_empty(), name);
    let template: Value = match core.writer.read_at(&place).await {
        Ok(template) => template,
        Err(WriteError::Gone) => return Err(cannot("it does not exist".to_owned())),
        Err(error) => return Err(cannot(error.to_string())),
    };
    let template = template["spec"]["template"].clone();
    Ok(Source { kind: made, template, cloned_from: (name.clone(), format!("{kind}.{api_group}")) })
}

/// The object that is made of a template. Group and kind are those of the template's own, whatever stands in it: a user who may write
/// templates may not create other kinds by them.
fn clone_of(source: &Source, set: &MachineSet, name: &str) -> Result<Value, Failure> {
    let of_template = |field: &str| {
        let map = source.template["metadata"][field].as_object().cloned().unwrap_or_default();
        map.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())))
    };
    let mut labels: BTreeMap<String, String> = of_template("labels").collect();
    labels.extend(labels_of(set));
    labels.insert(labels::CLUSTER_NAME.to_owned(), set.spec.cluster_name.clone());
    let mut annotations: BTreeMap<String, String> = of_template("annotations").collect();
    annotations.extend(set.spec.template.metadata.annotations.clone());
    let (of_name, of_kind) = source.cloned_from.clone();
    annotations.insert(annotations::CLONED_FROM_NAME.to_owned(), of_name);
    annotations.insert(annotations::CLONED_FROM_GROUP_KIND.to_owned(), of_kind);
    let owner: OwnerReference = owner_reference(set, false);
    let mut object = Map::new();
    if let Some(spec) = source.template.get("spec") {
        object.insert("spec".to_owned(), spec.clone());
    }
    object.insert("apiVersion".to_owned(), source.kind.api_version().into());
    object.insert("kind".to_owned(), source.kind.of.kind.clone().into());
    let metadata = json!({
        "namespace": set.namespace_or_empty(), "name": name, "labels": labels, "annotations": annotations,
        "ownerReferences": [to_json(&owner)?],
    });
    object.insert("metadata".to_owned(), metadata);
    Ok(object.into())
}

/// Deletes bootstrap configs and infrastructure machines that the set created for Machines that it then could not create. Each is of a
/// Machine of its own name, and is kept where the API server knows that Machine.
pub(super) async fn delete_orphans(core: &Core, set: &MachineSet) -> Result<(), Failure> {
    let spec = &set.spec.template.spec;
    for reference in defined(&spec.bootstrap.config_ref).into_iter().chain([&spec.infrastructure_ref]) {
        let Some(made) = reference.kind.strip_suffix(TEMPLATE) else { continue };
        let of = GroupKind { group: reference.api_group.clone(), kind: made.to_owned() };
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
                    let _: External = core.writer.patch_at(&place, Guard::of(&*object), body).await?;
                }
            }
        }
    }
    Ok(unusable)
}
