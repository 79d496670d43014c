use cloudprovider::{
    Error, ErrorKind, Machines, async_trait,
    machines::{
        Capacity, ClusterReport, ClusterRequest, Deletion, DynMachines, MachineDeletionRequest,
        MachineReport, MachineRequest, ObjectLocks, Record,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "self.cpus == oldSelf.cpus"}, {"rule": "self.cpus < 99"}]))]
#[expect(dead_code, reason = "only the schema is used")]
struct MachineSpec {
    /// How many processors it has.
    cpus: u32,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MachineStatus {
    task_ref: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct ClusterSpec {}

#[derive(Debug, Default)]
struct Example {
    object_locks: ObjectLocks,
}

fn unused<T>() -> cloudprovider::Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "not asked for here"))
}

#[async_trait]
impl Machines for Example {
    type MachineSpec = MachineSpec;
    type MachineStatus = MachineStatus;
    type ClusterSpec = ClusterSpec;
    type ClusterStatus = ();
    const KINDS: Kinds = Kinds::new(
        "v1alpha1",
        Kind::new("ExampleMachine", "examplemachines").with_short_names(&["exm"]),
        Kind::new("ExampleCluster", "exampleclusters"),
    );

    fn object_locks(&self) -> &ObjectLocks {
        &self.object_locks
    }

    async fn ensure_machine(
        &self,
        _: &MachineRequest<MachineSpec, ClusterSpec>,
        _: &mut Record<MachineStatus>,
    ) -> cloudprovider::Result<MachineReport> {
        unused()
    }
    async fn delete_machine(
        &self,
        _: &MachineDeletionRequest<MachineSpec, ClusterSpec>,
        _: &mut Record<MachineStatus>,
    ) -> cloudprovider::Result<Deletion> {
        unused()
    }
    async fn ensure_cluster(
        &self,
        _: &ClusterRequest<ClusterSpec>,
        _: &mut Record<()>,
    ) -> cloudprovider::Result<ClusterReport> {
        unused()
    }
    async fn delete_cluster(
        &self,
        _: &ClusterRequest<ClusterSpec>,
        _: &mut Record<()>,
    ) -> cloudprovider::Result<Deletion> {
        unused()
    }
    async fn capacity(&self, _: &MachineSpec) -> cloudprovider::Result<Capacity> {
        unused()
    }
}

fn definitions() -> Definitions {
    Definitions::new("example", &Example::KINDS, &Example::default().schemas()).expect("good types")
}

/// The error of the example with something wrong.
fn problems(kinds: Kinds, change: impl FnOnce(&mut Schemas)) -> Vec<String> {
    let mut schemas = Example::default().schemas();
    change(&mut schemas);
    Definitions::new("example", &kinds, &schemas).expect_err("something is wrong").problems
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let schema = crd.spec.versions[0].schema.as_ref().expect("a schema");
    serde_json::to_value(schema).expect("JSON")["openAPIV3Schema"]["properties"].clone()
}

#[test]
fn cluster_api_finds_every_kind() {
    let definitions = definitions();
    let names: Vec<_> = definitions.crds().into_iter().filter_map(|crd| crd.metadata.name.clone()).collect();
    let expected =
        ["examplemachines", "examplemachinetemplates", "exampleclusters", "exampleclustertemplates"];
    assert_eq!(names, expected.map(|plural| format!("{plural}.infrastructure.cluster.x-k8s.io")));
    for crd in definitions.crds() {
        let labels = crd.metadata.labels.as_ref().expect("labels");
        assert_eq!(labels["cluster.x-k8s.io/v1beta2"], "v1alpha1");
        assert_eq!(labels["cluster.x-k8s.io/provider"], "infrastructure-example");
        assert_eq!(labels["clusterctl.cluster.x-k8s.io"], "");
        let is_cluster = crd.spec.names.kind == "ExampleCluster";
        assert_eq!(
            labels.contains_key("cluster.x-k8s.io/v1beta1"),
            !is_cluster,
            "its failure domains are a list"
        );
        assert_eq!(crd.spec.scope, "Namespaced");
        let names = &crd.spec.names;
        assert_eq!(names.list_kind, Some(format!("{}List", names.kind)));
        assert_eq!(names.singular, Some(names.kind.to_ascii_lowercase()));
        assert_eq!(names.categories, Some(vec!["cluster-api".to_owned()]));
        let is_machine = names.kind == "ExampleMachine";
        assert_eq!(names.short_names, is_machine.then(|| vec!["exm".to_owned()]));
    }
}

