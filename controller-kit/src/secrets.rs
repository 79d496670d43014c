//! Secrets of the cluster, for providers whose configuration names some.

use cloudprovider::{SecretData, SecretName, SecretSource, SecretStream, SecretVersion};
use component::watching;
use futures::StreamExt as _;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client};

use crate::followed::follow;

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
    fn follow(&self, name: &SecretName) -> SecretStream {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &name.namespace);
        let versions = follow(api, &name.name, format!("Secret {name}"), data);
        versions
            .map(|version| version.map(|data| data.map_or(SecretVersion::Absent, SecretVersion::Present)))
            .boxed()
    }
}

fn data(secret: Secret) -> SecretData {
    secret.data.unwrap_or_default().into_iter().map(|(key, ByteString(value))| (key, value)).collect()
}
