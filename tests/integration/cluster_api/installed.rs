//! Our binary as it is installed: a process with the account and the roles of the manifests that it prints.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{ControlPlane, ControlPlaneOptions, PATIENCE};
use tokio::time::timeout;

use super::{
    management::{HOSTED_CONTROL_PLANES, Management, apply, nothing_was_refused},
    objects::Objects,
};
use crate::{
    api,
    daemon::{DaemonProcess, LONG_TERM, binary},
    shipped_roles,
    support::tail,
    trial::{LIMIT, Outcome, runtime},
    webhook::Webhook,
};

/// The controllers of both roles.
const BOTH_ROLES: &str = "controllers=*,machine-controller";

/// The same, and those of Cluster API's own kinds.
const WITH_LIFECYCLE: &str = "controllers=*,machine-controller,lifecycle";

/// Where the API servers of workload clusters are, for the controllers of Cluster API's own kinds.
pub(super) const HERE: &str = "--workload-cluster-cidrs=127.0.0.0/8";

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
    controllers: &'static str,
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
        let installed = Self { provider, config, controllers: BOTH_ROLES, webhook: Webhook::new()? };
        installed.apply_more(control_plane, more)?;
        Ok(installed)
    }

    /// The same for a daemon that serves Cluster API's own kinds too, and their definitions.
    pub(super) fn apply_with_lifecycle(
        control_plane: &ControlPlane,
        provider: &'static str,
        config: PathBuf,
    ) -> Result<Self> {
        let installed = Self { provider, config, controllers: WITH_LIFECYCLE, webhook: Webhook::new()? };
        installed.apply_more(control_plane, &["--lifecycle"])?;
        Ok(installed)
    }

    /// Applies what is printed with further arguments, for the same daemon.
    pub(super) fn apply_more(&self, control_plane: &ControlPlane, more: &[&str]) -> Result<()> {
        let set = format!("--set={}", self.controllers);
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
            format!("--{}", self.controllers),
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

/// What happens in a namespace of a management cluster of its own, on which Cluster API's managers run and our daemon with these flags.
/// `kinds` is what the names of the provider's kinds begin with.
pub(super) fn beside_the_daemon(
    provider: &'static str,
    kinds: &'static str,
    config: PathBuf,
    flags: &[&str],
    namespace: &'static str,
    story: impl AsyncFnOnce(&ControlPlane, &Objects) -> Result<()>,
) -> Outcome {
    let management = Management::start()?;
    let control_plane = &management.control_plane;
    let installed = Installed::apply(control_plane, provider, config)?;
    let outcome = installed.runs(control_plane, kinds, flags, namespace, story);
    Ok(outcome.with_context(|| format!("the managers said: {}", management.words_about(namespace)))?)
}

/// The same where the daemon serves Cluster API's own kinds too, and nothing of Cluster API runs.
pub(super) fn by_the_daemon_alone(
    provider: &'static str,
    kinds: &'static str,
    config: PathBuf,
    flags: &[&str],
    namespace: &'static str,
    story: impl AsyncFnOnce(&ControlPlane, &Objects) -> Result<()>,
) -> Outcome {
    let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
    apply(&control_plane, "control-planes.yaml", HOSTED_CONTROL_PLANES)?;
    let installed = Installed::apply_with_lifecycle(&control_plane, provider, config)?;
    let flags = [flags, &[HERE]].concat();
    Ok(installed.runs(&control_plane, kinds, &flags, namespace, story)?)
}

impl Installed {
    /// Runs a story beside the daemon, in a new namespace.
    fn runs(
        &self,
        control_plane: &ControlPlane,
        kinds: &'static str,
        flags: &[&str],
        namespace: &str,
        story: impl AsyncFnOnce(&ControlPlane, &Objects) -> Result<()>,
    ) -> Result<()> {
        let folder = TempDir::new().context("a folder")?;
        control_plane.kubectl_output(&["create", "namespace", namespace])?;
        let daemon = self.start(control_plane, flags, &folder.path().join("daemon.log"))?;
        let outcome = runtime(false)?.block_on(async {
            let client = api::client(control_plane.kubeconfig()).await?;
            let objects = Objects::new(client, namespace).on(kinds, PATIENCE);
            timeout(LIMIT, story(control_plane, &objects))
                .await
                .with_context(|| format!("not done within {LIMIT:?}"))?
        });
        outcome.with_context(|| format!("the daemon said: {}", tail(&daemon.log())))?;
        daemon.terminate()?;
        nothing_was_refused(control_plane, shipped_roles::USER)
    }
}
