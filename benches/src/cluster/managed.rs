//! Objects of a management cluster whose core manager is Cluster API's own.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use machine_controller::crds::CONVERSION_PATH;
use serde_json::{Value, json};
use test_env::ControlPlane;
use tokio::time::sleep;

use super::{
    Cluster, POSTERS, STUCK,
    machines::{MAX_PAGE, NAMESPACE, POLL_ALL},
};

const CLUSTER: &str = "prod";

const CORE: &str = "cluster.x-k8s.io/v1beta2";
const MACHINES: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines";

/// The account of the printed manifests.
const ACCOUNT: (&str, &str) = ("kube-system", "cloud-controller-manager");

/// The name of the account of the printed manifests, as the audit log has it.
pub(crate) const ACCOUNT_USER: &str = "system:serviceaccount:kube-system:cloud-controller-manager";

/// An object of this kind and with this name.
pub(super) fn object(version: &str, kind: &str, name: &str, content: Value) -> Value {
    let mut object = content;
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
    object["metadata"]["name"] = name.into();
    object
}

impl Cluster {
    pub(crate) fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    pub(super) async fn post_object(&self, object: Value) -> Result<()> {
        let version = object["apiVersion"].as_str().context("a version")?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = object["kind"].as_str().context("a kind")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let all: Api<DynamicObject> = Api::namespaced_with(self.client.0.clone(), NAMESPACE, &resource);
        let what = kind.to_owned();
        all.create(&PostParams::default(), &serde_json::from_value(object)?).await.context(what)?;
        Ok(())
    }

    /// Applies what our daemon prints for its machines, but for the DaemonSet. Its webhook is at a port of this host. Returns the
    /// kubeconfig of its account.
    pub(crate) fn apply_machines(
        &self,
        program: &Path,
        provider: &str,
        webhook_port: u16,
    ) -> Result<std::path::PathBuf> {
        let provider = format!("--provider={provider}");
        let arguments = ["--machines", &provider, "--set=controllers=machine-controller"];
        self.apply_printed(program, &arguments, webhook_port)
    }

    /// The same for Cluster API's own kinds, which have no webhook.
    pub(crate) fn apply_lifecycle(&self, program: &Path) -> Result<std::path::PathBuf> {
        self.apply_printed(program, &["--lifecycle", "--set=controllers=lifecycle"], 0)
    }

