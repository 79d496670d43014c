//! Requests that wait for a limited number of permits, served in turns by key.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::Hash,
};

/// When keys are forgotten that have neither a permit nor a request.
const MAX_KEYS: usize = 4096;

/// A queue in which keys, such as namespaces, take turns: the next request is of the key that was served longest ago, and of
/// those that never were, of the one that began to wait first. However many requests of one key wait, another key is served
/// before the second of them. Within a key, requests are served in their order.
///
/// It has no lock and wakes nothing. [`FairPermits`](crate::FairPermits) is a semaphore on top of it.
///
/// ```
/// let mut queue = cloudprovider::FairQueue::new(1);
/// for request in [("team-a", 1), ("team-a", 2), ("team-b", 3)] {
///     queue.add(request.0, request.1).expect("the queue has no limit");
/// }
/// assert_eq!(queue.start_next(), Some(("team-a", 1)));
/// assert_eq!(queue.start_next(), None, "there is one permit");
/// queue.end(&"team-a");
/// assert_eq!(queue.start_next(), Some(("team-b", 3)));
/// ```
#[derive(Debug)]
pub struct FairQueue<K, T> {
    permits: usize,
    max_of_key: usize,
    max_waiting: usize,
    running: usize,
    /// Counts permits that were given, and keys that began to wait.
    clock: u64,
    keys: HashMap<K, Requests<T>>,
    /// The keys with requests that wait, by [`Requests::rank`].
    turns: BTreeMap<(u64, u64), K>,
}

/// The requests of one key.
#[derive(Debug)]
struct Requests<T> {
    running: usize,
    waiting: VecDeque<T>,
    /// When a request was last served. Zero if none was.
    served: u64,
    /// When the key began to wait.
    since: u64,
}

impl<T> Requests<T> {
    /// The place of the key among those that wait. No two are the same.
    fn rank(&self) -> (u64, u64) {
        (self.served, self.since)
    }
}

impl<K: Clone + Eq + Hash, T> FairQueue<K, T> {
    /// A queue for so many permits.
    pub fn new(permits: usize) -> Self {
        Self {
            permits,
            max_of_key: usize::MAX,
            max_waiting: usize::MAX,
            running: 0,
            clock: 0,
            keys: HashMap::new(),
            turns: BTreeMap::new(),
        }
    }

    /// Limits the permits that one key has at the same time.
    #[must_use]
    pub fn with_max_of_key(mut self, permits: usize) -> Self {
        self.max_of_key = permits;
        self
    }

    /// Limits the requests of one key that wait.
    #[must_use]
    pub fn with_max_waiting(mut self, requests: usize) -> Self {
        self.max_waiting = requests;
        self
    }

    /// Adds a request.
    ///
    /// # Errors
    /// Gives the request back if enough of its key wait.
    pub fn add(&mut self, key: K, request: T) -> Result<(), T> {
        if self.keys.len() >= MAX_KEYS {
            self.keys.retain(|_, one| one.running > 0 || !one.waiting.is_empty());
        }
        self.clock += 1;
        let new = || Requests { running: 0, waiting: VecDeque::new(), served: 0, since: 0 };
        let one = self.keys.entry(key.clone()).or_insert_with(new);
        if one.waiting.len() >= self.max_waiting {
            return Err(request);
        }
        if one.waiting.is_empty() {
            one.since = self.clock;
            self.turns.insert(one.rank(), key);
        }
        one.waiting.push_back(request);
        Ok(())
    }

    /// Takes the next request out of the queue, and gives it a permit.
    pub fn start_next(&mut self) -> Option<(K, T)> {
        if self.running >= self.permits {
            return None;
        }
        let may_run = |key: &K| self.keys.get(key).is_some_and(|one| one.running < self.max_of_key);
        let rank = *self.turns.iter().find(|(_, key)| may_run(key))?.0;
        let key = self.turns.remove(&rank)?;
        let one = self.keys.get_mut(&key)?;
        let request = one.waiting.pop_front()?;
        self.clock += 1;
        one.served = self.clock;
        one.running += 1;
        self.running += 1;
        if !one.waiting.is_empty() {
            self.turns.insert(one.rank(), key.clone());
        }
        Some((key, request))
    }

