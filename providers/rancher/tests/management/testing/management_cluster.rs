//! A management cluster: a real kube-apiserver with Rancher's custom resources, behind the server of `rancher`.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use test_env::{ControlPlane, ControlPlaneOptions};
use tokio::time::sleep;

use super::rancher::{FakeRancher, Upstream};

/// The user of the API server that stands for a Rancher user without rights.
const POWERLESS_USER: &str = "u-powerless";

/// The custom resources: group, versions, kind and plural. Rancher 2.9 has Cluster API's `v1beta1`, later ones `v1beta2`.
const KINDS: [(&str, &[&str], &str, &str); 4] = [
    ("cluster.x-k8s.io", &["v1beta1", "v1beta2"], "Machine", "machines"),
    ("rke.cattle.io", &["v1"], "RKEBootstrap", "rkebootstraps"),
    ("rke.cattle.io", &["v1"], "CustomMachine", "custommachines"),
    ("provisioning.cattle.io", &["v1"], "Cluster", "clusters"),
];

/// What the API server has to have.
pub(crate) fn options() -> ControlPlaneOptions {
    ControlPlaneOptions::default().user(POWERLESS_USER, &[])
}

/// A cluster that Rancher provisions, in a namespace of its own.
pub(crate) struct ManagementCluster {
    pub(crate) rancher: FakeRancher,
    pub(crate) namespace: String,
    /// Its ID.
    pub(crate) id: String,
    /// The API server.
    pub(crate) upstream: Upstream,
}

