//! Credentials in Secrets that clusters name. A Secret is followed while an object uses it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cloudprovider::{Error, ErrorKind, Result, SecretData, SecretName, SecretStream, SecretVersion};
use futures::StreamExt as _;
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use tokio_util::sync::CancellationToken;

use crate::login::Credentials;

const USERNAME: &str = "username";
const PASSWORD: &str = "password";

/// A Secret with the keys `username` and `password`.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) name: SecretName,
    content: Mutex<Content>,
    /// Cancelled when it is not used any more.
    stop: CancellationToken,
}

/// What a Secret says.
#[derive(Clone, Debug)]
enum Content {
    Unread,
    Absent,
    /// This key is missing, or its value is no text.
    Without(&'static str),
    Unreadable(Error),
    Known(Credentials),
}

impl Identity {
    fn new(name: SecretName) -> Self {
        Self { name, content: Mutex::new(Content::Unread), stop: CancellationToken::new() }
    }

    /// The credentials as they are now.
    ///
    /// # Errors
    /// Why there are none, without anything secret.
    pub(crate) fn credentials(&self) -> Result<Credentials> {
        let name = &self.name;
        match &*lock(&self.content) {
            Content::Known(credentials) => Ok(credentials.clone().of_namespace(&name.namespace)),
            Content::Unread => {
                Err(Error::new(ErrorKind::Unavailable, format!("Secret {name} has not been read yet")))
            }
            Content::Absent => {
                let words =
                    format!("Secret {name} does not exist; it is to have the keys {USERNAME} and {PASSWORD}");
                Err(Error::new(ErrorKind::NotFound, words))
            }
            Content::Without(key) => {
                let words = format!("Secret {name} has no text under the key {key}");
                Err(Error::new(ErrorKind::NotFound, words))
            }
            Content::Unreadable(error) => Err(error.clone()),
        }
    }

    /// Whether nothing is known of it yet.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(*lock(&self.content), Content::Unread)
    }

    /// Takes note of what the Secret says. What was known before is kept while it cannot be read.
    fn take(&self, version: Result<SecretVersion>) {
        let new = match version {
            Ok(SecretVersion::Present(data)) => read(&data),
            Ok(SecretVersion::Absent) => Content::Absent,
            // The error names the Secret.
            Err(error) => {
                tracing::warn!(error = error.report(), "credentials of a cluster are not read");
                Content::Unreadable(error)
            }
        };
        let mut content = lock(&self.content);
        if !matches!((&*content, &new), (Content::Known(_), Content::Unreadable(_))) {
            *content = new;
        }
    }

    /// Follows the Secret until nobody uses it. `changed` is told of each version.
    pub(crate) async fn follow(&self, mut versions: SecretStream, changed: impl Fn()) {
        while let Some(Some(version)) = self.stop.run_until_cancelled(versions.next()).await {
            self.take(version);
            changed();
        }
    }
}

/// Reads the keys. One line break at the end of a value is dropped.
fn read(data: &SecretData) -> Content {
    let text = |key: &'static str| {
        let bytes = data.get(key).map(SecretSlice::expose_secret).unwrap_or_default();
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
        if text.is_empty() { Err(Content::Without(key)) } else { Ok(text) }
    };
    match (text(USERNAME), text(PASSWORD)) {
        (Ok(user), Ok(password)) => Content::Known(Credentials::new(user, SecretString::from(password))),
        (Err(without), _) | (_, Err(without)) => without,
    }
}

/// Secrets, each with the UIDs of the objects that use it.
type Followed = HashMap<SecretName, (Arc<Identity>, BTreeSet<String>)>;

/// The Secrets that are followed.
#[derive(Debug, Default)]
pub(crate) struct Identities(Mutex<Followed>);

