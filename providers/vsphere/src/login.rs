//! User and password of a login.

use std::fmt;

use secrecy::SecretString;

/// A user and a password.
#[derive(Clone)]
pub(crate) struct Credentials {
    /// The user.
    pub(crate) user: String,
    /// The password.
    pub(crate) password: SecretString,
    /// The namespace whose Secret names them. `None`: the configuration does.
    pub(crate) namespace: Option<Box<str>>,
}

impl Credentials {
    /// Those that the configuration names.
    pub(crate) fn new(user: impl Into<String>, password: impl Into<SecretString>) -> Self {
        Self { user: user.into(), password: password.into(), namespace: None }
    }

    /// The same, in a Secret of this namespace.
    #[must_use]
    pub(crate) fn of_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}
