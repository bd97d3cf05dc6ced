//! Records that were nacked and come again soon, in memory: they are few, and the batches that hold them are not.

use std::collections::{BTreeMap, VecDeque};

use weir_protocol::batch::Batch;
use weir_protocol::ids::Offset;

use crate::shard::state::{BatchRow, PartitionKey};

/// What a part costs besides its bytes, about.
const PART_BYTES: usize = 256;
/// A part is at most one in so many of what may be kept.
const PARTS_MIN: usize = 16;

/// Parts of batches, each as a batch of its own, bounded in bytes; the one that came first goes first. A
/// record never changes, so what is here is what the log has, unless retention or compaction has removed it
/// since: whoever reads looks.
#[derive(Debug)]
pub struct Returning {
    parts: BTreeMap<(PartitionKey, Offset), (BatchRow, Batch)>,
    order: VecDeque<(PartitionKey, Offset)>,
    bytes: usize,
    bytes_max: usize,
}

impl Returning {
    /// Empty, for at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { parts: BTreeMap::new(), order: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Keeps a part that begins at the row's offset, unless its first record is kept, or it is large.
    pub fn put(&mut self, key: PartitionKey, row: BatchRow, batch: Batch) {
        let bytes = cost(&batch);
        if bytes > self.bytes_max / PARTS_MIN || self.get(key, row.base_offset).is_some() {
            return;
        }
        self.bytes += bytes;
        self.order.push_back((key, row.base_offset));
        self.parts.insert((key, row.base_offset), (row, batch));
        while self.bytes > self.bytes_max {
            let first = self.order.pop_front().and_then(|first| self.parts.remove(&first));
            self.bytes -= cost(&first.expect("what is counted is kept").1);
        }
    }

    /// The part that holds a record, if it is kept.
    #[must_use]
    pub fn get(&self, key: PartitionKey, offset: Offset) -> Option<&(BatchRow, Batch)> {
        let (_, part) = self.parts.range((key, Offset(0))..=(key, offset)).next_back()?;
        Some(part).filter(|(row, _)| offset < row.end())
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.parts.clear();
        self.order.clear();
        self.bytes = 0;
    }

    /// Bytes kept, with what keeping them costs.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn cost(batch: &Batch) -> usize {
    batch.bytes().len() + PART_BYTES
}

#[cfg(test)]
mod tests {
    use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
    use weir_protocol::ids::{Incarnation, LogIndex, PartitionId, TimestampMs};

    use super::*;

    const KEY: PartitionKey = (Incarnation(7), PartitionId(0));

    fn part(first: u64, records: u32) -> (BatchRow, Batch) {
        let mut builder = BatchBuilder::anonymous();
        for _ in 0..records {
            builder.push(RecordParts { key: None, headers: &Headers::default(), value: &[1; 100] }).unwrap();
        }
        let batch = builder.build(Compression::None).unwrap();
        let len = u32::try_from(batch.bytes().len()).unwrap();
        let (ts, index) = (TimestampMs(1), LogIndex(1));
        (BatchRow { base_offset: Offset(first), count: records, len, ts, index, pos: 0 }, batch)
    }

    fn put(kept: &mut Returning, first: u64, records: u32) {
        let (row, batch) = part(first, records);
        kept.put(KEY, row, batch);
    }

    #[test]
    fn a_record_is_found_by_its_offset_in_its_partition() {
        let mut kept = Returning::new(1 << 20);
        put(&mut kept, 5, 2);
        put(&mut kept, 9, 1);
        let first = |offset| kept.get(KEY, Offset(offset)).map(|(row, _)| row.base_offset.0);
        assert_eq!([4, 5, 6, 7, 9, 10].map(first), [None, Some(5), Some(5), None, Some(9), None]);
        assert!(kept.get((Incarnation(7), PartitionId(1)), Offset(5)).is_none());
        assert!(kept.get((Incarnation(8), PartitionId(0)), Offset(9)).is_none());
    }

    #[test]
    fn what_came_first_goes_first_and_the_bytes_stay_within_the_limit() {
        let one = cost(&part(0, 1).1);
        let mut kept = Returning::new(one * 20);
        for first in 0..50 {
            put(&mut kept, first, 1);
            // It is kept already.
            put(&mut kept, first, 1);
            assert!(kept.bytes() <= one * 20);
        }
        let count = (0..50).filter(|first| kept.get(KEY, Offset(*first)).is_some()).count();
        assert_eq!((count, kept.get(KEY, Offset(29)), kept.bytes()), (20, None, one * 20));
        put(&mut kept, 100, 200);
        assert_eq!((kept.get(KEY, Offset(100)), kept.bytes()), (None, one * 20), "it would drive out others");
        kept.clear();
        assert_eq!((kept.get(KEY, Offset(49)), kept.bytes()), (None, 0));
    }
}
