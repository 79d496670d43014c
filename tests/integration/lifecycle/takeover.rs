//! A cluster that Cluster API's managers made is taken over as the guide says, given back, and taken over once more: nothing is made
//! anew, and our controllers write no object more than twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::{Value, json};
use test_env::{
    Accepted, ClusterApi, ClusterApiManager, ClusterApiPrograms, ControlPlane, ControlPlaneOptions, PATIENCE,
};
use tokio::time::{Instant, sleep, timeout};

use super::site::{Lifecycle, Site, list, own_definitions};
use crate::{
    api,
    cluster_api::{
        kubelets::Kubelets,
        life::Life,
        lifecycle::Cloud,
        management::{
            HOSTED_CONTROL_PLANES, MANAGERS, apply, apply_kinds_of_the_fake_cloud, nothing_was_refused,
        },
        objects::{Objects, is, name},
    },
    daemon::{InProcess, LONG_TERM},
    fake_cloud::FakeCloud,
    shipped_roles,
    support::{eventually, nodes, tail},
    trial::{LIMIT, Outcome, runtime},
};

const NAMESPACE: &str = "takeover";

/// The account with which all controllers reach the workload cluster, and its name in the audit log.
const ACCOUNT: &str = "workload";
const WORKLOAD_USER: &str = "system:serviceaccount:default:workload";

/// Both roles of the daemon of the machines, with short times.
const FLAGS: [&str; 5] = [
    "--controllers=cloud-node-controller,cloud-node-lifecycle-controller,machine-controller",
    "--namespace=takeover",
    "--node-monitor-period=500ms",
    "--node-deletion-grace-period=1s",
    "--node-deletion-minimum-age=0s",
];

/// The Leases of the managers.
const LEASES: [(&str, &str); 2] = [
    ("capi-system", "controller-leader-election-capi"),
    ("capi-kubeadm-bootstrap-system", "kubeadm-bootstrap-manager-leader-election-capi"),
];

/// What there is of the cluster, beside its Nodes.
const KINDS: [&str; 14] = [
    "Cluster",
    "MachineDeployment",
    "MachineSet",
    "Machine",
    "KubeadmConfig",
    "KubeadmConfigTemplate",
    "ClusterResourceSet",
    "ClusterResourceSetBinding",
    "HostedControlPlane",
    "FakeCluster",
    "FakeMachine",
    "FakeMachineTemplate",
    "Secret",
    "ConfigMap",
];

/// So often our controllers may write an object that they take over.
const MOST: usize = 2;

/// Our controllers have settled when they write nothing for so long: a change of words alone waits for 10 s.
const OURS_ARE_QUIET: Duration = Duration::from_secs(12);

/// The managers have settled when they write nothing for so long.
const MANAGERS_ARE_QUIET: Duration = Duration::from_secs(4);

/// A health check of no machine. Controllers that have handled its last change work.
const MARKER: &str = "marker";

pub(super) fn there_and_back() -> Outcome {
    let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
    let managers = ClusterApi::start_elected(&control_plane, &MANAGERS)?;
    apply(&control_plane, "control-planes.yaml", HOSTED_CONTROL_PLANES)?;
    apply_kinds_of_the_fake_cloud(&control_plane)?;
    control_plane.kubectl_output(&["create", "namespace", NAMESPACE])?;
    control_plane.kubectl_output(&["create", "serviceaccount", ACCOUNT])?;
    let role = ["--clusterrole=cluster-admin", "--serviceaccount=default:workload"];
    control_plane.kubectl_output(&[&["create", "clusterrolebinding", ACCOUNT], &role[..]].concat())?;
    let token = control_plane.kubectl_output(&["create", "token", ACCOUNT, "--duration=24h"])?;
    let site = Site::on(control_plane)?;
    let mut takeover = Takeover { site: &site, managers: Some(managers), ours: None };
    let outcome = runtime(false)?.block_on(async {
        let client = api::client(site.control_plane.kubeconfig()).await?;
        let objects =
            Objects::new(client, NAMESPACE).on("Fake", PATIENCE).reached_with(token.trim().to_owned());
        timeout(LIMIT, takeover.story(&objects))
            .await
            .with_context(|| format!("not done within {LIMIT:?}"))?
    });
    outcome.with_context(|| {
        let managers = takeover.managers.as_ref();
        let logs = managers.map(|managers| MANAGERS.map(|manager| managers.log(manager)).join("\n"));
        let daemon = fs::read_to_string(site.log()).unwrap_or_default();
        format!("the managers said: {}\nthe daemon said: {}", tail(&logs.unwrap_or_default()), tail(&daemon))
    })?;
    Ok(nothing_was_refused(&site.control_plane, shipped_roles::USER)?)
}

struct Takeover<'s> {
    site: &'s Site,
    managers: Option<ClusterApi>,
    ours: Option<Lifecycle>,
}

