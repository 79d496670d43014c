//! What follows from the answer of a step: the writes, the event, and when the next step is due.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use cloudprovider::{
    ControlPlaneEndpoint, Error, ErrorKind,
    machines::{
        ClusterReport, Condition, ConditionStatus, Deletion, Kind, Kinds, MachineReport, PresentMachine,
        Wait, WaitsFor,
    },
};
use component::{backoff::Backoff, events::EventType};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    conditions::is_news,
    names::{
        BLOCK_MOVE_ANNOTATION, BLOCK_MOVE_VALUE, COMPANION_NOT_WRITTEN, COMPANIONS_UP_TO_DATE, DELETING,
        ENDPOINT_MISMATCH, MACHINE_LOST, PROVIDER_ERROR, PROVIDER_ID_MISMATCH, READY, READY_REASON,
        cluster_annotation, finalizer, identity_annotation, reason_of,
    },
    object::{InfraObject, guarded},
    plan::Due,
    status::Observed,
};

/// How soon a step is tried again that a person has to help.
const NEEDS_HELP_INTERVAL: Duration = Duration::from_secs(60);

/// The waits after errors that pass by themselves.
pub(super) const RETRIES: Backoff =
    Backoff { first: Duration::from_millis(200), most: Duration::from_secs(60) };

/// What follows from a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the status says.
    pub observed: Observed,
    /// `spec.providerID`, to be set.
    pub provider_id: Option<String>,
    /// `spec.controlPlaneEndpoint`, to be set.
    pub endpoint: Option<ControlPlaneEndpoint>,
    /// Other fields of the spec, to be set.
    pub spec: BTreeMap<String, Value>,
    /// Whether `clusterctl move` must wait. `None` leaves it as it is.
    pub blocks_move: Option<bool>,
    /// Whether the cloud works on a task for it.
    pub has_task: bool,
    /// Whether it waits for something on its way to existing. The status says so, and no event does.
    pub is_on_its_way: bool,
    /// Whether nothing is left of it, so that the finalizer goes.
    pub is_gone: bool,
    /// Whether it failed.
    pub has_failed: bool,
    /// When the next step is due.
    pub due: Due,
}

/// An event for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether it is a warning.
    pub event_type: EventType,
    /// The reason of the condition.
    pub reason: String,
    /// The message of the condition.
    pub message: String,
}

impl Event {
    /// A warning that says what a condition says.
    pub(super) fn warning(condition: &Condition) -> Self {
        Self {
            event_type: EventType::Warning,
            reason: condition.reason.to_string(),
            message: condition.message.to_string(),
        }
    }
}

impl Outcome {
    fn of(ready: Condition, due: Due) -> Self {
        Self {
            observed: Observed::ready(ready),
            provider_id: None,
            endpoint: None,
            spec: BTreeMap::new(),
            blocks_move: None,
            has_task: false,
            is_on_its_way: false,
            is_gone: false,
            has_failed: false,
            due,
        }
    }

    /// After a step of a machine towards existing. `failures` counts those in a row, this one included.
    pub fn of_machine(
        object: &InfraObject,
        answer: &Result<MachineReport, Error>,
        failures: u32,
        now: Instant,
    ) -> Self {
        match answer {
            Ok(MachineReport::Creating(wait)) => {
                let outcome = Self::of(not_ready(&wait.reason, &wait.message), due_after(Some(wait), now));
                // Until the provider ID is written, only the mark in the cloud says that there is something.
                let has_task = is_task(Some(wait));
                let blocks_move = Some(object.provider_id().is_none() || has_task);
                Self { blocks_move, has_task, is_on_its_way: is_on_its_way(Some(wait)), ..outcome }
            }
            Ok(MachineReport::Present(machine)) => Self::of_present(object, machine, now),
            Ok(MachineReport::Lost { message }) => {
                let outcome = Self::of(not_ready(MACHINE_LOST, message), Due::WhenChanged);
                Self { blocks_move: Some(false), ..outcome }
            }
            Err(error) => Self::of_error(error, failures, now),
        }
    }

