//! Two API servers in the process, the controllers, and the provider that is played.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use cluster_api::{Machine, MachineDeployment, MachineSet, definitions::Provider};
use component::{
    events::{EventObject, EventRecorder, event_recorder},
    metrics::Metrics,
};
use controller_kit::cache::Cache;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use sandbox::{ResourceKind, Sandbox};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    line::Line,
    objects::fake_definition,
    provider::{Play, PlayedProvider},
    record::{By, Record},
};
use crate::{
    bootstrap::Bootstrap,
    core::{Core, CoreOptions},
    engine::{
        external::Externals,
        metrics::LoopMetrics,
        object::{Kind, Stored},
        stores::Stores,
        writer::Writer,
    },
    gate::PartFence,
    parts::core::work,
    workload::{Access, ClusterKey, Connector, Options, WorkloadClusters},
};

/// After this time a test counts as hanging. Nothing is judged by it.
const GUARD: Duration = Duration::from_secs(3600);

/// The default of `--sync-period`.
const SYNC_PERIOD: Duration = Duration::from_secs(600);

pub(super) const NAMESPACE: &str = "team";
pub(super) const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
pub(super) const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";
pub(super) const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";

/// Every workload cluster is the second API server.
pub(super) struct Same(pub(super) Client);

impl Connector for Same {
    fn connect(&self, _: &ClusterKey, _: &Access) -> Result<Client, String> {
        Ok(self.0.clone())
    }
}

pub(super) struct World {
    pub(super) management: Sandbox,
    pub(super) workload: Sandbox,
    pub(super) core: Arc<Core>,
    pub(super) line: Line,
    pub(super) play: Arc<Play>,
    /// The number of the management cluster. The first one has 0.
    pub(super) place: usize,
    pub(super) record: Record,
    options: CoreOptions,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    provider: JoinSet<()>,
}

/// A daemon that is not the one that works. It runs on until this is dropped.
pub(super) struct Other {
    /// The place of the management cluster that it serves.
    pub(super) place: usize,
    stop: CancellationToken,
    _tasks: JoinSet<()>,
}

impl Drop for Other {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The kinds of Cluster API, and those of the provider that is played, without the schemas, which the sandbox does not read.
fn kinds() -> &'static [CustomResourceDefinition] {
    static KINDS: OnceLock<Vec<CustomResourceDefinition>> = OnceLock::new();
    KINDS.get_or_init(|| {
        let of_core = Provider::ALL.iter().flat_map(|one| one.definitions().expect("definitions"));
        let fakes = [
            (INFRASTRUCTURE, "FakeMachine"),
            (INFRASTRUCTURE, "FakeMachineTemplate"),
            (BOOTSTRAP, "FakeConfig"),
            (BOOTSTRAP, "FakeConfigTemplate"),
            (CONTROL_PLANE, "FakeControlPlane"),
        ];
        let mut all: Vec<_> =
            of_core.chain(fakes.map(|(group, kind)| fake_definition(group, kind))).collect();
        for version in all.iter_mut().flat_map(|definition| &mut definition.spec.versions) {
            version.schema = None;
        }
        all
    })
}

