//! Keeps the inventory up to date: lists, then follows events, and lists again from time to time.

use std::time::Duration;

use cloudprovider::{Backoff, Error, Result};
use futures::{StreamExt as _, stream};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    events::{HostEvent, HostEvents},
    inventory::{Hosts, Inventory, KnownHost},
    model::Host,
    reply::unavailable,
    source::HostSource,
};

/// How many addresses are read at the same time.
const ADDRESS_READS: usize = 4;

/// The shortest time between two listings that somebody asked for.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The pauses between two listings that fail.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(10) };

/// How often the hosts are listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intervals {
    /// While events arrive.
    pub(crate) with_events: Duration,
    /// While none do.
    pub(crate) without_events: Duration,
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
    loop {
        // Before the listing, so that no change falls between the two.
        if events.is_none() {
            events = subscribe(source).await;
        }
        let began = Instant::now();
        match list(source).await {
            Ok(inventory) => {
                tracing::debug!(hosts = inventory.len(), "the hosts were listed");
                hosts.replace(inventory, began);
                failures = 0;
            }
            Err(error) => {
                failures += 1;
                let pause = error.retry_after().unwrap_or_else(|| BACKOFF.after(failures));
                tracing::warn!(error = %error.report(), ?pause, "the hosts cannot be listed");
                hosts.fail(error);
                // Events of the meantime may be lost, and a listing follows in any case.
                events = None;
                sleep(pause).await;
                continue;
            }
        }
        let interval = if events.is_some() { intervals.with_events } else { intervals.without_events };
        // An event whose processing is cut off here is in the listing that follows.
        tokio::select! {
            () = sleep_until(began + interval) => {}
            () = hosts.listing_wanted() => sleep_until(began + MIN_INTERVAL).await,
            error = follow_events(source, hosts, events.as_mut()) => {
                if let Err(error) = error {
                    tracing::info!(error = %error.report(), "the hosts are listed again");
                    events = None;
                    sleep(BACKOFF.first).await;
                }
            }
        }
    }
}

async fn subscribe(source: &impl HostSource) -> Option<HostEvents> {
    match source.subscribe().await {
        Ok(events) => Some(events),
        Err(error) => {
            tracing::info!(error = %error.report(), "there are no events, so the hosts are listed more often");
            None
        }
    }
}

/// All hosts with their addresses.
///
/// # Errors
/// If the listing failed. An empty listing is no proof that there are no hosts: a key without rights sees
/// nothing.
async fn list(source: &impl HostSource) -> Result<Inventory> {
    let hosts = source.list().await?;
    if hosts.is_empty() {
        return Err(unavailable(
            "the server lists no host at all, as it does for an API key of another project; check the API key and the project",
        ));
    }
    let existing = hosts.into_iter().filter(Host::exists);
    let known = stream::iter(existing).map(|host| with_addresses(source, host)).buffered(ADDRESS_READS);
    Ok(Inventory::new(known.collect::<Vec<_>>().await))
}

/// The addresses of a host. Only a host without an agent's address costs a call.
async fn with_addresses(source: &impl HostSource, host: Host) -> KnownHost {
    let ips = match host.agent_ip() {
        Some(ip) => Ok(vec![ip]),
        None if host.exists() => source.ip_addresses(&host).await,
        None => Ok(Vec::new()),
    };
    KnownHost { host, ips }
}

/// Takes over events until a listing is needed. Without events, waits for ever.
///
/// # Errors
/// Why the events ended. `Ok` if an event does not say what happened.
async fn follow_events(
    source: &impl HostSource,
    hosts: &Hosts,
    events: Option<&mut HostEvents>,
) -> Result<(), Error> {
    let Some(events) = events else { return std::future::pending().await };
    loop {
        match events.next().await {
            Some(Ok(HostEvent::Host(host))) => hosts.put(with_addresses(source, *host).await),
            Some(Ok(HostEvent::Unclear)) => {
                sleep(MIN_INTERVAL).await;
                return Ok(());
            }
            Some(Err(error)) => return Err(error),
            None => return Err(unavailable("the events ended")),
        }
    }
}

#[cfg(test)]
mod tests;
