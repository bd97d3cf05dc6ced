//! The handle that everybody holds.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::completion::{Completion, Waiter};
use crate::config::JournalConfig;
use crate::disk::Disk;
use crate::entry::{Entry, FileSeq, Location, LogPosition, StreamId};
use crate::error::{AppendError, Failure, Full, OpenError, ReadError, SealedError};
use crate::metrics::Metrics;
use crate::recovered::Recovered;
use crate::space::{Class, Permit, Usage};

/// Handle of an open journal; clones share it. The journal is closed when the last clone is dropped: what was
/// queued is written and synced first.
#[derive(Debug, Clone)]
pub struct Journal {
    config: Arc<JournalConfig>,
}

/// A finished file, told to the rotation listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotated {
    /// The file that is finished and durable: the one to write a sidecar for.
    pub file: FileSeq,
    /// Indexes of the live entries in it, per stream.
    pub entries: Vec<(StreamId, Range<u64>)>,
}

/// A synced entry read by [`Tail`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailEntry {
    /// The entry.
    pub entry: Entry,
    /// Where its payload lies.
    pub location: Location,
}

/// Follows one stream across files and rotations, synced entries only.
#[derive(Debug)]
pub struct Tail {
    journal: Journal,
    stream: StreamId,
    next: u64,
}

impl Journal {
    /// Opens the journal in `config.dir`, or makes it, and recovers what it holds.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing was changed.
    pub fn open(config: JournalConfig, _disk: Arc<dyn Disk>) -> Result<(Self, Recovered), OpenError> {
        config.check()?;
        Ok((Self { config: Arc::new(config) }, Recovered::default()))
    }

    /// Queues entries that continue `stream`. On return they can be read; `done` is called when they are durable.
    ///
    /// # Errors
    /// See [`AppendError`]; then nothing was queued and `done` is answered with [`Failure::Closed`] as it drops.
    pub fn append(
        &self,
        _stream: StreamId,
        _entries: Vec<Entry>,
        done: Completion,
    ) -> Result<(), AppendError> {
        drop(Waiter::new(done));
        Err(Arc::new(Failure::Closed).into())
    }

    /// Queues the newest vote of `stream`; at most 4 KiB. Written and synced with the next commit.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn save_vote(&self, _stream: StreamId, _vote: Bytes, done: Completion) -> Result<(), AppendError> {
        drop(Waiter::new(done));
        Err(Arc::new(Failure::Closed).into())
    }

    /// Removes all entries after `after` (all of them for `None`). They cannot be read any more on return; `done` is
    /// called when that is durable.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn truncate_after(
        &self,
        _stream: StreamId,
        _after: Option<u64>,
        done: Completion,
    ) -> Result<(), AppendError> {
        drop(Waiter::new(done));
        Err(Arc::new(Failure::Closed).into())
    }

    /// Notes the commit position. Lazy: rides in the next commit, causes none.
    pub fn note_committed(&self, _stream: StreamId, _committed: LogPosition) {}

    /// Removes all entries up to and including `purged.index`; a purge beyond the end leaves an empty stream that
    /// goes on at `purged.index + 1`. Lazy: readers see it at once, the disk with the next commit.
    pub fn note_purged(&self, _stream: StreamId, _purged: LogPosition) {}

    /// Notes metadata, at most 4 KiB. Lazy: rides in the next commit, causes none.
    pub fn note_meta(&self, _stream: StreamId, _meta: Bytes) {}

    /// Reads entries from `range.start` on, at most `range.end`, until `max_bytes` of payload are collected; at least
    /// one entry unless the range is empty. Blocking; entries in flight come from memory.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_entries(
        &self,
        _stream: StreamId,
        _range: Range<u64>,
        _max_bytes: usize,
    ) -> Result<Vec<Entry>, ReadError> {
        Ok(Vec::new())
    }

    /// Where the payload of a synced entry lies.
    ///
    /// # Errors
    /// [`ReadError::NotWritten`] while it is in flight; see [`ReadError`].
    pub fn locate(&self, stream: StreamId, index: u64) -> Result<Location, ReadError> {
        Err(ReadError::NotWritten { stream, index })
    }

    /// Reads bytes `part` of a payload. A read of the whole payload is checked against its CRC; of a part, the caller
    /// checks what it knows.
    ///
    /// # Errors
    /// [`ReadError::Recycled`] when the file is gone; see [`ReadError`].
    pub fn read_at(&self, location: Location, _part: Range<u32>) -> Result<Bytes, ReadError> {
        Err(ReadError::Recycled { file: location.file })
    }

    /// Follows `stream` from the entry `from` on.
    #[must_use]
    pub fn tail(&self, stream: StreamId, from: u64) -> Tail {
        Tail { journal: self.clone(), stream, next: from }
    }

    /// Promises room for an append of `bytes` of payload, or refuses before anything is queued.
    ///
    /// # Errors
    /// See [`Full`]; it ends by itself.
    pub fn try_admit(&self, _bytes: u64, _class: Class) -> Result<Permit, Full> {
        Err(Full::Disk { free: 0 })
    }

    /// How full the journal is, and what pins each file.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::default()
    }

    /// Writes the sidecar of a rotated file: rows that are opaque here. Durable on return.
    ///
    /// # Errors
    /// See [`SealedError`].
    pub fn write_sidecar(&self, file: FileSeq, _rows: &[u8]) -> Result<(), SealedError> {
        Err(SealedError::NotRotated { file })
    }

    /// Reads the sidecar of a file; `None` if none was written.
    ///
    /// # Errors
    /// See [`SealedError`]; a damaged one is never `None`.
    pub fn read_sidecar(&self, _file: FileSeq) -> Result<Option<Bytes>, SealedError> {
        Ok(None)
    }

    /// Calls `listener` from the writer thread after each rotation; it must be short. Replaces an earlier one.
    pub fn on_rotation(&self, _listener: Box<dyn Fn(Rotated) + Send + Sync>) {}

    /// The failure that stopped the journal, if one did.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<Failure>> {
        None
    }

    /// Counters since open.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::default()
    }

    /// The settings it was opened with.
    #[must_use]
    pub fn config(&self) -> &JournalConfig {
        &self.config
    }
}

impl Tail {
    /// The next synced entries, at most `max_bytes` of payload but at least one; empty at the durable end.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn next(&mut self, max_bytes: usize) -> Result<Vec<TailEntry>, ReadError> {
        let entries = self.journal.read_entries(self.stream, self.next..self.next, max_bytes)?;
        debug_assert!(entries.is_empty());
        Ok(Vec::new())
    }
}
