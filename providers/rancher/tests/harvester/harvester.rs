//! Harvester: a real API server with its kind `LoadBalancer`, and a script for what its controller does. A
//! test has a namespace of its own.

use std::{
    collections::BTreeSet,
    io::Write as _,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use kube::{
    Api, Client, Config,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
    },
    config::{KubeConfigOptions, Kubeconfig},
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use test_env::{ControlPlane, ControlPlaneOptions, StartError};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The finalizer of Harvester's controller.
const FINALIZER: &str = "wrangler.cattle.io/harvester-lb-controller";

/// How often the script looks at the objects.
const INTERVAL: Duration = Duration::from_millis(20);

/// The user of the cluster whose load balancers these are.
pub(crate) const USER: &str = "guest";

/// A user without any rights.
pub(crate) const STRANGER: &str = "stranger";

/// The API server of all tests. The kernel ends it with the process.
static API_SERVER: OnceLock<Option<ControlPlane>> = OnceLock::new();

static NAMESPACES: AtomicU32 = AtomicU32::new(1);

/// Starts a control plane; `None`, with a message, if this machine cannot run one.
pub(crate) fn control_plane() -> Option<ControlPlane> {
    match ControlPlane::start(&ControlPlaneOptions::default().user(USER, &[]).user(STRANGER, &[])) {
        Ok(started) => Some(started),
        Err(StartError::Unavailable(reason)) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn with_kind() -> Option<ControlPlane> {
    let control_plane = control_plane()?;
    apply(&control_plane, include_str!("crd.yaml"));
    let crd = "crd/loadbalancers.loadbalancer.harvesterhci.io";
    control_plane.kubectl_output(&["wait", "--for=condition=Established", crd]).expect("the kind");
    apply(&control_plane, include_str!("webhook.yaml"));
    let verbs = "--verb=get,create,patch,delete";
    let resource = "--resource=loadbalancers.loadbalancer.harvesterhci.io";
    control_plane.kubectl_output(&["create", "clusterrole", "balancers", verbs, resource]).expect("a role");
    let user = format!("--user={USER}");
    let binding = ["create", "clusterrolebinding", "balancers", "--clusterrole=balancers", &user];
    control_plane.kubectl_output(&binding).expect("a binding");
    Some(control_plane)
}

fn apply(control_plane: &ControlPlane, yaml: &str) {
    let mut command = control_plane.kubectl();
    let mut child = command.args(["apply", "-f", "-"]).stdin(Stdio::piped()).spawn().expect("kubectl runs");
    child.stdin.take().expect("its input").write_all(yaml.as_bytes()).expect("written");
    assert!(child.wait().expect("kubectl ends").success(), "kubectl apply");
}

/// The resource, for clients of tests.
pub(crate) fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("loadbalancer.harvesterhci.io", "v1beta1", "LoadBalancer");
    ApiResource::from_gvk_with_plural(&kind, "loadbalancers")
}

/// A namespace of Harvester with its script. The script ends with this value.
pub(crate) struct Harvester {
    pub(crate) control_plane: &'static ControlPlane,
    pub(crate) namespace: String,
    /// The objects, as Harvester's administrator has them.
    pub(crate) objects: Api<DynamicObject>,
    namespaces: Api<DynamicObject>,
    script: Arc<Mutex<Script>>,
    _stop: DropGuard,
}

/// What the controller does.
#[derive(Default)]
pub(crate) struct Script {
    /// Nothing.
    pub(crate) is_paused: bool,
    /// It gives no addresses, and says this.
    pub(crate) trouble: Option<&'static str>,
    /// It does not let objects go that are being deleted.
    pub(crate) keeps_deleted: bool,
    given: BTreeSet<u8>,
}

impl Harvester {
    /// A new namespace. `None`, with a message, if this machine cannot run an API server.
    pub(crate) async fn start() -> Option<Self> {
        let control_plane = tokio::task::spawn_blocking(|| API_SERVER.get_or_init(with_kind).as_ref());
        let control_plane = control_plane.await.expect("a control plane")?;
        let client = client(control_plane).await;
        let namespace = format!("vms-{}", NAMESPACES.fetch_add(1, Ordering::Relaxed));
        let of_core =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Namespace"), "namespaces");
        let mut made = DynamicObject::new(&namespace, &of_core);
        let there = [
            ("field.cattle.io/projectId", "c-1:p-2"),
            ("test/machine", "guest-pool1-x7k2p"),
            ("test/network", "default/vlan7"),
        ];
        made.metadata.annotations = Some(there.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let namespaces: Api<DynamicObject> = Api::all_with(client.clone(), &of_core);
        namespaces.create(&PostParams::default(), &made).await.expect("a namespace");
        let objects = Api::namespaced_with(client, &namespace, &resource());
        // The policies have their effect a moment after they are stored.
        while !trial(&objects).await.contains("c-1/p-2") {
            sleep(INTERVAL).await;
        }
        let (script, stop) = (Arc::new(Mutex::new(Script::default())), CancellationToken::new());
        let (played, seen) = (Arc::clone(&script), objects.clone());
        let work = stop.clone();
        tokio::spawn(async move { work.run_until_cancelled(play(&seen, &played)).await });
        Some(Self { control_plane, namespace, objects, namespaces, script, _stop: stop.drop_guard() })
    }

    /// The script, to look at and to change.
    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock()
    }

    /// The only object in the namespace, if there is one.
    pub(crate) async fn only(&self) -> Option<Value> {
        let mut all = self.objects.list(&ListParams::default()).await.expect("a list").items;
        assert!(all.len() <= 1, "{} objects", all.len());
        all.pop().map(|one| serde_json::to_value(one).expect("JSON"))
    }

    /// Says what there is in Harvester, by an annotation of the namespace that `webhook.yaml` knows, and
    /// waits until the webhook knows it.
    pub(crate) async fn say(&self, annotation: &str, value: Option<&str>) {
        let before = trial(&self.objects).await;
        let change = json!({"metadata": {"annotations": {annotation: value}}});
        let patch = Patch::Merge(&change);
        self.namespaces.patch(&self.namespace, &PatchParams::default(), &patch).await.expect("changed");
        while trial(&self.objects).await == before {
            sleep(INTERVAL).await;
        }
    }

    /// Creates an object of somebody else.
    pub(crate) async fn create(&self, name: &str, labels: Value, spec: Value) {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let mut object = DynamicObject { metadata, ..DynamicObject::new(name, &resource()) };
        object.metadata.labels = serde_json::from_value(labels).expect("labels");
        object.data = json!({"spec": spec});
        self.objects.create(&PostParams::default(), &object).await.expect("created");
    }

    /// A kubeconfig of a user, in this folder. Its context has the namespace.
    pub(crate) fn kubeconfig(
        &self,
        folder: &std::path::Path,
        server: &str,
        ca: &str,
        token: &str,
    ) -> PathBuf {
        let namespace = &self.namespace;
        let indented = ca.trim();
        std::fs::write(folder.join("ca.pem"), indented).expect("written");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: guest\ncontexts:\n- name: guest\n  context: {{cluster: harvester, \
             user: guest, namespace: {namespace}}}\nclusters:\n- name: harvester\n  cluster: {{server: '{server}', \
             certificate-authority: ca.pem}}\nusers:\n- name: guest\n  user: {{token: '{token}'}}\n"
        );
        let file = folder.join("harvester.kubeconfig");
        std::fs::write(&file, text).expect("written");
        file
    }

    /// The token of a user.
    pub(crate) fn token(&self, user: &str) -> &str {
        self.control_plane.token_for(user).expect("a user")
    }
}

/// A client of an administrator.
pub(crate) async fn client(control_plane: &ControlPlane) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(control_plane.kubeconfig()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

/// What the policies of `webhook.yaml` make of an object, or why they refuse it. Nothing is stored.
async fn trial(objects: &Api<DynamicObject>) -> String {
    let mut object = DynamicObject::new("trial", &resource());
    let asked = [("cluster", "guest"), ("network", "test/asked")];
    let asked = asked.map(|(key, value)| (format!("loadbalancer.harvesterhci.io/{key}"), value.to_owned()));
    object.metadata.annotations = Some(asked.into());
    object.data = json!({"spec": {"workloadType": "cluster"}});
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    match objects.create(&parameters, &object).await {
        Ok(made) => format!("{:?}", made.metadata.annotations),
        Err(error) => error.to_string(),
    }
}

/// Plays Harvester's controller: it gives addresses from 192.0.2.1 on, with whole writes of objects as it
/// does them, and has a finalizer.
async fn play(objects: &Api<DynamicObject>, script: &Mutex<Script>) {
    loop {
        let all = objects.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        for object in all {
            let name = object.metadata.name.clone().unwrap_or_default();
            let next = next(object, &mut script.lock());
            if let Some(object) = next {
                // It conflicts with another writer now and then, and is done again.
                let _ = objects.replace(&name, &PostParams::default(), &object).await;
            }
        }
        sleep(INTERVAL).await;
    }
}

/// What the controller makes of an object, if anything.
fn next(mut object: DynamicObject, script: &mut Script) -> Option<DynamicObject> {
    let had = object.clone();
    let finalizers = object.metadata.finalizers.get_or_insert_default();
    let last = |ip: &Value| ip.as_str()?.rsplit('.').next()?.parse::<u8>().ok();
    let has = object.data["status"]["allocatedAddress"]["ip"].clone();
    if script.is_paused {
        return None;
    }
    if object.metadata.deletion_timestamp.is_some() {
        if script.keeps_deleted || !finalizers.iter().any(|one| one == FINALIZER) {
            return None;
        }
        finalizers.retain(|one| one != FINALIZER);
        last(&has).map(|number| script.given.remove(&number));
        return Some(object);
    }
    if !finalizers.iter().any(|one| one == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    let is_dhcp = object.data["spec"]["ipam"] == "dhcp";
    if let Some(message) = script.trouble {
        object.data["status"]["conditions"] =
            json!([{"type": "Ready", "status": "False", "message": message}]);
    } else if last(&has).is_none() {
        let free = (1..=250).find(|number| !script.given.contains(number))?;
        let ip = if is_dhcp { "0.0.0.0".to_owned() } else { format!("192.0.2.{free}") };
        if !is_dhcp {
            script.given.insert(free);
        }
        let pool = if is_dhcp { "" } else { "main" };
        object.data["status"]["allocatedAddress"] = json!({"ip": ip, "ipPool": pool});
        object.data["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    }
    (object.data != had.data || object.metadata.finalizers != had.metadata.finalizers).then_some(object)
}