/// Serves them.
pub(super) async fn define_kinds(management: &Sandbox) {
    let client = management.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in kinds() {
        definitions.create(&PostParams::default(), definition).await.expect("a definition");
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let metadata = kube::api::ObjectMeta { name: Some(NAMESPACE.to_owned()), ..Default::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    namespaces.create(&PostParams::default(), &namespace).await.expect("a namespace");
}

impl World {
    /// A Cluster `c` that is ready, and its workload cluster. Nothing runs yet.
    pub(super) async fn new() -> Self {
        Self::recorded(Record::default()).await
    }

    /// The same, with all writes recorded.
    pub(super) async fn recorded(record: Record) -> Self {
        let (management, workload) = (Sandbox::new(), Sandbox::new());
        for (group, kind, plural) in [
            ("storage.k8s.io", "VolumeAttachment", "volumeattachments"),
            ("", "PersistentVolume", "persistentvolumes"),
        ] {
            workload.register(ResourceKind::new(group, "v1", kind, plural));
        }
        workload.register(ResourceKind::new("apps", "v1", "DaemonSet", "daemonsets").namespaced());
        define_kinds(&management).await;
        let (stop, line) = (CancellationToken::new(), Line::new(record.clone(), 0, 0));
        let options = CoreOptions::default();
        let core = core(&line, &management, &workload, &stop, &options);
        let world = Self {
            management,
            workload,
            core,
            line,
            play: Arc::default(),
            place: 0,
            record,
            options,
            stop,
            tasks: JoinSet::new(),
            provider: JoinSet::new(),
        };
        world.create_cluster().await;
        world
    }

    /// The same with other flags.
    pub(super) async fn with(options: CoreOptions) -> Self {
        let mut world = Self::new().await;
        world.core = core(&world.line, &world.management, &world.workload, &world.stop, &options);
        world.options = options;
        world
    }

    /// The daemon is dead, and another one begins, which knows nothing.
    pub(super) async fn restart(&mut self) {
        self.stop_controllers().await;
        self.succeed().await;
    }

    /// Another daemon begins, which knows nothing, and the one before runs on.
    pub(super) async fn succeed(&mut self) -> Other {
        let other = self.replace(Line::new(self.record.clone(), self.place, self.line.number() + 1));
        self.start_controllers().await;
        other
    }

    /// Another daemon with this line, which is yet to be started. Gives the one before.
    pub(super) fn replace(&mut self, line: Line) -> Other {
        let stop = std::mem::take(&mut self.stop);
        self.core = core(&line, &self.management, &self.workload, &self.stop, &self.options);
        let before = std::mem::replace(&mut self.line, line);
        Other { place: before.place(), stop, _tasks: std::mem::take(&mut self.tasks) }
    }

    /// The daemon is dead.
    pub(super) async fn stop_controllers(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Lets the controllers and the provider run.
    pub(super) async fn start(&mut self) {
        self.start_controllers().await;
        let (client, workload) = (self.management.client(), self.workload.client());
        let externals = Externals::new(client.clone(), None, CancellationToken::new());
        let provider = Arc::new(PlayedProvider { client, workload, externals, play: Arc::clone(&self.play) });
        self.provider.spawn(provider.run());
    }

    pub(super) async fn start_controllers(&mut self) {
        let core = Arc::clone(&self.core);
        let client = self.line.client(&self.management);
        let watches = core.stores.watch(&client, None, &self.stop);
        if let Some(cluster) = self.get("cluster.x-k8s.io", "Cluster", "c").await {
            let uid = cluster["metadata"]["uid"].as_str().expect("a UID");
            core.workload.follow(&ClusterKey::new(NAMESPACE, "c"), uid);
        }
        let (health, debug) = Default::default();
        let inspection = component::inspection::Inspection::register("core", &health, &debug);
        self.tasks.spawn(work(
            core,
            client,
            watches,
            LoopMetrics::unregistered().expect("metrics"),
            SYNC_PERIOD,
            self.stop.clone(),
            inspection,
        ));
    }

    /// Lets the bootstrap part run too. Its workload clusters are connected when a machine needs a token.
    pub(super) fn start_bootstrap(&mut self) -> Arc<Bootstrap> {
        let client = self.management.client();
        let connector = Arc::new(Same(self.workload.client()));
        let fence = PartFence::default();
        let bootstrap = Arc::new(Bootstrap {
            clusters: Cache::default(),
            machines: Cache::default(),
            configs: Cache::default(),
            writer: Writer::new(client.clone()),
            workload: WorkloadClusters::new(client.clone(), fence, connector, Options::default()),
            events: events(client.clone()),
            watch_filter: None,
            token_ttl: Duration::from_secs(900),
        });
        let watches = bootstrap.watch(&client, None, &self.stop);
        let (health, debug) = Default::default();
        let inspection = component::inspection::Inspection::register("bootstrap", &health, &debug);
        self.tasks.spawn(crate::parts::bootstrap::work(
            Arc::clone(&bootstrap),
            watches,
            LoopMetrics::unregistered().expect("metrics"),
            SYNC_PERIOD,
            self.stop.clone(),
            inspection,
        ));
        bootstrap
    }

    pub(super) fn api(&self, group: &str, kind: &str) -> Api<DynamicObject> {
        api(&self.record.client(By::User, self.place, &self.management), group, kind)
    }

    pub(super) async fn create(&self, group: &str, kind: &str, object: Value) {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        self.api(group, kind).create(&PostParams::default(), &object).await.expect("it is created");
    }

    pub(super) async fn patch(&self, group: &str, kind: &str, name: &str, patch: Value) {
        let api = self.api(group, kind);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("it is patched");
    }

    pub(super) async fn patch_status(&self, group: &str, kind: &str, name: &str, patch: Value) {
        let api = self.api(group, kind);
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("it is patched");
    }

    pub(super) async fn delete(&self, group: &str, kind: &str, name: &str) {
        self.api(group, kind).delete(name, &DeleteParams::default()).await.expect("it is deleted");
    }

    pub(super) async fn get(&self, group: &str, kind: &str, name: &str) -> Option<Value> {
        let found = self.api(group, kind).get_opt(name).await.expect("it is read");
        found.map(|found| serde_json::to_value(found).expect("JSON"))
    }

    pub(super) async fn names(&self, group: &str, kind: &str) -> Vec<String> {
        let found = self.api(group, kind).list(&ListParams::default()).await.expect("a list");
        found.items.into_iter().filter_map(|one| one.metadata.name).collect()
    }

    /// All objects of a kind of Cluster API's core.
    pub(super) async fn all(&self, kind: &str) -> Vec<Value> {
        let found = self.api("cluster.x-k8s.io", kind).list(&ListParams::default()).await.expect("a list");
        found.items.into_iter().map(|one| serde_json::to_value(one).expect("JSON")).collect()
    }

    /// Whether the deployment `d` has so many Machines of a version, and nothing is left of others. As the API server shows it, so it does
    /// not matter which controllers run.
    pub(super) async fn is_complete(&self, replicas: usize, version: &str) -> bool {
        let machines = self.all("Machine").await;
        let is_right = |machine: &Value| {
            machine["spec"]["version"] == version
                && machine["status"]["phase"] == "Running"
                && machine["metadata"]["deletionTimestamp"].is_null()
        };
        let deployment =
            self.get("cluster.x-k8s.io", "MachineDeployment", "d").await.expect("the deployment");
        let (metadata, status) = (&deployment["metadata"], &deployment["status"]);
        machines.len() == replicas
            && machines.iter().all(is_right)
            && self.all("MachineSet").await.len() == 1
            && metadata["generation"] == status["observedGeneration"]
            && ["replicas", "readyReplicas", "availableReplicas", "upToDateReplicas"]
                .iter()
                .all(|field| status[field] == replicas)
    }

    /// Waits until it is, whichever controllers run.
    pub(super) async fn until_complete(&self, replicas: usize, version: &str) {
        let complete = async {
            while !self.is_complete(replicas, version).await {
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        };
        in_time(self, &format!("{replicas} Machines of {version}"), complete).await;
    }

    /// Waits until something is as expected, looking now and then.
    pub(super) async fn until(&self, what: &str, mut expected: impl AsyncFnMut() -> bool) {
        let holds = async {
            while !expected().await {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        in_time(self, what, holds).await;
    }

    /// Time for everything that is under way.
    pub(super) async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(40)).await;
    }

    /// Waits until the deployment `d` is as expected.
    pub(super) async fn until_deployment(
        &self,
        expected: impl Fn(&MachineDeployment) -> bool,
    ) -> Arc<Stored<MachineDeployment>> {
        until(&self.core.stores.machine_deployments, "team/d", |found| found.is_some_and(|one| expected(one)))
            .await
            .expect("the deployment")
    }

    /// Waits until so many Machines have a Node, and there are no others.
    pub(super) async fn until_running(&self, count: usize) {
        let mut changes = self.core.stores.machines.subscribe();
        loop {
            let machines = self.core.stores.machines.all();
            let runs = |machine: &Machine| {
                let status = machine.status.as_ref();
                status.is_some_and(|status| status.phase == Some(cluster_api::MachinePhase::Running))
            };
            if machines.len() == count && machines.iter().all(|machine| runs(machine)) {
                return;
            }
            changes.next().await;
        }
    }

    pub(super) fn sets(&self) -> Vec<Arc<Stored<MachineSet>>> {
        self.core.stores.machine_sets.all()
    }

    /// The Nodes of the workload cluster.
    pub(super) async fn nodes(&self) -> BTreeMap<String, Value> {
        let found = nodes(&self.workload.client()).list(&ListParams::default()).await.expect("Nodes");
        let named =
            |node: DynamicObject| Some((node.metadata.name.clone()?, serde_json::to_value(node).ok()?));
        found.items.into_iter().filter_map(named).collect()
    }
}

/// Controllers without anything in their caches.
fn core(
    line: &Line,
    management: &Sandbox,
    workload: &Sandbox,
    stop: &CancellationToken,
    options: &CoreOptions,
) -> Arc<Core> {
    let client = line.client(management);
    let connector = Arc::new(Same(line.client(workload)));
    Arc::new(Core {
        stores: Stores::default(),
        externals: Externals::new(client.clone(), None, stop.clone()),
        writer: Writer::new(client.clone()),
        workload: WorkloadClusters::new(client.clone(), PartFence::default(), connector, Options::default()),
        events: events(client),
        options: options.clone(),
    })
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Waits until a cache shows what is expected.
pub(super) async fn until<K: Kind>(
    store: &Cache<Stored<K>>,
    key: &str,
    expected: impl Fn(Option<&Stored<K>>) -> bool,
) -> Option<Arc<Stored<K>>> {
    store.until(key, expected).await
}

pub(super) fn api(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    let version = if group.is_empty() { "v1" } else { "v1beta2" };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

pub(super) fn nodes(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node")))
}

fn events(client: Client) -> EventRecorder {
    let metrics = Metrics::new("test").and_then(|metrics| metrics.get()).expect("metrics");
    event_recorder("test", client, EventObject::lease("team", "test", ""), metrics).0
}

/// Lets a test that hangs say where.
pub(super) async fn in_time(world: &World, what: &str, wait: impl Future<Output = ()>) {
    if tokio::time::timeout(GUARD, wait).await.is_err() {
        let mut found = Vec::new();
        for kind in ["Machine", "MachineSet", "MachineDeployment"] {
            for name in world.names("cluster.x-k8s.io", kind).await {
                let object = world.get("cluster.x-k8s.io", kind, &name).await.unwrap_or_default();
                found.push(format!("{kind} {name}: {} {}", object["spec"], object["status"]));
            }
        }
        for request in world.management.requests_matching(&sandbox::Matcher::any()) {
            if !["get", "list", "watch"].contains(&request.verb) && request.resource != "events" {
                let words = [request.verb, &request.resource, &request.subresource, &request.name];
                found.push(words.join(" "));
            }
        }
        let cluster = ClusterKey::new(NAMESPACE, "c");
        panic!("{what} does not come; {:?}\n{}", world.core.workload.connection(&cluster), found.join("\n"));
    }
}
