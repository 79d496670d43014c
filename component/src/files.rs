//! Files that may change while the daemon runs: configuration, credentials, certificates.
//!
//! Kubernetes replaces a mounted Secret or `ConfigMap` by swapping a symbolic link two folders above the
//! file. Editors rename files, and scripts write in place. Polling the content detects all of this, on every
//! file system. The files are few and small.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

/// Pause between two polls.
const POLL: Duration = Duration::from_secs(2);

/// New content counts once two reads this far apart agree, so that a file that is being written is not used
/// half-written.
const SETTLE: Duration = Duration::from_millis(200);

/// The content of the files at one time: a digest for each file that exists and can be read.
type Snapshot = BTreeMap<PathBuf, Option<[u8; 32]>>;

/// The digest of a file, from the result of reading it. Errors that say nothing about the file leave the
/// digest as it was: too many open files, too little memory, a failing disk.
fn digest(content: &io::Result<Vec<u8>>, before: Option<[u8; 32]>) -> Option<[u8; 32]> {
    match content {
        Ok(content) => Some(Sha256::digest(content).into()),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::PermissionDenied => None,
            _ => before,
        },
    }
}

/// Reads files and remembers their content. Clones share the memory.
#[derive(Clone, Debug, Default)]
pub struct FilesRead(Arc<Mutex<Snapshot>>);

impl FilesRead {
    /// No file read yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a whole file. Blocks.
    ///
    /// # Errors
    /// The errors of [`std::fs::read`]. A failed read is remembered too.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let content = std::fs::read(path);
        let mut notes = self.0.lock();
        let before = notes.get(path).copied().flatten();
        notes.insert(path.to_owned(), digest(&content, before));
        drop(notes);
        content
    }

    /// Whether the same files had the same content when they were read for `other`.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.snapshot() == other.snapshot()
    }

    /// The files that were read, even if that failed.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.snapshot().into_keys().collect()
    }

    fn snapshot(&self) -> Snapshot {
        self.0.lock().clone()
    }
}

/// Reports when the content of some files has changed.
#[derive(Debug)]
pub struct FileChanges {
    seen: Snapshot,
}

impl FileChanges {
    /// Starts with the present content of `paths`. A file need not exist yet.
    pub async fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { seen: snapshot(paths.into_iter().map(|path| (path, None)).collect()).await }
    }

    /// Starts with the content that was read. Any difference since then is a change.
    pub fn since(read: &FilesRead) -> Self {
        Self { seen: read.snapshot() }
    }

    /// The watched files.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.seen.keys()
    }

    /// Waits until a file has different content than at the last call, has appeared or has vanished, and its
    /// content is stable. Never ends without files. Cancel-safe.
    pub async fn changed(&mut self) {
        loop {
            sleep(POLL).await;
            let mut now = self.look().await;
            if now == self.seen {
                continue;
            }
            loop {
                sleep(SETTLE).await;
                let again = self.look().await;
                if again == now {
                    break;
                }
                now = again;
            }
            // If the old content was written back in the meantime, nothing has changed.
            if now != self.seen {
                self.seen = now;
                return;
            }
        }
    }

    async fn look(&self) -> Snapshot {
        snapshot(self.seen.clone()).await
    }
}

/// Reads the files of `before` again.
async fn snapshot(before: Snapshot) -> Snapshot {
    let kept = before.clone();
    let read = move || {
        let look = |(path, before)| {
            let now = digest(&std::fs::read(&path), before);
            (path, now)
        };
        before.into_iter().map(look).collect()
    };
    // A blocking thread, since a file system may hang.
    tokio::task::spawn_blocking(read).await.unwrap_or(kept)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use futures::FutureExt;

    use super::*;

    /// Time limit for noticing a change.
    const SOON: Duration = Duration::from_secs(10);

    async fn is_noticed(changes: &mut FileChanges) -> bool {
        tokio::time::timeout(SOON, changes.changed()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_a_rename_and_a_removal_are_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        let mut changes = FileChanges::new([path.clone()]).await;
        assert!(!is_noticed(&mut changes).await, "nothing happened");
        fs::write(&path, "1").expect("written");
        assert!(is_noticed(&mut changes).await, "it appeared");
        fs::write(&path, "1").expect("written");
        assert!(!is_noticed(&mut changes).await, "the same content");
        let other = folder.path().join("other");
        fs::write(&other, "2").expect("written");
        fs::rename(&other, &path).expect("renamed");
        assert!(is_noticed(&mut changes).await, "renamed over it");
        fs::remove_file(&path).expect("removed");
        assert!(is_noticed(&mut changes).await, "it vanished");
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_right_after_it_was_read_is_a_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, missing) = (folder.path().join("config"), folder.path().join("missing"));
        fs::write(&path, "1").expect("written");
        let read = FilesRead::new();
        assert_eq!(read.read(&path).expect("read"), b"1");
        read.read(&missing).expect_err("not there");
        assert!(!is_noticed(&mut FileChanges::since(&read)).await, "nothing happened");
        fs::write(&missing, "x").expect("written");
        assert!(is_noticed(&mut FileChanges::since(&read)).await, "it appeared");
        let again = FilesRead::new();
        again.read(&path).expect("read");
        assert!(!again.is_same_as(&read), "other files");
        again.read(&missing).expect("read");
        assert!(!again.is_same_as(&read), "another content");
    }

    #[tokio::test(start_paused = true)]
    async fn kubernetes_swaps_a_link_above_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        for (version, content) in [("..1", "old"), ("..2", "new")] {
            fs::create_dir(folder.path().join(version)).expect("a folder");
            fs::write(folder.path().join(version).join("config"), content).expect("written");
        }
        symlink("..1", folder.path().join("..data")).expect("a link");
        symlink("..data/config", folder.path().join("config")).expect("a link");
        let mut changes = FileChanges::new([folder.path().join("config")]).await;
        symlink("..2", folder.path().join("..tmp")).expect("a link");
        fs::rename(folder.path().join("..tmp"), folder.path().join("..data")).expect("swapped");
        assert!(is_noticed(&mut changes).await);
    }

    #[test]
    fn only_what_is_about_the_file_is_a_change() {
        let before = digest(&Ok(b"1".to_vec()), None);
        assert!(before.is_some());
        // EMFILE, ENFILE, ENOMEM, EIO, ESTALE
        for transient in [24, 23, 12, 5, 116] {
            assert_eq!(digest(&Err(io::Error::from_raw_os_error(transient)), before), before, "{transient}");
        }
        // ENOENT, EACCES, ENOTDIR, EISDIR
        for gone in [2, 13, 20, 21] {
            assert_eq!(digest(&Err(io::Error::from_raw_os_error(gone)), before), None, "{gone}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_files_nothing_changes() {
        assert!(!is_noticed(&mut FileChanges::new([]).await).await);
        assert!(FileChanges::new([]).await.changed().now_or_never().is_none());
    }
}
