//! The calls, as libvirt takes them.

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use cloudprovider::{ErrorKind, async_trait};
use secrecy::zeroize::Zeroizing;
use tokio::sync::mpsc;
use virt::{
    connect::Connect,
    error::{Error as VirtError, ErrorNumber},
    storage_pool::StoragePool,
    storage_vol::StorageVol,
    stream::Stream,
};

use super::{CallError, CallResult, Names, Part, StorageCalls, listings::Listings};
use crate::{
    calls::{Failure, Operation},
    machines::storage::volume::{NewVolume, Pool, Volume},
    worker_pool::{Link, Work, WorkerPool},
};

/// The least time limit of a call: a hypervisor whose disks are busy takes long to make or to delete a file.
const MIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit of a write to a stream, which waits for the hypervisor's disk.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// What is read at once.
const BLOCK: usize = 256 << 10;
/// What is written at once. libvirt's client splits what is larger than a message, 4 MiB with older versions.
const MAX_WRITE: usize = 1 << 20;

/// Storage of a hypervisor.
pub(crate) struct LibvirtStorage {
    workers: Arc<WorkerPool>,
    listings: Listings<Names>,
    refreshes: Listings<()>,
}

impl LibvirtStorage {
    /// The storage of the hypervisor of these threads.
    pub(crate) fn new(workers: Arc<WorkerPool>) -> Self {
        Self { workers, listings: Listings::default(), refreshes: Listings::default() }
    }

    fn limit(&self) -> Duration {
        self.workers.hypervisor().settings.call_timeout.max(MIN_TIMEOUT)
    }

    /// Short work on a pool.
    async fn short<T: Send + 'static>(
        &self,
        pool: &str,
        work: impl FnOnce(&mut Link, &StoragePool) -> CallResult<T> + Send + 'static,
    ) -> CallResult<T> {
        self.on_pool(Work::Short(self.limit()), pool, work).await
    }

    async fn on_pool<T: Send + 'static>(
        &self,
        kind: Work,
        pool: &str,
        work: impl FnOnce(&mut Link, &StoragePool) -> CallResult<T> + Send + 'static,
    ) -> CallResult<T> {
        let pool = pool.to_owned();
        let work = move |link: &mut Link| {
            // The outer result tells the thread whether its connection is lost.
            match on_thread(link, &pool, work) {
                Err(CallError::Failed(failure)) => Err(failure),
                other => Ok(other),
            }
        };
        self.workers.run(kind, work).await.map_err(CallError::Failed)?
    }
}

impl fmt::Debug for LibvirtStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LibvirtStorage").field(&self.hypervisor()).finish()
    }
}

fn on_thread<T>(
    link: &mut Link,
    name: &str,
    work: impl FnOnce(&mut Link, &StoragePool) -> CallResult<T>,
) -> CallResult<T> {
    check_name(name)?;
    let is_known = link.knows_pool(name);
    let pool = link.pool(name).map_err(plain)?;
    let result = work(link, &pool);
    if is_known && matches!(result, Err(CallError::NoPool)) {
        return Err(of_known_pool(link, name));
    }
    if !matches!(&result, Err(CallError::Failed(failure)) if failure.code == Some(ErrorNumber::OperationInvalid))
    {
        return result;
    }
    // libvirt has the same error for a pool that is not active and for one that other work is going on in
    if !link.call(Operation::PoolInfo, |_| pool.is_active()).map_err(plain)? {
        return Err(CallError::InactivePool);
    }
    result.map_err(|error| match error {
        CallError::Failed(failure) => CallError::Busy(failure.message),
        other => other,
    })
}

/// The error about a pool that was looked up earlier and is gone.
fn of_known_pool(link: &mut Link, name: &str) -> CallError {
    link.forget_pool(name);
    match link.pool(name).map_err(plain) {
        Ok(_) => {
            let message = "the pool was defined anew meanwhile".to_owned();
            CallError::Failed(Failure { kind: ErrorKind::Unavailable, message, lost: false, code: None })
        }
        Err(error) => error,
    }
}

