//! Look-ups in a memory that listings fill. Nobody is absent before a listing that began after the question has confirmed it.

use std::time::Duration;

use cloudprovider::{Error, ErrorKind, InstanceLookup, Result, look_once_listed};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

/// How long after the start look-ups wait for the first listing.
const START_GRACE: Duration = Duration::from_secs(10);

/// How long a look-up waits for the listing that confirms an absence. A look-up has 60 s in all.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of a look-up in memory. `S` is what was looked for in vain.
#[derive(Debug)]
pub(crate) enum Answer<S> {
    /// The final answer.
    Settled(InstanceLookup),
    /// Nothing has been listed yet.
    Starting(Error),
    /// It is not in memory. A listing has to confirm it.
    Nowhere(S),
}

impl<S> From<Error> for Answer<S> {
    fn from(error: Error) -> Self {
        Self::Settled(error.into())
    }
}

/// A memory that listings fill.
pub(crate) trait Listed {
    /// What is looked for.
    type Sought: Clone;

    /// What one listed object is called, as in `host`.
    const OBJECT: &str;

    /// Changes of what is known.
    fn versions(&self) -> watch::Receiver<u64>;

    /// Asks for a listing, soon.
    fn want_listing(&self);

    /// Whether a complete listing began after this moment. `None` if that is still open.
    fn listed_since(&self, asked: Instant) -> Option<Result<()>>;

    /// Remembers what a listing has just confirmed to be absent.
    fn note_absences(&self, confirmed: Vec<Self::Sought>);
}

/// The outcome of what is known of the listings: `listed` is when the last complete one began, and `trouble` why there was none
/// since, and when that was.
pub(crate) fn outcome_since(
    asked: Instant,
    listed: Option<Instant>,
    trouble: Option<&(Error, Instant)>,
) -> Option<Result<()>> {
    if listed.is_some_and(|began| began > asked) && trouble.is_none() {
        return Some(Ok(()));
    }
    trouble.filter(|(_, at)| *at > asked).map(|(error, _)| Err(error.clone()))
}

/// Looks up with `look`, and once more after a listing if somebody is not in memory. One listing confirms all absences of a batch.
/// `started` is when the listings began.
pub(crate) async fn look_up<L: Listed + Sync>(
    memory: &L,
    started: Option<Instant>,
    look: impl Fn() -> Vec<Answer<L::Sought>>,
) -> Vec<InstanceLookup> {
    let asked = Instant::now();
    let deadline = started.map(|started| started + START_GRACE);
    let waits = |answer: &Answer<L::Sought>| matches!(answer, Answer::Starting(_));
    let mut answers = look_once_listed(&look, waits, memory.versions(), deadline).await;
    let mut confirmed = Ok(());
    if answers.iter().any(|answer| matches!(answer, Answer::Nowhere(_))) {
        confirmed = listing_since(memory, asked).await;
        if confirmed.is_ok() {
            answers = look();
            let nowhere = answers.iter().filter_map(|answer| match answer {
                Answer::Nowhere(sought) => Some(sought.clone()),
                Answer::Settled(_) | Answer::Starting(_) => None,
            });
            memory.note_absences(nowhere.collect());
        }
    }
    let settle = |answer| match (answer, &confirmed) {
        (Answer::Settled(lookup), _) => lookup,
        (Answer::Starting(error), _) => error.into(),
        (Answer::Nowhere(_), Ok(())) => InstanceLookup::Absent,
        (Answer::Nowhere(_), Err(error)) => error.clone().into(),
    };
    answers.into_iter().map(settle).collect()
}

/// Waits for a complete listing that began after this moment, and asks for one if there is none yet.
///
/// # Errors
/// Why there is none.
async fn listing_since<L: Listed>(memory: &L, asked: Instant) -> Result<()> {
    let mut versions = memory.versions();
    if let Some(outcome) = memory.listed_since(asked) {
        return outcome;
    }
    memory.want_listing();
    let listed = async {
        loop {
            versions.mark_unchanged();
            if let Some(outcome) = memory.listed_since(asked) {
                return outcome;
            }
            // The sender is in the memory, so this cannot fail.
            let _ = versions.changed().await;
        }
    };
    timeout(CONFIRMATION_TIMEOUT, listed).await.unwrap_or_else(|_| {
        let words =
            format!("cannot confirm that there is no {} for this node: no listing came in time", L::OBJECT);
        Err(Error::new(ErrorKind::Timeout, words))
    })
}
