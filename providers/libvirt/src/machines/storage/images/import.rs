//! The import of one image: read, verified and uploaded at the same time, a few MiB at a time.

use std::sync::Arc;

use bytes::Bytes;
use cloudprovider::{Error, ErrorKind, Result};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

use crate::machines::storage::{
    attempts::{marker, new_attempt},
    calls::{Part, Place, StorageCalls, list},
    fetch::{Fetch, MAX_LENGTH},
    header,
    image::{Image, complete},
    limits::{Limits, Paced},
    volume::{NewVolume, size_text},
    work::Progress,
};

/// How many blocks wait for the hypervisor. A block has 1 MiB at most from a file, and less from a server.
const QUEUE: usize = 8;

/// Imports an image, unless that was done meanwhile.
pub(super) async fn import(
    fetch: Arc<dyn Fetch>,
    calls: Arc<dyn StorageCalls>,
    pool: String,
    image: Image,
    progress: Arc<Progress>,
    limits: Limits,
) -> Result<()> {
    let one = Import { calls, pool, image, progress, limits };
    one.check_pool().await?;
    if one.is_complete().await? {
        return Ok(());
    }
    let end = Instant::now() + limits.time;
    let begin = async {
        let source = fetch.open(&one.image.origin).await?;
        let mut source = Paced::new(source, one.image.origin.to_string(), limits);
        one.check_length(source.length()).await?;
        let beginning = one.read_beginning(&mut source).await?;
        Ok::<_, Error>((source, beginning))
    };
    let (source, beginning) = timeout_at(end, begin).await.map_err(|_| one.too_slow())??;
    let volume = new_attempt(&one.image.base_name());
    let made = one.calls.create(&one.pool, &NewVolume::empty(&volume)).await;
    made.map_err(|error| error.into_error(format!("cannot make volume {volume:?}"), &one.place()))?;
    let filled = timeout_at(end, one.fill(&volume, source, beginning)).await;
    let result = filled.unwrap_or_else(|_| Err(one.too_slow()));
    if !matches!(result, Ok(Filled::Marked)) {
        // If this fails, the volume is found as a leftover.
        if let Err(error) = one.calls.delete(&one.pool, &volume).await {
            tracing::debug!(volume, ?error, "cannot delete what was imported in vain");
        }
    }
    result.map(drop)
}

/// What has become of an attempt.
enum Filled {
    /// It is the image.
    Marked,
    /// Somebody else was first.
    Superfluous,
}

struct Import {
    calls: Arc<dyn StorageCalls>,
    pool: String,
    image: Image,
    progress: Arc<Progress>,
    limits: Limits,
}

