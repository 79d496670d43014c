//! The status of an object, from what a step saw.

use cloudprovider::{
    NodeAddress, NodeAddressType,
    machines::{Condition, FailureDomain, Kind, Record, V1Beta1Condition},
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    conditions::{entry, is_said, not_paused, of_provider, with_twin},
    names::{PAUSED, READY},
    object::InfraObject,
    v1beta1_conditions::follow,
};

/// The fields of a status that are the controller's. All others are the provider's.
const OF_THE_CONTROLLER: [&str; 7] =
    ["initialization", "ready", "addresses", "failureDomain", "failureDomains", "conditions", "deprecated"];

/// What is to be seen in a status after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The condition `Ready`.
    pub ready: Condition,
    /// Whether nothing is left to do. The status never goes back from there.
    pub is_done: bool,
    /// The addresses of the machine. `None` leaves those that are there.
    pub addresses: Option<Vec<NodeAddress>>,
    /// Where the machine is. `None` leaves what is there.
    pub failure_domain: Option<String>,
    /// Where machines of the cluster can be. `None` leaves those that are there.
    pub failure_domains: Option<Vec<FailureDomain>>,
}

impl Observed {
    /// A status with a new condition `Ready` and nothing else new.
    pub fn ready(ready: Condition) -> Self {
        Self { ready, is_done: false, addresses: None, failure_domain: None, failure_domains: None }
    }
}

/// What the status says for the step: the provider's part and its conditions.
pub fn record_of(object: &InfraObject) -> Record<Value> {
    let own = object.status.iter().filter(|(field, _)| !OF_THE_CONTROLLER.contains(&field.as_str()));
    let own: Map<String, Value> = own.map(|(field, value)| (field.clone(), value.clone())).collect();
    let mut record = Record::new(Value::Object(own));
    record.conditions = of_provider(object);
    record
}

/// The whole status after a step, or `None` if it is as it was. `object` is the newest one, after its spec
/// was written. The step was `given` one record and left another: conditions that it did not change are as
/// others have written them meanwhile. The other fields of the provider are as the step left them. `kind` is
/// that of the object.
pub fn after_step(
    object: &InfraObject,
    (given, record): (&Record<Value>, &Record<Value>),
    observed: &Observed,
    kind: &Kind,
    now: Timestamp,
) -> Option<Map<String, Value>> {
    let mut status = of_the_controller(object);
    status.extend(fields_of(record));

    if observed.is_done || object.is_provisioned() {
        status.insert("initialization".to_owned(), json!({"provisioned": true}));
        status.insert("ready".to_owned(), json!(true));
    }
    if let Some(addresses) = &observed.addresses {
        set(&mut status, "addresses", addresses.iter().filter_map(address).collect());
    }
    if let Some(name) = &observed.failure_domain {
        status.insert("failureDomain".to_owned(), json!(name));
    }
    if let Some(domains) = &observed.failure_domains {
        set(&mut status, "failureDomains", domains.iter().map(failure_domain).collect());
    }

    let of = |record: &Record<Value>, condition_type: &str| {
        record.conditions.iter().find(|one| one.condition_type == condition_type).cloned()
    };
    let is_of_the_step = |name: &str| record.has_changed(name) || of(given, name) != of(record, name);
    // A step knows better words than `Ready` has, but not whether it is true.
    let twin = kind.ready_twin.filter(|name| {
        let own = of(record, name).filter(|_| is_of_the_step(name));
        own.is_none_or(|own| own.status != observed.ready.status)
    });
    let is_the_controllers = |name: &str| name == READY || name == PAUSED || twin == Some(name);
    let own = with_twin(&[observed.ready.clone(), not_paused()], twin);
    let mut conditions: Vec<Value> = own.iter().map(|one| entry(object, one, now)).collect();
    let found = object.status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.extend(
        found
            .filter(|one| {
                let name = one["type"].as_str().unwrap_or_default();
                !is_the_controllers(name) && !is_of_the_step(name)
            })
            .cloned(),
    );
    let own = record
        .conditions
        .iter()
        .filter(|one| !is_the_controllers(&one.condition_type) && is_of_the_step(&one.condition_type));
    conditions.extend(own.map(|one| entry(object, one, now)));
    set_conditions(object, &mut status, conditions);
    follow(&mut status, kind.v1beta1_conditions);
    (status != object.status).then_some(status)
}

