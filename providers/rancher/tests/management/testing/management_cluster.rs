//! A management cluster: a real kube-apiserver with Rancher's custom resources, behind the server of
//! `rancher`.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use reqwest::{Method, StatusCode};
use serde_json::{Map, Value, json};
use test_env::{ControlPlane, ControlPlaneOptions};
use tokio::time::sleep;

use super::{
    kinds::{ClusterApi, kinds},
    rancher::{FakeRancher, Upstream},
};

/// The user of the API server that stands for a Rancher user without rights.
const POWERLESS_USER: &str = "u-powerless";

/// What the API server has to have.
pub(crate) fn options() -> ControlPlaneOptions {
    ControlPlaneOptions::default().user(POWERLESS_USER, &[])
}

fn next_number() -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// A cluster that Rancher provisions, or one that was imported, in a namespace of its own.
pub(crate) struct ManagementCluster {
    pub(crate) rancher: FakeRancher,
    pub(crate) namespace: String,
    /// Its ID.
    pub(crate) id: String,
    cluster_api: ClusterApi,
    /// The API server.
    pub(crate) upstream: Upstream,
}

impl ManagementCluster {
    /// A server with a cluster of this name, as of Rancher 2.9. The API server was started with these
    /// [`options`].
    pub(crate) async fn on(started: &ControlPlane, name: &str) -> Self {
        Self::with(started, name, ClusterApi::V1Beta1).await
    }

    /// The same with a version of Cluster API, which is always the same for this API server.
    pub(crate) async fn with(started: &ControlPlane, name: &str, cluster_api: ClusterApi) -> Self {
        let number = next_number();
        let (namespace, id) = (format!("fleet-{number}"), format!("c-m-{number:08}"));
        let cluster = Self::new(started, (&id, name), (&namespace, &namespace), cluster_api).await;
        cluster.provision(name).await;
        cluster
    }

    /// A server with a cluster of this name that was imported. Its namespace is that of the mirrors of its
    /// Nodes.
    pub(crate) async fn imported(started: &ControlPlane, name: &str) -> Self {
        let id = format!("c-{:05}", next_number());
        Self::new(started, (&id, name), (&id, "fleet-default"), ClusterApi::V1Beta1).await
    }

