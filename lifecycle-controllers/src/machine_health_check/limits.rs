//! What the spec of a `MachineHealthCheck` says, in the words of `lifecycle`.

use std::time::Duration;

use cluster_api::{ConditionStatus, MachineHealthCheckSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use lifecycle::{
    conditions::Status,
    health_check::{Checks, ConditionCheck, Trigger},
};

use crate::{engine::control::Failure, rollout::bound};

/// How long a Node may take to come where `nodeStartupTimeoutSeconds` is not set.
const NODE_STARTUP: i32 = 600;

/// `spec.checks`.
pub(super) fn checks(spec: &MachineHealthCheckSpec) -> Checks {
    let seconds = |seconds: i32| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let of_spec = &spec.checks;
    let startup = seconds(of_spec.node_startup_timeout_seconds.unwrap_or(NODE_STARTUP));
    let machine = of_spec.unhealthy_machine_conditions.iter().map(|check| ConditionCheck {
        kind: check.type_.clone(),
        status: match check.status {
            ConditionStatus::True => Status::True,
            ConditionStatus::False => Status::False,
            ConditionStatus::Unknown => Status::Unknown,
        },
        timeout: seconds(check.timeout_seconds),
    });
    // No condition of a Node has another status, so a check for another one never applies.
    let is_possible = |status: &str| matches!(status, "True" | "False" | "Unknown");
    let node = of_spec.unhealthy_node_conditions.iter().filter(|check| is_possible(&check.status));
    let node = node.map(|check| ConditionCheck {
        kind: check.type_.clone(),
        status: Status::from_text(&check.status),
        timeout: seconds(check.timeout_seconds),
    });
    Checks {
        node_startup: Some(startup).filter(|limit| !limit.is_zero()),
        machine: machine.collect(),
        node: node.collect(),
    }
}

/// `spec.remediation.triggerIf`, and how a message names it.
pub(super) fn trigger(spec: &MachineHealthCheckSpec) -> Result<(Trigger, Named), Failure> {
    let of_spec = &spec.remediation.trigger_if;
    if let Some(range) = &of_spec.unhealthy_in_range {
        let (from, to) = parse_range(range).ok_or_else(|| {
            let why = "spec.remediation.triggerIf.unhealthyInRange is no range such as [3-5]";
            Failure::Failed(why.to_owned())
        })?;
        return Ok((Trigger::Within { from, to }, Named::Range(range.clone())));
    }
    let Some(most) = &of_spec.unhealthy_less_than_or_equal_to else {
        return Ok((Trigger::DEFAULT, Named::Most("100%".to_owned())));
    };
    let limit = bound(most).ok_or_else(|| {
        let why =
            "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo is neither a number nor a percentage";
        Failure::Failed(why.to_owned())
    })?;
    let text = match most {
        IntOrString::Int(count) => count.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    Ok((Trigger::AtMost(limit), Named::Most(text)))
}

/// The limit as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// `unhealthyLessThanOrEqualTo`
    Most(String),
    /// `unhealthyInRange`
    Range(String),
}

fn parse_range(text: &str) -> Option<(i64, i64)> {
    let (from, to) = text.strip_prefix('[')?.strip_suffix(']')?.split_once('-')?;
    let (from, to) = (from.parse::<u32>().ok()?, to.parse::<u32>().ok()?);
    (from <= to).then_some((from.into(), to.into()))
}

#[cfg(test)]
mod tests {
    use lifecycle::rollout::Bound;
    use serde_json::{Value, json};

    use super::*;

    fn spec(mut with: Value) -> MachineHealthCheckSpec {
        with["clusterName"] = "c".into();
        with["selector"] = json!({"matchLabels": {"a": "b"}});
        serde_json::from_value(with).expect("a spec")
    }

    #[test]
    fn checks_have_limits_of_their_own() {
        let checks = |checks: Value| super::checks(&spec(json!({"checks": checks})));
        assert_eq!(checks(json!({})).node_startup, Some(Duration::from_secs(600)));
        assert_eq!(checks(json!({"nodeStartupTimeoutSeconds": 0})).node_startup, None);
        let read = checks(json!({
            "nodeStartupTimeoutSeconds": 30,
            "unhealthyNodeConditions": [
                {"type": "Ready", "status": "Unknown", "timeoutSeconds": 5},
                {"type": "Ready", "status": "Sometimes", "timeoutSeconds": 5},
            ],
            "unhealthyMachineConditions": [{"type": "Disk", "status": "False", "timeoutSeconds": -5}],
        }));
        let check = |kind: &str, status, seconds| ConditionCheck {
            kind: kind.to_owned(),
            status,
            timeout: Duration::from_secs(seconds),
        };
        assert_eq!(read.node_startup, Some(Duration::from_secs(30)));
        assert_eq!(read.node, [check("Ready", Status::Unknown, 5)]);
        assert_eq!(read.machine, [check("Disk", Status::False, 0)]);
    }

    #[test]
    fn a_limit_is_a_number_a_percentage_or_a_range() {
        let trigger = |limits: Value| {
            let of_spec = spec(json!({"remediation": {"triggerIf": limits}}));
            super::trigger(&of_spec).map_err(|error| error.to_string())
        };
        let most = |text: &str| Named::Most(text.to_owned());
        assert_eq!(trigger(json!({})), Ok((Trigger::DEFAULT, most("100%"))));
        let limit = |of: Value| trigger(json!({"unhealthyLessThanOrEqualTo": of}));
        assert_eq!(limit(json!(2)), Ok((Trigger::AtMost(Bound::Count(2)), most("2"))));
        assert_eq!(limit(json!("40%")), Ok((Trigger::AtMost(Bound::Percent(40)), most("40%"))));
        assert!(limit(json!("some")).is_err_and(|why| why.contains("unhealthyLessThanOrEqualTo")));
        let both = json!({"unhealthyLessThanOrEqualTo": 1, "unhealthyInRange": "[3-5]"});
        let range = Named::Range("[3-5]".to_owned());
        assert_eq!(trigger(both), Ok((Trigger::Within { from: 3, to: 5 }, range)));
        for bad in ["", "[", "[]", "3-5", "[5-3]", "[-1-3]", "[3-5", "[3-99999999999]", "[é-5]"] {
            let why = trigger(json!({"unhealthyInRange": bad}));
            assert!(why.is_err_and(|why| why.contains("unhealthyInRange")), "{bad}");
        }
    }
}
