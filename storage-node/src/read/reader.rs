//! Reading a partition: where to start, and the batches that follow.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::Notify;
use weir_journal::{Journal, ReadError, StreamId};
use weir_protocol::batch::Batch;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{LogIndex, Offset, PartitionId, TimestampMs};
use weir_protocol::rpc::{At, Position, Refusal, Slice};

use crate::replica::ShardHandle;
use crate::shard::state::{BatchRow, Partition, PartitionKey};

/// Stored bytes that one step of a read loads at most, but for a single larger batch.
const STEP_BYTES_MAX: u64 = 3 << 20;
/// A batch that is a smaller part of its entry than this is read alone.
const PART_OF_ENTRY: u32 = 4;

/// A partition that can be read.
pub struct Reader {
    pub(super) shard: ShardHandle,
    pub(super) key: PartitionKey,
    /// Wakes when there may be more.
    pub changed: Arc<Notify>,
}

/// Where a partition stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Oldest record.
    pub start: Offset,
    /// One past the newest.
    pub end: Offset,
    /// Nothing will follow.
    pub closed: bool,
    /// Term in which the shard applied last.
    pub term: u64,
}

/// What may be read: no more than `records`, and no further record once `bytes` are used up. So one record may
/// overshoot, and a record larger than any limit still gets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Records.
    pub records: u64,
    /// Encoded record bytes, uncompressed.
    pub bytes: u64,
}

/// Batches that were read.
#[derive(Debug, Default)]
pub struct ReadBatches {
    /// Which records of each batch are meant.
    pub slices: Vec<Slice>,
    /// The batches: a stamped header and the shared body each.
    pub payload: Vec<Bytes>,
    /// The same with nothing stamped, and what would be.
    pub batches: Vec<(BatchRow, Batch)>,
    /// Records that are meant.
    pub records: u64,
    /// Encoded bytes of these records, uncompressed: what credit counts.
    pub bytes: u64,
    /// Where to read on.
    pub next: Offset,
}

impl Reader {
    /// A reader of `key`; it need not exist.
    #[must_use]
    pub fn new(shard: ShardHandle, key: PartitionKey) -> Self {
        let changed = shard.shared.watch(key);
        Self { shard, key, changed }
    }

    /// Where the partition stands now.
    ///
    /// # Errors
    /// `incarnation_gone`.
    pub fn bounds(&self) -> Result<Bounds, Refusal> {
        let state = self.shard.state.read();
        let partition = state.partition(self.key)?;
        Ok(bounds(partition, self.shard.shared.term()))
    }

    /// Counts that a reader was told to forget what it was sent before it was committed.
    pub fn retracted(&self) {
        self.shard.shared.metrics().retracted();
    }

    /// The offset that a position means. `clamp` moves what lies outside to the nearest that exists.
    ///
    /// # Errors
    /// `offset_trimmed`, `beyond_tail`, `incarnation_gone`.
    pub fn resolve(&self, position: Position, clamp: bool) -> Result<Offset, Refusal> {
        let state = self.shard.state.read();
        let partition = state.partition(self.key)?;
        let (start, end) = (partition.start, partition.end);
        let offset = match position.at.unwrap_or(At::Earliest(true)) {
            At::Earliest(_) => start,
            At::Latest(_) => end,
            At::TimestampMs(ts) => partition.offset_at(TimestampMs(ts)),
            At::Tail(n) => Offset(end.0.saturating_sub(n)).max(start),
            At::Offset(offset) => Offset(offset),
        };
        if clamp {
            return Ok(offset.clamp(start, end));
        }
        if offset < start {
            let detail = format!("offset {offset} was removed; the oldest is {start}");
            let refusal = Refusal::new(ErrorCode::OffsetTrimmed, detail);
            return Err(Refusal { earliest: Some(start.0), tail: Some(end.0), ..refusal });
        }
        if offset > end {
            let detail = format!("offset {offset} is beyond the end, {end}");
            let refusal = Refusal::new(ErrorCode::BeyondTail, detail);
            return Err(Refusal { earliest: Some(start.0), tail: Some(end.0), ..refusal });
        }
        Ok(offset)
    }

    /// Reads from `from` on, within the allowance and below `until`; at least one record if there is one and the
    /// allowance is not used up. Whole batches are returned; their slices say which records are meant.
    ///
    /// # Errors
    /// `corrupt`, `offset_trimmed` if retention was faster (the start has moved), `incarnation_gone`.
    ///
    /// # Cancel safety
    /// Nothing is changed by a read.
    pub async fn read(
        &self,
        from: Offset,
        until: Offset,
        allowance: Allowance,
    ) -> Result<ReadBatches, Refusal> {
        let read = self.look(from, until, allowance).await?;
        self.shard.shared.delivered(self.key, read.records, read.bytes, Instant::now());
        Ok(read)
    }