    fn of_present(object: &InfraObject, machine: &PresentMachine, now: Instant) -> Self {
        let PresentMachine { instance, failure_domain, wait, look_again_after, .. } = machine;
        let reported = instance.provider_id.as_ref().map(ToString::to_string);
        let ready = match (object.provider_id(), &reported) {
            (_, None) => {
                let words = "the provider reported a machine without a provider ID";
                return Self {
                    has_failed: true,
                    ..Self::of(not_ready(PROVIDER_ERROR, words), after(NEEDS_HELP_INTERVAL, now))
                };
            }
            (Some(has), Some(reported)) if has != reported => {
                let words =
                    format!("the provider ID is {has:?}, and the machine that was found has {reported:?}");
                let ready = not_ready(PROVIDER_ID_MISMATCH, &words);
                return Self { has_failed: true, ..Self::of(ready, after(NEEDS_HELP_INTERVAL, now)) };
            }
            _ => ready_after(wait.as_ref()),
        };
        let of_wait = wait.as_ref().and_then(|wait| wait.look_again_after);
        let mut outcome = Self::of(ready, due_at(of_wait.into_iter().chain(*look_again_after).min(), now));
        outcome.observed.is_done = wait.is_none();
        // What is incomplete says nothing about addresses that were seen before.
        let addresses = &instance.metadata.addresses;
        outcome.observed.addresses =
            (instance.incomplete.is_none() && !addresses.is_empty()).then(|| addresses.clone());
        outcome.observed.failure_domain.clone_from(failure_domain);
        outcome.is_on_its_way = is_on_its_way(wait.as_ref());
        outcome.has_task = is_task(wait.as_ref());
        outcome.blocks_move = Some(outcome.has_task);
        outcome.provider_id = reported.filter(|_| object.provider_id().is_none());
        outcome
    }

    /// After a step of a cluster towards existing.
    pub fn of_cluster(
        object: &InfraObject,
        answer: &Result<ClusterReport, Error>,
        failures: u32,
        now: Instant,
    ) -> Self {
        let report = match answer {
            Ok(report) => report,
            Err(error) => return Self::of_error(error, failures, now),
        };
        let wait = report.wait.as_ref();
        if let (Some(has), Some(reported)) = (object.endpoint(), &report.control_plane_endpoint)
            && has != *reported
        {
            let words = format!("the control plane's endpoint is {has}, and the provider made {reported}");
            let ready = not_ready(ENDPOINT_MISMATCH, &words);
            return Self { has_failed: true, ..Self::of(ready, after(NEEDS_HELP_INTERVAL, now)) };
        }
        let mut outcome = Self::of(ready_after(wait), due_after(wait, now));
        outcome.observed.is_done = wait.is_none();
        outcome.observed.failure_domains = Some(report.failure_domains.clone());
        outcome.is_on_its_way = is_on_its_way(wait);
        outcome.has_task = is_task(wait);
        outcome.blocks_move = Some(outcome.has_task);
        outcome.endpoint = report.control_plane_endpoint.clone().filter(|_| object.endpoint().is_none());
        let differs = |(field, value): &(&String, &Value)| object.spec.get(field.as_str()) != Some(value);
        let differing = report.spec.iter().filter(differs);
        outcome.spec = differing.map(|(field, value)| (field.clone(), value.clone())).collect();
        outcome
    }

    /// After a step towards gone.
    pub fn of_deletion(answer: &Result<Deletion, Error>, failures: u32, now: Instant) -> Self {
        match answer {
            Ok(Deletion::Deleting(wait)) => {
                let outcome = Self::of(not_ready(DELETING, &wait.message), due_after(Some(wait), now));
                let has_task = is_task(Some(wait));
                Self { blocks_move: Some(has_task), has_task, ..outcome }
            }
            Ok(Deletion::Gone) => {
                let outcome = Self::of(not_ready(DELETING, "nothing is left"), Due::WhenChanged);
                Self { is_gone: true, ..outcome }
            }
            Err(error) => {
                let words = format!("not deleted yet: {}", error.report());
                Self::of_fault(error, &words, failures, now)
            }
        }
    }

    fn of_error(error: &Error, failures: u32, now: Instant) -> Self {
        Self::of_fault(error, &error.report(), failures, now)
    }

