//! The CRDs of a provider's kinds, made from its types. Pure: nothing here talks to an API server.
//!
//! A provider says what is its own ([`Kinds`], [`Schemas`]). The fields of Cluster API's contract v1beta2, the labels by
//! which its programs find the kinds, and the columns of `kubectl get` are the same for all providers. They are added here.
//!
//! # What the API server checks by itself
//!
//! | Rule | By |
//! |---|---|
//! | types, limits and patterns of all fields, the provider's own rules | the schema |
//! | `spec.providerID` and `spec.controlPlaneEndpoint` cannot change once they are set | rules (CEL) in the schema |
//! | `spec.template.spec` of a template cannot change | a [`ValidatingAdmissionPolicy`] |
//!
//! The rule for templates has an exception: Cluster API's topology controller compares templates by updates that are dry
//! runs and carry the annotation `topology.cluster.x-k8s.io/dry-run`. Rules of a schema see neither, so this one is a policy.
//! It takes the place of the webhook that providers usually have for it.

mod columns;
mod fields;
mod foreign;
mod policy;
mod structural;
mod versions;

use std::collections::BTreeMap;

use cloudprovider::machines::{Kind, Kinds, Schemas};
use controller_kit::kinds::regular_plural;
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

pub(crate) use self::fields::conditions;
use self::structural::{Schema, structural};
pub use self::versions::DEFINITIONS_CHECK;
pub use self::{
    foreign::{ForeignDefinitions, foreign_definitions},
    versions::{CONVERSION_PATH, has_versions},
};

/// The category under which `kubectl get cluster-api` lists all kinds of Cluster API.
const CATEGORY: &str = "cluster-api";

/// With this label on the CRD, `clusterctl` moves and deletes the objects.
const CLUSTERCTL: &str = "clusterctl.cluster.x-k8s.io";

/// Names the provider to `clusterctl`.
const PROVIDER: &str = "cluster.x-k8s.io/provider";

/// The contracts that a kind keeps, as labels. The value is the version that keeps it.
///
/// A cluster does not keep v1beta1, in which `status.failureDomains` is a map: it is a list in v1beta2. A core manager of v1beta1
/// says so by name, in place of stumbling over the list.
const V1BETA2: &str = "cluster.x-k8s.io/v1beta2";
const V1BETA1: &str = "cluster.x-k8s.io/v1beta1";

/// Rules of this word compare with the object before the change. Those of a template's spec are left to the policy, which
/// lets the topology controller's dry runs through.
const BEFORE: &str = "oldSelf";

/// What the API server needs to know about the kinds of a provider.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Definitions {
    /// Of machines.
    pub machine: CustomResourceDefinition,
    /// Of templates of machines.
    pub machine_template: CustomResourceDefinition,
    /// Of clusters.
    pub cluster: CustomResourceDefinition,
    /// Of templates of clusters.
    pub cluster_template: CustomResourceDefinition,
    /// Keeps the specs of templates as they are.
    pub template_policy: ValidatingAdmissionPolicy,
    /// Puts the policy into force.
    pub template_policy_binding: ValidatingAdmissionPolicyBinding,
    /// Of the provider's auxiliary kinds.
    pub auxiliary: Vec<CustomResourceDefinition>,
    /// The rules of single kinds, each with what puts it into force.
    pub rules: Vec<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding)>,
}

/// The kinds or types of a provider cannot be CRDs. All problems are named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no CRDs can be made for the provider {provider}: {}", problems.join("; "))]
pub struct DefinitionsError {
    /// The provider.
    pub provider: String,
    /// What is wrong, each with the path of its field.
    pub problems: Vec<String>,
}

impl Definitions {
    /// Makes the definitions of machines and clusters of a provider, such as `libvirt`, in one version.
    ///
    /// # Errors
    /// If a type says what a CRD cannot say, has a field of the controller's, or if a name is not one that Cluster API finds.
    pub fn new(provider: &str, kinds: &Kinds, schemas: &Schemas) -> Result<Self, DefinitionsError> {
        let mut maker = Maker { provider, kinds, problems: Vec::new() };
        let definitions = maker.definitions(schemas);
        let problems = maker.problems;
        if !problems.is_empty() {
            return Err(DefinitionsError { provider: provider.to_owned(), problems });
        }
        Ok(definitions)
    }

    /// All CRDs.
    pub fn crds(&self) -> Vec<&CustomResourceDefinition> {
        let of_machines = [&self.machine, &self.machine_template, &self.cluster, &self.cluster_template];
        of_machines.into_iter().chain(&self.auxiliary).collect()
    }

    /// All policies, each with what puts it into force.
    pub fn policies(&self) -> Vec<(&ValidatingAdmissionPolicy, &ValidatingAdmissionPolicyBinding)> {
        let of_templates = (&self.template_policy, &self.template_policy_binding);
        let rules = self.rules.iter().map(|(policy, binding)| (policy, binding));
        std::iter::once(of_templates).chain(rules).collect()
    }
}

