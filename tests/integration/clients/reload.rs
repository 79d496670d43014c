//! The kubeconfig changes while the daemon runs.

use std::{fs, time::Duration};

use anyhow::Context;
use ccm::{api_client::ClientOptions, reload::Source};
use futures::FutureExt;
use libtest_mimic::Trial;
use sandbox::kubelet;
use tempfile::TempDir;

use super::{allow, from_file};
use crate::{
    api::{Api, Target},
    daemon::InProcess,
    fake_cloud::{FakeCloud, Machine},
    support::*,
    trial::on,
};

const LIMIT: Duration = Duration::from_secs(40);

pub(crate) fn trials() -> Vec<Trial> {
    vec![on(Target::ApiServer, "clients::a_changed_kubeconfig_is_taken_and_a_broken_one_refused", |api| {
        reload(api).boxed_local()
    })]
}

async fn reload(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    for user in ["before", "after"] {
        allow(control_plane, user, "- {apiGroups: ['*'], resources: ['*'], verbs: ['*']}")?;
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
    let metrics = daemon.metrics.clone();
    let label = Source::Kubeconfig.as_str();
    let counted = |result: &str| metrics.config_reloads.with_label_values(&[label, result]).get();
    let refused = || metrics.config_reload_failed.with_label_values(&[label]).get() == 1;
    let initialized = async |number: usize| {
        let name = format!("n{number}");
        cloud.put(&uuid(number), Machine::running(number));
        kubelet::register(&api.client, &kubelet::node(&name, &uuid(number))).await?;
        node_becomes(&api.client, &name, LIMIT, "initialized", is_initialized).await
    };
    initialized(1).await?;

    // Nonsense, then credentials that the API server refuses, then a server that is not there.
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
    anyhow::ensure!(!message.contains("hunter2"), "{message}");

    fs::write(&path, of_user("after")?)?;
    eventually(LIMIT, "taken", || async { Ok((counted("success") == 1 && !refused()).then_some(())) })
        .await?;
    control_plane.kubectl_output(&["delete", "clusterrolebinding", "before"])?;
    initialized(5).await?;
    event(&api.client, "kube-system", "cloud-controller-manager", "ConfigReloaded").await?;
    daemon.stop().await
}
