//! Objects that ask another controller for the remediation of a Machine.
//!
//! Such an object is made from the template that `spec.remediation.templateRef` names, and has the name of the Machine.

use std::collections::BTreeMap;

use cluster_api::{Machine, MachineHealthCheck};
use controller_kit::writes::WriteError;
use kube::ResourceExt as _;
use serde_json::Value;

use crate::{
    core::Core,
    engine::{
        control::Failure,
        external::{External, GroupKind, NotReadable},
        object::{Meta as _, owner_reference},
        place::Guard,
    },
    template::{Made, NoTemplate, Template, cloned_from, made_of},
};

/// What became of a request.
#[derive(Debug)]
pub(super) enum Requested {
    /// It was there already.
    Exists,
    /// It is there now.
    Created,
    /// There is no such template.
    NoTemplate(String),
    /// The API server refuses the object.
    Refused(String),
}

/// Requests the remediation of a Machine, unless it is requested already.
pub(super) async fn request(
    core: &Core,
    check: &MachineHealthCheck,
    machine: &Machine,
) -> Result<Requested, Failure> {
    let (namespace, name) = (machine.namespace_or_empty(), machine.name_or_empty());
    if let Some(of) = made_of(&template_kind(check)) {
        match core.externals.of(&of).await.map_err(NoTemplate::from) {
            Ok(kind) if kind.get(namespace, name).is_some() => return Ok(Requested::Exists),
            Ok(_) => {}
            Err(error) => return without_template(error),
        }
    }
    let template = &check.spec.remediation.template_ref.name;
    let template = match Template::read(core, namespace, template_kind(check), template).await {
        Ok(template) => template,
        Err(error) => return without_template(error),
    };
    let body = template.object(Made {
        namespace,
        name,
        cluster: &machine.spec.cluster_name,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        owner: owner_reference(machine, false),
    })?;
    match core.writer.create_at::<Value>(&template.makes.place(namespace, name), &body).await {
        Ok(_) => Ok(Requested::Created),
        // The cache is late.
        Err(WriteError::Stale(_)) => Ok(Requested::Exists),
        Err(error) => Ok(Requested::Refused(error.to_string())),
    }
}

fn without_template(error: NoTemplate) -> Result<Requested, Failure> {
    match error {
        NoTemplate::Absent(why) => Ok(Requested::NoTemplate(why)),
        NoTemplate::Unknown(failure) => Err(failure),
    }
}

/// Takes the request about a Machine back, if there is one.
pub(super) async fn withdraw(
    core: &Core,
    check: &MachineHealthCheck,
    machine: &Machine,
) -> Result<(), Failure> {
    let Some(of) = made_of(&template_kind(check)) else { return Ok(()) };
    let made = match core.externals.of(&of).await {
        Ok(made) => made,
        Err(NotReadable::NoDefinition(_) | NotReadable::NoContract(_)) => return Ok(()),
        Err(NotReadable::Unknown(why)) => return Err(Failure::Failed(why)),
    };
    let (namespace, name) = (machine.namespace_or_empty(), machine.name_or_empty());
    let Some(object) = made.get(namespace, name).filter(|object| is_request(object, check, machine)) else {
        return Ok(());
    };
    let guard = Guard::of_any_version(&*object);
    match core.writer.delete_at(&made.place(namespace, name), guard).await {
        Ok(()) => {
            tracing::info!(
                machine = name,
                namespace,
                kind = made.of.kind,
                "remediation is not needed any more"
            );
            Ok(())
        }
        Err(WriteError::Gone | WriteError::Stale(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether an object was made from the template of this check for this Machine. What is the Machine's own, such as its infrastructure, has
/// the Machine as its controller.
fn is_request(object: &External, check: &MachineHealthCheck, machine: &Machine) -> bool {
    let template = &check.spec.remediation.template_ref.name;
    let is_owner = |owner: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
        owner.uid == machine.uid_or_empty() && owner.controller != Some(true)
    };
    !object.is_deleting()
        && object.owner_references().iter().any(|owner| is_owner(&owner))
        && cloned_from(&template_kind(check), template)
            .iter()
            .all(|(key, value)| object.annotation(key) == Some(value.as_str()))
}

/// The kind of the template.
pub(super) fn template_kind(check: &MachineHealthCheck) -> GroupKind {
    let reference = &check.spec.remediation.template_ref;
    let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
    GroupKind { group: group.to_owned(), kind: reference.kind.clone() }
}