struct Maker<'a> {
    provider: &'a str,
    kinds: &'a Kinds,
    problems: Vec<String>,
}

/// What is particular to one kind.
struct Particulars<'a> {
    kind: String,
    short_names: &'a [&'a str],
    contracts: &'a [&'a str],
    about: String,
    columns: Vec<CustomResourceColumnDefinition>,
    spec: Value,
    is_spec_required: bool,
    status: Option<Value>,
}

impl Maker<'_> {
    fn definitions(&mut self, schemas: &Schemas) -> Definitions {
        let kinds = self.kinds;
        self.check_name(&kinds.machine);
        self.check_name(&kinds.cluster);
        let (machine, cluster) = (kinds.machine.kind, kinds.cluster.kind);
        let machine_spec = self.merged(machine, "spec", &schemas.machine_spec, fields::of_machine_spec());
        let machine_status =
            self.merged(machine, "status", &schemas.machine_status, fields::of_machine_status());
        let cluster_spec = self.merged(
            cluster,
            "spec",
            &schemas.cluster_spec,
            fields::of_cluster_spec(self.kinds.is_shared),
        );
        let cluster_status =
            self.merged(cluster, "status", &schemas.cluster_status, fields::of_cluster_status());

        // A template is for many machines, and each has its own ID.
        let mut spec_of_template = without_rules_about_changes(&machine_spec);
        if let Some(fields) = spec_of_template.get_mut("properties").and_then(Value::as_object_mut) {
            fields.remove(fields::PROVIDER_ID);
        }
        let machine_template = self.template(
            &kinds.machine,
            spec_of_template,
            Some(json!({"type": "object", "properties": fields::of_machine_template_status()})),
            columns::of_machine_templates(),
        );
        let cluster_template = self.template(
            &kinds.cluster,
            without_rules_about_changes(&cluster_spec),
            None,
            columns::of_cluster_templates(),
        );
        let machine = self.definition(Particulars {
            kind: machine.to_owned(),
            short_names: kinds.machine.short_names,
            contracts: &[V1BETA2, V1BETA1],
            about: "A machine that Cluster API asked for.".to_owned(),
            columns: columns::of_machines(),
            is_spec_required: is_spec_required(&machine_spec),
            spec: with_rule(machine_spec, fields::provider_id_is_set_once()),
            status: Some(machine_status.into()),
        });
        let cluster = self.definition(Particulars {
            kind: cluster.to_owned(),
            short_names: kinds.cluster.short_names,
            contracts: &[V1BETA2],
            about: "What the machines of a cluster share.".to_owned(),
            columns: columns::of_clusters(),
            is_spec_required: is_spec_required(&cluster_spec),
            spec: with_rule(cluster_spec, fields::endpoint_is_set_once()),
            status: Some(cluster_status.into()),
        });
        let templates = [&machine_template, &cluster_template].map(|crd| crd.spec.names.plural.clone());
        let (template_policy, template_policy_binding) =
            policy::of_templates(self.provider, kinds.group, &templates, self.labels(&[]));
        Definitions {
            machine,
            machine_template,
            cluster,
            cluster_template,
            template_policy,
            template_policy_binding,
            auxiliary: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Cluster API works out the name of a CRD from the kind.
    fn check_name(&mut self, kind: &Kind) {
        let Kind { kind, plural, .. } = kind;
        let is_camel_case = kind.starts_with(|c: char| c.is_ascii_uppercase())
            && kind.chars().all(|c| c.is_ascii_alphanumeric());
        if !is_camel_case {
            self.problems.push(format!("the kind {kind:?} is not in CamelCase"));
        }
        let regular = regular_plural(kind);
        if *plural != regular {
            self.problems
                .push(format!("{kind}: the plural is {plural:?}, Cluster API looks for {regular:?}"));
        }
    }

    /// The schema of a provider's type, with the fields of the controller beside its own.
    fn merged(&mut self, kind: &str, part: &str, schema: &Value, of_controller: Schema) -> Schema {
        let path = format!("{kind} {part}");
        let mut made = structural(&path, schema, &mut self.problems);
        if made.get("type").is_none_or(|one| one != "object") || made.contains_key("additionalProperties") {
            self.problems.push(format!("{path}: a struct is needed here"));
        }
        let own = made.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        let taken = own.keys().filter(|name| of_controller.contains_key(*name));
        self.problems.extend(taken.map(|name| format!("{path}.{name}: this field is the controller's")));
        let mut all = of_controller;
        all.extend(own);
        made.insert("properties".to_owned(), all.into());
        made
    }

    fn template(
        &mut self,
        of: &Kind,
        spec: Schema,
        status: Option<Value>,
        columns: Vec<CustomResourceColumnDefinition>,
    ) -> CustomResourceDefinition {
        let template = json!({
            "description": "What is made.",
            "type": "object",
            "required": ["spec"],
            "properties": {"metadata": fields::template_metadata(), "spec": spec},
        });
        self.definition(Particulars {
            kind: format!("{}Template", of.kind),
            short_names: &[],
            contracts: &[V1BETA2, V1BETA1],
            about: format!("A template from which Cluster API makes objects of the kind {}.", of.kind),
            columns,
            spec: json!({"type": "object", "required": ["template"], "properties": {"template": template}}),
            is_spec_required: true,
            status,
        })
    }

    fn labels(&self, contracts: &[&str]) -> BTreeMap<String, String> {
        let contracts =
            contracts.iter().map(|contract| ((*contract).to_owned(), self.kinds.version.to_owned()));
        let provider = (PROVIDER.to_owned(), format!("infrastructure-{}", self.provider));
        contracts.chain([(CLUSTERCTL.to_owned(), String::new()), provider]).collect()
    }

    fn definition(&mut self, particulars: Particulars<'_>) -> CustomResourceDefinition {
        let Particulars { kind, short_names, contracts, about, columns, spec, is_spec_required, status } =
            particulars;
        let mut spec = spec;
        set_description(&mut spec, "What is wanted.");
        if !is_spec_required {
            // So that rules about the fields of a spec are also asked where somebody removes the whole.
            spec["default"] = json!({});
        }
        let mut schema = json!({
            "description": about,
            "type": "object",
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "spec": spec,
            },
        });
        if is_spec_required {
            schema["required"] = json!(["spec"]);
        }
        let has_status = status.is_some();
        if let Some(mut status) = status {
            set_description(&mut status, "What is there.");
            schema["properties"]["status"] = status;
        }
        let schema: JSONSchemaProps = serde_json::from_value(schema).unwrap_or_else(|error| {
            self.problems.push(format!("{kind}: {error}"));
            JSONSchemaProps::default()
        });
        let status = has_status.then(|| CustomResourceSubresourceStatus(json!({})));
        let version = CustomResourceDefinitionVersion {
            name: self.kinds.version.to_owned(),
            served: true,
            storage: true,
            additional_printer_columns: Some(columns),
            schema: Some(CustomResourceValidation { open_api_v3_schema: Some(schema) }),
            subresources: has_status.then_some(CustomResourceSubresources { status, scale: None }),
            ..CustomResourceDefinitionVersion::default()
        };
        let plural = regular_plural(&kind);
        let short_names: Vec<String> = short_names.iter().map(|&name| name.to_owned()).collect();
        let names = CustomResourceDefinitionNames {
            categories: Some(vec![CATEGORY.to_owned()]),
            list_kind: Some(format!("{kind}List")),
            singular: Some(kind.to_ascii_lowercase()),
            short_names: Some(short_names).filter(|names| !names.is_empty()),
            plural: plural.clone(),
            kind,
        };
        let metadata = ObjectMeta {
            name: Some(format!("{plural}.{}", self.kinds.group)),
            labels: Some(self.labels(contracts)),
            ..ObjectMeta::default()
        };
        let spec = CustomResourceDefinitionSpec {
            group: self.kinds.group.to_owned(),
            names,
            scope: "Namespaced".to_owned(),
            versions: vec![version],
            ..CustomResourceDefinitionSpec::default()
        };
        CustomResourceDefinition { metadata, spec, status: None }
    }
}

