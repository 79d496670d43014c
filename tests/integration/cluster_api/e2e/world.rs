//! Everything that runs.

use std::fs;

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;
use test_env::{ClusterApi, ControlPlane, KubeadmCluster, NodeImage, StartError};

use super::{LIMIT, manifest};
use crate::{
    api,
    cluster_api::{
        installed::{HERE, Installed},
        libvirt::hypervisor::Hypervisor,
        management::{HOSTED_CONTROL_PLANES, MANAGERS, apply, nothing_was_refused},
        objects::Objects,
    },
    daemon::{DaemonProcess, binary},
    shipped_roles,
    support::tail,
    trial::{Outcome, runtime},
};

pub(super) struct World {
    // Fields drop in this order: the daemon before its peers
    pub(super) daemon: DaemonProcess,
    managers: Option<ClusterApi>,
    pub(super) cluster: KubeadmCluster,
    pub(super) control_plane: ControlPlane,
    pub(super) hypervisor: Hypervisor,
    folder: TempDir,
}

impl World {
    /// Cluster API's managers beside the daemon.
    pub(super) fn with_managers() -> Result<Self, StartError> {
        Self::start(true)
    }

    /// The daemon alone, with our definitions of Cluster API's own kinds.
    pub(super) fn of_the_daemon() -> Result<Self, StartError> {
        Self::start(false)
    }

    fn start(has_managers: bool) -> Result<Self, StartError> {
        binary()?;
        let hypervisor = Hypervisor::with_image(NodeImage::find()?.disk)?;
        let control_plane = ControlPlane::start(&KubeadmCluster::control_plane_options())?;
        let cluster = KubeadmCluster::start(&control_plane, hypervisor.libvirtd())?;
        let managers = has_managers.then(|| ClusterApi::start(&control_plane, &MANAGERS)).transpose()?;
        apply(&control_plane, "control-planes.yaml", HOSTED_CONTROL_PLANES)?;
        let (install, flags): (fn(_, _, _) -> _, &[&str]) =
            if has_managers { (Installed::apply, &[]) } else { (Installed::apply_with_lifecycle, &[HERE]) };
        let installed = install(&control_plane, "libvirt", hypervisor.config())?;
        let folder = TempDir::new().context("a folder")?;
        let daemon = installed.start(&control_plane, flags, &folder.path().join("daemon.log"))?;
        Ok(Self { daemon, managers, cluster, control_plane, hypervisor, folder })
    }

    /// Runs a story.
    pub(super) fn run(self, story: impl AsyncFnOnce(&Self, &Objects) -> Result<()>) -> Outcome {
        let outcome = runtime(false)?.block_on(async {
            let client = api::client(self.control_plane.kubeconfig()).await?;
            story(&self, &Objects::new(client, "default").on("Libvirt", LIMIT)).await
        });
        outcome.with_context(|| self.words())?;
        nothing_was_refused(&self.control_plane, shipped_roles::USER)?;
        self.daemon.terminate()?;
        Ok(())
    }

    /// The logs of all programs, for a failure's message.
    fn words(&self) -> String {
        let consoles = self.hypervisor.consoles().unwrap_or_default().into_iter();
        let mut words: Vec<_> =
            consoles.map(|(uuid, said)| (format!("the console of {uuid}"), said)).collect();
        words.push(("the daemon".to_owned(), self.daemon.log()));
        words.push(("kube-controller-manager".to_owned(), self.cluster.log_tail()));
        if let Some(managers) = &self.managers {
            words.extend(MANAGERS.map(|manager| (format!("{manager:?}"), managers.log(manager))));
        }
        let parts = words.iter().map(|(who, said)| format!("{who}:\n{}", tail(said)));
        parts.collect::<Vec<_>>().join("\n")
    }

    /// Applies what the host of the control plane has.
    pub(super) async fn has_control_plane(&self, objects: &Objects) -> Result<()> {
        objects.apply_secrets("prod", &self.control_plane).await?;
        let version = self.cluster.version();
        objects.apply("HostedControlPlane", "prod", json!({"spec": {"version": version}})).await?;
        objects.control_plane_is_there("prod", version).await
    }

    /// Applies the cluster with this many machines, as a user.
    pub(super) fn apply(&self, machines: usize) -> Result<()> {
        let file = self.folder.path().join("cluster.yaml");
        fs::write(&file, manifest::cluster(self, machines)?)?;
        let file = file.display().to_string();
        self.control_plane.kubectl_output(&["apply", "--filename", &file]).map(drop)
    }
}
