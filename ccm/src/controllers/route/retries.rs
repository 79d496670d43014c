//! What failed, and when it is tried again.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    time::Duration,
};

use component::{backoff::Backoff, debug_state::seconds_from_now};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The first wait after a failure, and its longest one. The longest wait is never longer than the period.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(300) };

/// Bounds for a provider's `retry_after`.
const RETRY_AFTER: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(300);

/// Something that can fail and is tried again by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// Listing the cloud's routes.
    List,
    /// Deleting the route of this name in the cloud.
    Delete { name: String, node: String, cidr: String },
    /// Making the route of this Node and CIDR.
    Create { node: String, cidr: String },
    /// Writing the condition of this Node.
    Condition { node: String },
}

impl Work {
    /// The Node that it is for.
    pub(super) fn node(&self) -> Option<&str> {
        match self {
            Self::List => None,
            Self::Delete { node, .. } | Self::Create { node, .. } | Self::Condition { node } => Some(node),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => f.write_str("list the routes"),
            Self::Delete { name, cidr, .. } => write!(f, "delete the route {name} {cidr}"),
            Self::Create { node, cidr } => write!(f, "create the route {cidr} for node {node}"),
            Self::Condition { node } => write!(f, "write the condition of node {node}"),
        }
    }
}

/// A failure of one piece of work.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) work: Work,
    pub(super) error: String,
    /// When the provider says that another try can help.
    pub(super) retry_after: Option<Duration>,
    /// The provider waits for something, and nothing went wrong.
    pub(super) is_in_progress: bool,
}

#[derive(Debug)]
struct Retry {
    failures: u32,
    due: Instant,
    error: String,
    is_in_progress: bool,
}

/// What failed, and when it is tried again.
#[derive(Debug)]
pub(super) struct Retries {
    waiting: HashMap<Work, Retry>,
    backoff: Backoff,
}

impl Retries {
    /// No wait is longer than `period`, since upstream tries everything again in each period.
    pub(super) fn new(period: Duration) -> Self {
        let most = BACKOFF.most.min(period).max(BACKOFF.first);
        Self { waiting: HashMap::new(), backoff: Backoff { most, ..BACKOFF } }
    }

    /// Notes a failure and returns the wait until the next try. All that failed together is tried again together, so the
    /// waits have no random part.
    pub(super) fn failed(&mut self, failure: Failure, now: Instant) -> Duration {
        let Failure { work, error, retry_after, is_in_progress } = failure;
        let new = Retry { failures: 0, due: now, error: String::new(), is_in_progress };
        let retry = self.waiting.entry(work).or_insert(new);
        retry.failures = retry.failures.saturating_add(1);
        (retry.error, retry.is_in_progress) = (error, is_in_progress);
        let wait = match retry_after {
            Some(after) => after.clamp(*RETRY_AFTER.start(), *RETRY_AFTER.end()),
            None => self.backoff.nominal(retry.failures),
        };
        retry.due = now + wait;
        wait
    }

    /// Forgets what is not in `keep`: it was done, or is not wanted any more.
    pub(super) fn keep_only(&mut self, keep: &HashSet<Work>) {
        self.waiting.retain(|work, _| keep.contains(work));
    }

    pub(super) fn forget(&mut self, work: &Work) {
        self.waiting.remove(work);
    }

    /// Forgets the failures about a Node that changed: what stood in the way may be gone. Returns whether there were some.
    pub(super) fn forget_node(&mut self, node: &str) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|work, _| work.node() != Some(node));
        before != self.waiting.len()
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    pub(super) fn has(&self, work: &Work) -> bool {
        self.waiting.contains_key(work)
    }

    /// What is not to be tried before `then`.
    pub(super) fn not_due(&self, then: Instant) -> HashSet<Work> {
        self.waiting.iter().filter(|(_, retry)| retry.due > then).map(|(work, _)| work.clone()).collect()
    }

    /// What the provider still waits with.
    pub(super) fn in_progress(&self) -> HashSet<Work> {
        self.waiting.iter().filter(|(_, retry)| retry.is_in_progress).map(|(work, _)| work.clone()).collect()
    }

    /// When this one is tried again.
    pub(super) fn due(&self, work: &Work) -> Option<Instant> {
        self.waiting.get(work).map(|retry| retry.due)
    }

    /// When the next one is tried again, apart from those that are being tried.
    pub(super) fn next(&self, is_tried: impl Fn(&Work) -> bool) -> Option<Instant> {
        self.waiting.iter().fold(None, |next, (work, retry)| match next {
            Some(next) if next <= retry.due => Some(next),
            _ if is_tried(work) => next,
            _ => Some(retry.due),
        })
    }

    /// For `/debug/state`.
    pub(super) fn to_json(&self) -> Value {
        let mut waiting: Vec<(String, &Retry)> =
            self.waiting.iter().map(|(work, retry)| (work.to_string(), retry)).collect();
        waiting.sort_by(|a, b| a.0.cmp(&b.0));
        let one = |(work, retry): (String, &Retry)| {
            json!({
                "what": work,
                "failures": retry.failures,
                "nextTryInSeconds": seconds_from_now(retry.due),
                "error": retry.error,
            })
        };
        waiting.into_iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(node: &str, retry_after: Option<Duration>) -> Failure {
        let work = Work::Create { node: node.to_owned(), cidr: "10.0.0.0/24".to_owned() };
        Failure { work, error: "no".to_owned(), retry_after, is_in_progress: false }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_five_minutes_or_the_period() {
        let now = Instant::now();
        for (period, expected) in
            [(300, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]), (10, [1, 2, 4, 8, 10, 10, 10, 10, 10, 10])]
        {
            let mut retries = Retries::new(Duration::from_secs(period));
            let waits = expected.map(|_| retries.failed(failure("a", None), now).as_secs());
            assert_eq!(waits, expected);
            assert_eq!(retries.next(|_| false), Some(now + Duration::from_secs(expected[9])));
        }
        let mut retries = Retries::new(Duration::from_secs(10));
        let wait = |retries: &mut Retries, after: u64| {
            retries.failed(failure("a", Some(Duration::from_secs(after))), now)
        };
        assert_eq!(wait(&mut retries, 45), Duration::from_secs(45));
        assert_eq!(wait(&mut retries, 4000), Duration::from_secs(300));
        assert_eq!(wait(&mut retries, 0), Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_changed_is_tried_at_once() {
        let now = Instant::now();
        let mut retries = Retries::new(Duration::from_secs(300));
        retries.failed(failure("a", None), now);
        retries.failed(failure("b", None), now);
        assert_eq!(retries.not_due(now).len(), 2);
        assert!(retries.forget_node("a") && !retries.forget_node("a"));
        assert_eq!(retries.not_due(now), HashSet::from([failure("b", None).work]));
        assert!(retries.not_due(now + Duration::from_secs(1)).is_empty());
        retries.keep_only(&HashSet::new());
        assert_eq!(retries.next(|_| false), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_being_tried_is_not_the_next_one() {
        let (now, later) = (Instant::now(), Duration::from_secs(9));
        let mut retries = Retries::new(Duration::from_secs(300));
        retries.failed(failure("a", None), now);
        assert_eq!(retries.next(|_| true), None);
        retries.failed(failure("b", Some(later)), now);
        assert_eq!(retries.next(|work| work.node() == Some("a")), Some(now + later));
        assert_eq!(retries.next(|work| work.node() == Some("b")), Some(now + Duration::from_secs(1)));
    }
}
