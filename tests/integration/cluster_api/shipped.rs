//! What the repository ships for `clusterctl` and libvirt, file by file: clusters of every flavour are made, Cluster API's webhooks
//! and the API server accept them, and all controllers take them up.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use cloudprovider::CloudProvider;
use cloudprovider_libvirt::{Config, LibvirtProvider};
use serde_json::{Value, json};
use test_env::{ClusterApiManager, ControlPlane, ControlPlaneOptions, StartError};
use tokio::time::timeout;

use super::{
    clusterctl::{REGISTRY, Tool, said},
    management::{Management, apply, nothing_was_refused},
    objects::{Objects, condition, is, name, reference},
    workload::VERSION,
};
use crate::{
    api,
    daemon::{InProcess, binary},
    scenarios::Trials,
    support::eventually,
    trial::{LIMIT, Outcome, runtime},
};

/// The namespace of the daemon in the components.
pub(super) const SYSTEM: &str = "libvirt-infrastructure-system";

/// The account of the daemon there.
pub(super) const ACCOUNT: &str = "cloud-controller-manager-libvirt";

/// The label and the Secret of the shipped `ClusterResourceSet`.
const RESOURCE_SET: &str = "cloud-controller-manager-libvirt";

/// The address of the API servers of the clusters. Nobody is there.
const ENDPOINT: &str = "192.168.122.10";

/// A volume that the hypervisor has.
const VOLUME: &str = "kubernetes.qcow2";

/// A file of libvirt's test driver: a hypervisor with a pool and an image, on which no guest really runs.
const HYPERVISOR: &str = "<node>\
    <cpu><mhz>2000</mhz><model>x</model><active>16</active><nodes>1</nodes><sockets>1</sockets><cores>16</cores>\
    <threads>1</threads></cpu><memory>67108864</memory>\
    <network><name>default</name><ip address='192.168.122.1' netmask='255.255.255.0'>\
    <dhcp><range start='192.168.122.50' end='192.168.122.250'/></dhcp></ip></network>\
    <pool type='dir'><name>default</name><target><path>/default</path></target>\
    <volume type='file'><name>kubernetes.qcow2</name><capacity unit='GiB'>2</capacity>\
    <allocation unit='GiB'>1</allocation><target><path>/default/kubernetes.qcow2</path><format type='qcow2'/></target>\
    </volume></pool></node>";

/// A flavour, its variables without a default besides the version, and what else is set here.
struct Flavour {
    /// Empty for the default one.
    name: &'static str,
    required: &'static [(&'static str, &'static str)],
    /// The cluster whose workers these are. `None` if it makes a cluster of its own.
    of: Option<&'static str>,
    /// What the first machine of the control plane tells in the end.
    ends: &'static str,
}

const KEY: (&str, &str) = ("SSH_AUTHORIZED_KEY", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== me@home");
const IMAGE: (&str, &str) = ("LIBVIRT_IMAGE_VOLUME", VOLUME);
/// The test driver has no contents of volumes: an image cannot be looked at.
const NO_CONTENT: &str = "virStorageVolDownload";

const CHECKSUM: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// In the order in which they are tried.
const FLAVOURS: [Flavour; 5] = [
    Flavour {
        name: "",
        required: &[("CONTROL_PLANE_ENDPOINT_IP", ENDPOINT), IMAGE, KEY],
        of: None,
        ends: NO_CONTENT,
    },
    Flavour {
        name: "pool",
        required: &[("CONTROL_PLANE_ENDPOINT_ADDRESSES", ENDPOINT), IMAGE, KEY],
        of: None,
        ends: NO_CONTENT,
    },
    Flavour {
        name: "bridge",
        required: &[
            ("CONTROL_PLANE_ENDPOINT_IP", ENDPOINT),
            // The configuration does not allow it.
            ("LIBVIRT_IMAGE_URL", "http://127.0.0.1:9/kubernetes.qcow2"),
            ("LIBVIRT_IMAGE_CHECKSUM", CHECKSUM),
            KEY,
        ],
        of: None,
        ends: "http://127.0.0.1:9/kubernetes.qcow2: may not be reached from here",
    },
    Flavour {
        name: "ignition",
        required: &[("CONTROL_PLANE_ENDPOINT_IP", ENDPOINT), IMAGE, KEY],
        of: None,
        ends: NO_CONTENT,
    },
    Flavour {
        name: "workers",
        required: &[("WORKER_GROUP", "large"), IMAGE, KEY],
        of: Some("default"),
        ends: NO_CONTENT,
    },
];

impl Flavour {
    /// The name of the cluster that is tried with it.
    fn cluster(&self) -> &'static str {
        match (self.of, self.name) {
            (Some(cluster), _) => cluster,
            (None, "") => "default",
            (None, name) => name,
        }
    }

    /// The arguments of `clusterctl generate cluster`.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "generate".to_owned(),
            "cluster".to_owned(),
            self.cluster().to_owned(),
            "--target-namespace=default".to_owned(),
            format!("--kubernetes-version={VERSION}"),
            "--control-plane-machine-count=1".to_owned(),
            "--worker-machine-count=2".to_owned(),
        ];
        if !self.name.is_empty() {
            arguments.push(format!("--flavor={}", self.name));
        }
        arguments
    }
}

