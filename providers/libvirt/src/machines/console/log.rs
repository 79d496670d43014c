//! Reading the end of a log over a connection.

use virt::{error::ErrorNumber, stream::Stream};

use crate::{
    calls::{Failure, Operation},
    machines::caller::Caller,
};

/// How much is read.
const MAX_READ: u64 = 8 << 10;

/// The end of a log that lies in a storage pool; `None` if there is no such pool or volume. It blocks.
pub(crate) fn read_end(
    caller: &mut impl Caller,
    pool: &str,
    volume: &str,
) -> Result<Option<Vec<u8>>, Failure> {
    let pool = caller.call(Operation::LookupPool, |connect| connect.lookup_storage_pool_by_name(pool));
    let Some(pool) = unless_missing(pool)? else { return Ok(None) };
    let volume = caller.call(Operation::LookupVolume, |_| pool.lookup_storage_vol_by_name(volume));
    let Some(volume) = unless_missing(volume)? else { return Ok(None) };
    // The size of the file now: libvirt looks at it for this call.
    let size = caller.call(Operation::VolumeInfo, |_| volume.info())?.capacity;
    if size == 0 {
        return Ok(Some(Vec::new()));
    }
    let length = size.min(MAX_READ);
    let stream = caller.call(Operation::DownloadVolume, |connect| {
        let stream = Stream::new(connect, 0)?;
        volume.download(&stream, size - length, length, 0)?;
        Ok(stream)
    })?;
    caller
        .call(Operation::DownloadVolume, |_| match read(&stream, length) {
            Ok(bytes) => stream.finish().map(|()| bytes),
            Err(error) => {
                // the first error says more
                let _ = stream.abort();
                Err(error)
            }
        })
        .map(Some)
}

fn read(stream: &Stream, length: u64) -> Result<Vec<u8>, virt::error::Error> {
    let mut bytes = Vec::new();
    let mut block = vec![0; usize::try_from(length).unwrap_or(0)];
    // A log that is cut off meanwhile ends earlier.
    while let Ok(count @ 1..) = usize::try_from(stream.recv(&mut block)?) {
        bytes.extend_from_slice(&block[..count]);
    }
    Ok(bytes)
}

fn unless_missing<T>(found: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(failure)
            if matches!(failure.code, Some(ErrorNumber::NoStoragePool | ErrorNumber::NoStorageVolume)) =>
        {
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::machines::caller::testing::TestDriver;

    #[test]
    fn a_log_that_is_not_there_is_no_error() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let node =
            "<node><pool type='dir'><name>default</name><target><path>/p</path></target></pool></node>";
        file.write_all(node.as_bytes()).expect("written");
        let mut driver = TestDriver::new(&file);
        assert_eq!(read_end(&mut driver, "nowhere", "a"), Ok(None));
        assert_eq!(read_end(&mut driver, "default", "a"), Ok(None));
    }
}
