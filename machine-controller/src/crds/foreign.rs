//! The CRDs of kinds that another program defined, in its own version.

use std::collections::BTreeMap;

use cloudprovider::machines::{Column, ForeignVersion, KindDefinition};
use k8s_openapi::{
    api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
        CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
        CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};

use super::{CATEGORY, CLUSTERCTL, DefinitionsError, PROVIDER, policy, structural::structural};

/// The label that names the contract. Its value is the version that keeps it.
const CONTRACT: &str = "cluster.x-k8s.io";

/// What the API server needs to know about the kinds of a [`ForeignVersion`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ForeignDefinitions {
    /// One for each kind.
    pub crds: Vec<CustomResourceDefinition>,
    /// The rules of the kinds, each with what puts it into force.
    pub policies: Vec<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding)>,
}

/// The definitions of the kinds of `version` in the API group `group`. `provider` is the name of the provider.
///
/// # Errors
/// If a schema says what a CRD cannot say.
pub fn foreign_definitions(
    provider: &str,
    group: &str,
    version: &ForeignVersion,
) -> Result<ForeignDefinitions, DefinitionsError> {
    let labels: BTreeMap<String, String> = [
        (format!("{CONTRACT}/{}", version.contract), version.version.to_owned()),
        (CLUSTERCTL.to_owned(), String::new()),
        (PROVIDER.to_owned(), format!("infrastructure-{provider}")),
    ]
    .into();
    let mut problems = Vec::new();
    let made = version.kinds.iter().map(|kind| {
        let plural = kind.kind.plural;
        let metadata = ObjectMeta {
            name: Some(format!("{plural}.{group}")),
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        };
        let spec = CustomResourceDefinitionSpec {
            group: group.to_owned(),
            names: names(kind),
            scope: if kind.is_namespaced { "Namespaced" } else { "Cluster" }.to_owned(),
            versions: vec![version_of(kind, version.version, &mut problems)],
            ..CustomResourceDefinitionSpec::default()
        };
        CustomResourceDefinition { metadata, spec, status: None }
    });
    let crds = made.collect();
    if !problems.is_empty() {
        return Err(DefinitionsError { provider: provider.to_owned(), problems });
    }
    let with_rules = version.kinds.iter().filter(|kind| !kind.rules.is_empty());
    let mut policies: Vec<_> = with_rules
        .map(|kind| {
            let plural = kind.kind.plural;
            let name = format!("{provider}-{plural}.{group}");
            policy::of_kind(name, group, version.version, plural, kind.rules, labels.clone())
        })
        .collect();
    let templates: Vec<String> = version
        .kinds
        .iter()
        .filter(|kind| kind.is_template)
        .map(|kind| kind.kind.plural.to_owned())
        .collect();
    if !templates.is_empty() {
        policies.push(policy::of_templates(provider, group, &templates, labels));
    }
    Ok(ForeignDefinitions { crds, policies })
}

fn names(kind: &KindDefinition) -> CustomResourceDefinitionNames {
    let name = kind.kind.kind;
    let short_names: Vec<String> = kind.kind.short_names.iter().map(|&name| name.to_owned()).collect();
    CustomResourceDefinitionNames {
        categories: Some(vec![CATEGORY.to_owned()]),
        kind: name.to_owned(),
        list_kind: Some(format!("{name}List")),
        plural: kind.kind.plural.to_owned(),
        singular: Some(name.to_ascii_lowercase()),
        short_names: Some(short_names).filter(|names| !names.is_empty()),
    }
}

fn version_of(
    kind: &KindDefinition,
    version: &str,
    problems: &mut Vec<String>,
) -> CustomResourceDefinitionVersion {
    let name = kind.kind.kind;
    let mut schema = json!({
        "description": kind.about,
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": Value::Object(structural(&format!("{name} spec"), &kind.spec, problems)),
        },
    });
    if let Some(status) = &kind.status {
        let status = structural(&format!("{name} status"), status, problems);
        schema["properties"]["status"] = Value::Object(status);
    }
    let schema: JSONSchemaProps = serde_json::from_value(schema).unwrap_or_else(|error| {
        problems.push(format!("{name}: {error}"));
        JSONSchemaProps::default()
    });
    let status = kind.status.is_some().then(|| CustomResourceSubresourceStatus(json!({})));
    let columns: Vec<_> = kind.columns.iter().map(column).collect();
    CustomResourceDefinitionVersion {
        name: version.to_owned(),
        served: true,
        storage: true,
        additional_printer_columns: Some(columns).filter(|columns| !columns.is_empty()),
        schema: Some(CustomResourceValidation { open_api_v3_schema: Some(schema) }),
        subresources: kind.status.is_some().then_some(CustomResourceSubresources { status, scale: None }),
        ..CustomResourceDefinitionVersion::default()
    }
}