/// libvirt's bindings make C strings of names.
fn check_name(name: &str) -> CallResult<()> {
    if name.contains('\0') {
        let words = "a name holds a NUL character".to_owned();
        let failure = Failure { kind: ErrorKind::InvalidInput, message: words, lost: false, code: None };
        return Err(CallError::Failed(failure));
    }
    Ok(())
}

fn plain(failure: Failure) -> CallError {
    match failure.code {
        Some(ErrorNumber::NoStoragePool) => CallError::NoPool,
        Some(ErrorNumber::NoStorageVolume) => CallError::NoVolume,
        Some(ErrorNumber::StorageVolExist) => CallError::Exists,
        _ => CallError::Failed(failure),
    }
}

/// An error of a call that makes the volume `name`: drivers have different ones for a volume that exists.
fn of_creation(link: &mut Link, pool: &StoragePool, name: &str, failure: Failure) -> CallError {
    let error = plain(failure);
    let is_unclear = matches!(&error, CallError::Failed(failure) if !failure.lost);
    if is_unclear && find(link, pool, name).is_ok() { CallError::Exists } else { error }
}

fn find(link: &mut Link, pool: &StoragePool, name: &str) -> CallResult<StorageVol> {
    check_name(name)?;
    link.call(Operation::LookupVolume, |_| pool.lookup_storage_vol_by_name(name)).map_err(plain)
}

fn describe(link: &mut Link, volume: &StorageVol) -> CallResult<Volume> {
    // libvirt looks at the file for this
    let xml = link.call(Operation::VolumeXml, |_| volume.xml_desc(0)).map_err(plain)?;
    Volume::parse(&xml).map_err(|why| unreadable("volume", &why))
}

fn unreadable(what: &str, why: &str) -> CallError {
    let message = format!("libvirt's description of the {what} cannot be read: {why}");
    CallError::Failed(Failure { kind: ErrorKind::Internal, message, lost: false, code: None })
}

#[async_trait]
impl StorageCalls for LibvirtStorage {
    fn hypervisor(&self) -> &str {
        self.workers.hypervisor().name()
    }

    async fn pools(&self) -> CallResult<Vec<String>> {
        let names = |link: &mut Link| {
            let active = virt_sys::VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE;
            let pools = link.call(Operation::ListPools, |connect| connect.list_all_storage_pools(active))?;
            // the names are in memory
            Ok(pools.iter().filter_map(|pool| pool.name().ok()).collect())
        };
        self.workers.run(Work::Short(self.limit()), names).await.map_err(CallError::Failed)
    }

    async fn pool(&self, pool: &str) -> CallResult<Pool> {
        let read = |link: &mut Link, pool: &StoragePool| {
            let xml = link.call(Operation::PoolInfo, |_| pool.xml_desc(0)).map_err(plain)?;
            let kind = Pool::kind_in(&xml).map_err(|why| unreadable("pool", &why))?;
            if !link.call(Operation::PoolInfo, |_| pool.is_active()).map_err(plain)? {
                return Err(CallError::InactivePool);
            }
            let info = link.call(Operation::PoolInfo, |_| pool.info()).map_err(plain)?;
            Ok(Pool { kind, available: info.available })
        };
        self.short(pool, read).await
    }

    async fn refresh(&self, pool: &str) -> CallResult<()> {
        let refresh = |link: &mut Link, pool: &StoragePool| {
            link.call(Operation::RefreshPool, |_| pool.refresh(0)).map_err(|failure| match failure.code {
                // "pool has asynchronous jobs running" has no number of its own
                Some(ErrorNumber::InternalError) if !failure.lost => CallError::Busy(failure.message),
                _ => plain(failure),
            })
        };
        self.refreshes.share(pool, self.short(pool, refresh)).await
    }

