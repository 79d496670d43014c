//! The `VSphereVM` of a machine, which is there for people and for programs that know it: it says of the virtual machine what
//! the `VSphereMachine` says of the machine.
//!
//! It is made once there is something to tell: the virtual machine, or why there is none. One that Cluster API Provider
//! vSphere has made is kept.

use std::error::Error as StdError;

use cloudprovider::{
    Error, Result,
    machines::{
        AuxiliaryObject, Condition, ConditionStatus, Deletion, DesiredObject, MachineReport, MachineRequest,
        Mark, WaitsFor,
    },
};
use serde_json::{Value, json};

use super::{
    cluster::{VCENTER_AVAILABLE, available},
    step::{DeletionRequest, MachineRecord, Request},
};
use crate::{
    machines::{
        guest::shape,
        kinds::{PROVISIONED, VM_KIND},
        naming::{vm_name, vm_name_or_own},
        pools::{FULFILLED, WAITING_FOR_CLAIMS},
        power::{GUEST_SOFT_POWER_OFF, SOFT_POWER_OFF_FAILED},
        spec::{NetworkSpec, VSphereClusterSpec, VSphereMachineSpec},
        state::Observed,
        status::VSphereMachineStatus,
        vsphere_machines::VSphereMachines,
    },
    tasks::TaskFault,
    vm::VirtualMachine,
};

const READY: &str = "Ready";
const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";

/// Fields of the spec that may change once the object is there. The others say how it was made.
const CAN_CHANGE: [&str; 4] = ["biosUUID", "thumbprint", "powerOffMode", "guestSoftPowerOffTimeoutSeconds"];

/// How a machine is powered off that says nothing about it.
const DEFAULT_POWER_OFF_MODE: &str = "hard";

/// Fields of the status that stay where a step has not seen anything else.
const STAY: [&str; 4] = ["vmRef", "host", "addresses", "network"];

/// The module, which stays although the status of the machine may be lost. Cluster API Provider vSphere writes it too.
const MODULE: &str = "moduleUUID";

/// How far a virtual machine is, as the conditions say it.
struct Readiness {
    is_ready: bool,
    /// Whether there is no such virtual machine any more.
    is_lost: bool,
    reason: String,
    message: String,
    addresses: Option<Vec<String>>,
}

impl Readiness {
    fn not_ready(reason: &str, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.to_owned(), message.into());
        Self { is_ready: false, is_lost: false, reason, message, addresses: None }
    }

    /// After a step towards existing.
    fn of_step(answer: &Result<MachineReport>) -> Self {
        match answer {
            Ok(MachineReport::Lost { message }) => {
                Self { is_lost: true, ..Self::not_ready("NotFoundByBIOSUUID", message.clone()) }
            }
            Ok(report) => {
                let present = report.present();
                let addresses = present.map(|machine| {
                    let all = machine.instance.metadata.addresses.iter();
                    all.map(|one| one.address.clone())
                        .filter(|one| one.parse::<std::net::IpAddr>().is_ok())
                        .collect()
                });
                let readiness = match report.wait() {
                    Some(wait) if wait.reason == WaitsFor::Address.reason() => {
                        Self::not_ready("WaitingForIPAllocation", &*wait.message)
                    }
                    Some(wait) if wait.reason == WAITING_FOR_CLAIMS => {
                        Self::not_ready("WaitingForIPAddress", &*wait.message)
                    }
                    Some(wait) => Self::not_ready(&wait.reason, &*wait.message),
                    None => Self { is_ready: true, ..Self::not_ready("Provisioned", "") },
                };
                Self { addresses, ..readiness }
            }
            Err(error) if error.source().is_some_and(<dyn StdError>::is::<TaskFault>) => {
                Self::not_ready("TaskFailed", error.report())
            }
            Err(error) => Self::not_ready("NotProvisioned", error.report()),
        }
    }

    /// After a step towards gone. `None`: nothing is left to tell of.
    fn of_deletion(answer: &Result<Deletion>) -> Option<Self> {
        let message = match answer {
            Ok(Deletion::Deleting(wait)) => wait.message.to_string(),
            Ok(Deletion::Gone) => return None,
            Err(error) => error.report(),
        };
        Some(Self::not_ready("Deleting", message))
    }

    fn condition(&self, name: &'static str) -> Condition {
        let status = if self.is_ready { ConditionStatus::True } else { ConditionStatus::False };
        Condition::new(name, status, self.reason.clone()).with_message(self.message.clone())
    }
}

