//! What the journal knows of its streams: where every live entry lies, and the newest facts.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use crate::entry::{Entry, FileSeq, Location, LogPosition, StreamId};
use crate::error::ReadError;
use crate::index::{EntryIndex, Freed};
use crate::sidecar::Sidecar;

/// One stream. `index.first() ≤ durable_end ≤ index.end()` unless a truncation is on its way.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) index: EntryIndex,
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
    /// Removes entries from `end` on.
    pub(crate) fn truncate(&mut self, end: u64) -> Freed {
        let freed = self.index.truncate(end);
        self.durable_end = self.durable_end.min(self.index.end());
        freed
    }

    /// Removes entries up to and including `purged.index`.
    pub(crate) fn purge(&mut self, purged: LogPosition) -> Freed {
        let freed = self.index.purge(purged.index + 1);
        self.durable_end = self.durable_end.max(self.index.first());
        self.written_end = self.written_end.max(self.index.first());
        self.purged = Some(purged);
        freed
    }

    /// `index`, if the stream has it.
    pub(crate) fn live(&self, stream: StreamId, index: u64) -> Result<u64, ReadError> {
        let (first, end) = (self.index.first(), self.index.end());
        if index < first {
            return Err(ReadError::Purged { stream, first });
        }
        if index >= end {
            return Err(ReadError::BeyondEnd { stream, index, end });
        }
        Ok(index)
    }

    /// Entries of `range`, at least the first, as plans to read them without holding the lock.
    pub(crate) fn plan(
        &self,
        stream: StreamId,
        range: Range<u64>,
        max_bytes: usize,
    ) -> Result<Planned, ReadError> {
        let start = self.live(stream, range.start)?;
        if let Some((file, evicted)) = self.index.evicted(start) {
            return Ok(Planned::Evicted { file, range: start..range.end.min(evicted.end) });
        }
        let (mut plans, mut total) = (Vec::new(), 0);
        for index in start..range.end.min(self.index.end()) {
            let row = self.index.row(index).expect("the index lies between resident_start and end");
            let len = row.payload.as_ref().map_or_else(|| row.at.map_or(0, |at| at.len as usize), Bytes::len);
            if !plans.is_empty() && total + len > max_bytes {
                break;
            }
            total += len;
            plans.push(match (&row.payload, row.at) {
                (Some(payload), _) => {
                    let (kind, term, leader, payload) = (row.kind, row.term, row.leader, payload.clone());
                    Plan::InMemory(Entry { kind, term, leader, index, payload })
                }
                (None, at) => Plan::OnDisk(index, at.expect("an entry is in memory until it is on disk")),
            });
        }
        Ok(Planned::Rows(plans))
    }
}

/// Takes up to `rows_max` rows out of memory, those of the oldest files first, of files whose sidecar has them.
pub(crate) fn evict(
    streams: &mut BTreeMap<StreamId, Stream>,
    has_sidecar: impl Fn(FileSeq) -> bool,
    rows_max: u64,
) -> Freed {
    let mut freed = Freed::default();
    while freed.rows < rows_max {
        let evictable =
            |stream: &Stream| stream.index.oldest_resident_file().filter(|file| has_sidecar(*file));
        let with_file = streams.values_mut().filter_map(|stream| Some((evictable(stream)?, stream)));
        let Some((file, stream)) = with_file.min_by_key(|(file, _)| *file) else { break };
        freed += stream.index.evict(file, rows_max - freed.rows);
    }
    freed
}

/// How entries are read.
#[derive(Debug)]
pub(crate) enum Planned {
    Rows(Vec<Plan>),
    /// The sidecar of `file` says where these lie.
    Evicted {
        file: FileSeq,
        range: Range<u64>,
    },
}

/// An entry that is about to be read.
#[derive(Debug)]
pub(crate) enum Plan {
    InMemory(Entry),
    OnDisk(u64, Location),
}

impl Plan {
    /// Where its payload lies, unless it is in memory.
    pub(crate) fn place(&self) -> Option<Location> {
        match self {
            Self::InMemory(_) => None,
            Self::OnDisk(_, at) => Some(*at),
        }
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

    /// Entries of all streams, about: more if some were truncated.
    pub(crate) fn rows(&self) -> u64 {
        self.0.values().map(|indexes| indexes.end - indexes.start).sum()
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
    /// A message in it would be a block in this file or a later one: it is not used again.
    pub(crate) holds_blocks: bool,
    /// Once it is finished: says where the entries in it lie.
    pub(crate) sidecar: Option<Sidecar>,
}
