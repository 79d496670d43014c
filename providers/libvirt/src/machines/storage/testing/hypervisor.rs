//! The storage of a hypervisor, with libvirt's behaviour as it was seen with libvirt 9.0.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::{
    super::{
        calls::{CallError, CallResult},
        header::{self, qcow2_header},
        volume::{Format, NewVolume, Pool, Volume},
    },
    unavailable,
};

/// The pool of most tests.
pub(crate) const POOL: &str = "default";
/// How long a copy takes.
const COPY_TIME: Duration = Duration::from_secs(20);

/// A hypervisor. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct FakeHypervisor(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    pools: BTreeMap<String, FakePool>,
    /// All files, those included that are deleted and still open.
    files: BTreeMap<u64, File>,
    next: u64,
    is_away: bool,
}

#[derive(Debug)]
struct FakePool {
    pool: Pool,
    is_active: bool,
    /// Files by name.
    names: BTreeMap<String, u64>,
    /// Those that libvirt does not know before a refresh.
    unknown: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct File {
    content: Vec<u8>,
    backing: Option<String>,
    /// The size of the disk, if that is not in the content.
    capacity: Option<u64>,
    is_building: bool,
    writes: u64,
}

impl FakeHypervisor {
    /// One with an empty pool [`POOL`].
    pub(crate) fn new() -> Self {
        let this = Self(Arc::default());
        this.add_pool(POOL, "dir");
        this
    }

    pub(crate) fn add_pool(&self, name: &str, kind: &str) {
        let pool = Pool { kind: kind.to_owned(), available: 1 << 40 };
        let pool = FakePool { pool, is_active: true, names: BTreeMap::new(), unknown: BTreeMap::new() };
        self.state().pools.insert(name.to_owned(), pool);
    }

    pub(crate) fn set_active(&self, pool: &str, is_active: bool) {
        self.state().pools.get_mut(pool).expect("a pool").is_active = is_active;
    }

    pub(crate) fn set_available(&self, pool: &str, bytes: u64) {
        self.state().pools.get_mut(pool).expect("a pool").pool.available = bytes;
    }

    pub(crate) fn set_away(&self, is_away: bool) {
        self.state().is_away = is_away;
    }

    /// The names of the files of a pool, in order.
    pub(crate) fn names(&self, pool: &str) -> Vec<String> {
        let state = self.state();
        let FakePool { names, unknown, .. } = &state.pools[pool];
        let all: BTreeSet<&String> = names.keys().chain(unknown.keys()).collect();
        all.into_iter().cloned().collect()
    }

    /// Makes a volume, as another program would.
    pub(crate) fn put(&self, pool: &str, name: &str, content: &[u8]) {
        let mut state = self.state();
        let id = state.add(content.to_vec());
        state.pools.get_mut(pool).expect("a pool").names.insert(name.to_owned(), id);
    }

    /// Makes a raw disk of this many bytes.
    pub(crate) fn put_disk(&self, pool: &str, name: &str, capacity: u64) {
        self.create(pool, &NewVolume::new(name, Format::Raw, capacity)).expect("made");
    }

    /// Gives a volume another name.
    pub(crate) fn rename(&self, pool: &str, from: &str, to: &str) {
        let mut state = self.state();
        let names = &mut state.pools.get_mut(pool).expect("a pool").names;
        let id = names.remove(from).expect("a volume");
        names.insert(to.to_owned(), id);
    }

    /// Makes a file that libvirt does not know before it looks at the pool again.
    pub(crate) fn put_by_hand(&self, pool: &str, name: &str, content: &[u8]) {
        let mut state = self.state();
        let id = state.add(content.to_vec());
        state.pools.get_mut(pool).expect("a pool").unknown.insert(name.to_owned(), id);
    }

    /// Deletes a file, and libvirt does not notice it before it looks at the pool again.
    pub(in super::super) fn delete_by_hand(&self, pool: &str, name: &str) {
        let mut state = self.state();
        let id = state.pools[pool].names[name];
        state.files.remove(&id);
    }

