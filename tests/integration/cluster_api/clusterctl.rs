//! `clusterctl` installs our provider from a repository of files, makes a cluster from its template, shows it, and moves it
//! to another management cluster with its machines running.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context, ensure};
use ccm::{
    manifests::{ManifestOptions, clusterctl_metadata},
    yaml,
};
use cloudprovider::{
    DynMachines, MachineTypes,
    testing::{FakeCloud, Operation},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{
    ClusterApi, ClusterApiManager, ClusterApiPrograms, ControlPlane, ControlPlaneOptions, StartError,
};
use tokio::time::{sleep, timeout};

use super::{
    installed::printed,
    kubelets::Kubelets,
    management::{HOSTED_CONTROL_PLANES, MANAGERS, Management, apply, nothing_was_refused},
    objects::{Objects, is, name},
    workload::VERSION,
};
use crate::{
    api,
    daemon::InProcess,
    scenarios::Trials,
    support::eventually,
    trial::{LIMIT, Outcome, runtime},
};

/// The version under which the repository has our provider.
const OURS: &str = "v0.1.0";

/// The registry from which the configuration takes our image.
pub(super) const REGISTRY: &str = "registry.example.org/me";

/// The namespace of the daemon in the components.
const SYSTEM: &str = "fake-infrastructure-system";

/// Calls that change something in the cloud.
const CHANGES: [Operation; 8] = [
    Operation::CreateDisk,
    Operation::CreateMachine,
    Operation::PowerOn,
    Operation::PowerOff,
    Operation::DestroyMachine,
    Operation::DeleteDisk,
    Operation::CreateEndpoint,
    Operation::DeleteEndpoint,
];

/// A template of clusters for the fake cloud. `CPUS` is the difference between its flavours.
const TEMPLATE: &str = "
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: '${CLUSTER_NAME}', namespace: '${NAMESPACE}'}
spec:
  controlPlaneEndpoint: {host: '${CONTROL_PLANE_HOST}', port: ${CONTROL_PLANE_PORT:=6443}}
  controlPlaneRef:
    {apiGroup: controlplane.cluster.x-k8s.io, kind: HostedControlPlane, name: '${CLUSTER_NAME}'}
  infrastructureRef:
    {apiGroup: infrastructure.cluster.x-k8s.io, kind: FakeCluster, name: '${CLUSTER_NAME}'}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: FakeCluster
metadata: {name: '${CLUSTER_NAME}', namespace: '${NAMESPACE}'}
spec: {failureDomains: [rack-a]}
---
apiVersion: controlplane.cluster.x-k8s.io/v1alpha1
kind: HostedControlPlane
metadata: {name: '${CLUSTER_NAME}', namespace: '${NAMESPACE}'}
spec: {version: '${KUBERNETES_VERSION}'}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: FakeMachineTemplate
metadata: {name: '${CLUSTER_NAME}-workers', namespace: '${NAMESPACE}'}
spec: {template: {spec: {cpus: CPUS}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: '${CLUSTER_NAME}-workers', namespace: '${NAMESPACE}'}
spec:
  template:
    spec:
      joinConfiguration:
        nodeRegistration: {kubeletExtraArgs: [{name: cloud-provider, value: external}]}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: '${CLUSTER_NAME}-workers', namespace: '${NAMESPACE}'}
spec:
  clusterName: '${CLUSTER_NAME}'
  replicas: ${WORKER_MACHINE_COUNT}
  template:
    spec:
      clusterName: '${CLUSTER_NAME}'
      version: '${KUBERNETES_VERSION}'
      bootstrap:
        configRef:
          apiGroup: bootstrap.cluster.x-k8s.io
          kind: KubeadmConfigTemplate
          name: '${CLUSTER_NAME}-workers'
      infrastructureRef:
        apiGroup: infrastructure.cluster.x-k8s.io
        kind: FakeMachineTemplate
        name: '${CLUSTER_NAME}-workers'
";

/// `metadata.yaml` beside the lifecycle controllers' components.
const LIFECYCLE_METADATA: &str = "
apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3
kind: Metadata
releaseSeries:
  - {major: 1, minor: 14, contract: v1beta2}
";

pub(super) fn trials() -> Trials {
    Trials::new().trial("cluster_api::clusterctl", moves)
}

fn moves() -> Outcome {
    let tool = Tool::new()?;
    let source = tool.install(&MANAGERS, &[])?;
    let target = tool.install(&MANAGERS, &[])?;
    Ok(runtime(false)?.block_on(async {
        let outcome = timeout(LIMIT, whole(&tool, &source, &target)).await;
        outcome.with_context(|| format!("not done within {LIMIT:?}"))?
    })?)
}

