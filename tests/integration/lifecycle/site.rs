//! An API server with the kinds of Cluster API and of an infrastructure, as we define them, and the daemon on it. It is also the API server of
//! the workload clusters: their Nodes are there.

use std::path::PathBuf;

use anyhow::{Context, Result};
use ccm::{manifests::ManifestOptions, permissions};
use cloudprovider::CloudProvider;
use cluster_api::definitions::Provider;
use machine_controller::{crds::Definitions, reboot};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{ControlPlane, ControlPlaneOptions, PATIENCE};
use tokio::time::timeout;

use crate::{
    api,
    cluster_api::{
        management::{HOSTED_CONTROL_PLANES, apply, nothing_was_refused},
        objects::Objects,
    },
    daemon::{DaemonProcess, LONG_TERM, binary, parse},
    serving::curl::Curl,
    shipped_roles,
    support::tail,
    trial::{LIMIT, Outcome, runtime},
};

/// Both parts of Cluster API's own controllers.
const CONTROLLERS: &str = "--controllers=lifecycle-core,lifecycle-bootstrap";

/// A management cluster of its own.
pub(super) struct Site {
    pub(super) control_plane: ControlPlane,
    folder: TempDir,
}

/// Our definitions of Cluster API's own kinds.
pub(super) fn own_definitions() -> Result<Vec<Value>> {
    let mut items = Vec::new();
    for of in Provider::ALL {
        for definition in of.definitions()? {
            items.push(serde_json::to_value(definition)?);
        }
    }
    Ok(items)
}

/// What `kubectl` reads as all of these objects.
pub(super) fn list(items: Vec<Value>) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// The daemon with the controllers of Cluster API's own kinds.
pub(super) struct Lifecycle {
    pub(super) process: DaemonProcess,
    port: u16,
    token: String,
}

impl Site {
    /// Runs a story in a new namespace. `provider` has the kinds of the infrastructure, whose names begin with `kinds`.
    pub(super) fn run(
        provider: &dyn CloudProvider,
        kinds: &'static str,
        namespace: &str,
        story: impl AsyncFnOnce(&Self, &Objects) -> Result<()>,
    ) -> Outcome {
        binary()?;
        let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
        let site = Self::on(control_plane)?;
        site.install(provider, kinds)?;
        site.control_plane.kubectl_output(&["create", "namespace", namespace])?;
        let outcome = runtime(false)?.block_on(async {
            let client = api::client(site.control_plane.kubeconfig()).await?;
            let objects = Objects::new(client, namespace).on(kinds, PATIENCE);
            timeout(LIMIT, story(&site, &objects))
                .await
                .with_context(|| format!("not done within {LIMIT:?}"))?
        });
        let log = std::fs::read_to_string(site.log()).unwrap_or_default();
        outcome.with_context(|| format!("the daemon said: {}", tail(&log)))?;
        Ok(nothing_was_refused(&site.control_plane, shipped_roles::USER)?)
    }

    /// One on a control plane that has all kinds.
    pub(super) fn on(control_plane: ControlPlane) -> Result<Self> {
        Ok(Self { control_plane, folder: tempfile::tempdir().context("a folder")? })
    }

    fn install(&self, provider: &dyn CloudProvider, kinds: &str) -> Result<()> {
        let mut items = own_definitions()?;
        let machines = provider.machines().context("machines")?;
        let definitions = Definitions::new(&kinds.to_lowercase(), &machines.kinds(), &machines.schemas())?;
        for definition in definitions.crds().into_iter().chain(&reboot::definitions()?) {
            items.push(serde_json::to_value(definition)?);
        }
        apply(&self.control_plane, "kinds.json", &list(items))?;
        apply(&self.control_plane, "control-planes.yaml", HOSTED_CONTROL_PLANES)
    }

    /// Starts the daemon with no permissions but those of its manifests.
    pub(super) async fn start(&self) -> Result<Lifecycle> {
        self.start_with(&LONG_TERM).await
    }

    /// The same with these flags of elections.
    pub(super) async fn start_with(&self, election: &[&str]) -> Result<Lifecycle> {
        let port = test_env::free_port()?;
        let needed = permissions::needed(&parse(&[CONTROLLERS])?);
        let account =
            shipped_roles::bind(&self.control_plane, &ManifestOptions::new("libvirt"), &needed).await?;
        let administrator = self.control_plane.kubeconfig().display();
        let mut flags = vec![
            CONTROLLERS.to_owned(),
            format!("--kubeconfig={}", account.display()),
            // With these it answers requests of the test. What they need is in other trials.
            format!("--authentication-kubeconfig={administrator}"),
            format!("--authorization-kubeconfig={administrator}"),
            "--workload-cluster-cidrs=127.0.0.0/8".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            "-v=4".to_owned(),
        ];
        flags.extend(election.iter().map(|&flag| flag.to_owned()));
        let process = DaemonProcess::start(&flags, &self.log())?;
        Ok(Lifecycle { process, port, token: self.control_plane.admin_token().to_owned() })
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.path().join("daemon.log")
    }
}

impl Lifecycle {
    /// The status of `/readyz`. 0: the daemon does not answer.
    pub(super) async fn ready(&self) -> Result<u16> {
        Ok(Curl::get(&format!("https://127.0.0.1:{}/readyz", self.port)).send().await?.status)
    }

    /// What `/debug/state` says of the core part. Null: the daemon does not answer yet.
    pub(super) async fn state_of_core(&self) -> Result<Value> {
        let url = format!("https://127.0.0.1:{}/debug/state", self.port);
        let answer = Curl::get(&url).token(&self.token).send().await?;
        if answer.status != 200 {
            return Ok(Value::Null);
        }
        Ok(answer.json()?["lifecycle-core-lease"]["state"].clone())
    }
}
