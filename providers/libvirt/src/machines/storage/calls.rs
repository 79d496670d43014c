//! The calls about storage at one hypervisor, with a fake of them for tests: libvirt's test driver can
//! neither upload nor download.

mod libvirt;
mod listings;
mod test_driver;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use cloudprovider::{Error, ErrorKind, Result, async_trait};
use secrecy::zeroize::Zeroizing;
use tokio::sync::mpsc;

use super::volume::{NewVolume, Pool, Volume};
use crate::calls::Failure;

pub(crate) use self::{libvirt::LibvirtStorage, listings::Names, test_driver::TestDriverStorage};

/// A part of what is uploaded.
#[derive(Debug)]
pub(crate) enum Part {
    /// The next bytes.
    Bytes(Bytes),
    /// There are no more. An upload whose sender is dropped without this is broken off.
    End,
}

/// Why a call about storage has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The hypervisor confirmed that it has no such pool.
    NoPool,
    /// The pool is there and not active: nothing is known of its volumes.
    InactivePool,
    /// The hypervisor confirmed that the pool has no such volume.
    NoVolume,
    /// A volume of this name exists.
    Exists,
    /// Other work, such as a copy, is in the way. In libvirt's words.
    Busy(String),
    /// Everything else. It may not be known whether the call took effect.
    Failed(Failure),
}

/// The answer to a call.
pub(crate) type CallResult<T> = Result<T, CallError>;

impl CallError {
    /// The error of a step. `what` was to be done, as in `cannot make volume "a"`; `place` is where.
    pub(crate) fn into_error(self, what: impl fmt::Display, place: &Place<'_>) -> Error {
        let Place { hypervisor, pool } = place;
        let (kind, why) = match self {
            Self::NoPool => (ErrorKind::NotFound, "there is no such pool".to_owned()),
            Self::InactivePool => {
                (ErrorKind::Unavailable, "the pool is not active; start it with virsh pool-start".to_owned())
            }
            Self::NoVolume => (ErrorKind::NotFound, "there is no such volume".to_owned()),
            Self::Exists => (ErrorKind::Conflict, "it exists already".to_owned()),
            Self::Busy(why) => (ErrorKind::Unavailable, why),
            Self::Failed(failure) => (failure.kind, failure.message),
        };
        Error::new(kind, format!("{what} in pool {pool:?} on hypervisor {hypervisor:?}: {why}"))
    }
}

/// Where something is, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The hypervisor's name in the configuration.
    pub(crate) hypervisor: &'a str,
    /// The pool's name.
    pub(crate) pool: &'a str,
}

/// The calls. None of them is repeated; the callers decide.
#[async_trait]
pub(crate) trait StorageCalls: fmt::Debug + Send + Sync {
    /// The hypervisor's name in the configuration.
    fn hypervisor(&self) -> &str;

    /// The names of the active pools.
    async fn pools(&self) -> CallResult<Vec<String>>;

    /// A pool.
    async fn pool(&self, pool: &str) -> CallResult<Pool>;

    /// Has libvirt look at the pool's files again. Several callers may share one call.
    async fn refresh(&self, pool: &str) -> CallResult<()>;

    /// The names of all volumes that libvirt knows in the pool. Several callers may share one answer.
    async fn list(&self, pool: &str) -> CallResult<Names>;

    /// A volume as it is now.
    async fn volume(&self, pool: &str, name: &str) -> CallResult<Volume>;

    /// Makes a volume, in no time, and looks at it.
    async fn create(&self, pool: &str, volume: &NewVolume) -> CallResult<Volume>;

    /// Makes a volume with the content of the volume `name` of the pool `from`. Returns when all is copied.
    /// While that goes on the new volume is listed like any other, and cannot be deleted. It has the capacity
    /// of its source.
    async fn copy(&self, pool: &str, volume: &NewVolume, from: &str, name: &str) -> CallResult<()>;

    /// Makes a volume larger.
    async fn resize(&self, pool: &str, name: &str, capacity: u64) -> CallResult<()>;

    /// Deletes a volume.
    async fn delete(&self, pool: &str, name: &str) -> CallResult<()>;

    /// Writes to a volume from its beginning, and returns how many bytes were written.
    async fn upload(&self, pool: &str, name: &str, parts: mpsc::Receiver<Part>) -> CallResult<u64>;

    /// Reads a volume from its beginning: at most this many bytes.
    async fn download(&self, pool: &str, name: &str, most: usize) -> CallResult<Zeroizing<Vec<u8>>> {
        self.download_from(pool, name, 0, most).await
    }

    /// Reads a volume from this byte on: at most this many bytes.
    async fn download_from(
        &self,
        pool: &str,
        name: &str,
        offset: u64,
        most: usize,
    ) -> CallResult<Zeroizing<Vec<u8>>>;
}

/// The names of all volumes of a pool.
pub(super) async fn list(calls: &Arc<dyn StorageCalls>, pool: &str) -> Result<Names> {
    let place = Place { hypervisor: calls.hypervisor(), pool };
    calls.list(pool).await.map_err(|error| error.into_error("cannot list the volumes", &place))
}
