//! Our binary as it is installed: a process with the account and the roles of the manifests that it prints.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use test_env::ControlPlane;

use super::management::apply;
use crate::{
    daemon::{DaemonProcess, binary},
    webhook::Webhook,
};

/// The controllers of both roles.
const CONTROLLERS: &str = "controllers=*,machine-controller";

/// What the binary prints.
pub(crate) fn printed(arguments: &[&str]) -> Result<String> {
    let output = Command::new(binary()?).args(arguments).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", arguments.join(" "));
    String::from_utf8(output.stdout).context("the output is not text")
}

/// What is installed for the daemon of one cluster.
pub(super) struct Installed {
    provider: &'static str,
    config: PathBuf,
    webhook: Webhook,
}

impl Installed {
    /// Applies the manifests for both roles, but for the DaemonSet. Nothing runs that, or it would run twice.
    pub(super) fn apply(
        control_plane: &ControlPlane,
        provider: &'static str,
        config: PathBuf,
    ) -> Result<Self> {
        let installed = Self { provider, config, webhook: Webhook::new()? };
        let set = format!("--set={CONTROLLERS}");
        let provider = format!("--provider={provider}");
        let text = printed(&["manifests", &provider, "--machines", &installed.config_flag(), &set])?;
        let objects = text.split("\n---\n").map(serde_saphyr::from_str);
        let mut objects: Vec<Value> = objects.collect::<Result<_, _>>()?;
        objects.retain(|object| object["kind"].is_string() && object["kind"] != "DaemonSet");
        for object in &mut objects {
            installed.webhook.lead_here(object);
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        apply(control_plane, "manifests.json", &list.to_string())?;
        Ok(installed)
    }

    /// Starts the daemon in both roles as the service account of the manifests.
    pub(super) fn start(
        &self,
        control_plane: &ControlPlane,
        more: &[&str],
        log: &Path,
    ) -> Result<DaemonProcess> {
        let kubeconfig =
            control_plane.kubeconfig_for_service_account("kube-system", "cloud-controller-manager")?;
        let mut flags = vec![
            format!("--cloud-provider={}", self.provider),
            self.config_flag(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--{CONTROLLERS}"),
            "-v=4".to_owned(),
        ];
        flags.extend(self.webhook.flags());
        flags.extend(more.iter().map(|&flag| flag.to_owned()));
        DaemonProcess::start(&flags, log)
    }

    fn config_flag(&self) -> String {
        format!("--cloud-config={}", self.config.display())
    }
}
