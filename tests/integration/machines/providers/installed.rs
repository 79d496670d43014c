//! The real binary with the machines of libvirt and of vSphere, as it is installed: with the definitions and the roles that it
//! prints. The hypervisor is libvirt's test driver, and the vCenter is simulated.

use std::{fmt::Write as _, fs, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{ControlPlane, ControlPlaneOptions, Vcsim, VcsimOptions};

use super::super::{
    core::{self, CORE, INFRASTRUCTURE},
    libvirt_many,
    world::{condition, is_ready},
};
use crate::{
    cluster_api::{installed::printed, management::apply},
    daemon::{DaemonProcess, LONG_TERM},
    support::eventually,
    trial::{Outcome, runtime},
    vsphere,
    webhook::Webhook,
};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The test driver has no contents of volumes, so a machine on it ends where the header of its image is read.
const NO_CONTENT: &str = "virStorageVolDownload";

/// The version of vSphere's kinds that the steps work on.
const STEPS: &str = "v1beta2";

pub(super) fn as_installed() -> Outcome {
    let vcsim = Vcsim::start(&VcsimOptions { machines: 1, boots_guests: true, ..VcsimOptions::default() })?;
    let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
    Ok(runtime(false)?.block_on(served(&control_plane, &vcsim))?)
}

async fn served(control_plane: &ControlPlane, vcsim: &Vcsim) -> Result<()> {
    let folder = TempDir::new()?;
    let hypervisor = libvirt_many::hypervisor()?;
    let allow = "machines: {allow: [{imageVolumes: [{pool: default}]}]}\n";
    let text =
        format!("hypervisors: [{{name: kvm1, uri: 'test://{}'}}]\n{allow}", hypervisor.path().display());
    let mut providers = Vec::new();
    for (name, text) in [("libvirt", text), ("vsphere", vsphere::config(&[vcsim])?)] {
        let file = folder.path().join(name);
        fs::write(&file, text)?;
        providers.push(format!("--machine-provider={name}={}", file.display()));
    }
    let webhook = Webhook::new()?;
    install(control_plane, &[&providers[0], &providers[1]], &webhook)?;
    let before = control_plane.audit_position();
    let kubeconfig =
        control_plane.kubeconfig_for_service_account("kube-system", "cloud-controller-manager")?;
    let flags = [
        providers,
        webhook.flags().to_vec(),
        LONG_TERM.map(str::to_owned).to_vec(),
        vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            "--controllers=machine-controller".to_owned(),
            "-v=4".to_owned(),
        ],
    ]
    .concat();
    let daemon = DaemonProcess::start(&flags, &folder.path().join("log"))?;
    let cluster = Cluster { control_plane, vcsim };
    let outcome = cluster.both(&flags).await;
    outcome.with_context(|| daemon.log())?;
    daemon.terminate()?;
    let refused = control_plane.refusals_after(before)?;
    ensure!(refused.is_empty(), "refused by the printed roles: {refused:?}");
    Ok(())
}

/// Installs Cluster API's kinds, and what the binary prints with these flags apart from the pods.
pub(in crate::machines) fn install(
    control_plane: &ControlPlane,
    flags: &[&str],
    webhook: &Webhook,
) -> Result<()> {
    let text = printed(&[&["manifests", "--replicas=1"], flags].concat())?;
    let mut objects = core::core_definitions(&["v1beta2"])?.into_iter().map(serde_json::to_value);
    let mut all = objects.by_ref().collect::<serde_json::Result<Vec<Value>>>()?;
    for document in text.split("\n---\n") {
        let mut object: Value = serde_saphyr::from_str(document)?;
        if object["kind"] == "Deployment" {
            continue;
        }
        webhook.lead_here(&mut object);
        all.push(object);
    }
    let mut text = String::new();
    for object in all {
        writeln!(text, "---\n{object}")?;
    }
    apply(control_plane, "both.yaml", &text)
}

