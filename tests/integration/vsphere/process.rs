//! The binary leaves nothing behind in vCenter.

use anyhow::{Context as _, ensure};
use sandbox::kubelet;
use tempfile::TempDir;
use test_env::VcsimOptions;

use super::*;
use crate::{
    daemon::{DaemonProcess, binary},
    scenarios::Trials,
    shipped_roles,
};

pub(super) fn trials() -> Trials {
    Trials::new().api_server("vsphere::sigterm_logs_out_of_every_session", logs_out)
}

async fn logs_out(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let simulators = [0, 1].map(|_| simulator(&VcsimOptions::default()));
    let [one, other] = simulators.map(|started| started.map_err(|error| anyhow::anyhow!("{error}")));
    let simulators = [&one?, &other?];
    let folder = TempDir::new()?;
    let file = folder.path().join("vsphere.conf");
    // Both have the same IP address, so each gets a name of its own.
    let text = config(&simulators)?.replacen("server: 127.0.0.1", "server: localhost", 1);
    std::fs::write(&file, with_zones(&text))?;
    let arguments = [
        "--cloud-provider=vsphere".to_owned(),
        format!("--cloud-config={}", file.display()),
        format!("--kubeconfig={}", shipped_roles::kubeconfig(control_plane).await?.display()),
    ];
    let daemon = DaemonProcess::start(&arguments, &folder.path().join("log"))?;
    let sessions = || simulators.map(Vcsim::sessions).into_iter().collect::<anyhow::Result<Vec<_>>>();
    eventually(LIMIT, "sessions in both", || async {
        Ok(sessions()?.iter().all(|(soap, _, rest)| *soap > 0 && *rest > 0).then_some(()))
    })
    .await
    .with_context(|| format!("{:?}: {}", sessions(), daemon.log()))?;
    kubelet::register(&api.client, &kubelet::node(&name(0), &uuid(0))).await?;
    daemon.terminate()?;
    let left = sessions()?;
    ensure!(left.iter().all(|(soap, _, rest)| (*soap, *rest) == (0, 0)), "{left:?}");
    Ok(())
}
