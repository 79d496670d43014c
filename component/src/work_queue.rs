//! A queue of names. Each name is in it at most once, and is never worked on twice at the same time.

mod lanes;
mod metrics;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use lanes::Lanes;

pub use metrics::{WorkQueueMeter, WorkQueueMetrics};

/// Names that are ready, wait for a time, or are at work. One loop owns the queue, so it needs no lock.
#[derive(Debug, Default)]
pub struct WorkQueue {
    ready: Lanes,
    at_work: HashSet<String>,
    due: HashMap<String, Instant>,
    by_time: BTreeSet<(Instant, String)>,
    meter: Option<WorkQueueMeter>,
}

/// The lengths of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Names that can be taken now.
    pub ready: usize,
    /// Names that were taken and are not done yet.
    pub at_work: usize,
    /// Names that wait for a time.
    pub waiting: usize,
}

impl Lengths {
    /// For `/debug/state`.
    pub fn to_json(self) -> Value {
        let Self { ready, at_work, waiting } = self;
        json!({"ready": ready, "atWork": at_work, "waiting": waiting})
    }
}

impl WorkQueue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty queue with metrics.
    pub fn measured(meter: WorkQueueMeter) -> Self {
        Self { meter: Some(meter), ..Self::default() }
    }

    /// The same with a lane for each of the words that `lane_of` finds in names, such as their namespaces. Names of different lanes
    /// are taken in turns, so that thousands of names of one lane delay a name of another one by one name.
    #[must_use]
    pub fn with_lanes(mut self, lane_of: fn(&str) -> &str) -> Self {
        self.ready = Lanes::new(lane_of);
        self
    }

    /// Adds a name that can be taken at once. If a later time was set for the name, that is forgotten. A name
    /// at work is ignored: the caller must check again when it is [`done`](Self::done).
    pub fn add(&mut self, name: &str) {
        if self.at_work.contains(name) {
            return;
        }
        self.forget_time(name);
        if self.ready.add(name)
            && let Some(meter) = &mut self.meter
        {
            meter.added(name);
        }
    }

    /// Adds a name that can be taken after `wait`, or earlier if an earlier time is already set. A name at
    /// work is ignored.
    pub fn add_after(&mut self, name: &str, wait: Duration) {
        let time = Instant::now() + wait;
        let is_sooner = self.due.get(name).is_some_and(|due| *due <= time);
        if is_sooner || self.ready.has(name) || self.at_work.contains(name) {
            return;
        }
        self.forget_time(name);
        self.due.insert(name.to_owned(), time);
        self.by_time.insert((time, name.to_owned()));
    }

    /// Like [`add_after`](Self::add_after), for a name whose work failed.
    pub fn retry_after(&mut self, name: &str, wait: Duration) {
        if let Some(meter) = &self.meter {
            meter.retried();
        }
        self.add_after(name, wait);
    }

    /// Removes a name that is not at work.
    pub fn remove(&mut self, name: &str) {
        self.forget_time(name);
        if self.ready.remove(name)
            && let Some(meter) = &mut self.meter
        {
            meter.removed(name);
        }
    }

    /// Whether the name is at work.
    pub fn is_at_work(&self, name: &str) -> bool {
        self.at_work.contains(name)
    }

    /// Whether the name waits for a time.
    pub fn is_waiting(&self, name: &str) -> bool {
        self.due.contains_key(name)
    }

    /// Whether a name can be taken now.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When a name that waits for a time is due.
    pub fn due(&self, name: &str) -> Option<Instant> {
        self.due.get(name).copied()
    }

    /// How many names are ready, at work and waiting for a time.
    pub fn lengths(&self) -> Lengths {
        Lengths { ready: self.ready.len(), at_work: self.at_work.len(), waiting: self.due.len() }
    }

    /// Whether a name can be taken now of a lane that `may` more be taken of. It gets how many names of the lane are at work.
    pub fn has_ready_of(&self, may: impl Fn(usize) -> bool) -> bool {
        self.ready.has_any(may)
    }

    /// Takes all names that are ready. They are at work until [`done`](Self::done) is called.
    pub fn take_ready(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.take_next()).collect()
    }

    /// Takes the name whose turn it is: without lanes, the one that has been ready for the longest time. It is at work until
    /// [`done`](Self::done) is called.
    pub fn take_next(&mut self) -> Option<String> {
        self.take_next_of(|_| true)
    }

    /// Takes the name whose turn it is of the lanes that `may` more be taken of. It gets how many names of a lane are at work.
    pub fn take_next_of(&mut self, may: impl Fn(usize) -> bool) -> Option<String> {
        let name = self.ready.take(may)?;
        if let Some(meter) = &mut self.meter {
            meter.taken(&name);
        }
        self.at_work.insert(name.clone());
        Some(name)
    }

    /// Marks the work on a name as ended.
    pub fn done(&mut self, name: &str) {
        if self.at_work.remove(name) {
            self.ready.done(name);
            if let Some(meter) = &self.meter {
                meter.done(name);
            }
        }
    }

    /// Waits until the next name is due, and makes all due names ready. Never ends while no name waits for a
    /// time. Cancel-safe.
    pub async fn wait_for_due(&mut self) {
        match self.by_time.first() {
            Some((time, _)) => sleep_until(*time).await,
            None => std::future::pending().await,
        }
        let now = Instant::now();
        while let Some((time, name)) = self.by_time.first()
            && *time <= now
        {
            let name = name.clone();
            self.add(&name);
        }
    }

    fn forget_time(&mut self, name: &str) {
        if let Some(time) = self.due.remove(name) {
            self.by_time.remove(&(time, name.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn names_come_once_and_in_time() {
        let mut queue = WorkQueue::new();
        queue.add("a");
        queue.add("a");
        queue.add_after("b", Duration::from_secs(2));
        queue.add_after("b", Duration::from_secs(1));
        queue.add_after("b", Duration::from_secs(3));
        assert_eq!(queue.take_ready(), ["a"]);
        assert!(queue.wait_for_due().now_or_never().is_none());
        let start = Instant::now();
        queue.wait_for_due().await;
        assert_eq!(start.elapsed(), Duration::from_secs(1));
        assert_eq!(queue.take_ready(), ["b"]);
    }

    #[test]
    fn nothing_is_twice_at_work() {
        let mut queue = WorkQueue::new();
        queue.add("a");
        assert_eq!(queue.take_ready(), ["a"]);
        queue.add("a");
        queue.add_after("a", Duration::ZERO);
        assert!(!queue.has_ready() && queue.is_at_work("a") && !queue.is_waiting("a"));
        assert_eq!(queue.lengths(), Lengths { ready: 0, at_work: 1, waiting: 0 });
        queue.done("a");
        queue.add("a");
        assert!(queue.has_ready());
        queue.remove("a");
        assert!(!queue.has_ready());
    }

    #[test]
    fn names_are_taken_one_by_one() {
        let mut queue = WorkQueue::new();
        for name in ["b", "a", "b"] {
            queue.add(name);
        }
        assert_eq!(queue.take_next().as_deref(), Some("b"));
        assert_eq!(queue.lengths(), Lengths { ready: 1, at_work: 1, waiting: 0 });
        queue.add("b");
        assert_eq!(queue.take_next().as_deref(), Some("a"));
        assert_eq!(queue.take_next(), None);
    }

    /// Ten thousand names of one lane, and one of another: it waits for one name, whenever it comes.
    #[test]
    fn lanes_take_turns() {
        let mut queue = WorkQueue::new().with_lanes(|name| name.split('/').next().unwrap_or_default());
        for number in 0..10_000 {
            queue.add(&format!("team-a/{number}"));
        }
        queue.add("team-b/one");
        assert_eq!(queue.take_next().as_deref(), Some("team-a/0"));
        assert_eq!(queue.take_next().as_deref(), Some("team-b/one"));
        assert_eq!(queue.take_next().as_deref(), Some("team-a/1"));
        queue.done("team-b/one");
        queue.add("team-b/one");
        queue.add("team-c/one");
        let next: Vec<_> = std::iter::from_fn(|| queue.take_next()).take(4).collect();
        assert_eq!(next, ["team-a/2", "team-b/one", "team-c/one", "team-a/3"]);
        assert_eq!(queue.lengths().ready, 10_000 - 4);
    }

    #[test]
    fn a_lane_with_much_at_work_is_passed_over() {
        let mut queue = WorkQueue::new().with_lanes(|name| name.split('/').next().unwrap_or_default());
        for name in ["a/1", "a/2", "a/3", "b/1"] {
            queue.add(name);
        }
        let may = |at_work: usize| at_work < 2;
        let taken: Vec<_> = std::iter::from_fn(|| queue.take_next_of(may)).collect();
        assert_eq!(taken, ["a/1", "b/1", "a/2"]);
        assert!(queue.has_ready() && !queue.has_ready_of(may));
        queue.done("b/1");
        assert_eq!(queue.take_next_of(may), None);
        queue.done("a/1");
        assert!(queue.has_ready_of(may));
        assert_eq!(queue.take_next_of(may).as_deref(), Some("a/3"));
    }

    #[test]
    fn a_removed_name_loses_its_turn_and_others_keep_theirs() {
        let mut queue = WorkQueue::new();
        for name in ["a", "b", "c", "d"] {
            queue.add(name);
        }
        queue.remove("b");
        queue.remove("b");
        queue.add("b");
        assert_eq!(queue.lengths().ready, 4);
        assert_eq!(queue.take_next().as_deref(), Some("a"));
        assert_eq!(queue.take_ready(), ["c", "d", "b"]);
        assert!(!queue.has_ready() && queue.take_next().is_none());
    }

    /// With a search through all that are ready, this would take minutes.
    #[test]
    fn names_are_removed_without_a_search() {
        let mut queue = WorkQueue::new();
        let names: Vec<String> = (0..200_000).map(|number| format!("default/web-{number}")).collect();
        for name in &names {
            queue.add(name);
        }
        for name in names.iter().rev() {
            queue.remove(name);
        }
        assert_eq!(queue.lengths(), Lengths { ready: 0, at_work: 0, waiting: 0 });
    }
}
