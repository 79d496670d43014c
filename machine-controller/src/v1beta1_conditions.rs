//! Conditions in the form of the contract v1beta1, for programs that still read it. Each follows one in the
//! present form.

use cloudprovider::machines::V1Beta1Condition;
use component::api_text::truncated;
use serde_json::{Map, Value, json};

use super::names::READY;

/// Where they are in a status.
const DEPRECATED: &str = "deprecated";

/// Whatever a failure is, this program tries again. So a final one is another program's, and would stop that
/// one for ever.
const FINAL_FAILURES: [&str; 2] = ["failureReason", "failureMessage"];

/// Keeps what a status had of the older form, where it is written anew.
pub fn keep(before: &Map<String, Value>, status: &mut Map<String, Value>) {
    if let Some(deprecated) = before.get(DEPRECATED) {
        status.insert(DEPRECATED.to_owned(), deprecated.clone());
    }
}

/// Lets the older conditions of a status follow its present ones. Those that are not in the table are
/// others', and stay.
pub fn follow(status: &mut Map<String, Value>, table: &[V1Beta1Condition]) {
    if table.is_empty() {
        return;
    }
    let present = status.get("conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let followed = |row: &V1Beta1Condition| {
        let found = present.iter().find(|one| one["type"] == row.follows)?;
        Some(older(row, found))
    };
    // Until `Ready` is written, the conditions of another program are the newest ones, and stay.
    let has_spoken = present.iter().any(|one| one["type"] == READY);
    let v1beta1 = status.get(DEPRECATED).map_or(&Value::Null, |deprecated| &deprecated["v1beta1"]);
    let before = v1beta1["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let mut all: Vec<Value> = Vec::new();
    for one in before {
        match table.iter().find(|row| one["type"] == row.name) {
            Some(row) => all.extend(followed(row).or_else(|| (!has_spoken).then(|| one.clone()))),
            None => all.push(one.clone()),
        }
    }
    let is_new = |row: &&V1Beta1Condition| before.iter().all(|one| one["type"] != row.name);
    all.extend(table.iter().filter(is_new).filter_map(followed));

    let mut v1beta1 = v1beta1.as_object().cloned().unwrap_or_default();
    v1beta1.retain(|field, _| !has_spoken || !FINAL_FAILURES.contains(&field.as_str()));
    v1beta1.insert("conditions".to_owned(), all.into());
    status.insert(DEPRECATED.to_owned(), json!({ "v1beta1": v1beta1 }));
}

/// A condition in the older form. One that holds says no more than that.
fn older(row: &V1Beta1Condition, found: &Value) -> Value {
    let mut older = json!({
        "type": row.name, "status": found["status"], "lastTransitionTime": found["lastTransitionTime"],
    });
    let text = |field: &str| found[field].as_str().filter(|text| !text.is_empty());
    if found["status"] == "True" {
        return older;
    }
    let (reason, severity) = row.reason(text("reason").unwrap_or_default());
    if !reason.is_empty() {
        older["reason"] = json!(reason);
    }
    if found["status"] == "False" {
        older["severity"] = json!(severity.as_str());
    }
    if let Some(message) = text("message") {
        older["message"] = json!(truncated(message.to_owned()));
    }
    older
}

#[cfg(test)]
mod tests {
    use cloudprovider::machines::{Severity, V1Beta1Reason};

    use super::*;

    const TABLE: [V1Beta1Condition; 3] = [
        V1Beta1Condition::new("Ready", "Ready", Severity::Warning),
        V1Beta1Condition::new("VMProvisioned", "VirtualMachineProvisioned", Severity::Warning)
            .with_reasons(&[V1Beta1Reason::new("WaitingForClone", Severity::Info).called("Cloning")]),
        V1Beta1Condition::new("VCenterAvailable", "VCenterAvailable", Severity::Error),
    ];

    fn present(name: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({
            "type": name, "status": status, "reason": reason, "message": message, "observedGeneration": 3,
            "lastTransitionTime": format!("2026-01-01T00:00:00Z of {name}"),
        })
    }

    fn after(status: Value) -> Value {
        let Value::Object(mut status) = status else { panic!("an object") };
        follow(&mut status, &TABLE);
        let once = status.clone();
        follow(&mut status, &TABLE);
        assert_eq!(status, once, "nothing is new");
        status.remove("deprecated").expect("the older form")["v1beta1"].take()
    }

    #[test]
    fn each_follows_its_own() {
        let status = json!({"conditions": [
            present("VirtualMachineProvisioned", "False", "WaitingForClone", "by task-1"),
            present("VCenterAvailable", "True", "Available", ""),
            present("Ready", "False", "TaskFailed", ""),
            present("Paused", "False", "NotPaused", ""),
        ]});
        let expected = json!([
            {
                "type": "Ready", "status": "False", "severity": "Warning", "reason": "TaskFailed",
                "lastTransitionTime": "2026-01-01T00:00:00Z of Ready",
            },
            {
                "type": "VMProvisioned", "status": "False", "severity": "Info", "reason": "Cloning", "message": "by task-1",
                "lastTransitionTime": "2026-01-01T00:00:00Z of VirtualMachineProvisioned",
            },
            {
                "type": "VCenterAvailable", "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:00Z of VCenterAvailable",
            },
        ]);
        assert_eq!(after(status), json!({ "conditions": expected }));
        let unknown =
            after(json!({"conditions": [present("VCenterAvailable", "Unknown", "NotYetKnown", "wait")]}));
        let expected = json!([{
            "type": "VCenterAvailable", "status": "Unknown", "reason": "NotYetKnown", "message": "wait",
            "lastTransitionTime": "2026-01-01T00:00:00Z of VCenterAvailable",
        }]);
        assert_eq!(unknown["conditions"], expected);
    }

    /// What another program wrote last must not stay for ever.
    #[test]
    fn those_of_others_stay_and_what_nothing_follows_goes() {
        let others =
            json!({"type": "Theirs", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"});
        let status = json!({
            "conditions": [
                present("Ready", "False", "MachineLost", ""),
                present("VirtualMachineProvisioned", "False", "NotFoundByBIOSUUID", "it is gone"),
            ],
            "deprecated": {"v1beta1": {
                "conditions": [
                    {"type": "VMProvisioned", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"},
                    others,
                    {"type": "VCenterAvailable", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"},
                ],
                "failureReason": "CreateError", "failureMessage": "for ever", "other": 1,
            }},
        });
        let expected = json!([
            {
                "type": "VMProvisioned", "status": "False", "severity": "Warning", "reason": "NotFoundByBIOSUUID",
                "message": "it is gone",
                "lastTransitionTime": "2026-01-01T00:00:00Z of VirtualMachineProvisioned",
            },
            others,
            {
                "type": "Ready", "status": "False", "severity": "Warning", "reason": "MachineLost",
                "lastTransitionTime": "2026-01-01T00:00:00Z of Ready",
            },
        ]);
        assert_eq!(after(status), json!({"conditions": expected, "other": 1}));
    }

    #[test]
    fn they_stay_until_ready_is_told() {
        let v1beta1 = json!({
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}],
            "failureReason": "CreateError",
        });
        let status = json!({
            "conditions": [present("Paused", "True", "Paused", "")], "deprecated": {"v1beta1": v1beta1.clone()},
        });
        assert_eq!(after(status), v1beta1);
    }

    #[test]
    fn a_provider_without_older_conditions_has_none() {
        let status = json!({"conditions": [present("Ready", "True", "Ready", "")]});
        let Value::Object(mut status) = status else { panic!("an object") };
        let before = status.clone();
        follow(&mut status, &[]);
        assert_eq!(status, before);
    }
}
