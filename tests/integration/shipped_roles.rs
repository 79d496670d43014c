//! The service account of the shipped manifests, with the roles that they give it and nothing else.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ccm::{
    manifests::{ManifestOptions, yaml},
    permissions::{self, Permission},
};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{Client, api::PostParams};
use serde_json::json;
use tempfile::TempDir;
use test_env::ControlPlane;

use crate::{api, daemon::parse, support::eventually};

/// Its kubeconfig on this control plane. The roles are applied when it is first asked for.
pub(crate) async fn kubeconfig(control_plane: &ControlPlane) -> anyhow::Result<PathBuf> {
    type Slot = Arc<tokio::sync::Mutex<Option<PathBuf>>>;
    // The admin's kubeconfig, which no other control plane has -> the service account's.
    static KNOWN: Mutex<Option<HashMap<PathBuf, Slot>>> = Mutex::new(None);
    let slot = {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        known.entry(control_plane.kubeconfig().to_owned()).or_default().clone()
    };
    let mut slot = slot.lock().await;
    if let Some(found) = slot.as_ref() {
        return Ok(found.clone());
    }
    let options = ManifestOptions::new("libvirt");
    let made = bind(control_plane, &options, &permissions::needed(&parse(&[])?)).await?;
    Ok(slot.insert(made).clone())
}

/// A client of the shipped service account.
pub(crate) async fn client(control_plane: &ControlPlane) -> anyhow::Result<Client> {
    api::client(&kubeconfig(control_plane).await?).await
}

/// Applies the roles for these permissions and returns the kubeconfig of the service account that has them, once the
/// API server knows them.
pub(crate) async fn bind(
    control_plane: &ControlPlane,
    options: &ManifestOptions,
    permissions: &[Permission],
) -> anyhow::Result<PathBuf> {
    let folder = TempDir::new()?;
    let file = folder.path().join("roles.yaml");
    std::fs::write(&file, yaml::stream(&options.roles(permissions)))?;
    control_plane.kubectl_output(&["apply", "--server-side", "-f", &file.display().to_string()])?;
    let user = format!("system:serviceaccount:{}:{}", options.namespace, options.name);
    let groups =
        ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{}", options.namespace)];
    let admin = api::client(control_plane.kubeconfig()).await?;
    for permission in permissions {
        let what = format!("{user} may {permission:?}");
        eventually(Duration::from_secs(20), &what, || async {
            Ok(may(&admin, &user, &groups, permission).await?.then_some(()))
        })
        .await?;
    }
    control_plane.kubeconfig_for(&user, &groups.each_ref().map(String::as_str))
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
