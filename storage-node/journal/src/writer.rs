//! The writer thread: takes what waits, writes it as one block, syncs once, answers everybody.
//!
//! The order that makes a confirm a promise:
//! 1. frames are copied into the block in queue order, so a vote never overtakes an entry;
//! 2. the block is written in place into bytes that are already allocated, past everything acknowledged;
//! 3. the sync returns; only then are rows marked durable and waiters answered.
//!
//! A crash between 2 and 3 leaves a block that nobody was told about: recovery keeps it if it is whole and cuts
//! it if not. Between one sync and the next at most one commit is in flight (in `always` mode).

use std::sync::{Arc, MutexGuard};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::completion::{Synced, Waiter};
use crate::config::{Backend, SyncMode};
use crate::core::{Core, Inner, NextFile, Queued};
use crate::disk::OpenMode;
use crate::entry::{FileSeq, Location, LogPosition, Lsn, Rotated, StreamId};
use crate::error::Failure;
use crate::format::{
    BLOCK_HEADER_BYTES, BlockHeader, FILE_HEADER_BYTES, FLAG_FILE_HEAD, FLAG_SESSION_START,
    FRAME_HEADER_BYTES, FrameHeader, FrameKind, align_up,
};
use crate::metrics::add;
use crate::streams::{FileSpans, LiveFile, Stream};

/// Where the writer goes on.
#[derive(Debug)]
pub(crate) struct Writer {
    core: Arc<Core>,
    /// Sequence number of the next block.
    next_block: u64,
    flags: u8,
    durable: Lsn,
    block: Vec<u8>,
    /// Entries in the block being built: stream, index, row, payload position in the block, length.
    placed: Vec<(StreamId, u64, u64, u32, u32)>,
    /// All frames in it.
    facts: Vec<(StreamId, FrameKind, LogPosition)>,
    frames: u16,
}

/// What a commit took.
struct Taken {
    waiters: Vec<(StreamId, Waiter)>,
    at: Instant,
    /// Somebody wants it synced in every mode.
    syncs: bool,
}

/// Something that is stated along with a commit and never causes one.
struct Fact {
    stream: StreamId,
    kind: FrameKind,
    at: LogPosition,
    payload: Bytes,
}

/// What a commit achieved, for every stream.
struct Outcomes {
    synced: Synced,
    ends: Vec<(StreamId, Option<u64>)>,
}

/// Takes what fits one block off the queue, and the lazy facts that changed, as far as there is room; the rest rides
/// in the next block.
fn drain(core: &Core, mut inner: MutexGuard<'_, Inner>) -> (Vec<Queued>, Vec<Fact>) {
    let limit = u64::from(core.config.max_block_bytes);
    let (mut bytes, mut frames) = (BLOCK_HEADER_BYTES as u64, 0);
    let mut drained = Vec::with_capacity(inner.queue.len());
    while let Some(front) = inner.queue.front() {
        let fits = bytes + front.bytes <= limit && frames + front.frames.len() <= usize::from(u16::MAX);
        if !fits && frames > 0 {
            break;
        }
        let Some(queued) = inner.queue.pop_front() else { break };
        inner.queued_bytes -= queued.bytes;
        bytes += queued.bytes;
        frames += queued.frames.len();
        drained.push(queued);
    }
    let mut lazy = Vec::new();
    for (id, stream) in &mut inner.streams {
        let meta = stream.meta.as_ref().filter(|_| stream.dirty_meta);
        let most = (3 * FRAME_HEADER_BYTES + meta.map_or(0, Bytes::len)) as u64;
        if bytes + most > limit || frames + 3 > usize::from(u16::MAX) {
            break;
        }
        let before = lazy.len();
        let facts = [
            (stream.dirty_purged, FrameKind::Purge, stream.purged),
            (stream.dirty_committed, FrameKind::Committed, stream.committed),
        ];
        let facts = facts.into_iter().filter_map(|(dirty, kind, at)| Some((kind, at.filter(|_| dirty)?)));
        lazy.extend(facts.map(|(kind, at)| Fact { stream: *id, kind, at, payload: Bytes::new() }));
        lazy.extend(meta.cloned().map(|payload| Fact {
            stream: *id,
            kind: FrameKind::Meta,
            at: NOWHERE,
            payload,
        }));
        if lazy.len() > before {
            bytes += most;
            frames += lazy.len() - before;
        }
        (stream.dirty_purged, stream.dirty_committed, stream.dirty_meta) = (false, false, false);
    }
    (drained, lazy)
}

