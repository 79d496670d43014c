use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use cluster_api::KubeadmConfig;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, api::ListParams};
use sandbox::{Action, Fault, Matcher, ResourceKind};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    engine::stores::{Store, Watches},
    testing::{NAMESPACE, Stage, delete, object},
    workload::{ClusterKey, Connection},
};

const CORE: &str = "cluster.x-k8s.io/v1beta2";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io/v1beta2";
const MINUTE: Duration = Duration::from_secs(60);

/// A Cluster `c` with its infrastructure, and the controller of configs.
struct World {
    stage: Stage,
    configs: Store<KubeadmConfig>,
    _watches: JoinSet<()>,
}

impl World {
    async fn new(is_initialized: bool) -> Self {
        let stage = Stage::new().await;
        let kind =
            ResourceKind::new("bootstrap.cluster.x-k8s.io", "v1beta2", "KubeadmConfig", "kubeadmconfigs");
        stage.sandbox.register(kind.namespaced().with_status());
        let mut cluster = object(CORE, "Cluster", "c");
        cluster["spec"] = json!({"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}});
        cluster["status"] = json!({"initialization": {"infrastructureProvisioned": true}});
        stage.create(cluster).await;
        let (configs, stop) = (Store::default(), CancellationToken::new());
        let client = stage.sandbox.client();
        let mut watches = Watches { client: &client, namespace: None, stop: &stop, tasks: JoinSet::new() };
        watches.start("kubeadmconfigs", &configs);
        let world = Self { stage, configs, _watches: watches.tasks };
        if is_initialized {
            world.initialize().await;
        }
        let bootstrap = Arc::new(Bootstrap {
            clusters: world.stage.core.stores.clusters.clone(),
            machines: world.stage.core.stores.machines.clone(),
            configs: world.configs.clone(),
            writer: world.stage.core.writer.clone(),
            workload: world.stage.core.workload.clone(),
            events: world.stage.core.events.clone(),
            watch_filter: None,
            token_ttl: Duration::from_secs(900),
        });
        let controller = KubeadmConfigController::new(bootstrap);
        let sources = controller.sources();
        world.stage.run(controller, sources);
        world
    }

    /// The Cluster's control plane has its first machine.
    async fn initialize(&self) {
        let condition = json!({
            "type": "ControlPlaneInitialized", "status": "True", "reason": "Initialized", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        self.stage.patch(CORE, "Cluster", "c", &json!({"status": {"conditions": [condition]}})).await;
        let clusters = &self.stage.core.stores.clusters;
        self.stage
            .until(clusters, "c", |cluster| {
                cluster.status.as_ref().is_some_and(|one| !one.conditions.is_empty())
            })
            .await;
    }

    /// Another program has the control plane.
    async fn give_control_plane(&self) {
        let reference = json!({"apiGroup": "controlplane.example", "kind": "ControlPlane", "name": "c"});
        self.stage.patch(CORE, "Cluster", "c", &json!({"spec": {"controlPlaneRef": reference}})).await;
        let clusters = &self.stage.core.stores.clusters;
        self.stage.until(clusters, "c", |cluster| !cluster.spec.control_plane_ref.name.is_empty()).await;
    }

    async fn secret(&self, name: &str, values: &[(&str, &str)]) {
        let mut secret = object("v1", "Secret", name);
        for (key, value) in values {
            secret["data"][key] = BASE64_STANDARD.encode(value).into();
        }
        self.stage.create(secret).await;
    }

    async fn create_certificates(&self) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        for name in ["c-ca", "c-etcd", "c-proxy", "c-sa"] {
            self.secret(name, &[("tls.crt", &certificate), ("tls.key", &key.serialize_pem())]).await;
        }
    }

    /// A Machine of the Cluster with a config of the same name.
    async fn machine(&self, name: &str, is_control_plane: bool, spec: Value) {
        let cluster = self.stage.get(CORE, "Cluster", "c").await.expect("it exists");
        let uid = cluster["metadata"]["uid"].as_str().expect("a UID");
        self.machine_of(uid, name, is_control_plane, spec).await;
    }

    /// The same of the Cluster with this UID.
    async fn machine_of(&self, cluster: &str, name: &str, is_control_plane: bool, spec: Value) {
        let mut machine = object(CORE, "Machine", name);
        if is_control_plane {
            machine["metadata"]["labels"] = json!({"cluster.x-k8s.io/control-plane": ""});
        }
        let reference =
            json!({"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": name});
        machine["spec"] = json!({
            "clusterName": "c", "version": "v1.37.1", "bootstrap": {"configRef": reference},
            "infrastructureRef": {"apiGroup": "x.example", "kind": "X", "name": name},
        });
        let owner = json!({"apiVersion": CORE, "kind": "Cluster", "name": "c", "uid": cluster});
        machine["metadata"]["ownerReferences"] = json!([owner]);
        let machine = self.stage.create(machine).await;
        self.stage.until(&self.stage.core.stores.machines, name, |_| true).await;
        let mut config = object(BOOTSTRAP, "KubeadmConfig", name);
        config["metadata"]["ownerReferences"] = json!([{
            "apiVersion": CORE, "kind": "Machine", "name": name, "uid": machine["metadata"]["uid"], "controller": true,
        }]);
        config["spec"] = spec;
        self.stage.create(config).await;
    }

    /// Waits until the condition `DataSecretAvailable` of a config has these words.
    async fn until(&self, name: &str, reason: &str, message: &str) {
        let has_words = |config: &KubeadmConfig| {
            let conditions = config.status.iter().flat_map(|status| &status.conditions);
            let mut found = conditions.filter(|one| one.type_ == "DataSecretAvailable");
            found.any(|one| one.reason == reason && one.message.contains(message))
        };
        self.stage.until(&self.configs, name, has_words).await;
    }

    async fn data(&self, name: &str) -> Option<String> {
        let secrets: Api<Secret> = Api::namespaced(self.stage.sandbox.client(), NAMESPACE);
        let ByteString(value) = secrets.get_opt(name).await.expect("read")?.data?.remove("value")?;
        Some(String::from_utf8(value).expect("text"))
    }

    async fn holder_of_lock(&self) -> Option<Value> {
        let lock = self.stage.get("v1", "ConfigMap", "c-lock").await?;
        let information = lock["data"]["lock-information"].as_str().expect("information");
        Some(serde_json::from_str::<Value>(information).expect("JSON")["machineName"].clone())
    }

    /// How often the value of a Secret was read.
    fn reads_of(&self, secret: &str) -> usize {
        let of_secret = Matcher::any().verb("get").resource("secrets").name(secret);
        self.stage.sandbox.requests_matching(&of_secret).len()
    }

    async fn until_forgotten(&self) {
        let workload = &self.stage.core.workload;
        let (key, mut changes) = (ClusterKey::new(NAMESPACE, "c"), workload.changes());
        let is_forgotten = || matches!(workload.connection(&key), Connection::NotConnected(why) if why.reason.contains("not followed"));
        while !is_forgotten() {
            timeout(60 * MINUTE, changes.next()).await.expect("it is forgotten");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_lets_no_second_machine_initialize_the_control_plane() {
    let world = World::new(false).await;
    world.create_certificates().await;
    let lost = Fault::new(Matcher::any().verb("create").resource("secrets"), Action::LoseResponse);
    world.stage.sandbox.faults().inject(lost.times(1));
    world.machine("a", true, json!({})).await;
    world.until("a", "Available", "").await;
    assert!(world.data("a").await.expect("data").contains("kubeadm init"));
    world.machine("b", true, json!({})).await;
    world.until("b", "NotAvailable", "Waiting for another Machine to initialize the control plane").await;
    sleep(10 * MINUTE).await;
    assert_eq!(world.holder_of_lock().await, Some(json!("a")));
    assert_eq!(world.data("b").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_free_since_the_control_plane_is_initialized_makes_no_second_one() {
    let world = World::new(false).await;
    world.create_certificates().await;
    let slow =
        Fault::new(Matcher::any().verb("get").resource("secrets").name("c-sa"), Action::Delay(MINUTE / 12));
    world.stage.sandbox.faults().inject(slow.times(1));
    world.machine("a", true, json!({})).await;
    while world.reads_of("c-sa") == 0 {
        tokio::task::yield_now().await;
    }
    world.initialize().await;
    world.until("a", "NotAvailable", "Waiting for the connection to the workload cluster").await;
    assert_eq!(world.data("a").await, None);
}

#[tokio::test(start_paused = true)]
async fn without_data_the_lock_is_not_taken() {
    let world = World::new(false).await;
    world.give_control_plane().await;
    world.machine("a", true, json!({})).await;
    world.until("a", "NotAvailable", "Waiting for certificates").await;
    sleep(10 * MINUTE).await;
    assert!(world.stage.sandbox.requests_matching(&Matcher::any().resource("configmaps")).is_empty());
    let created = Matcher::any().verb("create").resource("secrets");
    assert!(
        world.stage.sandbox.requests_matching(&created).is_empty(),
        "the control plane makes certificates"
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_machine_of_a_control_plane_without_an_object_gets_certificates() {
    let world = World::new(false).await;
    world.secret("c-etcd", &[("tls.crt", "of the user"), ("tls.key", "its key")]).await;
    // The first answer is lost, and the next pass finds what was made.
    let creations = Matcher::any().verb("create").resource("secrets");
    world.stage.sandbox.faults().inject(Fault::new(creations.clone(), Action::LoseResponse).times(1));
    world.machine("a", true, json!({})).await;
    world.until("a", "Available", "").await;
    let data = world.data("a").await.expect("data");
    // That of the user, those that were missing, and the data.
    assert_eq!(world.stage.sandbox.requests_matching(&creations).len(), 1 + 3 + 1);
    assert!(data.contains("its key"), "the user's own");
    let secrets: Api<Secret> = Api::namespaced(world.stage.sandbox.client(), NAMESPACE);
    for name in ["c-ca", "c-proxy", "c-sa"] {
        let secret = secrets.get(name).await.expect("a Secret");
        let ByteString(key) = &secret.data.as_ref().expect("data")["tls.key"];
        let line = str::from_utf8(key).expect("text").lines().nth(1).expect("a line of the key");
        assert!(data.contains(line), "{name} is not in the data");
        assert_eq!(secret.type_.as_deref(), Some("cluster.x-k8s.io/secret"));
        let owners = secret.metadata.owner_references.expect("owners");
        assert!(matches!(&owners[..], [owner] if owner.kind == "Cluster" && owner.name == "c"), "{owners:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn certificates_are_not_made_for_a_cluster_that_had_the_name_before() {
    let world = World::new(false).await;
    world.machine_of("the-next-one", "a", true, json!({})).await;
    world.until("a", "NotAvailable", "Waiting for the Cluster to own the Machine").await;
    let creations = Matcher::any().verb("create").resource("secrets");
    assert_eq!(world.stage.sandbox.requests_matching(&creations).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_not_made_here_are_named() {
    let world = World::new(false).await;
    world.machine("a", true, json!({"clusterConfiguration": {"encryptionAlgorithm": "RSA-2048"}})).await;
    world.until("a", "NotAvailable", "Waiting for certificates").await;
    let says = async |words: &str| {
        let has_words = |config: &KubeadmConfig| {
            let mut conditions = config.status.iter().flat_map(|status| &status.conditions);
            conditions.any(|one| one.type_ == "CertificatesAvailable" && one.message.contains(words))
        };
        world.stage.until(&world.configs, "a", has_words).await;
    };
    says("Secret c-ca does not exist, and keys of RSA are not made here").await;
    // It is looked for again.
    world.secret("c-ca", &[("tls.crt", "x"), ("tls.key", "x")]).await;
    says("Secret c-etcd does not exist").await;
}

#[tokio::test(start_paused = true)]
async fn secrets_are_read_once_and_their_values_have_a_limit() {
    let world = World::new(false).await;
    world.create_certificates().await;
    let files = |secret: &str, keys: &[&str]| {
        let file = |(number, key): (usize, &&str)| json!({"path": format!("/{number}"), "contentFrom": {"secret": {"name": secret, "key": key}}});
        json!({"files": keys.iter().enumerate().map(file).collect::<Vec<_>>()})
    };
    world.secret("small", &[("one", "1"), ("two", "2")]).await;
    world.machine("a", true, files("small", &["one", "two", "one"])).await;
    world.until("a", "Available", "").await;
    assert_eq!(world.reads_of("small"), 1);
    // One value is written into each file that names it.
    world.secret("large", &[("one", &"x".repeat(600_000))]).await;
    world.machine("b", true, files("large", &["one", "one"])).await;
    world.until("b", "NotAvailable", "spec.files[1].contentFrom.secret: with this value").await;
    let many: Vec<_> =
        (0..=100).map(|number| files(&format!("s{number}"), &["k"])["files"][0].clone()).collect();
    world.machine("d", true, json!({"files": many})).await;
    world.until("d", "NotAvailable", "name more than 100 Secrets").await;
    assert_eq!(world.reads_of("s0"), 0);
}

#[tokio::test(start_paused = true)]
async fn data_that_are_not_stored_leave_no_further_tokens() {
    let world = World::new(true).await;
    world.create_certificates().await;
    let workload = world.stage.workload("c").await;
    let creations = Matcher::any().verb("create").resource("secrets");
    world.stage.sandbox.faults().inject(Fault::new(creations.clone(), Action::InternalError).times(3));
    world.machine("a", false, json!({})).await;
    world.until("a", "Available", "").await;
    let tokens: Api<Secret> = Api::namespaced(workload.client(), "kube-system");
    assert_eq!(tokens.list(&ListParams::default()).await.expect("Secrets").items.len(), 1);
    assert_eq!(workload.requests_matching(&creations).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_workload_cluster_is_forgotten_once_no_machine_is_to_join() {
    let world = World::new(true).await;
    world.create_certificates().await;
    let workload = world.stage.workload("c").await;
    let tokens: Api<Secret> = Api::namespaced(workload.client(), "kube-system");
    let deletions = Matcher::any().verb("delete").resource("secrets");
    let count = async || tokens.list(&ListParams::default()).await.expect("Secrets").items.len();
    for name in ["a", "b"] {
        world.machine(name, false, json!({})).await;
        world.until(name, "Available", "").await;
    }
    assert_eq!(count().await, 2);
    // The one joins, and the other one goes and leaves its config.
    let joined = json!({"status": {"nodeRef": {"name": "n"}}});
    world.stage.patch(CORE, "Machine", "a", &joined).await;
    sleep(10 * MINUTE).await;
    assert_eq!(count().await, 1);
    let key = ClusterKey::new(NAMESPACE, "c");
    assert!(world.stage.core.workload.get(&key).is_ok(), "the other one is to join");
    delete(&world.stage.sandbox, &object(CORE, "Machine", "b")).await;
    world.until_forgotten().await;
    // The next one connects again, joins, and its token cannot be deleted.
    workload.faults().inject(Fault::new(deletions, Action::InternalError));
    world.machine("e", false, json!({})).await;
    world.until("e", "Available", "").await;
    world.stage.patch(CORE, "Machine", "e", &joined).await;
    world.until_forgotten().await;
    // The next one connects again, and the Cluster goes.
    world.machine("d", false, json!({})).await;
    world.until("d", "Available", "").await;
    delete(&world.stage.sandbox, &object(CORE, "Cluster", "c")).await;
    world.until_forgotten().await;
}
