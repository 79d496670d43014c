//! Our binary as it is installed: a process with the account and the roles of the manifests that it prints.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{ControlPlane, PATIENCE};
use tokio::time::timeout;

use super::{
    management::{Management, apply},
    objects::Objects,
};
use crate::{
    daemon::{DaemonProcess, LONG_TERM, binary},
    shipped_roles,
    support::tail,
    trial::{LIMIT, Outcome, runtime},
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
        Self::apply_with(control_plane, provider, config, &[])
    }

    /// The same with further arguments of `manifests`, such as `--stored-version=v1beta1`.
    pub(super) fn apply_with(
        control_plane: &ControlPlane,
        provider: &'static str,
        config: PathBuf,
        more: &[&str],
    ) -> Result<Self> {
        let installed = Self { provider, config, webhook: Webhook::new()? };
        installed.apply_more(control_plane, more)?;
        Ok(installed)
    }

    /// Applies what is printed with further arguments, for the same daemon.
    pub(super) fn apply_more(&self, control_plane: &ControlPlane, more: &[&str]) -> Result<()> {
        let set = format!("--set={CONTROLLERS}");
        let (provider, config) = (format!("--provider={}", self.provider), self.config_flag());
        let arguments = ["manifests", &provider, "--machines", &config, &set];
        let text = printed(&[&arguments, more].concat())?;
        let objects = text.split("\n---\n").map(serde_saphyr::from_str);
        let mut objects: Vec<Value> = objects.collect::<Result<_, _>>()?;
        objects.retain(|object| object["kind"].is_string() && object["kind"] != "DaemonSet");
        for object in &mut objects {
            self.webhook.lead_here(object);
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        apply(control_plane, "manifests.json", &list.to_string())
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
        flags.extend(LONG_TERM.map(str::to_owned));
        flags.extend(more.iter().map(|&flag| flag.to_owned()));
        DaemonProcess::start(&flags, log)
    }

    fn config_flag(&self) -> String {
        format!("--cloud-config={}", self.config.display())
    }
}

/// What happens in a namespace of a management cluster of its own, on which our daemon runs with these flags. `kinds` is what the names
/// of the provider's kinds begin with.
pub(super) fn beside_the_daemon(
    provider: &'static str,
    kinds: &'static str,
    config: PathBuf,
    flags: &[&str],
    namespace: &'static str,
    story: impl AsyncFnOnce(&Management, &Objects) -> Result<()>,
) -> Outcome {
    let management = Management::start()?;
    let folder = TempDir::new().context("a folder")?;
    let control_plane = &management.control_plane;
    let installed = Installed::apply(control_plane, provider, config)?;
    let daemon = installed.start(control_plane, flags, &folder.path().join("daemon.log"))?;
    let outcome = runtime(false)?.block_on(async {
        let objects = management.namespace(namespace).await?.on(kinds, PATIENCE);
        timeout(LIMIT, story(&management, &objects))
            .await
            .with_context(|| format!("not done within {LIMIT:?}"))?
    });
    outcome
        .with_context(|| format!("the managers said: {}", management.words_about(namespace)))
        .with_context(|| format!("the daemon said: {}", tail(&daemon.log())))?;
    daemon.terminate()?;
    Ok(management.nothing_was_refused(shipped_roles::USER)?)
}
