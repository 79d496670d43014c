//! Objects that ask another controller for the remediation of a Machine.
//!
//! Such an object is made from the template that `spec.remediation.templateRef` names, and has the name of the Machine. A user of a
//! namespace writes that reference. So template and object must be of kinds with the label of the contract, in the namespace of the
//! check, and group and kind of the object are those of the reference without `Template`, whatever stands inside of the template.

use std::collections::BTreeMap;

use cluster_api::{
    Machine, MachineHealthCheck,
    names::{annotations, labels},
};
use controller_kit::writes::WriteError;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::{
    core::Core,
    engine::{
        control::Failure,
        external::{External, ExternalKind, GroupKind, NotReadable},
        object::{Meta as _, owner_reference},
        writer::{Guard, to_json},
    },
};

/// The suffix of the kinds of templates.
pub(super) const TEMPLATE: &str = "Template";

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
    let Some((template_of, made_of)) = kinds(check) else {
        return Ok(Requested::NoTemplate(format!("the kind does not end with {TEMPLATE}")));
    };
    let made = match core.externals.of(&made_of).await {
        Ok(made) => made,
        Err(error) => return unreadable(error),
    };
    let (namespace, name) = (machine.namespace_or_empty(), machine.name_or_empty());
    if made.get(namespace, name).is_some() {
        return Ok(Requested::Exists);
    }
    let template_kind = match core.externals.of(&template_of).await {
        Ok(kind) => kind,
        Err(error) => return unreadable(error),
    };
    let reference = &check.spec.remediation.template_ref;
    let template: Value = match core.writer.read_at(&template_kind.place(namespace, &reference.name)).await {
        Ok(template) => template,
        Err(WriteError::Gone) => return Ok(Requested::NoTemplate("it does not exist".to_owned())),
        Err(error) => return Err(error.into()),
    };
    let body = body(&made, &template["spec"]["template"], check, machine)?;
    match core.writer.create_at::<Value>(&made.place(namespace, name), &body).await {
        Ok(_) => Ok(Requested::Created),
        // The cache is late.
        Err(WriteError::Stale(_)) => Ok(Requested::Exists),
        Err(error) => Ok(Requested::Refused(error.to_string())),
    }
}

fn unreadable(error: NotReadable) -> Result<Requested, Failure> {
    match error {
        NotReadable::NoDefinition(why) | NotReadable::NoContract(why) => Ok(Requested::NoTemplate(why)),
        NotReadable::Unknown(why) => Err(Failure::Failed(why)),
    }
}

/// Takes the request about a Machine back, if there is one.
pub(super) async fn withdraw(
    core: &Core,
    check: &MachineHealthCheck,
    machine: &Machine,
) -> Result<(), Failure> {
    let Some((_, made_of)) = kinds(check) else { return Ok(()) };
    let made = match core.externals.of(&made_of).await {
        Ok(made) => made,
        Err(NotReadable::NoDefinition(_) | NotReadable::NoContract(_)) => return Ok(()),
        Err(NotReadable::Unknown(why)) => return Err(Failure::Failed(why)),
    };
    let (namespace, name) = (machine.namespace_or_empty(), machine.name_or_empty());
    let Some(object) = made.get(namespace, name).filter(|object| is_request(object, check, machine)) else {
        return Ok(());
    };
    let guard = Guard { version: None, ..Guard::of(&*object) };
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
    let template = &check.spec.remediation.template_ref;
    let is_owner = |owner: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
        owner.uid == machine.uid_or_empty() && owner.controller != Some(true)
    };
    !object.is_deleting()
        && object.owner_references().iter().any(|owner| is_owner(&owner))
        && object.annotation(annotations::CLONED_FROM_NAME) == Some(template.name.as_str())
        && object.annotation(annotations::CLONED_FROM_GROUP_KIND) == Some(cloned_from(check).as_str())
}

/// The kinds of the template and of the object that is made from it.
pub(super) fn kinds(check: &MachineHealthCheck) -> Option<(GroupKind, GroupKind)> {
    let reference = &check.spec.remediation.template_ref;
    let group = group(&reference.api_version);
    let made = reference.kind.strip_suffix(TEMPLATE).filter(|kind| !kind.is_empty())?;
    let of = |kind: &str| GroupKind { group: group.to_owned(), kind: kind.to_owned() };
    Some((of(&reference.kind), of(made)))
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Kind and group of the template, as the annotation of what is made from it has them.
fn cloned_from(check: &MachineHealthCheck) -> String {
    let reference = &check.spec.remediation.template_ref;
    format!("{}.{}", reference.kind, group(&reference.api_version))
}

/// The object. `template` is `spec.template`.
fn body(
    made: &ExternalKind,
    template: &Value,
    check: &MachineHealthCheck,
    machine: &Machine,
) -> Result<Value, Failure> {
    let of_template = |field: &str| -> BTreeMap<String, String> {
        let map = template["metadata"][field].as_object().cloned().unwrap_or_default();
        map.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned()))).collect()
    };
    let (mut labels, mut annotations) = (of_template("labels"), of_template("annotations"));
    labels.insert(labels::CLUSTER_NAME.to_owned(), machine.spec.cluster_name.clone());
    let name = check.spec.remediation.template_ref.name.clone();
    annotations.insert(annotations::CLONED_FROM_NAME.to_owned(), name);
    annotations.insert(annotations::CLONED_FROM_GROUP_KIND.to_owned(), cloned_from(check));
    let mut body = json!({
        "apiVersion": made.api_version(),
        "kind": made.of.kind,
        "metadata": {
            "namespace": machine.namespace_or_empty(), "name": machine.name_or_empty(),
            "labels": labels, "annotations": annotations,
            "ownerReferences": [to_json(&owner_reference(machine, false))?],
        },
    });
    if let Some(spec) = template.get("spec") {
        body["spec"] = spec.clone();
    }
    Ok(body)
}