/// `clusterctl` with its configuration, which names repositories of files and nothing in the network.
pub(crate) struct Tool {
    program: PathBuf,
    /// The name of the infrastructure provider.
    provider: String,
    folder: TempDir,
}

impl Tool {
    pub(crate) fn new() -> Result<Self, StartError> {
        Self::with_provider("fake", &Self::fake_provider()?)
    }

    /// The files of the fake cloud's repository.
    fn fake_provider() -> anyhow::Result<Vec<(String, String)>> {
        let options = ManifestOptions::for_clusterctl("fake", types());
        let components =
            options.clusterctl_components().map_err(|faults| anyhow::anyhow!(faults.join("; ")))?;
        let files = [
            ("infrastructure-components.yaml", yaml::stream(&components)),
            ("metadata.yaml", clusterctl_metadata()),
            ("cluster-template.yaml", TEMPLATE.replace("CPUS", "2")),
            ("cluster-template-big.yaml", TEMPLATE.replace("CPUS", "8")),
        ];
        Ok(files.map(|(name, text)| (name.to_owned(), text)).to_vec())
    }

    /// With an infrastructure provider whose repository has these files.
    pub(super) fn with_provider(name: &str, files: &[(String, String)]) -> Result<Self, StartError> {
        let folder = tempfile::tempdir()?;
        let programs = ClusterApiPrograms::find()?;
        let mut providers = vec![repository(
            folder.path(),
            ("InfrastructureProvider", name),
            OURS,
            "infrastructure-components.yaml",
            files,
        )?];
        for (manager, name, kind) in [
            (ClusterApiManager::Core, "cluster-api", "CoreProvider"),
            (ClusterApiManager::KubeadmBootstrap, "kubeadm", "BootstrapProvider"),
            (ClusterApiManager::KubeadmControlPlane, "kubeadm", "ControlPlaneProvider"),
        ] {
            let url = programs.components(manager)?;
            providers.push(json!({"name": name, "type": kind, "url": url}));
        }
        Self::with_providers(name, &providers, folder)
    }

    /// The fake cloud, with the lifecycle controllers as core and as bootstrap provider. The release of Cluster API whose kinds they
    /// serve is their version.
    pub(crate) fn with_lifecycle() -> Result<Self, StartError> {
        let folder = tempfile::tempdir()?;
        let version = ClusterApiPrograms::find()?.version()?;
        let metadata = LIFECYCLE_METADATA.to_owned();
        let mut providers = vec![repository(
            folder.path(),
            ("InfrastructureProvider", "fake"),
            OURS,
            "infrastructure-components.yaml",
            &Self::fake_provider()?,
        )?];
        for (part, kind, name, file) in [
            ("lifecycle-core", "CoreProvider", "cluster-api", "core-components.yaml"),
            ("lifecycle-bootstrap", "BootstrapProvider", "kubeadm", "bootstrap-components.yaml"),
        ] {
            let set = format!("--set=controllers={part}");
            let components = printed(&["manifests", "--lifecycle", "--for-clusterctl", &set])?;
            let files = [(file.to_owned(), components), ("metadata.yaml".to_owned(), metadata.clone())];
            providers.push(repository(folder.path(), (kind, name), &version, file, &files)?);
        }
        Self::with_providers("fake", &providers, folder)
    }

    /// `provider` is the infrastructure provider's name.
    fn with_providers(provider: &str, providers: &[Value], folder: TempDir) -> Result<Self, StartError> {
        let images = json!({format!("infrastructure-{provider}"): {"repository": REGISTRY}});
        let config = json!({"providers": providers, "images": images});
        // JSON is YAML
        fs::write(folder.path().join("clusterctl.yaml"), config.to_string())?;
        let program = ClusterApiPrograms::find()?.clusterctl();
        Ok(Self { program, provider: provider.to_owned(), folder })
    }

    /// A new management cluster that `clusterctl init` makes with these variables, and with a kind of control planes that run
    /// elsewhere. What would run its Deployments, runs these managers.
    pub(super) fn install(
        &self,
        managers: &[ClusterApiManager],
        variables: &[(&str, String)],
    ) -> Result<Management, StartError> {
        let control_plane = self.init(variables, &[])?;
        let managers = ClusterApi::start_installed(&control_plane, managers)?;
        Ok(Management { control_plane, managers })
    }

