//! Reading a partition: where to start, and the batches that follow.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_protocol::batch::{Batch, BatchError, HEADER_BYTES};
use weir_protocol::error::ErrorCode;
use weir_protocol::frame::BODY_BYTES_MAX;
use weir_protocol::ids::{Offset, PartitionId, TimestampMs};
use weir_protocol::limits::BATCH_BYTES_MAX;
use weir_protocol::rpc::{At, Position, Refusal, Slice};
use weir_tier::cold::Ahead;

use super::ahead::Sequence;
use super::allowance::Allowance;
use super::bodies;
use super::log::corrupt;
use crate::metrics::SubscriptionGuard;
use crate::replica::ShardHandle;
use crate::shard::state::{BatchRow, Partition, PartitionKey};

/// Stored bytes that one step of a read loads at most, but for a single larger batch.
const STEP_BYTES_MAX: u64 = 3 << 20;
/// Offsets that one step passes over at most where the one before found nothing, but for a single larger batch.
const HOLE_OFFSETS_MAX: u64 = 32_768;

/// Runs of records between holes that one read gives: each has a header of its own, which no allowance counts.
const RUNS_MAX: usize = 2_048;

/// With more than this no further batch is taken where parts of batches are: they are not compressed as those
/// were, and each has its header, so that a frame holds what one more may add.
const PARTS_PAYLOAD_BYTES: usize = 384 << 10;

const _: () = assert!(
    PARTS_PAYLOAD_BYTES + BATCH_BYTES_MAX + RUNS_MAX * (HEADER_BYTES + 16) + (256 << 10) < BODY_BYTES_MAX,
    "a frame holds an answer"
);

/// Reads that pass over dropped records before somebody is told how far they came.
const PASS_STEPS_MAX: usize = 64;

/// A partition that can be read.
pub struct Reader {
    pub(super) shard: ShardHandle,
    pub(super) key: PartitionKey,
    /// Reads that follow each other.
    pub(super) sequence: Mutex<Sequence>,
    /// Where the last read ended, if all that it looked at was dropped by compaction.
    hole_end: AtomicU64,
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
    /// The topic is closed: nothing follows unless it is opened again.
    pub closed: bool,
    /// Below it records may have been dropped by compaction.
    pub compacted_to: Offset,
    /// Term in which the shard applied last.
    pub term: u64,
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

impl ReadBatches {
    /// Offsets from `from` on, where this was read from, that have no record any more.
    pub fn holes(&self, from: Offset) -> impl Iterator<Item = Range<Offset>> {
        let starts = std::iter::once(from).chain(self.slices.iter().map(end));
        let ends = self.slices.iter().map(|slice| Offset(slice.first)).chain([self.next]);
        starts.zip(ends).map(|(start, end)| start..end).filter(|hole| !hole.is_empty())
    }

    /// What was read behind this.
    pub fn append(&mut self, more: Self) {
        self.slices.extend(more.slices);
        self.payload.extend(more.payload);
        self.batches.extend(more.batches);
        self.records += more.records;
        self.bytes += more.bytes;
        self.next = more.next;
    }
}

impl Reader {
    /// A reader of `key`; it need not exist.
    #[must_use]
    pub fn new(shard: ShardHandle, key: PartitionKey) -> Self {
        let changed = shard.shared.watch(key);
        Self { shard, key, sequence: Mutex::default(), hole_end: AtomicU64::new(u64::MAX), changed }
    }

    /// Whoever reads may be given this much from here on, in one read or in several: what lies behind it is
    /// not read ahead. Until it is said there is no such limit.
    pub fn may_give(&self, credit: Allowance) {
        self.sequence.lock().grant(credit);
    }