pub(super) fn trials() -> Trials {
    Trials::new()
        .trial("cluster_api::every_template_is_listed", || Ok(every_template_is_listed()?))
        .trial("cluster_api::clusters_of_every_flavour", every_flavour)
}

fn every_flavour() -> Outcome {
    let tool = Tool::with_provider("libvirt", &shipped("libvirt")?)?;
    let management = installed(&tool)?;
    Ok(runtime(false)?.block_on(async {
        let outcome = timeout(LIMIT, whole(&tool, &management)).await;
        outcome.with_context(|| format!("not done within {LIMIT:?}"))?
    })?)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files of the repository for `clusterctl` and this provider.
pub(super) fn shipped(provider: &str) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(repository().join("deploy/clusterctl").join(provider))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push((name, fs::read_to_string(entry.path())?));
    }
    Ok(files)
}

fn quick_start() -> anyhow::Result<String> {
    Ok(fs::read_to_string(repository().join("docs/tutorials/quick-start-machines.md"))?)
}

/// The objects that the quick start applies.
fn objects_of_quick_start() -> anyhow::Result<Vec<String>> {
    let page = quick_start()?;
    let blocks = page.split("    kubectl apply --filename - <<EOF\n").skip(1);
    let text = |block: &str| {
        let lines = block.lines().take_while(|line| line.trim() != "EOF");
        lines.filter_map(|line| line.strip_prefix("    ")).collect::<Vec<_>>().join("\n")
    };
    Ok(blocks.map(text).collect())
}

/// What is shipped is tried here, and named in the quick start.
fn every_template_is_listed() -> anyhow::Result<()> {
    let page = quick_start()?;
    for (file, text) in shipped("libvirt")? {
        let Some(flavour) = file.strip_prefix("cluster-template").and_then(|rest| rest.strip_suffix(".yaml"))
        else {
            continue;
        };
        let flavour = flavour.trim_start_matches('-');
        let tried = FLAVOURS.iter().find(|one| one.name == flavour);
        let tried = tried.with_context(|| format!("{file} is not tried"))?;
        ensure!(page.contains(&format!("`{file}`")), "the quick start does not name {file}");
        for (variable, _) in tried.required {
            ensure!(text.contains(&format!("\n#   {variable} ")), "{file} does not explain {variable}");
        }
    }
    Ok(())
}

/// A management cluster with all managers, and the image of the configuration.
fn installed(tool: &Tool) -> Result<Management, StartError> {
    let variables = [
        ("LIBVIRT_CONFIG_B64", BASE64_STANDARD.encode("hypervisors: []")),
        ("EXP_KUBEADM_BOOTSTRAP_FORMAT_IGNITION", "true".to_owned()),
    ];
    let management = tool.install(&ClusterApiManager::ALL, &variables)?;
    let of_deployment = ["get", "deployments", "--namespace", SYSTEM, "--output=jsonpath={..image}"];
    let image = management.control_plane.kubectl_output(&of_deployment)?;
    if !image.starts_with(&format!("{REGISTRY}/cloud-controller-manager:")) {
        return Err(anyhow::anyhow!("the image is {image}").into());
    }
    Ok(management)
}

