//! The policies: that templates stay as they are, and what a kind's own rules say.

use std::collections::BTreeMap;

use cloudprovider::machines::{AdmissionRule, AdmissionTime};
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
    in_force(name, updates, vec![validation], labels)
}

/// The policy about objects with this plural in `version`, and what puts it into force. Requests in other versions are none of its business:
/// they would have to be converted for it.
pub(super) fn of_kind(
    name: String,
    group: &str,
    version: &str,
    plural: &str,
    rules: &[AdmissionRule],
    labels: BTreeMap<String, String>,
) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let validations = rules.iter().map(|rule| Validation {
        expression: match rule.when {
            AdmissionTime::Creation => format!("oldObject != null || ({})", rule.expression),
            AdmissionTime::Update => format!("oldObject == null || ({})", rule.expression),
            _ => rule.expression.to_owned(),
        },
        message: Some(rule.message.to_owned()),
        reason: Some("Invalid".to_owned()),
        ..Validation::default()
    });
    let what = NamedRuleWithOperations {
        api_groups: Some(vec![group.to_owned()]),
        api_versions: Some(vec![version.to_owned()]),
        operations: Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]),
        resources: Some(vec![plural.to_owned()]),
        ..NamedRuleWithOperations::default()
    };
    let (mut policy, binding) = in_force(name, what, validations.collect(), labels);
    if let Some(matched) = policy.spec.as_mut().and_then(|spec| spec.match_constraints.as_mut()) {
        matched.match_policy = Some("Exact".to_owned());
    }
    (policy, binding)
}

/// The same policy under another name.
pub(super) fn renamed(
    (mut policy, mut binding): (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding),
    name: String,
) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    policy.metadata.name = Some(name.clone());
    binding.metadata.name = Some(name.clone());
    binding.spec.policy_name = name;
    (policy, binding)
}

fn in_force(
    name: String,
    what: NamedRuleWithOperations,
    validations: Vec<Validation>,
    labels: BTreeMap<String, String>,
) -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let metadata = ObjectMeta { name: Some(name.clone()), labels: Some(labels), ..ObjectMeta::default() };
    let spec = ValidatingAdmissionPolicySpec {
        failure_policy: Some("Fail".to_owned()),
        match_constraints: Some(MatchResources {
            resource_rules: Some(vec![what]),
            ..MatchResources::default()
        }),
        validations: Some(validations),
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
