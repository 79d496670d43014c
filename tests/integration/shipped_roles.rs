//! The service account of the shipped manifests, with exactly their roles.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use anyhow::ensure;
use ccm::{
    manifests::ManifestOptions,
    permissions::{self, Permission},
    yaml,
};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{Client, api::PostParams};
use parking_lot::Mutex;
use serde_json::json;
use test_env::ControlPlane;

use crate::{api, daemon::parse, manifest, support::eventually};

/// The service account's user name.
pub(crate) const USER: &str = "system:serviceaccount:kube-system:cloud-controller-manager";

/// The service account's kubeconfig on this control plane. The first call applies the roles.
pub(crate) async fn kubeconfig(control_plane: &ControlPlane) -> anyhow::Result<PathBuf> {
    type Slot = Arc<tokio::sync::Mutex<Option<PathBuf>>>;
    // The administrator's kubeconfig, which identifies the control plane -> the service account's.
    static KNOWN: Mutex<Option<HashMap<PathBuf, Slot>>> = Mutex::new(None);
    let slot = {
        let mut known = KNOWN.lock();
        let known = known.get_or_insert_default();
        known.entry(control_plane.kubeconfig().to_owned()).or_default().clone()
    };
    let mut slot = slot.lock().await;
    let (options, needed) = (ManifestOptions::new("libvirt"), permissions::needed(&parse(&[])?));
    if let Some(found) = slot.as_ref() {
        let admin = api::client(control_plane.kubeconfig()).await?;
        for permission in &needed {
            ensure!(
                may(&admin, USER, &groups(&options.namespace), permission).await?,
                "an earlier test on this control plane has left {USER} without a shipped role: it may not {permission}"
            );
        }
        return Ok(found.clone());
    }
    let made = bind(control_plane, &options, &needed).await?;
    Ok(slot.insert(made).clone())
}

/// The user name of a service account.
fn user(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

fn groups(namespace: &str) -> [String; 2] {
    ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// The user that needs this permission in such a deployment.
pub(crate) fn holder(options: &ManifestOptions, permission: &Permission) -> String {
    match &permission.account {
        None => user(&options.namespace, &options.name),
        Some(account) => user("kube-system", account),
    }
}

/// Applies the roles for these permissions. Returns the kubeconfig of the service account that has them, once
/// they are effective.
pub(crate) async fn bind(
    control_plane: &ControlPlane,
    options: &ManifestOptions,
    permissions: &[Permission],
) -> anyhow::Result<PathBuf> {
    let admin = api::client(control_plane.kubeconfig()).await?;
    manifest::apply(&admin, &yaml::stream(&options.roles(permissions))).await?;
    for permission in permissions {
        becomes_known(&admin, options, permission, true).await?;
    }
    let groups = groups(&options.namespace);
    let user = user(&options.namespace, &options.name);
    control_plane.kubeconfig_for(&user, &groups.each_ref().map(String::as_str))
}

/// Undoes [`bind`]: controllers' accounts are the same in all deployments.
pub(crate) async fn unbind(
    admin: &Client,
    options: &ManifestOptions,
    permissions: &[Permission],
) -> anyhow::Result<()> {
    manifest::delete(admin, &yaml::stream(&options.roles(permissions))).await
}

/// Waits until the API server allows this request, or refuses it.
pub(crate) async fn becomes_known(
    admin: &Client,
    options: &ManifestOptions,
    permission: &Permission,
    allowed: bool,
) -> anyhow::Result<()> {
    let (user, groups) = (holder(options, permission), groups(&options.namespace));
    let what = format!("{user} may {permission}: {allowed}");
    eventually(Duration::from_secs(60), &what, || async {
        Ok((may(admin, &user, &groups, permission).await? == allowed).then_some(()))
    })
    .await
}

async fn may(admin: &Client, user: &str, groups: &[String], permission: &Permission) -> anyhow::Result<bool> {
    let review = serde_json::from_value(json!({"metadata": {}, "spec": {
        "user": user,
        "groups": groups,
        "resourceAttributes": {
            "group": permission.group,
            "resource": permission.resource,
            "subresource": permission.subresource,
            "verb": permission.verb,
            "namespace": permission.namespace,
            "name": permission.resource_names.first(),
        },
    }}))?;
    let api: kube::Api<SubjectAccessReview> = kube::Api::all(admin.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
