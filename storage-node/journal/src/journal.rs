//! The handle that everybody holds.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;

use crate::completion::{Completion, Waiter};
use crate::config::JournalConfig;
use crate::core::{Core, Inner, Lack, Operation, Queued};
use crate::disk::{DirLock, Disk};
use crate::entry::{Entry, Location, LogPosition, StreamId};
use crate::error::{AppendError, Failure, Full, OpenError, ReadError};
use crate::format::{BLOCK_HEADER_BYTES, FRAME_HEADER_BYTES, FrameKind};
use crate::index::{EntryIndex, Freed, Row};
use crate::metrics::Metrics;
use crate::recovered::Recovered;
use crate::space::{Class, FileUsage, Permit, Usage};
use crate::streams::Stream;
use crate::writer::Writer;
use crate::{files, open};

/// Handle of an open journal; clones share it. The journal is closed when the last clone is dropped: what was
/// queued is written and synced first.
#[derive(Debug, Clone)]
pub struct Journal {
    shared: Arc<Shared>,
}

/// Dropped with the last handle: ends the threads and frees the directory.
#[derive(Debug)]
struct Shared {
    core: Arc<Core>,
    writer: Arc<Mutex<Writer>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<Box<dyn DirLock>>>,
}

/// What a thread does, and how one is had.
type Run = Box<dyn FnOnce() + Send>;
type Spawn<'a> = &'a dyn Fn(&str, Run) -> std::io::Result<JoinHandle<()>>;

