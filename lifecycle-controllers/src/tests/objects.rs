//! The objects that tests begin with: the Cluster, templates, the deployment.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use super::world::{BOOTSTRAP, CONTROL_PLANE, INFRASTRUCTURE, World};

/// PEM of a certificate that nobody reads.
const CERTIFICATE: &str =
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFRSUQKQkFVRwotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg==";

impl World {
    /// A Cluster `c` that is ready, with the control plane of another author.
    pub(super) async fn create_cluster(&self) {
        let now = "2026-01-01T00:00:00Z";
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c"},
            "spec": {
                "controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443},
                "controlPlaneRef": {"apiGroup": CONTROL_PLANE, "kind": "FakeControlPlane", "name": "cp"},
            },
        });
        // Another author's, without Machines here.
        let control_plane = json!({
            "apiVersion": format!("{CONTROL_PLANE}/v1beta2"), "kind": "FakeControlPlane", "metadata": {"name": "cp"},
            "spec": {"version": "v1.37.1"},
        });
        self.create(CONTROL_PLANE, "FakeControlPlane", control_plane).await;
        let status = json!({"status": {"externalManagedControlPlane": true, "version": "v1.37.1"}});
        self.patch_status(CONTROL_PLANE, "FakeControlPlane", "cp", status).await;
        self.create("cluster.x-k8s.io", "Cluster", cluster).await;
        let condition = json!({
            "type": "ControlPlaneInitialized", "status": "True", "reason": "Initialized", "message": "",
            "lastTransitionTime": now,
        });
        let status = json!({"status": {
            "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
            "conditions": [condition],
        }});
        self.patch_status("cluster.x-k8s.io", "Cluster", "c", status).await;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": CERTIFICATE}}],
            "users": [{"name": "c", "user": {"token": "secret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        });
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": {"name": "c-kubeconfig", "labels": {"cluster.x-k8s.io/cluster-name": "c"}},
            "stringData": {"value": kubeconfig.to_string()},
        });
        self.create("", "Secret", secret).await;
    }

    /// The CA of the Cluster, and a template of `KubeadmConfig`s.
    pub(super) async fn create_kubeadm_template(&self) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret", "metadata": {"name": "c-ca"},
            "stringData": {"tls.crt": certificate, "tls.key": key.serialize_pem()},
        });
        self.create("", "Secret", secret).await;
        let template = json!({
            "apiVersion": format!("{BOOTSTRAP}/v1beta2"), "kind": "KubeadmConfigTemplate", "metadata": {"name": "t"},
            "spec": {"template": {"spec": {"joinConfiguration": {"nodeRegistration": {"name": "n"}}}}},
        });
        self.create(BOOTSTRAP, "KubeadmConfigTemplate", template).await;
    }

    /// The templates that Machines are made of.
    pub(super) async fn create_templates(&self) {
        for (group, kind) in [(INFRASTRUCTURE, "FakeMachineTemplate"), (BOOTSTRAP, "FakeConfigTemplate")] {
            let template = json!({
                "apiVersion": format!("{group}/v1beta2"), "kind": kind, "metadata": {"name": "t"},
                // A tenant may try to create another kind by its template.
                "spec": {"template": {"apiVersion": "v1", "kind": "Secret", "spec": {"size": 1}}},
            });
            self.create(group, kind, template).await;
        }
    }

    /// A deployment `d` of so many Machines.
    pub(super) async fn create_deployment(&self, replicas: i32) {
        self.create_deployment_of("FakeConfigTemplate", replicas).await;
    }

    /// The same with bootstrap configs of this kind.
    pub(super) async fn create_deployment_of(&self, config: &str, replicas: i32) {
        let reference = |group: &str, kind: &str| json!({"apiGroup": group, "kind": kind, "name": "t"});
        let deployment = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": {"name": "d"},
            "spec": {
                "clusterName": "c", "replicas": replicas, "selector": {"matchLabels": {"pool": "d"}},
                "template": {
                    "metadata": {"labels": {"pool": "d", "node.cluster.x-k8s.io/pool": "d"}},
                    "spec": {
                        "clusterName": "c", "version": "v1.37.1",
                        "bootstrap": {"configRef": reference(BOOTSTRAP, config)},
                        "infrastructureRef": reference(INFRASTRUCTURE, "FakeMachineTemplate"),
                    },
                },
            },
        });
        self.create("cluster.x-k8s.io", "MachineDeployment", deployment).await;
    }

    /// A kind of the infrastructure's group without the label of the contract.
    pub(super) async fn create_foreign_kind(&self, kind: &str) {
        let mut definition = fake_definition(INFRASTRUCTURE, kind);
        definition.metadata.labels = None;
        let definitions: Api<CustomResourceDefinition> = Api::all(self.management.client());
        definitions.create(&PostParams::default(), &definition).await.expect("a definition");
    }

    /// Another pair of templates.
    pub(super) async fn create_templates_named(&self, name: &str) {
        for (group, kind) in [(INFRASTRUCTURE, "FakeMachineTemplate"), (BOOTSTRAP, "FakeConfigTemplate")] {
            let template = json!({
                "apiVersion": format!("{group}/v1beta2"), "kind": kind, "metadata": {"name": name},
                "spec": {"template": {"spec": {"size": 2}}},
            });
            self.create(group, kind, template).await;
        }
    }

    /// Changes the deployment `d`.
    pub(super) async fn patch_deployment(&self, spec: Value) {
        self.patch("cluster.x-k8s.io", "MachineDeployment", "d", json!({"spec": spec})).await;
    }
}

/// The definition of a kind whose objects have any fields.
pub(super) fn fake_definition(group: &str, kind: &str) -> CustomResourceDefinition {
    let plural = controller_kit::kinds::regular_plural(kind);
    let definition = json!({
        "metadata": {"name": format!("{plural}.{group}"), "labels": {"cluster.x-k8s.io/v1beta2": "v1beta2"}},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    serde_json::from_value(definition).expect("a definition")
}
