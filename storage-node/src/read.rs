//! Reading a partition: where to start, and the batches that follow.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;
use weir_journal::ReadError;
use weir_protocol::batch::Batch;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Offset, TimestampMs};
use weir_protocol::rpc::{At, Position, Refusal, Slice};

use crate::replica::ShardHandle;
use crate::shard::state::{BatchRow, Partition, PartitionKey};

/// Bytes of log that one step of a read may load.
const STEP_BYTES_MAX: usize = 4 << 20;

/// A partition that can be read.
pub struct Reader {
    shard: ShardHandle,
    key: PartitionKey,
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
}

/// Batches that were read.
#[derive(Debug, Default)]
pub struct ReadBatches {
    /// Which records of each batch are meant.
    pub slices: Vec<Slice>,
    /// The batches: a stamped header and the shared body each.
    pub payload: Vec<Bytes>,
    /// Records.
    pub records: u64,
    /// Encoded bytes of the batches.
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
        Ok(bounds(partition))
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
            return Err(Refusal {
                earliest: Some(start.0),
                ..Refusal::new(ErrorCode::OffsetTrimmed, detail)
            });
        }
        if offset > end {
            let detail = format!("offset {offset} is beyond the end, {end}");
            return Err(Refusal { tail: Some(end.0), ..Refusal::new(ErrorCode::BeyondTail, detail) });
        }
        Ok(offset)
    }

    /// Reads from `from` on, until `max_records` or `max_bytes`; at least one record if there is one. Whole batches
    /// are returned; their slices say which records are meant.
    ///
    /// # Errors
    /// `corrupt`, `offset_trimmed` if retention was faster, `incarnation_gone`.
    pub async fn read(&self, from: Offset, max_records: u64, max_bytes: u64) -> Result<ReadBatches, Refusal> {
        let rows = self.rows(from, max_records, max_bytes)?;
        let mut read = ReadBatches { next: from, ..ReadBatches::default() };
        let mut entry: Option<(u64, Bytes)> = None;
        for row in rows {
            let payload = match &entry {
                Some((index, payload)) if *index == row.index.0 => payload.clone(),
                _ => self.load(row.index.0).await?,
            };
            let body = payload.slice(row.pos as usize..(row.pos + row.len) as usize);
            entry = Some((row.index.0, payload));
            // The entry was checked when it was read from disk; this reads the header.
            let batch =
                Batch::parse(body).map_err(|error| Refusal::new(ErrorCode::Corrupt, error.to_string()))?;
            let first = from.max(row.base_offset);
            let take = (row.end().0 - first.0).min(max_records - read.records);
            read.slices.push(Slice {
                first: first.0,
                take: u32::try_from(take).unwrap_or(u32::MAX),
                batch_bytes: row.len,
            });
            read.payload.extend(batch.placed(row.base_offset, row.ts, self.key.1));
            read.records += take;
            read.bytes += u64::from(row.len);
            read.next = first.plus(take);
        }
        Ok(read)
    }

    fn rows(&self, from: Offset, max_records: u64, max_bytes: u64) -> Result<Vec<BatchRow>, Refusal> {
        let state = self.shard.state.read();
        let partition = state.partition(self.key)?;
        let (mut rows, mut records, mut bytes) = (Vec::new(), 0, 0);
        for row in partition.batches_from(from) {
            let len = u64::from(row.len);
            if records >= max_records
                || (!rows.is_empty() && bytes + len > max_bytes.min(STEP_BYTES_MAX as u64))
            {
                break;
            }
            records += row.end().0 - from.max(row.base_offset).0;
            bytes += len;
            rows.push(row);
        }
        Ok(rows)
    }

    /// An entry's payload: from memory while it is recent, else from disk, off the runtime's threads.
    async fn load(&self, index: u64) -> Result<Bytes, Refusal> {
        let (journal, stream) = (self.shard.journal.clone(), self.shard.stream());
        let read =
            tokio::task::spawn_blocking(move || journal.read_entries(stream, index..index + 1, 0)).await;
        let entries = read.map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))?;
        let entries = entries.map_err(|error| match error {
            ReadError::Purged { .. } | ReadError::Recycled { .. } => {
                Refusal::new(ErrorCode::OffsetTrimmed, "removed by retention while it was read")
            }
            other => Refusal::new(ErrorCode::Corrupt, other.to_string()),
        })?;
        let entry = entries.into_iter().next();
        entry
            .map(|entry| entry.payload)
            .ok_or_else(|| Refusal::new(ErrorCode::Internal, "the entry is not there"))
    }
}

fn bounds(partition: &Partition) -> Bounds {
    Bounds { start: partition.start, end: partition.end, closed: partition.config.closed }
}
