//! Opening: lock, identity, recovery, and a current file to write into.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use crate::carried::{self, Carrying};
use crate::config::{Backend, JournalConfig, SyncMode};
use crate::core::{Core, Inner, PROBE};
use crate::disk::{DirLock, Disk, OpenMode};
use crate::entry::{FileSeq, LogPosition, Lsn, StreamId};
use crate::error::{OpenError, ReadError};
use crate::files;
use crate::format::{BLOCK_ALIGN, FILE_HEADER_BYTES, FileHeader};
use crate::identity::{IdentityFile, lock_dir};
use crate::metrics::{Counters, add};
use crate::recovered::{Recovered, RecoveredStream};
use crate::recovery::{self, Scan};
use crate::streams::{FileSpans, LiveFile, Stream};
use crate::synced;

/// What opening found.
pub(crate) struct Opened {
    /// A session number above all that were used.
    pub(crate) session: u32,
    /// Everything recovered: recovery syncs nothing, but what it kept is on disk or will be found again.
    pub(crate) durable: Lsn,
    pub(crate) report: Recovered,
}

/// Opens or makes the journal, unless that is `given_up` while it is read; the threads are the caller's to start.
pub(crate) fn open(
    mut config: JournalConfig,
    disk: Arc<dyn Disk>,
    given_up: &AtomicBool,
) -> Result<(Core, Opened, Box<dyn DirLock>), OpenError> {
    let dir = config.dir.clone();
    let wal = dir.join("wal");
    let io_error = |path: &std::path::Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    };
    disk.make_dir(&wal).map_err(io_error(&wal))?;
    let lock = lock_dir(&dir, &disk)?;
    let identity = IdentityFile::load_or_make(&dir, &*disk, config.identity)?;
    let mut scan = recovery::scan(&config, &wal, &*disk, identity.journal_id, given_up)?;
    let end = scan.files.last().map_or(Lsn(0), |file| Lsn::new(file.seq, file.end));
    synced::check(&dir, &*disk, identity.journal_id, end)?;
    let carried_dir = carried::dir_of(&dir);
    let (carried, old) = carried::load(&*disk, &carried_dir, identity.journal_id)?;
    let has_headless = !scan.headless.is_empty();
    let spares = spares(&config, &*disk, &identity, &mut scan).map_err(io_error(&wal))?;
    for path in &scan.leftovers {
        // A sidecar that was written again took the name of what an earlier try left behind.
        files::remove_if_there(&*disk, path).map_err(io_error(path))?;
    }
    if has_headless || !(scan.leftovers.is_empty() && spares.is_empty()) {
        disk.sync_dir(&wal).map_err(io_error(&wal))?;
    }
    // Each is named by a carried file that is durable, or was never finished.
    for path in &old {
        files::remove_if_there(&*disk, path).map_err(io_error(path))?;
    }
    if !old.is_empty() {
        disk.sync_dir(&carried_dir).map_err(io_error(&carried_dir))?;
    }
    let session = crate::format::session_of(scan.last_block) + 1;
    let durable = end;
    let (torn_tail, scanned_bytes) = (scan.torn_tail.clone(), scan.scanned_bytes);
    let files = scan.files.len() as u64;
    config.backend = backend(&config, &wal, &*disk);
    if let Some(last) = scan.files.last() {
        clear(last, &scan.behind).map_err(io_error(&last.path))?;
        // Recovery kept blocks that may never have been synced: they must not vanish after somebody read them.
        last.handle.sync().map_err(io_error(&last.path))?;
    }
    identity.renew(&dir, &*disk).map_err(io_error(&dir))?;
    let core = core(config, disk, identity, scan);
    (core.lock().spares, core.lock().carried) = (spares, carried);
    let report = Recovered { streams: streams(&core)?, torn_tail, files, scanned_bytes };
    if core.lock().files.is_empty() {
        let next = files::first(&core, FileSeq::FIRST).map_err(io_error(&wal))?;
        core.lock().files.push_back(LiveFile {
            seq: next.seq,
            handle: next.handle,
            path: next.path,
            file_bytes: next.file_bytes,
            end: FILE_HEADER_BYTES,
            spans: FileSpans::default(),
            holds_blocks: false,
            sidecar: None,
        });
    }
    if core.config.backend == Backend::Direct
        && let Some(current) = core.lock().files.back_mut()
    {
        let opened = core.disk.open(&current.path, OpenMode::WriteDirect);
        current.handle = opened.map_err(io_error(&current.path))?;
    }
    Ok((core, Opened { session, durable, report }, lock))
}

/// Clears pages behind the last block that look like blocks: what comes next may end in front of them, and have their
/// numbers. The one at its end goes when the others are gone durably: it may be what says that they are of a torn
/// block, and prove nothing.
fn clear(last: &LiveFile, behind: &[u32]) -> io::Result<()> {
    let clear = |pos: u32| last.handle.write_at(&[0; BLOCK_ALIGN as usize], u64::from(pos));
    let others = || behind.iter().copied().filter(|pos| *pos != last.end);
    others().try_for_each(clear)?;
    if !behind.contains(&last.end) {
        return Ok(());
    }
    if others().next().is_some() {
        last.handle.sync()?;
    }
    clear(last.end)
}

