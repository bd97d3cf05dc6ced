//! The file keeper thread: has the next file ready, frees files that nobody needs, and writes the sidecars of finished
//! ones.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Backend;
use crate::core::{Core, Inner, Lack, NextFile, file_name};
use crate::disk::{Disk, OpenMode};
use crate::entry::FileSeq;
use crate::error::Failure;
use crate::format::{FileHeader, Place};
use crate::metrics::add;
use crate::sidecar::{FileRows, Sidecar};
use crate::streams::LiveFile;

/// How long a full disk is left alone before the next file is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// How long after a sidecar could not be written the next is tried.
const SIDECAR_RETRY: Duration = Duration::from_secs(2);
/// Rows that are looked at, or taken out of memory, in one holding of the lock.
const ROWS_PER_LOCK: usize = 4096;

/// What there is to do, the most urgent first.
enum Task {
    Free,
    /// The writer will need it. From a spare, if there is one.
    Prepare(FileSeq, Option<PathBuf>),
    Sidecar(FileSeq),
}

/// A file that is off the journal and still on the disk.
struct Retired {
    path: PathBuf,
    /// See [`crate::streams::LiveFile::holds_blocks`].
    holds_blocks: bool,
}

/// Runs until the journal has failed, or is closed and its writer has ended.
pub(crate) fn run(core: &Core) {
    // Oldest first.
    let mut retired = VecDeque::new();
    // Not before then: something that went wrong is tried again.
    let (mut free_at, mut sidecar_at) = (None::<Instant>, None::<Instant>);
    while let Some(task) = next_task(core, &mut retired, &mut free_at, &mut sidecar_at) {
        match task {
            Task::Prepare(seq, spare) => {
                if !prepared(core, seq, spare.as_deref()) {
                    return;
                }
            }
            Task::Free => {
                if let Err(error) = free(core, &mut retired) {
                    let path = retired.front().map(|file| file.path.display());
                    let path = path.map(tracing::field::display);
                    tracing::warn!(%error, path, "cannot free journal files; retrying");
                    free_at = Some(Instant::now() + RETRY);
                }
            }
            // Nobody was promised anything: the rows stay in memory, the journal file has all that a sidecar would, and
            // no acknowledged byte was touched. At worst the index fills up, and admission refuses.
            Task::Sidecar(seq) => {
                if let Err(error) = write_sidecar(core, seq) {
                    tracing::warn!(%error, file = %seq, "cannot write the sidecar of a journal file; retrying");
                    sidecar_at = Some(Instant::now() + SIDECAR_RETRY);
                }
            }
        }
    }
}

/// Waits for something to do; `None` when the journal has failed, or is closed and its writer has ended.
fn next_task(
    core: &Core,
    retired: &mut VecDeque<Retired>,
    free_at: &mut Option<Instant>,
    sidecar_at: &mut Option<Instant>,
) -> Option<Task> {
    let mut inner = core.lock();
    loop {
        if core.failure().is_some() {
            return None;
        }
        // What is queued when the journal is closed may need more files; nothing else is done for it.
        if inner.closing && !inner.file_wanted {
            inner = wait(core, inner, None);
            continue;
        }
        retire(&mut inner, retired);
        let now = Instant::now();
        for at in [&mut *free_at, &mut *sidecar_at] {
            *at = at.filter(|at| *at > now);
        }
        // First, also while a file is wanted: on a full disk it may take the room of one that is freed.
        if free_at.is_none() && !retired.is_empty() {
            return Some(Task::Free);
        }
        if inner.next.is_none() {
            let newest = inner.files.back().map(|file| file.seq).max(inner.prepared);
            return Some(Task::Prepare(newest.map_or(FileSeq::FIRST, FileSeq::next), inner.spares.pop()));
        }
        if sidecar_at.is_none()
            && !inner.closing
            && let Some(file) = without_sidecar(&inner)
        {
            return Some(Task::Sidecar(file));
        }
        let wake_at = free_at.iter().chain(sidecar_at.iter()).min();
        inner = wait(core, inner, wake_at.map(|at| *at - now));
    }
}

/// The oldest finished file whose sidecar is missing or damaged.
fn without_sidecar(inner: &Inner) -> Option<FileSeq> {
    let finished = inner.files.iter().take(inner.files.len().saturating_sub(1));
    let lacks = |sidecar: &Option<Sidecar>| sidecar.as_ref().is_none_or(|sidecar| sidecar.is_damaged);
    finished.filter(|file| lacks(&file.sidecar)).map(|file| file.seq).next()
}

