//! The writer: takes what waits, writes it as one block, syncs once, answers everybody. A thread does so all
//! the time, and who appends to a journal that rests in its place (`inline`).
//!
//! The order that makes a confirm a promise:
//! 1. frames are copied into the block in queue order, so a vote never overtakes an entry;
//! 2. the block is written in place, perhaps in pieces, into bytes that are already allocated, past everything
//!    acknowledged;
//! 3. the sync returns; only then are rows marked durable and waiters answered.
//!
//! A crash between 2 and 3 leaves a block that nobody was told about: recovery keeps it if it is whole and cuts
//! it if not. Between one sync and the next at most one commit is in flight (in `always` mode).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::completion::Synced;
use crate::config::{Backend, SyncMode};
use crate::core::{Core, Inner, NextFile, Operation, Queued};
use crate::disk::DiskFile;
use crate::draft::{Draft, Placed};
use crate::entry::{FileSeq, Location, LogPosition, Lsn, StreamId};
use crate::error::Failure;
use crate::format::{
    BLOCK_HEADER_BYTES, BlockHeader, FILE_HEADER_BYTES, FLAG_FILE_HEAD, FLAG_SESSION_START,
    FRAME_HEADER_BYTES, FrameKind, align_up,
};
use crate::index::ROW_BYTES;
use crate::inline::is_lone;
use crate::metrics::add;
use crate::streams::{FileSpans, LiveFile, Stream};
use crate::synced::Notes;

/// Operations that the queue keeps memory for when it is empty, about 100 bytes each; a burst may take more.
const ROOM_KEPT: usize = 8 << 10;

/// Where the writer goes on.
#[derive(Debug)]
pub(crate) struct Writer {
    core: Arc<Core>,
    /// Sequence number of the next block.
    next_block: u64,
    flags: u8,
    durable: Lsn,
    notes: Notes,
    draft: Draft,
    /// Empty: changes places with the queue when all of that fits a block.
    room: VecDeque<Queued>,
}

/// What a commit took.
struct Taken {
    at: Instant,
    queued: VecDeque<Queued>,
    facts: Vec<Fact>,
    frames: usize,
    /// Bytes of the block, header included and padding not.
    bytes: u64,
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
fn drain(core: &Core, mut inner: MutexGuard<'_, Inner>, mut room: VecDeque<Queued>) -> Taken {
    let at = Instant::now();
    let limit = u64::from(core.config.max_block_bytes);
    let (mut bytes, mut frames, mut fit) = (BLOCK_HEADER_BYTES as u64, 0, 0);
    debug_assert_eq!(
        (inner.queued_bytes, inner.queued_frames),
        inner.queue.iter().fold((0, 0), |(bytes, frames), queued| {
            (bytes + queued.bytes, frames + queued.operation.frames())
        }),
        "what is queued is counted as it comes and as it is taken"
    );
    let fits = |bytes: u64, frames: usize| bytes <= limit && frames <= usize::from(u16::MAX);
    if fits(bytes + inner.queued_bytes, inner.queued_frames) {
        // Everything, and nobody waits for the lock meanwhile.
        (bytes, frames, fit) = (bytes + inner.queued_bytes, inner.queued_frames, inner.queue.len());
    } else {
        for queued in &inner.queue {
            let (more_bytes, more_frames) = (bytes + queued.bytes, frames + queued.operation.frames());
            if frames > 0 && !fits(more_bytes, more_frames) {
                break;
            }
            (bytes, frames, fit) = (more_bytes, more_frames, fit + 1);
        }
    }
    inner.queued_bytes -= bytes - BLOCK_HEADER_BYTES as u64;
    inner.queued_frames -= frames;
    if fit == inner.queue.len() {
        std::mem::swap(&mut inner.queue, &mut room);
    } else {
        room.extend(inner.queue.drain(..fit));
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
            bytes += lazy[before..]
                .iter()
                .map(|fact| (FRAME_HEADER_BYTES + fact.payload.len()) as u64)
                .sum::<u64>();
            frames += lazy.len() - before;
        }
        (stream.dirty_purged, stream.dirty_committed, stream.dirty_meta) = (false, false, false);
    }
    Taken { at, queued: room, facts: lazy, frames, bytes }
}