/// Files that the last process had ready to be written, or kept to be: filling new ones with zeros instead
/// takes the disk from whoever waits for this start. What is more than should be kept is left among what is
/// to be removed.
///
/// None has a block under the number that it gets: the next file as it was prepared has none at all, and a
/// spare has those of an older file of this journal, which its header says, and no message that would be one:
/// earlier builds did not look for these, so that none of their spares is kept. They lose their names durably
/// before they get another, as ever.
fn spares(
    config: &JournalConfig,
    disk: &dyn Disk,
    identity: &IdentityFile,
    scan: &mut Scan,
) -> io::Result<Vec<PathBuf>> {
    let next = scan.files.last().map_or(FileSeq::FIRST, |file| file.seq.next());
    let is_spare = |path: &mut PathBuf| {
        let is_ours = |header: FileHeader| header.journal_id == identity.journal_id && header.file <= next;
        !identity.is_older()
            && path.extension().is_some_and(|extension| extension == "spare")
            && header_of(disk, path).is_some_and(is_ours)
    };
    let mut spares: Vec<PathBuf> = scan.leftovers.extract_if(.., is_spare).collect();
    // The newest first: if a crash keeps one, it must keep those in front of it, or there is a hole between.
    for (path, is_clean) in scan.headless.drain(..) {
        let spare = path.with_extension("spare");
        if !is_clean || spares.contains(&spare) {
            files::remove_if_there(disk, &path)?;
            continue;
        }
        disk.rename(&path, &spare)?;
        // What had that name and was no spare is gone with it.
        scan.leftovers.retain(|leftover| *leftover != spare);
        spares.push(spare);
    }
    let kept = spares.len().min(config.spare_files as usize);
    scan.leftovers.extend(spares.drain(..spares.len() - kept));
    Ok(spares)
}

/// What a file says of itself; `None` if that cannot be read.
fn header_of(disk: &dyn Disk, path: &Path) -> Option<FileHeader> {
    let mut bytes = vec![0; FILE_HEADER_BYTES as usize];
    let file = disk.open(path, OpenMode::Read).ok()?;
    let read = file.read_at(&mut bytes, 0).ok()?;
    FileHeader::parse(&bytes[..read]).ok()
}

/// What `config` asks for, or what `auto` comes to here. A write is what tells: some file systems open a file
/// for direct I/O and then want more alignment than a block has, or refuse.
fn backend(config: &JournalConfig, wal: &Path, disk: &dyn Disk) -> Backend {
    match (config.backend, config.sync) {
        (Backend::Auto, SyncMode::Always) => {}
        // Written past the page cache every commit waits for the disk, which `os` is there to avoid.
        (Backend::Auto, SyncMode::Os) => return Backend::Pwrite,
        (asked, _) => return asked,
    }
    let path = wal.join(PROBE);
    let block = [0; BLOCK_ALIGN as usize];
    let tried = disk
        .open(&path, OpenMode::Create)
        .and_then(|file| file.write_at(&block, 0))
        .and_then(|()| disk.open(&path, OpenMode::WriteDirect)?.write_at(&block, 0));
    // If it stays, the next open removes it.
    let _ = files::remove_if_there(disk, &path);
    match tried {
        Ok(()) => Backend::Direct,
        Err(why) => {
            tracing::info!(%why, "no direct writes here: the journal goes through the page cache");
            Backend::Pwrite
        }
    }
}

fn core(config: JournalConfig, disk: Arc<dyn Disk>, identity: IdentityFile, scan: Scan) -> Core {
    let rows = scan.streams.values().map(|stream| stream.index.rows()).sum();
    let mut streams = scan.streams;
    for stream in streams.values_mut() {
        stream.durable_end = stream.index.end();
        stream.written_end = stream.index.end();
    }
    let counters = Counters::default();
    add(&counters.sidecars_written, scan.sidecars_written);
    add(&counters.evicted_rows, scan.evicted_rows);
    let inner = Inner { streams, files: VecDeque::from(scan.files), rows, next_row: 1, ..Inner::default() };
    Core {
        config,
        disk,
        journal_id: identity.journal_id,
        carrying: Mutex::new(Carrying::new(identity)),
        inner: Mutex::new(inner),
        work: Condvar::new(),
        files_changed: Condvar::new(),
        failure: OnceLock::new(),
        failed: AtomicBool::new(false),
        admitted: Arc::new(AtomicU64::new(0)),
        counters,
        pool: Arc::default(),
    }
}

/// What is known of each stream.
fn streams(core: &Core) -> Result<BTreeMap<StreamId, RecoveredStream>, OpenError> {
    let mut found: BTreeMap<_, _> =
        core.lock().streams.iter().map(|(id, state)| (*id, report(state))).collect();
    for (id, stream) in &mut found {
        if stream.last.is_none() && !stream.entries.is_empty() {
            stream.last = Some(last_of(core, *id, stream.entries.end - 1)?);
        }
    }
    Ok(found)
}

/// All but the last entry of a stream whose rows have all left memory.
fn report(stream: &Stream) -> RecoveredStream {
    let entries = stream.index.first()..stream.index.end();
    let last = entries.end.checked_sub(1).and_then(|index| Some((index, stream.index.row(index)?)));
    RecoveredStream {
        vote: stream.vote.clone(),
        committed: stream.committed,
        purged: stream.purged,
        meta: stream.meta.clone(),
        entries,
        last: last.map(|(index, row)| LogPosition { term: row.term, leader: row.leader, index }),
    }
}

fn last_of(core: &Core, stream: StreamId, index: u64) -> Result<LogPosition, OpenError> {
    let entries = core.read_entries(stream, index..index + 1, 0).map_err(|error| match error {
        ReadError::Io { path, source } => OpenError::Io { path, source },
        other => OpenError::Corrupt { path: core.wal_dir(), what: other.to_string() },
    })?;
    let entry = entries.first().expect("a read gives at least one entry");
    Ok(LogPosition { term: entry.term, leader: entry.leader, index })
}
