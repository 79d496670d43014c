//! The custom resources of a management cluster: the fields that matter, as their definitions have them. What
//! is not defined here is not stored.

use serde_json::{Value, json};

/// The version of Cluster API. Rancher 2.9 serves the first, and the versions differ in how they refer to
/// other objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterApi {
    V1Beta1,
    V1Beta2,
}

impl ClusterApi {
    /// Group and version.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::V1Beta1 => "cluster.x-k8s.io/v1beta1",
            Self::V1Beta2 => "cluster.x-k8s.io/v1beta2",
        }
    }

    /// A reference to an object of Rancher with this kind and name.
    pub(crate) fn reference(self, (group, version): (&str, &str), kind: &str, name: &str) -> Value {
        match self {
            Self::V1Beta1 => json!({"apiVersion": format!("{group}/{version}"), "kind": kind, "name": name}),
            Self::V1Beta2 => json!({"apiGroup": group, "kind": kind, "name": name}),
        }
    }

    /// The reference of a Machine to its Node.
    pub(crate) fn node(self, name: &str) -> Value {
        match self {
            Self::V1Beta1 => json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": "a-uid"}),
            Self::V1Beta2 => json!({"name": name}),
        }
    }

    fn machine(self) -> Value {
        let reference = match self {
            Self::V1Beta1 => object(&[], &texts(&["apiVersion", "kind", "name", "namespace", "uid"])),
            Self::V1Beta2 => object(&["apiGroup", "kind", "name"], &texts(&["apiGroup", "kind", "name"])),
        };
        let node = match self {
            Self::V1Beta1 => reference.clone(),
            Self::V1Beta2 => object(&["name"], &texts(&["name"])),
        };
        let mut spec = texts(&["clusterName", "failureDomain", "providerID", "version"]);
        let mut bootstrap = texts(&["dataSecretName"]);
        bootstrap["configRef"] = reference.clone();
        spec["bootstrap"] = object(&[], &bootstrap);
        spec["infrastructureRef"] = reference;
        let mut status = texts(&["phase"]);
        if self == Self::V1Beta2 {
            status["failureDomain"] = json!({"type": "string"});
        }
        status["nodeRef"] = node;
        let address = object(&["address", "type"], &texts(&["address", "type"]));
        status["addresses"] = json!({"type": "array", "items": address});
        let required = ["bootstrap", "clusterName", "infrastructureRef"];
        let all = json!({"spec": object(&required, &spec), "status": object(&[], &status)});
        object(&["spec"], &all)
    }
}

/// A kind.
pub(crate) struct Kind {
    /// Group and version.
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    name: &'static str,
    schema: Value,
}

impl Kind {
    /// Its definition.
    pub(crate) fn definition(&self) -> Value {
        let (group, version) = self.group.split_once('/').expect("a group and a version");
        let (kind, plural) = (self.name, self.plural);
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "versions": [{
                    "name": version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": self.schema}, "subresources": {"status": {}},
                }],
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            },
        })
    }
}

/// The kinds of a management cluster.
pub(crate) fn kinds(cluster_api: ClusterApi) -> [Kind; 5] {
    let of = |spec: Value, status: Value| {
        object(&[], &json!({"spec": object(&[], &spec), "status": object(&[], &status)}))
    };
    let ready = json!({"ready": {"type": "boolean"}});
    let mut cluster_status = texts(&["clusterName"]);
    cluster_status["ready"] = ready["ready"].clone();
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut node_spec = texts(&["requestedHostname", "displayName"]);
    let mut node_status = texts(&["nodeName"]);
    for field in ["customConfig", "internalNodeSpec"] {
        node_spec[field] = anything.clone();
    }
    node_status["internalNodeStatus"] = anything.clone();
    node_spec["customConfig"]["nullable"] = json!(true);
    let rke = "rke.cattle.io/v1";
    let kind = |group, name, plural, schema| Kind { group, plural, name, schema };
    [
        kind(cluster_api.group(), "Machine", "machines", cluster_api.machine()),
        kind(rke, "RKEBootstrap", "rkebootstraps", of(texts(&["bootstrap", "clusterName"]), ready.clone())),
        kind(rke, "CustomMachine", "custommachines", of(texts(&["providerID"]), ready)),
        kind(
            "provisioning.cattle.io/v1",
            "Cluster",
            "clusters",
            of(json!({"rkeConfig": anything}), cluster_status),
        ),
        kind("management.cattle.io/v3", "Node", "nodes", of(node_spec, node_status)),
    ]
}

fn object(required: &[&str], properties: &Value) -> Value {
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Properties that are texts.
fn texts(names: &[&str]) -> Value {
    names
        .iter()
        .map(|name| ((*name).to_owned(), json!({"type": "string"})))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
