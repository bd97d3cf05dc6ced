//! A simulated disk: keeps what was written apart from what was synced, and can lose, tear and refuse.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{ALIGN, DirLock, Disk, DiskFile, FileName, LockError, OpenMode};

/// Grain at which an unsynced write may reach the platter or not.
const SECTOR: usize = 512;

/// A disk in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    /// Notified when syncs go on.
    unstalled: Arc<Condvar>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, Content>,
    /// Names as processes see them.
    names: BTreeMap<PathBuf, u64>,
    /// Names that survive a crash.
    durable_names: BTreeMap<PathBuf, u64>,
    /// Changes of names that their directory was not synced after, oldest first.
    unsynced_names: Vec<NameChange>,
    dirs: BTreeSet<PathBuf>,
    locked: BTreeSet<PathBuf>,
    next_file: u64,
    operations: u64,
    fail_from: Option<u64>,
    fail_syncs: bool,
    stall_syncs: bool,
    /// Syncs that wait.
    stalled: u64,
    refuses_direct: bool,
    refuses_opens: bool,
    shortens_direct_reads: bool,
    direct_reads: u64,
    direct_opens: u64,
    capacity: Option<u64>,
    /// Why there is no more: whoever writes may have no more, not the disk.
    is_quota: bool,
    held: BTreeSet<PathBuf>,
}

/// What a crash keeps or loses as a whole: a rename is one.
#[derive(Debug, Clone)]
struct NameChange {
    gone: Option<PathBuf>,
    made: Option<(PathBuf, u64)>,
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<PathBuf, u64>) {
        self.gone.map(|path| names.remove(&path));
        names.extend(self.made);
    }

    fn is_in(&self, dir: &Path) -> bool {
        let path = self.made.as_ref().map(|(path, _)| path).or(self.gone.as_ref());
        path.and_then(|path| path.parent()) == Some(dir)
    }
}

#[derive(Debug, Default, Clone)]
struct Content {
    durable: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of writes, syncs, renames and removals so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// From the `n`th operation on (counted from now, 0 is the next), everything that changes the disk fails.
    pub fn fail_after(&self, n: u64) {
        let mut state = self.state();
        state.fail_from = Some(state.operations + n);
    }

    /// Syncs fail from now on, and writes that are synced by themselves; others go on.
    pub fn fail_syncs(&self) {
        self.state().fail_syncs = true;
    }

    /// Syncs of files and writes that are synced by themselves wait from now on, until [`SimDisk::go_on`];
    /// others go on.
    pub fn stall_syncs(&self) {
        self.state().stall_syncs = true;
    }

    /// Ends [`SimDisk::stall_syncs`].
    pub fn go_on(&self) {
        self.state().stall_syncs = false;
        self.unstalled.notify_all();
    }

    /// Number of reads past the page cache so far.
    #[must_use]
    pub fn direct_reads(&self) -> u64 {
        self.state().direct_reads
    }

    /// Number of files opened to be read past the page cache so far.
    #[must_use]
    pub fn direct_opens(&self) -> u64 {
        self.state().direct_opens
    }

    /// From now on no file can be opened to be written or read past the page cache, and reads past it fail.
    pub fn refuse_direct(&self) {
        self.state().refuses_direct = true;
    }

    /// While this is so, no file can be opened: the process has no descriptor left.
    pub fn refuse_opens(&self, refuse: bool) {
        self.state().refuses_opens = refuse;
    }

    /// From now on reads past the page cache give less than is asked for, wherever they are, as some file systems do.
    pub fn shorten_direct_reads(&self) {
        self.state().shortens_direct_reads = true;
    }

    /// The disk has room for this many bytes in all.
    pub fn set_capacity(&self, bytes: u64) {
        let mut state = self.state();
        (state.capacity, state.is_quota) = (Some(bytes), false);
    }

    /// Whoever writes may have this many bytes in all.
    pub fn set_quota(&self, bytes: u64) {
        let mut state = self.state();
        (state.capacity, state.is_quota) = (Some(bytes), true);
    }

    /// The disk has no room for another byte; what is written in place goes on.
    pub fn fill(&self) {
        self.set_capacity(0);
    }

    /// Room without end again.
    pub fn make_room(&self) {
        self.state().capacity = None;
    }