/// Whether an object needs a spec: if an empty one would be refused.
fn is_spec_required(spec: &Schema) -> bool {
    // A rule about the old spec is not asked when an object is made.
    let is_about_new = |rule: &Value| !rule["rule"].as_str().is_some_and(|rule| rule.contains(BEFORE));
    let mut rules = spec.get(RULES).and_then(Value::as_array).into_iter().flatten();
    ["required", "minProperties", "oneOf", "anyOf"].iter().any(|keyword| spec.contains_key(*keyword))
        || rules.any(is_about_new)
}

fn set_description(schema: &mut Value, description: &str) {
    if let Some(schema) = schema.as_object_mut() {
        schema.entry("description").or_insert_with(|| description.into());
    }
}

const RULES: &str = "x-kubernetes-validations";

fn with_rule(mut schema: Schema, rule: Value) -> Value {
    match schema.get_mut(RULES).and_then(Value::as_array_mut) {
        Some(rules) => rules.push(rule),
        None => {
            schema.insert(RULES.to_owned(), json!([rule]));
        }
    }
    schema.into()
}

/// The schema without the rules that compare with the object before the change.
fn without_rules_about_changes(schema: &Schema) -> Schema {
    let mut kept = Schema::new();
    for (keyword, value) in schema {
        let value = match value {
            Value::Array(rules) if keyword == RULES => {
                let is_kept = |rule: &&Value| rule["rule"].as_str().is_none_or(|rule| !rule.contains(BEFORE));
                let rules: Vec<Value> = rules.iter().filter(is_kept).cloned().collect();
                if rules.is_empty() {
                    continue;
                }
                rules.into()
            }
            Value::Object(inner) => without_rules_about_changes(inner).into(),
            other => other.clone(),
        };
        kept.insert(keyword.clone(), value);
    }
    kept
}

#[cfg(test)]
mod tests;
