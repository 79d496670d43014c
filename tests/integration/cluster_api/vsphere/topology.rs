//! The `ClusterClass` of Cluster API Provider vSphere (CAPV), and a cluster of it: Cluster API's own managers make the objects of our kinds
//! from its templates and patches, and the daemon makes the first machine.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{ClusterApiManager, built};
use tokio::time::timeout;

use super::{
    LIMIT, PATIENCE,
    datacenter::Datacenter,
    shipped::{ENDPOINT, SYSTEM, daemon, variables},
};
use crate::{
    cluster_api::{
        clusterctl::{Tool, said},
        management::{Management, apply, nothing_was_refused},
        objects::{Objects, condition, is, name},
        shipped::shipped,
        workload::VERSION,
    },
    support::tail,
    trial::{Outcome, runtime},
};

/// The name of the class.
const CLASS: &str = "lab";

/// A policy that the simulator has.
const POLICY: &str = "vSAN Default Storage Policy";

pub(super) fn whole() -> Outcome {
    let datacenter = Datacenter::start("")?;
    let tool = Tool::with_provider("vsphere", &repository()?)?;
    let config = BASE64_STANDARD.encode(fs::read(datacenter.config()).context("the configuration")?);
    let variables = [("VSPHERE_CONFIG_B64", config), ("CLUSTER_TOPOLOGY", "true".to_owned())];
    let management = tool.install(&ClusterApiManager::ALL, &variables)?;
    let folder = TempDir::new().context("a folder")?;
    let daemon = daemon(&management.control_plane, &datacenter, &folder.path().join("daemon.log"))?;
    let outcome = runtime(false)?.block_on(async {
        let objects = Objects::new(management.client().await?, "default").on("VSphere", PATIENCE);
        let cluster = cluster(&tool, &management, &datacenter, &objects);
        timeout(LIMIT, cluster).await.with_context(|| format!("not done within {LIMIT:?}"))?
    });
    outcome
        .with_context(|| {
            format!("the core said: {}", tail(&management.managers.log(ClusterApiManager::Core)))
        })
        .with_context(|| format!("the daemon said: {}", tail(&daemon.log())))?;
    daemon.terminate()?;
    Ok(nothing_was_refused(&management.control_plane, SYSTEM)?)
}

/// Our provider, with CAPV's templates under the names that `clusterctl` looks for.
fn repository() -> anyhow::Result<Vec<(String, String)>> {
    let templates = built("capv").map_err(|error| anyhow::anyhow!("{error}"))?.join("templates");
    let mut files = shipped("vsphere")?;
    for (theirs, here) in [
        ("cluster-template-topology.yaml", "cluster-template-topology.yaml".to_owned()),
        ("clusterclass-template.yaml", format!("clusterclass-{CLASS}.yaml")),
    ] {
        files.push((here, fs::read_to_string(templates.join(theirs))?));
    }
    Ok(files)
}

/// The class and the cluster, with our values, as one list.
fn generated(tool: &Tool, management: &Management, datacenter: &Datacenter) -> anyhow::Result<String> {
    let version = format!("--kubernetes-version={VERSION}");
    let arguments = [
        "generate",
        "cluster",
        "prod",
        "--flavor=topology",
        "--target-namespace=default",
        "--control-plane-machine-count=1",
        "--worker-machine-count=1",
        &version,
    ];
    let mut command = tool.command(management.control_plane.kubeconfig(), &arguments);
    command.envs(variables(datacenter)?).envs([
        ("CLUSTER_CLASS_NAME", CLASS),
        ("CPI_IMAGE_K8S_VERSION", VERSION),
        ("VSPHERE_DATACENTER", "DC0"),
        ("VSPHERE_DATASTORE", "LocalDS_0"),
        ("VSPHERE_FOLDER", "/DC0/vm"),
        ("VSPHERE_STORAGE_POLICY", POLICY),
    ]);
    let text = said(&arguments, &command.output()?)?;
    ensure!(!text.contains("${"), "{text}");
    let objects = text.split("\n---\n").map(serde_saphyr::from_str);
    let mut objects: Vec<Value> = objects.collect::<Result<_, _>>()?;
    let class = objects.iter_mut().find(|one| one["kind"] == "ClusterClass").context("a ClusterClass")?;
    without_empty_files(class)?;
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())
}

