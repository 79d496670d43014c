//! Files of this machine, below folders that the configuration names.

use std::{
    fs::File,
    io::Read,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use cloudprovider::{Error, ErrorKind, Result, async_trait};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};

use super::super::limits::Source;
use crate::allow::{FileBelow, file_refused};

/// What is read from a file at once.
pub(super) const BLOCK: usize = 1 << 20;
/// For messages.
const FIELD: &str = "spec.image.file";
/// A file is opened without waiting, as a pipe would have it, and without becoming anything of this process.
const HOW: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

pub(super) struct OpenFile {
    file: Option<File>,
    length: u64,
    path: PathBuf,
}

/// Opens a regular file.
pub(super) async fn open(below: &FileBelow) -> Result<OpenFile> {
    let below = below.clone();
    blocking(move || {
        let path = below.folder.join(&below.path);
        let file = match open_below(&below, &resolve) {
            Ok(file) => File::from(file),
            Err(Failed::LeadsOut) => return Err(file_refused(FIELD)),
            Err(Failed::Io(error)) => return Err(unreadable(&path, &error.into())),
        };
        // By the descriptor: the name may be another file's by now.
        let metadata = file.metadata().map_err(|error| unreadable(&path, &error))?;
        if !metadata.is_file() {
            let words = format!("{FIELD}: {} is not a regular file", path.display());
            return Err(Error::new(ErrorKind::InvalidInput, words));
        }
        Ok(OpenFile { file: Some(file), length: metadata.len(), path })
    })
    .await
}

/// Why a file is not open.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// A link on the way leads out of the folder, to something that exists or not.
    LeadsOut,
    /// Anything else.
    Io(Errno),
}

/// Finds a path below an open folder, and opens it.
type Resolve = dyn Fn(&OwnedFd, &Path) -> std::result::Result<OwnedFd, Failed>;

/// Opens what is below a folder, and nowhere else.
pub(super) fn open_below(below: &FileBelow, resolve: &Resolve) -> std::result::Result<OwnedFd, Failed> {
    let folder = openat(CWD, &below.folder, FOLDER, Mode::empty()).map_err(Failed::Io)?;
    resolve(&folder, &below.path)
}

/// By the kernel, which follows links that stay below the folder.
pub(super) fn resolve(folder: &OwnedFd, path: &Path) -> std::result::Result<OwnedFd, Failed> {
    let flags = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(folder, path, HOW, Mode::empty(), flags) {
        Ok(file) => Ok(file),
        // An old kernel, or a container runtime that refuses what it does not know.
        Err(Errno::NOSYS | Errno::PERM) => walk(folder, path),
        Err(Errno::XDEV | Errno::LOOP) => Err(Failed::LeadsOut),
        Err(error) => Err(Failed::Io(error)),
    }
}

/// Name by name. No link is followed, wherever it leads.
pub(super) fn walk(folder: &OwnedFd, path: &Path) -> std::result::Result<OwnedFd, Failed> {
    let fault = |error| match error {
        Errno::LOOP | Errno::NOTDIR => Failed::LeadsOut,
        other => Failed::Io(other),
    };
    let mut at = folder.try_clone().map_err(|_| Failed::Io(Errno::MFILE))?;
    for parent in path.parent().into_iter().flat_map(Path::components) {
        at = openat(&at, parent.as_os_str(), FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(fault)?;
    }
    let name = path.file_name().ok_or(Failed::LeadsOut)?;
    openat(&at, name, HOW | OFlags::NOFOLLOW, Mode::empty()).map_err(fault)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("cannot read {} where the provider runs: {error}", path.display()))
}

/// Runs work that waits for a disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(Error::new(ErrorKind::Internal, "the work with a file did not end")),
    }
}

#[async_trait]
impl Source for OpenFile {
    fn length(&self) -> Option<u64> {
        Some(self.length)
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(mut file) = self.file.take() else { return Ok(None) };
        let path = self.path.clone();
        let (file, block) = blocking(move || {
            let mut block = Vec::with_capacity(BLOCK);
            let limit = u64::try_from(BLOCK).unwrap_or(u64::MAX);
            (&mut file).take(limit).read_to_end(&mut block).map_err(|error| unreadable(&path, &error))?;
            Ok((file, block))
        })
        .await?;
        if block.is_empty() {
            return Ok(None);
        }
        self.file = Some(file);
        Ok(Some(block.into()))
    }
}