impl Shared {
    /// Starts the threads. If it fails, those that run end with the last handle.
    fn start(&self, spawn: Spawn<'_>) -> std::io::Result<()> {
        let (writer, for_writer, for_files) =
            (Arc::clone(&self.writer), Arc::clone(&self.core), Arc::clone(&self.core));
        let runs: [(_, Run); 2] = [
            ("weir-journal", Box::new(move || supervise(&for_writer, || Writer::run(&writer)))),
            ("weir-files", Box::new(move || supervise(&for_files, || files::run(&for_files)))),
        ];
        for (name, run) in runs {
            let thread = spawn(name, run)?;
            self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(())
    }

    fn close(&self) {
        self.core.lock().closing = true;
        self.core.work.notify_all();
        self.core.files_changed.notify_all();
        let own = std::thread::current().id();
        let is_writing = self.core.lock().is_claimed_by(own);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if threads.is_empty() {
            // Somebody else closes, and frees the directory when nothing is written any more.
            return;
        }
        // The writer first: what is queued may need files, so the file keeper goes on until nothing is
        // written any more.
        for (at, thread) in threads.into_iter().enumerate() {
            // A completion may hold the last handle, or close: the writer then ends by itself, after this returns.
            let is_ours = thread.thread().id() == own || (at == 0 && is_writing);
            if !is_ours && thread.join().is_err() {
                tracing::error!("a journal thread ended by a panic");
            }
            self.core.fail(Failure::Closed);
        }
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

impl Journal {
    /// Opens the journal in `config.dir`, or makes it, and recovers what it holds.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing was changed.
    pub fn open(config: JournalConfig, disk: Arc<dyn Disk>) -> Result<(Self, Recovered), OpenError> {
        Self::open_unless(config, disk, &AtomicBool::new(false))
    }

    /// The same, for somebody who may not want it any more before it is read: `given_up` then ends it within a block.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_unless(
        config: JournalConfig,
        disk: Arc<dyn Disk>,
        given_up: &AtomicBool,
    ) -> Result<(Self, Recovered), OpenError> {
        Self::open_with(config, disk, given_up, &|name, run| {
            std::thread::Builder::new().name(name.to_owned()).spawn(run)
        })
    }

    /// The same with threads from elsewhere.
    pub(crate) fn open_with(
        config: JournalConfig,
        disk: Arc<dyn Disk>,
        given_up: &AtomicBool,
        spawn: Spawn<'_>,
    ) -> Result<(Self, Recovered), OpenError> {
        config.check()?;
        let (core, recovered, lock) = open::open(config, disk, given_up)?;
        let core = Arc::new(core);
        let session = recovered.session;
        let refused = |source| OpenError::Io { path: core.config.dir.clone(), source };
        let writer = Writer::new(Arc::clone(&core), session, recovered.durable).map_err(refused)?;
        let (writer, lock) = (Arc::new(Mutex::new(writer)), Mutex::new(Some(lock)));
        let shared = Shared { core: Arc::clone(&core), writer, threads: Mutex::default(), lock };
        // Dropped by an error: a thread that runs already would wait for ever otherwise.
        let journal = Self { shared: Arc::new(shared) };
        journal.shared.start(spawn).map_err(refused)?;
        Ok((journal, recovered.report))
    }

    /// Writes and syncs what is queued, ends the threads and frees the directory, whoever still holds a handle. From
    /// then on appends are refused with [`Failure::Closed`]; reads go on.
    pub fn close(&self) {
        self.shared.close();
    }

    pub(crate) fn core(&self) -> &Core {
        &self.shared.core
    }

    /// Queues entries that continue `stream`. On return they can be read; `done` is called when they are
    /// durable. If the journal rests, and commits take no longer than [`JournalConfig::inline_commit_max`], a
    /// small append is written right here: then it is durable, and `done` was called, when this returns.
    ///
    /// # Errors
    /// See [`AppendError`]; then nothing was queued and `done` is answered with [`Failure::Closed`] as it drops.
    pub fn append(&self, stream: StreamId, entries: Vec<Entry>, done: Completion) -> Result<(), AppendError> {
        let waiter = Waiter::new(done);
        let max = self.core().config.entry_bytes_max();
        if let Some(entry) = entries.iter().find(|entry| entry.payload.len() > max) {
            return Err(AppendError::TooLarge { stream, len: entry.payload.len(), max });
        }
        let payload: u64 = entries.iter().map(|entry| entry.payload.len() as u64).sum();
        let mut inner = self.open_inner(payload)?;
        let Inner { streams, next_row, rows, recent_bytes, .. } = &mut *inner;
        let state = streams.entry(stream).or_default();
        for (expected, entry) in (state.index.end()..).zip(&entries) {
            if entry.index != expected {
                return Err(AppendError::NotContiguous { stream, expected, found: entry.index });
            }
        }
        let (first_row, added) = (*next_row + 1, entries.len() as u64);
        state.index.extend(entries.iter().zip(first_row..).map(|(entry, id)| Row {
            kind: entry.kind,
            term: entry.term,
            leader: entry.leader,
            id,
            at: None,
            payload: Some(entry.payload.clone()),
        }));
        *next_row += added;
        *rows += added;
        *recent_bytes += payload;
        self.enqueue(&mut inner, stream, entries, first_row, waiter);
        // Twice as many as came: so the index comes back to its bound, and no append pays for many.
        let Core { config, counters, .. } = self.core();
        inner.evict(config.resident_index_bytes(), 2 * added, counters);
        match self.core().claim(&mut inner) {
            Some(_claim) => supervise(self.core(), || Writer::run_once(&self.shared.writer, inner)),
            None => self.core().wake_writer(inner),
        }
        Ok(())
    }

    /// Queues entries, several operations if a block does not hold them. The waiter goes with the last: queue
    /// order makes it the last to become durable.
    fn enqueue(
        &self,
        inner: &mut Inner,
        stream: StreamId,
        mut entries: Vec<Entry>,
        mut first_row: u64,
        waiter: Waiter,
    ) {
        let limit = u64::from(self.core().config.max_block_bytes) - BLOCK_HEADER_BYTES as u64;
        loop {
            let mut bytes = 0;
            // A block counts its frames in 16 bits.
            let fit = entries.iter().take(usize::from(u16::MAX)).take_while(|entry| {
                bytes += frame_bytes(&entry.payload);
                bytes <= limit
            });
            // One fits a block by itself: that was checked.
            let fit = fit.count().max(1);
            if fit >= entries.len() {
                inner.queue(Queued {
                    stream,
                    operation: Operation::Append { entries, first_row },
                    waiter,
                    bytes,
                });
                return;
            }
            let rest = entries.split_off(fit);
            let bytes = entries.iter().map(|entry| frame_bytes(&entry.payload)).sum();
            let operation = Operation::Append { entries: std::mem::replace(&mut entries, rest), first_row };
            inner.queue(Queued { stream, operation, waiter: Waiter::nobody(), bytes });
            first_row += fit as u64;
        }
    }

    /// Queues the newest vote of `stream`; at most 4 KiB. Written and synced with the next commit.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn save_vote(&self, stream: StreamId, vote: Bytes, done: Completion) -> Result<(), AppendError> {
        fits_fact(stream, &vote)?;
        let operation = Operation::Fact { kind: FrameKind::Vote, at: NOWHERE, payload: vote.clone() };
        self.control(stream, operation, FRAME_HEADER_BYTES + vote.len(), done, |state| {
            state.vote = Some(vote);
            Freed::default()
        })
    }

    /// Removes all entries after `after` (all of them for `None`). They cannot be read any more on return; `done` is
    /// called when that is durable.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn truncate_after(
        &self,
        stream: StreamId,
        after: Option<u64>,
        done: Completion,
    ) -> Result<(), AppendError> {
        let end = after.map_or(0, |after| after + 1);
        let at = LogPosition { index: end, ..NOWHERE };
        let operation = Operation::Fact { kind: FrameKind::Truncate, at, payload: Bytes::new() };
        self.control(stream, operation, FRAME_HEADER_BYTES, done, |state| state.truncate(end))
    }

