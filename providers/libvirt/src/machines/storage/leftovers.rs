//! What interrupted imports leave in a pool.
//!
//! An interrupted import looks like one that another daemon is making. So a volume counts as left over if its
//! file does not change between two listings that are 5 minutes apart: an import gives up a server that sends
//! nothing for a minute. If that should be wrong, the other daemon notices that its volume is gone, and
//! imports again.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use super::{
    MachineStorage,
    attempts::{Attempts, parse},
    calls::{CallError, CallResult, StorageCalls},
    image::IMAGE_PREFIX,
    volume::Volume,
};

/// The time between the two listings.
pub(super) const STALL: Duration = Duration::from_secs(300);

/// What is left over of images, among these names of a pool.
fn leftovers(names: &[String]) -> Attempts {
    Attempts::find(names.iter().map(String::as_str), |base| base.starts_with(IMAGE_PREFIX))
}

impl MachineStorage {
    /// Begins to delete leftovers, if there are any among these names and the pool is not swept yet.
    pub(super) fn sweep_leftovers(&self, calls: &Arc<dyn StorageCalls>, pool: &str, names: &[String]) {
        let found = leftovers(names);
        let is_at_work = |volume: &String| self.is_at_work(calls.hypervisor(), pool, volume);
        if found.markers.is_empty() && found.incomplete.iter().all(is_at_work) {
            return;
        }
        let key = (calls.hypervisor().to_owned(), pool.to_owned());
        if !self.swept_pools.lock().insert(key.clone()) {
            return;
        }
        let (this, calls, pool) = (self.clone(), Arc::clone(calls), pool.to_owned());
        self.work.spawn(async move {
            if let Err(error) = this.sweep(&calls, &pool).await {
                // the next listing of the pool begins again
                tracing::debug!(hypervisor = calls.hypervisor(), pool, ?error, "cannot look for leftovers");
            }
            this.swept_pools.lock().remove(&key);
        });
    }

    /// Whether this daemon imports the image of this volume.
    fn is_at_work(&self, hypervisor: &str, pool: &str, volume: &str) -> bool {
        parse(volume).is_some_and(|name| self.work.is_imported(hypervisor, pool, name.base))
    }

    async fn sweep(&self, calls: &Arc<dyn StorageCalls>, pool: &str) -> CallResult<()> {
        let before = list_leftovers(calls, pool).await?;
        tokio::time::sleep(STALL).await;
        let names = calls.list(pool).await?;
        let now = leftovers(&names);
        let mut used = None;
        for name in now.incomplete.into_iter().filter(|name| !self.is_at_work(calls.hypervisor(), pool, name))
        {
            let Some(then) = before.volumes.get(&name) else { continue };
            let Some(volume) = present(calls.volume(pool, &name).await)? else { continue };
            if (volume.length, &volume.modified) != (then.length, &then.modified) {
                continue;
            }
            // Its marker may have been deleted by hand.
            if used.is_none() {
                used = Some(backing_files(calls).await?);
            }
            if used.as_ref().is_some_and(|used| used.contains(&volume.path)) {
                tracing::warn!(
                    hypervisor = calls.hypervisor(),
                    pool,
                    volume = name,
                    "an image without a marker has overlays; it is left alone and not used for new ones"
                );
                continue;
            }
            tracing::info!(
                hypervisor = calls.hypervisor(),
                pool,
                volume = name,
                "deletes an incomplete image"
            );
            gone(calls.delete(pool, &name).await)?;
        }
        for marker in now.markers.iter().filter(|marker| before.markers.contains(*marker)) {
            gone(calls.delete(pool, marker).await)?;
        }
        Ok(())
    }
}

/// The leftovers of a pool at one moment.
struct PoolListing {
    volumes: HashMap<String, Volume>,
    markers: HashSet<String>,
}

async fn list_leftovers(calls: &Arc<dyn StorageCalls>, pool: &str) -> CallResult<PoolListing> {
    let found = leftovers(&calls.list(pool).await?);
    let mut volumes = HashMap::new();
    for name in found.incomplete {
        if let Some(volume) = present(calls.volume(pool, &name).await)? {
            volumes.insert(name, volume);
        }
    }
    Ok(PoolListing { volumes, markers: found.markers.into_iter().collect() })
}

/// A volume, if it is still there.
fn present(found: CallResult<Volume>) -> CallResult<Option<Volume>> {
    match found {
        Ok(volume) => Ok(Some(volume)),
        Err(CallError::NoVolume) => Ok(None),
        Err(error) => Err(error),
    }
}

fn gone(deleted: CallResult<()>) -> CallResult<()> {
    match deleted {
        Err(CallError::NoVolume | CallError::Busy(_)) => Ok(()),
        other => other,
    }
}

/// The paths of all files that volumes of the hypervisor have the differences to.
async fn backing_files(calls: &Arc<dyn StorageCalls>) -> CallResult<HashSet<String>> {
    let mut used = HashSet::new();
    for pool in calls.pools().await? {
        for name in calls.list(&pool).await?.iter() {
            used.extend(present(calls.volume(&pool, name).await)?.and_then(|volume| volume.backing));
        }
    }
    Ok(used)
}
