use super::*;

fn all() -> Vec<CustomResourceDefinition> {
    Provider::ALL.iter().flat_map(|provider| provider.definitions().expect("definitions")).collect()
}

#[test]
fn every_kind_has_a_definition() {
    let names: Vec<String> = all().into_iter().filter_map(|one| one.metadata.name).collect();
    assert_eq!(
        names,
        [
            "clusters.cluster.x-k8s.io",
            "machines.cluster.x-k8s.io",
            "machinesets.cluster.x-k8s.io",
            "machinedeployments.cluster.x-k8s.io",
            "machinehealthchecks.cluster.x-k8s.io",
            "machinedrainrules.cluster.x-k8s.io",
            "clusterresourcesets.addons.cluster.x-k8s.io",
            "clusterresourcesetbindings.addons.cluster.x-k8s.io",
            "machinepools.cluster.x-k8s.io",
            "kubeadmconfigs.bootstrap.cluster.x-k8s.io",
            "kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io",
        ]
    );
}

#[test]
fn all_kinds_but_machine_pools_are_read() {
    for provider in Provider::ALL {
        let mut names: Vec<String> = provider
            .definitions()
            .expect("definitions")
            .into_iter()
            .filter_map(|one| one.metadata.name)
            .collect();
        names.retain(|name| name != "machinepools.cluster.x-k8s.io");
        assert_eq!(provider.read_kinds(), names);
    }
}

#[test]
fn programs_find_the_kinds_by_labels() {
    for definition in all() {
        let labels = definition.metadata.labels.expect("labels");
        assert_eq!(labels["cluster.x-k8s.io/v1beta2"], "v1beta2");
        assert_eq!(labels["clusterctl.cluster.x-k8s.io"], "");
        let is_core = definition.spec.group != "bootstrap.cluster.x-k8s.io";
        let expected = if is_core { "cluster-api" } else { "bootstrap-kubeadm" };
        assert_eq!(labels["cluster.x-k8s.io/provider"], expected);
    }
}

#[test]
fn schemas_are_structural() {
    for definition in all() {
        let name = definition.metadata.name.clone().unwrap_or_default();
        let schema = definition.spec.versions.into_iter().next().and_then(|version| version.schema);
        let schema = json!(schema.expect("a schema").open_api_v3_schema);
        check(&name, &schema);
    }
}

fn check(path: &str, schema: &Value) {
    let is_either = schema["x-kubernetes-int-or-string"] == true;
    assert!(is_either || schema["type"].is_string(), "{path} has no type: {schema}");
    for keyword in ["oneOf", "allOf", "$ref", "nullable", "title", "const"] {
        assert!(schema.get(keyword).is_none(), "{path} has {keyword}");
    }
    assert!(is_either || schema.get("anyOf").is_none(), "{path} has a choice");
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        check(&format!("{path}.{name}"), field);
    }
    for nested in ["items", "additionalProperties"] {
        if let Some(nested) = schema.get(nested) {
            check(path, nested);
        }
    }
}