    async fn list(&self, pool: &str) -> CallResult<Names> {
        let list = |link: &mut Link, pool: &StoragePool| {
            let volumes = link.call(Operation::ListVolumes, |_| pool.list_all_volumes(0)).map_err(plain)?;
            // the names are in memory
            Ok(volumes.iter().filter_map(|volume| volume.name().ok()).collect())
        };
        self.listings.share(pool, self.short(pool, list)).await
    }

    async fn volume(&self, pool: &str, name: &str) -> CallResult<Volume> {
        let name = name.to_owned();
        let read = move |link: &mut Link, pool: &StoragePool| {
            let volume = find(link, pool, &name)?;
            describe(link, &volume)
        };
        self.short(pool, read).await
    }

    async fn create(&self, pool: &str, volume: &NewVolume) -> CallResult<Volume> {
        let (name, xml) = (volume.name.clone(), volume.xml());
        let create = move |link: &mut Link, pool: &StoragePool| match link
            .call(Operation::CreateVolume, |_| StorageVol::create_xml(pool, &xml, 0))
        {
            Ok(made) => describe(link, &made),
            Err(failure) => Err(of_creation(link, pool, &name, failure)),
        };
        self.short(pool, create).await
    }

    async fn copy(&self, pool: &str, volume: &NewVolume, from: &str, name: &str) -> CallResult<()> {
        let (new, xml) = (volume.name.clone(), volume.xml());
        let (from, name) = (from.to_owned(), name.to_owned());
        let copy = move |link: &mut Link, pool: &StoragePool| {
            check_name(&from)?;
            let is_known = link.knows_pool(&from);
            let source = link.pool(&from).map_err(plain)?;
            let source = match find(link, &source, &name) {
                Err(CallError::NoPool) if is_known => return Err(of_known_pool(link, &from)),
                other => other?,
            };
            let copied =
                link.call(Operation::CopyVolume, |_| StorageVol::create_xml_from(pool, &xml, &source, 0));
            copied.map(drop).map_err(|failure| {
                let error = of_creation(link, pool, &new, failure);
                // It may be about either pool.
                if matches!(error, CallError::NoPool) {
                    link.forget_pool(&from);
                }
                error
            })
        };
        self.on_pool(Work::Copy, pool, copy).await
    }

    async fn resize(&self, pool: &str, name: &str, capacity: u64) -> CallResult<()> {
        let name = name.to_owned();
        let resize = move |link: &mut Link, pool: &StoragePool| {
            let volume = find(link, pool, &name)?;
            link.call(Operation::ResizeVolume, |_| volume.resize(capacity, 0)).map(drop).map_err(plain)
        };
        self.short(pool, resize).await
    }

    async fn delete(&self, pool: &str, name: &str) -> CallResult<()> {
        let name = name.to_owned();
        let delete = move |link: &mut Link, pool: &StoragePool| {
            let volume = find(link, pool, &name)?;
            link.call(Operation::DeleteVolume, |_| volume.delete(0)).map_err(plain)
        };
        self.short(pool, delete).await
    }

    async fn upload(&self, pool: &str, name: &str, mut parts: mpsc::Receiver<Part>) -> CallResult<u64> {
        let limit = self.limit().max(WRITE_TIMEOUT);
        let mut first: VecDeque<Part> = parts.recv().await.into_iter().collect();
        if matches!(first.front(), Some(Part::Bytes(_))) {
            first.extend(parts.recv().await);
        }
        // A seed need not wait for images.
        let is_short = matches!(first.back(), Some(Part::End));
        let kind = if is_short { Work::Short(limit) } else { Work::Upload(limit) };
        let name = name.to_owned();
        let upload = move |link: &mut Link, pool: &StoragePool| {
            let volume = find(link, pool, &name)?;
            send_all(link, &volume, first, parts)
        };
        self.on_pool(kind, pool, upload).await
    }

    async fn download_from(
        &self,
        pool: &str,
        name: &str,
        offset: u64,
        most: usize,
    ) -> CallResult<Zeroizing<Vec<u8>>> {
        let name = name.to_owned();
        let download = move |link: &mut Link, pool: &StoragePool| {
            let volume = find(link, pool, &name)?;
            receive_all(link, &volume, offset, most)
        };
        self.short(pool, download).await
    }
}