/// A virtual machine, and the name of its host.
struct Found {
    vm: VirtualMachine,
    host: Option<String>,
}

impl VSphereMachines {
    /// Wants the `VSphereVM` of a machine after a step towards existing. It tells no other devices before the guest has them.
    pub(super) fn want_vm(
        &self,
        request: &Request,
        record: &mut MachineRecord,
        answer: &Result<MachineReport>,
        observed: Observed,
    ) {
        let found = self.found_vm(&request.mark);
        let existing = existing(request);
        let is_worth_telling = match answer {
            Ok(report) => report.is_done() || matches!(report, MachineReport::Lost { .. }),
            // in a failure domain, its spec may still become another one
            Err(error) => !error.is_retryable() && request.failure_domain.is_none(),
        };
        if existing.is_none() && !is_worth_telling {
            return;
        }
        // a spec that gives no name has none either
        let Ok(name) = name_of(request) else { return };
        let mut spec =
            spec_of(&request.spec, Some(&request.cluster.spec), found.as_ref(), existing.as_deref());
        let network = &request.spec.clone.network;
        if let Some(existing) = existing.as_deref()
            && request.failure_domain.is_none()
            && observed.guest == Some(shape(network))
            && let Some(devices) = changed_devices(existing, network)
        {
            spec["network"] = json!({ "devices": devices });
        }
        let readiness = Readiness::of_step(answer);
        let status = status_of(&record.status, &readiness, found.as_ref(), existing.as_deref());
        let conditions = conditions(record, &readiness, observed, existing.as_deref());
        want(record, &name, request.is_control_plane, spec, (status, conditions));
    }

    /// Tells in the `VSphereVM` of a machine how far its deletion is.
    pub(super) fn want_vm_of_deletion(
        &self,
        request: &DeletionRequest,
        record: &mut MachineRecord,
        answer: &Result<Deletion>,
        observed: Observed,
    ) {
        let (Some(existing), Some(readiness)) = (existing(request), Readiness::of_deletion(answer)) else {
            return;
        };
        let found = self.found_vm(&request.mark);
        let cluster = request.cluster.spec.as_ref();
        let spec = spec_of(&request.spec, cluster, found.as_ref(), Some(&existing));
        let status = status_of(&record.status, &readiness, found.as_ref(), Some(&existing));
        let conditions = conditions(record, &readiness, observed, Some(&existing));
        want(record, &existing.name, request.is_control_plane, spec, (status, conditions));
    }

    /// The virtual machine with this instance UUID, as the inventories that the machine may see have it.
    fn found_vm(&self, mark: &Mark) -> Option<Found> {
        let instance_uuid = uuid::Uuid::parse_str(&mark.uid).ok()?;
        self.vcenters_of(mark).iter().find_map(|vcenter| {
            let state = vcenter.state();
            let vm = state.inventory.with_instance_uuid(instance_uuid).next()?;
            // an object may claim the UID of another one
            vm.mark.as_deref().is_none_or(|found| mark.owns(Some(found))).then_some(())?;
            let host = vm.host.as_ref().and_then(|host| state.inventory.name_of(host)).map(str::to_owned);
            Some(Found { vm: vm.clone(), host })
        })
    }
}

/// The `VSphereVM` of the machine, under any name. If the kind is not served, the controller says so when it is wanted.
pub(super) fn existing<C>(
    request: &MachineRequest<VSphereMachineSpec, C>,
) -> Option<std::sync::Arc<AuxiliaryObject>> {
    let (mark, uid) = (&request.mark, &request.object_uid);
    let found = request.objects.owned_by(&VM_KIND, &mark.namespace, &vm_name_or_own(request), uid);
    let found = found.unwrap_or_else(|error: Error| {
        tracing::debug!(error = error.report(), "no VSphereVM is read");
        Vec::new()
    });
    found.into_iter().next()
}