#[test]
fn the_fields_of_the_contract_stand_beside_the_providers() {
    let machine = schema(&definitions().machine);
    let spec = machine["spec"]["properties"].as_object().expect("fields");
    assert_eq!(spec.keys().collect::<Vec<_>>(), ["cpus", "providerID"]);
    assert_eq!(spec["cpus"]["description"], "How many processors it has.");
    let status = machine["status"]["properties"].as_object().expect("fields");
    let expected = ["addresses", "conditions", "failureDomain", "initialization", "ready", "taskRef"];
    assert_eq!(status.keys().collect::<Vec<_>>(), expected);
    let cluster = schema(&definitions().cluster);
    let spec = cluster["spec"]["properties"].as_object().expect("fields");
    assert_eq!(spec.keys().collect::<Vec<_>>(), ["controlPlaneEndpoint"]);
    let status = cluster["status"]["properties"].as_object().expect("fields");
    assert_eq!(
        status.keys().collect::<Vec<_>>(),
        ["conditions", "failureDomains", "initialization", "ready"]
    );
    let template = schema(&definitions().machine_template);
    let status = template["status"]["properties"].as_object().expect("fields");
    assert_eq!(status.keys().collect::<Vec<_>>(), ["capacity", "nodeInfo"]);
}

#[test]
fn a_template_has_no_provider_id_and_no_rules_about_changes() {
    let template = schema(&definitions().machine_template);
    let spec = &template["spec"]["properties"]["template"]["properties"]["spec"];
    assert_eq!(spec["x-kubernetes-validations"], json!([{"rule": "self.cpus < 99"}]));
    assert_eq!(spec["properties"].as_object().expect("fields").keys().collect::<Vec<_>>(), ["cpus"]);
    let machine = schema(&definitions().machine);
    let rules = machine["spec"]["x-kubernetes-validations"].as_array().expect("rules");
    assert_eq!(rules.len(), 3, "{rules:?}");
}

#[test]
fn a_spec_may_be_left_out_if_it_may_be_empty() {
    let definitions = definitions();
    let required = |crd: &CustomResourceDefinition| {
        let schema = crd.spec.versions[0].schema.clone().and_then(|schema| schema.open_api_v3_schema);
        schema.and_then(|schema| schema.required)
    };
    assert_eq!(required(&definitions.machine), Some(vec!["spec".to_owned()]));
    assert_eq!(required(&definitions.cluster), None);
    assert_eq!(schema(&definitions.cluster)["spec"]["default"], json!({}));
    assert!(schema(&definitions.machine)["spec"].get("default").is_none());
}

#[test]
fn only_what_has_a_status_has_the_subresource() {
    let definitions = definitions();
    let has: Vec<_> =
        definitions.crds().into_iter().map(|crd| crd.spec.versions[0].subresources.is_some()).collect();
    assert_eq!(has, [true, true, true, false]);
}

#[test]
fn the_policy_is_about_both_templates() {
    let definitions = definitions();
    let spec = definitions.template_policy.spec.expect("a spec");
    let rules = spec.match_constraints.and_then(|matches| matches.resource_rules).expect("rules");
    let plurals = ["examplemachinetemplates", "exampleclustertemplates"].map(str::to_owned);
    assert_eq!(rules[0].resources, Some(plurals.to_vec()));
    let name = definitions.template_policy.metadata.name.expect("a name");
    assert_eq!(name, "example-templates.infrastructure.cluster.x-k8s.io");
    assert_eq!(definitions.template_policy_binding.spec.policy_name, name);
}

#[test]
fn all_problems_are_named() {
    let good = Example::KINDS;
    let wrong_names = Kinds::new("v1", Kind::new("exampleMachine", "examples"), good.cluster);
    for (found, expected) in [
        (
            problems(wrong_names, |_| {}),
            vec![
                "the kind \"exampleMachine\" is not in CamelCase",
                "exampleMachine: the plural is \"examples\", Cluster API looks for \"examplemachines\"",
            ],
        ),
        (
            problems(good, |schemas| {
                schemas.machine_spec["properties"]["providerID"] = json!({"type": "string"});
            }),
            vec!["ExampleMachine spec.providerID: this field is the controller's"],
        ),
        (
            problems(good, |schemas| {
                schemas.machine_status["properties"]["ready"] = json!({"type": "string"});
            }),
            vec!["ExampleMachine status.ready: this field is the controller's"],
        ),
        (
            problems(good, |schemas| {
                schemas.cluster_spec = json!({"type": "string"});
                schemas.cluster_status = json!({"type": "object", "properties": {"x": {"$ref": "#/y"}}});
            }),
            vec![
                "ExampleCluster spec: a struct is needed here",
                "ExampleCluster status.x: a type that contains itself cannot be in a CRD",
            ],
        ),
    ] {
        assert_eq!(found, expected);
    }
    let error = DefinitionsError { provider: "x".into(), problems: vec!["a".into(), "b".into()] };
    assert_eq!(error.to_string(), "no CRDs can be made for the provider x: a; b");
}