/// A column as the API server has it.
pub(super) fn column(column: &Column) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: column.name.to_owned(),
        description: Some(column.about.to_owned()),
        json_path: column.path.to_owned(),
        type_: if column.is_age { "date" } else { "string" }.to_owned(),
        priority: column.is_wide.then_some(1),
        format: None,
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::machines::{AdmissionRule, Kind};

    use super::*;

    fn version(spec: Value) -> ForeignVersion {
        let things = KindDefinition::new(Kind::new("Thing", "things"), "A thing.", spec)
            .cluster_scoped()
            .with_status(json!({"type": "object", "properties": {"ready": {"type": "boolean"}}}))
            .with_columns([Column::new("Size", ".spec.size", "How big.").wide(), Column::age()]);
        ForeignVersion::new("v1beta1", "v1beta1", vec![things])
    }

    #[test]
    fn a_kind_is_as_its_program_defined_it() {
        let spec = json!({"type": "object", "properties": {"size": {"type": "integer", "format": "int32"}}});
        let made = foreign_definitions("vsphere", "example.org", &version(spec)).expect("a good schema");
        let crd = serde_json::to_value(&made.crds[0]).expect("JSON");
        assert_eq!(crd["metadata"]["name"], "things.example.org");
        assert_eq!(crd["metadata"]["labels"]["cluster.x-k8s.io/v1beta1"], "v1beta1");
        assert_eq!(crd["metadata"]["labels"]["cluster.x-k8s.io/provider"], "infrastructure-vsphere");
        assert_eq!(crd["spec"]["scope"], "Cluster");
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["subresources"], json!({"status": {}}));
        assert_eq!(
            version["additionalPrinterColumns"],
            json!([
                {"name": "Size", "description": "How big.", "jsonPath": ".spec.size", "type": "string", "priority": 1},
                {"name": "Age", "description": "When it was made.", "jsonPath": ".metadata.creationTimestamp", "type": "date"},
            ])
        );
        let schema = &version["schema"]["openAPIV3Schema"];
        assert_eq!(schema.get("required"), None, "nothing is added");
        assert_eq!(schema["properties"]["spec"]["properties"]["size"]["format"], "int32");
    }

    #[test]
    fn rules_are_checked_when_they_say_so() {
        const RULES: [AdmissionRule; 3] = [
            AdmissionRule::new("a", "always"),
            AdmissionRule::on_create("b", "new ones"),
            AdmissionRule::on_update("c", "changes"),
        ];
        let mut version = version(json!({"type": "object"}));
        let things = version.kinds.remove(0).with_rules(&RULES).template();
        version.kinds.push(things);
        let made = foreign_definitions("vsphere", "example.org", &version).expect("good schemas");
        let names: Vec<_> = made.policies.iter().map(|(policy, _)| policy.metadata.name.clone()).collect();
        let name = |name: &str| Some(format!("{name}.example.org"));
        assert_eq!(names, [name("vsphere-things"), name("vsphere-templates")]);
        let (policy, binding) = &made.policies[0];
        assert_eq!(Some(&binding.spec.policy_name), policy.metadata.name.as_ref());
        let validations = policy.spec.as_ref().and_then(|spec| spec.validations.clone()).unwrap_or_default();
        let said: Vec<&str> = validations.iter().map(|one| one.expression.as_str()).collect();
        assert_eq!(said, ["a", "oldObject != null || (b)", "oldObject == null || (c)"]);
    }

    #[test]
    fn what_a_crd_cannot_say_is_an_error_with_its_path() {
        let spec = json!({"type": "object", "properties": {"size": {"not": {}}}});
        let error = foreign_definitions("vsphere", "example.org", &version(spec)).expect_err("not in a CRD");
        assert_eq!(error.problems, ["Thing spec.size: \"not\" cannot be in a CRD"]);
    }
}