    /// Of what was read last only so many records are of use to whoever reads.
    pub fn used(&self, read: &ReadBatches, records: u64) {
        let bytes = u128::from(read.bytes) * u128::from(records) / u128::from(read.records.max(1));
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.sequence.lock().gave(Allowance { records, bytes });
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

    /// Counts a subscription for as long as the guard lives.
    #[must_use]
    pub fn counted(&self) -> SubscriptionGuard {
        self.shard.shared.metrics().subscription()
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

    /// Reads from `from` on, within the allowance and below `until`; at least one record if there is one and
    /// the allowance is not used up. Whole batches are returned; their slices say which records are meant.
    /// Where records were dropped by compaction there may be none, and `next` says how far they are.
    ///
    /// # Errors
    /// `corrupt`, `offset_trimmed` if retention was faster (the start has moved): what it left is not told as
    /// if it followed; `incarnation_gone`.
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
        let is_tiered = self.shard.tier.is_some();
        let ahead = if is_tiered { self.sequence.lock().ahead(from, &rows) } else { Ahead::NONE };
        let bodies = bodies::of(&self.shard, self.key, &rows, ahead).await;
        let bodies = bodies.map_err(|refusal| self.means(from, refusal))?;
        let read = collect(self.key.1, rows.iter().copied().zip(bodies), (from, until), allowance)?;
        if is_tiered {
            let given = Allowance { records: read.records, bytes: read.bytes };
            self.sequence.lock().read(from..read.next, &rows, given);
        }
        let found_nothing = read.records == 0 && read.next > from;
        self.hole_end.store(if found_nothing { read.next.0 } else { u64::MAX }, Ordering::Relaxed);
        Ok(read)
    }

    /// The first offset from `from` on that has a record, the end, or, where much was dropped, one up to
    /// which there is none.
    ///
    /// # Errors
    /// As for [`Reader::read`].
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn next_there(&self, from: Offset) -> Result<Offset, Refusal> {
        let mut next = from;
        for _ in 0..PASS_STEPS_MAX {
            let (start, compacted_to, end) = {
                let state = self.shard.state.read();
                let partition = state.partition(self.key)?;
                (partition.start, partition.compacted_to(), partition.end)
            };
            // Below it there is none either.
            next = next.max(start);
            if next >= compacted_to.min(end) {
                break;
            }
            let read = match self.look(next, compacted_to, Allowance { records: 1, bytes: 1 }).await {
                Err(refusal) if refusal.error_code() == ErrorCode::OffsetTrimmed => continue,
                read => read?,
            };
            if let Some(first) = read.slices.first() {
                return Ok(Offset(first.first));
            }
            if read.next == next {
                break;
            }
            next = read.next;
        }
        Ok(next)
    }

    /// What a failed read means. Whoever is told that `from` was trimmed looks again, and would for ever if
    /// it was not. And where it was, the object that is gone or the entry that cannot be read is nobody's
    /// loss.
    pub(crate) fn means(&self, from: Offset, refusal: Refusal) -> Refusal {
        match (self.bounds(), refusal.error_code()) {
            (Err(gone), _) => gone,
            (Ok(bounds), _) if from < bounds.start => trimmed(bounds),
            (Ok(_), ErrorCode::OffsetTrimmed) => {
                Refusal::new(ErrorCode::Corrupt, format!("offset {from} exists, and its entry is gone"))
            }
            (Ok(_), _) => refusal,
        }
    }

    /// Rows that may be needed; compressed ones may turn out to be more than the allowance, and of compacted
    /// ones nothing may be left: whoever found nothing goes on, and then with more of them.
    fn rows(&self, from: Offset, until: Offset, allowance: Allowance) -> Result<Vec<BatchRow>, Refusal> {
        let state = self.shard.state.read();
        let partition = state.partition(self.key)?;
        if from < partition.start {
            return Err(trimmed(bounds(partition, self.shard.shared.term())));
        }
        let is_in_hole = self.hole_end.load(Ordering::Relaxed) == from.0 && allowance.records > 0;
        let (mut rows, mut records, mut bytes) = (Vec::new(), 0, 0);
        for row in partition.batches_from(from) {
            let may_be_empty = is_in_hole && row.base_offset < partition.compacted_to();
            let is_full = match may_be_empty {
                true => records >= allowance.records.max(HOLE_OFFSETS_MAX),
                false => records >= allowance.records || bytes >= allowance.bytes,
            };
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
}

fn trimmed(bounds: Bounds) -> Refusal {
    let detail = "removed by retention while it was read";
    let (earliest, tail) = (Some(bounds.start.0), Some(bounds.end.0));
    Refusal { earliest, tail, ..Refusal::new(ErrorCode::OffsetTrimmed, detail) }
}

fn end(slice: &Slice) -> Offset {
    Offset(slice.first).plus(u64::from(slice.take))
}

pub(super) fn bounds(partition: &Partition, term: u64) -> Bounds {
    Bounds {
        start: partition.start,
        end: partition.end,
        closed: partition.config.closed,
        compacted_to: partition.compacted_to(),
        term,
    }
}

/// Consecutive batches within an allowance, as a reader gets them.
pub(super) fn collect(
    partition: PartitionId,
    batches: impl Iterator<Item = (BatchRow, Batch)>,
    (from, until): (Offset, Offset),
    allowance: Allowance,
) -> Result<ReadBatches, Refusal> {
    let mut read = ReadBatches { next: from, ..ReadBatches::default() };
    let (mut has_parts, mut counted, mut payload_bytes) = (false, 0, 0);
    for (row, batch) in batches {
        has_parts |= batch.header().left.is_some();
        payload_bytes += read.payload[counted..].iter().map(Bytes::len).sum::<usize>();
        counted = read.payload.len();
        if has_parts && payload_bytes > PARTS_PAYLOAD_BYTES && !read.slices.is_empty() {
            break;
        }
        let first = from.max(row.base_offset);
        let left = Allowance {
            records: (allowance.records - read.records).min(until.0 - first.0),
            bytes: allowance.bytes - read.bytes,
        };
        if batch.header().left.is_some() {
            read.next = read.take_parts(partition, (&row, &batch), first..until.min(row.end()), left)?;
        } else {
            let part = within(&row, &batch, first, left)?;
            read.take((row, batch), partition, first, part);
            read.next = first.plus(part.records);
        }
        if read.records >= allowance.records || read.bytes >= allowance.bytes || read.next < row.end() {
            break;
        }
    }
    Ok(read)
}

impl ReadBatches {
    fn take(
        &mut self,
        (row, batch): (BatchRow, Batch),
        partition: PartitionId,
        first: Offset,
        part: Allowance,
    ) {
        self.slices.push(Slice {
            first: first.0,
            take: u32::try_from(part.records).expect("a batch's records are counted in 32 bits"),
            batch_bytes: row.len,
        });
        self.payload.extend(batch.placed(row.base_offset, row.ts, partition));
        self.batches.push((row, batch));
        self.records += part.records;
        self.bytes += part.bytes;
    }

    /// Takes the records of a batch with holes that are in `range`, each run of them as a batch of its own:
    /// whoever gets them knows of no batches with holes. Where to read on.
    fn take_parts(
        &mut self,
        partition: PartitionId,
        (row, batch): (&BatchRow, &Batch),
        range: Range<Offset>,
        left: Allowance,
    ) -> Result<Offset, Refusal> {
        let runs_max = RUNS_MAX.saturating_sub(self.slices.len()).max(1);
        let (runs, next) = runs_of((row, batch), range, (left, runs_max)).map_err(|error| corrupt(&error))?;
        if runs.is_empty() {
            return Ok(next);
        }
        for (run, part) in runs.iter().zip(batch.parts_of(&runs).map_err(|error| corrupt(&error))?) {
            let (first, header) = (row.base_offset.plus(run.start.into()), part.header());
            let len = u32::try_from(part.bytes().len()).expect("no longer than its batch");
            let row = BatchRow { base_offset: first, count: header.count, len, ..*row };
            // What it costs is its own size, which whoever gets it counts.
            let allowance = Allowance { records: header.count.into(), bytes: header.raw_bytes.into() };
            self.take((row, part), partition, first, allowance);
        }
        Ok(next)
    }
}

/// Places of the records that are there in `range` and let through, and where to read on.
fn runs_of(
    (row, batch): (&BatchRow, &Batch),
    range: Range<Offset>,
    (left, runs_max): (Allowance, usize),
) -> Result<(Vec<Range<u32>>, Offset), BatchError> {
    let (mut runs, mut taken): (Vec<Range<u32>>, _) = (Vec::new(), Allowance { records: 0, bytes: 0 });
    let base = batch.header().base_offset.0;
    for record in batch.records()? {
        let record = record?;
        let place = record.offset.0 - base;
        let offset = row.base_offset.plus(place);
        if offset < range.start || offset >= range.end {
            continue;
        }
        if taken.records >= left.records || (taken.bytes >= left.bytes && taken.records > 0) {
            return Ok((runs, offset));
        }
        taken.records += 1;
        taken.bytes += record.size as u64;
        let place = u32::try_from(place).expect("a batch's records are counted in 32 bits");
        let at_most = runs.len() >= runs_max;
        match runs.last_mut().filter(|run| run.end == place) {
            Some(run) => run.end += 1,
            None if at_most => return Ok((runs, offset)),
            None => runs.push(place..place + 1),
        }
    }
    Ok((runs, range.end))
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
