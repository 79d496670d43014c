//! Secrets of the cluster, for providers whose configuration names some.

use std::collections::BTreeMap;

use cloudprovider::{
    Error, ErrorKind, SecretData, SecretName, SecretSource, SecretStream, SecretVersion, error_chain,
};
use component::{
    api_client::describe,
    watching::{self, watch},
};
use futures::{StreamExt as _, stream};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, runtime::watcher};

/// Follows Secrets with one watch for each that is asked for, and none for others. So permissions for single names are enough.
pub struct ClusterSecrets {
    client: Client,
}

impl ClusterSecrets {
    /// Secrets that `client` may read.
    pub fn new(client: Client) -> Self {
        Self { client: watching::client(client) }
    }
}

impl std::fmt::Debug for ClusterSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterSecrets")
    }
}

impl SecretSource for ClusterSecrets {
    /// A lost watch is started again with backoff. Each outage gives one error, however many tries it takes.
    fn follow(&self, name: &SecretName) -> SecretStream {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &name.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", name.name));
        let events = watch(api, config).boxed();
        let following = Following { name: name.clone(), events, listed: None, is_failing: false };
        stream::unfold(following, |mut following| async move {
            let version = following.next().await?;
            Some((version, following))
        })
        .boxed()
    }
}

struct Following<S> {
    name: SecretName,
    events: S,
    /// The Secret, as far as the current list has returned it.
    listed: Option<SecretData>,
    is_failing: bool,
}

impl<S> Following<S>
where
    S: futures::Stream<Item = watcher::Result<watcher::Event<Secret>>> + Unpin,
{
    async fn next(&mut self) -> Option<cloudprovider::Result<SecretVersion>> {
        loop {
            let event = match self.events.next().await? {
                Ok(event) => event,
                Err(_) if self.is_failing => continue,
                Err(error) => {
                    self.is_failing = true;
                    return Some(Err(self.explain(&error)));
                }
            };
            match event {
                watcher::Event::Init => self.listed = None,
                watcher::Event::InitApply(secret) => self.listed = self.data(secret).or(self.listed.take()),
                watcher::Event::InitDone => {
                    self.is_failing = false;
                    return Some(Ok(self
                        .listed
                        .take()
                        .map_or(SecretVersion::Absent, SecretVersion::Present)));
                }
                watcher::Event::Apply(secret) => {
                    if let Some(data) = self.data(secret) {
                        self.is_failing = false;
                        return Some(Ok(SecretVersion::Present(data)));
                    }
                }
                watcher::Event::Delete(secret) => {
                    if self.data(secret).is_some() {
                        return Some(Ok(SecretVersion::Absent));
                    }
                }
            }
        }
    }

    /// The Secret's content. `None` for another Secret, which an API server sends that ignores field selectors.
    fn data(&self, secret: Secret) -> Option<SecretData> {
        let data: BTreeMap<String, ByteString> = secret.data.unwrap_or_default();
        (secret.metadata.name.as_deref() == Some(&self.name.name))
            .then(|| data.into_iter().map(|(key, ByteString(value))| (key, value)).collect())
    }

    fn explain(&self, error: &watcher::Error) -> Error {
        use watcher::Error::{
            InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
        };
        let (status, words) = match error {
            InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
                let status = match error {
                    kube::Error::Api(status) => Some(status),
                    _ => None,
                };
                (status, describe(error))
            }
            WatchError(status) => (Some(status), format!("{} ({})", status.message, status.code)),
            NoResourceVersion => (None, error_chain(error)),
        };
        let (kind, hint) = match status.map(|status| status.code) {
            Some(401) => (ErrorKind::Unauthenticated, ""),
            Some(403) => (ErrorKind::PermissionDenied, "; the service account needs list and watch on it"),
            _ => (ErrorKind::Unavailable, ""),
        };
        Error::new(kind, format!("Secret {} cannot be read: {words}{hint}", self.name))
    }
}
