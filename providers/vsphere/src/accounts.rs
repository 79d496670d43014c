//! Recent login results of a vCenter, for each of its users.
//!
//! vCenter locks an account after a few refused logins in a short time, by default five in three minutes. So
//! a refused password is tried again only rarely. It is tried again because vCenter also refuses a good
//! password, with the same message, while the account is locked, while its identity source is unavailable,
//! and while vCenter starts.
//!
//! All entries of the configuration with the same server share this state, and so do the Secrets that clusters name for it, since a lock
//! applies to the account. Passwords of Secrets that vCenter has not accepted share a few tries ([`budget`]).

mod budget;
mod pauses;
mod proofs;
mod same;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::{sync::MutexGuard, time::Instant};

use self::{
    budget::Budget,
    pauses::{FIRST_PAUSE, LONGEST_PAUSE},
    proofs::Proofs,
    same::is_same,
};
use crate::{login::Credentials, vim::CallError};

/// The first pause where REST refuses a password that SOAP accepts: the password is good, and the fault may
/// be brief.
const FIRST_PAUSE_OF_GOOD: Duration = Duration::from_secs(60);

/// How many refused passwords of a user are remembered. Each entry of the configuration may have another one.
const REMEMBERED: usize = 32;

/// For how long an account is kept that nobody has used. Clusters may name any user, and each is an account.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The accounts of one server.
#[derive(Debug, Default)]
pub(crate) struct Accounts(Mutex<HashMap<String, (Arc<Account>, Instant)>>);

/// The account of one vCenter user.
#[derive(Debug, Default)]
pub(crate) struct Account(tokio::sync::Mutex<Logins>);

/// The results of a user's logins. A task logs in only while it holds this lock: concurrent logins could all
/// be refused.
#[derive(Default)]
pub(crate) struct Logins {
    /// The password that SOAP accepted last.
    accepted: Option<SecretString>,
    refused: Vec<Refusal>,
    /// Passwords that REST refuses and SOAP accepts.
    refused_by_rest: Vec<Refusal>,
    /// Who has offered the accepted one.
    proofs: Proofs,
    /// How many others may be tried.
    budget: Budget,
}

/// A password that was refused.
struct Refusal {
    password: SecretString,
    pause: Duration,
    until: Instant,
}

impl Accounts {
    /// The account of a user.
    pub(crate) fn of(&self, user: &str) -> Arc<Account> {
        let mut accounts = self.0.lock();
        let now = Instant::now();
        let (account, used) = accounts.entry(name_of(user)).or_insert_with(|| (Arc::default(), now));
        *used = now;
        let account = Arc::clone(account);
        // whoever logs in, or waits for that, has a clone
        accounts.retain(|_, (one, used)| Arc::strong_count(one) > 1 || used.elapsed() < KEPT);
        account
    }

    /// Whether no account has been used for so long that nothing is lost without them.
    pub(crate) fn are_idle(&self) -> bool {
        let accounts = self.0.lock();
        accounts.values().all(|(one, used)| Arc::strong_count(one) == 1 && used.elapsed() >= KEPT)
    }
}

/// The name of a user's account. vCenter ignores the letter case, and takes `DOMAIN\user` for `user@domain`. Which domain it takes for
/// a bare name is not known here, so that is an account of its own.
fn name_of(user: &str) -> String {
    let user = user.to_lowercase();
    match user.split_once('\\') {
        Some((domain, name)) if !domain.is_empty() && !name.is_empty() => format!("{name}@{domain}"),
        _ => user,
    }
}

impl Account {
    /// Locks the account's login results. Waits while another task logs in.
    pub(crate) async fn logins(&self) -> MutexGuard<'_, Logins> {
        self.0.lock().await
    }
}

impl Logins {
    /// Whether SOAP may try these credentials now.
    ///
    /// # Errors
    /// [`CallError::Refused`] where they were refused recently, and [`CallError::Held`] where too many others of Secrets were.
    /// While its namespace is in a pause, also the right password is held, unless the namespace has proven it: whoever guesses must
    /// not see which one is right.
    pub(crate) fn check(&mut self, credentials: &Credentials) -> Result<(), CallError> {
        check(&self.refused, credentials)?;
        let Some(namespace) = credentials.namespace.as_deref() else { return Ok(()) };
        if self.has_proven(credentials) {
            return Ok(());
        }
        let now = Instant::now();
        let held = CallError::Held { user: credentials.user.as_str().into() };
        if self.budget.is_paused(namespace, now) {
            return Err(held);
        }
        if self.has_accepted(credentials) {
            self.proofs.note(Some(namespace), &credentials.password, now);
            return Ok(());
        }
        if self.budget.allows(namespace, now) {
            return Ok(());
        }
        self.budget.hold(namespace, &credentials.password, now);
        Err(held)
    }