/// The writer; nobody else has it while it is claimed, and a panic with it in hand has failed the journal.
fn of(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for work; `None` when there will be no more. The writer's place is nobody else's then.
fn await_work(core: &Core, synced_at: Option<Instant>) -> Option<MutexGuard<'_, Inner>> {
    let mut inner = core.lock();
    while inner.queue.is_empty() || inner.claimed_by.is_some() {
        if inner.closing && inner.claimed_by.is_none() {
            inner.writer_waits = false;
            return None;
        }
        inner.writer_waits = inner.claimed_by.is_none();
        inner = core.work.wait(inner).unwrap_or_else(PoisonError::into_inner);
    }
    inner.writer_waits = false;
    // Counted from the last sync; whoever closes the journal does not wait for it.
    let rest = |at: Instant| core.config.min_fsync_interval.checked_sub(at.elapsed());
    while let Some(rest) = synced_at.and_then(rest).filter(|rest| !rest.is_zero())
        && !inner.closing
    {
        let waited = core.work.wait_timeout(inner, rest);
        inner = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    Some(inner)
}

impl Writer {
    /// A writer for a session that was never used: recovery chose a higher one than all found.
    ///
    /// # Errors
    /// The system has no memory for a block.
    pub(crate) fn new(core: Arc<Core>, session: u32, durable: Lsn) -> std::io::Result<Self> {
        let draft = Draft::new(core.config.max_block_bytes as usize)?;
        let (next_block, flags) = (u64::from(session) << 32, FLAG_SESSION_START);
        let config = &core.config;
        let notes = Notes::open(&config.dir, &*core.disk, core.journal_id, config.note_synced_every);
        Ok(Self { core, next_block, flags, durable, notes, draft, room: VecDeque::new() })
    }

    /// Runs until the journal is closed or fails.
    pub(crate) fn run(writer: &Mutex<Self>) {
        let core = Arc::clone(&of(writer).core);
        let mut synced_at = None::<Instant>;
        while let Some(inner) = await_work(&core, synced_at) {
            synced_at = of(writer).settle(inner);
            if synced_at.is_none() {
                return;
            }
        }
    }

    /// Writes what is in the queue, for which [`Core::claim`] gave this thread the writer's place, and answers.
    pub(crate) fn run_once(writer: &Mutex<Self>, inner: MutexGuard<'_, Inner>) {
        // Free: the writer had it last for a commit that is over.
        let mut writer = of(writer);
        add(&writer.core.counters.inline_commits, 1);
        writer.settle(inner);
    }

    /// Commits what fits a block and answers everybody; when it was synced, or `None` if the journal has failed.
    fn settle(&mut self, inner: MutexGuard<'_, Inner>) -> Option<Instant> {
        let mut taken = drain(&self.core, inner, std::mem::take(&mut self.room));
        let committed = self.commit(&taken);
        let waiters = taken.queued.drain(..).map(|queued| (queued.stream, queued.waiter));
        let synced_at = match committed {
            Ok((at, outcomes)) => {
                for (stream, waiter) in waiters {
                    let end = outcomes.ends.iter().find(|(id, _)| *id == stream).and_then(|(_, end)| *end);
                    waiter.answer(Ok(Synced { stream, durable_index_end: end, ..outcomes.synced }));
                }
                Some(at)
            }
            Err(failure) => {
                let first = self.core.fail(failure);
                waiters.for_each(|(_, waiter)| waiter.answer(Err(Arc::clone(&first))));
                None
            }
        };
        self.room = taken.queued;
        self.room.shrink_to(ROOM_KEPT);
        synced_at
    }

    /// Writes what was taken as a block, syncs it unless the mode is not to and nobody wants it, and makes it visible.
    fn commit(&mut self, taken: &Taken) -> Result<(Instant, Outcomes), Failure> {
        let bytes = u32::try_from(taken.bytes).expect("a block is at most 16 MiB");
        let room = {
            let inner = self.core.lock();
            let current = inner.files.back().expect("there is always a current file");
            // Only a finished file's rows leave memory: with more in this one, publishes might never be let in again.
            let rows_max = (self.core.config.resident_index_bytes() / ROW_BYTES).max(1);
            let is_next_there = inner.next.is_some() && inner.lacks.is_none();
            let ends_early = is_next_there && current.spans.rows() >= rows_max;
            let end = current.end.checked_add(align_up(bytes)).filter(|end| *end <= current.file_bytes);
            end.is_some() && !ends_early
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
        let syncs = self.core.config.sync == SyncMode::Always
            || taken.queued.iter().any(|queued| matches!(queued.operation, Operation::Sync));
        let write = |source| Failure::Write { path: path.clone(), pos, len: align_up(bytes), source };
        // Without the lock: a block of megabytes must not keep appends waiting.
        let header = self.header(file, 0, taken.frames, bytes as usize);
        self.form(taken, syncs, (file, &*handle), pos).map_err(write)?;
        let formed = Instant::now();
        let padded = self.seal(&header, &*handle, pos).map_err(write)?;
        // Past the page cache the write is what waits for the disk, and counts as the sync.
        let written = if self.core.config.backend == Backend::Direct { formed } else { Instant::now() };
        let mut synced = written;
        if syncs {
            handle.sync().map_err(|source| Failure::Sync { path, source })?;
            synced = Instant::now();
            self.core.counters.synced(synced - written);
            self.durable = Lsn::new(file, pos + padded);
            // 40 bytes a second into the page cache, and otherwise a comparison.
            self.notes.synced(self.durable, synced);
        }
        let ends = self.publish(file, pos, padded, syncs.then_some((taken, synced)));
        let (frames, bytes) = (u32::from(self.draft.frames()), u64::from(padded));
        let stream = StreamId(0); // filled in for each waiter
        let synced_as =
            Synced { stream, durable_index_end: None, taken: taken.at, written, synced, frames, bytes };
        Ok((synced, Outcomes { synced: synced_as, ends }))
    }

    /// The header of the next block; `len` is of header and frames.
    fn header(&mut self, file: FileSeq, prev_end: u32, frames: usize, len: usize) -> BlockHeader {
        let block_seq = self.next_block;
        self.next_block += 1;
        BlockHeader {
            flags: std::mem::take(&mut self.flags),
            frames: u16::try_from(frames).expect("frames are counted before they are taken"),
            body_len: u32::try_from(len - BLOCK_HEADER_BYTES).expect("a block is at most 16 MiB"),
            block_seq,
            file,
            durable: self.durable,
            ts_ms: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
            prev_end,
            // Known when it is whole.
            is_guarded: false,
        }
    }

    /// Forms the block's frames, and gives the disk pieces of them meanwhile if a sync is to follow. Past the
    /// page cache each write waits for the disk, so that there is one.
    fn form(
        &mut self,
        taken: &Taken,
        syncs: bool,
        file: (FileSeq, &dyn DiskFile),
        pos: u32,
    ) -> std::io::Result<()> {
        let in_pieces = syncs && self.core.config.backend != Backend::Direct;
        let piece = self.core.config.write_piece_bytes as usize;
        let draft = &mut self.draft;
        draft.clear();
        for Queued { stream, operation, .. } in &taken.queued {
            match operation {
                Operation::Append { entries, first_row } => {
                    for (entry, row) in entries.iter().zip(*first_row..) {
                        let at = LogPosition { term: entry.term, leader: entry.leader, index: entry.index };
                        draft.put(*stream, FrameKind::Entry(entry.kind), at, row, &entry.payload);
                        if in_pieces {
                            draft.give(piece, file, pos)?;
                        }
                    }
                }
                Operation::Fact { kind, at, payload } => draft.put(*stream, *kind, *at, 0, payload),
                Operation::Sync => {}
            }
        }
        for fact in &taken.facts {
            draft.put(fact.stream, fact.kind, fact.at, 0, &fact.payload);
        }
        Ok(())
    }

    /// Finishes the block and writes it, or what the disk does not have of it. Returns its bytes with padding.
    fn seal(&mut self, header: &BlockHeader, file: &dyn DiskFile, pos: u32) -> std::io::Result<u32> {
        let padded = self.draft.finish(header, file, pos)?;
        let counters = &self.core.counters;
        add(&counters.blocks, 1);
        add(&counters.frames, u64::from(header.frames));
        add(&counters.bytes, u64::from(padded));
        add(&counters.padding_bytes, u64::from(padded) - header.len() as u64);
        Ok(padded)
    }

    /// Makes the commit visible: rows get their place, the file its end, streams their durable end.
    fn publish(
        &self,
        file: FileSeq,
        pos: u32,
        padded: u32,
        synced: Option<(&Taken, Instant)>,
    ) -> Vec<(StreamId, Option<u64>)> {
        let mut guard = self.core.lock();
        let inner = &mut *guard;
        let current = inner.files.back_mut().expect("there is always a current file");
        current.end = pos + padded;
        current.holds_blocks |= self.draft.is_guarded();
        for run in self.draft.placed.chunk_by(|a, b| a.stream == b.stream) {
            let stream = run[0].stream;
            // A truncation among them may have brought the indexes back.
            let indexes = || run.iter().map(|placed| placed.index);
            let (least, most) = (indexes().min().unwrap_or(0), indexes().max().unwrap_or(0));
            current.spans.add(stream, least..most + 1);
            let Some(state) = inner.streams.get_mut(&stream) else { continue };
            for Placed { index, row: id, pos: at, len, .. } in run {
                let location = Location { file, pos: pos + at, len: *len };
                if let Some(row) = state.index.row_mut(*index).filter(|row| row.id == *id) {
                    row.at = Some(location);
                    inner.recent.push_back((stream, *index, *id));
                    state.durable_end = state.durable_end.max(index + 1);
                }
            }
        }
        for run in self.draft.facts.chunk_by(|a, b| a.0 == b.0) {
            let stream = run[0].0;
            let Some(state) = inner.streams.get_mut(&stream) else { continue };
            for (_, kind, at) in run {
                match kind {
                    FrameKind::Entry(_) => state.written_end = at.index + 1,
                    FrameKind::Truncate => state.written_end = at.index,
                    // Files are freed by what is purged, and that must not be forgotten when they are gone.
                    FrameKind::Purge => {
                        inner.unsynced_purges.insert(stream, at.index);
                    }
                    _ => {}
                }
            }
        }
        if let Some((taken, synced)) = synced {
            inner.pace.committed(taken.at, synced, is_lone(&taken.queued) && inner.queue.is_empty());
            if inner.purges_are_durable() {
                self.core.files_changed.notify_all();
            }
        }
        inner.forget_recent(self.core.config.recent_bytes_max, self.draft.placed.len() as u64);
        self.core.counters.memory_bytes.store(inner.recent_bytes, std::sync::atomic::Ordering::Relaxed);
        let ends =
            |stream: &Stream| (stream.durable_end > stream.index.first()).then_some(stream.durable_end);
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
        // Opened when it was prepared: a rotation opens nothing, so it cannot fail for want of a descriptor.
        let handle = Arc::clone(&next.writing);
        self.draft.clear();
        self.restate();
        self.flags |= FLAG_FILE_HEAD;
        let header = self.header(next.seq, old_end, usize::from(self.draft.frames()), self.draft.len());
        let write = |source| {
            let len = align_up(u32::try_from(header.len()).expect("a block is at most 16 MiB"));
            Failure::Write { path: next.path.clone(), pos: FILE_HEADER_BYTES, len, source }
        };
        let len = self.seal(&header, &*handle, FILE_HEADER_BYTES).map_err(write)?;
        // Before the files behind may go: what is restated here is nowhere else then. Past the page cache it
        // is durable.
        handle.sync().map_err(|source| Failure::Sync { path: next.path.clone(), source })?;
        core.lock().files.push_back(LiveFile {
            seq: next.seq,
            handle,
            path: next.path,
            file_bytes: next.file_bytes,
            end: FILE_HEADER_BYTES + len,
            spans: FileSpans::default(),
            holds_blocks: self.draft.is_guarded(),
            sidecar: None,
        });
        add(&core.counters.rotations, 1);
        // The old file can have its sidecar now: every entry in it has its place, and is durable.
        core.files_changed.notify_all();
        Ok(())
    }

    /// The newest facts of every stream, as the head block of a file.
    fn restate(&mut self) {
        let core = Arc::clone(&self.core);
        let mut guard = core.lock();
        let inner = &mut *guard;
        for (id, stream) in &mut inner.streams {
            if let Some(vote) = stream.vote.clone() {
                self.draft.put(*id, FrameKind::Vote, NOWHERE, 0, &vote);
            }
            if let Some(purged) = stream.purged {
                self.draft.put(*id, FrameKind::Purge, purged, 0, &[]);
            }
            if let Some(committed) = stream.committed {
                self.draft.put(*id, FrameKind::Committed, committed, 0, &[]);
            }
            if let Some(meta) = stream.meta.clone() {
                self.draft.put(*id, FrameKind::Meta, NOWHERE, 0, &meta);
            }
            // Only what earlier files hold: entries that still wait are in blocks to come.
            let end = LogPosition { index: stream.written_end, ..NOWHERE };
            self.draft.put(*id, FrameKind::End, end, 0, &[]);
        }
    }

    /// Waits for the file keeper to have the next file ready.
    fn next_file(&self) -> Result<NextFile, Failure> {
        let mut inner = self.core.lock();
        let mut waited = false;
        loop {
            if let Some(next) = inner.next.take() {
                inner.file_wanted = false;
                self.core.files_changed.notify_all();
                return Ok(next);
            }
            // The file keeper failed (its reason is kept), or it will not come any more.
            if self.core.failure().is_some() || (inner.closing && inner.lacks.is_some()) {
                return Err(Failure::Closed);
            }
            if !std::mem::replace(&mut waited, true) {
                add(&self.core.counters.file_waits, 1);
                inner.file_wanted = true;
                self.core.files_changed.notify_all();
            }
            inner = self.core.files_changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

const NOWHERE: LogPosition = LogPosition { term: 0, leader: 0, index: 0 };
