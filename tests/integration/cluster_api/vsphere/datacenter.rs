//! A vCenter with a template for machines, as it is seen from outside.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::Arc,
};

use anyhow::{Context as _, ensure};
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{StartError, Vcsim, VcsimOptions, built};

use crate::{
    cluster_api::kubelets::{Kubelets, Seen},
    vsphere::{config, kinds::templates, machine},
};

/// Where the clusters are.
pub(super) const NAMESPACE: &str = "lab";

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Vm {
    /// Its BIOS UUID, which its guest sees.
    pub(super) uuid: String,
    is_on: bool,
    /// The name that its guest has told.
    host_name: String,
    /// The cluster of hosts that it is in, such as `DC0_C1`.
    pub(super) cluster: String,
}

/// A vCenter with two clusters of hosts, `DC0_C0` and `DC0_C1`, with one virtual machine each. The first one is the template.
pub(super) struct Datacenter {
    pub(super) vcsim: Vcsim,
    folder: TempDir,
    /// The files that there are without machines.
    files: Vec<String>,
}

impl Datacenter {
    pub(super) fn start(task_delays: &'static str) -> Result<Self, StartError> {
        let options = VcsimOptions {
            clusters: 2,
            machines: 1,
            nodes: false,
            boots_guests: true,
            task_delays,
            ..VcsimOptions::default()
        };
        let vcsim = Vcsim::start(&options)?;
        let folder = tempfile::tempdir().map_err(anyhow::Error::from)?;
        let started = Self { files: vcsim.files()?, vcsim, folder };
        fs::write(started.config(), config(&[&started.vcsim])?).context("the configuration")?;
        Ok(started)
    }

    /// The file with the provider's configuration.
    pub(super) fn config(&self) -> PathBuf {
        self.folder.path().join("cloud.yaml")
    }

    /// The `spec` of a cluster.
    pub(super) fn cluster(&self) -> Value {
        json!({"server": format!("127.0.0.1:{}", self.vcsim.port())})
    }

    /// The `spec` of a cluster as in the template of Cluster API Provider vSphere, and the Secret that is beside it there.
    pub(super) fn cluster_of_template(&self, name: &str) -> anyhow::Result<(Value, Value)> {
        let thumbprint = self.vcsim.thumbprint("sha1")?;
        let values = |variable: &str| match variable {
            "CLUSTER_NAME" => name.to_owned(),
            "NAMESPACE" => NAMESPACE.to_owned(),
            "VSPHERE_SERVER" => format!("127.0.0.1:{}", self.vcsim.port()),
            "VSPHERE_TLS_THUMBPRINT" => thumbprint.clone(),
            "VSPHERE_USERNAME" => self.vcsim.user().to_owned(),
            "VSPHERE_PASSWORD" => self.vcsim.password().to_owned(),
            "CONTROL_PLANE_ENDPOINT_IP" => "192.0.2.1".to_owned(),
            _ => "1".to_owned(),
        };
        let folder = built("capv").map_err(|error| anyhow::anyhow!("{error}"))?;
        let template = folder.join("templates/cluster-template.yaml");
        let clusters = templates::objects_of_kind(&template, "VSphereCluster", values)?;
        let secrets = templates::objects_of_kind(&template, "Secret", values)?;
        let secret = secrets.into_iter().find(|one| one["metadata"]["name"] == name);
        let cluster = clusters.into_iter().next().context("a VSphereCluster")?;
        Ok((cluster["spec"].clone(), secret.context("a Secret")?))
    }

    /// The `spec` of a machine.
    pub(super) fn machine(memory_mib: u32) -> Value {
        json!({
            "template": machine(0),
            "cloneMode": "fullClone",
            "datacenter": "DC0",
            "folder": "/DC0/vm",
            "resourcePool": "/DC0/host/DC0_C0/Resources",
            "datastore": "LocalDS_0",
            "network": {"devices": [{"networkName": "VM Network", "dhcp4": true}]},
            "numCPUs": 2,
            "memoryMiB": memory_mib,
        })
    }

    /// All virtual machines but those from the start, by name.
    ///
    /// # Errors
    /// If two have the same name.
    pub(super) fn machines(&self) -> anyhow::Result<BTreeMap<String, Vm>> {
        let mut found = BTreeMap::new();
        for one in self.vcsim.inventory()? {
            let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
            let vm = Vm {
                uuid: text("uuid"),
                is_on: text("power") == "poweredOn",
                host_name: text("hostName"),
                cluster: text("cluster"),
            };
            let name = text("name");
            if !name.starts_with("DC0_") {
                ensure!(found.insert(name, vm).is_none(), "two virtual machines are called {}", text("name"));
            }
        }
        Ok(found)
    }

    /// That there are exactly these machines, and they run.
    pub(super) fn runs(&self, names: &BTreeSet<String>) -> anyhow::Result<()> {
        let machines = self.machines()?;
        ensure!(machines.keys().eq(names), "{machines:?}, wanted {names:?}");
        ensure!(machines.values().all(|vm| vm.is_on), "{machines:?}");
        Ok(())
    }

    /// That nothing is left of any machine, neither in the inventory nor on a datastore.
    pub(super) fn is_empty(&self) -> anyhow::Result<()> {
        let machines = self.machines()?;
        ensure!(machines.is_empty(), "left: {machines:?}");
        let mut files = self.vcsim.files()?;
        files.retain(|file| !self.files.contains(file));
        ensure!(files.is_empty(), "left: {files:?}");
        Ok(())
    }

    /// Ends a virtual machine as a careless administrator does.
    pub(super) fn destroy(&self, name: &str) -> anyhow::Result<()> {
        self.vcsim.act(name, "destroy", "")
    }

    /// How many calls have been made since the counts were reset, besides those that wait for changes.
    pub(super) fn calls(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut counts = self.vcsim.counts()?;
        counts.retain(|method, _| method != "soap:WaitForUpdatesEx");
        Ok(counts)
    }
}

/// Posts a Node for each virtual machine whose guest has booted. Ends when dropped.
pub(super) fn kubelets(client: &Client, datacenter: &Arc<Datacenter>) -> Kubelets {
    let datacenter = Arc::clone(datacenter);
    Kubelets::follow(client, move || {
        let machines = datacenter.machines()?;
        let there = machines.values().map(|vm| vm.uuid.clone()).collect();
        let booted = machines.into_iter().filter(|(name, vm)| vm.is_on && vm.host_name == *name);
        Ok(Seen { joined: booted.map(|(name, vm)| (vm.uuid, name)).collect(), there })
    })
}
