//! The credentials of one vCenter as they are now: from a Secret that is followed, a folder, or the configuration.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use cloudprovider::{SecretName, SecretSource, SecretStream, SecretVersion};
use futures::StreamExt;
use secrecy::SecretString;
use tokio::sync::watch;

use crate::{
    config::{CredentialPlaces, SecretPlace},
    credentials::{LoginMethod, SecretContents, read_directory},
    session::{Access, Credentials},
    session_manager::SessionManager,
};

/// The credentials of one vCenter.
#[derive(Debug)]
pub(crate) struct CredentialStore {
    /// As the configuration names it: keys of the Secret begin with it.
    server: String,
    places: CredentialPlaces,
    /// With certificates of authorities that a session manager's may come from, besides the system's.
    ca_files: Vec<PathBuf>,
    /// What the Secret holds, or why that is not known.
    secret: Mutex<Result<SecretContents, String>>,
    /// Whether there was any word of the Secret yet.
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

    /// The Secret, where there is one to follow.
    pub(crate) fn secret(&self) -> Option<&SecretName> {
        match &self.places.secret {
            Some(SecretPlace::Object(name)) => Some(name),
            _ => None,
        }
    }

    /// Its versions.
    pub(crate) fn versions(&self, secrets: &dyn SecretSource) -> Option<SecretStream> {
        self.secret().map(|name| secrets.follow(name))
    }

    /// Waits for the first word of the Secret, where there is one: what it holds, or why that is not known.
    pub(crate) async fn answered(&self) {
        if self.secret().is_some() {
            // Not an error: we hold the sender.
            let _ = self.is_answered.subscribe().wait_for(|is_answered| *is_answered).await;
        }
    }

    /// Takes in each version of the Secret, and says so. What was read is kept while there is trouble, and when the Secret
    /// is deleted: a session that lasts needs no password.
    pub(crate) async fn follow(&self, mut versions: SecretStream, changed: impl Fn()) {
        let Some(SecretPlace::Object(name)) = &self.places.secret else { return };
        while let Some(version) = versions.next().await {
            let trouble = match version {
                Ok(SecretVersion::Present(data)) => {
                    let contents = SecretContents::read(&data);
                    for oddity in &contents.oddities {
                        tracing::warn!(secret = %name, "{oddity}");
                    }
                    *self.secret.lock().unwrap_or_else(PoisonError::into_inner) = Ok(contents);
                    self.is_answered.send_replace(true);
                    changed();
                    continue;
                }
                Ok(SecretVersion::Absent) => format!("Secret {name} does not exist"),
                // It names the Secret.
                Err(error) => error.report(),
            };
            tracing::warn!("{trouble}");
            let mut secret = self.secret.lock().unwrap_or_else(PoisonError::into_inner);
            if secret.is_err() {
                *secret = Err(trouble);
            }
            drop(secret);
            self.is_answered.send_replace(true);
        }
    }

    /// What to log in with now.
    ///
    /// # Errors
    /// In words for an event: where nothing is, or what is there cannot be used.
    pub(crate) fn current(&self) -> Result<Access, String> {
        let from_secret = match &self.places.secret {
            None => None,
            Some(SecretPlace::Object(name)) => {
                let secret = self.secret.lock().unwrap_or_else(PoisonError::into_inner);
                let found = secret.as_ref().map_err(Clone::clone);
                Some(found.and_then(|contents| {
                    contents.find(&self.server).map_err(|reason| format!("Secret {name} {reason}"))
                }))
            }
            Some(SecretPlace::Directory(folder)) => Some(read_directory(folder).and_then(|data| {
                let found = SecretContents::read(&data).find(&self.server);
                found.map_err(|reason| format!("the folder {} {reason}", folder.display()))
            })),
        };
        let inline = self.places.inline.as_ref();
        let inline =
            inline.map(|(user, password)| LoginMethod::of(&SecretString::from(user.clone()), password));
        let method = match (from_secret, inline) {
            (Some(Ok(method)), _) | (Some(Err(_)) | None, Some(method)) => method,
            (Some(Err(reason)), None) => return Err(reason),
            (None, None) => return Err(format!("there are no credentials for {:?}", self.server)),
        };
        match method {
            LoginMethod::Password { user, password } => Ok(Credentials { user, password }.into()),
            LoginMethod::SharedSession { url, token, user } => Ok(Access::Shared {
                manager: SessionManager::new(url, token, self.ca_files.clone()),
                for_rest: user.map(|(user, password)| Credentials { user, password }),
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
            CredentialPlaces { secret, inline: None },
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
        let access = store.current().expect("credentials");
        assert!(matches!(access, Access::Password(credentials) if credentials.user == "root"));
    }
}
