//! The kubeconfig changes while the daemon runs.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use ccm::{
    api_client::ClientOptions,
    reload::{ReloadMetrics, Source},
};
use sandbox::kubelet;
use tempfile::TempDir;

use super::{allow, from_file, initialized};
use crate::{
    api::Api,
    daemon::InProcess,
    fake_cloud::{FakeCloud, running},
    forwarder::Forwarder,
    scenarios::Trials,
    support::*,
};

const LIMIT: Duration = Duration::from_secs(40);

pub(crate) fn trials() -> Trials {
    Trials::new()
        .api_server("clients::a_changed_kubeconfig_is_taken_and_a_broken_one_refused", reload)
        .api_server("clients::a_new_address_of_the_api_server_is_taken", new_address)
        .api_server("clients::a_token_that_ended_is_replaced_by_its_file", new_token)
}

async fn reload(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    for user in ["before", "after"] {
        allow(&api.client, user, "- {apiGroups: ['*'], resources: ['*'], verbs: ['*']}").await?;
    }
    let folder = TempDir::new()?;
    let path = folder.path().join("kubeconfig");
    let of_user = |user: &str| -> anyhow::Result<String> {
        Ok(fs::read_to_string(control_plane.kubeconfig_for(user, &[])?)?)
    };
    fs::write(&path, of_user("before")?)?;

    let cloud = FakeCloud::new();
    let daemon =
        InProcess::start_parts(from_file(&path, ClientOptions::default(), cloud.provider()).await?, &[])?;
    let metrics = daemon.counted::<ReloadMetrics>();
    let label = Source::Kubeconfig.as_str();
    let counted = |result: &str| metrics.config_reloads.with_label_values(&[label, result]).get();
    let refused = || metrics.config_reload_failed.with_label_values(&[label]).get() == 1;
    let initialized = async |number| initialized(api, &cloud, number, LIMIT).await;
    initialized(1).await?;

    // An invalid file, then credentials that the API server refuses, then a server that does not exist.
    let admin = fs::read_to_string(control_plane.kubeconfig())?;
    let wrong_token = admin.replace(control_plane.admin_token(), "hunter2");
    let nobody = admin.replace(&control_plane.url(), "https://127.0.0.1:1");
    for (number, content) in ["users: [".to_owned(), wrong_token, nobody].into_iter().enumerate() {
        let failures = counted("failure");
        fs::write(&path, content)?;
        eventually(LIMIT, "refused", || async {
            Ok((counted("failure") > failures && refused()).then_some(()))
        })
        .await?;
        initialized(number + 2).await?;
    }
    let told = event(&api.client, "kube-system", "cloud-controller-manager", "ConfigReloadFailed").await?;
    let message = told.message.context("a message")?;
    ensure!(!message.contains("hunter2"), "{message}");

    fs::write(&path, of_user("after")?)?;
    eventually(LIMIT, "taken", || async { Ok((counted("success") == 1 && !refused()).then_some(())) })
        .await?;
    control_plane.kubectl_output(&["delete", "clusterrolebinding", "before"])?;
    initialized(5).await?;
    event(&api.client, "kube-system", "cloud-controller-manager", "ConfigReloaded").await?;
    daemon.stop().await
}

async fn new_address(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let (old, new) =
        (Forwarder::start(control_plane.port()).await?, Forwarder::start(control_plane.port()).await?);
    let folder = TempDir::new()?;
    let path = folder.path().join("kubeconfig");
    let direct = fs::read_to_string(control_plane.kubeconfig())?;
    fs::write(&path, direct.replace(&control_plane.url(), &old.url()))?;
    let cloud = FakeCloud::new();
    let parts = from_file(&path, ClientOptions::default(), cloud.provider()).await?;
    let daemon = InProcess::run_parts(parts, &[], true)?;
    let initialized = async |number| initialized(api, &cloud, number, LIMIT).await;
    initialized(1).await?;
    ensure!(old.open() > 0 && new.open() == 0, "{} and {} connections", old.open(), new.open());

    fs::write(&path, direct.replace(&control_plane.url(), &new.url()))?;
    // Watches and the election move as well. Nothing keeps using the old server, which could be gone.
    eventually(LIMIT, "everything moves", || async { Ok((old.open() == 0).then_some(())) }).await?;
    ensure!(new.open() > 0);
    drop(old);
    initialized(2).await?;
    ensure!(daemon.leads(), "it leads all the time");
    daemon.stop().await
}

/// A token ends before its file is written again: 401 Unauthorized.
async fn new_token(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let in_namespace = |arguments: &[&str]| {
        control_plane.kubectl_output(&[&["--namespace=kube-system"], arguments].concat())
    };
    let create = || -> anyhow::Result<String> {
        in_namespace(&["create", "serviceaccount", "ends"])?;
        Ok(in_namespace(&["create", "token", "ends"])?.trim().to_owned())
    };
    allow(
        &api.client,
        "system:serviceaccount:kube-system:ends",
        "- {apiGroups: ['*'], resources: ['*'], verbs: ['*']}",
    )
    .await?;
    let folder = TempDir::new()?;
    let (path, token_file) = (folder.path().join("kubeconfig"), folder.path().join("token"));
    let admin = fs::read_to_string(control_plane.kubeconfig())?;
    let by_file = admin.replace(&format!("token: {}", control_plane.admin_token()), "tokenFile: token");
    fs::write(&path, by_file)?;
    let first = create()?;
    fs::write(&token_file, &first)?;

    let cloud = FakeCloud::new();
    let parts = from_file(&path, ClientOptions::default(), cloud.provider()).await?;
    let daemon = InProcess::start_parts(parts, &[])?;
    let register = async |number: usize| {
        cloud.put(&uuid(number), running(number));
        kubelet::register(&api.client, &kubelet::node(&format!("n{number}"), &uuid(number))).await
    };
    register(1).await?;
    node_becomes(&api.client, "n1", LIMIT, "initialized", is_initialized).await?;

    // An account's tokens end with it. The API server caches their authentication for some seconds.
    in_namespace(&["delete", "serviceaccount", "ends"])?;
    let second = create()?;
    let old = folder.path().join("old");
    fs::write(&old, admin.replace(control_plane.admin_token(), &first))?;
    let old = crate::api::client(&old).await?;
    eventually(LIMIT, "the token ends", || async {
        let outcome = nodes(&old).list(&kube::api::ListParams::default()).await;
        Ok(matches!(outcome, Err(kube::Error::Api(status)) if status.code == 401).then_some(()))
    })
    .await?;
    register(2).await?;
    let refused = || daemon.metrics.text().contains("rest_client_requests_total{code=\"401\"");
    eventually(LIMIT, "the daemon is refused", || async { Ok(refused().then_some(())) }).await?;
    ensure!(!is_initialized(&nodes(&api.client).get("n2").await?));

    fs::write(&token_file, second)?;
    node_becomes(&api.client, "n2", LIMIT, "initialized", is_initialized).await?;
    daemon.stop().await
}
