//! How many replicas an object has that does not say it.

use serde_json::Value;

use super::changes::{Changes, Refused, escape};
use crate::names::annotations::{AUTOSCALER_MAX_SIZE, AUTOSCALER_MIN_SIZE};

/// The number of replicas of an object that does not say it.
///
/// The autoscaler takes over only between its two limits, so an object with both of them gets a number from there: what was
/// stored, or the next limit to it. This also keeps an object whose replicas were taken out of a manifest from shrinking to
/// one Machine. Without the limits it is one.
pub(super) fn replicas(changes: &Changes, old: Option<&Value>) -> Result<i32, Refused> {
    let (Some(min), Some(max)) = (size(changes, AUTOSCALER_MIN_SIZE)?, size(changes, AUTOSCALER_MAX_SIZE)?)
    else {
        return Ok(1);
    };
    let before = old.and_then(|old| old.pointer("/spec/replicas")).and_then(Value::as_i64);
    let Some(before) = before.and_then(|before| i32::try_from(before).ok()) else {
        return Ok(min);
    };
    // not `clamp`: the limits may be the wrong way round
    Ok(if before < min {
        min
    } else if before > max {
        max
    } else {
        before
    })
}

/// The limit in an annotation. It counts only beside the other, so a bad one alone is not looked at.
fn size(changes: &Changes, annotation: &str) -> Result<Option<i32>, Refused> {
    let text = |name: &str| changes.get(&format!("/metadata/annotations/{}", escape(name))).cloned();
    let (Some(Value::String(text)), Some(_), Some(_)) =
        (text(annotation), text(AUTOSCALER_MIN_SIZE), text(AUTOSCALER_MAX_SIZE))
    else {
        return Ok(None);
    };
    let number = text.parse().map_err(|_| Refused {
        field: format!("metadata.annotations[{annotation}]"),
        reason: "must be a number".to_owned(),
    })?;
    Ok(Some(number))
}
