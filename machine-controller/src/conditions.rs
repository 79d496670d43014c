//! The conditions of an object: what is new about them, and when their status changed last.

use cloudprovider::machines::{Condition, ConditionStatus};
use component::api_text::{api_time, truncated};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    names::{NOT_PAUSED_REASON, PAUSED, PAUSED_REASON, READY},
    object::InfraObject,
};

/// The condition that the object is paused.
pub fn paused() -> Condition {
    Condition::new(PAUSED, ConditionStatus::True, PAUSED_REASON)
        .with_message("the Cluster is paused, or this object has the annotation cluster.x-k8s.io/paused")
}

/// The condition that it is not.
pub fn not_paused() -> Condition {
    Condition::new(PAUSED, ConditionStatus::False, NOT_PAUSED_REASON)
}

/// These conditions, and the [twin](cloudprovider::machines::Kind::ready_twin) of `Ready` if that is among
/// them.
pub fn with_twin(wanted: &[Condition], twin: Option<&'static str>) -> Vec<Condition> {
    let ready = wanted.iter().find(|one| one.condition_type == READY);
    let twin = twin.zip(ready);
    let twin = twin.map(|(name, ready)| Condition { condition_type: name.into(), ..ready.clone() });
    wanted.iter().cloned().chain(twin).collect()
}

/// Whether the object says exactly this already, about its present generation.
pub fn is_said(object: &InfraObject, wanted: &Condition) -> bool {
    object.condition(&wanted.condition_type).is_some_and(|found| {
        found["status"] == wanted.status.as_str()
            && found["reason"] == *wanted.reason
            && found["message"] == truncated(wanted.message.clone().into_owned())
            && found["observedGeneration"] == object.generation()
    })
}

/// Whether the object says something else than this about a condition, apart from the message and the
/// generation.
pub fn is_news(object: &InfraObject, wanted: &Condition) -> bool {
    object
        .condition(&wanted.condition_type)
        .is_none_or(|found| found["status"] != wanted.status.as_str() || found["reason"] != *wanted.reason)
}

/// The entry of `status.conditions`. `lastTransitionTime` moves only when the status does.
pub fn entry(object: &InfraObject, wanted: &Condition, now: Timestamp) -> Value {
    let found = object.condition(&wanted.condition_type);
    let since = found.filter(|found| found["status"] == wanted.status.as_str());
    let since = since.map(|found| found["lastTransitionTime"].clone()).filter(Value::is_string);
    json!({
        "type": wanted.condition_type,
        "status": wanted.status.as_str(),
        "reason": wanted.reason,
        "message": truncated(wanted.message.clone().into_owned()),
        "observedGeneration": object.generation(),
        "lastTransitionTime": since.unwrap_or_else(|| api_time(now).into()),
    })
}

/// The provider's own conditions in the status, for the record of a step.
pub fn of_provider(object: &InfraObject) -> Vec<Condition> {
    let conditions = object.status.get("conditions").and_then(Value::as_array);
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let own = conditions.into_iter().flatten().filter(|one| one["type"] != READY && one["type"] != PAUSED);
    own.map(|one| {
        let status = match one["status"].as_str() {
            Some("True") => ConditionStatus::True,
            Some("False") => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        };
        Condition::new(text(one, "type"), status, text(one, "reason")).with_message(text(one, "message"))
    })
    .collect()
}