/// Has the next file ready, or says why there is none; false if the journal has failed.
fn prepared(core: &Core, seq: FileSeq, spare: Option<&Path>) -> bool {
    match prepare(core, seq, spare) {
        Ok(next) => {
            let mut inner = core.lock();
            inner.prepared = Some(seq);
            inner.next = Some(next);
            inner.lacks = None;
            drop(inner);
            core.files_changed.notify_all();
        }
        // Neither poisons anything: no acknowledged byte is touched by preparing a file, and none was written to a
        // file that could not be opened. Admission refuses until it works again.
        Err(error) => match lack(&error) {
            // Anything else is the disk failing: the writer may be waiting for this file, and whoever waits for the
            // writer must be answered.
            None => {
                let path = core.wal_dir().join(file_name(seq));
                core.fail(Failure::Write { path, pos: 0, len: core.config.file_bytes, source: error });
                return false;
            }
            Some(lack) => {
                let mut inner = core.lock();
                if inner.lacks.replace(lack) != Some(lack) {
                    tracing::warn!(%error, file = %seq, "cannot prepare the next journal file; it is tried again");
                }
                // If it was not taken, it may be next time: filling another with zeros takes long.
                inner.spares.extend(spare.map(Path::to_owned));
                // A writer that is closing does not wait for it.
                core.files_changed.notify_all();
                let waited = core.files_changed.wait_timeout(inner, RETRY);
                drop(waited);
            }
        },
    }
    true
}

/// What there is none of, if that is all: room on the disk, or in what this process may have of it, which some file
/// systems tell apart; or descriptors, of the process or of the system.
fn lack(error: &io::Error) -> Option<Lack> {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(Lack::Room),
        _ => matches!(error.raw_os_error(), Some(ENFILE | EMFILE)).then_some(Lack::Descriptors),
    }
}

/// Writes the sidecar of a finished file, and takes rows out of memory if there are more than there should be.
fn write_sidecar(core: &Core, seq: FileSeq) -> io::Result<()> {
    let (path, is_damaged) = {
        let inner = core.lock();
        // Files leave by the hand of this thread only.
        let file = inner.file(seq).expect("a file that lacks its sidecar is on the journal");
        (file.path.clone(), file.sidecar.is_some())
    };
    // Rows that left memory can only come from the journal file.
    let rows = if is_damaged { core.scan(seq).map_err(io::Error::other)? } else { rows_in_memory(core, seq) };
    let sidecar = Sidecar::write(&*core.disk, &path, core.journal_id, seq, &rows)?;
    add(&core.counters.sidecars_written, 1);
    if let Some(file) = core.lock().file_mut(seq) {
        file.sidecar = Some(sidecar);
    }
    let limit_bytes = core.config.resident_index_bytes();
    while core.lock().evict(limit_bytes, ROWS_PER_LOCK as u64, &core.counters) {}
    Ok(())
}

/// Where the live entries of a finished file lie that never had a sidecar: all their rows are in memory.
///
/// The lock is let go in between. Entries only leave such a file meanwhile, from either end: one that is live when this
/// ends was live all the time, and is among those found. Those found that are no longer live do no harm, nobody looks
/// for them in this file.
fn rows_in_memory(core: &Core, seq: FileSeq) -> FileRows {
    let mut rows = FileRows::default();
    let spans = core.lock().file(seq).map(|file| file.spans.clone()).unwrap_or_default();
    for (stream, span) in spans.0 {
        let mut from = Some(span.start);
        while let Some(start) = from.take() {
            let inner = core.lock();
            let Some(index) = inner.streams.get(&stream).map(|state| &state.index) else { break };
            for (number, (index, at)) in (1..).zip(index.resident_in(seq, start).take(ROWS_PER_LOCK)) {
                rows.put(stream, index, Place { pos: at.pos, len: at.len });
                from = (number == ROWS_PER_LOCK).then_some(index + 1);
            }
        }
    }
    rows
}

/// Waits until something changed, or for as long as it takes until something is to be tried again.
fn wait<'a>(core: &Core, inner: MutexGuard<'a, Inner>, longest: Option<Duration>) -> MutexGuard<'a, Inner> {
    match longest {
        Some(longest) => {
            let waited = core.files_changed.wait_timeout(inner, longest);
            waited.unwrap_or_else(PoisonError::into_inner).0
        }
        None => core.files_changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
    }
}

