//! Secrets in a provider's configuration.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, anyhow, ensure};
use cloudprovider::{SecretName, SecretSource as _, SecretStream, SecretVersion};
use controller_kit::secrets::ClusterSecrets;
use futures::StreamExt as _;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api as Objects,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use secrecy::ExposeSecret as _;
use tokio::time::timeout;

use crate::{api::Api, scenarios::Trials, support::patience};

pub(crate) fn trials() -> Trials {
    Trials::new().both("a_secret_is_followed_from_before_it_exists_until_after_it_is_gone", followed)
}

const NAMESPACE: &str = "default";

async fn followed(api: &Api) -> anyhow::Result<()> {
    let secrets: Objects<Secret> = Objects::namespaced(api.client.clone(), NAMESPACE);
    // a Secret whose name only begins with the same text must not be followed
    secrets.create(&PostParams::default(), &secret("vc-2", "neighbour")).await?;
    let name = SecretName { namespace: NAMESPACE.into(), name: "vc".into() };
    let mut versions = ClusterSecrets::new(api.client.clone()).follow(&name);
    ensure!(next(&mut versions).await?.is_none(), "it is there before it was made");
    secrets.create(&PostParams::default(), &secret("vc", "first")).await?;
    ensure!(next(&mut versions).await?.as_deref() == Some("first"), "not as it was made");
    let patch = Patch::Merge(serde_json::json!({"data": {"vc1.password": ByteString("second".into())}}));
    secrets.patch("vc-2", &PatchParams::default(), &patch).await?;
    secrets.patch("vc", &PatchParams::default(), &patch).await?;
    ensure!(next(&mut versions).await?.as_deref() == Some("second"), "not as it was changed");
    secrets.delete("vc", &DeleteParams::default()).await?;
    ensure!(next(&mut versions).await?.is_none(), "it is there after it was deleted");
    secrets.create(&PostParams::default(), &secret("vc", "third")).await?;
    ensure!(next(&mut versions).await?.as_deref() == Some("third"), "not as it was made again");
    // a later follower starts with the current version
    let mut later = ClusterSecrets::new(api.client.clone()).follow(&name);
    ensure!(next(&mut later).await?.as_deref() == Some("third"), "not as it is");
    Ok(())
}

fn secret(name: &str, password: &str) -> Secret {
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("vc1.password".to_owned(), ByteString(password.into()))])),
        ..Secret::default()
    }
}

/// The password of the next version; `None` if the Secret does not exist.
async fn next(versions: &mut SecretStream) -> anyhow::Result<Option<String>> {
    let version = timeout(patience(Duration::from_secs(30)), versions.next()).await.context("no version")?;
    match version.ok_or_else(|| anyhow!("the stream ended"))?? {
        SecretVersion::Absent => Ok(None),
        SecretVersion::Present(data) => {
            let password = data.get("vc1.password").context("no such key")?.expose_secret();
            Ok(Some(String::from_utf8(password.to_vec())?))
        }
    }
}
