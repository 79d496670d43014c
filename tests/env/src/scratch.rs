//! Folders for the data, keys and logs of one peer.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::{Context, Result};
use tempfile::TempDir;

const PREFIX: &str = "ccm-test-";
const LOCK: &str = ".lock";

/// A folder that is removed when dropped. If the process dies first, the next process that makes such a
/// folder removes it: owners that are alive hold a lock on a file inside, which the kernel releases when they
/// die.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// Makes a folder with `name` in its name. The name is short because the folder contains sockets, whose
    /// paths may have at most 107 bytes.
    pub(crate) fn new(name: &str) -> Result<Self> {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(sweep);
        let mut folder = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{name}-"))
            .tempdir()
            .context("cannot make a temporary folder")?;
        if std::env::var_os("CCM_TEST_KEEP").is_some_and(|value| value == "1") {
            folder.disable_cleanup(true);
        }
        // lock it before it has its final name, so that no other process ever sees it unlocked
        let early = folder.path().join(".lock-early");
        let lock = File::create(&early)?;
        lock.lock()?;
        fs::rename(&early, folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: impl AsRef<Path>, contents: &str) -> Result<PathBuf> {
        let path = self.join(name);
        fs::write(&path, contents).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Makes a subfolder and returns its path.
    pub(crate) fn make(&self, name: &str) -> Result<PathBuf> {
        let path = self.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }
}

/// Removes the folders that dead processes have left. Errors, as with another user's folders, are ignored.
fn sweep() {
    if std::env::var_os("CCM_TEST_KEEP").is_some_and(|value| value == "1") {
        return;
    }
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        match lock.try_lock() {
            Ok(()) => drop(fs::remove_dir_all(entry.path())),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}