    /// Whether REST may try these credentials now.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub(crate) fn check_for_rest(&mut self, credentials: &Credentials) -> Result<(), CallError> {
        self.check(credentials)?;
        check(&self.refused_by_rest, credentials)
    }

    /// Whether SOAP accepted these credentials last.
    pub(crate) fn has_accepted(&self, credentials: &Credentials) -> bool {
        self.accepted.as_ref().is_some_and(|accepted| is_same(accepted, &credentials.password))
    }

    /// Whether SOAP accepted these credentials last, and who offers them has offered them before. What the configuration names needs no
    /// proof.
    pub(crate) fn has_proven(&mut self, credentials: &Credentials) -> bool {
        let Some(namespace) = credentials.namespace.as_deref() else { return self.has_accepted(credentials) };
        let is_proven = self.has_accepted(credentials) && self.proofs.has(namespace, &credentials.password);
        if is_proven {
            self.proofs.note(Some(namespace), &credentials.password, Instant::now());
        }
        is_proven
    }

    /// Notes that SOAP accepted these credentials.
    pub(crate) fn accept(&mut self, credentials: &Credentials) {
        self.refused.retain(|refusal| !is_same(&refusal.password, &credentials.password));
        self.accepted = Some(credentials.password.clone());
        self.proofs.note(credentials.namespace.as_deref(), &credentials.password, Instant::now());
        self.budget.accept(credentials.namespace.as_deref());
    }

    /// Notes that a try with these credentials ended without a word of SOAP about them. Where another password is the accepted one,
    /// whoever sees that knows that this is not it, which counts as if it had to wait.
    pub(crate) fn miss(&mut self, credentials: &Credentials) {
        if let Some(namespace) = credentials.namespace.as_deref()
            && self.accepted.is_some()
            && !self.has_accepted(credentials)
        {
            self.budget.hold(namespace, &credentials.password, Instant::now());
        }
    }

    /// Notes that REST accepted these credentials.
    pub(crate) fn accept_for_rest(&mut self, credentials: &Credentials) {
        self.refused_by_rest.retain(|refusal| !is_same(&refusal.password, &credentials.password));
    }

    /// Notes that SOAP refused these credentials.
    pub(crate) fn refuse(&mut self, credentials: &Credentials) -> CallError {
        self.accepted.take_if(|accepted| is_same(accepted, &credentials.password));
        self.budget.refuse(credentials.namespace.as_deref(), Instant::now());
        refuse(&mut self.refused, credentials, FIRST_PAUSE)
    }

    /// Notes that REST refused these credentials. Those that SOAP accepts are good: only REST stops using
    /// them for a while.
    pub(crate) fn refuse_for_rest(&mut self, credentials: &Credentials) -> CallError {
        if self.accepted.as_ref().is_some_and(|accepted| is_same(accepted, &credentials.password)) {
            refuse(&mut self.refused_by_rest, credentials, FIRST_PAUSE_OF_GOOD)
        } else {
            self.budget.refuse(credentials.namespace.as_deref(), Instant::now());
            refuse(&mut self.refused, credentials, FIRST_PAUSE)
        }
    }
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
    /// Shows no field: all of them are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(password: &str) -> Credentials {
        Credentials::new("ccm", password)
    }

    #[tokio::test(start_paused = true)]
    async fn accounts_that_nobody_uses_are_dropped_after_a_day() {
        let accounts = Accounts::default();
        accounts.of("old").logins().await.accept(&credentials("hunter2"));
        let kept = accounts.of("held");
        let has = async |user: &str| accounts.of(user).logins().await.has_accepted(&credentials("hunter2"));
        tokio::time::advance(KEPT.saturating_sub(Duration::from_secs(1))).await;
        assert!(!accounts.are_idle());
        assert!(has("old").await, "a use keeps it for another day");
        tokio::time::advance(KEPT).await;
        assert!(!accounts.are_idle(), "somebody holds one");
        drop(kept);
        assert!(accounts.are_idle());
        accounts.of("another");
        assert_eq!(accounts.0.lock().len(), 1, "the others are gone");
        assert!(!has("old").await);
    }

    /// How often these credentials are refused within a time, if each try is made as soon as it is allowed.
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
        assert!(logins.has_accepted(&credentials("three")) && !logins.has_accepted(&credentials("one")));
        assert!(logins.check(&credentials("one")).is_err(), "another one that is good says nothing of it");
        logins.accept(&credentials("one"));
        assert!(logins.check(&credentials("one")).is_ok() && logins.check(&credentials("two")).is_err());
        assert!(!format!("{logins:?}").contains("two"));
        assert!(Arc::ptr_eq(&account, &accounts.of("ccm@VSPHERE.local")));
        assert!(!Arc::ptr_eq(&account, &accounts.of("other")));
        assert!(Arc::ptr_eq(&account, &accounts.of("VSPHERE.LOCAL\\Ccm")), "another way to write it");
        for another in ["ccm", "other\\ccm", "\\ccm", "ccm\\", "ccm\\vsphere.local"] {
            assert!(!Arc::ptr_eq(&account, &accounts.of(another)), "{another}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn guesses_of_secrets_end_and_a_good_password_goes_on() {
        let accounts = Accounts::default();
        let account = accounts.of("ccm");
        let mut logins = account.logins().await;
        let good = credentials("good").of_namespace("team");
        logins.check(&good).expect("there was no refusal yet");
        logins.accept(&good);
        let mut asked = 0;
        for namespace in ["guesser", "another"] {
            for number in 0..100 {
                let guess = credentials(&format!("guess-{number}-{namespace}")).of_namespace(namespace);
                match logins.check(&guess) {
                    Ok(()) => {
                        asked += 1;
                        logins.refuse(&guess);
                    }
                    Err(error) => {
                        assert_eq!(error, CallError::Held { user: "ccm".into() });
                        assert!(!error.to_string().contains("guess-"), "{error}");
                    }
                }
            }
        }
        assert_eq!(asked, 3);
        logins.check(&good).expect("it is the one that vCenter accepts");
        logins.check(&credentials("good").of_namespace("other-team")).expect("so it is in another Secret");
        logins.check(&credentials("new")).expect("the configuration is not held up");
        let changed = credentials("changed").of_namespace("team");
        assert!(logins.check(&changed).is_err(), "another one has to wait for its turn");
        tokio::time::advance(Duration::from_secs(300)).await;
        logins.check(&changed).expect("it comes before those that were refused");
        assert!(logins.check(&credentials("guess").of_namespace("another")).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_guesser_learns_nothing_in_a_pause_and_who_has_proven_the_password_has_none() {
        let mut logins = Logins::default();
        let team = credentials("good").of_namespace("team");
        logins.accept(&team);
        for _ in 0..3 {
            logins.refuse(&credentials("typing-error"));
        }
        // The right one is each tenth guess. vCenter is asked about none: the others have used up the tries.
        let mut known = Vec::new();
        for second in 0..600_u64 {
            let password = if second % 10 == 9 { "good".to_owned() } else { format!("guess-{second}") };
            let guess = credentials(&password).of_namespace("guesser");
            match logins.check(&guess) {
                Ok(()) => known.push((second, password)),
                Err(error) => assert_eq!(error, CallError::Held { user: "ccm".into() }),
            }
            logins.check(&team).expect("it has proven it");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(known.is_empty(), "two guesses were held for the budget, and then all: {known:?}");
        let right = credentials("good").of_namespace("guesser");
        assert!(logins.check(&right).is_err(), "the pause began with the second guess");
        tokio::time::advance(Duration::from_secs(1)).await;
        logins.check(&right).expect("the pause is over");
        assert!(logins.has_proven(&right) && !logins.has_proven(&right.clone().of_namespace("other")));

        // Once proven, it goes on in a pause, until vCenter accepts another one.
        for number in 0..4 {
            logins.refuse(&credentials(&format!("wrong-{number}")).of_namespace("guesser"));
        }
        assert!(logins.check(&credentials("another").of_namespace("guesser")).is_err());
        logins.check(&right).expect("it is proven");
        logins.accept(&credentials("changed").of_namespace("team"));
        let changed = credentials("changed").of_namespace("guesser");
        assert!(logins.check(&changed).is_err() && logins.check(&right).is_err());
        logins.check(&changed.of_namespace("other")).expect("it has no pause");
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_wrong_password_counts_once_however_often_it_is_offered() {
        let mut logins = Logins::default();
        logins.accept(&credentials("good"));
        for number in 0..12 {
            logins.refuse(&credentials(&format!("wrong-{number}")));
        }
        let (wrong, right) =
            (credentials("wrong").of_namespace("team"), credentials("good").of_namespace("team"));
        for _ in 0..1000 {
            assert!(logins.check(&wrong).is_err(), "others have used up the tries");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        logins.check(&right).expect("one wrong password makes no pause");

        // What vCenter says nothing about counts alike where another one is known to be right.
        for (password, is_paused) in [("one", false), ("one", false), ("two", true)] {
            logins.miss(&credentials(password).of_namespace("other"));
            assert_eq!(logins.check(&right.clone().of_namespace("other")).is_err(), is_paused, "{password}");
            logins.proofs = Proofs::default();
        }
        let mut unknown = Logins::default();
        for number in 0..5 {
            unknown.miss(&credentials(&format!("guess-{number}")).of_namespace("other"));
        }
        unknown.check(&wrong.of_namespace("other")).expect("nobody has learned anything");
    }
}