impl Takeover<'_> {
    async fn story(&mut self, objects: &Objects) -> Result<()> {
        let cloud = FakeCloud::new().with_machines();
        let machines = InProcess::start(&objects.client, cloud.provider(), &FLAGS)?;
        let _kubelets = Kubelets::start(&objects.client, &cloud);
        let domains = json!({"spec": {"failureDomains": ["rack-a", "rack-b"]}});
        objects.apply_cluster("prod", &self.site.control_plane, domains).await?;
        let infrastructure = Cloud(cloud.clone());
        let life = Life::new(objects, &infrastructure);
        let made = life.begins(3, &json!({"cpus": 2})).await?;
        life.is_watched().await?;
        apply_addon(objects).await?;
        self.is_handled(objects, 1).await?;
        self.are_quiet(&MANAGERS.map(ClusterApiManager::user), MANAGERS_ARE_QUIET).await?;
        life.note("Cluster API's managers have made a cluster");

        self.takes_over(objects, 2).await?;
        life.note("it is taken over");
        self.gives_back(objects, 3).await?;
        life.note("it is given back");
        self.takes_over(objects, 4).await?;
        ensure!(life.running(3).await? == made, "other machines");
        life.note("it is taken over again");

        let left = life.is_scaled(&made, 2).await?;
        let rolled = life.is_rolled(&left, &json!({"cpus": 4}), "cpus").await?;
        life.ends(&["FakeMachine", "FakeCluster"], &rolled).await?;
        self.ours.take().context("our daemon")?.process.terminate()?;
        machines.stop().await
    }

    /// Our controllers work instead of the managers. The steps are those of the guide.
    async fn takes_over(&mut self, objects: &Objects, change: usize) -> Result<()> {
        let before = Seen::of(objects).await?;
        let ours = self.site.start_with(&LONG_TERM).await?;
        let position = self.site.control_plane.audit_position();
        self.managers = None;
        let kubectl = |arguments: &[&str]| self.site.control_plane.kubectl_output(arguments);
        for manager in MANAGERS {
            let label = format!("--selector=cluster.x-k8s.io/provider={}", manager.provider());
            let webhooks = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
            kubectl(&["delete", webhooks, &label])?;
        }
        self.replace(own_definitions()?)?;
        for (namespace, lease) in LEASES {
            kubectl(&["delete", "lease", lease, "--namespace", namespace])?;
        }
        eventually(PATIENCE, "both parts work", || async { Ok((ours.ready().await? == 200).then_some(())) })
            .await?;
        self.ours = Some(ours);
        self.is_handled(objects, change).await?;
        self.are_quiet(&[shipped_roles::USER.to_owned()], OURS_ARE_QUIET).await?;

        let writes = self.writes_after(position, &[shipped_roles::USER.to_owned()])?;
        println!("our writes: {}", summary(&writes));
        let after = Seen::of(objects).await?;
        let differences = after.differences(&before).join("\n");
        println!("what is different:\n{differences}");
        after.are_the_same(&before)?;
        let too_many: Vec<_> = writes.iter().filter(|(_, writes)| writes.len() > MOST).collect();
        ensure!(too_many.is_empty(), "{too_many:?}; what is different: {differences}");
        Ok(())
    }

    /// The managers work again, with their own definitions and webhooks.
    async fn gives_back(&mut self, objects: &Objects, change: usize) -> Result<()> {
        let before = Seen::of(objects).await?;
        self.ours.take().context("our daemon")?.process.terminate()?;
        let position = self.site.control_plane.audit_position();
        let programs = ClusterApiPrograms::find()?;
        for manager in MANAGERS {
            let file = programs.components(manager)?;
            // Those of kinds that are not ours lead to where the webhooks were.
            let text = fs::read_to_string(&file)?;
            let parsed = text.split("\n---\n").map(serde_saphyr::from_str);
            let mut definitions: Vec<Value> = parsed.collect::<Result<_, _>>()?;
            definitions.retain(|object| object["kind"] == "CustomResourceDefinition");
            self.replace(definitions)?;
            let file = file.display().to_string();
            let apply = ["apply", "--server-side", "--force-conflicts", "--filename", &file];
            self.site.control_plane.kubectl_output(&apply)?;
        }
        self.managers = Some(ClusterApi::start_elected(&self.site.control_plane, &MANAGERS)?);
        self.is_handled(objects, change).await?;
        let users = MANAGERS.map(ClusterApiManager::user);
        self.are_quiet(&users, MANAGERS_ARE_QUIET).await?;
        println!("the managers' writes: {}", summary(&self.writes_after(position, &users)?));
        let after = Seen::of(objects).await?;
        println!("what is different:\n{}", after.differences(&before).join("\n"));
        after.are_the_same(&before)
    }

    fn replace(&self, definitions: Vec<Value>) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("definitions.json");
        fs::write(&file, list(definitions))?;
        let file = file.display().to_string();
        self.site.control_plane.kubectl_output(&["replace", "--filename", &file]).map(drop)
    }

    /// Waits until those that work have handled a change.
    async fn is_handled(&self, objects: &Objects, change: usize) -> Result<()> {
        let spec = json!({
            "clusterName": "prod",
            "selector": {"matchLabels": {"none": "none"}},
            "checks": {
                "nodeStartupTimeoutSeconds": 600 + change,
                "unhealthyNodeConditions": [{"type": "Ready", "status": "Unknown", "timeoutSeconds": 600}],
            },
        });
        objects.apply("MachineHealthCheck", MARKER, json!({"spec": spec})).await?;
        let is_handled = |one: &Value| {
            one["spec"]["checks"]["nodeStartupTimeoutSeconds"] == 600 + change
                && one["status"]["observedGeneration"] == one["metadata"]["generation"]
        };
        objects.becomes("MachineHealthCheck", MARKER, "handled", is_handled).await.map(drop)
    }

    /// Waits until these users have written nothing for this time.
    async fn are_quiet(&self, users: &[String], time: Duration) -> Result<()> {
        let (mut last, mut since) = (self.writes_after(0, users)?, Instant::now());
        while since.elapsed() < time {
            sleep(Duration::from_secs(1)).await;
            let now = self.writes_after(0, users)?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// The writes of these users and of the account of the workload cluster, by object. Those of the marker do not count.
    fn writes_after(&self, position: u64, users: &[String]) -> Result<Writes> {
        let mut by_object = Writes::new();
        for write in self.site.control_plane.accepted_after(position)? {
            let Accepted { user, what, namespace, name, .. } = write;
            let resource = what.split([' ', '/']).nth(1).unwrap_or_default().to_owned();
            let is_of_cluster = namespace == NAMESPACE && users.contains(&user) || user == WORKLOAD_USER;
            if is_of_cluster && name != MARKER && resource != "events" {
                by_object.entry(format!("{resource} {name}")).or_default().push(what);
            }
        }
        Ok(by_object)
    }
}

/// The writes of each object.
type Writes = BTreeMap<String, Vec<String>>;

/// How many writes there were, and the objects with the most of each kind.
fn summary(writes: &Writes) -> String {
    let mut most = BTreeMap::<&str, (usize, usize)>::new();
    for (object, writes) in writes {
        let (all, highest) = most.entry(object.split(' ').next().unwrap_or_default()).or_default();
        *all += writes.len();
        *highest = writes.len().max(*highest);
    }
    let words = most.iter().map(|(resource, (all, highest))| format!("{resource} {all}, at most {highest}"));
    words.collect::<Vec<_>>().join("; ")
}

/// The objects of the cluster at a moment.
struct Seen {
    /// Those of [`KINDS`] and the Nodes, by kind and name.
    objects: BTreeMap<String, Value>,
}

impl Seen {
    async fn of(objects: &Objects) -> Result<Self> {
        let mut seen = BTreeMap::new();
        for kind in KINDS {
            for object in objects.list(kind).await? {
                seen.insert(format!("{kind} {}", name(&object)), object);
            }
        }
        for node in nodes(&objects.client).list(&ListParams::default()).await? {
            seen.insert(format!("Node {}", node.name_any()), serde_json::to_value(&node)?);
        }
        Ok(Self { objects: seen })
    }

    /// That none of them was replaced, and none was added.
    fn are_the_same(&self, before: &Self) -> Result<()> {
        let uids = |seen: &Self| -> BTreeMap<_, _> {
            let uid = |object: &Value| object["metadata"]["uid"].to_string();
            seen.objects.iter().map(|(key, object)| (key.clone(), uid(object))).collect()
        };
        let (now, before) = (uids(self), uids(before));
        ensure!(now == before, "{now:?}, before {before:?}");
        Ok(())
    }

    /// The fields that changed, with both values.
    fn differences(&self, before: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (key, object) in &self.objects {
            differences(before.objects.get(key).unwrap_or(&Value::Null), object, key, &mut found);
        }
        found
    }
}

fn differences(before: &Value, after: &Value, path: &str, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(one), Value::Object(other)) => {
            let fields: BTreeSet<_> = one.keys().chain(other.keys()).collect();
            for field in fields {
                if field != "managedFields" && field != "resourceVersion" {
                    differences(&before[field], &after[field], &format!("{path}.{field}"), found);
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                differences(one, other, &format!("{path}[{index}]"), found);
            }
        }
        _ if before != after => found.push(format!("{path}: {before} -> {after}")),
        _ => {}
    }
}

/// Something that every cluster gets.
async fn apply_addon(objects: &Objects) -> Result<()> {
    let content = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "of-addon", "namespace": "default"}, "data": {"key": "value"},
    });
    objects.apply("ConfigMap", "addon", json!({"data": {"addon.json": content.to_string()}})).await?;
    let spec = json!({
        "clusterSelector": {"matchLabels": {"addon": "yes"}},
        "resources": [{"kind": "ConfigMap", "name": "addon"}],
        "strategy": "Reconcile",
    });
    objects.apply("ClusterResourceSet", "addon", json!({"spec": spec})).await?;
    objects.merge("Cluster", "prod", json!({"metadata": {"labels": {"addon": "yes"}}})).await?;
    let is_applied = |one: &Value| is(one, "ResourcesApplied", "True");
    objects.becomes("ClusterResourceSet", "addon", "applied", is_applied).await.map(drop)
}