fn new_stream(link: &mut Link, operation: Operation) -> CallResult<Stream> {
    link.call(operation, |connect: &Connect| Stream::new(connect, 0)).map_err(plain)
}

/// Uploads the parts: those that came first, and then the others.
fn send_all(
    link: &mut Link,
    volume: &StorageVol,
    mut first: VecDeque<Part>,
    mut parts: mpsc::Receiver<Part>,
) -> CallResult<u64> {
    let stream = new_stream(link, Operation::UploadVolume)?;
    // A length of none: as much as comes. The file grows.
    link.call(Operation::UploadVolume, |_| volume.upload(&stream, 0, 0, 0)).map_err(plain)?;
    let mut written = 0u64;
    loop {
        match first.pop_front().or_else(|| parts.blocking_recv()) {
            Some(Part::Bytes(bytes)) => {
                for block in bytes.chunks(MAX_WRITE) {
                    if let Err(error) = send_block(link, &stream, block) {
                        // the error of the write says more than one of the abort
                        let _ = stream.abort();
                        return Err(error);
                    }
                }
                written += bytes.len() as u64;
            }
            Some(Part::End) => break,
            None => {
                let _ = stream.abort();
                let words = "the upload was broken off".to_owned();
                let failure =
                    Failure { kind: ErrorKind::Unavailable, message: words, lost: false, code: None };
                return Err(CallError::Failed(failure));
            }
        }
    }
    // This waits until libvirtd has written everything.
    link.call(Operation::UploadVolume, |_| stream.finish()).map_err(plain)?;
    Ok(written)
}

fn send_block(link: &mut Link, stream: &Stream, mut block: &[u8]) -> CallResult<()> {
    while !block.is_empty() {
        let sent = link.call(Operation::UploadVolume, |_| stream.send(block)).map_err(plain)?;
        block = rest_of(block, sent)?;
    }
    Ok(())
}

fn rest_of(block: &[u8], sent: isize) -> CallResult<&[u8]> {
    let rest = usize::try_from(sent).ok().filter(|sent| *sent > 0).and_then(|sent| block.get(sent..));
    rest.ok_or_else(|| {
        let words = format!("libvirt has taken {sent} of {} bytes", block.len());
        CallError::Failed(Failure { kind: ErrorKind::Internal, message: words, lost: false, code: None })
    })
}

fn receive_all(
    link: &mut Link,
    volume: &StorageVol,
    offset: u64,
    most: usize,
) -> CallResult<Zeroizing<Vec<u8>>> {
    let stream = new_stream(link, Operation::DownloadVolume)?;
    let length = u64::try_from(most).unwrap_or(u64::MAX);
    link.call(Operation::DownloadVolume, |_| volume.download(&stream, offset, length, 0)).map_err(plain)?;
    // At its full size from the start: a vector that grows leaves copies of secrets behind.
    let mut content = Zeroizing::new(vec![0; most]);
    let mut filled = 0;
    while filled < most {
        let end = most.min(filled + BLOCK);
        let received = receive_block(link, &stream, &mut content[filled..end]);
        match received.map(usize::try_from) {
            Ok(Ok(0)) => break,
            Ok(Ok(more)) => filled += more,
            Ok(Err(_)) => {
                let _ = stream.abort();
                return Err(unreadable("volume", "a read of a negative length"));
            }
            Err(error) => {
                let _ = stream.abort();
                return Err(error);
            }
        }
    }
    content.truncate(filled);
    link.call(Operation::DownloadVolume, |_| stream.finish()).map_err(plain)?;
    Ok(content)
}

fn receive_block(link: &mut Link, stream: &Stream, block: &mut [u8]) -> CallResult<isize> {
    link.call(Operation::DownloadVolume, |_| -> Result<isize, VirtError> { stream.recv(block) })
        .map_err(plain)
}

#[cfg(test)]
mod tests;
