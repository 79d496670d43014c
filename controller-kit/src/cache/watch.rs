//! The watch that keeps a cache up to date.

use cloudprovider::{LogOnce, error_chain};
use component::watching::watch;
use futures::{StreamExt, pin_mut};
use kube::{Api, Resource, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::{Cache, CachedObject};

/// An object as it comes from the API server, and `Kept`, what is kept of it. A parameter, so that a crate can say so of an object of
/// another crate.
pub trait Watched<Kept: CachedObject>:
    Resource<DynamicType: Send + Sync> + Clone + std::fmt::Debug + DeserializeOwned + Into<Kept> + Send + 'static
{
    /// Key and version of an object of which nothing else has changed since the last event, where the client says so.
    fn as_version(&self) -> Option<(&str, &str)> {
        None
    }
}

/// Keeps `cache` up to date until `stop` is cancelled. `kind` is what logs call the objects, in the plural, and `page` the
/// number of objects in one page of the list. The client of `api` comes from [`client`](component::watching::client).
///
/// After a lost watch, an expired version (410 Gone), an event that cannot be read, or while the API server is away, it tries
/// again with backoff. Meanwhile the cache shows what was last known.
pub async fn watch_objects<W: Watched<Kept>, Kept: CachedObject>(
    kind: &'static str,
    api: Api<W>,
    page: u32,
    cache: Cache<Kept>,
    stop: CancellationToken,
) {
    let events = watch(api, watcher::Config::default().page_size(page));
    pin_mut!(events);
    let mut listing: Vec<Kept> = Vec::new();
    let mut failing = LogOnce::<()>::default();
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                if failing.begins(&()) {
                    tracing::warn!(error = %error_chain(&error), "watch of {kind} failed, trying again");
                }
                continue;
            }
        };
        if !matches!(event, watcher::Event::Init) && failing.ends(&()) {
            tracing::info!("watch of {kind} works again");
        }
        match event {
            watcher::Event::Init => listing.clear(),
            // In a list each object is complete.
            watcher::Event::InitApply(object) => listing.push(object.into()),
            watcher::Event::InitDone => cache.replace(std::mem::take(&mut listing)),
            watcher::Event::Apply(object) => match object.as_version() {
                Some((key, version)) => cache.set_version(key, version),
                None => cache.apply(object.into()),
            },
            watcher::Event::Delete(object) => cache.remove(&object.into().key()),
        }
    }
}
