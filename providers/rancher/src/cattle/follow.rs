//! Keeps the inventory up to date: lists, then follows events, and lists again from time to time.

mod troubles;

use std::time::Duration;

use cloudprovider::{Backoff, Error, ErrorKind, Result};
use futures::{StreamExt as _, future};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::troubles::Troubles;
use super::{
    events::{HostEvent, HostEvents},
    inventory::{Hosts, Inventory, KnownHost, State},
    model::Host,
    reply::unavailable,
    source::HostSource,
};

/// How many addresses are read at the same time.
const ADDRESS_READS: usize = 4;

/// The time for a subscription to events. Listings wait for it.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(3);

/// The shortest time between two listings that somebody asked for.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The pauses between two listings that fail.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(10) };

/// How long a listing proves that a Node has no host, at most: while events arrive, which tell of a new host, and while
/// none do.
const ABSENCES_LAST_WITH_EVENTS: Duration = Duration::from_secs(5 * 60);
const ABSENCES_LAST: Duration = Duration::from_secs(30);

/// How often the hosts are listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intervals {
    /// While events arrive.
    pub(crate) with_events: Duration,
    /// While none do. No pause after a failure is longer.
    pub(crate) without_events: Duration,
}

impl Intervals {
    /// The shortest time between two listings that somebody asked for.
    fn least(self) -> Duration {
        MIN_INTERVAL.min(self.without_events)
    }

    /// The pauses after failures.
    fn backoff(self) -> Backoff {
        let most = self.without_events;
        Backoff { first: BACKOFF.first.min(most), most: BACKOFF.most.min(most) }
    }
}

/// Follows the hosts until `stop` is cancelled.
pub(crate) async fn run(
    source: &impl HostSource,
    hosts: &Hosts,
    intervals: Intervals,
    stop: CancellationToken,
) {
    stop.run_until_cancelled(follow(source, hosts, intervals)).await;
}

async fn follow(source: &impl HostSource, hosts: &Hosts, intervals: Intervals) {
    let mut failures = 0;
    let mut events = None;
    let mut subscribe_at = Instant::now();
    // Whether the addresses that were read before are read again.
    let mut refreshes = true;
    let mut troubles = Troubles::default();
    loop {
        // Before the listing, so that no change falls between the two.
        if events.is_none() && Instant::now() >= subscribe_at {
            let subscribed = subscribe(source).await;
            troubles.of_events(subscribed.as_ref().err());
            events = subscribed.ok();
            if events.is_none() {
                subscribe_at = Instant::now() + intervals.without_events;
            }
        }
        let began = Instant::now();
        let has_recovered;
        let unaddressed = match list(source, hosts).await {
            Ok((inventory, unaddressed)) => {
                troubles.of_listing(Ok(&inventory));
                let absences_last = if events.is_some() { ABSENCES_LAST_WITH_EVENTS } else { ABSENCES_LAST };
                hosts.replace(inventory, began, absences_last);
                // After an outage events can be had again, and the next listing follows at once.
                has_recovered = failures > 0 && events.is_none();
                failures = 0;
                unaddressed
            }
            Err(error) => {
                failures += 1;
                let pause = intervals.backoff().after(failures).max(error.retry_after().unwrap_or_default());
                troubles.of_listing(Err(&error));
                hosts.fail(error);
                // Events of the meantime may be lost, and a listing follows in any case.
                events = None;
                sleep(pause).await;
                continue;
            }
        };
        let interval = if has_recovered {
            subscribe_at = Instant::now();
            intervals.least()
        } else if events.is_some() {
            intervals.with_events
        } else {
            intervals.without_events
        };
        let reading = async {
            match read_addresses(source, hosts, intervals, unaddressed, refreshes).await {
                Ok(()) => std::future::pending().await,
                Err(error) => error,
            }
        };
        // A read or an event that is cut off here is made up for by the listing that follows.
        let ended = tokio::select! {
            () = sleep_until(began + interval) => {
                refreshes = true;
                Ok(())
            }
            () = hosts.listing_wanted() => {
                sleep_until(began + intervals.least()).await;
                refreshes = false;
                Ok(())
            }
            error = reading => Err(error),
            ended = follow_events(source, hosts, intervals, events.as_mut()) => {
                if ended.is_err() {
                    events = None;
                    hosts.events_ended();
                }
                ended
            }
        };
        if let Err(error) = ended {
            let pause = intervals.backoff().first.max(error.retry_after().unwrap_or_default());
            tracing::info!(error = %error.report(), ?pause, "the hosts are listed again");
            sleep(pause).await;
        }
    }
}

