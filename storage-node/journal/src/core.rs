//! What the handle, the writer and the file keeper share, under one lock that is held for short look-ups only.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;

use bytes::Bytes;

use crate::carried::{Carried, Carrying};
use crate::completion::Waiter;
use crate::config::JournalConfig;
use crate::disk::{Disk, DiskFile};
use crate::entry::{Entry, FileSeq, LogPosition, StreamId};
use crate::error::Failure;
use crate::format::FrameKind;
use crate::index::{Freed, ROW_BYTES};
use crate::metrics::{Counters, add};
use crate::pace::Pace;
use crate::pool::Pool;
use crate::sidecar::Sidecar;
use crate::streams::{self, LiveFile, Stream};

/// One operation in the writer's queue, and who waits for it.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) stream: StreamId,
    pub(crate) operation: Operation,
    pub(crate) waiter: Waiter,
    /// Bytes of its frames.
    pub(crate) bytes: u64,
}

/// What is asked of the writer.
#[derive(Debug)]
pub(crate) enum Operation {
    /// A frame for each entry. The first one's [`crate::index::Row::id`] is given; the others' follow it.
    Append { entries: Vec<Entry>, first_row: u64 },
    /// One frame.
    Fact { kind: FrameKind, at: LogPosition, payload: Bytes },
    /// No frame, but a sync in every mode.
    Sync,
}

impl Operation {
    /// Frames that it becomes.
    pub(crate) fn frames(&self) -> usize {
        match self {
            Self::Append { entries, .. } => entries.len(),
            Self::Fact { .. } => 1,
            Self::Sync => 0,
        }
    }
}

/// A file prepared to be the next one: its header is durable, its name too.
#[derive(Debug, Clone)]
pub(crate) struct NextFile {
    pub(crate) seq: FileSeq,
    pub(crate) path: PathBuf,
    /// For reading, and what the back end writes through: open already, so that nothing has to be opened when a
    /// commit waits for it.
    pub(crate) handle: Arc<dyn DiskFile>,
    pub(crate) writing: Arc<dyn DiskFile>,
    pub(crate) file_bytes: u32,
}

/// Why there is no next file for now. No write failed: it is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    Room,
    /// The process, or the system, may open no more files.
    Descriptors,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    pub(crate) queue: VecDeque<Queued>,
    /// Of what is in it.
    pub(crate) queued_bytes: u64,
    pub(crate) queued_frames: usize,
    /// Purges written into the current file, durable when that is synced.
    pub(crate) unsynced_purges: BTreeMap<StreamId, u64>,
    /// Oldest first; the last is being written.
    pub(crate) files: VecDeque<LiveFile>,
    /// Batches that outlived their files.
    pub(crate) carried: Carried,
    pub(crate) next: Option<NextFile>,
    /// Highest file number ever prepared: the writer may have taken it without having begun it yet.
    pub(crate) prepared: Option<FileSeq>,
    /// Paths of files whose blocks are all dead, to be used again.
    pub(crate) spares: Vec<PathBuf>,
    /// The last attempt to prepare a file found that there is none to be had.
    pub(crate) lacks: Option<Lack>,
    /// The writer waits for `next`.
    pub(crate) file_wanted: bool,
    pub(crate) closing: bool,
    /// The writer waits for something in the queue.
    pub(crate) writer_waits: bool,
    /// Who writes a lone append in the writer's place; the writer takes nothing meanwhile.
    pub(crate) claimed_by: Option<ThreadId>,
    pub(crate) pace: Pace,
    /// Rows in memory.
    pub(crate) rows: u64,
    pub(crate) next_row: u64,
    /// Synced entries that are still in memory, oldest first, with their payload bytes.
    pub(crate) recent: VecDeque<(StreamId, u64, u64)>,
    pub(crate) recent_bytes: u64,
}

impl Inner {
    /// Adds to the queue.
    pub(crate) fn queue(&mut self, queued: Queued) {
        self.queued_bytes += queued.bytes;
        self.queued_frames += queued.operation.frames();
        self.queue.push_back(queued);
    }

    /// Bytes in use: finished files whole, the current one up to its end, and what was carried out of others.
    pub(crate) fn used_bytes(&self) -> u64 {
        let last = self.files.len().saturating_sub(1);
        let used =
            |(i, file): (usize, &LiveFile)| u64::from(if i == last { file.end } else { file.file_bytes });
        self.files.iter().enumerate().map(used).sum::<u64>() + self.carried.bytes()
    }

    pub(crate) fn index_bytes(&self) -> u64 {
        self.rows * ROW_BYTES
    }

    /// A file that is on the journal.
    pub(crate) fn file(&self, seq: FileSeq) -> Option<&LiveFile> {
        self.files.get(place_of(&self.files, seq)?)
    }

    pub(crate) fn file_mut(&mut self, seq: FileSeq) -> Option<&mut LiveFile> {
        let place = place_of(&self.files, seq)?;
        self.files.get_mut(place)
    }

    /// Entries have left memory.
    pub(crate) fn freed(&mut self, freed: Freed) {
        self.rows -= freed.rows;
        self.recent_bytes = self.recent_bytes.saturating_sub(freed.payload_bytes);
    }