impl Import {
    fn place(&self) -> Place<'_> {
        Place { hypervisor: self.calls.hypervisor(), pool: &self.pool }
    }

    /// Whether images can be imported to the pool.
    async fn check_pool(&self) -> Result<()> {
        let pool = self.calls.pool(&self.pool).await;
        let pool = pool.map_err(|error| error.into_error("cannot import an image", &self.place()))?;
        if pool.has_files() {
            return Ok(());
        }
        let words = format!(
            "pool {:?} on hypervisor {:?} is of type {}; images can be imported to pools of the types dir, fs and \
             netfs, and volumes that are there can be used in all",
            self.pool,
            self.calls.hypervisor(),
            pool.kind
        );
        Err(Error::new(ErrorKind::Unsupported, words))
    }

    async fn is_complete(&self) -> Result<bool> {
        let names = list(&self.calls, &self.pool).await?;
        let base = self.image.base_name();
        Ok(complete(&self.calls, &self.pool, &base, self.image.format, &names).await?.is_some())
    }

    async fn check_length(&self, length: Option<u64>) -> Result<()> {
        if length.is_some_and(|length| length > MAX_LENGTH) {
            return Err(self.too_long());
        }
        let what = self.image.origin.to_string();
        self.limits.check_room(&self.calls, &self.pool, &what, length.unwrap_or(0)).await?;
        self.progress.set_total(length.unwrap_or(0));
        Ok(())
    }

    fn too_slow(&self) -> Error {
        let hours = self.limits.time.as_secs() / 3600;
        let words = format!(
            "the import of {} has taken longer than {hours} h; nothing of it was kept",
            self.image.origin
        );
        Error::new(ErrorKind::Unavailable, words)
    }

    fn too_long(&self) -> Error {
        let words = format!("{} has more than {}", self.image.origin, size_text(MAX_LENGTH));
        Error::new(ErrorKind::InvalidInput, words)
    }

    /// Reads the header, and checks it before anything is made. Returns what was read.
    async fn read_beginning(&self, source: &mut Paced) -> Result<Bytes> {
        let mut beginning = Vec::new();
        while beginning.len() < header::ENOUGH {
            match source.next().await? {
                Some(bytes) => beginning.extend_from_slice(&bytes),
                None => break,
            }
        }
        let origin = &self.image.origin;
        let found = header::read(&beginning)
            .map_err(|why| Error::new(ErrorKind::InvalidInput, format!("spec.image: {origin} {why}")))?;
        if found.format != self.image.format {
            let words = format!(
                "spec.image.format: is {}, and {origin} has the format {}",
                self.image.format.as_str(),
                found.format.as_str()
            );
            return Err(Error::new(ErrorKind::InvalidInput, words));
        }
        Ok(beginning.into())
    }

    async fn fill(&self, volume: &str, source: Paced, beginning: Bytes) -> Result<Filled> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let upload = self.calls.upload(&self.pool, volume, receiver);
        let (written, read) = tokio::join!(upload, self.pump(source, beginning, sender));
        let length = match (read, written) {
            (Ok(length), Ok(_)) => length,
            // The other end follows from the first one.
            (Err(Stopped::ByUpload) | Ok(_), Err(error)) => {
                return Err(error.into_error(format!("cannot upload volume {volume:?}"), &self.place()));
            }
            (Err(Stopped::BySource(error)), _) => return Err(error),
            (Err(Stopped::ByUpload), Ok(_)) => {
                return Err(Error::new(ErrorKind::Internal, "an upload has ended before its image"));
            }
        };
        self.verify(volume, length).await?;
        if self.is_complete().await? {
            return Ok(Filled::Superfluous);
        }
        let marker = NewVolume::empty(marker(volume, length));
        let made = self.calls.create(&self.pool, &marker).await;
        made.map_err(|error| {
            error.into_error(format!("cannot make volume {:?}", marker.name), &self.place())
        })?;
        Ok(Filled::Marked)
    }

    /// Hands the image to the upload, which it lets end only if the checksum is right. Returns the length.
    async fn pump(
        &self,
        mut source: Paced,
        beginning: Bytes,
        sender: mpsc::Sender<Part>,
    ) -> std::result::Result<u64, Stopped> {
        let expected = source.length();
        let (mut hasher, mut length, mut checked) = (self.image.checksum.hasher(), 0u64, 0u64);
        let mut next = Some(beginning).filter(|bytes| !bytes.is_empty());
        while let Some(bytes) = next {
            let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            length = length.saturating_add(count);
            if length > MAX_LENGTH {
                return Err(self.too_long().into());
            }
            if length - checked >= self.limits.room_step {
                checked = length;
                let what = self.image.origin.to_string();
                self.limits.check_room(&self.calls, &self.pool, &what, 0).await?;
            }
            hasher.update(&bytes);
            sender.send(Part::Bytes(bytes)).await.map_err(|_| Stopped::ByUpload)?;
            self.progress.add(count);
            next = source.next().await?;
        }
        let origin = &self.image.origin;
        if let Some(expected) = expected.filter(|expected| *expected != length) {
            let words = format!("{origin} has ended after {length} of {expected} bytes");
            return Err(Error::new(ErrorKind::Unavailable, words).into());
        }
        if hasher.finish() != self.image.checksum {
            // Never with the one that it has: that would let everybody have the content on a second try.
            let words =
                format!("spec.image.checksum: {origin} does not have this checksum; nothing of it was kept");
            return Err(Error::new(ErrorKind::Unavailable, words).into());
        }
        sender.send(Part::End).await.map_err(|_| Stopped::ByUpload)?;
        Ok(length)
    }

    /// Whether the volume is still there, with all that was written.
    async fn verify(&self, volume: &str, length: u64) -> Result<()> {
        let found = self.calls.volume(&self.pool, volume).await;
        let found = found
            .map_err(|error| error.into_error(format!("cannot look at volume {volume:?}"), &self.place()))?;
        if found.length == length {
            return Ok(());
        }
        let words = format!(
            "volume {volume:?} in pool {:?} on hypervisor {:?} has {} after {length} bytes were uploaded",
            self.pool,
            self.calls.hypervisor(),
            found.length
        );
        Err(Error::new(ErrorKind::Unavailable, words))
    }
}

/// Why an image was not handed over as a whole.
enum Stopped {
    /// The upload takes no more.
    ByUpload,
    /// The image cannot be read, or is not the right one.
    BySource(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::BySource(error)
    }
}
