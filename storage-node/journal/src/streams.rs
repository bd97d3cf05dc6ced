//! What the journal knows of its streams: where every live entry lies, and the newest facts.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;

use crate::entry::{Entry, EntryKind, FileSeq, Location, LogPosition, StreamId};
use crate::error::ReadError;

/// Memory that one entry takes in the index, its share of the ring buffer included.
pub(crate) const ROW_BYTES: u64 = size_of::<Row>() as u64;

/// Where an entry is.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) kind: EntryKind,
    pub(crate) term: u64,
    pub(crate) leader: u64,
    /// Names this very entry: one that was truncated and replaced has another.
    pub(crate) id: u64,
    /// On disk since its commit; `None` while it waits for the writer.
    pub(crate) at: Option<Location>,
    /// In memory while in flight and while recent.
    pub(crate) payload: Option<Bytes>,
}

impl Row {
    /// An entry found on disk.
    pub(crate) fn on_disk(kind: EntryKind, at: LogPosition, location: Location) -> Self {
        Self { kind, term: at.term, leader: at.leader, id: 0, at: Some(location), payload: None }
    }
}

/// One stream. `first ≤ durable_end ≤ first + rows.len()` unless a truncation is on its way.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) first: u64,
    pub(crate) rows: VecDeque<Row>,
    pub(crate) durable_end: u64,
    /// Where the stream ends by the blocks that were written: truncations that still wait are not in it.
    pub(crate) written_end: u64,
    pub(crate) vote: Option<Bytes>,
    pub(crate) committed: Option<LogPosition>,
    pub(crate) purged: Option<LogPosition>,
    pub(crate) meta: Option<Bytes>,
    /// Purge point that a synced block states: files may go only up to here.
    pub(crate) durable_purged: Option<u64>,
    /// Lazy facts that the next block shall state.
    pub(crate) dirty_committed: bool,
    pub(crate) dirty_purged: bool,
    pub(crate) dirty_meta: bool,
}

impl Stream {
    pub(crate) fn end(&self) -> u64 {
        self.first + self.rows.len() as u64
    }

    pub(crate) fn row(&self, index: u64) -> Option<&Row> {
        self.rows.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    pub(crate) fn row_mut(&mut self, index: u64) -> Option<&mut Row> {
        self.rows.get_mut(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    /// Removes entries from `end` on; returns the memory their payloads held.
    pub(crate) fn truncate(&mut self, end: u64) -> u64 {
        let keep = usize::try_from(end.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let mut freed = 0;
        while self.rows.len() > keep {
            freed +=
                self.rows.pop_back().and_then(|row| row.payload).map_or(0, |payload| payload.len() as u64);
        }
        self.durable_end = self.durable_end.min(self.end());
        freed
    }

    /// Removes entries up to and including `purged.index`; returns the memory their payloads held.
    pub(crate) fn purge(&mut self, purged: LogPosition) -> u64 {
        let (mut freed, first) = (0, purged.index + 1);
        while self.first < first {
            match self.rows.pop_front() {
                Some(row) => freed += row.payload.map_or(0, |payload| payload.len() as u64),
                None => self.first = first - 1,
            }
            self.first += 1;
        }
        self.durable_end = self.durable_end.max(self.first);
        self.written_end = self.written_end.max(self.first);
        self.purged = Some(purged);
        freed
    }

    /// Entries on disk or in memory of `range`, as plans to read them without holding the lock.
    pub(crate) fn plan(
        &self,
        stream: StreamId,
        range: Range<u64>,
        max_bytes: usize,
    ) -> Result<Vec<Plan>, ReadError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        if range.start < self.first {
            return Err(ReadError::Purged { stream, first: self.first });
        }
        if range.start >= self.end() {
            return Err(ReadError::BeyondEnd { stream, index: range.start, end: self.end() });
        }
        let (mut plans, mut total) = (Vec::new(), 0);
        for index in range.start..range.end.min(self.end()) {
            let row = self.row(index).expect("the index lies between first and end");
            let len = row.payload.as_ref().map_or_else(|| row.at.map_or(0, |at| at.len as usize), Bytes::len);
            if !plans.is_empty() && total + len > max_bytes {
                break;
            }
            total += len;
            plans.push(Plan { index, row: row.clone() });
        }
        Ok(plans)
    }
}

/// An entry that is about to be read.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) index: u64,
    pub(crate) row: Row,
}

impl Plan {
    /// The entry, once its payload is at hand.
    pub(crate) fn entry(self, payload: Bytes) -> Entry {
        let Row { kind, term, leader, .. } = self.row;
        Entry { kind, term, leader, index: self.index, payload }
    }
}

/// Highest entry index of each stream in one file: the file may go when all of them are purged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileSpans(pub(crate) BTreeMap<StreamId, Range<u64>>);

impl FileSpans {
    /// Adds the entries of `stream` with these indexes.
    pub(crate) fn add(&mut self, stream: StreamId, indexes: Range<u64>) {
        let span = self.0.entry(stream).or_insert_with(|| indexes.clone());
        span.start = span.start.min(indexes.start);
        span.end = span.end.max(indexes.end);
    }
}

/// A journal file that holds blocks.
#[derive(Debug)]
pub(crate) struct LiveFile {
    pub(crate) seq: FileSeq,
    pub(crate) handle: std::sync::Arc<dyn crate::disk::DiskFile>,
    pub(crate) path: std::path::PathBuf,
    pub(crate) file_bytes: u32,
    /// Where its blocks end.
    pub(crate) end: u32,
    pub(crate) spans: FileSpans,
    pub(crate) sidecar: bool,
}