async fn subscribe(source: &impl HostSource) -> Result<HostEvents> {
    let late = || Err(unavailable(format!("no answer within {SUBSCRIBE_TIMEOUT:?}")));
    timeout(SUBSCRIBE_TIMEOUT, source.subscribe()).await.unwrap_or_else(|_| late())
}

/// All hosts with the addresses that are known already, and those that do not say their own.
///
/// # Errors
/// If the listing failed. An empty listing is no proof that there are no hosts: a key without rights sees
/// nothing.
async fn list(source: &impl HostSource, hosts: &Hosts) -> Result<(Inventory, Vec<KnownHost>)> {
    let listing = source.list().await?;
    if listing.hosts.is_empty() && listing.unreadable.is_none() {
        return Err(unavailable(
            "the server lists no host at all, as it does for an API key of another project; check the API key and the project",
        ));
    }
    let state = hosts.state();
    let existing = listing.hosts.into_iter().filter(Host::exists);
    let known: Vec<_> = existing.map(|host| with_known_addresses(&state, host)).collect();
    let unaddressed = known.iter().filter(|known| known.host.agent_ip().is_none()).cloned().collect();
    Ok((Inventory::new(known).with_unreadable(listing.unreadable), unaddressed))
}

/// A host with the address that it says, or else with those that were read before.
fn with_known_addresses(state: &State, host: Host) -> KnownHost {
    let ips = match host.agent_ip() {
        Some(ip) => Ok(vec![ip]),
        None => {
            let before = state.inventory.get(&host.id).filter(|before| before.host.agent_ip().is_none());
            before.map_or(Ok(Vec::new()), |before| before.ips.clone())
        }
    };
    KnownHost { host, ips }
}

/// Whether an address was read for this host.
fn is_addressed(known: &KnownHost) -> bool {
    known.ips.as_ref().is_ok_and(|ips| !ips.is_empty())
}

/// Reads the addresses of these hosts: first those of hosts without any, then those of the others if asked.
///
/// # Errors
/// If the server asks for a pause. Other failures belong to their hosts, and the next reads wait a little.
async fn read_addresses(
    source: &impl HostSource,
    hosts: &Hosts,
    intervals: Intervals,
    mut unaddressed: Vec<KnownHost>,
    refreshes: bool,
) -> Result<(), Error> {
    unaddressed.retain(|known| refreshes || !is_addressed(known));
    unaddressed.sort_by_key(is_addressed);
    let mut failures = 0;
    for some in unaddressed.chunks(ADDRESS_READS) {
        let reads = some.iter().map(|known| read_address(source, hosts, known));
        let mut is_well = true;
        for outcome in future::join_all(reads).await {
            match outcome {
                Ok(()) => {}
                Err(error) if asks_for_a_pause(&error) => return Err(error),
                Err(_) => is_well = false,
            }
        }
        failures = if is_well { 0 } else { failures + 1 };
        if !is_well {
            sleep(intervals.backoff().after(failures)).await;
        }
    }
    Ok(())
}

/// Reads the addresses of a host. What was read before is kept if that fails.
async fn read_address(source: &impl HostSource, hosts: &Hosts, known: &KnownHost) -> Result<(), Error> {
    let read = source.ip_addresses(&known.host).await;
    let outcome = read.as_ref().map(drop).map_err(Clone::clone);
    if read.is_ok() || !is_addressed(known) {
        hosts.put(KnownHost { host: known.host.clone(), ips: read });
    }
    outcome
}

fn asks_for_a_pause(error: &Error) -> bool {
    error.kind() == ErrorKind::RateLimited || error.retry_after().is_some()
}

/// Takes over events until a listing is needed. Without events, waits for ever.
///
/// # Errors
/// Why the events ended, or that the server asks for a pause. `Ok` if an event does not say what happened.
async fn follow_events(
    source: &impl HostSource,
    hosts: &Hosts,
    intervals: Intervals,
    events: Option<&mut HostEvents>,
) -> Result<(), Error> {
    let Some(events) = events else { return std::future::pending().await };
    loop {
        match events.next().await {
            Some(Ok(HostEvent::Host(host))) => {
                let known = with_known_addresses(&hosts.state(), *host);
                hosts.put(known.clone());
                if known.host.exists() && known.host.agent_ip().is_none() {
                    match read_address(source, hosts, &known).await {
                        Err(error) if asks_for_a_pause(&error) => return Err(error),
                        _ => {}
                    }
                }
            }
            Some(Ok(HostEvent::Unclear)) => {
                sleep(intervals.least()).await;
                return Ok(());
            }
            Some(Err(error)) => return Err(error),
            None => return Err(unavailable("the events ended")),
        }
    }
}

#[cfg(test)]
mod tests;
