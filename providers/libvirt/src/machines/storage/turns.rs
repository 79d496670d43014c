//! Who is next at the places for long work: namespaces take turns.
//!
//! Whoever has waited is before those that were served since, however much they ask for. What one namespace has waiting is
//! bounded, and so are the places that it has at the same time.

use std::collections::{HashMap, VecDeque};

/// What may wait of one namespace. The rest of it asks again later.
pub(super) const MAX_WAITING: usize = 16;
/// When namespaces that were served long ago are forgotten.
const MAX_KNOWN: usize = 4096;

/// Places, and what waits for them.
#[derive(Debug)]
pub(super) struct Turns<T> {
    places: usize,
    most_of_one: usize,
    /// Counts places that were taken, and namespaces that began to wait.
    clock: u64,
    namespaces: HashMap<String, Namespace<T>>,
}

#[derive(Debug)]
struct Namespace<T> {
    running: usize,
    waiting: VecDeque<T>,
    /// When it last took a place. Zero if it never did.
    served: u64,
    /// When it began to wait.
    since: u64,
}

impl<T> Turns<T> {
    /// So many places, of which one namespace has `most_of_one` at the same time.
    pub(super) fn new(places: usize, most_of_one: usize) -> Self {
        Self { places, most_of_one, clock: 0, namespaces: HashMap::new() }
    }

    /// Lets work wait for its turn. Gives it back if enough of its namespace waits.
    pub(super) fn add(&mut self, namespace: &str, work: T) -> Result<(), T> {
        if self.namespaces.len() >= MAX_KNOWN {
            self.namespaces.retain(|_, one| one.running > 0 || !one.waiting.is_empty());
        }
        self.clock += 1;
        let one = self.namespaces.entry(namespace.to_owned()).or_insert_with(|| Namespace {
            running: 0,
            waiting: VecDeque::new(),
            served: 0,
            since: 0,
        });
        if one.waiting.len() >= MAX_WAITING {
            return Err(work);
        }
        if one.waiting.is_empty() {
            one.since = self.clock;
        }
        one.waiting.push_back(work);
        Ok(())
    }

    /// The next work, which has a place from now on.
    pub(super) fn next(&mut self) -> Option<T> {
        if self.namespaces.values().map(|one| one.running).sum::<usize>() >= self.places {
            return None;
        }
        let may_run = |one: &&mut Namespace<T>| !one.waiting.is_empty() && one.running < self.most_of_one;
        let next = self.namespaces.values_mut().filter(may_run).min_by_key(|one| (one.served, one.since))?;
        let work = next.waiting.pop_front()?;
        self.clock += 1;
        next.served = self.clock;
        next.running += 1;
        Some(work)
    }

    /// Work of this namespace has ended, and its place is free.
    pub(super) fn end(&mut self, namespace: &str) {
        if let Some(one) = self.namespaces.get_mut(namespace) {
            one.running = one.running.saturating_sub(1);
        }
    }

    /// Takes back what waits.
    pub(super) fn withdraw(&mut self, namespace: &str, is_meant: impl Fn(&T) -> bool) {
        if let Some(one) = self.namespaces.get_mut(namespace) {
            one.waiting.retain(|work| !is_meant(work));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds work, named by its namespace.
    fn add(turns: &mut Turns<&'static str>, namespace: &'static str, count: usize) -> usize {
        (0..count).filter(|_| turns.add(namespace, namespace).is_ok()).count()
    }

    #[test]
    fn a_namespace_that_comes_late_is_next() {
        let mut turns = Turns::new(1, 1);
        assert_eq!(add(&mut turns, "a", 5000), MAX_WAITING);
        assert_eq!(turns.next(), Some("a"));
        assert_eq!(add(&mut turns, "b", 2), 2);
        assert_eq!(add(&mut turns, "c", 1), 1);
        assert_eq!(turns.next(), None, "there is one place");
        let mut order = Vec::new();
        let mut running = "a";
        for _ in 0..6 {
            turns.end(running);
            running = turns.next().expect("more waits");
            order.push(running);
            // it asks for more at once
            add(&mut turns, "a", 1);
        }
        assert_eq!(order, ["b", "c", "a", "b", "a", "a"]);
    }

    #[test]
    fn who_comes_back_is_not_before_those_who_wait() {
        let mut turns = Turns::new(1, 1);
        add(&mut turns, "a", 1);
        add(&mut turns, "b", 2);
        let mut order = Vec::new();
        while let Some(next) = turns.next() {
            order.push(next);
            turns.end(next);
            if order.len() < 4 {
                add(&mut turns, "a", 1);
            }
        }
        assert_eq!(order, ["a", "b", "a", "b", "a", "a"]);
    }

    #[test]
    fn one_namespace_never_has_all_places() {
        let mut turns = Turns::new(2, 1);
        add(&mut turns, "a", 9);
        assert_eq!((turns.next(), turns.next()), (Some("a"), None));
        add(&mut turns, "b", 9);
        assert_eq!((turns.next(), turns.next()), (Some("b"), None));
        turns.end("a");
        assert_eq!(turns.next(), Some("a"), "its own place");
    }

    #[test]
    fn what_is_withdrawn_does_not_run() {
        let mut turns = Turns::new(1, 1);
        assert_eq!((turns.add("a", 1), turns.add("a", 2)), (Ok(()), Ok(())));
        turns.withdraw("a", |work| *work == 1);
        assert_eq!((turns.next(), turns.next()), (Some(2), None));
    }

    #[test]
    fn namespaces_of_the_past_are_forgotten() {
        let mut turns = Turns::new(1, 1);
        for n in 0..3 * MAX_KNOWN {
            let namespace = format!("n{n}");
            turns.add(&namespace, ()).expect("room");
            turns.next().expect("a place");
            turns.end(&namespace);
        }
        assert!(turns.namespaces.len() <= MAX_KNOWN);
    }
}
