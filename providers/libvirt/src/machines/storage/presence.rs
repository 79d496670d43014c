//! Whether a machine has volumes at a hypervisor.

use std::sync::Arc;

use cloudprovider::Result;

use super::calls::{CallError, CallResult, Place, StorageCalls, list};

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
