//! A cluster of Cluster API whose machines and API server are in the memory of another author's provider.

use std::time::Instant;

use anyhow::Result;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use test_env::authority_of_rsa;

use super::{
    Cluster, POLL, STUCK,
    machines::{NAMESPACE, POLL_ALL},
    managed::object,
};

const CORE: &str = "cluster.x-k8s.io/v1beta2";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io/v1beta2";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1beta2";
const CLUSTER: &str = "prod";
const DEPLOYMENT: &str = "workers";
const VERSION: &str = "v1.36.3";
const OF_DEPLOYMENT: &str = "cluster.x-k8s.io/deployment-name=workers";

fn reference(version: &str, kind: &str, name: &str) -> Value {
    let group = version.split('/').next();
    json!({"apiGroup": group, "kind": kind, "name": name})
}

/// A machine that is there at once.
fn in_memory() -> Value {
    json!({"backend": {"inMemory": {}}})
}

impl Cluster {
    /// Posts a Cluster with the one machine of its control plane, and the templates of workers. Waits until the control plane is
    /// there.
    pub(crate) async fn post_in_memory(&self) -> Result<()> {
        // The provider reads no other keys than those of RSA.
        for name in ["prod-ca", "prod-etcd"] {
            let [certificate, key] = authority_of_rsa()?;
            let data = json!({"tls.crt": certificate, "tls.key": key});
            let secret = json!({"type": "cluster.x-k8s.io/secret", "stringData": data});
            self.post_object(object("v1", "Secret", name, secret)).await?;
        }
        let labels = json!({"cluster.x-k8s.io/cluster-name": CLUSTER});
        // The provider writes into the annotations, and panics where there are none.
        let metadata = json!({"annotations": {"example.org/of": "a measurement"}});
        let infrastructure = json!({"metadata": metadata, "spec": in_memory()});
        self.post_object(object(INFRASTRUCTURE, "DevCluster", CLUSTER, infrastructure)).await?;
        let spec = json!({"infrastructureRef": reference(INFRASTRUCTURE, "DevCluster", CLUSTER)});
        self.post_object(object(CORE, "Cluster", CLUSTER, json!({"spec": spec}))).await?;

        let name = "control-plane";
        let machine = json!({"metadata": {"labels": labels}, "spec": in_memory()});
        self.post_object(object(INFRASTRUCTURE, "DevMachine", name, machine)).await?;
        let registration =
            json!({"nodeRegistration": {"criSocket": "unix:///run/containerd/containerd.sock"}});
        let config = json!({"clusterConfiguration": {"imageRepository": "example.org"}, "initConfiguration": registration});
        let config = json!({"metadata": {"labels": labels}, "spec": config});
        self.post_object(object(BOOTSTRAP, "KubeadmConfig", name, config)).await?;
        let mut labels = labels;
        labels["cluster.x-k8s.io/control-plane"] = "".into();
        let spec = json!({
            "clusterName": CLUSTER, "version": VERSION,
            "bootstrap": {"configRef": reference(BOOTSTRAP, "KubeadmConfig", name)},
            "infrastructureRef": reference(INFRASTRUCTURE, "DevMachine", name),
        });
        let machine = json!({"metadata": {"labels": labels}, "spec": spec});
        self.post_object(object(CORE, "Machine", name, machine)).await?;

        let template = json!({"spec": {"template": {"spec": in_memory()}}});
        self.post_object(object(INFRASTRUCTURE, "DevMachineTemplate", DEPLOYMENT, template)).await?;
        let join = json!({"joinConfiguration": registration});
        let template = json!({"spec": {"template": {"spec": join}}});
        self.post_object(object(BOOTSTRAP, "KubeadmConfigTemplate", DEPLOYMENT, template)).await?;
        let path = format!("/apis/{CORE}/namespaces/{NAMESPACE}/clusters/{CLUSTER}");
        let is_there = r#""status":"True","type":"ControlPlaneInitialized""#;
        self.until_it_says(&path, is_there, POLL, STUCK).await.map(drop)
    }

    /// Posts the deployment, and waits until as many machines are available. Returns when that was seen.
    pub(crate) async fn deploy_in_memory(&self, machines: usize) -> Result<Instant> {
        let spec = json!({
            "clusterName": CLUSTER, "replicas": machines, "selector": {"matchLabels": {}},
            "template": {"spec": {
                "clusterName": CLUSTER, "version": VERSION,
                "bootstrap": {"configRef": reference(BOOTSTRAP, "KubeadmConfigTemplate", DEPLOYMENT)},
                "infrastructureRef": reference(INFRASTRUCTURE, "DevMachineTemplate", DEPLOYMENT),
                // The API servers in memory answer that a Node is gone in a form that is none of Kubernetes, and the
                // provider deletes Nodes itself.
                "deletion": {"nodeDeletionTimeoutSeconds": 1},
            }},
        });
        self.post_object(object(CORE, "MachineDeployment", DEPLOYMENT, json!({"spec": spec}))).await?;
        let path = format!("/apis/{CORE}/namespaces/{NAMESPACE}/machinedeployments/{DEPLOYMENT}");
        let text = format!("\"availableReplicas\":{machines},");
        // Each machine may take as long as it takes a manager to be stuck.
        let limit = STUCK * u32::try_from(1 + machines / 20)?;
        self.until_it_says(&path, &text, POLL_ALL, limit).await
    }

    /// Deletes the deployment, and waits until its machines are gone. Returns when that was seen.
    pub(crate) async fn delete_deployment(&self) -> Result<Instant> {
        self.core_objects("MachineDeployment").delete(DEPLOYMENT, &DeleteParams::default()).await?;
        self.until_no_machines(&ListParams::default().labels(OF_DEPLOYMENT)).await
    }
}
