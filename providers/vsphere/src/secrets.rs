//! The current credentials of one vCenter: from a Secret that is followed, a folder, or the configuration.

use std::path::PathBuf;

use cloudprovider::{SecretName, SecretSource, SecretStream, SecretVersion};
use futures::StreamExt;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::sync::watch;

use crate::{
    config::{CredentialPlaces, SecretPlace},
    credentials::{LoginMethod, SecretContents, read_directory},
    session::{Access, Choices, Credentials},
    session_manager::SessionManager,
};

/// The credentials of one vCenter.
#[derive(Debug)]
pub(crate) struct CredentialStore {
    /// The server as the configuration names it: keys of the Secret begin with it.
    server: String,
    places: CredentialPlaces,
    /// Files with further certificate authorities that are trusted for a session manager, besides the
    /// system's.
    ca_files: Vec<PathBuf>,
    /// The contents of the Secret, or why they are not known.
    secret: Mutex<Result<SecretContents, String>>,
    /// Whether the Secret was read, or reading it failed, at least once.
    is_answered: watch::Sender<bool>,
}

impl CredentialStore {
    /// The credentials of this server, in these places.
    pub(crate) fn new(server: String, places: CredentialPlaces, ca_files: Vec<PathBuf>) -> Self {
        let unread = match &places.secret {
            Some(SecretPlace::Object(name)) => format!("Secret {name} has not been read yet"),
            _ => String::new(),
        };
        Self {
            server,
            places,
            ca_files,
            secret: Mutex::new(Err(unread)),
            is_answered: watch::Sender::new(false),
        }
    }

    /// The Secret to follow, if there is one.
    pub(crate) fn secret(&self) -> Option<&SecretName> {
        match &self.places.secret {
            Some(SecretPlace::Object(name)) => Some(name),
            _ => None,
        }
    }

    /// Whether this Secret is tried before the configuration's own user and password.
    pub(crate) fn needs(&self, secret: &SecretName) -> bool {
        self.secret() == Some(secret) && !self.places.is_inline_first
    }

    /// The stream of the Secret's versions.
    pub(crate) fn versions(&self, secrets: &dyn SecretSource) -> Option<SecretStream> {
        self.secret().map(|name| secrets.follow(name))
    }

    /// Waits for the first result of reading the Secret, good or bad, if the Secret is tried first.
    pub(crate) async fn answered(&self) {
        if self.secret().is_some() && !self.places.is_inline_first {
            // Cannot fail: the sender is in `self`.
            let _ = self.is_answered.subscribe().wait_for(|is_answered| *is_answered).await;
        }
    }

    /// Stores each version of the Secret and calls `changed`. The last contents are kept when the Secret
    /// cannot be read or is deleted: an open session needs no password.
    pub(crate) async fn follow(&self, mut versions: SecretStream, changed: impl Fn()) {
        let Some(SecretPlace::Object(name)) = &self.places.secret else { return };
        while let Some(version) = versions.next().await {
            let trouble = match version {
                Ok(SecretVersion::Present(data)) => {
                    let contents = SecretContents::read(&data);
                    for oddity in &contents.oddities {
                        tracing::warn!(secret = %name, "{oddity}");
                    }
                    *self.secret.lock() = Ok(contents);
                    self.is_answered.send_replace(true);
                    changed();
                    continue;
                }
                Ok(SecretVersion::Absent) => format!("Secret {name} does not exist"),
                // The error names the Secret.
                Err(error) => error.report(),
            };
            tracing::warn!("{trouble}");
            let mut secret = self.secret.lock();
            if secret.is_err() {
                *secret = Err(trouble);
            }
            drop(secret);
            self.is_answered.send_replace(true);
        }
    }

    /// The credentials to log in with now, most likely ones first.
    ///
    /// # Errors
    /// If there are no usable credentials: why, worded for an event.
    pub(crate) fn current(&self) -> Result<Choices, String> {
        let inline = self.places.inline.as_ref().map(|(user, password)| {
            let method = LoginMethod::of(&SecretString::from(user.clone()), password);
            (Ok(method), "the configuration".to_owned())
        });
        let secret = self.login_of_secret().zip(self.places.secret.as_ref().map(ToString::to_string));
        let mut places: Vec<_> = if self.places.is_inline_first {
            [inline, secret].into_iter().flatten().collect()
        } else {
            [secret, inline].into_iter().flatten().collect()
        };
        if places.is_empty() {
            return Err(format!("there are no credentials for {:?}", self.server));
        }
        // The sort is stable. A value that looks like a placeholder may be a real password, so it is tried
        // last.
        places.sort_by_key(|(method, _)| method.as_ref().is_ok_and(LoginMethod::is_placeholder));
        let mut choices = Choices::default();
        for (method, origin) in places {
            match method.and_then(|method| self.access(method)) {
                Ok(access) => choices.accesses.push((access, origin.into())),
                Err(reason) => {
                    choices.trouble.get_or_insert(reason);
                }
            }
        }
        match choices.trouble.take() {
            Some(trouble) if choices.accesses.is_empty() => Err(trouble),
            trouble => Ok(Choices { trouble, ..choices }),
        }
    }

