//! Look-ups in an inventory that listings fill. No Node is absent before a listing confirms it that began
//! after the question.

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

/// How a Node is resolved from memory. `S` identifies an instance that was not found.
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

/// An inventory that listings fill.
pub(crate) trait Listed {
    /// Identifies an instance that is looked for.
    type Sought: Clone;

    /// The kind of the listed objects in messages, such as `host`.
    const OBJECT: &str;

    /// Changes with each change of the inventory.
    fn versions(&self) -> watch::Receiver<u64>;

    /// Asks for a listing, soon.
    fn want_listing(&self);

    /// Whether a complete listing began after this moment. `None` while that is open.
    fn listed_since(&self, asked: Instant) -> Option<Result<()>>;

    /// Remembers what a listing has just confirmed to be absent.
    fn note_absences(&self, confirmed: Vec<Self::Sought>);
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
pub(crate) async fn look_up<L: Listed + Sync>(
    inventory: &L,
    started: Option<Instant>,
    resolve: impl Fn() -> Vec<Resolution<L::Sought>>,
) -> Vec<InstanceLookup> {
    let asked = Instant::now();
    let deadline = started.map(|started| started + START_GRACE);
    let waits = |one: &Resolution<L::Sought>| matches!(one, Resolution::Starting(_));
    let mut resolutions = look_once_listed(&resolve, waits, inventory.versions(), deadline).await;
    let mut confirmed = Ok(());
    if resolutions.iter().any(|one| matches!(one, Resolution::NotListed(_))) {
        confirmed = listing_since(inventory, asked).await;
        if confirmed.is_ok() {
            resolutions = resolve();
            let absent = resolutions.iter().filter_map(|one| match one {
                Resolution::NotListed(sought) => Some(sought.clone()),
                Resolution::Settled(_) | Resolution::Starting(_) => None,
            });
            inventory.note_absences(absent.collect());
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

/// Waits for a complete listing that began after this moment, and asks for one if there is none yet.
///
/// # Errors
/// Why there is none.
async fn listing_since<L: Listed>(inventory: &L, asked: Instant) -> Result<()> {
    let mut versions = inventory.versions();
    if let Some(outcome) = inventory.listed_since(asked) {
        return outcome;
    }
    inventory.want_listing();
    let listed = async {
        loop {
            versions.mark_unchanged();
            if let Some(outcome) = inventory.listed_since(asked) {
                return outcome;
            }
            // The sender is in the inventory, so this cannot fail.
            let _ = versions.changed().await;
        }
    };
    timeout(CONFIRMATION_TIMEOUT, listed).await.unwrap_or_else(|_| {
        let words =
            format!("cannot confirm that there is no {} for this node: no listing came in time", L::OBJECT);
        Err(Error::new(ErrorKind::Timeout, words))
    })
}