    /// The same for whoever delivers nothing: it does not count as read.
    ///
    /// # Errors
    /// As for [`Reader::read`].
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn look(
        &self,
        from: Offset,
        until: Offset,
        allowance: Allowance,
    ) -> Result<ReadBatches, Refusal> {
        let rows = self.rows(from, until, allowance)?;
        let bodies = self.bodies(&rows).await.map_err(|refusal| self.if_trimmed(from, refusal))?;
        collect(self.key.1, rows.into_iter().zip(bodies), (from, until), allowance)
    }

    /// `refusal`, unless it says that `from` was trimmed and it was not: whoever is told so looks again, and would for
    /// ever.
    fn if_trimmed(&self, from: Offset, refusal: Refusal) -> Refusal {
        if refusal.error_code() != ErrorCode::OffsetTrimmed {
            return refusal;
        }
        match self.bounds() {
            Ok(bounds) if bounds.start <= from => {
                Refusal::new(ErrorCode::Corrupt, format!("offset {from} exists, and its entry is gone"))
            }
            Ok(_) => refusal,
            Err(gone) => gone,
        }
    }

    /// Rows that may be needed; compressed ones may turn out to be more than the allowance.
    fn rows(&self, from: Offset, until: Offset, allowance: Allowance) -> Result<Vec<BatchRow>, Refusal> {
        let state = self.shard.state.read();
        let partition = state.partition(self.key)?;
        let (mut rows, mut records, mut bytes) = (Vec::new(), 0, 0);
        for row in partition.batches_from(from) {
            let is_full = records >= allowance.records || bytes >= allowance.bytes;
            let is_step = !rows.is_empty() && bytes + u64::from(row.len) > STEP_BYTES_MAX;
            if is_full || is_step || row.base_offset >= until {
                break;
            }
            records += row.end().0 - from.max(row.base_offset).0;
            bytes += u64::from(row.len);
            rows.push(row);
        }
        Ok(rows)
    }

    /// The rows' batches, with nothing stamped: from memory, or all that are not there in one visit to the disk.
    async fn bodies(&self, rows: &[BatchRow]) -> Result<Vec<Batch>, Refusal> {
        let hot: Vec<Option<Bytes>> = self.shard.shared.recent(rows);
        let cold: Vec<BatchRow> =
            rows.iter().zip(&hot).filter(|(_, body)| body.is_none()).map(|(row, _)| *row).collect();
        let mut loaded = if cold.is_empty() {
            Vec::new()
        } else {
            let (journal, stream) = (self.shard.journal.clone(), self.shard.stream());
            let load = tokio::task::spawn_blocking(move || load(&journal, stream, &cold)).await;
            load.map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))??
        }
        .into_iter();
        let body = |hot: Option<Bytes>| match hot {
            Some(body) => Batch::from_checked(body).map_err(|error| corrupt(&error)),
            None => Ok(loaded.next().expect("one was loaded for each that is not in memory")),
        };
        hot.into_iter().map(body).collect()
    }
}

pub(super) fn bounds(partition: &Partition, term: u64) -> Bounds {
    Bounds { start: partition.start, end: partition.end, closed: partition.config.closed, term }
}

/// Consecutive batches within an allowance, as a reader gets them.
pub(super) fn collect(
    partition: PartitionId,
    batches: impl Iterator<Item = (BatchRow, Batch)>,
    (from, until): (Offset, Offset),
    allowance: Allowance,
) -> Result<ReadBatches, Refusal> {
    let mut read = ReadBatches { next: from, ..ReadBatches::default() };
    for (row, batch) in batches {
        let first = from.max(row.base_offset);
        let left = Allowance {
            records: (allowance.records - read.records).min(until.0 - first.0),
            bytes: allowance.bytes - read.bytes,
        };
        let part = within(&row, &batch, first, left)?;
        read.slices.push(Slice {
            first: first.0,
            take: u32::try_from(part.records).expect("a batch's records are counted in 32 bits"),
            batch_bytes: row.len,
        });
        read.payload.extend(batch.placed(row.base_offset, row.ts, partition));
        read.batches.push((row, batch));
        read.records += part.records;
        read.bytes += part.bytes;
        read.next = first.plus(part.records);
        if read.records >= allowance.records || read.bytes >= allowance.bytes || read.next < row.end() {
            break;
        }
    }
    Ok(read)
}