impl Writer {
    /// A writer for a session that was never used: recovery chose a higher one than all found.
    pub(crate) fn new(core: Arc<Core>, session: u32, durable: Lsn) -> Self {
        let block = Vec::with_capacity(core.config.max_block_bytes as usize);
        Self {
            core,
            next_block: u64::from(session) << 32,
            flags: FLAG_SESSION_START,
            durable,
            block,
            placed: Vec::new(),
            facts: Vec::new(),
            frames: 0,
        }
    }

    /// Runs until the journal is closed or fails.
    pub(crate) fn run(mut self) {
        let mut synced_at = None::<Instant>;
        while let Some(taken) = self.take(synced_at) {
            match self.commit(taken.at, taken.syncs) {
                Ok((at, outcomes)) => {
                    synced_at = Some(at);
                    for (stream, waiter) in taken.waiters {
                        let end =
                            outcomes.ends.iter().find(|(id, _)| *id == stream).and_then(|(_, end)| *end);
                        waiter.answer(Ok(Synced { stream, durable_index_end: end, ..outcomes.synced }));
                    }
                }
                Err(failure) => {
                    let first = self.core.fail(failure);
                    for (_, waiter) in taken.waiters {
                        waiter.answer(Err(Arc::clone(&first)));
                    }
                    return;
                }
            }
        }
    }

