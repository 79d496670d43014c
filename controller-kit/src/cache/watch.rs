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
///
/// An object whose conversion fails is left out of the cache, and a log line names it. So one object that cannot be read, such as one
/// that a user wrote where a definition lets more through than our types, does not stop the watch of all others.
pub trait Watched<Kept: CachedObject>:
    Resource<DynamicType: Send + Sync>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + TryInto<Kept, Error: std::fmt::Display>
    + Send
    + 'static
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
    let mut left_out = LeftOut { kind, logged: LogOnce::default() };
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
            watcher::Event::InitApply(object) => listing.extend(left_out.read(object).ok()),
            watcher::Event::InitDone => cache.replace(std::mem::take(&mut listing)),
            watcher::Event::Apply(object) => match object.as_version() {
                Some((key, version)) => cache.set_version(key, version),
                None => match left_out.read(object) {
                    Ok(object) => cache.apply(object),
                    // What is cached is not what the API server has.
                    Err(key) => cache.remove(&key),
                },
            },
            watcher::Event::Delete(object) => {
                let key =
                    left_out.read(object).map_or_else(|key| key, |object: Kept| object.key().into_owned());
                left_out.logged.ends(&key);
                cache.remove(&key);
            }
        }
    }
}

/// The objects that cannot be read. The log names each once, until it can be read.
struct LeftOut {
    kind: &'static str,
    logged: LogOnce,
}

impl LeftOut {
    /// What is kept of an object, or the key of one that cannot be read.
    fn read<W: Watched<Kept>, Kept: CachedObject>(&mut self, object: W) -> Result<Kept, String> {
        let key = key_of(&object);
        match object.try_into() {
            Ok(object) => {
                if self.logged.ends(&key) {
                    tracing::info!(object = key, "the object of {} can be read again", self.kind);
                }
                Ok(object)
            }
            Err(error) => {
                if self.logged.begins(&key) {
                    tracing::warn!(
                        object = key,
                        %error,
                        "an object of {} cannot be read, and is treated as if it did not exist until it is corrected",
                        self.kind
                    );
                }
                Err(key)
            }
        }
    }
}

/// [`CachedObject::key`] of what is kept of an object.
fn key_of(object: &impl Resource) -> String {
    let metadata = object.meta();
    let name = metadata.name.as_deref().unwrap_or_default();
    match metadata.namespace.as_deref() {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}/{name}"),
        _ => name.to_owned(),
    }
}