    fn of_fault(error: &Error, words: &str, failures: u32, now: Instant) -> Self {
        let ready = not_ready(reason_of(error.kind()), words);
        Self { has_failed: true, ..Self::of(ready, due_after_error(error, failures, now)) }
    }

    /// The same while the object is paused: a move waits for a task alone. Everything else is found again by
    /// the mark.
    #[must_use]
    pub fn while_paused(self) -> Self {
        Self { blocks_move: Some(self.has_task), ..self }
    }

    /// The event about it: one for each change of the status or the reason of `Ready`, but for waits on the
    /// way there. A condition that is true needs no message, an event does.
    pub fn event(&self, object: &InfraObject) -> Option<Event> {
        let Condition { reason, message, .. } = &self.observed.ready;
        let message = if message.is_empty() { "provisioned" } else { message };
        let is_bad = self.has_failed || reason == MACHINE_LOST;
        let is_quiet = self.is_on_its_way && !object.is_provisioned();
        (!is_quiet && is_news(object, &self.observed.ready)).then(|| Event {
            event_type: if is_bad { EventType::Warning } else { EventType::Normal },
            reason: reason.to_string(),
            message: message.to_string(),
        })
    }

    /// The write of what is not deferred: a provider ID, with whether a move has to wait from then on, or
    /// that it waits for a task.
    pub(super) fn at_once(&self, object: &InfraObject, kinds: &Kinds, kind: &Kind) -> Option<Value> {
        if self.provider_id.is_some() { self.patch(object, kinds, kind) } else { self.hold(object) }
    }

    /// The write that lets a move wait for a task, if nothing does so yet.
    fn hold(&self, object: &InfraObject) -> Option<Value> {
        let is_needed = self.has_task && object.annotation(BLOCK_MOVE_ANNOTATION).is_none();
        let patch = || json!({"metadata": {"annotations": {BLOCK_MOVE_ANNOTATION: BLOCK_MOVE_VALUE}}});
        is_needed.then(|| guarded(&object.metadata, patch()))
    }

    /// The merge patch of metadata and spec, if there is anything to write. It is for this very version of
    /// the object.
    pub fn patch(&self, object: &InfraObject, kinds: &Kinds, kind: &Kind) -> Option<Value> {
        let mut patch = json!({});
        let has_block = object.annotation(BLOCK_MOVE_ANNOTATION);
        let blocks = match self.blocks_move {
            Some(true) if has_block.is_none() => Some(json!(BLOCK_MOVE_VALUE)),
            // A block with another value belongs to another program, which removes it.
            Some(false) if has_block == Some(BLOCK_MOVE_VALUE) => Some(Value::Null),
            _ if self.is_gone && has_block == Some(BLOCK_MOVE_VALUE) => Some(Value::Null),
            _ => None,
        };
        if let Some(value) = blocks {
            patch["metadata"]["annotations"][BLOCK_MOVE_ANNOTATION] = value;
        }
        if let Some(id) = &self.provider_id {
            patch["spec"]["providerID"] = json!(id);
        }
        if let Some(endpoint) = &self.endpoint {
            patch["spec"]["controlPlaneEndpoint"] = json!({"host": endpoint.host, "port": endpoint.port});
        }
        for (field, value) in &self.spec {
            patch["spec"][field] = value.clone();
        }
        if self.is_gone {
            patch["metadata"]["finalizers"] = json!(other_finalizers(object, kinds, kind));
        }
        let is_empty = patch.as_object().is_none_or(Map::is_empty);
        (!is_empty).then(|| guarded(&object.metadata, patch))
    }
}

/// The write before the first outside call: finalizer, identity and the rest of the mark that can change. A
/// machine may not move until its provider ID is written.
pub fn adoption(object: &InfraObject, kinds: &Kinds, kind: &Kind) -> Value {
    let uid = object.identity(kinds).or(object.metadata.uid.as_deref()).unwrap_or_default();
    adoption_as(uid, object, kinds, kind)
}