    fn apply_printed(
        &self,
        program: &Path,
        arguments: &[&str],
        webhook_port: u16,
    ) -> Result<std::path::PathBuf> {
        let output = Command::new(program).arg("manifests").args(arguments).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let objects = text.split("\n---\n").map(serde_saphyr::from_str::<Value>);
        let mut objects = objects.collect::<Result<Vec<_>, _>>()?;
        objects.retain(|object| object["kind"].is_string() && object["kind"] != "DaemonSet");
        for object in &mut objects {
            if let Some(client) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
                *client = json!({"url": format!("https://127.0.0.1:{webhook_port}{CONVERSION_PATH}")});
            }
        }
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("manifests.json");
        std::fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
        let file = file.display().to_string();
        self.control_plane.kubectl_output(&["apply", "--server-side", "--filename", &file])?;
        let wait = ["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"];
        self.control_plane.kubectl_output(&wait)?;
        self.control_plane.kubeconfig_for_service_account(ACCOUNT.0, ACCOUNT.1)
    }

    /// Posts a Cluster with Machines of vSphere, in this version, which is stored.
    pub(crate) async fn post_vsphere(
        &self,
        version: &str,
        cluster: &Value,
        machine: &Value,
        count: usize,
    ) -> Result<()> {
        let infrastructure = format!("infrastructure.cluster.x-k8s.io/{version}");
        let reference = |kind: &str, name: &str| json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name});
        let endpoint = json!({"host": "127.0.0.1", "port": self.control_plane.port()});
        let mut spec = cluster.clone();
        spec["controlPlaneEndpoint"] = endpoint.clone();
        self.post_object(object(&infrastructure, "VSphereCluster", CLUSTER, json!({"spec": spec}))).await?;
        let spec = json!({
            "controlPlaneEndpoint": endpoint, "infrastructureRef": reference("VSphereCluster", CLUSTER),
        });
        self.post_object(object(CORE, "Cluster", CLUSTER, json!({"spec": spec}))).await?;
        let (labels, infrastructure) = (&json!({"cluster.x-k8s.io/cluster-name": CLUSTER}), &infrastructure);
        stream::iter(0..count)
            .map(Ok)
            .try_for_each_concurrent(POSTERS, |number| async move {
                let (name, data) = (format!("machine-{number}"), format!("machine-{number}-data"));
                let secret = json!({
                    "metadata": {"labels": labels}, "type": "cluster.x-k8s.io/secret",
                    "stringData": {"value": "#cloud-config\n", "format": "cloud-config"},
                });
                self.post_object(object("v1", "Secret", &data, secret)).await?;
                let own = json!({"metadata": {"labels": labels}, "spec": machine});
                self.post_object(object(infrastructure, "VSphereMachine", &name, own)).await?;
                let spec = json!({
                    "clusterName": CLUSTER, "bootstrap": {"dataSecretName": data},
                    "infrastructureRef": reference("VSphereMachine", &name),
                });
                self.post_object(object(
                    CORE,
                    "Machine",
                    &name,
                    json!({"metadata": {"labels": labels}, "spec": spec}),
                ))
                .await
            })
            .await?;
        // what the core does first
        let path =
            format!("/apis/infrastructure.cluster.x-k8s.io/{version}/namespaces/{NAMESPACE}/vspheremachines");
        self.until_count(&path, "\"ownerReferences\":", count).await.map(drop)
    }

    /// Waits until the core says that as many Machines have their infrastructure. Returns when that was seen.
    pub(crate) async fn all_have_infrastructure(&self, count: usize) -> Result<Instant> {
        self.until_count(MACHINES, "\"infrastructureProvisioned\":true", count).await
    }

    /// Deletes all Machines, and waits until they are gone. Returns when that was seen.
    pub(crate) async fn delete_all_machines(&self, count: usize) -> Result<Instant> {
        let all = &self.core_objects("Machine");
        stream::iter(0..count)
            .map(Ok)
            .try_for_each_concurrent(POSTERS, |number| async move {
                all.delete(&format!("machine-{number}"), &DeleteParams::default()).await?;
                anyhow::Ok(())
            })
            .await?;
        self.until_no_machines(&ListParams::default().limit(MAX_PAGE)).await
    }

    /// Waits until a list of Machines is empty. Returns when that was seen.
    pub(super) async fn until_no_machines(&self, list: &ListParams) -> Result<Instant> {
        let machines = self.core_objects("Machine");
        let (mut before, mut changed) = (0, Instant::now());
        loop {
            let left = machines.list_metadata(list).await?.items.len();
            let now = Instant::now();
            if left == 0 {
                return Ok(now);
            }
            if left != before {
                (before, changed) = (left, now);
            }
            ensure!(changed.elapsed() < STUCK, "{left} Machines are still there");
            sleep(POLL_ALL).await;
        }
    }

    /// The objects of a kind of Cluster API's core.
    pub(super) fn core_objects(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", kind));
        Api::namespaced_with(self.client.0.clone(), NAMESPACE, &resource)
    }

    /// Waits until `text` is in an object, which is read again after each pause. Returns when that was seen.
    pub(crate) async fn until_it_says(
        &self,
        path: &str,
        text: &str,
        pause: Duration,
        limit: Duration,
    ) -> Result<Instant> {
        let began = Instant::now();
        loop {
            let request = http::Request::get(path).body(Vec::new())?;
            let is_told = self.client.0.request_text(request).await?.contains(text);
            let now = Instant::now();
            if is_told {
                return Ok(now);
            }
            ensure!(began.elapsed() < limit, "{path} does not say {text}");
            sleep(pause).await;
        }
    }

    /// Waits until `text` is as often in a list. The objects are not decoded: what is measured runs on the same CPUs.
    async fn until_count(&self, path: &str, text: &str, count: usize) -> Result<Instant> {
        let (mut before, mut changed) = (0, Instant::now());
        loop {
            let request = http::Request::get(path).body(Vec::new())?;
            let found = self.client.0.request_text(request).await?.matches(text).count();
            let now = Instant::now();
            if found >= count {
                return Ok(now);
            }
            if found != before {
                (before, changed) = (found, now);
            }
            ensure!(changed.elapsed() < STUCK, "{path}: only {found} of {count} have {text}");
            sleep(POLL_ALL).await;
        }
    }
}
