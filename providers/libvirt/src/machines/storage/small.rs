//! Small volumes, such as seeds, whose content is known as a whole.

use std::sync::Arc;

use bytes::Bytes;
use cloudprovider::{Error, ErrorKind, Result};
use secrecy::zeroize::Zeroizing;
use tokio::sync::mpsc;

use super::{
    calls::{CallError, Part, Place, StorageCalls},
    volume::NewVolume,
};

/// The largest content of a small volume.
pub(super) const MAX_SMALL: usize = 32 << 20;

/// Makes a raw volume with exactly this content, and returns its path. One that is there already is read, and
/// if it has other content, or a part of this one, it is deleted and made again. So no domain may use the
/// volume yet.
///
/// # Errors
/// None of them tells anything of the content.
pub(crate) async fn ensure_small(
    calls: &Arc<dyn StorageCalls>,
    pool: &str,
    name: &str,
    content: &[u8],
) -> Result<String> {
    let place = Place { hypervisor: calls.hypervisor(), pool };
    let cannot = |error: CallError| error.into_error(format!("cannot make volume {name:?}"), &place);
    if content.len() > MAX_SMALL {
        let words = format!("volume {name:?} would have {} bytes; {MAX_SMALL} are possible", content.len());
        return Err(Error::new(ErrorKind::InvalidInput, words));
    }
    let new = NewVolume::empty(name);
    let made = match calls.create(pool, &new).await {
        Err(CallError::Exists) => match find(calls, pool, name, content).await.map_err(cannot)? {
            Found::Same(path) => return Ok(path),
            found => {
                if matches!(found, Found::Other) {
                    calls.delete(pool, name).await.map_err(cannot)?;
                }
                calls.create(pool, &new).await.map_err(cannot)?
            }
        },
        other => other.map_err(cannot)?,
    };
    if content.is_empty() {
        return Ok(made.path);
    }
    let (sender, receiver) = mpsc::channel(2);
    // Content may be secret: the copy is wiped when it is dropped.
    let copy = Bytes::from_owner(Zeroizing::new(content.to_vec()));
    let send = async move {
        // if the upload takes no more, it says why
        let _ = sender.send(Part::Bytes(copy)).await;
        let _ = sender.send(Part::End).await;
    };
    let (uploaded, ()) = tokio::join!(calls.upload(pool, name, receiver), send);
    uploaded.map_err(cannot)?;
    // libvirt does not say how much it has written.
    let written = calls.volume(pool, name).await.map_err(cannot)?;
    if usize::try_from(written.length) == Ok(content.len()) {
        return Ok(written.path);
    }
    let words = format!(
        "volume {name:?} in pool {pool:?} on hypervisor {:?} has {} bytes instead of the {} that were uploaded",
        place.hypervisor,
        written.length,
        content.len()
    );
    Err(Error::new(ErrorKind::Unavailable, words))
}

/// What there is under a name.
enum Found {
    Nothing,
    /// Something else, or a part of it.
    Other,
    /// The right content, at this path.
    Same(String),
}

async fn find(
    calls: &Arc<dyn StorageCalls>,
    pool: &str,
    name: &str,
    content: &[u8],
) -> Result<Found, CallError> {
    let volume = match calls.volume(pool, name).await {
        Ok(volume) => volume,
        Err(CallError::NoVolume) => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    if usize::try_from(volume.length) != Ok(content.len()) {
        return Ok(Found::Other);
    }
    let found = calls.download(pool, name, content.len()).await?;
    Ok(if found.as_slice() == content { Found::Same(volume.path) } else { Found::Other })
}
