//! Reading the end of a log.

use secrecy::zeroize::Zeroizing;

use crate::machines::storage::{CallResult, StorageCalls};

/// How much is read at most.
const MAX_READ: usize = 8 << 10;

/// The last whole lines of a log that lies in a storage pool. A line whose beginning is not read is left out: a part of
/// a secret could not be told from other text.
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
