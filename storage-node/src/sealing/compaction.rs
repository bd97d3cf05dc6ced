//! Which partitions are due to be compacted, and which of their records go.

use weir_protocol::batch::{Batch, BatchError, Record};
use weir_protocol::ids::{Offset, TimestampMs};

use super::newest::{Full, KEYS_MAX, Newest};
use crate::shard::state::{Packs, Partition};

/// How much a pass is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Keys of which it knows the newest record.
    pub(super) keys_max: usize,
    /// New bytes of objects that are worth it, if they are as many as those that are compacted: then each
    /// byte is copied about twice in all its life.
    pub(super) new_bytes_min: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self { keys_max: KEYS_MAX, new_bytes_min: 1 << 20 }
    }
}

/// However few they are, they are compacted once they are this old.
const NEW_FOR_MS: u64 = 24 * 3_600 * 1_000;
/// A record that says that its key is deleted is kept for so long, for readers that have seen the key.
pub(super) const DELETED_FOR_MS: u64 = 24 * 3_600 * 1_000;

/// How much of a partition is compacted, and how much is not, in bytes of objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) compacted_bytes: u64,
    pub(super) new_bytes: u64,
    /// Time of the oldest batch that is not.
    pub(super) new_since: Option<TimestampMs>,
}

impl Standing {
    pub(super) fn of(partition: &Partition, packs: &Packs) -> Self {
        let mut standing = Self::default();
        // What was compacted and is trimmed is behind it too.
        let compacted_to = partition.compacted_to().max(partition.start);
        for (no, records, bytes) in partition.packed_runs() {
            let bytes = object_bytes(packs, no, bytes);
            let of = if records.end > compacted_to {
                &mut standing.new_bytes
            } else {
                &mut standing.compacted_bytes
            };
            *of += bytes;
        }
        let oldest =
            (compacted_to < partition.unsealed_from()).then(|| partition.batches_from(compacted_to).next());
        standing.new_since = oldest.flatten().map(|row| row.ts);
        standing
    }

    /// Whether what is new is worth a pass through all of it.
    pub(super) fn is_due(&self, window: &Window, now: TimestampMs) -> bool {
        let Some(since) = self.new_since else { return false };
        self.new_bytes >= self.compacted_bytes.max(window.new_bytes_min)
            || since.0.saturating_add(NEW_FOR_MS) <= now.0
    }
}

/// The share of a run in its pack's object: its batches are counted as they were published, whatever is left of them.
pub(super) fn object_bytes(packs: &Packs, no: u64, run_bytes: u64) -> u64 {
    let Some(pack) = packs.get(no) else { return 0 };
    let all = if pack.batch_bytes == 0 { pack.bytes } else { pack.batch_bytes };
    let share = u128::from(pack.bytes) * u128::from(run_bytes) / u128::from(all.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// What decides about the records of one pass.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) newest: Newest,
    /// Nothing from here on is dropped: `newest` does not know all of it.
    pub(super) upto: Offset,
    /// When the pass began.
    pub(super) now: TimestampMs,
}

/// What is left of a batch.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) batch: Batch,
    /// Records that were dropped, and their encoded bytes.
    pub(super) dropped: u64,
    pub(super) dropped_bytes: u64,
    /// When the first of those that say that a key is deleted may be dropped.
    pub(super) again: Option<TimestampMs>,
}

impl Rules {
    /// Takes the records of a placed batch into account, behind all before. False if its keys have no room,
    /// of which some may be taken: what is dropped on their account is dropped rightly, because they are
    /// there.
    ///
    /// # Errors
    /// [`BatchError`]: the batch is damaged.
    pub(super) fn add(&mut self, batch: &Batch) -> Result<bool, BatchError> {
        for record in batch.records()? {
            let record = record?;
            let added = record.key.as_ref().map_or(Ok(()), |key| self.newest.add(key, record.offset));
            if added == Err(Full) {
                return Ok(false);
            }
        }
        let header = batch.header();
        self.upto = header.base_offset.plus(header.count.into());
        Ok(true)
    }

    /// A placed batch without the records that go. Before it is called for a batch, all batches of the
    /// partition before it are without theirs, or become so in the same moment: otherwise an older record of
    /// a deleted key would come back when the one that says so goes.
    ///
    /// # Errors
    /// [`BatchError`]: the batch is damaged.
    pub(super) fn left_of(&self, batch: &Batch) -> Result<Left, BatchError> {
        let header = batch.header();
        let mut left = Left { batch: batch.clone(), dropped: 0, dropped_bytes: 0, again: None };
        if header.base_offset >= self.upto {
            return Ok(left);
        }
        let mut keeps = vec![false; header.count as usize];
        for record in batch.records()? {
            let record = record?;
            let goes_at = self.goes_at(&record);
            if goes_at.is_some_and(|at| at <= self.now) {
                left.dropped += 1;
                left.dropped_bytes += record.size as u64;
                continue;
            }
            left.again = goes_at.into_iter().chain(left.again).min();
            keeps[usize::try_from(record.offset.0 - header.base_offset.0).expect("a place in the batch")] =
                true;
        }
        if left.dropped > 0 {
            left.batch = batch.retain(|place| keeps[place as usize])?;
        }
        Ok(left)
    }

    /// From when on a record may be dropped.
    fn goes_at(&self, record: &Record) -> Option<TimestampMs> {
        let key = record.key.as_ref().filter(|_| record.offset < self.upto)?;
        if self.newest.has_newer(key, record.offset) {
            return Some(TimestampMs(0));
        }
        record.value.is_empty().then(|| TimestampMs(record.ts.0.saturating_add(DELETED_FOR_MS)))
    }
}
