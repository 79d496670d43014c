//! Look-ups in an inventory that listings fill. No Node is absent before a listing confirms it that began
//! after the question.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    time::Duration,
};

use cloudprovider::{
    Error, ErrorKind, InstanceChange, InstanceLookup, InstanceRef, Result, look_once_listed,
};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::{
    sync::{Notify, broadcast, watch},
    time::{Instant, timeout},
};

/// How many changes a slow listener may lag behind before it has to read everything again.
const CHANGES_KEPT: usize = 1024;

/// More than a cluster has Nodes.
const MAX_ABSENCES: usize = 10_000;

/// How long after the start look-ups wait for the first listing.
const START_GRACE: Duration = Duration::from_secs(10);

/// How long a look-up waits for the listing that confirms an absence. A look-up has 60 s in all.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(30);

/// How a Node is resolved from the listings. `S` identifies an instance that was not found.
#[derive(Debug)]
pub(crate) enum Resolution<S> {
    /// The answer is final.
    Settled(InstanceLookup),
    /// Nothing has been listed yet. Until then this error is the answer.
    Starting(Error),
    /// The last listing does not have it. The Node is absent once a new listing confirms that.
    NotListed(S),
}

impl<S> From<Error> for Resolution<S> {
    fn from(error: Error) -> Self {
        Self::Settled(error.into())
    }
}

/// The state that listings and events give.
pub(crate) trait Listed: Default {
    /// Identifies an instance that is looked for.
    type Sought: Clone;

    /// The kind of the listed objects in messages, such as `host`.
    const OBJECT: &str;

    /// Whether a complete listing began after this moment. `None` while that is open.
    fn listed_since(&self, asked: Instant) -> Option<Result<()>>;

    /// Remembers what a listing has just confirmed to be absent. A change may have come in between.
    fn note_absence(&mut self, confirmed: Self::Sought);
}

/// A state that listings fill and events change, and the subscribers to its changes.
#[derive(Debug)]
pub(crate) struct Listings<S> {
    state: RwLock<S>,
    /// Counts changes of the state.
    versions: watch::Sender<u64>,
    changes: broadcast::Sender<InstanceChange>,
    /// Wakes the task that lists.
    wanted: Notify,
}

impl<S: Listed> Listings<S> {
    /// Nothing is known yet.
    pub(crate) fn new() -> Self {
        Self {
            state: RwLock::default(),
            versions: watch::Sender::new(0),
            changes: broadcast::Sender::new(CHANGES_KEPT),
            wanted: Notify::new(),
        }
    }

    /// The present state.
    pub(crate) fn state(&self) -> RwLockReadGuard<'_, S> {
        self.state.read()
    }

    /// The present state, for a change that no subscriber has to know of.
    pub(crate) fn state_mut(&self) -> RwLockWriteGuard<'_, S> {
        self.state.write()
    }

    /// Changes the state. The function returns the instances that the controllers have to look up again.
    pub(crate) fn change(&self, change: impl FnOnce(&mut S) -> Vec<InstanceRef>) {
        let mut references = change(&mut self.state.write());
        self.versions.send_modify(|number| *number += 1);
        references.sort_by(|a, b| (&a.provider_id, &a.name).cmp(&(&b.provider_id, &b.name)));
        references.dedup();
        if !references.is_empty() {
            // There may be no subscriber.
            let _ = self.changes.send(InstanceChange::Changed(references));
        }
    }

    /// Changes of instances.
    pub(crate) fn changes(&self) -> broadcast::Receiver<InstanceChange> {
        self.changes.subscribe()
    }

    /// The number of the state, which grows with each change.
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    /// Asks for a listing, soon.
    pub(crate) fn want_listing(&self) {
        self.wanted.notify_one();
    }

    /// Waits until a look-up asks for a listing.
    pub(crate) async fn listing_wanted(&self) {
        self.wanted.notified().await;
    }

    /// Remembers what a listing has just confirmed to be absent.
    pub(crate) fn note_absences(&self, confirmed: Vec<S::Sought>) {
        let mut state = self.state_mut();
        for sought in confirmed {
            state.note_absence(sought);
        }
    }

    /// Waits for a complete listing that began after this moment, and asks for one if there is none yet.
    ///
    /// # Errors
    /// Why there is none.
    async fn listing_since(&self, asked: Instant) -> Result<()> {
        let mut versions = self.versions();
        let outcome = || self.state().listed_since(asked);
        if let Some(outcome) = outcome() {
            return outcome;
        }
        self.want_listing();
        let listed = async {
            loop {
                versions.mark_unchanged();
                if let Some(outcome) = outcome() {
                    return outcome;
                }
                // The sender is in `self`, so this cannot fail.
                let _ = versions.changed().await;
            }
        };
        timeout(CONFIRMATION_TIMEOUT, listed).await.unwrap_or_else(|_| {
            let words = format!(
                "cannot confirm that there is no {} for this node: no listing came in time",
                S::OBJECT
            );
            Err(Error::new(ErrorKind::Timeout, words))
        })
    }
}