impl ManagementCluster {
    /// A server with a cluster of this name. The API server was started with these [`options`].
    pub(crate) async fn on(started: &ControlPlane, name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let ca = std::fs::read(started.ca_pem()).expect("the CA");
        let ca = reqwest::Certificate::from_pem(&ca).expect("a certificate");
        let client = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().build().expect("a client");
        let powerless = started.token_for(POWERLESS_USER).expect("a user");
        let tokens = [started.admin_token(), powerless].map(str::to_owned);
        let upstream = Upstream { url: started.url(), client, tokens };
        let (namespace, id) = (format!("fleet-{number}"), format!("c-m-{number:08}"));
        let rancher = FakeRancher::start_with(None, Some(upstream.clone())).await;
        rancher.add_cluster(&id, name, &namespace);
        let cluster = Self { rancher, namespace, id, upstream };
        cluster.define_kinds().await;
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace}});
        cluster.call(Method::POST, "/api/v1/namespaces", Some(&namespace)).await;
        cluster.provision(name).await;
        cluster
    }

    /// Makes the object from which Rancher makes the cluster.
    pub(crate) async fn provision(&self, name: &str) {
        let provisioning = json!({
            "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {"rkeConfig": {"machinePools": []}}, "status": {"clusterName": self.id, "ready": true},
        });
        self.create("provisioning.cattle.io/v1", "clusters", &provisioning).await;
    }

    async fn define_kinds(&self) {
        for (group, versions, kind, plural) in KINDS {
            let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}});
            let newest = versions.last();
            let versions: Vec<_> = versions
                .iter()
                .map(|name| json!({"name": name, "served": true, "storage": Some(name) == newest, "schema": schema}))
                .collect();
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.{group}")},
                "spec": {
                    "group": group, "scope": "Namespaced", "versions": versions,
                    "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
                },
            });
            self.call(
                Method::POST,
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                Some(&definition),
            )
            .await;
            // It is served a moment later.
            let path = format!("/apis/{group}/{}/{plural}", newest.unwrap_or(&"v1"));
            while self.call(Method::GET, &path, None).await.0 != StatusCode::OK {
                sleep(Duration::from_millis(50)).await;
            }
        }
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> (StatusCode, Value) {
        let is_patch = method == Method::PATCH;
        let Upstream { url, client, tokens: [administrator, _] } = &self.upstream;
        let mut request = client.request(method, format!("{url}{path}")).bearer_auth(administrator);
        if let Some(body) = body {
            let kind = if is_patch { "application/merge-patch+json" } else { "application/json" };
            request = request.header("content-type", kind).body(body.to_string());
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status();
        (status, answer.json().await.unwrap_or_default())
    }

    fn path(&self, group: &str, plural: &str, name: &str) -> String {
        format!("/apis/{group}/namespaces/{}/{plural}{name}", self.namespace)
    }

    /// Creates an object. Returns its UID.
    pub(crate) async fn create(&self, group: &str, plural: &str, object: &Value) -> String {
        let (status, made) = self.call(Method::POST, &self.path(group, plural, ""), Some(object)).await;
        assert!(status.is_success(), "{status}: {made}");
        made["metadata"]["uid"].as_str().expect("a UID").to_owned()
    }

    /// Changes an object.
    pub(crate) async fn patch(&self, group: &str, plural: &str, name: &str, change: &Value) {
        let path = self.path(group, plural, &format!("/{name}"));
        let (status, answer) = self.call(Method::PATCH, &path, Some(change)).await;
        assert!(status.is_success(), "{status}: {answer}");
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, group: &str, plural: &str, name: &str) {
        let path = self.path(group, plural, &format!("/{name}"));
        let (status, answer) = self.call(Method::DELETE, &path, None).await;
        assert!(status.is_success(), "{status}: {answer}");
    }

    /// A machine that registered itself, with everything that Rancher makes of it. Returns the UID of its Machine.
    pub(crate) async fn add_custom_machine(&self, name: &str, node: &str, addresses: &str) -> String {
        let bootstrap = json!({
            "apiVersion": "rke.cattle.io/v1", "kind": "RKEBootstrap",
            "metadata": {"name": name, "annotations": {
                "rke.cattle.io/address": "203.0.113.1", "rke.cattle.io/internal-address": addresses,
            }},
            "spec": {"clusterName": "prod"},
        });
        self.create("rke.cattle.io/v1", "rkebootstraps", &bootstrap).await;
        let machine = self.machine(name, node);
        let uid = self.create("cluster.x-k8s.io/v1beta1", "machines", &machine).await;
        let owner = json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "name": name, "uid": uid, "controller": true});
        let infrastructure = json!({
            "apiVersion": "rke.cattle.io/v1", "kind": "CustomMachine",
            "metadata": {"name": name, "ownerReferences": [owner]}, "spec": {},
        });
        self.create("rke.cattle.io/v1", "custommachines", &infrastructure).await;
        uid
    }

    /// A Machine as Rancher makes it for a machine that registered itself.
    pub(crate) fn machine(&self, name: &str, node: &str) -> Value {
        let reference = |kind| json!({"apiVersion": "rke.cattle.io/v1", "kind": kind, "name": name, "namespace": self.namespace});
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine",
            "metadata": {"name": name, "labels": {
                "cluster.x-k8s.io/cluster-name": "prod", "rke.cattle.io/cluster-name": "prod",
                "rke.cattle.io/machine-id": "5f8b", "rke.cattle.io/node-name": node, "rke.cattle.io/worker-role": "true",
                "topology.kubernetes.io/zone": "rack-7", "topology.kubernetes.io/region": "hall-1",
            }},
            "spec": {
                "clusterName": "prod", "bootstrap": {"configRef": reference("RKEBootstrap")},
                "infrastructureRef": reference("CustomMachine"),
            },
            "status": {"phase": "Provisioning"},
        })
    }

    /// Deletes a machine as Cluster API does: the Machine, and what belongs to it.
    pub(crate) async fn delete_custom_machine(&self, name: &str) {
        self.delete("cluster.x-k8s.io/v1beta1", "machines", name).await;
        self.delete("rke.cattle.io/v1", "rkebootstraps", name).await;
        self.delete("rke.cattle.io/v1", "custommachines", name).await;
    }
}