pub(super) fn corrupt(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(ErrorCode::Corrupt, error.to_string())
}

/// How many records of `batch` from `first` on the allowance lets through.
fn within(row: &BatchRow, batch: &Batch, first: Offset, left: Allowance) -> Result<Allowance, Refusal> {
    let raw_bytes = u64::from(batch.header().raw_bytes);
    let count = u64::from(row.count);
    if first == row.base_offset && count <= left.records && raw_bytes <= left.bytes {
        return Ok(Allowance { records: count, bytes: raw_bytes });
    }
    let skip = usize::try_from(first.0 - row.base_offset.0).expect("inside a batch");
    let mut taken = Allowance { records: 0, bytes: 0 };
    for record in batch.records().map_err(|error| corrupt(&error))?.skip(skip) {
        let is_first = taken.records == 0;
        if taken.records >= left.records || (taken.bytes >= left.bytes && !is_first) {
            break;
        }
        taken.records += 1;
        taken.bytes += record.map_err(|error| corrupt(&error))?.size as u64;
    }
    Ok(taken)
}

/// A batch, with nothing stamped: from memory or from the disk.
///
/// # Errors
/// `corrupt`, `offset_trimmed`.
pub async fn batch_of(shard: &ShardHandle, row: &BatchRow) -> Result<Batch, Refusal> {
    if let Some(body) = shard.shared.recent(std::slice::from_ref(row)).pop().flatten() {
        return Batch::from_checked(body).map_err(|error| corrupt(&error));
    }
    let (journal, stream, row) = (shard.journal.clone(), shard.stream(), *row);
    let load = tokio::task::spawn_blocking(move || load(&journal, stream, &[row])).await;
    let mut loaded = load.map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))??;
    loaded.pop().ok_or_else(|| Refusal::new(ErrorCode::Internal, "the batch is not there"))
}

/// Reads batches from the journal, each verified by its checksum. Blocking.
fn load(journal: &Journal, stream: StreamId, rows: &[BatchRow]) -> Result<Vec<Batch>, Refusal> {
    let mut entry: Option<(LogIndex, Bytes)> = None;
    let mut batches = Vec::with_capacity(rows.len());
    for (i, row) in rows.iter().enumerate() {
        let within = row.pos as usize..(row.pos + row.len) as usize;
        let shared = rows.get(i + 1).is_some_and(|next| next.index == row.index);
        let body = match &entry {
            Some((index, payload)) if *index == row.index => slice(payload, within)?,
            _ => match read_alone(journal, stream, row, shared)? {
                Some(body) => body,
                None => {
                    let payload = read_entry(journal, stream, row.index)?;
                    let body = slice(&payload, within)?;
                    entry = Some((row.index, payload));
                    body
                }
            },
        };
        batches.push(Batch::parse(body).map_err(|error| corrupt(&error))?);
    }
    Ok(batches)
}

/// A part of an entry, unless a repair put an empty one in its place.
fn slice(payload: &Bytes, within: std::ops::Range<usize>) -> Result<Bytes, Refusal> {
    if within.end <= payload.len() {
        return Ok(payload.slice(within));
    }
    Err(corrupt(&"the entry was lost; a repair put an empty one in its place"))
}

/// The batch without the rest of its entry, if that is worth it.
fn read_alone(
    journal: &Journal,
    stream: StreamId,
    row: &BatchRow,
    shared: bool,
) -> Result<Option<Bytes>, Refusal> {
    match journal.locate(stream, row.index.0) {
        Ok(at) if !shared && row.len < at.len / PART_OF_ENTRY => {
            journal.read_at(at, row.pos..row.pos + row.len).map(Some).map_err(|error| unreadable(&error))
        }
        Ok(_) | Err(ReadError::NotWritten { .. }) => Ok(None),
        Err(error) => Err(unreadable(&error)),
    }
}

fn read_entry(journal: &Journal, stream: StreamId, index: LogIndex) -> Result<Bytes, Refusal> {
    let entries =
        journal.read_entries(stream, index.0..index.0 + 1, 0).map_err(|error| unreadable(&error))?;
    let entry = entries.into_iter().next();
    entry
        .map(|entry| entry.payload)
        .ok_or_else(|| Refusal::new(ErrorCode::Internal, "the entry is not there"))
}

fn unreadable(error: &ReadError) -> Refusal {
    match error {
        ReadError::Purged { .. } | ReadError::Recycled { .. } => {
            Refusal::new(ErrorCode::OffsetTrimmed, "removed by retention while it was read")
        }
        other => corrupt(other),
    }
}
