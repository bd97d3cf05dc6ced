//! Records that were nacked: kept in memory until they come again, and read from there.

use std::ops::Range;
use std::time::Instant;

use weir_protocol::batch::Batch;
use weir_protocol::ids::Offset;

use super::allowance::Allowance;
use super::reader::{ReadBatches, Reader, collect};
use crate::replica::ShardHandle;
use crate::shard::state::{BatchRow, PartitionKey};

/// A batch of which more than one record in so many comes again is read whole.
const PART_OF_BATCH: u32 = 4;
/// Batches that are looked at for one call: who settles waits for it.
const BATCHES_AT_ONCE: usize = 256;

/// Keeps records, which ascend, as far as their batches are in memory now and not too many. What is not kept
/// is read as any other.
pub fn keep_returning(shard: &ShardHandle, key: PartitionKey, offsets: &[Offset]) {
    let wanted = places_of(shard, key, offsets);
    let rows: Vec<BatchRow> = wanted.iter().map(|(row, _)| *row).collect();
    for ((row, places), body) in wanted.iter().zip(shard.shared.in_memory(&rows)) {
        let records: u32 = places.iter().map(|place| place.end - place.start).sum();
        let Some(body) = body.filter(|_| records <= row.count / PART_OF_BATCH) else { continue };
        // What is wrong with it, if anything is, whoever reads the batch is told.
        let Ok(parts) = Batch::from_checked(body).and_then(|batch| batch.parts_of(places)) else { continue };
        for (place, part) in places.iter().zip(parts) {
            let Ok(len) = u32::try_from(part.bytes().len()) else { continue };
            let (base_offset, count) = (row.base_offset.plus(place.start.into()), place.end - place.start);
            shard.shared.keep_returning(key, BatchRow { base_offset, count, len, ..*row }, part);
        }
    }
}

/// In which batches the records are, and where in them.
fn places_of(shard: &ShardHandle, key: PartitionKey, offsets: &[Offset]) -> Vec<(BatchRow, Vec<Range<u32>>)> {
    let mut wanted: Vec<(BatchRow, Vec<Range<u32>>)> = Vec::new();
    let mut looked = 0;
    let state = shard.state.read();
    let Ok(partition) = state.partition(key) else { return wanted };
    for offset in offsets {
        if wanted.last().is_none_or(|(row, _)| *offset >= row.end()) {
            if looked == BATCHES_AT_ONCE {
                break;
            }
            looked += 1;
            let found = partition.batch_at(*offset).filter(|row| row.count >= PART_OF_BATCH);
            let Some(row) = found else { continue };
            wanted.push((row, Vec::new()));
        }
        let (row, places) = wanted.last_mut().expect("one was put there");
        let Some(Ok(place)) = offset.0.checked_sub(row.base_offset.0).map(u32::try_from) else { continue };
        match places.last_mut() {
            Some(last) if last.end == place => last.end += 1,
            Some(last) if last.end > place => {}
            _ => places.push(place..place + 1),
        }
    }
    wanted
}

impl Reader {
    /// What is kept of the records from `from` on, below `until` and within the allowance; `None` if the
    /// first is not kept, or may be gone.
    pub fn read_returning(&self, from: Offset, until: Offset, allowance: Allowance) -> Option<ReadBatches> {
        let part = self.shard.shared.returning(self.key, from)?;
        {
            let state = self.shard.state.read();
            let partition = state.partition(self.key).ok()?;
            if from < partition.start.max(partition.compacted_to()) {
                return None;
            }
        }
        let read = collect(self.key.1, std::iter::once(part), (from, until), allowance).ok()?;
        self.shard.shared.delivered(self.key, read.records, read.bytes, Instant::now());
        Some(read)
    }
}