/// Whether a listing that began after `asked` has ended well. `listed` is when the last complete listing
/// began. `staleness` is why none was complete since, and when that was noticed.
pub(crate) fn outcome_since(
    asked: Instant,
    listed: Option<Instant>,
    staleness: Option<&(Error, Instant)>,
) -> Option<Result<()>> {
    if listed.is_some_and(|began| began > asked) && staleness.is_none() {
        return Some(Ok(()));
    }
    staleness.filter(|(_, at)| *at > asked).map(|(error, _)| Err(error.clone()))
}

/// Looks Nodes up with `resolve`, and once more after a new listing if an instance is not listed. One listing
/// confirms all absences of a batch. `started` is when the listings began.
pub(crate) async fn look_up<S: Listed>(
    listings: &Listings<S>,
    started: Option<Instant>,
    resolve: impl Fn() -> Vec<Resolution<S::Sought>>,
) -> Vec<InstanceLookup> {
    let asked = Instant::now();
    let deadline = started.map(|started| started + START_GRACE);
    let waits = |one: &Resolution<S::Sought>| matches!(one, Resolution::Starting(_));
    let mut resolutions = look_once_listed(&resolve, waits, listings.versions(), deadline).await;
    let mut confirmed = Ok(());
    if resolutions.iter().any(|one| matches!(one, Resolution::NotListed(_))) {
        confirmed = listings.listing_since(asked).await;
        if confirmed.is_ok() {
            resolutions = resolve();
            let absent = resolutions.iter().filter_map(|one| match one {
                Resolution::NotListed(sought) => Some(sought.clone()),
                Resolution::Settled(_) | Resolution::Starting(_) => None,
            });
            listings.note_absences(absent.collect());
        }
    }
    let settle = |resolution| match (resolution, &confirmed) {
        (Resolution::Settled(lookup), _) => lookup,
        (Resolution::Starting(error), _) => error.into(),
        (Resolution::NotListed(_), Ok(())) => InstanceLookup::Absent,
        (Resolution::NotListed(_), Err(error)) => error.clone().into(),
    };
    resolutions.into_iter().map(settle).collect()
}

/// Keys by what they are found by. Several may have the same word.
#[derive(Debug, Default)]
pub(crate) struct Index(HashMap<String, Vec<String>>);

impl Index {
    /// The keys with this word.
    pub(crate) fn with(&self, word: &str) -> std::slice::Iter<'_, String> {
        self.0.get(word).map_or(&[][..], Vec::as_slice).iter()
    }

    /// Notes that a key has this word.
    pub(crate) fn add(&mut self, word: String, key: String) {
        self.0.entry(word).or_default().push(key);
    }

    /// Forgets that a key has this word.
    pub(crate) fn remove(&mut self, word: &str, key: &str) {
        let Some(keys) = self.0.get_mut(word) else { return };
        keys.retain(|other| other != key);
        if keys.is_empty() {
            self.0.remove(word);
        }
    }
}

/// Absences that a listing has confirmed: a Node without a machine does not cost a listing for each look-up.
#[derive(Debug)]
pub(crate) struct Absences<K> {
    confirmed: HashSet<K>,
    /// From then on they have to be confirmed by a new listing.
    until: Option<Instant>,
}

impl<K> Default for Absences<K> {
    fn default() -> Self {
        Self { confirmed: HashSet::new(), until: None }
    }
}

impl<K: Eq + Hash> Absences<K> {
    /// Whether it is known that this one is absent.
    pub(crate) fn are_known_of(&self, sought: &K) -> bool {
        self.until.is_some_and(|until| Instant::now() < until) && self.confirmed.contains(sought)
    }

    /// Remembers an absence that a listing has just confirmed.
    pub(crate) fn add(&mut self, sought: K) {
        if self.confirmed.len() >= MAX_ABSENCES {
            self.confirmed.clear();
        }
        self.confirmed.insert(sought);
    }

    /// Forgets those who are there now.
    pub(crate) fn keep(&mut self, is_absent: impl FnMut(&K) -> bool) {
        self.confirmed.retain(is_absent);
    }

    /// What is remembered, and what will be, counts until then.
    pub(crate) fn count_until(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Forgets everything. What is added later does not count before the next listing.
    #[cfg(feature = "cattle")]
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_absence_counts_for_a_time_and_takes_no_endless_memory() {
        let mut absences = Absences::default();
        absences.add(0);
        assert!(!absences.are_known_of(&0), "no listing yet");
        absences.count_until(Instant::now() + Duration::from_secs(30));
        assert!(absences.are_known_of(&0) && !absences.are_known_of(&1));
        absences.keep(|sought| *sought != 0);
        assert!(!absences.are_known_of(&0));
        (0..=MAX_ABSENCES).for_each(|n| absences.add(n));
        assert!(absences.are_known_of(&MAX_ABSENCES) && absences.confirmed.len() <= MAX_ABSENCES);
        advance(Duration::from_secs(30)).await;
        assert!(!absences.are_known_of(&MAX_ABSENCES), "too old");
    }
}