/// The name of the virtual machine: that of the `VSphereVM`, or what the spec says if there is none yet.
///
/// # Errors
/// The spec gives no name.
pub(super) fn name_of(request: &Request) -> Result<String> {
    existing(request).map_or_else(|| vm_name(request), |existing| Ok(existing.name.clone()))
}

/// The network devices that a `VSphereVM` tells.
pub(super) fn network_of(vm: &AuxiliaryObject) -> Option<NetworkSpec> {
    serde_json::from_value(vm.spec["network"].clone()).ok()
}

/// The network devices, if the `VSphereVM` tells others. What it says and they do not is null.
fn changed_devices(existing: &AuxiliaryObject, network: &NetworkSpec) -> Option<Value> {
    let existing_devices = &existing.spec["network"]["devices"];
    let wanted = serde_json::to_value(&network.devices).ok()?;
    // false is not nothing where the guest's own default is true
    let is_other_for_the_guest =
        network_of(existing).is_some_and(|existing_devices| shape(&existing_devices) != shape(network));
    (is_other_for_the_guest || lean(existing_devices) != lean(&wanted))
        .then(|| with_nulls(existing_devices, wanted))
}

/// Without what says nothing: what is empty, 0 or false.
fn lean(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(field, value)| (field.clone(), lean(value)));
            Value::Object(fields.filter(|(_, value)| !is_nothing(value)).collect())
        }
        Value::Array(items) => items.iter().map(lean).collect(),
        other => other.clone(),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// With a null for each field that `existing` has and `wanted` has not.
fn with_nulls(existing: &Value, wanted: Value) -> Value {
    match (existing, wanted) {
        (Value::Object(existing), Value::Object(mut wanted)) => {
            for (field, existing) in existing {
                let value = wanted.remove(field).map_or(Value::Null, |value| with_nulls(existing, value));
                wanted.insert(field.clone(), value);
            }
            Value::Object(wanted)
        }
        (Value::Array(existing), Value::Array(wanted)) => {
            let existing = existing.iter().chain(std::iter::repeat(&Value::Null));
            existing.zip(wanted).map(|(existing, wanted)| with_nulls(existing, wanted)).collect()
        }
        (_, wanted) => wanted,
    }
}

/// The spec: that of the machine, and what the cluster says where the machine says nothing.
fn spec_of(
    machine: &VSphereMachineSpec,
    cluster: Option<&VSphereClusterSpec>,
    found: Option<&Found>,
    existing: Option<&AuxiliaryObject>,
) -> Value {
    let mut spec = serde_json::to_value(&machine.clone).unwrap_or_default();
    let mut set = |field: &str, value: Value| {
        if !value.is_null() {
            spec[field] = value;
        }
    };
    let server = |server: &Option<String>| server.clone().filter(|server| !server.is_empty());
    let of_cluster = |field: fn(&VSphereClusterSpec) -> &Option<String>| {
        cluster.and_then(|cluster| server(field(cluster)))
    };
    set("server", json!(server(&machine.clone.server).or_else(|| of_cluster(|cluster| &cluster.server))));
    set(
        "thumbprint",
        json!(server(&machine.clone.thumbprint).or_else(|| of_cluster(|cluster| &cluster.thumbprint))),
    );
    set("powerOffMode", json!(machine.power_off_mode));
    set("guestSoftPowerOffTimeoutSeconds", json!(machine.guest_soft_power_off_timeout_seconds));
    set(
        "biosUUID",
        json!(found.and_then(|found| found.vm.bios_uuid).map(|uuid| uuid.hyphenated().to_string())),
    );
    let (Some(existing), Value::Object(fields)) = (existing, &mut spec) else { return spec };
    fields.retain(|field, _| CAN_CHANGE.contains(&field.as_str()));
    // It is written once, in whatever letter case it was written.
    if existing.spec["biosUUID"].as_str().is_some_and(|uuid| !uuid.is_empty()) {
        fields.remove("biosUUID");
    }
    // What the machine does not say any more. Of a cluster that is not there nothing is known.
    let has = |field: &str| !existing.spec[field].is_null();
    if has("powerOffMode") {
        fields.entry("powerOffMode").or_insert_with(|| json!(DEFAULT_POWER_OFF_MODE));
    }
    let removable = [("guestSoftPowerOffTimeoutSeconds", true), ("thumbprint", cluster.is_some())];
    for (field, is_known) in removable {
        if is_known && has(field) {
            fields.entry(field).or_insert(Value::Null);
        }
    }
    spec
}

