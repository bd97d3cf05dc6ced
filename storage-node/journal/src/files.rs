//! The file keeper thread: has the next file ready, and frees files that nobody needs.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use crate::core::{Core, Inner, NextFile, file_name};
use crate::disk::{Disk, OpenMode};
use crate::entry::FileSeq;
use crate::error::Failure;
use crate::format::FileHeader;
use crate::metrics::add;

/// How long a full disk is left alone before the next file is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Runs until the journal has failed, or is closed and its writer has ended.
pub(crate) fn run(core: &Core) {
    // Off the journal and still on the disk, oldest first.
    let mut retired = VecDeque::new();
    let mut is_stuck = false;
    loop {
        let (seq, spare) = {
            let mut inner = core.lock();
            loop {
                if core.failure().is_some() {
                    return;
                }
                // What is queued when the journal is closed may need more files; nothing else is done for it.
                if inner.closing && !inner.file_wanted {
                    inner = wait(core, inner, false);
                    continue;
                }
                retire(&mut inner, &mut retired);
                if inner.next.is_none() || !(is_stuck || retired.is_empty()) {
                    let newest = inner.files.back().map(|file| file.seq).max(inner.prepared);
                    let seq = newest.map_or(FileSeq(1), FileSeq::next);
                    let wanted = inner.next.is_none();
                    break (wanted.then_some(seq), if wanted { inner.spares.pop() } else { None });
                }
                inner = wait(core, inner, is_stuck);
                is_stuck = false;
            }
        };
        if let Err(error) = free(core, &mut retired) {
            let path = retired.front().map(|path| path.display());
            tracing::warn!(%error, path = path.map(tracing::field::display), "cannot free journal files; retrying");
            is_stuck = true;
        }
        let Some(seq) = seq else { continue };
        match prepare(core, seq, spare.as_deref()) {
            Ok(next) => {
                let mut inner = core.lock();
                inner.prepared = Some(seq);
                inner.next = Some(next);
                inner.disk_full = false;
                drop(inner);
                core.files_changed.notify_all();
            }
            // Anything but a full disk is the disk failing: the writer may be waiting for this file, and whoever
            // waits for the writer must be answered.
            Err(source) if source.kind() != io::ErrorKind::StorageFull => {
                let path = core.wal_dir().join(file_name(seq));
                core.fail(Failure::Write { path, pos: 0, len: core.config.file_bytes, source });
                return;
            }
            // A full disk poisons nothing: no acknowledged byte is touched by preparing a file. Admission refuses
            // until it works again.
            Err(error) => {
                tracing::warn!(%error, file = %seq, "cannot prepare the next journal file; retrying");
                let mut inner = core.lock();
                inner.disk_full = true;
                // A writer that is closing does not wait for room.
                core.files_changed.notify_all();
                let waited = core.files_changed.wait_timeout(inner, RETRY);
                drop(waited);
            }
        }
    }
}

/// Waits until something changed, or, with files that could not be freed, until it is time to try again.
fn wait<'a>(core: &Core, inner: MutexGuard<'a, Inner>, is_stuck: bool) -> MutexGuard<'a, Inner> {
    if is_stuck {
        let waited = core.files_changed.wait_timeout(inner, RETRY);
        return waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    core.files_changed.wait(inner).unwrap_or_else(PoisonError::into_inner)
}

/// Takes the oldest files off the journal whose entries are all purged, durably.
fn retire(inner: &mut Inner, retired: &mut VecDeque<PathBuf>) {
    while inner.files.len() > 1 {
        let oldest = &inner.files[0];
        let free = oldest.spans.0.iter().all(|(stream, span)| {
            let purged = inner.streams.get(stream).and_then(|stream| stream.durable_purged);
            purged.is_some_and(|purged| purged + 1 >= span.end)
        });
        if !free {
            break;
        }
        retired.extend(inner.files.pop_front().map(|file| file.path));
    }
}

/// Keeps one retired file (or as many as configured) as a spare and removes the others, oldest first. It ends with the
/// first that cannot be freed: a file may only go when all before it are gone, or the next open finds a hole.
///
/// A spare is used when its old name is gone durably: its bytes must never be found under that.
fn free(core: &Core, retired: &mut VecDeque<PathBuf>) -> io::Result<()> {
    if retired.is_empty() {
        return Ok(());
    }
    let mut spares = Vec::new();
    let mut done = Ok(());
    while let Some(path) = retired.front() {
        // A sidecar without its file means nothing and is removed at the next open if this fails.
        let _ = core.disk.remove(&path.with_extension("idx"));
        let kept = core.lock().spares.len() + spares.len() < core.config.spare_files.max(1) as usize;
        let spare = path.with_extension("spare");
        done = if kept { core.disk.rename(path, &spare) } else { core.disk.remove(path) };
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
        disk.rename(spare, &tmp)?;
        let file = disk.open(&tmp, OpenMode::Write)?;
        if file.len()? == u64::from(core.config.file_bytes) {
            recycled = Some(file);
        }
    }
    let file = match recycled {
        Some(file) => file,
        None => create(disk, &tmp, core.config.file_bytes)?,
    };
    let header = FileHeader {
        file: seq,
        file_bytes: core.config.file_bytes,
        journal_id: core.journal_id,
        cluster_id: core.config.identity.cluster_id,
        node_id: core.config.identity.node_id,
    };
    file.write_at(&header.encode(), 0)?;
    file.sync()?;
    disk.rename(&tmp, &path)?;
    disk.sync_dir(&dir)?;
    Ok(NextFile { seq, path, handle: file, file_bytes: core.config.file_bytes })
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