    /// Commits the lazy facts noted so far, even if nothing else waits. Everything queued before it is synced when
    /// `done` is called, in [`crate::SyncMode::Os`] too.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn flush(&self, stream: StreamId, done: Completion) -> Result<(), AppendError> {
        let waiter = Waiter::new(done);
        let mut inner = self.open_inner(0)?;
        inner.queue(Queued { stream, operation: Operation::Sync, waiter, bytes: 0 });
        self.core().wake_writer(inner);
        Ok(())
    }

    fn control(
        &self,
        stream: StreamId,
        operation: Operation,
        bytes: usize,
        done: Completion,
        change: impl FnOnce(&mut Stream) -> Freed,
    ) -> Result<(), AppendError> {
        let waiter = Waiter::new(done);
        let bytes = bytes as u64;
        let mut inner = self.open_inner(bytes)?;
        let state = inner.streams.entry(stream).or_default();
        let freed = change(state);
        inner.freed(freed);
        inner.queue(Queued { stream, operation, waiter, bytes });
        self.core().wake_writer(inner);
        Ok(())
    }

    /// The lock, if the journal takes operations and `bytes` fit the queue.
    fn open_inner(&self, bytes: u64) -> Result<MutexGuard<'_, Inner>, AppendError> {
        let inner = self.core().lock();
        if let Some(failure) = self.core().failure() {
            return Err(AppendError::Failed(failure));
        }
        let max = self.core().config.queue_bytes_max();
        if inner.queued_bytes + bytes > max {
            return Err(AppendError::QueueFull { queued: inner.queued_bytes, max });
        }
        Ok(inner)
    }

    /// Notes the commit position. Lazy: rides in the next commit, causes none.
    pub fn note_committed(&self, stream: StreamId, committed: LogPosition) {
        let mut inner = self.core().lock();
        let state = inner.streams.entry(stream).or_default();
        state.committed = Some(committed);
        state.dirty_committed = true;
    }

    /// Removes all entries up to and including `purged.index`; a purge beyond the end leaves an empty stream that
    /// goes on at `purged.index + 1`. Readers see it at once, the disk with the next commit; only one beyond the end
    /// causes a commit.
    pub fn note_purged(&self, stream: StreamId, purged: LogPosition) {
        let mut inner = self.core().lock();
        let state = inner.streams.entry(stream).or_default();
        if state.purged.is_some_and(|before| before.index >= purged.index) {
            return;
        }
        // What follows a jump must follow it on disk too. A lazy one may overtake entries that it covers and that still
        // wait: recovery passes over those.
        let jumps = purged.index >= state.index.end();
        let freed = state.purge(purged);
        state.dirty_purged = !jumps;
        inner.freed(freed);
        if jumps && self.core().failure().is_none() {
            let operation = Operation::Fact { kind: FrameKind::Purge, at: purged, payload: Bytes::new() };
            let (waiter, bytes) = (Waiter::nobody(), FRAME_HEADER_BYTES as u64);
            inner.queue(Queued { stream, operation, waiter, bytes });
            self.core().wake_writer(inner);
        }
    }

    /// Notes metadata, at most 4 KiB. Lazy: rides in the next commit, causes none.
    ///
    /// # Panics
    /// If it is larger: it is restated at the head of every file.
    pub fn note_meta(&self, stream: StreamId, meta: Bytes) {
        assert!(meta.len() <= FACT_BYTES_MAX, "stream {stream}: metadata of {} bytes", meta.len());
        let mut inner = self.core().lock();
        let state = inner.streams.entry(stream).or_default();
        state.meta = Some(meta);
        state.dirty_meta = true;
    }

    /// Indexes of the entries that can be read, in flight ones included.
    #[must_use]
    pub fn entries(&self, stream: StreamId) -> Range<u64> {
        self.core().lock().streams.get(&stream).map_or(0..0, |state| state.index.first()..state.index.end())
    }

    /// Reads entries from `range.start` on, at most `range.end`, until `max_bytes` of payload are collected; at least
    /// one entry unless the range is empty. Entries whose rows left memory are read up to the end of their journal file
    /// at most: whoever wants more asks again. Blocking; entries in flight come from memory.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_entries(
        &self,
        stream: StreamId,
        range: Range<u64>,
        max_bytes: usize,
    ) -> Result<Vec<Entry>, ReadError> {
        self.core().read_entries(stream, range, max_bytes)
    }

    /// [`Journal::read_entries`] for somebody who reads much and reads it once, as after a start: see
    /// [`Journal::read_parts`]. The entries are in memory of their own.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_entries_once(
        &self,
        stream: StreamId,
        range: Range<u64>,
        max_bytes: usize,
    ) -> Result<Vec<Entry>, ReadError> {
        self.core().read_entries_once(stream, range, max_bytes)
    }

    /// Where the payload of a synced entry lies. Blocking: its row may have left memory.
    ///
    /// # Errors
    /// [`ReadError::NotWritten`] while it is in flight; see [`ReadError`].
    pub fn locate(&self, stream: StreamId, index: u64) -> Result<Location, ReadError> {
        self.core().locate(stream, index)
    }

    /// [`Journal::locate`] of many entries, as far as memory has where they lie: reads nothing, and visits
    /// what all share once. `None` for one whose row has left memory, that is in flight, or that is not
    /// there.
    #[must_use]
    pub fn locate_in_memory(
        &self,
        stream: StreamId,
        indexes: impl Iterator<Item = u64>,
    ) -> Vec<Option<Location>> {
        let inner = self.core().lock();
        let state = inner.streams.get(&stream).map(|state| &state.index);
        indexes.map(|index| state.and_then(|state| state.row(index)).and_then(|row| row.at)).collect()
    }

    /// Whether the entry `index` is there and on disk, synced in [`crate::SyncMode::Always`]. Reads nothing.
    #[must_use]
    pub fn is_written(&self, stream: StreamId, index: u64) -> bool {
        let inner = self.core().lock();
        let state = inner.streams.get(&stream).map(|state| &state.index);
        // An entry that has no row in memory was written long ago.
        let written = |state: &EntryIndex| {
            state.row(index).map_or(state.evicted(index).is_some(), |row| row.at.is_some())
        };
        state.is_some_and(written)
    }

    /// Reads bytes `part` of a payload. A read of the whole payload is checked against its CRC; of a part, the caller
    /// checks what it knows.
    ///
    /// # Errors
    /// [`ReadError::Recycled`] when the file is gone; see [`ReadError`].
    ///
    /// # Panics
    /// If `part` lies outside the payload.
    pub fn read_at(&self, location: Location, part: Range<u32>) -> Result<Bytes, ReadError> {
        self.core().read_at(location, part)
    }

    /// Reads parts of payloads for somebody who reads much and reads it once, a pack maker say: past the page
    /// cache if the journal writes past it, neighbours together, into memory that is used again when the last
    /// of what is returned is dropped. So nobody should keep it. Nothing is checked: the caller does.
    /// Blocking.
    ///
    /// # Errors
    /// [`ReadError::Recycled`] when a file is gone; see [`ReadError`].
    ///
    /// # Panics
    /// If a part lies outside its payload.
    pub fn read_parts(&self, parts: &[(Location, Range<u32>)]) -> Result<Vec<Bytes>, ReadError> {
        self.core().read_parts(parts)
    }

    /// Promises room for an append of `bytes` of payload, or refuses before anything is queued.
    ///
    /// # Errors
    /// See [`Full`]; it ends by itself.
    pub fn try_admit(&self, bytes: u64, class: Class) -> Result<Permit, Full> {
        let config = &self.core().config;
        let inner = self.core().lock();
        let held = self.core().admitted.load(Ordering::Acquire);
        if held > 0 && held + bytes > config.pending_bytes_max {
            return Err(Full::Busy { pending: held, max: config.pending_bytes_max });
        }
        let reserve = config.control_reserve_bytes;
        // On a full disk as much is left to what makes room.
        let (limit, block) = match class {
            Class::Data => (config.max_bytes - reserve, config.max_block_bytes),
            Class::Few => (config.max_bytes - reserve / 2, config.max_block_bytes),
            Class::Control => (config.max_bytes - reserve / 4, config.max_block_bytes),
            // What is left of a file that ends counts as used, and so does what a start writes: nobody is asked before.
            Class::Relief => {
                (config.max_bytes.saturating_add(config.file_bytes.into()), config.max_block_bytes / 4)
            }
        };
        // Each append may take a block of its own, padded.
        let used = inner.used_bytes() + held + bytes;
        if used > limit {
            return Err(Full::Journal { used, limit });
        }
        let index_bytes = inner.index_bytes();
        if class == Class::Data && index_bytes >= config.index_bytes_max {
            return Err(Full::Index { used: index_bytes, limit: config.index_bytes_max });
        }
        let current = inner.files.back().map_or(0, |file| u64::from(file.file_bytes - file.end));
        let free = current + inner.next.as_ref().map_or(0, |next| u64::from(next.file_bytes));
        // While the next file is being prepared and the disk is not known to be full, the writer waits for it: a
        // refusal would meet every producer that is faster than new files are filled with zeros.
        if let Some(lack) = inner.lacks.filter(|_| held + bytes + u64::from(block) > free) {
            return Err(match lack {
                Lack::Room => Full::Disk { free },
                Lack::Descriptors => Full::Descriptors { free },
            });
        }
        self.core().admitted.fetch_add(bytes, Ordering::AcqRel);
        Ok(Permit { bytes, held: Arc::clone(&self.core().admitted) })
    }

    /// How full the journal is, and what pins each file.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let inner = self.core().lock();
        let last = inner.files.len().saturating_sub(1);
        let pins = |stream: &StreamId, span: &Range<u64>| {
            let first = inner.streams.get(stream).map_or(0, |state| state.index.first());
            (first < span.end).then_some((*stream, span.start.max(first)))
        };
        let files = inner.files.iter().enumerate().map(|(i, file)| FileUsage {
            file: file.seq,
            used_bytes: u64::from(file.end),
            file_bytes: file.file_bytes,
            current: i == last,
            pinned_by: file.spans.0.iter().filter_map(|(stream, span)| pins(stream, span)).collect(),
            sidecar: file.sidecar.is_some(),
        });
        Usage {
            used_bytes: inner.used_bytes(),
            carried_bytes: inner.carried.bytes(),
            limit_bytes: self.core().config.max_bytes,
            queued_bytes: inner.queued_bytes,
            admitted_bytes: self.core().admitted.load(Ordering::Acquire),
            disk_full: inner.lacks == Some(Lack::Room),
            files: files.collect(),
        }
    }

    /// Whether the file keeper has the next file ready, or knows that the disk is full.
    #[cfg(test)]
    pub(crate) fn knows_of_next_file(&self) -> bool {
        let inner = self.core().lock();
        inner.next.is_some() || inner.lacks.is_some()
    }

    /// How many entries the list of the recent ones has.
    #[cfg(test)]
    pub(crate) fn recent(&self) -> usize {
        self.core().lock().recent.len()
    }

    /// Whether the writer waits for work, and has for so long that a lone append may be written by who appends it.
    #[cfg(test)]
    pub(crate) fn rests(&self) -> bool {
        let inner = self.core().lock();
        inner.writer_waits && inner.pace.has_rested(std::time::Instant::now())
    }

    /// The failure that stopped the journal, if one did.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<Failure>> {
        self.core().failure()
    }

    /// Counters since open.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let (queued, index) = {
            let inner = self.core().lock();
            (inner.queued_bytes, inner.index_bytes())
        };
        self.core().counters.index_bytes.store(index, Ordering::Relaxed);
        self.core().counters.snapshot(queued)
    }

    /// The settings it was opened with.
    #[must_use]
    pub fn config(&self) -> &JournalConfig {
        &self.core().config
    }
}

/// Largest vote or metadata: both are restated at the head of every file.
const FACT_BYTES_MAX: usize = 4096;
const NOWHERE: LogPosition = LogPosition { term: 0, leader: 0, index: 0 };

fn fits_fact(stream: StreamId, fact: &Bytes) -> Result<(), AppendError> {
    let fits = fact.len() <= FACT_BYTES_MAX;
    if fits { Ok(()) } else { Err(AppendError::TooLarge { stream, len: fact.len(), max: FACT_BYTES_MAX }) }
}

/// Bytes of a frame with this payload.
fn frame_bytes(payload: &Bytes) -> u64 {
    (FRAME_HEADER_BYTES + payload.len()) as u64
}

/// Runs a thread; if it panics, everybody who waits is told, and nothing is taken any more.
fn supervise(core: &Core, run: impl FnOnce()) {
    if std::panic::catch_unwind(AssertUnwindSafe(run)).is_err() {
        core.fail(Failure::WriterLost);
    }
}