/// The same with this identity, which the object does not have yet.
pub(super) fn adoption_as(uid: &str, object: &InfraObject, kinds: &Kinds, kind: &Kind) -> Value {
    let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
    let ours = finalizer(kinds, kind);
    if !finalizers.contains(&ours) {
        finalizers.push(ours);
    }
    let is_machine = kind.kind == kinds.machine.kind;
    let mark = if is_machine { object.machine_mark(kinds) } else { object.cluster_mark(kinds) };
    let mut annotations = json!({identity_annotation(kinds): uid, cluster_annotation(kinds): mark.cluster});
    if is_machine && object.provider_id().is_none() && object.annotation(BLOCK_MOVE_ANNOTATION).is_none() {
        annotations[BLOCK_MOVE_ANNOTATION] = json!(BLOCK_MOVE_VALUE);
    }
    guarded(&object.metadata, json!({"metadata": {"finalizers": finalizers, "annotations": annotations}}))
}

/// The write that lets an object move, if this controller holds it.
pub(super) fn unblock(object: &InfraObject) -> Option<Value> {
    let patch = || json!({"metadata": {"annotations": {BLOCK_MOVE_ANNOTATION: null}}});
    object.holds_move().then(|| guarded(&object.metadata, patch()))
}

/// The write that lets an object go for which nothing was made.
pub(super) fn release(object: &InfraObject, kinds: &Kinds, kind: &Kind) -> Value {
    guarded(&object.metadata, json!({"metadata": {"finalizers": other_finalizers(object, kinds, kind)}}))
}

fn other_finalizers<'o>(object: &'o InfraObject, kinds: &Kinds, kind: &Kind) -> Vec<&'o String> {
    let ours = finalizer(kinds, kind);
    object.metadata.finalizers.iter().flatten().filter(|one| **one != ours).collect()
}

/// The condition about owned objects that are not as they are wanted.
pub(super) fn about_owned(error: &Error) -> Condition {
    let reason = match error.kind() {
        ErrorKind::Unavailable => COMPANION_NOT_WRITTEN,
        kind => reason_of(kind),
    };
    Condition::new(COMPANIONS_UP_TO_DATE, ConditionStatus::False, reason).with_message(error.report())
}

/// When a step is made again that failed. `failures` counts those in a row, this one included.
pub(super) fn due_after_error(error: &Error, failures: u32, now: Instant) -> Due {
    match (error.retry_after(), error.kind()) {
        (Some(wait), _) => after(wait, now),
        (None, ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::ImplementedElsewhere) => {
            Due::WhenChanged
        }
        (
            None,
            ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::Ambiguous
            | ErrorKind::Unauthenticated
            | ErrorKind::PermissionDenied
            | ErrorKind::InvalidConfiguration,
        ) => after(NEEDS_HELP_INTERVAL, now),
        (None, _) => after(RETRIES.after(failures), now),
    }
}

/// Whether a wait ends by itself. A wait for capacity ends when a person or another machine makes room.
fn is_on_its_way(wait: Option<&Wait>) -> bool {
    wait.is_some_and(|wait| wait.waits_for != WaitsFor::Capacity)
}

fn is_task(wait: Option<&Wait>) -> bool {
    wait.is_some_and(|wait| wait.waits_for == WaitsFor::Task)
}

fn ready_after(wait: Option<&Wait>) -> Condition {
    match wait {
        Some(wait) => not_ready(&wait.reason, &wait.message),
        None => Condition::new(READY, ConditionStatus::True, READY_REASON),
    }
}

fn not_ready(reason: &str, message: &str) -> Condition {
    let reason: Cow<'static, str> = reason.to_owned().into();
    Condition::new(READY, ConditionStatus::False, reason).with_message(message.to_owned())
}

fn due_after(wait: Option<&Wait>, now: Instant) -> Due {
    due_at(wait.and_then(|wait| wait.look_again_after), now)
}

fn due_at(look_again_after: Option<Duration>, now: Instant) -> Due {
    look_again_after.map_or(Due::WhenChanged, |wait| after(wait, now))
}

/// A wait that no clock can hold is one for a change.
fn after(wait: Duration, now: Instant) -> Due {
    now.checked_add(wait).map_or(Due::WhenChanged, Due::At)
}

#[cfg(test)]
mod tests;