    /// libvirtd dies and comes back: copies stay as they are.
    pub(crate) fn restart(&self) {
        for file in self.state().files.values_mut().filter(|file| file.is_building) {
            file.is_building = false;
            let half = file.content.len() / 2;
            file.content.truncate(half);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// The state, as a call finds it.
    fn asked(&self) -> CallResult<MutexGuard<'_, State>> {
        let state = self.state();
        if state.is_away { Err(CallError::Failed(unavailable("no connection"))) } else { Ok(state) }
    }

    pub(crate) fn pools(&self) -> CallResult<Vec<String>> {
        let state = self.asked()?;
        Ok(state.pools.iter().filter(|(_, pool)| pool.is_active).map(|(name, _)| name.clone()).collect())
    }

    pub(crate) fn pool(&self, pool: &str) -> CallResult<Pool> {
        Ok(self.asked()?.active(pool)?.pool.clone())
    }

    pub(crate) fn refresh(&self, pool: &str) -> CallResult<()> {
        let mut state = self.asked()?;
        let state = &mut *state;
        state.active(pool)?;
        let FakePool { names, unknown, .. } = state.pools.get_mut(pool).ok_or(CallError::NoPool)?;
        if names.values().any(|id| state.files.get(id).is_some_and(|file| file.is_building)) {
            return Err(CallError::Busy("pool has asynchronous jobs running".to_owned()));
        }
        names.append(unknown);
        names.retain(|_, id| state.files.contains_key(id));
        Ok(())
    }

    pub(crate) fn list(&self, pool: &str) -> CallResult<Vec<String>> {
        Ok(self.asked()?.active(pool)?.names.keys().cloned().collect())
    }

    pub(crate) fn volume(&self, pool: &str, name: &str) -> CallResult<Volume> {
        let mut state = self.asked()?;
        let file = state.find(pool, name)?;
        let header = header::read(&file.content);
        let virtual_size = header.ok().and_then(|header| header.virtual_size);
        let is_qcow2 = file.content.starts_with(b"QFI\xfb");
        let length = file.content.len() as u64;
        Ok(Volume {
            path: format!("/{pool}/{name}"),
            format: if is_qcow2 { "qcow2" } else { "raw" }.to_owned(),
            capacity: virtual_size.or(file.capacity).unwrap_or(length),
            length,
            backing: file.backing.clone(),
            modified: file.writes.to_string(),
        })
    }

    pub(crate) fn create(&self, pool: &str, volume: &NewVolume) -> CallResult<()> {
        let mut state = self.asked()?;
        if state.active(pool)?.names.contains_key(&volume.name) {
            return Err(CallError::Exists);
        }
        if let Some(backing) = &volume.backing {
            let is_there = |(name, pool): (&String, &FakePool)| {
                pool.names.keys().any(|volume| format!("/{name}/{volume}") == backing.path)
            };
            if !state.pools.iter().any(is_there) {
                return Err(CallError::Failed(unavailable("the backing file is not there")));
            }
        }
        let content = match volume.format {
            Format::Qcow2 => qcow2_header(volume.capacity),
            // its length is what matters here, so no file is that large
            Format::Raw => Vec::new(),
        };
        let id = state.add(content);
        let file = state.files.get_mut(&id).expect("just added");
        file.backing = volume.backing.as_ref().map(|backing| backing.path.clone());
        file.capacity = (volume.format == Format::Raw && volume.capacity > 0).then_some(volume.capacity);
        state.active(pool)?.names.insert(volume.name.clone(), id);
        Ok(())
    }

    pub(crate) fn begin_copy(
        &self,
        pool: &str,
        volume: &NewVolume,
        from: &str,
        name: &str,
    ) -> CallResult<oneshot::Receiver<CallResult<()>>> {
        let content = {
            let mut state = self.asked()?;
            let content = state.find(from, name)?.content.clone();
            if state.active(pool)?.names.contains_key(&volume.name) {
                return Err(CallError::Exists);
            }
            let id = state.add(content[..content.len() / 2].to_vec());
            state.files.get_mut(&id).expect("just added").is_building = true;
            state.active(pool)?.names.insert(volume.name.clone(), id);
            (id, content)
        };
        let (this, (sender, receiver)) = (self.clone(), oneshot::channel());
        tokio::spawn(async move {
            tokio::time::sleep(COPY_TIME).await;
            let (id, content) = content;
            let mut state = this.state();
            let file = state.files.get_mut(&id).expect("files stay");
            if file.is_building {
                file.content = content;
                file.is_building = false;
                let _ = sender.send(Ok(()));
            }
        });
        Ok(receiver)
    }

    pub(crate) fn resize(&self, pool: &str, name: &str, capacity: u64) -> CallResult<()> {
        let mut state = self.asked()?;
        let file = state.find(pool, name)?;
        if file.content.starts_with(b"QFI\xfb") {
            file.content[24..32].copy_from_slice(&capacity.to_be_bytes());
        } else {
            file.capacity = Some(capacity);
        }
        Ok(())
    }

    pub(crate) fn delete(&self, pool: &str, name: &str) -> CallResult<()> {
        let mut state = self.asked()?;
        if state.find(pool, name)?.is_building {
            return Err(CallError::Busy(format!("volume '{name}' is still being allocated.")));
        }
        state.active(pool)?.names.remove(name);
        Ok(())
    }

    /// Opens a file. It stays open when it is deleted.
    pub(crate) fn file(&self, pool: &str, name: &str) -> CallResult<u64> {
        let mut state = self.asked()?;
        state.find(pool, name)?;
        Ok(state.pools[pool].names[name])
    }

    pub(crate) fn write(&self, file: u64, at: usize, bytes: &[u8]) -> CallResult<()> {
        let mut state = self.asked()?;
        let file = state.files.get_mut(&file).expect("files stay");
        let end = at + bytes.len();
        if file.content.len() < end {
            file.content.resize(end, 0);
        }
        file.content[at..end].copy_from_slice(bytes);
        file.writes += 1;
        Ok(())
    }

    /// The content of a volume.
    pub(crate) fn content(&self, pool: &str, name: &str) -> CallResult<Vec<u8>> {
        Ok(self.asked()?.find(pool, name)?.content.clone())
    }
}

impl State {
    fn add(&mut self, content: Vec<u8>) -> u64 {
        self.next += 1;
        let file = File { content, backing: None, capacity: None, is_building: false, writes: 0 };
        self.files.insert(self.next, file);
        self.next
    }

    fn active(&mut self, pool: &str) -> CallResult<&mut FakePool> {
        let pool = self.pools.get_mut(pool).ok_or(CallError::NoPool)?;
        if pool.is_active { Ok(pool) } else { Err(CallError::InactivePool) }
    }

    fn find(&mut self, pool: &str, name: &str) -> CallResult<&mut File> {
        let id = *self.active(pool)?.names.get(name).ok_or(CallError::NoVolume)?;
        self.files.get_mut(&id).ok_or(CallError::NoVolume)
    }
}
