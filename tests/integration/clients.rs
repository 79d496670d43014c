//! Clients: their accounts, reactions to changed files and to a failing API server, and the dry run.

mod accounts;
mod beside_go;
mod connections;
mod credentials;
mod dry_run;
mod events;
mod refused;
mod reload;
mod unwell;

use std::{sync::Arc, time::Duration};

use ccm::{
    api_client::{ApiServer, ClientOptions, Location},
    daemon::{Parts, new_metrics},
};
use cloudprovider::CloudProvider;
use controller_kit::clients::Clients;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use sandbox::kubelet;

use crate::{
    api::Api,
    fake_cloud::{FakeCloud, running},
    manifest,
    scenarios::Trials,
    support::{is_initialized, node_becomes, uuid},
};

pub(crate) fn trials() -> Trials {
    Trials::new()
        .and(reload::trials())
        .and(accounts::trials())
        .and(dry_run::trials())
        .and(beside_go::trials())
        .and(connections::trials())
        .and(credentials::trials())
        .and(events::trials())
        .and(refused::trials())
        .and(unwell::trials())
}

/// The daemon's parts with a client of the test.
fn over(client: &Client, options: ClientOptions, provider: Arc<dyn CloudProvider>) -> anyhow::Result<Parts> {
    let metrics = new_metrics()?;
    let api_server = ApiServer::over(client.clone(), options, metrics.get()?);
    Ok(Parts { metrics, ..Parts::with(Clients::of(&api_server), provider)? })
}

/// The daemon's parts with the client of a kubeconfig.
pub(crate) async fn from_file(
    kubeconfig: &std::path::Path,
    options: ClientOptions,
    provider: Arc<dyn CloudProvider>,
) -> anyhow::Result<Parts> {
    let metrics = new_metrics()?;
    let location = Location::new(Some(kubeconfig.to_owned()), "");
    let api_server = ApiServer::new(location, options, metrics.get()?).await?;
    let clients = Clients::of(&api_server);
    Ok(Parts { metrics, api_server: Some(api_server), ..Parts::with(clients, provider)? })
}

/// Registers a Node whose machine is there, and waits until the daemon has initialised it.
async fn initialized(api: &Api, cloud: &FakeCloud, number: usize, limit: Duration) -> anyhow::Result<Node> {
    let name = format!("n{number}");
    cloud.put(&uuid(number), running(number));
    kubelet::register(&api.client, &kubelet::node(&name, &uuid(number))).await?;
    node_becomes(&api.client, &name, limit, "initialized", is_initialized).await
}

/// Gives a user the rules of a manifest, in the whole cluster.
pub(crate) async fn allow(admin: &Client, user: &str, rules: &str) -> anyhow::Result<()> {
    manifest::apply(
        admin,
        &format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {user}}}\nrules:\n{rules}\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {user}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {user}}}\n\
             subjects:\n- {{apiGroup: rbac.authorization.k8s.io, kind: User, name: {user}}}\n"
        ),
    )
    .await
}
