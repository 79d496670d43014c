//! A management cluster and workload clusters for the tests of controllers, each a sandbox. Nothing waits in real time: the tests run on
//! tokio's paused clock.

use std::{collections::HashMap, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use component::{
    events::{EventMetrics, EventObject, event_recorder},
    metrics::MetricSet as _,
};
use controller_kit::kinds::regular_plural;
use http::Request;
use kube::Client;
use parking_lot::Mutex;
use sandbox::{ResourceKind, Sandbox};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    core::{Core, CoreOptions},
    engine::{
        control::{Controller, LoopState, Source, run},
        external::Externals,
        metrics::LoopMetrics,
        object::{Kind, Stored},
        stores::{Store, Stores},
        writer::Writer,
    },
    gate::PartFence,
    workload::{Access, ClusterKey, Connection, Connector, Options, WorkloadClusters},
};

/// The namespace of all tests.
pub(crate) const NAMESPACE: &str = "default";

/// A wait only ends a hang, on the paused clock.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

const CORE: &str = "cluster.x-k8s.io";
const ADDONS: &str = "addons.cluster.x-k8s.io";

/// A management cluster with what all controllers share.
pub(crate) struct Stage {
    pub(crate) sandbox: Sandbox,
    pub(crate) core: Arc<Core>,
    hosts: Arc<Hosts>,
    stop: CancellationToken,
    _watches: JoinSet<()>,
    _stop: DropGuard,
}

/// The API servers of the workload clusters.
#[derive(Default)]
struct Hosts(Mutex<HashMap<ClusterKey, Client>>);

impl Connector for Hosts {
    fn connect(&self, cluster: &ClusterKey, _: &Access) -> Result<Client, String> {
        self.0.lock().get(cluster).cloned().ok_or_else(|| "there is no such host".to_owned())
    }
}

impl Stage {
    /// An empty management cluster.
    pub(crate) async fn new() -> Self {
        let sandbox = Sandbox::new();
        for (group, kind) in [
            (CORE, "Cluster"),
            (CORE, "Machine"),
            (CORE, "MachineSet"),
            (CORE, "MachineDeployment"),
            (CORE, "MachineHealthCheck"),
            (CORE, "MachineDrainRule"),
            (ADDONS, "ClusterResourceSet"),
            (ADDONS, "ClusterResourceSetBinding"),
        ] {
            let plural = regular_plural(kind);
            let kind = ResourceKind::new(group, "v1beta2", kind, &plural).namespaced();
            // A binding has no status.
            let has_status = plural != "clusterresourcesetbindings";
            sandbox.register(if has_status { kind.with_status() } else { kind });
        }
        let (stop, hosts) = (CancellationToken::new(), Arc::new(Hosts::default()));
        let client = sandbox.client();
        let stores = Stores::default();
        let watches = stores.watch(&client, None, &stop);
        stores.synced().await;
        let workload =
            WorkloadClusters::new(client.clone(), PartFence::default(), hosts.clone(), Options::default());
        tokio::spawn({
            let (workload, stop) = (workload.clone(), stop.clone());
            async move { workload.run(stop).await }
        });
        let metrics = EventMetrics::unregistered().expect("metrics");
        let daemon = EventObject::lease("kube-system", "lifecycle", "");
        let (events, writes) = event_recorder("lifecycle", client.clone(), daemon, metrics);
        tokio::spawn(writes.run(stop.clone()));
        let core = Arc::new(Core {
            stores,
            externals: Externals::new(client.clone(), None, stop.clone()),
            writer: Writer::new(client),
            workload,
            events,
            options: CoreOptions::default(),
        });
        Self { sandbox, core, hosts, stop: stop.clone(), _watches: watches, _stop: stop.drop_guard() }
    }

    /// Runs a controller to the end of the test.
    pub(crate) fn run<C: Controller>(&self, controller: C, sources: Vec<Source>) {
        let meter = LoopMetrics::unregistered().expect("metrics").of(C::KIND);
        tokio::spawn(run(Arc::new(controller), sources, meter, self.stop.clone(), LoopState::default()));
    }