impl Identities {
    /// The Secret with this name, used by the object with this UID from now on, and no other one. The second is whether it is
    /// new, and to be followed.
    pub(crate) fn used(&self, name: &SecretName, uid: &str) -> (Arc<Identity>, bool) {
        let mut all = lock(&self.0);
        retain(&mut all, |other, users| other == name || !users.remove(uid) || !users.is_empty());
        let is_new = !all.contains_key(name);
        let (identity, users) = all
            .entry(name.clone())
            .or_insert_with(|| (Arc::new(Identity::new(name.clone())), BTreeSet::new()));
        users.insert(uid.to_owned());
        (Arc::clone(identity), is_new)
    }

    /// The object with this UID uses none any more.
    pub(crate) fn release(&self, uid: &str) {
        retain(&mut lock(&self.0), |_, users| !users.remove(uid) || !users.is_empty());
    }

    /// The UIDs of the objects that use a Secret.
    pub(crate) fn users_of(&self, identity: &Identity) -> Vec<String> {
        let all = lock(&self.0);
        all.get(&identity.name).map(|(_, users)| users.iter().cloned().collect()).unwrap_or_default()
    }
}

/// Stops following those that are not kept.
fn retain(all: &mut Followed, keep: impl Fn(&SecretName, &mut BTreeSet<String>) -> bool) {
    all.retain(|name, (identity, users)| {
        let is_kept = keep(name, users);
        if !is_kept {
            identity.stop.cancel();
        }
        is_kept
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // every change is whole, so what a panic leaves is still right
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, stream};

    use super::*;

    fn name(name: &str) -> SecretName {
        SecretName { namespace: "lab".to_owned(), name: name.to_owned() }
    }

    fn present(keys: &[(&str, &str)]) -> SecretVersion {
        SecretVersion::Present(keys.iter().copied().collect())
    }

    fn words(identity: &Identity) -> String {
        match identity.credentials() {
            Ok(credentials) => {
                format!("{} {}", credentials.user, credentials.password.expose_secret())
            }
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn the_newest_credentials_count_and_what_is_missing_is_named() {
        let identity = Identity::new(name("prod"));
        assert!(words(&identity).contains("Secret lab/prod has not been read yet"));
        let good = [("username", "root"), ("password", "hunter2\n")];
        for (version, expected) in [
            (Ok(SecretVersion::Absent), "Secret lab/prod does not exist"),
            (Ok(present(&[("username", "root")])), "Secret lab/prod has no text under the key password"),
            (Ok(present(&[("password", "hunter2")])), "Secret lab/prod has no text under the key username"),
            (Err(Error::new(ErrorKind::PermissionDenied, "Secret lab/prod: forbidden")), "forbidden"),
            (Ok(present(&good)), "root hunter2"),
            (Err(Error::new(ErrorKind::Unavailable, "Secret lab/prod: away")), "root hunter2"),
            (Ok(present(&[("username", "root"), ("password", "hunter3")])), "root hunter3"),
            (Ok(SecretVersion::Absent), "does not exist"),
        ] {
            identity.follow(stream::iter([version]).boxed(), || {}).await;
            assert!(words(&identity).contains(expected), "{} and not {expected}", words(&identity));
        }
        assert!(!format!("{identity:?}").contains("hunter"));
    }

    #[tokio::test]
    async fn a_secret_is_followed_while_somebody_uses_it() {
        let all = Identities::default();
        let (prod, is_new) = all.used(&name("prod"), "cluster");
        assert!(is_new && !all.used(&name("prod"), "machine").1);
        let following = prod.follow(stream::pending().boxed(), || {});
        let mut following = std::pin::pin!(following);
        assert!(all.used(&name("other"), "cluster").1, "another one is named now");
        assert!(following.as_mut().now_or_never().is_none(), "the machine uses it");
        assert_eq!(all.users_of(&prod), ["machine"]);
        all.release("machine");
        assert!(following.now_or_never().is_some());
        assert!(all.used(&name("prod"), "cluster").1, "it is new again");
    }
}
