//! Opening: lock, identity, recovery, and a current file to write into.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use crate::config::JournalConfig;
use crate::core::{Core, Inner};
use crate::disk::{DirLock, Disk};
use crate::entry::{FileSeq, LogPosition, Lsn};
use crate::error::OpenError;
use crate::files;
use crate::format::FILE_HEADER_BYTES;
use crate::identity::{IdentityFile, lock_dir};
use crate::metrics::Counters;
use crate::recovered::{Recovered, RecoveredStream};
use crate::recovery::{self, Scan};
use crate::streams::{FileSpans, LiveFile, Stream};

/// What opening found.
pub(crate) struct Opened {
    /// A session number above all that were used.
    pub(crate) session: u32,
    /// Everything recovered: recovery syncs nothing, but what it kept is on disk or will be found again.
    pub(crate) durable: Lsn,
    pub(crate) report: Recovered,
}

/// Opens or makes the journal; the threads are the caller's to start.
pub(crate) fn open(
    config: JournalConfig,
    disk: Arc<dyn Disk>,
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
    let scan = recovery::scan(&config, &wal, &*disk, identity.journal_id)?;
    for path in scan.empty.iter().chain(&scan.leftovers) {
        disk.remove(path).map_err(io_error(path))?;
    }
    if !(scan.empty.is_empty() && scan.leftovers.is_empty()) {
        disk.sync_dir(&wal).map_err(io_error(&wal))?;
    }
    let opened = Opened {
        session: crate::format::session_of(scan.max_block) + 1,
        durable: scan.files.last().map_or(Lsn(0), |file| Lsn::new(file.seq, file.end)),
        report: report(&scan),
    };
    // Recovery kept blocks that may never have been synced: they must not vanish after somebody read them.
    if let Some(last) = scan.files.last() {
        last.handle.sync().map_err(io_error(&last.path))?;
    }
    let core = core(config, disk, identity.journal_id, scan);
    if core.lock().files.is_empty() {
        let next = files::first(&core, FileSeq(1)).map_err(io_error(&wal))?;
        core.lock().files.push_back(LiveFile {
            seq: next.seq,
            handle: next.handle,
            path: next.path,
            file_bytes: next.file_bytes,
            end: FILE_HEADER_BYTES,
            spans: FileSpans::default(),
            sidecar: false,
        });
    }
    Ok((core, opened, lock))
}

fn core(config: JournalConfig, disk: Arc<dyn Disk>, journal_id: u128, scan: Scan) -> Core {
    let rows = scan.streams.values().map(|stream| stream.rows.len() as u64).sum();
    let mut streams = scan.streams;
    for stream in streams.values_mut() {
        stream.durable_end = stream.end();
        stream.written_end = stream.end();
    }
    let inner = Inner { streams, files: VecDeque::from(scan.files), rows, next_row: 1, ..Inner::default() };
    Core {
        config,
        disk,
        journal_id,
        inner: Mutex::new(inner),
        work: Condvar::new(),
        files_changed: Condvar::new(),
        failure: OnceLock::new(),
        failed: AtomicBool::new(false),
        admitted: Arc::new(AtomicU64::new(0)),
        counters: Counters::default(),
        listener: Mutex::new(None),
    }
}

fn report(scan: &Scan) -> Recovered {
    let stream = |stream: &Stream| RecoveredStream {
        vote: stream.vote.clone(),
        committed: stream.committed,
        purged: stream.purged,
        meta: stream.meta.clone(),
        entries: stream.first..stream.end(),
        last: stream.rows.back().map(|row| LogPosition {
            term: row.term,
            leader: row.leader,
            index: stream.end() - 1,
        }),
    };
    Recovered {
        streams: scan.streams.iter().map(|(id, state)| (*id, stream(state))).collect(),
        torn_tail: scan.torn_tail.clone(),
        files: scan.files.len() as u64,
        scanned_bytes: scan.scanned_bytes,
    }
}
