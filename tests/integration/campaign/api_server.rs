//! The API server that faults are injected into: a real one with etcd, or the sandbox, which imitates freezes
//! and crashes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use ccm::{manifests::ManifestOptions, permissions};
use parking_lot::Mutex;
use sandbox::{Action, Fault, Matcher, Sandbox, Server};
use test_env::{ControlPlane, ControlPlaneOptions, StartError};

use super::{
    audit::{Answered, AuditLog},
    proxy::Proxy,
};
use crate::{api::Target, daemon::parse, shipped_roles};

/// How long the sandbox breaks connections in place of a restart.
const RESTART: Duration = Duration::from_secs(3);

pub(super) enum ApiServer {
    Real { control_plane: Arc<ControlPlane>, audit_log: Mutex<AuditLog>, token: String },
    Sandbox { sandbox: Sandbox, kubeconfig: PathBuf, _server: Server },
}

impl ApiServer {
    /// Starts an API server with its files in this folder.
    pub(super) async fn start(target: Target, folder: &Path) -> Result<Arc<Self>, StartError> {
        Ok(Arc::new(match target {
            Target::ApiServer | Target::PreviousApiServer => Self::real(target, folder).await?,
            Target::Sandbox => {
                let sandbox = Sandbox::new();
                let server = sandbox.serve(([127, 0, 0, 1], 0).into()).await.map_err(anyhow::Error::from)?;
                let kubeconfig = folder.join("sandbox.kubeconfig");
                std::fs::write(&kubeconfig, server.kubeconfig()).map_err(anyhow::Error::from)?;
                Self::Sandbox { sandbox, kubeconfig, _server: server }
            }
        }))
    }

    async fn real(target: Target, folder: &Path) -> Result<Self, StartError> {
        let (audit_log, flags) = AuditLog::new(folder)?;
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
        let options = flags
            .iter()
            .fold(ControlPlaneOptions::default(), |options, flag| options.api_server_flag(flag))
            .user(shipped_roles::USER, &groups);
        let options = if target == Target::PreviousApiServer { options.previous_version() } else { options };
        let started = tokio::task::spawn_blocking(move || ControlPlane::start(&options)).await;
        let control_plane = Arc::new(started.map_err(anyhow::Error::from)??);
        let permissions = permissions::needed(&parse(&[])?);
        shipped_roles::bind(&control_plane, &ManifestOptions::new("libvirt"), &permissions).await?;
        let token = control_plane.token_for(shipped_roles::USER)?.to_owned();
        Ok(Self::Real { control_plane, audit_log: Mutex::new(audit_log), token })
    }

    /// The administrator's kubeconfig.
    pub(super) fn kubeconfig(&self) -> &Path {
        match self {
            Self::Real { control_plane, .. } => control_plane.kubeconfig(),
            Self::Sandbox { kubeconfig, .. } => kubeconfig,
        }
    }

    /// The daemons' bearer token.
    pub(super) fn token(&self) -> String {
        match self {
            Self::Real { token, .. } => token.clone(),
            // The sandbox does not authenticate.
            Self::Sandbox { .. } => format!("token-{:016x}", fastrand::u64(..)),
        }
    }

    /// Answers no request, for up to this time.
    pub(super) fn freeze(&self, time: Duration) -> anyhow::Result<()> {
        match self {
            Self::Real { control_plane, .. } => control_plane.freeze_api_server(),
            Self::Sandbox { sandbox, .. } => {
                sandbox.faults().inject(Fault::new(Matcher::any(), Action::Delay(time)));
                Ok(())
            }
        }
    }

    /// Resumes after [`Self::freeze`].
    pub(super) fn thaw(&self) -> anyhow::Result<()> {
        match self {
            Self::Real { control_plane, .. } => control_plane.thaw_api_server(),
            Self::Sandbox { sandbox, .. } => {
                sandbox.faults().clear();
                Ok(())
            }
        }
    }

    /// Writes nothing, for up to this time.
    pub(super) fn freeze_storage(&self, time: Duration) -> anyhow::Result<()> {
        match self {
            Self::Real { control_plane, .. } => control_plane.freeze_etcd(),
            Self::Sandbox { sandbox, .. } => {
                for verb in ["create", "update", "patch", "delete"] {
                    sandbox.faults().inject(Fault::new(Matcher::any().verb(verb), Action::Delay(time)));
                }
                Ok(())
            }
        }
    }

    /// Resumes after [`Self::freeze_storage`].
    pub(super) fn thaw_storage(&self) -> anyhow::Result<()> {
        match self {
            Self::Real { control_plane, .. } => control_plane.thaw_etcd(),
            Self::Sandbox { .. } => self.thaw(),
        }
    }

    /// Stops it, gracefully or with `kill`, and starts it again.
    pub(super) async fn restart(&self, kill: bool) -> anyhow::Result<()> {
        match self {
            Self::Real { control_plane, .. } => {
                let control_plane = control_plane.clone();
                tokio::task::spawn_blocking(move || {
                    if kill { control_plane.kill_api_server() } else { control_plane.stop_api_server() }
                })
                .await??;
                self.run_again().await
            }
            Self::Sandbox { sandbox, .. } => {
                sandbox.faults().inject(Fault::new(Matcher::any(), Action::ResetConnection));
                sandbox.faults().drop_watches();
                tokio::time::sleep(RESTART).await;
                // Versions from before the restart are too old.
                sandbox.faults().expire();
                self.run_again().await
            }
        }
    }

    /// Makes it answer again, whatever faults it had.
    pub(super) async fn run_again(&self) -> anyhow::Result<()> {
        let Self::Real { control_plane, .. } = self else { return self.thaw() };
        let control_plane = control_plane.clone();
        tokio::task::spawn_blocking(move || {
            control_plane.thaw_etcd()?;
            // The start is slow on a busy machine, so try several times.
            let started = (0..4).map(|_| control_plane.start_api_server()).find(Result::is_ok);
            started.context("the API server does not start again")??;
            control_plane.thaw_api_server()
        })
        .await?
    }

    /// The responses to the daemons' writes to Nodes since the last call, from its own audit log if it has
    /// one.
    pub(super) fn answered(&self, proxy: &Proxy) -> anyhow::Result<Vec<Answered>> {
        let by_proxy = std::mem::take(&mut proxy.seen().answered);
        match self {
            Self::Real { audit_log, .. } => audit_log.lock().news(),
            Self::Sandbox { .. } => Ok(by_proxy),
        }
    }
}