    /// From now on `path` can be neither renamed nor removed, nor given to a file; until [`SimDisk::let_go`].
    pub fn hold(&self, path: &Path) {
        self.state().held.insert(path.to_owned());
    }

    /// Ends [`SimDisk::hold`].
    pub fn let_go(&self, path: &Path) {
        self.state().held.remove(path);
    }

    /// Flips one bit of a file, as a platter would.
    ///
    /// # Panics
    /// If the file does not exist or is shorter.
    pub fn flip_bit(&self, path: &Path, byte: usize, bit: u32) {
        let mut state = self.state();
        let id = *state.names.get(path).expect("the file exists");
        let content = state.files.get_mut(&id).expect("a name has a file");
        content.current[byte] ^= 1 << (bit % 8);
        content.durable[byte] ^= 1 << (bit % 8);
    }

    /// What a machine finds after the power failed now: everything synced, and of the rest a subset of sectors and the
    /// first of the changes of names, as `seed` chooses. The same seed gives the same disk.
    #[must_use]
    pub fn after_crash(&self, seed: u64) -> Self {
        let state = self.state();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let mut names = state.durable_names.clone();
        let kept = usize::try_from(next()).unwrap_or(0) % (state.unsynced_names.len() + 1);
        state.unsynced_names[..kept].iter().for_each(|change| change.clone().apply(&mut names));
        let mut coin = || next() & 1 == 0;
        let files = state.files.iter().map(|(id, content)| (*id, content.crashed(&mut coin))).collect();
        let fresh = State {
            files,
            durable_names: names.clone(),
            names,
            dirs: state.dirs.clone(),
            next_file: state.next_file,
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(fresh)), unstalled: Arc::default() }
    }

    /// True while a sync waits.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.state().stalled > 0
    }

    /// Waits as long as syncs are to.
    fn stall<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.stalled += 1;
        let waits = self.unstalled.wait_while(state, |state| state.stall_syncs);
        let mut state = waits.unwrap_or_else(PoisonError::into_inner);
        state.stalled -= 1;
        state
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    /// Synced bytes and a subset of the unsynced sectors.
    fn crashed(&self, coin: &mut impl FnMut() -> bool) -> Self {
        let mut bytes = self.durable.clone();
        for (pos, written) in &self.unsynced {
            for (i, sector) in written.chunks(SECTOR).enumerate() {
                if coin() {
                    put(&mut bytes, pos + i * SECTOR, sector);
                }
            }
        }
        Self { durable: bytes.clone(), current: bytes, unsynced: Vec::new() }
    }
}

fn put(bytes: &mut Vec<u8>, pos: usize, part: &[u8]) {
    if bytes.len() < pos + part.len() {
        bytes.resize(pos + part.len(), 0);
    }
    bytes[pos..pos + part.len()].copy_from_slice(part);
}

impl State {
    fn operate(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.fail_from {
            Some(from) if self.operations > from => Err(io::Error::other("simulated failure")),
            _ => Ok(()),
        }
    }

    fn rename(&mut self, change: NameChange) {
        self.unsynced_names.push(change.clone());
        change.apply(&mut self.names);
    }

    /// An operation that takes the name `path` away, perhaps for another.
    fn unname(&mut self, path: &Path, to: Option<&Path>) -> io::Result<()> {
        self.operate()?;
        if self.held.contains(path) || to.is_some_and(|to| self.held.contains(to)) {
            return Err(io::Error::other("simulated: the name is held"));
        }
        let id = *self.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        let made = to.map(|to| (to.to_owned(), id));
        self.rename(NameChange { gone: Some(path.to_owned()), made });
        Ok(())
    }

