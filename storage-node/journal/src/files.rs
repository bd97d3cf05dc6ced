//! The file keeper thread: has the next file ready, and frees files that nobody needs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::core::{Core, Inner, NextFile, file_name};
use crate::disk::{Disk, OpenMode};
use crate::entry::FileSeq;
use crate::error::Failure;
use crate::format::FileHeader;
use crate::metrics::add;

/// How long a full disk is left alone before the next file is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Runs until the journal is closed or has failed.
pub(crate) fn run(core: &Core) {
    loop {
        let (seq, spare, retired) = {
            let mut inner = core.lock();
            loop {
                if inner.closing || core.failure().is_some() {
                    return;
                }
                let retired = retire(&mut inner);
                if inner.next.is_none() || !retired.is_empty() {
                    let newest = inner.files.back().map(|file| file.seq).max(inner.prepared);
                    let seq = newest.map_or(FileSeq(1), FileSeq::next);
                    let wanted = inner.next.is_none();
                    break (wanted.then_some(seq), if wanted { inner.spares.pop() } else { None }, retired);
                }
                inner = core.files_changed.wait(inner).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        };
        keep(core, retired);
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
                let waited = core.files_changed.wait_timeout(inner, RETRY);
                drop(waited);
            }
        }
    }
}

/// Takes the oldest files off the journal whose entries are all purged, durably.
fn retire(inner: &mut Inner) -> Vec<PathBuf> {
    let mut retired = Vec::new();
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
    retired
}

/// Keeps one retired file (or as many as configured) as a spare and removes the others.
fn keep(core: &Core, retired: Vec<PathBuf>) {
    for path in retired {
        let sidecar = path.with_extension("idx");
        // A sidecar without its file means nothing and is removed at the next open if this fails.
        let _ = core.disk.remove(&sidecar);
        let spares = core.lock().spares.len();
        let spare = path.with_extension("spare");
        let kept = spares < core.config.spare_files.max(1) as usize;
        let done = if kept { core.disk.rename(&path, &spare) } else { core.disk.remove(&path) };
        match done {
            Ok(()) if kept => core.lock().spares.push(spare),
            Ok(()) => {}
            Err(error) => tracing::warn!(%error, path = %path.display(), "cannot free a journal file"),
        }
        add(&core.counters.recycled, 1);
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