    /// A workload cluster that is connected, under the name of its Cluster.
    pub(crate) async fn workload(&self, cluster: &str) -> Sandbox {
        let (workload, key) = (Sandbox::new(), ClusterKey::new(NAMESPACE, cluster));
        self.hosts.0.lock().insert(key.clone(), workload.client());
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://workload.example:6443"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        });
        self.create(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": format!("{cluster}-kubeconfig"), "namespace": NAMESPACE,
                "labels": {"cluster.x-k8s.io/cluster-name": cluster},
            },
            "data": {"value": BASE64_STANDARD.encode(kubeconfig.to_string())},
        }))
        .await;
        let mut changes = self.core.workload.changes();
        self.core.workload.follow(&key, "uid");
        while !matches!(self.core.workload.connection(&key), Connection::Connected { .. }) {
            timeout(PATIENCE, changes.next()).await.expect("it is connected");
        }
        workload
    }

    /// Serves the kind of a provider, if `has_contract` with the label of the contract.
    pub(crate) async fn serve(&self, group: &str, kind: &str, has_contract: bool) {
        let plural = regular_plural(kind);
        let labels = if has_contract { json!({"cluster.x-k8s.io/v1beta2": "v1"}) } else { json!({}) };
        self.create(definition(group, kind, &plural, &labels)).await;
    }

    /// Creates an object, with its status.
    pub(crate) async fn create(&self, object: Value) -> Value {
        create(&self.sandbox, object).await
    }

    /// The object with this kind and name.
    pub(crate) async fn get(&self, api_version: &str, kind: &str, name: &str) -> Option<Value> {
        get(&self.sandbox, &object(api_version, kind, name)).await
    }

    /// Changes an object. A patch of the status is one of nothing else.
    pub(crate) async fn patch(&self, api_version: &str, kind: &str, name: &str, patch: &Value) {
        self::patch(&self.sandbox, &object(api_version, kind, name), patch).await;
    }

    /// Waits until a cache shows an object as expected.
    pub(crate) async fn until<K: Kind>(
        &self,
        store: &Store<K>,
        name: &str,
        expected: impl Fn(&K) -> bool,
    ) -> Arc<Stored<K>> {
        let key = format!("{NAMESPACE}/{name}");
        let shown = store.until(&key, |stored| stored.is_some_and(|stored| expected(stored)));
        let shown = timeout(PATIENCE, shown).await.ok().flatten();
        shown.unwrap_or_else(|| panic!("{name} does not become as expected: {:#?}", store.get(&key)))
    }

    /// Waits until a cache shows no object of this name.
    pub(crate) async fn until_gone<K: Kind>(&self, store: &Store<K>, name: &str) {
        let key = format!("{NAMESPACE}/{name}");
        let gone = timeout(PATIENCE, store.until(&key, |stored| stored.is_none())).await;
        assert!(gone.is_ok(), "{name} does not go: {:#?}", store.get(&key));
    }

    /// The reasons and messages of all events so far.
    pub(crate) async fn events(&self) -> Vec<(String, String)> {
        self.core.events.flush().await;
        let list = request(&self.sandbox, "GET", "/api/v1/namespaces/default/events", None).await;
        let list = list.expect("a list");
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let events = list["items"].as_array().into_iter().flatten();
        events.map(|event| (text(event, "reason"), text(event, "message"))).collect()
    }
}

/// A definition with one version `v1`, which has a status.
pub(crate) fn definition(group: &str, kind: &str, plural: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "labels": labels},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// What names an object of the tests' namespace.
pub(crate) fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}})
}

/// Creates an object, with its status.
pub(crate) async fn create(sandbox: &Sandbox, object: Value) -> Value {
    let created =
        request(sandbox, "POST", &path_of_all(&object), Some(&object)).await.expect("it is created");
    match object.get("status") {
        Some(status) => {
            let path = format!("{}/status", path(&object));
            let patch = json!({"status": status});
            request(sandbox, "PATCH", &path, Some(&patch)).await.unwrap_or(created)
        }
        None => created,
    }
}

/// The object that `of` names. `None`: there is none.
pub(crate) async fn get(sandbox: &Sandbox, of: &Value) -> Option<Value> {
    match request(sandbox, "GET", &path(of), None).await {
        Ok(found) => Some(found),
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        Err(error) => panic!("{of}: {error}"),
    }
}

/// Changes the object that `of` names.
pub(crate) async fn patch(sandbox: &Sandbox, of: &Value, patch: &Value) {
    let path = if patch.get("status").is_some() { format!("{}/status", path(of)) } else { path(of) };
    request(sandbox, "PATCH", &path, Some(patch)).await.expect("it is patched");
}

/// Deletes the object that `of` names.
pub(crate) async fn delete(sandbox: &Sandbox, of: &Value) {
    request(sandbox, "DELETE", &path(of), None).await.expect("it is deleted");
}

async fn request(sandbox: &Sandbox, verb: &str, path: &str, body: Option<&Value>) -> kube::Result<Value> {
    let content = if verb == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(verb).uri(path).header("Content-Type", content);
    let body = body.map(Value::to_string).unwrap_or_default().into_bytes();
    sandbox.client().request(request.body(body).expect("a request")).await
}

fn path_of_all(of: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api, plural) = (text(&of["apiVersion"]), regular_plural(&text(&of["kind"])));
    let root = if api.contains('/') { format!("/apis/{api}") } else { format!("/api/{api}") };
    let is_clustered = matches!(plural.as_str(), "nodes" | "namespaces" | "customresourcedefinitions");
    match of["metadata"]["namespace"].as_str().filter(|_| !is_clustered) {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{plural}"),
    }
}

fn path(of: &Value) -> String {
    format!("{}/{}", path_of_all(of), of["metadata"]["name"].as_str().unwrap_or_default())
}
