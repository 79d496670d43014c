//! The definitions of `RebootRemediation` and its template.

use std::collections::BTreeMap;

use cloudprovider::machines::{Column, ForeignVersion, Kind, KindDefinition};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::status::{Phase, RETRY_LIMIT, TIMEOUT_SECONDS};
use crate::{
    crds::{DefinitionsError, conditions, foreign_definitions},
    names::REBOOT_REMEDIATION,
};

/// `clusterctl move` takes all objects of a kind with this label along, since nothing owns them.
const MOVE: &str = "clusterctl.cluster.x-k8s.io/move";

/// `clusterctl move` looks at the objects of kinds with this label.
const CLUSTERCTL: &str = "clusterctl.cluster.x-k8s.io";

/// Several providers have the kinds, so none is named on them.
const PROVIDER: &str = "cluster.x-k8s.io/provider";

/// The definitions of both kinds, which are the same for all providers. `clusterctl move` takes templates along. A
/// remediation stays behind, and the health check makes it anew, unless `clusterctl` has installed the kinds: it puts its labels on
/// all that it installs, and moves a remediation with the Machine that owns it. Its count is in the status, which never moves.
///
/// # Errors
/// What cannot be said in a definition. A test of this crate checks that there is nothing.
pub fn definitions() -> Result<Vec<CustomResourceDefinition>, DefinitionsError> {
    let template = Kind::new("RebootRemediationTemplate", "rebootremediationtemplates");
    let remediation = Kind::new(REBOOT_REMEDIATION.kind, REBOOT_REMEDIATION.plural);
    let mut last = Column::new("Last", ".status.lastRemediated", "When the last reboot was begun.");
    last.is_age = true;
    let kinds = vec![
        KindDefinition::new(
            remediation,
            "Reboots the machine of an unhealthy Machine. A MachineHealthCheck makes it from a RebootRemediationTemplate.",
            spec(),
        )
        .with_status(status())
        .with_columns([
            Column::new("Phase", ".status.phase", "How far the remediation is."),
            Column::new("Reboots", ".status.retryCount", "How many reboots were begun."),
            Column::new("Limit", ".spec.retryLimit", "How many reboots are made at most."),
            last,
            Column::age(),
        ]),
        KindDefinition::new(template, "A template that a MachineHealthCheck names in spec.remediation.templateRef.", json!({
            "type": "object",
            "required": ["template"],
            "properties": {"template": {
                "type": "object",
                "description": "What is made for an unhealthy Machine.",
                "required": ["spec"],
                "properties": {"spec": spec()},
            }},
        }))
        .with_columns([
            Column::new("Limit", ".spec.template.spec.retryLimit", "How many reboots are made at most."),
            Column::new("Timeout", ".spec.template.spec.timeoutSeconds", "Seconds that a Node has after a reboot."),
            Column::age(),
        ]),
    ];
    let version = ForeignVersion::new(REBOOT_REMEDIATION.version, "v1beta2", kinds);
    let mut crds = foreign_definitions("", REBOOT_REMEDIATION.group, &version)?.crds;
    for crd in &mut crds {
        let labels: &mut BTreeMap<_, _> = crd.metadata.labels.get_or_insert_default();
        labels.remove(PROVIDER);
        if crd.spec.names.kind == REBOOT_REMEDIATION.kind {
            labels.remove(CLUSTERCTL);
        } else {
            labels.insert(MOVE.to_owned(), String::new());
        }
    }
    Ok(crds)
}

fn spec() -> Value {
    let number = |(least, most, default): (u32, u32, u32), about: &str| {
        json!({
            "type": "integer", "format": "int32", "minimum": least, "maximum": most, "default": default,
            "description": about,
        })
    };
    json!({
        "type": "object",
        "description": "What is wanted.",
        "properties": {
            "retryLimit": number(RETRY_LIMIT, "How often the machine is rebooted at most before its Machine is replaced."),
            "timeoutSeconds": number(
                TIMEOUT_SECONDS,
                "How many seconds the Node may take to become healthy after a reboot.",
            ),
        },
    })
}

fn status() -> Value {
    json!({
        "type": "object",
        "description": "What is there.",
        "properties": {
            "phase": {
                "type": "string", "enum": Phase::ALL.map(Phase::as_str),
                "description": "How far the remediation is.",
            },
            "retryCount": {
                "type": "integer", "format": "int32", "minimum": 0,
                "description": "How many reboots were begun. Each is counted before it is made.",
            },
            "lastRemediated": {
                "type": "string", "format": "date-time",
                "description": "When the last reboot was begun.",
            },
            "conditions": conditions("What is known about it."),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_api_finds_the_kinds() {
        let crds = definitions().expect("good schemas");
        let crds: Vec<_> = crds.iter().map(|crd| serde_json::to_value(crd).expect("JSON")).collect();
        let [remediation, template] = &crds[..] else { panic!("two kinds: {crds:?}") };
        let group = "infrastructure.cluster.x-k8s.io";
        assert_eq!(remediation["metadata"]["name"], format!("rebootremediations.{group}"));
        // Cluster API cuts `Template` off the kind of the template.
        assert_eq!(template["spec"]["names"]["kind"], "RebootRemediationTemplate");
        for crd in &crds {
            assert_eq!(crd["metadata"]["labels"]["cluster.x-k8s.io/v1beta2"], "v1alpha1");
            assert_eq!(crd["metadata"]["labels"][PROVIDER], Value::Null);
            assert_eq!(crd["spec"]["scope"], "Namespaced");
        }
        assert_eq!(remediation["metadata"]["labels"][CLUSTERCTL], Value::Null, "unless clusterctl adds it");
        assert_eq!(template["metadata"]["labels"][MOVE], "");
        let schema = &remediation["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let limit = &schema["properties"]["spec"]["properties"]["retryLimit"];
        assert_eq!(
            (&limit["minimum"], &limit["maximum"], &limit["default"]),
            (&json!(1.0), &json!(10.0), &json!(1))
        );
        assert_eq!(remediation["spec"]["versions"][0]["subresources"], json!({"status": {}}));
    }
}