    /// A server with a cluster, by its ID and name. Its objects are in the first namespace, and what makes it
    /// in the second.
    async fn new(
        started: &ControlPlane,
        (id, name): (&str, &str),
        (namespace, workspace): (&str, &str),
        cluster_api: ClusterApi,
    ) -> Self {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let ca = std::fs::read(started.ca_pem()).expect("the CA");
        let ca = reqwest::Certificate::from_pem(&ca).expect("a certificate");
        let client = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().build().expect("a client");
        let powerless = started.token_for(POWERLESS_USER).expect("a user");
        let tokens = [started.admin_token(), powerless].map(str::to_owned);
        let upstream = Upstream { url: started.url(), client, tokens };
        let rancher = FakeRancher::start_with(None, Some(upstream.clone())).await;
        rancher.add_cluster(id, name, workspace);
        let (namespace, id) = (namespace.to_owned(), id.to_owned());
        let cluster = Self { rancher, namespace, id, cluster_api, upstream };
        cluster.define_kinds().await;
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace}});
        cluster.call(Method::POST, "/api/v1/namespaces", Some(&namespace)).await;
        cluster
    }

    /// Makes the mirror of a Node, as Rancher does for an imported cluster. Returns the provider ID that the
    /// Node gets.
    pub(crate) async fn mirror(&self, name: &str, node: &str) -> String {
        let addresses = json!([
            {"type": "InternalIP", "address": "10.1.0.1"}, {"type": "InternalIP", "address": "fd00::1"},
            {"type": "Hostname", "address": node},
        ]);
        let object = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Node",
            "metadata": {"name": name, "labels": {"management.cattle.io/nodename": node}},
            "spec": {"requestedHostname": node, "customConfig": null, "internalNodeSpec": {}},
            "status": {"nodeName": node, "internalNodeStatus": {"addresses": addresses}},
        });
        self.create("management.cattle.io/v3", "nodes", &object).await;
        self.rancher.add_mirror(&self.id, name, node);
        format!("rancher://{}/{name}", self.id)
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
        for kind in kinds(self.cluster_api) {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let (status, answer) = self.call(Method::POST, path, Some(&kind.definition())).await;
            // Another test may have been first.
            assert!(status.is_success() || status == StatusCode::CONFLICT, "{status}: {answer}");
            // It is served a moment later.
            let path = format!("/apis/{}/{}", kind.group, kind.plural);
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

    /// Allows the user of the API server who may do nothing something in the namespace.
    pub(crate) async fn allow(&self, name: &str, (group, resources): (&str, &[&str]), verbs: &[&str]) {
        let rbac = "rbac.authorization.k8s.io";
        let version = format!("{rbac}/v1");
        let rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        let role =
            json!({"apiVersion": version, "kind": "Role", "metadata": {"name": name}, "rules": [rule]});
        self.create(&version, "roles", &role).await;
        let binding = json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": POWERLESS_USER}],
        });
        self.create(&version, "rolebindings", &binding).await;
    }

    /// Creates an object, with its status. Returns its UID.
    pub(crate) async fn create(&self, group: &str, plural: &str, object: &Value) -> String {
        let (status, made) = self.call(Method::POST, &self.path(group, plural, ""), Some(object)).await;
        assert!(status.is_success(), "{status}: {made}");
        if object.get("status").is_some() {
            let name = object["metadata"]["name"].as_str().expect("a name");
            self.patch(group, plural, name, &json!({"status": object["status"]})).await;
        }
        made["metadata"]["uid"].as_str().expect("a UID").to_owned()
    }

    /// Changes an object. Its status is a subresource, and so has a call of its own.
    pub(crate) async fn patch(&self, group: &str, plural: &str, name: &str, change: &Value) {
        let fields = change.as_object().expect("fields").clone();
        let (status, others): (Map<_, _>, Map<_, _>) =
            fields.into_iter().partition(|(field, _)| field == "status");
        for (part, fields) in [("", others), ("/status", status)] {
            if fields.is_empty() {
                continue;
            }
            let path = self.path(group, plural, &format!("/{name}{part}"));
            let (status, answer) = self.call(Method::PATCH, &path, Some(&Value::from(fields))).await;
            assert!(status.is_success(), "{status}: {answer}");
        }
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, group: &str, plural: &str, name: &str) {
        let path = self.path(group, plural, &format!("/{name}"));
        let (status, answer) = self.call(Method::DELETE, &path, None).await;
        assert!(status.is_success(), "{status}: {answer}");
    }

    /// A machine that registered itself, with everything that Rancher makes of it. Returns the UID of its
    /// Machine.
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
        let group = self.cluster_api.group();
        let uid = self.create(group, "machines", &machine).await;
        let owner =
            json!({"apiVersion": group, "kind": "Machine", "name": name, "uid": uid, "controller": true});
        let infrastructure = json!({
            "apiVersion": "rke.cattle.io/v1", "kind": "CustomMachine",
            "metadata": {"name": name, "ownerReferences": [owner]}, "spec": {},
        });
        self.create("rke.cattle.io/v1", "custommachines", &infrastructure).await;
        uid
    }

    /// A Machine as Rancher makes it for a machine that registered itself.
    pub(crate) fn machine(&self, name: &str, node: &str) -> Value {
        let reference = |kind| self.cluster_api.reference(("rke.cattle.io", "v1"), kind, name);
        json!({
            "apiVersion": self.cluster_api.group(), "kind": "Machine",
            "metadata": {"name": name, "labels": {
                "cluster.x-k8s.io/cluster-name": "prod", "rke.cattle.io/cluster-name": "prod",
                "rke.cattle.io/machine-id": "5f8b", "rke.cattle.io/node-name": node, "rke.cattle.io/worker-role": "true",
                "topology.kubernetes.io/zone": "rack-7", "topology.kubernetes.io/region": "hall-1",
            }},
            "spec": {
                "clusterName": "prod", "bootstrap": {"configRef": reference("RKEBootstrap")},
                "infrastructureRef": reference("CustomMachine"),
            },
        })
    }

    /// Deletes a machine as Cluster API does: the Machine, and what belongs to it.
    pub(crate) async fn delete_custom_machine(&self, name: &str) {
        self.delete(self.cluster_api.group(), "machines", name).await;
        self.delete("rke.cattle.io/v1", "rkebootstraps", name).await;
        self.delete("rke.cattle.io/v1", "custommachines", name).await;
    }
}
