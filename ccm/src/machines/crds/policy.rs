//! The policy that keeps templates as they are.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::admissionregistration::v1::{
        MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
        ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

/// The spec is as it was, or it is the topology controller that only asks what would become of it.
const RULE: &str = "object.spec.template.spec == oldObject.spec.template.spec \
                    || (has(request.dryRun) && request.dryRun && has(object.metadata.annotations) \
                    && 'topology.cluster.x-k8s.io/dry-run' in object.metadata.annotations)";

const MESSAGE: &str =
    "spec.template.spec of a template cannot change: make a new template, and change the reference to it";

/// The policy about templates with these plurals, and what puts it into force.
pub(super) fn of_templates(
    provider: &str,
    group: &str,
    plurals: &[String],
    labels: BTreeMap<String, String>,
) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let name = format!("{provider}-templates.{group}");
    let metadata = ObjectMeta { name: Some(name.clone()), labels: Some(labels), ..ObjectMeta::default() };
    let updates = NamedRuleWithOperations {
        api_groups: Some(vec![group.to_owned()]),
        api_versions: Some(vec!["*".to_owned()]),
        operations: Some(vec!["UPDATE".to_owned()]),
        resources: Some(plurals.to_vec()),
        ..NamedRuleWithOperations::default()
    };
    let validation = Validation {
        expression: RULE.to_owned(),
        message: Some(MESSAGE.to_owned()),
        reason: Some("Invalid".to_owned()),
        ..Validation::default()
    };
    let spec = ValidatingAdmissionPolicySpec {
        failure_policy: Some("Fail".to_owned()),
        match_constraints: Some(MatchResources {
            resource_rules: Some(vec![updates]),
            ..MatchResources::default()
        }),
        validations: Some(vec![validation]),
        ..ValidatingAdmissionPolicySpec::default()
    };
    let policy = ValidatingAdmissionPolicy { metadata: metadata.clone(), spec: Some(spec), status: None };
    let binding = ValidatingAdmissionPolicyBindingSpec {
        policy_name: name,
        validation_actions: vec!["Deny".to_owned()],
        ..ValidatingAdmissionPolicyBindingSpec::default()
    };
    (policy, ValidatingAdmissionPolicyBinding { metadata, spec: binding })
}
