//! The storage of libvirt's test driver, for measurements.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use cloudprovider::{ErrorKind, async_trait};
use parking_lot::{Mutex, MutexGuard};
use secrecy::zeroize::Zeroizing;
use tokio::sync::mpsc;

use super::{CallError, CallResult, LibvirtStorage, Names, Part, StorageCalls};
use crate::{
    machines::storage::{
        header,
        volume::{Format, NewVolume, Pool, Volume},
    },
    worker_pool::WorkerPool,
};

/// What is sent to the driver in place of what is uploaded.
const INSTEAD: &[u8] = b"x";

/// The storage of libvirt's test driver, which can do everything but upload and download.
///
/// The first bytes of a volume are made up from its format.
///
/// Each upload is asked of the driver, and that it refuses is overlooked: the volume has the right length
/// from then on, and no content. All else is the driver's. So calls can be counted, but nothing that is
/// uploaded is ever sent.
#[derive(Debug)]
pub(crate) struct TestDriverStorage {
    driver: LibvirtStorage,
    /// Volumes as they were last seen.
    seen: Mutex<HashMap<(String, String), Volume>>,
    /// The lengths of what would have been uploaded, by pool and volume.
    lengths: Mutex<HashMap<(String, String), u64>>,
}

impl TestDriverStorage {
    /// The storage of the hypervisor of these threads.
    pub(crate) fn new(workers: Arc<WorkerPool>) -> Self {
        Self { driver: LibvirtStorage::new(workers), seen: Mutex::default(), lengths: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<(String, String), Volume>> {
        self.seen.lock()
    }

    fn lengths(&self) -> MutexGuard<'_, HashMap<(String, String), u64>> {
        self.lengths.lock()
    }
}

/// How many bytes all parts have.
async fn length_of(mut parts: mpsc::Receiver<Part>) -> u64 {
    let mut length = 0;
    while let Some(Part::Bytes(bytes)) = parts.recv().await {
        length += bytes.len() as u64;
    }
    length
}

/// The first bytes of a volume, as its format has them.
fn beginning(volume: &Volume) -> Vec<u8> {
    if volume.format != Format::Qcow2.as_str() {
        return vec![0; header::ENOUGH];
    }
    header::qcow2_header(volume.capacity)
}

#[async_trait]
impl StorageCalls for TestDriverStorage {
    fn hypervisor(&self) -> &str {
        self.driver.hypervisor()
    }

    async fn pools(&self) -> CallResult<Vec<String>> {
        self.driver.pools().await
    }

    async fn pool(&self, pool: &str) -> CallResult<Pool> {
        self.driver.pool(pool).await
    }

    async fn refresh(&self, pool: &str) -> CallResult<()> {
        self.driver.refresh(pool).await
    }

    async fn list(&self, pool: &str) -> CallResult<Names> {
        self.driver.list(pool).await
    }

    async fn volume(&self, pool: &str, name: &str) -> CallResult<Volume> {
        let found = self.driver.volume(pool, name).await?;
        self.seen().insert((pool.to_owned(), name.to_owned()), found.clone());
        let length = self.lengths().get(&(pool.to_owned(), name.to_owned())).copied();
        Ok(Volume { length: length.unwrap_or(found.length), ..found })
    }

    async fn create(&self, pool: &str, volume: &NewVolume) -> CallResult<Volume> {
        self.driver.create(pool, volume).await
    }

    async fn copy(&self, pool: &str, volume: &NewVolume, from: &str, name: &str) -> CallResult<()> {
        self.driver.copy(pool, volume, from, name).await
    }

    async fn resize(&self, pool: &str, name: &str, capacity: u64) -> CallResult<()> {
        self.driver.resize(pool, name, capacity).await
    }

    async fn delete(&self, pool: &str, name: &str) -> CallResult<()> {
        self.lengths().remove(&(pool.to_owned(), name.to_owned()));
        self.driver.delete(pool, name).await
    }

    async fn upload(&self, pool: &str, name: &str, parts: mpsc::Receiver<Part>) -> CallResult<u64> {
        let length = length_of(parts).await;
        let (sender, instead) = mpsc::channel(2);
        // There is room for both.
        let _ = sender.send(Part::Bytes(Bytes::from_static(INSTEAD))).await;
        let _ = sender.send(Part::End).await;
        match self.driver.upload(pool, name, instead).await {
            Err(CallError::Failed(failure)) if failure.kind == ErrorKind::Unsupported => {
                self.lengths().insert((pool.to_owned(), name.to_owned()), length);
                Ok(length)
            }
            other => other,
        }
    }

    async fn download_from(
        &self,
        pool: &str,
        name: &str,
        offset: u64,
        most: usize,
    ) -> CallResult<Zeroizing<Vec<u8>>> {
        match self.driver.download_from(pool, name, offset, most).await {
            Err(CallError::Failed(failure)) if failure.kind == ErrorKind::Unsupported && offset == 0 => {
                let seen = self.seen().get(&(pool.to_owned(), name.to_owned())).cloned();
                let mut content = Zeroizing::new(beginning(&seen.unwrap_or_default()));
                content.truncate(most);
                Ok(content)
            }
            other => other,
        }
    }
}
