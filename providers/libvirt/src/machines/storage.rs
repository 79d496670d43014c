//! The volumes of machines: images, disks, and small files such as seeds.
//!
//! ```text
//!   steps ──> MachineStorage ──> StorageCalls ──> WorkerPool (threads with connections) ──> libvirtd
//!                  │    └─ long work is a task; it wakes the machines that wait for it
//!                  └─ Fetch: http servers, files
//! ```
//!
//! Each function here may be interrupted at any point, and does the rest when it is called again. What is
//! there already is used if it is what is wanted. What is not is an error that names it; it is never
//! overwritten.
//!
//! | What | How it is known to be complete after a crash |
//! |---|---|
//! | overlay, blank disk | libvirt makes it in one call; its shape is compared. A file of length 0 is what a crash of libvirtd leaves, and is made again |
//! | full copy, image | a second volume, its marker, see below |
//! | small volume | its length is compared after the upload. One that an earlier step has made is read back and compared |
//!
//! # Attempts and markers
//!
//! A copy and an upload take long, and libvirt lists a volume from the first byte on: a half of an image
//! looks like a small image, and libvirt makes overlays on it. libvirt cannot rename a volume either. So each
//! try writes to a volume of its own, `BASE.ATTEMPT`, with random digits that are used once. When all is
//! written and verified, it makes an empty volume `BASE.ATTEMPT.complete-LENGTH`, the marker. Only a volume
//! with a marker is used, and only if its file has at least this length.
//!
//! - A crash at any point leaves a volume without a marker, or a complete one. The former is never used.
//! - Two daemons never write to the same volume. At the worst they make two complete ones. All take the one
//!   whose name is first; and a daemon that has finished second removes its own before anybody has seen it.
//! - If somebody deletes a volume while its daemon still writes to it, the daemon notices that it is gone
//!   before it makes the marker. If it is deleted between the two, the marker stands alone, which means
//!   nothing.
//! - The length is for a hypervisor that loses its power: libvirtd does not wait until an upload is on the
//!   disk, and after that the file is shorter. Then the image is imported again, beside it.
//!
//! # Images
//!
//! An image is imported once for each hypervisor and pool, as `ccm-image-sha256-DIGITS-qcow2.ATTEMPT` (with
//! the image's checksum and format). All machines on images with the same checksum share it. Images are a
//! cache: they stay when the machines go. To remove one, make sure that no disk is an overlay on it
//! (`virsh vol-dumpxml` shows `backingStore`), then delete the volume, then its marker, with
//! `virsh vol-delete`. It is imported again when it is next needed.
//!
//! An image without a marker whose file has not changed for five minutes is deleted, unless a volume of the
//! hypervisor is an overlay on it. See [`leftovers`].

mod attempts;
mod calls;
mod checksum;
mod copies;
mod disks;
mod fetch;
mod header;
mod image;
mod images;
mod leftovers;
mod limits;
mod removal;
mod small;
mod volume;
mod work;

use std::{collections::HashSet, fmt, sync::Arc};

use cloudprovider::machines::Wait;
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    fetch::{Fetch, Fetcher},
    limits::Limits,
    work::LongWork,
};

pub(crate) use self::{
    calls::{CallResult, LibvirtStorage, StorageCalls, TestDriverStorage},
    checksum::Checksum,
    disks::Disk,
    fetch::{Inside, Origin},
    image::{Base, Existing, Image},
    removal::{Removal, has_any_volume, has_volume},
    small::ensure_small,
    volume::Format,
    work::Wake,
};

/// Something that may take long to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made<T> {
    /// It is there.
    Ready(T),
    /// Work on it is going on. The machine that asked is woken when it ends, well or not.
    Working(Wait),
}

/// The storage of a provider's machines, on all of its hypervisors. Clones share the work that is going on.
#[derive(Clone)]
pub(crate) struct MachineStorage {
    work: LongWork,
    fetch: Arc<dyn Fetch>,
    /// The pools that this daemon sweeps: hypervisor and pool.
    swept_pools: Arc<Mutex<HashSet<(String, String)>>>,
    limits: Limits,
}

impl MachineStorage {
    /// Storage whose work ends when `stop` is cancelled. `tasks` has the tasks. It calls `wake` with the
    /// machines that can go on. No image comes from addresses in `inside`.
    pub(crate) fn new(wake: Wake, stop: CancellationToken, tasks: TaskTracker, inside: Inside) -> Self {
        let (work, fetch) = (LongWork::new(wake, stop, tasks), Arc::new(Fetcher::new(inside)));
        Self { work, fetch, swept_pools: Arc::default(), limits: Limits::default() }
    }
}

/// The size of the disk in an image that begins with these bytes, as far as they tell it.
///
/// # Errors
/// Why it cannot be imported, as the end of a sentence.
pub(crate) fn size_in_header(beginning: &[u8]) -> Result<Option<u64>, String> {
    header::read(beginning).map(|header| header.virtual_size).map_err(|why| why.to_string())
}

impl fmt::Debug for MachineStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineStorage").field("work", &self.work).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