    /// What the Secret or the folder has for this server.
    fn login_of_secret(&self) -> Option<Result<LoginMethod, String>> {
        match self.places.secret.as_ref()? {
            SecretPlace::Object(name) => {
                let secret = self.secret.lock();
                let found = secret.as_ref().map_err(Clone::clone);
                Some(found.and_then(|contents| {
                    contents.find(&self.server).map_err(|reason| format!("Secret {name} {reason}"))
                }))
            }
            SecretPlace::Directory(folder) => Some(read_directory(folder).and_then(|data| {
                let found = SecretContents::read(&data).find(&self.server);
                found.map_err(|reason| format!("the folder {} {reason}", folder.display()))
            })),
        }
    }

    fn access(&self, method: LoginMethod) -> Result<Access, String> {
        match method {
            LoginMethod::Password { user, password } => {
                Ok(Access::Password(Credentials::new(user, password)))
            }
            LoginMethod::SharedSession { url, token, user } => Ok(Access::Shared {
                manager: SessionManager::new(url, token, self.ca_files.clone()),
                for_rest: user.map(|(user, password)| Credentials::new(user, password)),
            }),
            LoginMethod::Certificate => Err(format!(
                "a certificate in place of a user is not supported (server {:?}); give a user and a password",
                self.server
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::{Error, ErrorKind};
    use futures::{FutureExt as _, stream};

    use super::*;

    fn store(secret: Option<SecretPlace>) -> CredentialStore {
        CredentialStore::new(
            "vc.example.org".to_owned(),
            CredentialPlaces { secret, inline: None, is_inline_first: false },
            Vec::new(),
        )
    }

    fn object() -> SecretPlace {
        SecretPlace::Object(SecretName { namespace: "kube-system".into(), name: "vc".into() })
    }

    #[tokio::test]
    async fn the_first_word_of_the_secret_is_waited_for_whatever_it_is() {
        assert!(store(None).answered().now_or_never().is_some(), "there is nothing to wait for");
        for (word, expected) in [
            (Ok(SecretVersion::Absent), "Secret kube-system/vc does not exist"),
            (
                Err(Error::new(
                    ErrorKind::PermissionDenied,
                    "Secret kube-system/vc cannot be read: forbidden",
                )),
                "Secret kube-system/vc cannot be read: forbidden",
            ),
        ] {
            let store = store(Some(object()));
            assert!(store.answered().now_or_never().is_none(), "it has not been read yet");
            store.follow(stream::iter([word]).boxed(), || {}).await;
            assert!(store.answered().now_or_never().is_some());
            assert_eq!(store.current().expect_err("no credentials"), expected);
        }
        let store = store(Some(object()));
        let data =
            [("vc.example.org.username", "root"), ("vc.example.org.password", "x")].into_iter().collect();
        store.follow(stream::iter([Ok(SecretVersion::Present(data))]).boxed(), || {}).await;
        assert!(store.answered().now_or_never().is_some());
        assert_eq!(users(&store), ["root of Secret kube-system/vc"]);
    }

    /// The users that are tried in turn, with their origins, and the trouble.
    fn users(store: &CredentialStore) -> Vec<String> {
        let choices = store.current().expect("credentials");
        let users = choices.accesses.iter().map(|(access, origin)| match access {
            Access::Password(credentials) => format!("{} of {origin}", credentials.user),
            Access::Shared { manager, .. } => panic!("{manager:?}"),
        });
        users.chain(choices.trouble.clone()).collect()
    }

    #[tokio::test]
    async fn the_likeliest_credentials_are_tried_first_and_the_others_after_them() {
        const INLINE: &str = "inline of the configuration";
        const SECRET: &str = "secret of Secret kube-system/vc";
        for (is_inline_first, user, in_secret, expected) in [
            (true, "inline", Some("secret"), &[INLINE, SECRET][..]),
            (false, "inline", Some("secret"), &[SECRET, INLINE]),
            (true, "inline", None, &[INLINE, "Secret kube-system/vc does not exist"]),
            (false, "inline", None, &[INLINE, "Secret kube-system/vc does not exist"]),
            // CPI's own manifest has both, as placeholders
            (
                false,
                "inline",
                Some("<ENTER_YOUR_VCENTER_USERNAME>"),
                &[INLINE, "<ENTER_YOUR_VCENTER_USERNAME> of Secret kube-system/vc"],
            ),
            (
                true,
                "use-your-vcenter-user-here",
                Some("secret"),
                &[SECRET, "use-your-vcenter-user-here of the configuration"],
            ),
        ] {
            let places = CredentialPlaces {
                secret: Some(object()),
                inline: Some((user.to_owned(), "x".into())),
                is_inline_first,
            };
            let store = CredentialStore::new("vc.example.org".to_owned(), places, Vec::new());
            assert_eq!(
                store.answered().now_or_never().is_some(),
                is_inline_first,
                "who is not asked is not waited for"
            );
            let SecretPlace::Object(name) = object() else { panic!("it is a Secret") };
            assert_eq!(store.needs(&name), !is_inline_first);
            let version = match in_secret {
                None => SecretVersion::Absent,
                Some(user) => {
                    let data = [("vc.example.org.username", user), ("vc.example.org.password", "y")];
                    SecretVersion::Present(data.into_iter().collect())
                }
            };
            store.follow(stream::iter([Ok(version)]).boxed(), || {}).await;
            assert_eq!(users(&store), expected);
        }
    }
}
