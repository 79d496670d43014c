//! Secrets of the cluster that a provider's configuration names.

use std::{collections::BTreeMap, fmt};

use futures::{StreamExt as _, future, stream, stream::BoxStream};
use secrecy::{SecretSlice, zeroize::Zeroizing};

use crate::{Error, Result};

/// Reads Secrets of the cluster, for providers whose configuration says "the credentials are in this Secret".
///
/// The daemon implements this trait and knows Kubernetes. A provider only names the Secrets that it wants. No
/// Secret is read before a provider asks for it.
pub trait SecretSource: fmt::Debug + Send + Sync {
    /// Follows a Secret. The stream begins with the present content and continues with each change. It ends
    /// only with the daemon. If the Secret cannot be read, the stream yields an error that names the Secret,
    /// and goes on. The provider then keeps the content that it had.
    fn follow(&self, name: &SecretName) -> SecretStream;
}

/// The versions of a Secret, the newest last.
pub type SecretStream = BoxStream<'static, Result<SecretVersion>>;

/// Names a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretName {
    /// Its namespace.
    pub namespace: String,
    /// Its name in the namespace.
    pub name: String,
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The state of a Secret at one time.
#[derive(Clone, Debug)]
pub enum SecretVersion {
    /// It exists and has this content.
    Present(SecretData),
    /// The API server confirmed that it does not exist.
    Absent,
}

/// The keys of a Secret with their decoded values. A value is wiped from memory when its last copy is
/// dropped. No formatting shows values.
#[derive(Clone, Default)]
pub struct SecretData(BTreeMap<String, SecretSlice<u8>>);

impl SecretData {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&SecretSlice<u8>> {
        self.0.get(key)
    }

    /// All keys, sorted, each with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &SecretSlice<u8>)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }
}

impl<K: Into<String>, V: Into<Vec<u8>>> FromIterator<(K, V)> for SecretData {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(values: T) -> Self {
        let wrap = |value: V| {
            let value = Zeroizing::new(value.into());
            // Copied to a box of exactly this length, since shrinking a vector could leave a copy behind.
            SecretSlice::new(Box::from(value.as_slice()))
        };
        Self(values.into_iter().map(|(key, value)| (key.into(), wrap(value))).collect())
    }
}

impl fmt::Debug for SecretData {
    /// Prints the keys without their values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A source without a cluster to read from: each stream yields one error and then nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSecrets;

impl SecretSource for NoSecrets {
    fn follow(&self, name: &SecretName) -> SecretStream {
        let error =
            Error::unsupported(format!("Secret {name} cannot be read: there is no cluster to read it from"));
        stream::once(future::ready(Err(error))).chain(stream::pending()).boxed()
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn values_are_not_shown() {
        let data: SecretData = [("vc1.username", "root"), ("vc1.password", "hunter2")].into_iter().collect();
        assert_eq!(
            format!("{:?}", SecretVersion::Present(data.clone())),
            r#"Present({"vc1.password", "vc1.username"})"#
        );
        assert_eq!(data.get("vc1.password").expect("there").expose_secret(), b"hunter2");
        assert_eq!(data.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["vc1.password", "vc1.username"]);
        assert!(data.get("vc2.password").is_none());
    }

    #[tokio::test]
    async fn without_a_cluster_there_is_an_error_and_no_end() {
        let name = SecretName { namespace: "kube-system".into(), name: "vc".into() };
        let mut versions = NoSecrets.follow(&name);
        let error = versions.next().await.expect("an element").expect_err("an error");
        assert!(error.to_string().contains("kube-system/vc"), "{error}");
        assert!(futures::poll!(versions.next()).is_pending());
    }
}