    /// Takes rows out of memory that are beyond `limit_bytes`, up to `rows_max`, where sidecars have them. True if
    /// there were any.
    pub(crate) fn evict(&mut self, limit_bytes: u64, rows_max: u64, counters: &Counters) -> bool {
        let beyond = self.index_bytes().saturating_sub(limit_bytes).div_ceil(ROW_BYTES);
        if beyond == 0 {
            return false;
        }
        let files = &self.files;
        let file = |seq: FileSeq| files.get(place_of(files, seq)?);
        let holds = |sidecar: &Sidecar| !sidecar.is_damaged;
        let has_sidecar =
            |seq: FileSeq| file(seq).is_some_and(|file| file.sidecar.as_ref().is_some_and(holds));
        let freed = streams::evict(&mut self.streams, has_sidecar, beyond.min(rows_max));
        self.freed(freed);
        add(&counters.evicted_rows, freed.rows);
        freed.rows > 0
    }

    /// The current file was synced: files may go by what was purged in it. True if anything was.
    pub(crate) fn purges_are_durable(&mut self) -> bool {
        let purges = std::mem::take(&mut self.unsynced_purges);
        for (stream, index) in &purges {
            if let Some(state) = self.streams.get_mut(stream) {
                state.durable_purged = state.durable_purged.max(Some(*index));
            }
        }
        !purges.is_empty()
    }

    /// Drops the oldest synced payloads beyond `limit` bytes from memory; they are read from disk from now on. `added`
    /// have come since the last time.
    ///
    /// What was purged stays in the list until its turn comes, and where purges are quick bytes alone never bring
    /// it: so there are no more than rows. Twice as many as came are looked at for that: no commit pays for many.
    pub(crate) fn forget_recent(&mut self, limit: u64, added: u64) {
        let mut gone = (self.recent.len() as u64).saturating_sub(self.rows).min(2 * added);
        while self.recent_bytes > limit || gone > 0 {
            gone = gone.saturating_sub(1);
            let Some((stream, index, row)) = self.recent.pop_front() else { break };
            let row_now =
                self.streams.get_mut(&stream).and_then(|s| s.index.row_mut(index)).filter(|r| r.id == row);
            if let Some(payload) = row_now.and_then(|row| row.payload.take()) {
                self.recent_bytes = self.recent_bytes.saturating_sub(payload.len() as u64);
            }
        }
    }
}

/// Files follow each other without a hole.
fn place_of(files: &VecDeque<LiveFile>, seq: FileSeq) -> Option<usize> {
    usize::try_from(seq.0.checked_sub(files.front()?.seq.0)?).ok()
}

/// Shared by all clones of the handle and the two threads.
pub(crate) struct Core {
    pub(crate) config: JournalConfig,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) journal_id: u128,
    pub(crate) inner: Mutex<Inner>,
    /// The queue or `closing` changed: the writer looks.
    pub(crate) work: Condvar,
    /// `next`, `spares` or `closing` changed, or a file may be free: writer and file keeper look.
    pub(crate) files_changed: Condvar,
    pub(crate) failure: OnceLock<Arc<Failure>>,
    pub(crate) failed: AtomicBool,
    pub(crate) admitted: Arc<AtomicU64>,
    pub(crate) counters: Counters,
    /// Whoever carries has it.
    pub(crate) carrying: Mutex<Carrying>,
    /// For large reads.
    pub(crate) pool: Arc<Pool>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("dir", &self.config.dir).finish_non_exhaustive()
    }
}

impl Core {
    /// The state. A panic of another holder poisons the lock; the writer's own end is noticed as a failure, and
    /// every change below is complete before anything that could panic, so the state is still whole.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the writer look at the queue, if it waits for something in it: waking costs a system call, and a writer
    /// that is busy looks by itself.
    pub(crate) fn wake_writer(&self, mut inner: MutexGuard<'_, Inner>) {
        let waits = std::mem::take(&mut inner.writer_waits);
        drop(inner);
        if waits {
            self.work.notify_one();
        }
    }

    /// Keeps the first failure and answers everybody who waits. Nothing is taken from now on.
    pub(crate) fn fail(&self, failure: Failure) -> Arc<Failure> {
        let told = || {
            if !matches!(failure, Failure::Closed) {
                tracing::error!(%failure, "the journal has failed; reads go on");
            }
            Arc::new(failure)
        };
        let first = Arc::clone(self.failure.get_or_init(told));
        self.failed.store(true, Ordering::Release);
        let waiting = {
            let mut inner = self.lock();
            (inner.queued_bytes, inner.queued_frames) = (0, 0);
            std::mem::take(&mut inner.queue)
        };
        for queued in waiting {
            queued.waiter.answer(Err(Arc::clone(&first)));
        }
        self.files_changed.notify_all();
        first
    }

    pub(crate) fn failure(&self) -> Option<Arc<Failure>> {
        if self.failed.load(Ordering::Acquire) { self.failure.get().cloned() } else { None }
    }

    pub(crate) fn wal_dir(&self) -> PathBuf {
        self.config.dir.join("wal")
    }
}

/// A file that is written to find out whether that can go past the page cache.
pub(crate) const PROBE: &str = "direct.tmp";

/// Name of a journal file.
pub(crate) fn file_name(seq: FileSeq) -> String {
    format!("{seq}.wal")
}

/// Whether the journal gives names like that to files beside its own: spares, sidecars and what becomes either.
pub(crate) fn is_own_name(name: &str) -> bool {
    let of_file = |(stem, extension): (&str, &str)| {
        parse_file_name(&format!("{stem}.wal")).is_some() && matches!(extension, "spare" | "idx" | "tmp")
    };
    name == PROBE || name.rsplit_once('.').is_some_and(of_file)
}

/// Number in the name of a journal file.
pub(crate) fn parse_file_name(name: &str) -> Option<FileSeq> {
    let digits = name.strip_suffix(".wal").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok().map(FileSeq)
}
