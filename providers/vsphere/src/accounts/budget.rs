//! How many passwords of Secrets vCenter is asked about, for one account. Pure.
//!
//! Whoever may write a Secret can name any user, also that of somebody else. So all Secrets share a few tries with passwords that
//! vCenter has not accepted, and no namespace can use up all of them.
//!
//! The password that vCenter has accepted needs no try. So whoever is told that another one has to wait knows that it is not this one:
//! that counts for the pause of the namespace like a refusal.

use std::{collections::HashMap, time::Duration};

use secrecy::SecretString;
use tokio::time::Instant;

use super::{
    pauses::{FIRST_PAUSE, LONGEST_PAUSE},
    same::is_same,
};

/// How many refusals there may be at once. vCenter locks an account after five in three minutes by default; the configuration's own
/// credentials may be refused too.
const TRIES: u32 = 3;

/// How long it takes until there may be one more.
const REFILL: Duration = Duration::from_secs(300);

/// How many of the tries are for namespaces that vCenter has not refused lately.
const KEPT: u32 = 1;

/// How many refusals of a namespace have no pause: a typing error can be corrected at once.
const WITHOUT_PAUSE: u32 = 1;

/// The tries of one account.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// When there are all tries again. `None`: there never was a refusal.
    full: Option<Instant>,
    /// The namespaces that were refused lately, by vCenter or here.
    refused: HashMap<Box<str>, Refusals>,
}

/// What is known of a namespace.
#[derive(Debug)]
struct Refusals {
    /// How many in a row.
    count: u32,
    /// The next try may be made then.
    until: Instant,
    /// Whether one of them was vCenter's.
    was_asked: bool,
    /// The password of the last one, if vCenter was not asked.
    held: Option<SecretString>,
}

impl Refusals {
    /// Whether they count any more.
    fn is_recent(&self, now: Instant) -> bool {
        now < self.until + LONGEST_PAUSE
    }
}

impl Budget {
    /// Whether a password of this namespace may be tried that vCenter has not accepted last.
    pub(super) fn allows(&self, namespace: &str, now: Instant) -> bool {
        let refused = self.refused.get(namespace).filter(|refusals| refusals.is_recent(now));
        let kept = if refused.is_some_and(|refusals| refusals.was_asked) { KEPT } else { 0 };
        let is_left = self.full.is_none_or(|full| full <= now + REFILL * (TRIES - 1 - kept));
        is_left && !self.is_paused(namespace, now)
    }

    /// Whether nothing of this namespace may be tried now, whatever is left.
    pub(super) fn is_paused(&self, namespace: &str, now: Instant) -> bool {
        self.refused.get(namespace).is_some_and(|refusals| now < refusals.until)
    }

    /// vCenter refused a password: one of this namespace, or of the configuration.
    pub(super) fn refuse(&mut self, namespace: Option<&str>, now: Instant) {
        self.full = Some(self.full.map_or(now, |full| full.max(now)) + REFILL);
        self.forget(now);
        if let Some(namespace) = namespace {
            self.count(namespace, None, now);
        }
    }

    /// A password of this namespace has to wait, without a word of vCenter. The account has no refusal more. A step is made again with
    /// the same password, which counts once.
    pub(super) fn hold(&mut self, namespace: &str, password: &SecretString, now: Instant) {
        let last = self.refused.get(namespace).and_then(|refusals| refusals.held.as_ref());
        if last.is_none_or(|last| !is_same(last, password)) {
            self.forget(now);
            self.count(namespace, Some(password), now);
        }
    }

    /// Forgets the namespaces that were refused long ago.
    fn forget(&mut self, now: Instant) {
        self.refused.retain(|_, refusals| refusals.is_recent(now));
    }