/// Takes the oldest files off the journal whose entries are all purged, durably.
fn retire(inner: &mut Inner, retired: &mut VecDeque<Retired>) {
    while inner.files.len() > 1 {
        let oldest = &inner.files[0];
        let free = oldest.spans.0.iter().all(|(stream, span)| {
            let purged = inner.streams.get(stream).and_then(|stream| stream.durable_purged);
            purged.is_some_and(|purged| purged + 1 >= span.end)
        });
        if !free {
            break;
        }
        let retiring = |file: LiveFile| Retired { path: file.path, holds_blocks: file.holds_blocks };
        retired.extend(inner.files.pop_front().map(retiring));
    }
}

/// Keeps one retired file (or as many as configured) as a spare and removes the others, oldest first. It ends with the
/// first that cannot be freed: a file may only go when all before it are gone, or the next open finds a hole.
///
/// A spare is used when its old name is gone durably: its bytes must never be found under that. Nor may what
/// is in a message be found under the spare's next name: one that holds what would be a block there is
/// removed.
fn free(core: &Core, retired: &mut VecDeque<Retired>) -> io::Result<()> {
    if retired.is_empty() {
        return Ok(());
    }
    let mut spares = Vec::new();
    let mut done = Ok(());
    while let Some(Retired { path, holds_blocks }) = retired.front() {
        let spare = path.with_extension("spare");
        let kept = {
            let inner = core.lock();
            // A file that was prepared and never written may be kept under the name already.
            !holds_blocks
                && inner.spares.len() + spares.len() < core.config.spare_files as usize
                && !inner.spares.contains(&spare)
        };
        // The sidecar goes first. If a crash keeps it nevertheless, it is alone, and the next open removes it; its
        // number is never another file's.
        done = remove_if_there(&*core.disk, &Sidecar::path(path))
            .and_then(|()| if kept { core.disk.rename(path, &spare) } else { core.disk.remove(path) });
        if done.is_err() {
            break;
        }
        spares.extend(kept.then_some(spare));
        retired.pop_front();
        add(&core.counters.recycled, 1);
    }
    core.disk.sync_dir(&core.wal_dir())?;
    core.lock().spares.append(&mut spares);
    done
}

/// Removes a file that may be gone already.
pub(crate) fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Makes file `seq` ready: zero-filled or recycled, with its header, durable, under its name.
///
/// The header is written and synced under another name first; the rename makes the file appear whole. Blocks of an
/// earlier life stay in a recycled file: they carry its old number and are never taken for new ones.
fn prepare(core: &Core, seq: FileSeq, spare: Option<&Path>) -> io::Result<NextFile> {
    let (disk, dir) = (&*core.disk, core.wal_dir());
    let path = dir.join(file_name(seq));
    let tmp = path.with_extension("tmp");
    let mut recycled = None;
    if let Some(spare) = spare {
        // Opened before it has another name: without a descriptor it stays what it is. A try that came further has
        // given it the name of this file, which is written over below.
        match disk.open(spare, OpenMode::Write) {
            Ok(file) => {
                disk.rename(spare, &tmp)?;
                recycled = Some(file)
                    .filter(|file| file.len().is_ok_and(|len| len == u64::from(core.config.file_bytes)));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let file = match recycled {
        Some(file) => file,
        None => {
            let file = create(disk, &tmp, core.config.file_bytes)?;
            add(&core.counters.prepared_bytes, u64::from(core.config.file_bytes));
            file
        }
    };
    let header = FileHeader {
        file: seq,
        file_bytes: core.config.file_bytes,
        journal_id: core.journal_id,
        cluster_id: core.config.identity.cluster_id,
        node_id: core.config.identity.node_id,
    };
    let header = header.encode();
    file.write_at(&header, 0)?;
    file.sync()?;
    add(&core.counters.prepared_bytes, header.len() as u64);
    disk.rename(&tmp, &path)?;
    disk.sync_dir(&dir)?;
    // Past the page cache it is written through another handle. Opened here, ahead of the commit that needs it.
    let writing = match core.config.backend {
        Backend::Direct => disk.open(&path, OpenMode::WriteDirect)?,
        Backend::Auto | Backend::Pwrite => Arc::clone(&file),
    };
    Ok(NextFile { seq, path, handle: file, writing, file_bytes: core.config.file_bytes })
}

fn create(disk: &dyn Disk, path: &Path, bytes: u32) -> io::Result<Arc<dyn crate::disk::DiskFile>> {
    let file = disk.open(path, OpenMode::Create)?;
    let filled = file.fill_zero(u64::from(bytes));
    if filled.is_err() {
        // Give the room back at once: a half-made file on a full disk helps nobody.
        let _ = disk.remove(path);
    }
    filled.map(|()| file)
}

/// Makes the first file of a new journal, before any thread runs.
pub(crate) fn first(core: &Core, seq: FileSeq) -> io::Result<NextFile> {
    prepare(core, seq, None)
}
