//! What a vCenter said of logins lately, for each of its users.
//!
//! vCenter locks an account after a few refusals in a short time, by default five in three minutes. So a password that was
//! refused is tried again rarely. But it is tried again: vCenter also refuses a good one, in the same words, while the
//! account is locked, while its identity source is away, and while it starts.
//!
//! Every entry of the configuration with the same server shares this, since an account does not care who locks it.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use tokio::{sync::MutexGuard, time::Instant};

use crate::{login::Credentials, vim::CallError};

/// The pause after the first refusal of a password, and then twice as long each time. vCenter unlocks an account after
/// five minutes by default.
const FIRST_PAUSE: Duration = Duration::from_secs(600);

/// The same where REST refuses what SOAP accepts: the password is good, and what is broken may be so for a moment only.
const FIRST_PAUSE_OF_GOOD: Duration = Duration::from_secs(60);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// As many refused passwords of a user are remembered: each entry of the configuration may have another one.
const REMEMBERED: usize = 32;

/// The accounts of one server.
#[derive(Debug, Default)]
pub(crate) struct Accounts(Mutex<HashMap<String, Arc<Account>>>);

/// A user of a vCenter.
#[derive(Debug, Default)]
pub(crate) struct Account(tokio::sync::Mutex<Logins>);

/// What vCenter said of a user's passwords. Who holds it, may log in: several at once would be several refusals.
#[derive(Default)]
pub(crate) struct Logins {
    /// The one that SOAP accepted last.
    accepted: Option<SecretString>,
    refused: Vec<Refusal>,
    /// Those that REST refused and SOAP accepts.
    refused_by_rest: Vec<Refusal>,
}

/// A password that was refused.
struct Refusal {
    password: SecretString,
    pause: Duration,
    until: Instant,
}

impl Accounts {
    /// The account of a user. vCenter does not tell upper from lower case in them.
    pub(crate) fn of(&self, user: &str) -> Arc<Account> {
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(accounts.entry(user.to_lowercase()).or_default())
    }
}

impl Account {
    /// What is known of it. Waits while somebody else logs in.
    pub(crate) async fn logins(&self) -> MutexGuard<'_, Logins> {
        self.0.lock().await
    }
}

impl Logins {
    /// Whether SOAP may try these now.
    ///
    /// # Errors
    /// [`CallError::Refused`] where they were refused lately.
    pub(crate) fn check(&self, credentials: &Credentials) -> Result<(), CallError> {
        check(&self.refused, credentials)
    }

    /// Whether REST may try these now.
    ///
    /// # Errors
    /// As for SOAP.
    pub(crate) fn check_for_rest(&self, credentials: &Credentials) -> Result<(), CallError> {
        self.check(credentials)?;
        check(&self.refused_by_rest, credentials)
    }

    /// SOAP accepted these.
    pub(crate) fn accept(&mut self, credentials: &Credentials) {
        self.refused.retain(|refusal| !is_same(&refusal.password, &credentials.password));
        self.accepted = Some(credentials.password.clone());
    }

    /// REST accepted these.
    pub(crate) fn accept_for_rest(&mut self, credentials: &Credentials) {
        self.refused_by_rest.retain(|refusal| !is_same(&refusal.password, &credentials.password));
    }

    /// SOAP refused these.
    pub(crate) fn refuse(&mut self, credentials: &Credentials) -> CallError {
        self.accepted.take_if(|accepted| is_same(accepted, &credentials.password));
        refuse(&mut self.refused, credentials, FIRST_PAUSE)
    }

    /// REST refused these. What SOAP accepts is good, and only REST does without it for a while.
    pub(crate) fn refuse_for_rest(&mut self, credentials: &Credentials) -> CallError {
        if self.accepted.as_ref().is_some_and(|accepted| is_same(accepted, &credentials.password)) {
            refuse(&mut self.refused_by_rest, credentials, FIRST_PAUSE_OF_GOOD)
        } else {
            refuse(&mut self.refused, credentials, FIRST_PAUSE)
        }
    }
}

fn is_same(one: &SecretString, other: &SecretString) -> bool {
    one.expose_secret() == other.expose_secret()
}

fn error(credentials: &Credentials) -> CallError {
    CallError::Refused { user: credentials.user.as_str().into() }
}

fn check(refusals: &[Refusal], credentials: &Credentials) -> Result<(), CallError> {
    let now = Instant::now();
    let is_held =
        |refusal: &Refusal| is_same(&refusal.password, &credentials.password) && now < refusal.until;
    if refusals.iter().any(is_held) { Err(error(credentials)) } else { Ok(()) }
}

fn refuse(refusals: &mut Vec<Refusal>, credentials: &Credentials, first: Duration) -> CallError {
    let earlier = refusals.iter().position(|refusal| is_same(&refusal.password, &credentials.password));
    let pause = match earlier.map(|place| refusals.remove(place)) {
        Some(earlier) => (earlier.pause * 2).min(LONGEST_PAUSE),
        None => first,
    };
    if refusals.len() >= REMEMBERED {
        refusals.remove(0);
    }
    let password = credentials.password.clone();
    refusals.push(Refusal { password, pause, until: Instant::now() + pause });
    error(credentials)
}

impl fmt::Debug for Logins {
    /// Leaves everything out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(password: &str) -> Credentials {
        Credentials { user: "ccm".to_owned(), password: password.into() }
    }

    /// How often these are refused in a time, when they are tried as soon as that is allowed.
    async fn tries(within: Duration, rest_of_good: bool) -> usize {
        let mut logins = Logins::default();
        let credentials = credentials("hunter2");
        if rest_of_good {
            logins.accept(&credentials);
        }
        let end = Instant::now() + within;
        let mut tries = 0;
        while Instant::now() < end {
            if logins.check_for_rest(&credentials).is_ok() {
                tries += 1;
                logins.refuse_for_rest(&credentials);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(!rest_of_good || logins.check(&credentials).is_ok(), "REST's word says nothing of SOAP");
        tries
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_password_is_tried_rarely_and_ever_less_often() {
        for (seconds, expected) in [(600, 1), (601, 2), (1800, 2), (1801, 3), (86_400, 26)] {
            assert_eq!(tries(Duration::from_secs(seconds), false).await, expected, "{seconds}");
        }
        for (seconds, expected) in [(60, 1), (180, 2), (300, 3)] {
            assert_eq!(tries(Duration::from_secs(seconds), true).await, expected, "{seconds}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_password_counts_for_itself_and_a_user_in_any_letter_case() {
        let accounts = Accounts::default();
        let account = accounts.of("CCM@vsphere.local");
        let mut logins = account.logins().await;
        logins.refuse(&credentials("one"));
        logins.refuse(&credentials("two"));
        assert!(logins.check(&credentials("one")).is_err() && logins.check(&credentials("two")).is_err());
        logins.accept(&credentials("three"));
        assert!(logins.check(&credentials("one")).is_err(), "another one that is good says nothing of it");
        logins.accept(&credentials("one"));
        assert!(logins.check(&credentials("one")).is_ok() && logins.check(&credentials("two")).is_err());
        assert!(!format!("{logins:?}").contains("two"));
        assert!(Arc::ptr_eq(&account, &accounts.of("ccm@VSPHERE.local")));
        assert!(!Arc::ptr_eq(&account, &accounts.of("other")));
    }
}
