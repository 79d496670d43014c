//! Credentials in Secrets that clusters name. A Secret is followed while an object uses it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use cloudprovider::{
    Error, ErrorKind, Result, SecretData, SecretName, SecretStream, SecretVersion, machines::Mark,
};
use futures::StreamExt as _;
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use tokio_util::sync::CancellationToken;

use crate::login::Credentials;

const USERNAME: &str = "username";
const PASSWORD: &str = "password";

/// How many Secrets the objects of one namespace may name. Each is followed by a watch of its own.
pub(crate) const MAX_SECRETS: usize = 32;

/// Who uses something: an object, by its namespace and UID. Objects of several namespaces may claim one UID.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    /// Empty for an object that is in none.
    pub(crate) namespace: String,
    pub(crate) uid: String,
}

impl ObjectKey {
    /// The object with this mark.
    pub(crate) fn of(mark: &Mark) -> Self {
        Self::new(&mark.namespace, &mark.uid)
    }

    pub(crate) fn new(namespace: &str, uid: &str) -> Self {
        Self { namespace: namespace.to_owned(), uid: uid.to_owned() }
    }
}

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
        match &*self.content.lock() {
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
        matches!(*self.content.lock(), Content::Unread)
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
        let mut content = self.content.lock();
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

/// Secrets, each with the objects that use it.
type Followed = HashMap<SecretName, (Arc<Identity>, BTreeSet<ObjectKey>)>;

/// The Secrets that are followed.
#[derive(Debug, Default)]
pub(crate) struct Identities(Mutex<Followed>);

impl Identities {
    /// The Secret with this name, used by this object from now on, and no other one. The second is whether it is new, and to be followed.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if the objects of the namespace use [`MAX_SECRETS`] others.
    pub(crate) fn used(&self, name: &SecretName, owner: &ObjectKey) -> Result<(Arc<Identity>, bool)> {
        let mut all = self.0.lock();
        retain(&mut all, |other, users| other == name || !users.remove(owner) || !users.is_empty());
        let namespace = &owner.namespace;
        let is_of = |users: &BTreeSet<ObjectKey>| users.iter().any(|user| user.namespace == *namespace);
        let is_used = all.get(name).is_some_and(|(_, users)| is_of(users));
        // what is in no namespace is the operator's
        if !namespace.is_empty()
            && !is_used
            && all.values().filter(|(_, users)| is_of(users)).count() >= MAX_SECRETS
        {
            let words = format!(
                "spec.identityRef: the objects of the namespace {namespace} name {MAX_SECRETS} Secrets already, and no more are read; \
                 name one of those, or delete objects that name others"
            );
            return Err(Error::new(ErrorKind::PermissionDenied, words));
        }
        let is_new = !all.contains_key(name);
        let (identity, users) = all
            .entry(name.clone())
            .or_insert_with(|| (Arc::new(Identity::new(name.clone())), BTreeSet::new()));
        users.insert(owner.clone());
        Ok((Arc::clone(identity), is_new))
    }

    /// This object uses none any more.
    pub(crate) fn release(&self, owner: &ObjectKey) {
        retain(&mut self.0.lock(), |_, users| !users.remove(owner) || !users.is_empty());
    }

    /// The objects with this UID that use one.
    pub(crate) fn owners_of(&self, uid: &str) -> BTreeSet<ObjectKey> {
        let all = self.0.lock();
        all.values().flat_map(|(_, users)| users).filter(|one| one.uid == uid).cloned().collect()
    }

    /// The UIDs of the objects that use a Secret.
    pub(crate) fn users_of(&self, identity: &Identity) -> Vec<String> {
        let all = self.0.lock();
        let users = all.get(&identity.name).map(|(_, users)| users.iter().map(|one| one.uid.clone()));
        users.map(Iterator::collect).unwrap_or_default()
    }
}

/// Stops following those that are not kept.
fn retain(all: &mut Followed, keep: impl Fn(&SecretName, &mut BTreeSet<ObjectKey>) -> bool) {
    all.retain(|name, (identity, users)| {
        let is_kept = keep(name, users);
        if !is_kept {
            identity.stop.cancel();
        }
        is_kept
    });
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
        let used =
            |secret: &str, uid: &str| all.used(&name(secret), &ObjectKey::new("lab", uid)).expect("few");
        let (prod, is_new) = used("prod", "cluster");
        assert!(is_new && !used("prod", "machine").1);
        let following = prod.follow(stream::pending().boxed(), || {});
        let mut following = std::pin::pin!(following);
        assert!(used("other", "cluster").1, "another one is named now");
        assert!(following.as_mut().now_or_never().is_none(), "the machine uses it");
        assert_eq!(all.users_of(&prod), ["machine"]);
        all.release(&ObjectKey::new("else", "machine"));
        assert_eq!(all.users_of(&prod), ["machine"], "that was another object with the same UID");
        all.release(&ObjectKey::new("lab", "machine"));
        assert!(following.now_or_never().is_some());
        assert!(used("prod", "cluster").1, "it is new again");
    }

    #[test]
    fn the_secrets_of_a_namespace_are_bounded() {
        let all = Identities::default();
        let owner = |namespace: &str, number: usize| ObjectKey::new(namespace, &number.to_string());
        let secret = |number: usize| name(&format!("secret-{number}"));
        for number in 0..MAX_SECRETS {
            all.used(&secret(number), &owner("lab", number)).expect("not too many");
        }
        let error = all.used(&secret(MAX_SECRETS), &owner("lab", MAX_SECRETS)).expect_err("too many");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.report().contains("namespace lab name 32 Secrets already"), "{}", error.report());
        assert!(all.users_of(&Identity::new(secret(MAX_SECRETS))).is_empty(), "it is not followed");
        // what the namespace has already, what others have, and what takes the place of another one
        all.used(&secret(0), &owner("lab", MAX_SECRETS)).expect("one of these");
        all.used(&secret(MAX_SECRETS), &owner("other", 1)).expect("another namespace");
        all.used(&secret(MAX_SECRETS), &owner("", 1)).expect("an object in no namespace");
        all.used(&secret(MAX_SECRETS + 1), &owner("lab", 1)).expect("in the place of another one");
    }
}