    fn count(&mut self, namespace: &str, held: Option<&SecretString>, now: Instant) {
        let earlier = self.refused.get(namespace);
        let was_asked = held.is_none() || earlier.is_some_and(|refusals| refusals.was_asked);
        let count = earlier.map_or(0, |refusals| refusals.count).saturating_add(1);
        let pause = match count.checked_sub(WITHOUT_PAUSE + 1) {
            None => Duration::ZERO,
            Some(doublings) => FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_PAUSE),
        };
        let refusals = Refusals { count, until: now + pause, was_asked, held: held.cloned() };
        self.refused.insert(namespace.into(), refusals);
    }

    /// vCenter accepted a password of this namespace.
    pub(super) fn accept(&mut self, namespace: Option<&str>) {
        if let Some(namespace) = namespace {
            self.refused.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these namespaces tries another wrong password as soon as it may. Returns when each try was made, and whose it was.
    fn tries(namespaces: &[&str], within: Duration) -> Vec<(u64, String)> {
        let (mut budget, begin) = (Budget::default(), Instant::now());
        let mut made = Vec::new();
        for second in 0..within.as_secs() {
            let now = begin + Duration::from_secs(second);
            for namespace in namespaces {
                while budget.allows(namespace, now) {
                    budget.refuse(Some(namespace), now);
                    made.push((second, (*namespace).to_owned()));
                }
            }
        }
        made
    }

    #[test]
    fn no_account_is_locked_whoever_guesses() {
        for namespaces in [&["a"][..], &["a", "b"], &["a", "b", "c", "d", "e", "f", "g", "h"]] {
            let made = tries(namespaces, Duration::from_secs(24 * 3600));
            let most = made
                .iter()
                .map(|(at, _)| made.iter().filter(|(one, _)| (*at..at + 180).contains(one)).count());
            assert!(most.max() <= Some(3), "{namespaces:?} {made:?}");
        }
        let alone: Vec<_> = tries(&["a"], Duration::from_secs(8000)).into_iter().map(|(at, _)| at).collect();
        assert_eq!(alone, [0, 0, 600, 1800, 4200, 7800], "ever less often");
    }

    #[test]
    fn who_was_not_refused_lately_has_a_try_left() {
        let (mut budget, mut now) = (Budget::default(), Instant::now());
        for _ in 0..100 {
            while budget.allows("guesser", now) {
                budget.refuse(Some("guesser"), now);
            }
            assert!(budget.allows("other", now), "another one has its turn");
            now += Duration::from_secs(100);
        }
    }

    #[test]
    fn who_has_to_wait_is_paused_once_for_each_password_and_keeps_the_turn() {
        let (mut budget, mut now) = (Budget::default(), Instant::now());
        let [one, other] = ["one", "other"].map(SecretString::from);
        for _ in 0..3 {
            budget.refuse(None, now);
        }
        for _ in 0..100 {
            budget.hold("a", &one, now);
        }
        assert!(!budget.is_paused("a", now), "a typing error can be corrected at once");
        assert!(!budget.allows("a", now));
        assert!(budget.allows("a", now + REFILL), "the one that is kept: vCenter has refused nothing of it");
        for password in [&other, &one, &other] {
            budget.hold("a", password, now);
            let (count, until) = (budget.refused["a"].count, budget.refused["a"].until);
            assert_eq!(until, now + FIRST_PAUSE * 2_u32.pow(count - 2), "{count}");
            assert!(budget.is_paused("a", now) && !budget.is_paused("b", now));
            now = until;
            budget.hold("a", password, now);
            assert!(!budget.is_paused("a", now), "it is the same password again");
        }
        assert_eq!(budget.full, Some(now - FIRST_PAUSE * 7 + REFILL * 3), "vCenter has refused no more");
        assert!(!format!("{budget:?}").contains("other"));
    }

    #[test]
    fn what_was_accepted_or_long_ago_does_not_count() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        for _ in 0..2 {
            budget.refuse(Some("a"), now);
        }
        let later = now + REFILL * 2;
        assert!(!budget.allows("a", now) && !budget.allows("a", later - Duration::from_secs(1)));
        budget.accept(Some("a"));
        assert!(budget.allows("a", now), "it has the one that is kept");
        budget.refuse(None, now);
        assert!(!budget.allows("a", now), "the refusals of the configuration count too");
        assert!(budget.allows("a", later));
        budget.refuse(Some("b"), later);
        budget.refuse(Some("b"), later);
        let forgotten = later + FIRST_PAUSE + LONGEST_PAUSE;
        budget.refuse(None, forgotten);
        assert!(budget.refused.is_empty(), "{budget:?}");
    }
}
