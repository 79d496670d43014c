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
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}