async fn whole(tool: &Tool, management: &Management) -> anyhow::Result<()> {
    let Management { control_plane, managers } = management;
    let objects = Objects::new(api::client(control_plane.kubeconfig()).await?, "default");
    let hypervisor = tempfile::NamedTempFile::new()?;
    fs::write(hypervisor.path(), HYPERVISOR)?;
    let allow =
        "machines: {allow: [{namespaces: [default], imageVolumes: [{pool: default}], bridges: [br0]}]}\n";
    let config =
        format!("hypervisors: [{{name: kvm1, uri: 'test://{}'}}]\n{allow}", hypervisor.path().display());
    let provider: std::sync::Arc<dyn CloudProvider> =
        std::sync::Arc::new(LibvirtProvider::new(Config::parse(&config, None)?));
    let account = control_plane.kubeconfig_for_service_account(SYSTEM, ACCOUNT)?;
    let flags = ["--controllers=machine-controller"];
    let daemon = InProcess::start(&api::client(&account).await?, provider, &flags)?;

    for flavour in &FLAVOURS {
        accepted(tool, control_plane, flavour).with_context(|| format!("flavour {:?}", flavour.name))?;
    }
    for flavour in &FLAVOURS {
        let taken_up = taken_up(&objects, flavour).await;
        let taken_up = taken_up.with_context(|| managers.log(ClusterApiManager::KubeadmControlPlane));
        taken_up.with_context(|| format!("flavour {:?}", flavour.name))?;
    }
    let more = objects_of_quick_start()?;
    ensure!(!more.is_empty(), "the quick start applies nothing");
    for text in more {
        dry_run(control_plane, &text).with_context(|| text.clone())?;
    }
    described(tool, control_plane)?;
    bootstrap_data(&objects).await?;
    resource_set(management, &objects).await?;

    let clusters = FLAVOURS.iter().filter(|flavour| flavour.of.is_none()).map(Flavour::cluster);
    for cluster in clusters.clone() {
        objects.delete("Cluster", cluster).await?;
    }
    for cluster in clusters {
        objects.vanishes("Cluster", cluster).await?;
    }
    let left = objects.list("LibvirtMachine").await?;
    ensure!(left.is_empty(), "{left:?}");
    daemon.stop().await?;
    nothing_was_refused(&management.control_plane, SYSTEM)
}

/// The API server and the webhooks accept all objects, also in a dry run, without an unknown field.
fn accepted(tool: &Tool, control_plane: &ControlPlane, flavour: &Flavour) -> anyhow::Result<()> {
    variables(tool, control_plane, flavour)?;
    let text = generate(tool, control_plane, flavour)?;
    dry_run(control_plane, &text)?;
    apply(control_plane, "cluster.yaml", &text)
}

pub(super) fn dry_run(control_plane: &ControlPlane, text: &str) -> anyhow::Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), text)?;
    let file = file.path().display().to_string();
    let dry = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename", &file];
    control_plane.kubectl_output(&dry).map(drop)
}

/// The variables without a default are those that the file explains, and the version.
fn variables(tool: &Tool, control_plane: &ControlPlane, flavour: &Flavour) -> anyhow::Result<()> {
    let arguments = flavour.arguments();
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    arguments.push("--list-variables");
    let listed = tool.run(control_plane.kubeconfig(), &arguments)?;
    let required = listed.split("Optional Variables").next().unwrap_or_default();
    let required: Vec<&str> = required.lines().filter_map(|line| line.trim().strip_prefix("- ")).collect();
    let mut expected: Vec<&str> = flavour.required.iter().map(|(name, _)| *name).collect();
    expected.sort_unstable();
    ensure!(required == expected, "{required:?} are required: {listed}");
    Ok(())
}

/// The objects of a cluster.
fn generate(tool: &Tool, control_plane: &ControlPlane, flavour: &Flavour) -> anyhow::Result<String> {
    let arguments = flavour.arguments();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = tool.command(control_plane.kubeconfig(), &arguments);
    command.envs(flavour.required.iter().copied());
    let text = said(&arguments, &command.output()?)?;
    ensure!(!text.contains("${"), "{text}");
    Ok(text)
}

/// The control plane's first machine has its bootstrap data and a hypervisor. The workers wait for the control plane.
async fn taken_up(objects: &Objects, flavour: &Flavour) -> anyhow::Result<()> {
    let cluster = flavour.cluster();
    if flavour.of.is_none() {
        objects.becomes("LibvirtCluster", cluster, "ready", |one| is(one, "Ready", "True")).await?;
        let has_endpoint = |one: &Value| one["spec"]["controlPlaneEndpoint"]["host"] == ENDPOINT;
        objects.becomes("Cluster", cluster, "with its endpoint", has_endpoint).await?;
    }
    let group = format!("{cluster}-{}", if flavour.of.is_some() { "large" } else { "workers" });
    let of = |one: &&Value, part: &str| name(one).starts_with(&format!("{cluster}-{part}"));
    let begun = |one: &Value| condition(one, "Ready")["reason"].is_string();
    let all = objects
        .all_become("LibvirtMachine", "taken up", |all| {
            let workers = all.iter().filter(|one| name(one).starts_with(&group)).collect::<Vec<_>>();
            let mut first = all.iter().filter(|one| of(one, "control-plane"));
            let has_ended = |one: &Value| {
                let message = condition(one, "Ready")["message"].as_str().unwrap_or_default();
                one["status"]["hypervisor"] == "kvm1" && message.contains(flavour.ends)
            };
            workers.len() == 2 && workers.iter().all(|one| begun(one)) && first.next().is_some_and(has_ended)
        })
        .await?;
    for machine in &all {
        let ready = condition(machine, "Ready");
        ensure!(ready["reason"] != "InvalidSpec", "{}: {ready}", name(machine));
        if name(machine).starts_with(&group) {
            ensure!(ready["reason"] == "WaitingForBootstrapData", "{}: {ready}", name(machine));
        }
    }
    Ok(())
}

