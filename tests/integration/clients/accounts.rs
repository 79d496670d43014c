//! `--use-service-account-credentials`: controllers use service accounts of their own.

use std::time::Duration;

use anyhow::{Context, ensure};
use ccm::api_client::ClientOptions;
use k8s_openapi::api::core::v1::ServiceAccount;
use sandbox::kubelet;
use tokio::time::sleep;

use super::{allow, from_file};
use crate::{
    api::Api,
    daemon::InProcess,
    fake_cloud::{FakeCloud, running},
    scenarios::Trials,
    support::*,
};

/// More Nodes than are initialized before the API server has forgotten an account.
const NODES: usize = 20;

pub(crate) fn trials() -> Trials {
    Trials::new().api_server("clients::controllers_act_as_their_own_accounts", accounts)
}

/// The daemon's own user may not write Nodes; kube-apiserver's bootstrap role of the account may.
async fn accounts(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let user = "ccm-with-accounts";
    allow(
        &api.client,
        user,
        "- {apiGroups: [\"\"], resources: [nodes], verbs: [get, list, watch]}\n\
         - {apiGroups: [\"\"], resources: [serviceaccounts], verbs: [get, create]}\n\
         - {apiGroups: [\"\"], resources: [serviceaccounts/token], verbs: [create]}",
    )
    .await?;
    let accounts = kube::Api::<ServiceAccount>::namespaced(api.client.clone(), "kube-system");
    let _ = accounts.delete("node-controller", &kube::api::DeleteParams::default()).await;

    let cloud = FakeCloud::new();
    let options = ClientOptions { service_accounts: true, ..ClientOptions::default() };
    let parts = from_file(&control_plane.kubeconfig_for(user, &[])?, options, cloud.provider()).await?;
    let daemon = InProcess::start_parts(parts, &[])?;
    let limit = Duration::from_secs(30);
    cloud.put(&uuid(1), running(1));
    kubelet::register(&api.client, &kubelet::node("n1", &uuid(1))).await?;
    node_becomes(&api.client, "n1", limit, "initialized", is_initialized).await?;
    event(&api.client, "default", "n1", "Synced").await?;
    let first = accounts.get("node-controller").await.context("the account was made")?;

    // An account's tokens end with it: the API server responds with 401 once its cached authentication has
    // expired.
    accounts.delete("node-controller", &kube::api::DeleteParams::default()).await?;
    for number in 2.. {
        ensure!(number < NODES, "{number} Nodes were initialized, and there is no other account");
        sleep(Duration::from_secs(15)).await;
        let name = format!("n{number}");
        cloud.put(&uuid(number), running(number));
        kubelet::register(&api.client, &kubelet::node(&name, &uuid(number))).await?;
        node_becomes(&api.client, &name, limit, "initialized", is_initialized).await?;
        if let Some(second) = accounts.get_opt("node-controller").await? {
            ensure!(first.metadata.uid != second.metadata.uid, "another account");
            break;
        }
    }
    daemon.stop().await
}