    /// Takes the permit back of a request of this key that has ended.
    pub fn end(&mut self, key: &K) {
        if let Some(one) = self.keys.get_mut(key).filter(|one| one.running > 0) {
            one.running -= 1;
            self.running -= 1;
        }
    }

    /// Drops the requests of this key that wait and are meant.
    pub fn withdraw(&mut self, key: &K, is_meant: impl Fn(&T) -> bool) {
        if let Some(one) = self.keys.get_mut(key) {
            one.waiting.retain(|request| !is_meant(request));
            if one.waiting.is_empty() {
                self.turns.remove(&one.rank());
            }
        }
    }

    /// How many permits are free.
    pub fn free(&self) -> usize {
        self.permits.saturating_sub(self.running)
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.keys.values().map(|one| one.waiting.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_WAITING: usize = 16;

    type Queue = FairQueue<&'static str, &'static str>;

    fn queue(permits: usize) -> Queue {
        FairQueue::new(permits).with_max_of_key(1).with_max_waiting(MAX_WAITING)
    }

    /// Adds requests, named by their key.
    fn add(queue: &mut Queue, key: &'static str, count: usize) -> usize {
        (0..count).filter(|_| queue.add(key, key).is_ok()).count()
    }

    fn next(queue: &mut Queue) -> Option<&'static str> {
        queue.start_next().map(|(_, request)| request)
    }

    #[test]
    fn a_key_that_comes_late_is_next() {
        let mut queue = queue(1);
        assert_eq!(add(&mut queue, "a", 5000), MAX_WAITING);
        assert_eq!(next(&mut queue), Some("a"));
        assert_eq!(add(&mut queue, "b", 2), 2);
        assert_eq!(add(&mut queue, "c", 1), 1);
        assert_eq!(next(&mut queue), None, "there is one permit");
        let mut order = Vec::new();
        let mut running = "a";
        for _ in 0..6 {
            queue.end(&running);
            running = next(&mut queue).expect("more waits");
            order.push(running);
            // It asks for more at once.
            add(&mut queue, "a", 1);
        }
        assert_eq!(order, ["b", "c", "a", "b", "a", "a"]);
    }

    #[test]
    fn a_key_that_comes_back_is_not_before_those_that_wait() {
        let mut queue = queue(1);
        add(&mut queue, "a", 1);
        add(&mut queue, "b", 2);
        let mut order = Vec::new();
        while let Some(one) = next(&mut queue) {
            order.push(one);
            queue.end(&one);
            if order.len() < 4 {
                add(&mut queue, "a", 1);
            }
        }
        assert_eq!(order, ["a", "b", "a", "b", "a", "a"]);
    }

    #[test]
    fn one_key_never_has_all_permits() {
        let mut queue = queue(2);
        add(&mut queue, "a", 9);
        assert_eq!((next(&mut queue), next(&mut queue)), (Some("a"), None));
        add(&mut queue, "b", 9);
        assert_eq!((next(&mut queue), next(&mut queue)), (Some("b"), None));
        queue.end(&"a");
        assert_eq!(next(&mut queue), Some("a"), "its own permit");
        assert_eq!((queue.free(), queue.waiting()), (0, 15));
    }

    #[test]
    fn a_withdrawn_request_does_not_run() {
        let mut queue = FairQueue::new(1);
        assert_eq!((queue.add("a", 1), queue.add("a", 2)), (Ok(()), Ok(())));
        queue.withdraw(&"a", |request| *request == 1);
        assert_eq!((queue.start_next(), queue.start_next()), (Some(("a", 2)), None));
    }

    #[test]
    fn idle_keys_are_forgotten() {
        let mut queue = FairQueue::new(1);
        for n in 0..3 * MAX_KEYS {
            queue.add(n, ()).expect("room");
            queue.start_next().expect("a permit");
            queue.end(&n);
        }
        assert!(queue.keys.len() <= MAX_KEYS);
    }
}