/// The management cluster, in which the test does what Cluster API's core does.
struct Cluster<'a> {
    control_plane: &'a ControlPlane,
    vcsim: &'a Vcsim,
}

/// The kinds of one of the two providers.
struct Provider {
    kinds: &'static str,
    version: &'static str,
    cluster: &'static str,
    machine: &'static str,
}

const LIBVIRT: Provider =
    Provider { kinds: "Libvirt", version: "v1alpha1", cluster: "on-kvm", machine: "worker-kvm" };
const VSPHERE: Provider =
    Provider { kinds: "VSphere", version: STEPS, cluster: "on-vcenter", machine: "worker-vcenter" };

impl Cluster<'_> {
    async fn both(&self, flags: &[String]) -> Result<()> {
        let (image, server) = (libvirt_many::IMAGE, format!("127.0.0.1:{}", self.vcsim.port()));
        for (provider, spec) in [(&LIBVIRT, json!({})), (&VSPHERE, json!({ "server": server }))] {
            self.add_cluster(provider, spec)?;
        }
        for provider in [&LIBVIRT, &VSPHERE] {
            self.becomes(&provider.kind("Cluster"), provider.cluster, is_ready).await?;
        }
        let on_kvm = json!({
            "vcpus": 1, "memoryMiB": 64, "image": {"volume": {"name": image}, "format": "raw"}, "disks": [{"sizeGiB": 2}],
        });
        let on_vcenter = json!({
            "template": "DC0_C0_RP0_VM0", "datacenter": "DC0", "folder": "/DC0/vm", "resourcePool": "DC0_C0/Resources",
            "datastore": "LocalDS_0", "cloneMode": "fullClone", "numCPUs": 2, "memoryMiB": 2048,
            "network": {"devices": [{"networkName": "VM Network", "dhcp4": true}]},
        });
        for (provider, spec) in [(&LIBVIRT, on_kvm), (&VSPHERE, on_vcenter)] {
            self.add_machine(provider, spec)?;
        }
        let up = self.becomes("VSphereMachine", VSPHERE.machine, is_ready).await?;
        let id = up["spec"]["providerID"].as_str().unwrap_or_default();
        ensure!(id.starts_with("vsphere://"), "{up}");
        let ends = |object: &Value| condition(object, "Ready")["message"].to_string().contains(NO_CONTENT);
        self.becomes("LibvirtMachine", LIBVIRT.machine, ends).await?;
        explained(flags)?;
        for provider in [&LIBVIRT, &VSPHERE] {
            for (kind, name) in [("Machine", provider.machine), ("Cluster", provider.cluster)] {
                let kind = format!("{}.{INFRASTRUCTURE}", provider.kind(kind));
                self.control_plane.kubectl_output(&["delete", "--timeout=60s", &kind, name])?;
            }
        }
        let left = self.vcsim.inventory()?;
        ensure!(!left.iter().any(|one| one.to_string().contains(VSPHERE.machine)), "{left:?}");
        Ok(())
    }

    fn make(&self, object: &Value) -> Result<()> {
        let folder = TempDir::new()?;
        let file = folder.path().join("object.json");
        fs::write(&file, object.to_string())?;
        let file = file.display().to_string();
        self.control_plane.kubectl_output(&["apply", "--server-side", "--filename", &file]).map(drop)
    }

    /// The object, or null.
    fn get(&self, kind: &str, group: &str, name: &str) -> Result<Value> {
        let kind = format!("{kind}.{group}");
        let text = self.control_plane.kubectl_output(&[
            "get",
            "--ignore-not-found",
            "--output=json",
            &kind,
            name,
        ])?;
        if text.trim().is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&text)?) }
    }

    async fn becomes(&self, kind: &str, name: &str, check: impl Fn(&Value) -> bool) -> Result<Value> {
        let outcome = eventually(PATIENCE, &format!("{kind} {name}"), || async {
            Ok(Some(self.get(kind, INFRASTRUCTURE, name)?).filter(|object| check(object)))
        })
        .await;
        outcome.with_context(|| format!("{:?}", self.get(kind, INFRASTRUCTURE, name)))
    }

    /// What an object of the core owns, with the label of its Cluster.
    fn owned(&self, kind: &str, name: &str, cluster: &str) -> Result<Value> {
        let uid = self.get(kind, CORE, name)?["metadata"]["uid"].clone();
        let owner = json!({
            "apiVersion": format!("{CORE}/v1beta2"), "kind": kind, "name": name, "uid": uid, "controller": true,
        });
        let labels = json!({"cluster.x-k8s.io/cluster-name": cluster});
        Ok(json!({"name": name, "namespace": "default", "labels": labels, "ownerReferences": [owner]}))
    }

    /// A Cluster whose infrastructure counts as provisioned.
    fn add_cluster(&self, provider: &Provider, mut spec: Value) -> Result<()> {
        let Provider { version, cluster, .. } = provider;
        let kind = provider.kind("Cluster");
        self.make(&json!({
            "apiVersion": format!("{CORE}/v1beta2"), "kind": "Cluster",
            "metadata": {"name": cluster, "namespace": "default"},
            "spec": {"infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": kind, "name": cluster}},
        }))?;
        let status = json!({"status": {"initialization": {"infrastructureProvisioned": true}}}).to_string();
        let patch = ["patch", "--subresource=status", "--type=merge", "--patch", &status];
        let of = format!("clusters.{CORE}");
        self.control_plane.kubectl_output(&[&patch[..], &[&of, cluster]].concat())?;
        spec["controlPlaneEndpoint"] = json!({"host": "192.0.2.1", "port": 6443});
        self.make(&json!({
            "apiVersion": format!("{INFRASTRUCTURE}/{version}"), "kind": kind,
            "metadata": self.owned("Cluster", cluster, cluster)?, "spec": spec,
        }))
    }

    fn add_machine(&self, provider: &Provider, spec: Value) -> Result<()> {
        let Provider { version, cluster, machine, .. } = provider;
        let (kind, secret) = (provider.kind("Machine"), format!("{machine}-data"));
        let labels = json!({"cluster.x-k8s.io/cluster-name": cluster});
        self.make(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": {"name": secret, "namespace": "default", "labels": labels},
            "stringData": {"value": "#cloud-config\n", "format": "cloud-config"},
        }))?;
        self.make(&json!({
            "apiVersion": format!("{CORE}/v1beta2"), "kind": "Machine",
            "metadata": {"name": machine, "namespace": "default", "labels": labels},
            "spec": {
                "clusterName": cluster, "bootstrap": {"dataSecretName": secret},
                "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": kind, "name": machine},
            },
        }))?;
        self.make(&json!({
            "apiVersion": format!("{INFRASTRUCTURE}/{version}"), "kind": kind,
            "metadata": self.owned("Machine", machine, cluster)?, "spec": spec,
        }))
    }
}

impl Provider {
    fn kind(&self, what: &str) -> String {
        format!("{}{what}", self.kinds)
    }
}

/// The tools know both providers.
fn explained(flags: &[String]) -> Result<()> {
    let flags: Vec<&str> = flags.iter().map(String::as_str).filter(|flag| *flag != "-v=4").collect();
    for provider in [&LIBVIRT, &VSPHERE] {
        let name = format!("default/{}", provider.machine);
        let told = printed(&[&["explain", "machine", &name], &flags[..]].concat())?;
        ensure!(told.contains(&format!("{}:", provider.kind("Machine"))), "{told}");
    }
    let found = printed(&[&["check", "--secure-port=0"], &flags[..]].concat())?;
    for words in ["LibvirtMachine, LibvirtCluster and", "VSphereMachine, VSphereCluster and"] {
        ensure!(found.contains(words), "{words} is not in {found}");
    }
    for words in ["libvirt answers", "vsphere answers", "has all"] {
        ensure!(found.contains(words), "{words} is not in {found}");
    }
    Ok(())
}