/// The status: what the step saw, and what was seen before where it saw nothing else.
fn status_of(
    own: &VSphereMachineStatus,
    readiness: &Readiness,
    found: Option<&Found>,
    existing: Option<&AuxiliaryObject>,
) -> Value {
    let mut status = json!({
        "ready": readiness.is_ready,
        "taskRef": own.task_ref,
        "cloneMode": own.clone_mode,
        "snapshot": own.snapshot,
        "moduleUUID": own.module_uuid,
        "vmRef": found.map(|found| found.vm.moref.id()),
        "host": found.and_then(|found| found.host.as_ref()),
    });
    if let Some(addresses) = readiness.addresses.as_ref().filter(|all| !all.is_empty()) {
        status["addresses"] = json!(addresses);
    }
    if found.is_some() && !own.network.is_empty() {
        status["network"] = json!(own.network);
    }
    let before = existing.map(|existing| &existing.status);
    let stays = STAY.iter().filter(|_| !readiness.is_lost).chain([&MODULE]);
    for field in stays {
        if let Some(value) = before.map(|before| &before[*field])
            && status[*field].is_null()
        {
            status[*field] = value.clone();
        }
    }
    status
}

/// The condition of a `VSphereMachine` that tells of its virtual machine, after a step towards existing.
pub(super) fn provisioned(answer: &Result<MachineReport>) -> Condition {
    Readiness::of_step(answer).condition(PROVISIONED)
}

/// The same after a step towards gone.
pub(super) fn deleted(answer: &Result<Deletion>) -> Option<Condition> {
    Readiness::of_deletion(answer).map(|readiness| readiness.condition(PROVISIONED))
}

/// The conditions: what the step saw, and what was told before where it saw nothing else.
fn conditions(
    record: &MachineRecord,
    readiness: &Readiness,
    observed: Observed,
    existing: Option<&AuxiliaryObject>,
) -> Vec<Condition> {
    let before = |name: &'static str| existing.and_then(|existing| condition_before(existing, name));
    let vcenter = observed.vcenter.map(|found| available(&found)).or_else(|| before(VCENTER_AVAILABLE));
    let of_claims = record.conditions.iter().find(|one| one.condition_type == FULFILLED).cloned();
    // A step after a restart sees only that the machine is off. That it was forced is in the status, if that was written in time.
    let was_given_up = before(GUEST_SOFT_POWER_OFF).filter(|one| one.reason == SOFT_POWER_OFF_FAILED);
    let of_guest = match observed.soft_power_off {
        Some(succeeded) if succeeded.status == ConditionStatus::True => was_given_up.or(Some(succeeded)),
        other => other.or_else(|| before(GUEST_SOFT_POWER_OFF)),
    };
    // always in this order, so that nothing is written only because of it
    let own = [readiness.condition(READY), readiness.condition(PROVISIONED)];
    own.into_iter().chain(vcenter).chain(of_claims).chain(of_guest).collect()
}

/// A condition that an object has.
fn condition_before(existing: &AuxiliaryObject, name: &'static str) -> Option<Condition> {
    let found = existing.status["conditions"].as_array()?.iter().find(|one| one["type"] == name)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    let status = match found["status"].as_str()? {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    Some(Condition::new(name, status, text("reason")).with_message(text("message")))
}

fn want(
    record: &mut MachineRecord,
    name: &str,
    is_control_plane: bool,
    spec: Value,
    (status, conditions): (Value, Vec<Condition>),
) {
    let mut wanted = DesiredObject::new(VM_KIND, name, spec).with_status(status, conditions);
    if is_control_plane {
        wanted = wanted.with_label(CONTROL_PLANE_LABEL, "");
    }
    record.want(wanted);
}

#[cfg(test)]
mod tests;
