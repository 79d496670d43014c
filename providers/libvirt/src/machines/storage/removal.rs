//! Whether a hypervisor has volumes of a machine, and the deletion of all of them.

use std::{sync::Arc, time::Duration};

use cloudprovider::{Result, machines::Wait};

use super::{
    MachineStorage,
    attempts::parse,
    calls::{CallError, CallResult, Place, StorageCalls, list},
};

/// How soon a step looks again at a volume that is still being copied to.
const BUSY_RETRY: Duration = Duration::from_secs(10);

/// What a deletion has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// The hypervisor confirmed that none of the volumes is left.
    Gone {
        /// Pools that the hypervisor does not have. It knows nothing of files that may still be in their
        /// folders.
        missing_pools: Vec<String>,
    },
    /// Some are left for now.
    Working(Wait),
}

impl MachineStorage {
    /// Deletes the volumes of a machine in these pools. `is_ours` decides by the whole name, without what an
    /// attempt adds to it. It waits for a copy that is still made, by this daemon or by libvirt alone, and
    /// withdraws one that has not begun.
    ///
    /// `log` is the end of the name of the volume of the serial log. Beside its file there may be older parts
    /// of it, which virtlogd has renamed, and which libvirt does not know before it looks at the pool again.
    /// `is_ours` has to know their names too.
    ///
    /// # Errors
    /// Also if a pool is not active: what is in it is not known.
    pub(crate) async fn remove(
        &self,
        calls: &Arc<dyn StorageCalls>,
        pools: &[&str],
        log: &str,
        is_ours: &(dyn Fn(&str) -> bool + Send + Sync),
    ) -> Result<Removal> {
        let mut missing_pools = Vec::new();
        for pool in pools {
            if let Some(name) = self.work.stop_or_find_running(calls.hypervisor(), pool, is_ours) {
                let place = Place { hypervisor: calls.hypervisor(), pool };
                return Ok(Removal::Working(wait(&name, &place, "it is still being made")));
            }
            match remove_from(calls, pool, log, is_ours).await? {
                Emptied::Gone => {}
                Emptied::NoPool => missing_pools.push((*pool).to_owned()),
                Emptied::Busy(wait) => return Ok(Removal::Working(wait)),
            }
        }
        Ok(Removal::Gone { missing_pools })
    }
}

fn wait(name: &str, place: &Place<'_>, why: &str) -> Wait {
    let Place { hypervisor, pool } = place;
    Wait::task(format!("volume {name:?} in pool {pool:?} on hypervisor {hypervisor:?}: {why}"))
        .with_reason("DeletingVolumes")
        .look_again_after(BUSY_RETRY)
}

enum Emptied {
    Gone,
    NoPool,
    Busy(Wait),
}

async fn remove_from(
    calls: &Arc<dyn StorageCalls>,
    pool: &str,
    log: &str,
    is_ours: &(dyn Fn(&str) -> bool + Send + Sync),
) -> Result<Emptied> {
    let place = Place { hypervisor: calls.hypervisor(), pool };
    let names = match calls.list(pool).await {
        Ok(names) => names,
        Err(CallError::NoPool) => return Ok(Emptied::NoPool),
        Err(error) => return Err(error.into_error("cannot list the volumes", &place)),
    };
    let ours = |name: &String| is_ours(parse(name).map_or(name.as_str(), |name| name.base));
    let busy = |name: &str, why: &str| Emptied::Busy(wait(name, &place, why));
    let found: Vec<&String> = names.iter().filter(|name| ours(name)).collect();
    if found.is_empty() {
        return Ok(Emptied::Gone);
    }
    // The log goes last: it tells a later step that there may be files beside it that libvirt does not know.
    let (logs, others): (Vec<&String>, Vec<&String>) =
        found.into_iter().partition(|name| name.ends_with(log));
    if let Some((name, why)) = delete(calls, &place, &others).await? {
        return Ok(busy(name, &why));
    }
    if let Some(log) = logs.first() {
        match calls.refresh(pool).await {
            Ok(()) => {}
            Err(CallError::Busy(why)) => return Ok(busy(log, &why)),
            Err(error) => return Err(error.into_error("cannot look for older parts of a log", &place)),
        }
        let names = list(calls, pool).await?;
        let found: Vec<&String> = names.iter().filter(|name| ours(name)).collect();
        if let Some((name, why)) = delete(calls, &place, &found).await? {
            return Ok(busy(name, &why));
        }
    }
    match list(calls, pool).await?.iter().find(|name| ours(name)) {
        None => Ok(Emptied::Gone),
        Some(name) => Ok(busy(name, "it was made while the others were deleted")),
    }
}

/// Deletes volumes. Gives back the first that something is in the way of, with libvirt's words.
async fn delete<'a>(
    calls: &Arc<dyn StorageCalls>,
    place: &Place<'_>,
    names: &[&'a String],
) -> Result<Option<(&'a str, String)>> {
    for name in names {
        match calls.delete(place.pool, name).await {
            Ok(()) | Err(CallError::NoVolume) => {}
            Err(CallError::Busy(why)) => return Ok(Some((name, why))),
            Err(error) => return Err(error.into_error(format!("cannot delete volume {name:?}"), place)),
        }
    }
    Ok(None)
}

/// Whether the pool has a volume of this name. A pool that the hypervisor does not have has none.
///
/// # Errors
/// Also if the pool is not active: what is in it is not known.
pub(crate) async fn has_volume(calls: &Arc<dyn StorageCalls>, pool: &str, name: &str) -> Result<bool> {
    is_there(
        calls.volume(pool, name).await.map(drop),
        || format!("cannot look for volume {name:?}"),
        calls,
        pool,
    )
}

/// Whether the pool has a volume whose name is meant.
///
/// # Errors
/// Also if the pool is not active: what is in it is not known.
pub(crate) async fn has_any_volume(
    calls: &Arc<dyn StorageCalls>,
    pool: &str,
    is_meant: &(dyn Fn(&str) -> bool + Send + Sync),
) -> Result<bool> {
    let has_pool =
        is_there(calls.pool(pool).await.map(drop), || "cannot look at the pool".to_owned(), calls, pool)?;
    Ok(has_pool && list(calls, pool).await?.iter().any(|name| is_meant(name)))
}

fn is_there(
    answer: CallResult<()>,
    what: impl FnOnce() -> String,
    calls: &Arc<dyn StorageCalls>,
    pool: &str,
) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(CallError::NoPool | CallError::NoVolume) => Ok(false),
        Err(error) => Err(error.into_error(what(), &Place { hypervisor: calls.hypervisor(), pool })),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{FakeCalls, FakeHypervisor, POOL},
        *,
    };

    #[tokio::test]
    async fn only_what_a_hypervisor_denies_is_absent() {
        let hypervisor = FakeHypervisor::new();
        hypervisor.put(POOL, "a", b"x");
        let calls: Arc<dyn StorageCalls> = Arc::new(FakeCalls::new(&hypervisor));
        for (pool, name, expected) in [(POOL, "a", true), (POOL, "b", false), ("nowhere", "a", false)] {
            assert_eq!(has_volume(&calls, pool, name).await.expect("it answers"), expected, "{pool} {name}");
            let is_meant = |found: &str| found == name;
            assert_eq!(has_any_volume(&calls, pool, &is_meant).await.expect("it answers"), expected);
        }
        hypervisor.set_active(POOL, false);
        has_volume(&calls, POOL, "b").await.expect_err("it is not known");
        has_any_volume(&calls, POOL, &|_| false).await.expect_err("it is not known");
    }
}