    fn used(&self) -> u64 {
        self.names.values().map(|id| self.files[id].current.len() as u64).sum()
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let is_direct = matches!(mode, OpenMode::WriteDirect | OpenMode::ReadDirect);
        if state.refuses_opens {
            return Err(io::Error::from_raw_os_error(24));
        }
        if state.refuses_direct && is_direct {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let id = match (state.names.get(path), mode) {
            (Some(id), OpenMode::Create) => {
                let id = *id;
                state.operate()?;
                state.files.insert(id, Content::default());
                id
            }
            (Some(id), _) => *id,
            (None, OpenMode::Create) => {
                state.operate()?;
                let id = state.next_file;
                state.next_file += 1;
                state.files.insert(id, Content::default());
                state.rename(NameChange { gone: None, made: Some((path.to_owned(), id)) });
                id
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        let (synced_writes, direct_reads) = (mode == OpenMode::WriteDirect, mode == OpenMode::ReadDirect);
        state.direct_opens += u64::from(direct_reads);
        Ok(Arc::new(SimFile { disk: self.clone(), id, synced_writes, direct_reads }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state().unname(from, Some(to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.state().unname(path, None)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileName>> {
        let state = self.state();
        let inside = state.names.iter().filter(|(path, _)| path.parent() == Some(dir));
        let name = |path: &Path| {
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        Ok(inside
            .map(|(path, id)| FileName { name: name(path), len: state.files[id].current.len() as u64 })
            .collect())
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.state().dirs.insert(dir.to_owned());
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        // A directory is opened to be synced.
        if state.refuses_opens {
            return Err(io::Error::from_raw_os_error(24));
        }
        state.operate()?;
        if state.fail_syncs {
            return Err(io::Error::other("simulated sync failure"));
        }
        let (synced, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.unsynced_names).into_iter().partition(|change| change.is_in(dir));
        state.unsynced_names = others;
        synced.into_iter().for_each(|change| change.apply(&mut state.durable_names));
        Ok(())
    }

    fn lock(&self, path: &Path, _holder: &str) -> Result<Box<dyn DirLock>, LockError> {
        if !self.state().locked.insert(path.to_owned()) {
            return Err(LockError::Held { holder: "another journal".to_owned() });
        }
        Ok(Box::new(SimLock { disk: self.clone(), path: path.to_owned() }))
    }
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl DirLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state().locked.remove(&self.path);
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    id: u64,
    synced_writes: bool,
    direct_reads: bool,
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        if self.direct_reads {
            let is_aligned = |n: usize| n.is_multiple_of(ALIGN);
            let pos_is = pos.is_multiple_of(ALIGN as u64);
            if state.refuses_direct || !(pos_is && is_aligned(buf.len()) && is_aligned(buf.as_ptr().addr())) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            state.direct_reads += 1;
        }
        let bytes = &state.files[&self.id].current;
        let start = usize::try_from(pos).unwrap_or(usize::MAX).min(bytes.len());
        let is_short = self.direct_reads && state.shortens_direct_reads;
        let n = buf.len().min(bytes.len() - start) / if is_short { 3 } else { 1 };
        buf[..n].copy_from_slice(&bytes[start..start + n]);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        if self.synced_writes {
            state = self.disk.stall(state);
            if state.fail_syncs {
                return Err(io::Error::other("simulated failure of a synced write"));
            }
        }
        let pos = usize::try_from(pos).map_err(|_| io::ErrorKind::InvalidInput)?;
        if let Err(failure) = state.operate() {
            // Any part of it may have been written.
            let content = state.files.get_mut(&self.id).expect("an open file exists");
            content.unsynced.push((pos, buf.to_vec()));
            return Err(failure);
        }
        let grows = (pos + buf.len()).saturating_sub(state.files[&self.id].current.len()) as u64;
        if grows > 0 && state.capacity.is_some_and(|capacity| state.used() + grows > capacity) {
            let is_quota = state.is_quota;
            return Err(
                if is_quota { io::ErrorKind::QuotaExceeded } else { io::ErrorKind::StorageFull }.into()
            );
        }
        let content = state.files.get_mut(&self.id).expect("an open file exists");
        put(&mut content.current, pos, buf);
        if self.synced_writes {
            put(&mut content.durable, pos, buf);
        } else {
            content.unsynced.push((pos, buf.to_vec()));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if self.synced_writes {
            return Ok(());
        }
        let state = self.disk.state();
        let mut state = self.disk.stall(state);
        state.operate()?;
        if state.fail_syncs {
            return Err(io::Error::other("simulated sync failure"));
        }
        let content = state.files.get_mut(&self.id).expect("an open file exists");
        content.durable = content.current.clone();
        content.unsynced.clear();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[&self.id].current.len() as u64)
    }

    fn fill_zero(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.write_at(&vec![0; len], 0)
    }
}