    /// The same without managers, and with further arguments of `clusterctl init`.
    pub(crate) fn init(
        &self,
        variables: &[(&str, String)],
        more: &[&str],
    ) -> Result<ControlPlane, StartError> {
        let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
        // clusterctl installs cert-manager unless its kinds are served
        let cert_manager = fs::read_to_string(ClusterApiPrograms::cert_manager())?;
        apply(&control_plane, "cert-manager.yaml", &cert_manager)?;
        let ours = format!("infrastructure-{}", self.provider);
        let infrastructure = format!("--infrastructure={}", self.provider);
        let init = [&["init", infrastructure.as_str()], more].concat();
        let mut command = self.command(control_plane.kubeconfig(), &init);
        let output = command.envs(variables.iter().map(|(name, value)| (*name, value))).output()?;
        said(&init, &output)?;
        let words = String::from_utf8_lossy(&output.stderr);
        if !words.contains(&ours) {
            return Err(anyhow::anyhow!("clusterctl init did not install the provider: {words}").into());
        }
        apply(&control_plane, "control-planes.yaml", HOSTED_CONTROL_PLANES)?;
        Ok(control_plane)
    }

    pub(crate) fn command(&self, kubeconfig: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .arg(format!("--config={}", self.folder.path().join("clusterctl.yaml").display()))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .env("HOME", self.folder.path())
            .env("XDG_CONFIG_HOME", self.folder.path())
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
            .env("GOPROXY", "off")
            .env("FAKE_CONFIG_B64", "e30=");
        command
    }

    /// Runs it and returns what it prints.
    pub(crate) fn run(&self, kubeconfig: &Path, arguments: &[&str]) -> anyhow::Result<String> {
        said(arguments, &self.command(kubeconfig, arguments).output()?)
    }
}

/// Writes the repository of a provider into a folder. Returns what the configuration says of it.
fn repository(
    folder: &Path,
    (kind, name): (&str, &str),
    version: &str,
    components: &str,
    files: &[(String, String)],
) -> anyhow::Result<Value> {
    // The folder of a repository has to be called so.
    let label = match kind {
        "InfrastructureProvider" => format!("infrastructure-{name}"),
        "BootstrapProvider" => format!("bootstrap-{name}"),
        _ => name.to_owned(),
    };
    let repository = folder.join(label).join(version);
    fs::create_dir_all(&repository)?;
    for (file, text) in files {
        fs::write(repository.join(file), text)?;
    }
    Ok(json!({"name": name, "type": kind, "url": repository.join(components)}))
}

/// What it printed, if it was successful.
pub(crate) fn said(arguments: &[&str], output: &Output) -> anyhow::Result<String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "clusterctl {}: {errors}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The machines of the fake cloud, as a binary registers them.
fn types() -> MachineTypes {
    let provider = FakeCloud::new().with_machines().provider();
    let kinds = provider.machines().map(DynMachines::kinds).expect("machines");
    let schemas = || {
        let provider = FakeCloud::new().with_machines().provider();
        provider.machines().map(DynMachines::schemas).expect("machines")
    };
    MachineTypes::new(kinds, schemas)
}

/// The daemon that the components have, with their service account and their roles.
pub(crate) async fn daemon(control_plane: &ControlPlane, cloud: &FakeCloud) -> anyhow::Result<InProcess> {
    let account = "cloud-controller-manager-fake";
    let kubeconfig = control_plane.kubeconfig_for_service_account(SYSTEM, account)?;
    let flags = ["--controllers=machine-controller"];
    InProcess::start(&api::client(&kubeconfig).await?, cloud.provider(), &flags)
}

impl Management {
    async fn objects(&self) -> anyhow::Result<Objects> {
        Ok(Objects::new(self.client().await?, "default"))
    }
}