/// The whole status with these conditions in the place of those of the same types, or `None` if the object
/// says so already. `table` has the older conditions of the kind.
pub fn with_conditions(
    object: &InfraObject,
    wanted: &[Condition],
    table: &[V1Beta1Condition],
    now: Timestamp,
) -> Option<Map<String, Value>> {
    if wanted.iter().all(|one| is_said(object, one)) {
        return None;
    }
    let found = object.status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let is_other = |found: &&Value| !wanted.iter().any(|one| found["type"] == *one.condition_type);
    let mut conditions: Vec<Value> = found.filter(is_other).cloned().collect();
    conditions.extend(wanted.iter().map(|one| entry(object, one, now)));
    let mut status = object.status.clone();
    set_conditions(object, &mut status, conditions);
    follow(&mut status, table);
    Some(status)
}

/// The whole status with the provider's fields of this record, or `None` if it has them.
pub(super) fn with_record(object: &InfraObject, record: &Record<Value>) -> Option<Map<String, Value>> {
    let mut status = of_the_controller(object);
    status.extend(fields_of(record));
    (status != object.status).then_some(status)
}

/// The fields of a status that are the controller's.
fn of_the_controller(object: &InfraObject) -> Map<String, Value> {
    let kept = object.status.iter().filter(|(field, _)| OF_THE_CONTROLLER.contains(&field.as_str()));
    kept.map(|(field, value)| (field.clone(), value.clone())).collect()
}

/// The fields of a record that are the provider's.
fn fields_of(record: &Record<Value>) -> impl Iterator<Item = (String, Value)> {
    let own = record.status.as_object().into_iter().flatten();
    let own = own.filter(|(field, value)| !value.is_null() && !OF_THE_CONTROLLER.contains(&field.as_str()));
    own.map(|(field, value)| (field.clone(), value.clone()))
}

/// The whole status without the condition of this type, or `None` if there is none.
pub fn without_condition(object: &InfraObject, condition_type: &str) -> Option<Map<String, Value>> {
    object.condition(condition_type)?;
    let mut status = object.status.clone();
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut)?;
    conditions.retain(|one| one["type"] != condition_type);
    Some(status)
}

/// Sets the conditions in the order in which they were, so that nothing is written only because of the order.
fn set_conditions(object: &InfraObject, status: &mut Map<String, Value>, mut conditions: Vec<Value>) {
    let before = object.status.get("conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    conditions.sort_by_key(|one| {
        let place = before.iter().position(|found| found["type"] == one["type"]);
        place.unwrap_or(usize::MAX)
    });
    status.insert("conditions".to_owned(), conditions.into());
}

/// An empty list is not written.
fn set(status: &mut Map<String, Value>, field: &str, values: Vec<Value>) {
    if values.is_empty() {
        status.remove(field);
    } else {
        status.insert(field.to_owned(), values.into());
    }
}

/// The contract knows five types of addresses.
fn address(address: &NodeAddress) -> Option<Value> {
    let is_known = !matches!(address.address_type, NodeAddressType::Other(_));
    is_known.then(|| json!({"type": address.address_type.as_str(), "address": address.address}))
}

fn failure_domain(domain: &FailureDomain) -> Value {
    let mut value = json!({"name": domain.name, "controlPlane": domain.control_plane});
    if !domain.attributes.is_empty() {
        value["attributes"] = json!(domain.attributes);
    }
    value
}

#[cfg(test)]
mod tests;