/// `clusterctl describe` shows our objects with our reasons.
fn described(tool: &Tool, control_plane: &ControlPlane) -> anyhow::Result<()> {
    let arguments = ["describe", "cluster", "default", "--show-conditions=all", "--echo", "--grouping=false"];
    let described = tool.run(control_plane.kubeconfig(), &arguments)?;
    for words in [
        "LibvirtCluster default/default",
        "KubeadmControlPlane default/default-control-plane",
        "LibvirtMachine default/default-workers",
        "WaitingForBootstrapData",
    ] {
        ensure!(described.contains(words), "{words} is not in {described}");
    }
    Ok(())
}

/// The bootstrap data of the first machine of each cluster: kubelets wait for the cloud-controller-manager, and kube-vip announces
/// the endpoint.
async fn bootstrap_data(objects: &Objects) -> anyhow::Result<()> {
    let secrets = objects.list("Secret").await?;
    for flavour in FLAVOURS.iter().filter(|flavour| flavour.of.is_none()) {
        let cluster = flavour.cluster();
        let begins = if cluster == "ignition" { "{" } else { "## template: jinja" };
        let prefix = format!("{cluster}-control-plane-");
        let of_machine = |one: &&Value| name(one).starts_with(&prefix) && one["data"]["format"].is_string();
        let secret =
            secrets.iter().find(of_machine).with_context(|| format!("{cluster}: no bootstrap data"))?;
        let data = BASE64_STANDARD.decode(secret["data"]["value"].as_str().context("data")?)?;
        let text = String::from_utf8(data)?;
        ensure!(text.starts_with(begins), "{cluster}: other bootstrap data");
        // Files of Ignition are in URLs.
        let has = |words: &str| {
            text.contains(words) || text.contains(&words.replace('/', "%2F").replace(':', "%3A"))
        };
        let of_pool = (cluster == "pool").then_some("ds.meta_data.control_plane_endpoint_host");
        for words in ["cloud-provider", "kube-vip", ENDPOINT, "super-admin.conf"].into_iter().chain(of_pool) {
            ensure!(has(words), "{cluster}: no {words} in the bootstrap data");
        }
    }
    Ok(())
}

/// A cluster with the label of the templates gets the cloud-controller-manager.
async fn resource_set(management: &Management, objects: &Objects) -> anyhow::Result<()> {
    let workload = ControlPlane::start(&ControlPlaneOptions::default()).map_err(anyhow::Error::from)?;
    management.managers.reach(&workload)?;
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("libvirt.yaml");
    fs::write(&config, "hypervisors: [{name: kvm1, uri: 'qemu+tcp://192.168.122.1/system'}]\n")?;
    let manifests = std::process::Command::new(binary()?)
        .args(["manifests", "--provider=libvirt", "--image=registry.example.org/me/ccm:1", "--cloud-config"])
        .arg(&config)
        .output()?;
    ensure!(manifests.status.success(), "{}", String::from_utf8_lossy(&manifests.stderr));
    let secret = json!({
        "type": "addons.cluster.x-k8s.io/resource-set",
        "stringData": {"ccm.yaml": String::from_utf8(manifests.stdout)?},
    });
    objects.apply("Secret", RESOURCE_SET, secret).await?;
    let set = repository().join("deploy/clusterctl/libvirt/resource-set.yaml").display().to_string();
    management.control_plane.kubectl_output(&["apply", "--filename", &set])?;

    objects.apply_secrets("other", &workload).await?;
    let endpoint = json!({"host": "127.0.0.1", "port": workload.port()});
    objects.apply("LibvirtCluster", "other", json!({"spec": {"controlPlaneEndpoint": endpoint}})).await?;
    let cluster = json!({
        "metadata": {"labels": {"cloud-controller-manager": "libvirt"}},
        "spec": {"infrastructureRef": reference("LibvirtCluster", "other")},
    });
    objects.apply("Cluster", "other", cluster).await?;
    let what = ["get", "daemonset", "cloud-controller-manager", "--namespace=kube-system", "--output=name"];
    let there = eventually(Duration::from_secs(90), "the DaemonSet is there", || async {
        Ok(workload.kubectl_output(&what).ok())
    });
    there.await.with_context(|| management.managers.log(ClusterApiManager::Core))?;
    objects.delete("Cluster", "other").await?;
    objects.vanishes("Cluster", "other").await
}
