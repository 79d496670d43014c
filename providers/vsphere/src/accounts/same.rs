//! Whether two passwords are one. Pure.

use secrecy::{ExposeSecret as _, SecretString};

pub(super) fn is_same(one: &SecretString, other: &SecretString) -> bool {
    one.expose_secret() == other.expose_secret()
}
