//! A workload cluster: what users apply, and what its control plane has.

use anyhow::Context;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use test_env::ControlPlane;

use super::objects::{Objects, reference};

/// A version that the managers accept for a machine.
pub(crate) const VERSION: &str = "v1.36.3";

/// A command in the bootstrap data. Only a machine that runs it could print what it says.
pub(crate) const GREETING: &str = "echo \"GUEST says $(hostname) $((6 * 7))\"";

/// What the machine with this name says when it runs its bootstrap data.
pub(crate) fn greeting(name: &str) -> String {
    format!("GUEST says {name} 42")
}

impl Objects {
    /// Applies the Cluster `name`, whose control plane is `control_plane`.
    /// `infrastructure` has the fields of the object of its infrastructure.
    pub(crate) async fn apply_cluster(
        &self,
        name: &str,
        control_plane: &ControlPlane,
        infrastructure: Value,
    ) -> anyhow::Result<()> {
        self.apply_secrets(name, control_plane).await?;
        let endpoint = json!({"host": "127.0.0.1", "port": control_plane.port()});
        self.apply("HostedControlPlane", name, json!({"spec": {"version": VERSION}})).await?;
        self.control_plane_is_there(name, VERSION).await?;
        let kind = self.kind("Cluster");
        self.apply(&kind, name, infrastructure).await?;
        let spec = json!({
            "controlPlaneEndpoint": endpoint,
            "controlPlaneRef": reference("HostedControlPlane", name),
            "infrastructureRef": reference(&kind, name),
        });
        self.apply("Cluster", name, json!({"spec": spec})).await.map(drop)
    }

    /// Says so, as whoever hosts the control plane does.
    pub(crate) async fn control_plane_is_there(&self, name: &str, version: &str) -> anyhow::Result<()> {
        let status = json!({
            "initialization": {"controlPlaneInitialized": true},
            "externalManagedControlPlane": true,
            "version": version,
        });
        self.merge_status("HostedControlPlane", name, status).await
    }

    /// What whoever made the control plane leaves for the managers: its authority, and a kubeconfig.
    pub(crate) async fn apply_secrets(
        &self,
        cluster: &str,
        control_plane: &ControlPlane,
    ) -> anyhow::Result<()> {
        let authority = std::fs::read_to_string(control_plane.ca_pem())?;
        let token = self.token.as_deref().unwrap_or(control_plane.admin_token());
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster,
            "clusters": [{"name": cluster, "cluster": {
                "server": control_plane.url(),
                "certificate-authority-data": BASE64_STANDARD.encode(&authority),
            }}],
            "users": [{"name": cluster, "user": {"token": token}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
        });
        for (what, data) in [
            // Workers do not need the key, and it must not be empty.
            ("ca", json!({"tls.crt": authority, "tls.key": "not here"})),
            ("kubeconfig", json!({"value": kubeconfig.to_string()})),
        ] {
            let secret = json!({
                "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": cluster}},
                "type": "cluster.x-k8s.io/secret",
                "stringData": data,
            });
            self.apply("Secret", &format!("{cluster}-{what}"), secret).await?;
        }
        Ok(())
    }

    /// What a Machine is given for its first boot.
    pub(crate) async fn bootstrap_data(&self, machine: &Value) -> anyhow::Result<String> {
        let secret = machine["spec"]["bootstrap"]["dataSecretName"].as_str().context("bootstrap data")?;
        let secret = self.get("Secret", secret).await?.context("no Secret")?;
        let data = BASE64_STANDARD.decode(secret["data"]["value"].as_str().context("a value")?)?;
        String::from_utf8(data).context("the data are no text")
    }

    /// Applies a template of machines with this spec.
    pub(crate) async fn apply_template(&self, name: &str, spec: &Value) -> anyhow::Result<()> {
        let template = json!({"spec": {"template": {"spec": spec}}});
        self.apply(&self.kind("MachineTemplate"), name, template).await.map(drop)
    }

    /// Applies a deployment of machines that join by kubeadm, and its bootstrap template.
    pub(crate) async fn apply_workers(
        &self,
        cluster: &str,
        name: &str,
        replicas: usize,
        template: &str,
    ) -> anyhow::Result<()> {
        self.apply_workers_in(None, cluster, name, replicas, template).await
    }

    /// The same in a failure domain.
    pub(crate) async fn apply_workers_in(
        &self,
        failure_domain: Option<&str>,
        cluster: &str,
        name: &str,
        replicas: usize,
        template: &str,
    ) -> anyhow::Result<()> {
        let join = json!({"nodeRegistration": {
            "name": "{{ ds.meta_data.local_hostname }}",
            "kubeletExtraArgs": [{"name": "cloud-provider", "value": "external"}],
        }});
        let spec = json!({"preKubeadmCommands": [GREETING], "joinConfiguration": join});
        let bootstrap = json!({"spec": {"template": {"spec": spec}}});
        self.apply("KubeadmConfigTemplate", name, bootstrap).await?;
        // A webhook of Cluster API would write these.
        let labels =
            json!({"cluster.x-k8s.io/cluster-name": cluster, "cluster.x-k8s.io/deployment-name": name});
        let mut spec = json!({
            "clusterName": cluster,
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "clusterName": cluster,
                "version": VERSION,
                "bootstrap": {"configRef": reference("KubeadmConfigTemplate", name)},
                "infrastructureRef": reference(&self.kind("MachineTemplate"), template),
                "deletion": {"nodeDrainTimeoutSeconds": 1},
            }},
        });
        if let Some(name) = failure_domain {
            spec["template"]["spec"]["failureDomain"] = name.into();
        }
        self.apply("MachineDeployment", name, json!({"spec": spec})).await.map(drop)
    }

    /// Applies a Machine of its own, without a deployment, whose bootstrap data are a Secret that somebody
    /// wrote. `more` are further fields of its spec.
    pub(crate) async fn apply_machine(
        &self,
        cluster: &str,
        name: &str,
        more: &Value,
    ) -> anyhow::Result<Value> {
        self.apply_machine_of(cluster, name, json!({}), more).await
    }

    /// The same with this spec of the object of its infrastructure.
    pub(crate) async fn apply_machine_of(
        &self,
        cluster: &str,
        name: &str,
        infrastructure: Value,
        more: &Value,
    ) -> anyhow::Result<Value> {
        let labels = json!({"cluster.x-k8s.io/cluster-name": cluster});
        let secret = json!({
            "metadata": {"labels": labels},
            "type": "cluster.x-k8s.io/secret",
            "stringData": {"value": "#cloud-config", "format": "cloud-config"},
        });
        self.apply("Secret", &format!("{name}-bootstrap"), secret).await?;
        let machine = json!({"metadata": {"labels": labels}, "spec": infrastructure});
        let kind = self.kind("Machine");
        self.apply(&kind, name, machine).await?;
        let mut spec = json!({
            "clusterName": cluster,
            "bootstrap": {"dataSecretName": format!("{name}-bootstrap")},
            "infrastructureRef": reference(&kind, name),
        });
        for (field, value) in more.as_object().context("fields")? {
            spec[field] = value.clone();
        }
        self.apply("Machine", name, json!({"spec": spec})).await
    }
}