async fn whole(tool: &Tool, source: &Management, target: &Management) -> anyhow::Result<()> {
    let cloud = FakeCloud::new().with_machines();
    let (at_source, at_target) = (source.objects().await?, target.objects().await?);
    let kubeconfig = source.control_plane.kubeconfig();

    // The workload cluster has an API server of its own, which both management clusters reach.
    let workload = ControlPlane::start(&ControlPlaneOptions::default()).map_err(anyhow::Error::from)?;
    source.managers.reach(&workload)?;
    target.managers.reach(&workload)?;
    let nodes = api::client(workload.kubeconfig()).await?;
    let ccm = InProcess::start(&nodes, cloud.provider(), &["--controllers=cloud-node-controller"])?;
    let _kubelets = Kubelets::start(&nodes, &cloud);

    let first = daemon(&source.control_plane, &cloud).await?;
    generate(tool, &source.control_plane, &workload)?;
    at_source.apply_secrets("prod", &workload).await?;
    at_source.control_plane_is_there("prod", VERSION).await?;
    let machines = running(&at_source).await?;
    let before = identities(&at_source).await?;
    let objects = cloud.objects();

    let described = tool.run(
        kubeconfig,
        &["describe", "cluster", "prod", "--show-conditions=all", "--echo", "--grouping=false"],
    )?;
    for kind in ["Cluster", "FakeCluster", "MachineDeployment", "FakeMachine"] {
        let words = format!("{kind} default/prod");
        ensure!(described.contains(&words), "{words} is not in {described}");
    }

    // A block holds the move, and the machines are not touched meanwhile or afterwards.
    cloud.forget_calls();
    let next = daemon(&target.control_plane, &cloud).await?;
    let block = |value: Value| json!({"metadata": {"annotations": {"clusterctl.cluster.x-k8s.io/block-move": value}}});
    let one = machines.first().context("a machine")?;
    at_source.merge("FakeMachine", one, block("a person".into())).await?;
    let to = format!("--to-kubeconfig={}", target.control_plane.kubeconfig().display());
    let arguments = ["move", "--namespace=default", to.as_str()];
    let log = fs::File::create(tool.folder.path().join("move.log"))?;
    let mut moving = tool.command(kubeconfig, &arguments).stdout(log.try_clone()?).stderr(log).spawn()?;
    let words = || fs::read_to_string(tool.folder.path().join("move.log"));
    eventually(Duration::from_secs(60), "the move waits for the block", || async {
        Ok(words()?.contains("Move blocked").then_some(()))
    })
    .await?;
    sleep(Duration::from_secs(2)).await;
    ensure!(at_target.list("Cluster").await?.is_empty(), "it moved in spite of the block");
    at_source.merge("FakeMachine", one, block(Value::Null)).await?;
    let ended = eventually(Duration::from_secs(120), "the move ends", || {
        let ended = moving.try_wait();
        async move { Ok(ended?) }
    })
    .await?;
    ensure!(ended.success(), "{}", words()?);

    at_target.control_plane_is_there("prod", VERSION).await?;
    ensure!(running(&at_target).await? == machines, "other machines");
    ensure!(identities(&at_target).await? == before, "other provider IDs");
    for kind in ["Cluster", "Machine", "FakeMachine", "FakeCluster"] {
        let left = at_source.list(kind).await?;
        ensure!(left.is_empty(), "{kind}: {left:?}");
    }
    nothing_was_changed(&cloud)?;
    ensure!(cloud.objects() == objects, "{:?}", cloud.objects());

    // The new management cluster is in charge.
    at_target.delete("Cluster", "prod").await?;
    at_target.vanishes("Cluster", "prod").await?;
    ensure!(cloud.objects().is_empty(), "{:?}", cloud.objects());
    for daemon in [first, next, ccm] {
        daemon.stop().await?;
    }
    nothing_was_refused(&source.control_plane, SYSTEM)?;
    nothing_was_refused(&target.control_plane, SYSTEM)
}

/// That no call has changed the cloud since the calls were forgotten.
pub(crate) fn nothing_was_changed(cloud: &FakeCloud) -> anyhow::Result<()> {
    for change in CHANGES {
        ensure!(cloud.count(change) == 0, "{change:?} in the cloud");
    }
    Ok(())
}

/// Makes a cluster from the template, and looks at another flavour.
pub(crate) fn generate(tool: &Tool, source: &ControlPlane, workload: &ControlPlane) -> anyhow::Result<()> {
    let kubeconfig = source.kubeconfig();
    let version = format!("--kubernetes-version={VERSION}");
    let arguments =
        ["generate", "cluster", "prod", "--target-namespace=default", "--worker-machine-count=2", &version];
    let rendered = |more: &[&str]| {
        let arguments = [&arguments, more].concat();
        let mut command = tool.command(kubeconfig, &arguments);
        command.env("CONTROL_PLANE_HOST", "127.0.0.1").env("CONTROL_PLANE_PORT", workload.port().to_string());
        said(&arguments, &command.output()?)
    };
    let big = rendered(&["--flavor=big"])?;
    ensure!(big.contains("cpus: 8"), "{big}");
    let text = rendered(&[])?;
    ensure!(text.contains("cpus: 2") && text.contains("replicas: 2") && !text.contains("${"), "{text}");
    apply(source, "cluster.yaml", &text)
}

/// Waits until both machines run. Returns their names.
pub(crate) async fn running(objects: &Objects) -> anyhow::Result<Vec<String>> {
    let run = |one: &Value| one["status"]["phase"] == "Running" && is(one, "InfrastructureReady", "True");
    let machines =
        objects.all_become("Machine", "running", |all| all.len() == 2 && all.iter().all(run)).await?;
    Ok(machines.iter().map(|one| name(one).to_owned()).collect())
}

/// The provider ID of each machine, and the UID that its object had first.
pub(crate) async fn identities(objects: &Objects) -> anyhow::Result<Vec<(Value, Value)>> {
    let machines = objects.list("FakeMachine").await?;
    let uid = |one: &Value| one["metadata"]["annotations"]["infrastructure.cluster.x-k8s.io/uid"].clone();
    Ok(machines.iter().map(|one| (one["spec"]["providerID"].clone(), uid(one))).collect())
}
