//! Which namespaces have shown that they know the password that vCenter accepts. Pure.
//!
//! Whoever may write a Secret can offer a password, and sees whether it serves. So one that others have proven serves a namespace in
//! its pause only if the namespace has offered it before.

use std::{collections::HashMap, time::Duration};

use secrecy::SecretString;
use tokio::time::Instant;

use super::same::is_same;

/// A proof that is not used for this long is forgotten, since the namespace may be gone. It can be given again.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// The proofs for one account.
#[derive(Default)]
pub(super) struct Proofs {
    /// What they are for: the password that vCenter accepted last, also if it has refused it since.
    password: Option<SecretString>,
    /// Who knows it, and when each of them used it last.
    used: HashMap<Box<str>, Instant>,
}

impl Proofs {
    /// vCenter accepts this password, which this namespace or the configuration has offered. The proofs for another one end.
    pub(super) fn note(&mut self, namespace: Option<&str>, password: &SecretString, now: Instant) {
        if !self.are_for(password) {
            self.used.clear();
            self.password = Some(password.clone());
        }
        self.used.retain(|_, used| now < *used + KEPT);
        if let Some(namespace) = namespace {
            self.used.insert(namespace.into(), now);
        }
    }

    /// Whether this namespace has proven this password.
    pub(super) fn has(&self, namespace: &str, password: &SecretString) -> bool {
        self.are_for(password) && self.used.contains_key(namespace)
    }

    fn are_for(&self, password: &SecretString) -> bool {
        self.password.as_ref().is_some_and(|known| is_same(known, password))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_for_one_namespace_and_one_password_and_ends_unused() {
        let (mut proofs, now) = (Proofs::default(), Instant::now());
        let [first, second] = ["first", "second"].map(SecretString::from);
        proofs.note(None, &first, now);
        assert!(!proofs.has("a", &first), "the configuration proves nothing for others");
        proofs.note(Some("a"), &first, now);
        assert!(proofs.has("a", &first) && !proofs.has("b", &first) && !proofs.has("a", &second));
        proofs.note(Some("b"), &first, now + KEPT / 2);
        proofs.note(None, &first, now + KEPT);
        assert!(!proofs.has("a", &first) && proofs.has("b", &first), "only one was used lately");
        proofs.note(Some("a"), &second, now + KEPT);
        assert!(proofs.has("a", &second) && proofs.used.len() == 1, "those for another password have ended");
    }
}