    /// Waits for work and builds the block's frames from what is there, up to the limit.
    fn take(&mut self, synced_at: Option<Instant>) -> Option<Taken> {
        let core = Arc::clone(&self.core);
        let mut inner = core.lock();
        while inner.queue.is_empty() {
            if inner.closing {
                return None;
            }
            inner.writer_waits = true;
            inner = core.work.wait(inner).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        inner.writer_waits = false;
        // Counted from the last sync; whoever closes the journal does not wait for it.
        let rest = |at: Instant| core.config.min_fsync_interval.checked_sub(at.elapsed());
        while let Some(rest) = synced_at.and_then(rest).filter(|rest| !rest.is_zero())
            && !inner.closing
        {
            let waited = core.work.wait_timeout(inner, rest);
            inner = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        let at = Instant::now();
        let (drained, lazy) = drain(&core, inner);
        // Copied without the lock: a block of megabytes must not keep appends waiting.
        self.begin();
        let syncs = drained.iter().any(|queued| queued.syncs);
        let mut waiters = Vec::with_capacity(drained.len());
        for queued in drained {
            self.put(&queued);
            waiters.push((queued.stream, queued.waiter));
        }
        for fact in lazy {
            self.put_frame(fact.stream, fact.kind, fact.at, &fact.payload);
        }
        Some(Taken { waiters, at, syncs })
    }

    fn begin(&mut self) {
        self.block.clear();
        self.block.resize(BLOCK_HEADER_BYTES, 0);
        self.placed.clear();
        self.facts.clear();
        self.frames = 0;
    }

    fn put(&mut self, queued: &Queued) {
        for frame in &queued.frames {
            let pos = self.put_frame(queued.stream, frame.kind, frame.at, &frame.payload);
            if matches!(frame.kind, FrameKind::Entry(_)) {
                let len = u32::try_from(frame.payload.len()).expect("a payload fits a block");
                self.placed.push((queued.stream, frame.at.index, frame.row, pos, len));
            }
        }
    }

    /// Appends a frame; returns where its payload starts in the block.
    fn put_frame(&mut self, stream: StreamId, kind: FrameKind, at: LogPosition, payload: &[u8]) -> u32 {
        FrameHeader::new(stream, kind, at, payload).put(&mut self.block);
        let pos = u32::try_from(self.block.len()).expect("a block is at most 16 MiB");
        self.block.extend_from_slice(payload);
        self.facts.push((stream, kind, at));
        self.frames += 1;
        pos
    }

    /// Writes the block, syncs it unless the mode is not to and nobody wants it, and makes it visible.
    fn commit(&mut self, taken: Instant, syncs: bool) -> Result<(Instant, Outcomes), Failure> {
        let padded = align_up(u32::try_from(self.block.len()).expect("a block is at most 16 MiB"));
        let room = {
            let inner = self.core.lock();
            let current = inner.files.back().expect("there is always a current file");
            current.end.checked_add(padded).is_some_and(|end| end <= current.file_bytes)
        };
        if !room {
            self.rotate()?;
        }
        let (handle, path, pos, file) = {
            let inner = self.core.lock();
            let current = inner.files.back().expect("there is always a current file");
            (Arc::clone(&current.handle), current.path.clone(), current.end, current.seq)
        };
        if pos == FILE_HEADER_BYTES {
            self.flags |= FLAG_FILE_HEAD; // the first block of a new journal: there is nothing to restate
        }
        self.seal(file, 0);
        let bytes = self.block.len() as u64;
        handle.write_at(&self.block, u64::from(pos)).map_err(|source| Failure::Write {
            path: path.clone(),
            pos,
            len: padded,
            source,
        })?;
        let written = Instant::now();
        let mut synced = written;
        let syncs = syncs || self.core.config.sync == SyncMode::Always;
        if syncs {
            handle.sync().map_err(|source| Failure::Sync { path, source })?;
            synced = Instant::now();
            self.core.counters.synced(synced - written);
            self.durable = Lsn::new(file, pos + padded);
        }
        let ends = self.publish(file, pos, padded, syncs);
        let frames = u32::from(self.frames);
        let stream = StreamId(0); // filled in for each waiter
        let synced_as = Synced { stream, durable_index_end: None, taken, written, synced, frames, bytes };
        Ok((synced, Outcomes { synced: synced_as, ends }))
    }

    /// Finishes the block's header and padding.
    fn seal(&mut self, file: FileSeq, prev_end: u32) {
        let header = BlockHeader {
            flags: std::mem::take(&mut self.flags),
            frames: self.frames,
            body_len: u32::try_from(self.block.len() - BLOCK_HEADER_BYTES)
                .expect("a block is at most 16 MiB"),
            block_seq: self.next_block,
            file,
            durable: self.durable,
            ts_ms: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
            prev_end,
        };
        header.seal(&mut self.block);
        let (len, padded) =
            (self.block.len(), self.block.len().next_multiple_of(crate::format::BLOCK_ALIGN as usize));
        self.block.resize(padded, 0);
        self.next_block += 1;
        let counters = &self.core.counters;
        add(&counters.blocks, 1);
        add(&counters.frames, u64::from(self.frames));
        add(&counters.bytes, padded as u64);
        add(&counters.padding_bytes, (padded - len) as u64);
    }

    /// Makes the commit visible: rows get their place, the file its end, streams their durable end.
    fn publish(&self, file: FileSeq, pos: u32, padded: u32, is_synced: bool) -> Vec<(StreamId, Option<u64>)> {
        let mut guard = self.core.lock();
        let inner = &mut *guard;
        let current = inner.files.back_mut().expect("there is always a current file");
        current.end = pos + padded;
        for (stream, index, row_id, at, len) in &self.placed {
            current.spans.add(*stream, *index);
            let Some(state) = inner.streams.get_mut(stream) else { continue };
            let location = Location { file, pos: pos + at, len: *len };
            if let Some(row) = state.row_mut(*index).filter(|row| row.id == *row_id) {
                row.at = Some(location);
                inner.recent.push_back((*stream, *index, *row_id));
                state.durable_end = state.durable_end.max(index + 1);
            }
        }
        for (stream, kind, at) in &self.facts {
            let Some(state) = inner.streams.get_mut(stream) else { continue };
            match kind {
                FrameKind::Entry(_) => state.written_end = at.index + 1,
                FrameKind::Truncate => state.written_end = at.index,
                // Files are freed by what is purged, and that must not be forgotten when they are gone.
                FrameKind::Purge => {
                    inner.unsynced_purges.insert(*stream, at.index);
                }
                _ => {}
            }
        }
        if is_synced && inner.purges_are_durable() {
            self.core.files_changed.notify_all();
        }
        inner.forget_recent(self.core.config.recent_bytes_max);
        self.core.counters.memory_bytes.store(inner.recent_bytes, std::sync::atomic::Ordering::Relaxed);
        let ends = |stream: &Stream| (stream.durable_end > stream.first).then_some(stream.durable_end);
        inner.streams.iter().map(|(id, stream)| (*id, ends(stream))).collect()
    }

    /// Finishes the current file and begins the next with a block that restates every stream's facts, so that
    /// older files can go. The file's own bytes are durable before the next file's first block exists: in `always`
    /// mode every commit was synced, in `os` mode it is synced here.
    fn rotate(&mut self) -> Result<(), Failure> {
        let next = self.next_file()?;
        let core = Arc::clone(&self.core);
        let (old, old_path, old_end) = {
            let inner = core.lock();
            let current = inner.files.back().expect("there is always a current file");
            (Arc::clone(&current.handle), current.path.clone(), current.end)
        };
        if core.config.sync == SyncMode::Os {
            old.sync().map_err(|source| Failure::Sync { path: old_path, source })?;
            self.durable = Lsn::new(next.seq, FILE_HEADER_BYTES);
            core.lock().purges_are_durable();
            core.files_changed.notify_all();
        }
        let handle = open_for_writing(&core, &next)?;
        let waiting = (
            std::mem::take(&mut self.block),
            std::mem::take(&mut self.placed),
            std::mem::take(&mut self.facts),
            std::mem::take(&mut self.frames),
        );
        self.begin();
        let rotated = self.restate();
        self.flags |= FLAG_FILE_HEAD;
        self.seal(next.seq, old_end);
        let len = u32::try_from(self.block.len()).expect("a block is at most 16 MiB");
        handle.write_at(&self.block, u64::from(FILE_HEADER_BYTES)).map_err(|source| Failure::Write {
            path: next.path.clone(),
            pos: FILE_HEADER_BYTES,
            len,
            source,
        })?;
        (self.block, self.placed, self.facts, self.frames) = waiting;
        core.lock().files.push_back(LiveFile {
            seq: next.seq,
            handle,
            path: next.path,
            file_bytes: next.file_bytes,
            end: FILE_HEADER_BYTES + len,
            spans: FileSpans::default(),
            sidecar: false,
        });
        add(&core.counters.rotations, 1);
        let listener = core.listener.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        if let (Some(listener), Some(rotated)) = (listener, rotated) {
            listener(rotated);
        }
        Ok(())
    }

    /// The newest facts of every stream, as the head block of a file.
    fn restate(&mut self) -> Option<Rotated> {
        let core = Arc::clone(&self.core);
        let mut guard = core.lock();
        let inner = &mut *guard;
        for (id, stream) in &mut inner.streams {
            if let Some(vote) = stream.vote.clone() {
                self.put_frame(*id, FrameKind::Vote, NOWHERE, &vote);
            }
            if let Some(purged) = stream.purged {
                self.put_frame(*id, FrameKind::Purge, purged, &[]);
            }
            if let Some(committed) = stream.committed {
                self.put_frame(*id, FrameKind::Committed, committed, &[]);
            }
            if let Some(meta) = stream.meta.clone() {
                self.put_frame(*id, FrameKind::Meta, NOWHERE, &meta);
            }
            // Only what earlier files hold: entries that still wait are in blocks to come.
            let end = LogPosition { index: stream.written_end, ..NOWHERE };
            self.put_frame(*id, FrameKind::End, end, &[]);
        }
        let finished = inner.files.back()?;
        Some(Rotated {
            file: finished.seq,
            entries: finished.spans.0.iter().map(|(id, span)| (*id, span.clone())).collect(),
        })
    }

    /// Waits for the file keeper to have the next file ready.
    fn next_file(&self) -> Result<NextFile, Failure> {
        let mut inner = self.core.lock();
        let mut waited = false;
        loop {
            if let Some(next) = inner.next.take() {
                self.core.files_changed.notify_all();
                return Ok(next);
            }
            // The file keeper failed (its reason is kept), or it will not come any more.
            if self.core.failure().is_some() || (inner.closing && inner.disk_full) {
                return Err(Failure::Closed);
            }
            if !std::mem::replace(&mut waited, true) {
                add(&self.core.counters.file_waits, 1);
            }
            inner = self.core.files_changed.wait(inner).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

const NOWHERE: LogPosition = LogPosition { term: 0, leader: 0, index: 0 };

/// The handle that the configured back end writes through.
fn open_for_writing(core: &Core, next: &NextFile) -> Result<Arc<dyn crate::disk::DiskFile>, Failure> {
    match core.config.backend {
        Backend::Pwrite => Ok(Arc::clone(&next.handle)),
        Backend::Direct => core
            .disk
            .open(&next.path, OpenMode::WriteDirect)
            .map_err(|source| Failure::Write { path: next.path.clone(), pos: 0, len: 0, source }),
    }
}