/// Takes out of the class what Cluster API 1.14 refuses: an empty list of files for the workers. Files of the control plane are added by
/// another patch.
fn without_empty_files(class: &mut Value) -> anyhow::Result<()> {
    let patches = class["spec"]["patches"].as_array_mut().context("patches")?;
    let patch = patches.iter_mut().find(|one| one["name"] == "createEmptyArrays").context("a patch")?;
    let definitions = patch["definitions"].as_array_mut().context("definitions")?;
    let before = definitions.len();
    definitions.retain(|one| one["selector"]["kind"] != "KubeadmConfigTemplate");
    ensure!(definitions.len() + 1 == before, "{definitions:?}");
    Ok(())
}

async fn cluster(
    tool: &Tool,
    management: &Management,
    datacenter: &Datacenter,
    objects: &Objects,
) -> anyhow::Result<()> {
    let text = generated(tool, management, datacenter)?;
    apply(&management.control_plane, "cluster.json", &text)?;
    let is_reconciled = |one: &Value| is(one, "TopologyReconciled", "True");
    let cluster = objects.becomes("Cluster", "prod", "with its topology", is_reconciled).await?;

    // What the patches of the class say.
    let infrastructure = cluster["spec"]["infrastructureRef"]["name"].as_str().unwrap_or_default();
    let patched =
        objects.becomes("VSphereCluster", infrastructure, "ready", |one| is(one, "Ready", "True")).await?;
    let vcsim = &datacenter.vcsim;
    let spec = &patched["spec"];
    ensure!(spec["server"] == format!("127.0.0.1:{}", vcsim.port()), "{patched}");
    ensure!(spec["thumbprint"] == vcsim.thumbprint("sha1")?, "{patched}");
    ensure!(spec["identityRef"] == json!({"kind": "Secret", "name": "prod"}), "{patched}");
    ensure!(spec["controlPlaneEndpoint"] == json!({"host": ENDPOINT, "port": 6443}), "{patched}");

    let templates = templates_of_topology(objects).await?;
    ensure!(templates.len() == 2, "one for the control plane, one for the workers: {templates:?}");
    first_machine(datacenter, objects).await?;

    // Nothing is different on a second look, which would make other templates and other machines.
    let cluster = objects.get("Cluster", "prod").await?.context("a Cluster")?;
    ensure!(is_reconciled(&cluster), "{cluster}");
    let after = templates_of_topology(objects).await?;
    ensure!(after == templates, "{templates:?} became {after:?}");

    objects.delete("Cluster", "prod").await?;
    objects.vanishes("Cluster", "prod").await?;
    objects.none_are_left(&["VSphereMachine", "VSphereVM", "VSphereCluster"]).await?;
    datacenter.is_empty()
}

/// The names of the templates that were made for the cluster.
async fn templates_of_topology(objects: &Objects) -> anyhow::Result<BTreeSet<String>> {
    let mut all = objects.list("VSphereMachineTemplate").await?;
    all.retain(|one| one["metadata"]["labels"].get("topology.cluster.x-k8s.io/owned").is_some());
    Ok(all.iter().map(|one| name(one).to_owned()).collect())
}

/// The control plane's machine is cloned. That of the workers waits for the control plane.
async fn first_machine(datacenter: &Datacenter, objects: &Objects) -> anyhow::Result<()> {
    let is_first = |one: &Value| one["metadata"]["labels"].get("cluster.x-k8s.io/control-plane").is_some();
    let is_provisioned = |one: &Value| one["status"]["initialization"]["provisioned"] == true;
    let waits = |one: &Value| condition(one, "Ready")["reason"] == "WaitingForBootstrapData";
    let all = objects
        .all_become("VSphereMachine", "taken up", |all| {
            all.len() == 2
                && all.iter().filter(|one| is_first(one)).count() == 1
                && all.iter().all(|one| if is_first(one) { is_provisioned(one) } else { waits(one) })
        })
        .await?;
    let first = all.iter().find(|one| is_first(one)).context("a machine of the control plane")?;
    let machines = datacenter.machines()?;
    let vm = machines.get(name(first)).with_context(|| format!("{machines:?}"))?;
    ensure!(machines.len() == 1, "{machines:?}");
    ensure!(first["spec"]["providerID"] == format!("vsphere://{}", vm.uuid), "{first}");
    // The class asks for linked clones, and the template has no snapshot.
    ensure!(condition(first, "ClonedAsSpecified")["reason"] == "NoSnapshot", "{first}");
    Ok(())
}
