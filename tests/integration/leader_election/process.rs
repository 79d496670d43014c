//! The binary itself, as users with only the necessary permissions.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use jiff::Timestamp;
use tempfile::TempDir;
use test_env::PATIENCE;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{ENDLESS, elector, options_with, record, rivals, write};
use crate::{
    api::{self, Api},
    daemon::{DaemonProcess, binary},
    manifest,
    scenarios::Trials,
    shipped_roles,
    support::*,
};

pub(crate) fn trials() -> Trials {
    Trials::new()
        .api_server("leader_election::the_binary_releases_on_sigterm_and_ends_with_1_on_loss", exit_codes)
        .api_server("leader_election::few_permissions_are_enough", permissions)
}

async fn exit_codes(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let folder = TempDir::new()?;
    let config = folder.path().join("cloud.yaml");
    fs::write(&config, "hypervisors:\n- name: kvm1\n  uri: test:///default\n")?;
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let arguments = [
        "--cloud-provider=libvirt".to_owned(),
        format!("--cloud-config={}", config.display()),
        format!("--kubeconfig={}", shipped_roles::kubeconfig(control_plane).await?.display()),
        "--leader-elect".to_owned(),
    ];
    let arguments = [&arguments[..], &ENDLESS.flags()].concat();
    let held = || async { Ok(record(&api.client).await.ok().filter(|record| !record.holder.is_empty())) };
    let limit = PATIENCE;

    let first = DaemonProcess::start(&arguments, &folder.path().join("first"))?;
    let by_first = eventually(limit, "the first one leads", held).await?;
    let mut second = DaemonProcess::start(&arguments, &folder.path().join("second"))?;
    eventually(limit, "the second one stands by", || async {
        Ok(second.log().contains(&by_first.holder).then_some(()))
    })
    .await?;
    let start = Instant::now();
    let ending = tokio::task::spawn_blocking(move || first.terminate().map(|()| Instant::now()));
    let by_second = eventually(limit, "the second one leads", || async {
        Ok(held().await?.filter(|record| record.holder != by_first.holder))
    })
    .await?;
    println!("hand-over between two processes took {:?} from SIGTERM on", start.elapsed());
    ensure!(by_second.transitions == 1, "{by_second:?}");
    ending.await??;

    write(&api.client, &rivals(Timestamp::now())).await?;
    let code = second.wait(limit)?;
    ensure!(code == Some(1), "exit code {code:?}: {}", second.log());
    ensure!(second.log().contains("leaderelection lost"), "{}", second.log());
    Ok(())
}

async fn permissions(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    for (user, rules) in [
        (
            "as-a-go-ccm",
            "- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}",
        ),
        (
            "as-documented",
            "- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}\n\
             - {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [cloud-controller-manager], \
             verbs: [get, update, watch]}",
        ),
    ] {
        manifest::apply(
            &api.client,
            &format!(
                "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n\
                 metadata: {{name: {user}, namespace: kube-system}}\nrules:\n{rules}\n---\n\
                 apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
                 metadata: {{name: {user}, namespace: kube-system}}\n\
                 roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {user}}}\n\
                 subjects:\n- {{apiGroup: rbac.authorization.k8s.io, kind: User, name: {user}}}\n"
            ),
        )
        .await?;
        let client = api::client(&control_plane.kubeconfig_for(user, &[])?).await?;

        // It takes a moment until new roles are effective.
        let first = super::lead(&client, options_with("first", ENDLESS)).await?;
        let second = elector(&client, options_with("second", ENDLESS))?;
        let acquiring = tokio::spawn(async move { second.acquire(&CancellationToken::new()).await });
        sleep(Duration::from_secs(1)).await;
        let start = Instant::now();
        first.release().await;
        let second = timeout(PATIENCE, acquiring).await??.context("stopped")?;
        println!("hand-over with the permissions {user} took {:?}", start.elapsed());
        second.release().await;
    }
    Ok(())
}
