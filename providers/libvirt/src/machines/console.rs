//! The end of the serial log of a guest that never came up.
//!
//! # What works over a connection
//!
//! | Way | Over a remote connection | Why (not) |
//! |---|---|---|
//! | a log file in a storage pool, read with `virStorageVolDownload` | yes | chosen: only its end is read |
//! | `virDomainOpenConsole` | yes | shows only what comes later, and takes the console away from a person |
//! | a log file elsewhere, such as `/var/log/libvirt/qemu` | no | libvirt cannot read it for a client |
//! | `virDomainScreenshot` | yes | a picture, and needs a graphics card |
//!
//! So the domain has `<serial type='file'>` with the path of a volume, which is made together with its disks.
//!
//! # What may be quoted
//!
//! What a guest prints may contain its bootstrap data: cloud-init prints the output of scripts. A condition
//! is readable for many who may not read the Secret. Therefore
//!
//! - a quotation is made only if the spec asks for it, and only while the bootstrap data are at hand to
//!   compare with;
//! - [`excerpt()`] leaves out every line that has a part of the bootstrap data in it, or looks as if it had a
//!   secret. Data that cannot be compared with, such as compressed ones, are never risked: then nothing is
//!   quoted.
//!
//! This is a safety net, no promise: a guest can print its data in another form.

mod excerpt;

use std::{collections::HashMap, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use secrecy::zeroize::Zeroizing;
use tokio::time::Instant;

use super::{
    identity::Identity,
    storage::{CallResult, StorageCalls},
};

pub(crate) use self::excerpt::excerpt;

/// How much is read at most.
const MAX_READ: usize = 8 << 10;

/// The last whole lines of a log that lies in a storage pool. The first line is left out if its
/// beginning is not read: a part of a secret looks like other text.
pub(crate) async fn read_end(
    calls: &dyn StorageCalls,
    pool: &str,
    volume: &str,
) -> CallResult<Zeroizing<Vec<u8>>> {
    // The size of the file now: libvirt looks at it for this call.
    let length = calls.volume(pool, volume).await?.length;
    let offset = length.saturating_sub(MAX_READ as u64);
    let mut end = calls.download_from(pool, volume, offset, MAX_READ).await?;
    if offset > 0 {
        let first = end.iter().position(|byte| *byte == b'\n').map_or(end.len(), |at| at + 1);
        end.drain(..first);
    }
    Ok(end)
}

/// How long a guest may take to come up before its log is read.
pub(crate) const FIRST_READ: Duration = Duration::from_secs(300);

/// The time between two reads of the same log. Each other quotation is a write.
const READ_INTERVAL: Duration = Duration::from_secs(300);

/// When the logs of guests without an address are read.
#[derive(Debug, Default)]
pub(crate) struct ConsoleReads(Mutex<HashMap<Identity, LogRead>>);

#[derive(Debug)]
struct LogRead {
    next: Instant,
    words: Option<String>,
}

impl ConsoleReads {
    fn all(&self) -> MutexGuard<'_, HashMap<Identity, LogRead>> {
        self.0.lock()
    }

    /// Whether the log of a guest is due to be read. The first question begins its time.
    pub(crate) fn is_due(&self, guest: &Identity, now: Instant) -> bool {
        let mut all = self.all();
        let last =
            all.entry(guest.clone()).or_insert_with(|| LogRead { next: now + FIRST_READ, words: None });
        last.next <= now
    }

    /// Remembers what was read.
    pub(crate) fn set(&self, guest: &Identity, words: Option<String>, now: Instant) {
        self.all().insert(guest.clone(), LogRead { next: now + READ_INTERVAL, words });
    }

    /// What was read last, and the time until the next read.
    pub(crate) fn last(&self, guest: &Identity, now: Instant) -> (Option<String>, Duration) {
        match self.all().get(guest) {
            Some(last) => (last.words.clone(), last.next.saturating_duration_since(now)),
            None => (None, FIRST_READ),
        }
    }

    /// The guest has an address, or is gone.
    pub(crate) fn forget(&self, guest: &Identity) {
        self.all().remove(guest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_looked_at_after_a_time_and_not_often() {
        let (reads, begin) = (ConsoleReads::default(), Instant::now());
        let guest = &Identity { namespace: "default".to_owned(), uid: uuid::Uuid::from_u128(1) };
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(!reads.is_due(guest, at(0)));
        assert_eq!(reads.last(guest, at(100)), (None, Duration::from_secs(200)));
        assert!(!reads.is_due(guest, at(299)) && reads.is_due(guest, at(300)));
        reads.set(guest, Some("panic".to_owned()), at(301));
        assert!(!reads.is_due(guest, at(600)) && reads.is_due(guest, at(601)));
        assert_eq!(reads.last(guest, at(600)), (Some("panic".to_owned()), Duration::from_secs(1)));
        reads.forget(guest);
        assert!(!reads.is_due(guest, at(900)), "its time begins anew");
    }
}
