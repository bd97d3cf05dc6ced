//! How far a reader reads ahead: the further the longer its reads follow each other, and never beyond what
//! whoever reads may still be given.

use std::ops::Range;

use weir_protocol::ids::Offset;
use weir_tier::cold::Ahead;

use super::allowance::Allowance;
use crate::shard::state::BatchRow;

/// Blocks of a pack that are read ahead at the second of two reads that follow each other; doubled by each
/// further one …
const BLOCKS_FIRST: usize = 2;
/// … up to this many.
const BLOCKS_MAX: usize = 16;

/// Reads of one reader that follow each other.
#[derive(Debug)]
pub(super) struct Sequence {
    /// Where the last read ended, …
    next: Offset,
    /// … how many blocks it read ahead, …
    blocks: usize,
    /// … and what it came to.
    last: Passed,
    /// What whoever reads may still be given, behind that.
    credit: Allowance,
}

/// What a read passed over, and what it gave of that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Passed {
    offsets: u64,
    /// As batches are stored.
    stored_bytes: u64,
    /// What credit counts.
    given: Allowance,
}

impl Default for Sequence {
    /// Nothing was read, and all may be given.
    fn default() -> Self {
        Self { next: Offset(u64::MAX), blocks: 0, last: Passed::default(), credit: Allowance::ALL }
    }
}

impl Sequence {
    /// From here on so much may be given.
    pub(super) fn grant(&mut self, credit: Allowance) {
        self.credit = credit;
    }

    /// How far to read ahead behind `rows`, which are read from `from` on: more while reads follow each
    /// other, not at all for one that jumps. Credit reaches as far as it would at the rate of the last read:
    /// where a filter, or compaction, left little, further than its own numbers.
    pub(super) fn ahead(&mut self, from: Offset, rows: &[BatchRow]) -> Ahead {
        self.blocks = match (self.next == from, self.blocks) {
            (false, _) => 0,
            (true, 0) => BLOCKS_FIRST,
            (true, before) => (before * 2).min(BLOCKS_MAX),
        };
        let Passed { offsets, stored_bytes, given } = self.last;
        let offsets = at_rate(self.credit.records, offsets, given.records);
        let bytes = at_rate(self.credit.bytes, stored_bytes, given.bytes);
        let loaded = stored_within(rows, from..Offset(u64::MAX));
        let until = Offset(from.0.saturating_add(offsets));
        Ahead { blocks: self.blocks, until, bytes: bytes.saturating_sub(loaded) }
    }

    /// A read of `rows` passed these offsets, and gave that much of them.
    pub(super) fn read(&mut self, passed: Range<Offset>, rows: &[BatchRow], given: Allowance) {
        self.next = passed.end;
        let offsets = passed.end.0.saturating_sub(passed.start.0);
        self.credit = Allowance {
            records: less(self.credit.records, given.records),
            bytes: less(self.credit.bytes, given.bytes),
        };
        self.last = Passed { offsets, stored_bytes: stored_within(rows, passed), given };
    }

    /// Of what was read last only so much was given.
    pub(super) fn gave(&mut self, given: Allowance) {
        let before = std::mem::replace(&mut self.last.given, given);
        self.credit = Allowance {
            records: self.credit.records.saturating_add(before.records.saturating_sub(given.records)),
            bytes: self.credit.bytes.saturating_add(before.bytes.saturating_sub(given.bytes)),
        };
    }
}

/// What `used` leaves of a credit; where there is no limit, there is none.
fn less(credit: u64, used: u64) -> u64 {
    if credit == u64::MAX { credit } else { credit.saturating_sub(used) }
}

/// What `credit` comes to if `given` of it took `passed`: without end if nothing of it was used.
fn at_rate(credit: u64, passed: u64, given: u64) -> u64 {
    if given == 0 {
        return u64::MAX;
    }
    // What is small counts as something.
    let reach = u128::from(credit) * u128::from(passed.max(1)) / u128::from(given);
    u64::try_from(reach).unwrap_or(u64::MAX)
}

/// About how many of the bytes of batches that follow each other are of these records.
fn stored_within(rows: &[BatchRow], records: Range<Offset>) -> u64 {
    let (whole, cut) = rows.split_at(rows.partition_point(|row| row.end() <= records.end));
    let upto: u64 = whole.iter().map(|row| u64::from(row.len)).sum();
    let upto = upto + cut.first().map_or(0, |row| stored_before(row, records.end));
    upto.saturating_sub(rows.first().map_or(0, |row| stored_before(row, records.start)))
}

/// About how many of a batch's bytes are of records before an offset.
fn stored_before(row: &BatchRow, offset: Offset) -> u64 {
    let records = offset.0.saturating_sub(row.base_offset.0).min(row.count.into());
    u64::from(row.len) * records / u64::from(row.count.max(1))
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::{LogIndex, TimestampMs};

    use super::*;

    /// Batches of ten records and 1,000 bytes each, from an offset on.
    fn rows(from: u64, batches: u64) -> Vec<BatchRow> {
        let row = |n| BatchRow {
            base_offset: Offset(from + 10 * n),
            count: 10,
            len: 1_000,
            ts: TimestampMs(0),
            index: LogIndex(n),
            pos: 0,
        };
        (0..batches).map(row).collect()
    }

    fn given(records: u64, bytes: u64) -> Allowance {
        Allowance { records, bytes }
    }

    /// A sequence that has read the first ten batches, which gave this.
    fn after(records: u64, bytes: u64) -> Sequence {
        let mut sequence = Sequence::default();
        sequence.read(Offset(0)..Offset(100), &rows(0, 10), given(records, bytes));
        sequence
    }

    #[test]
    fn it_goes_further_while_reads_follow_each_other_and_begins_anew_behind_a_jump() {
        let mut sequence = Sequence::default();
        let mut blocks = Vec::new();
        for from in [0, 10, 20, 30, 40, 50, 900, 910] {
            blocks.push(sequence.ahead(Offset(from), &rows(from, 1)).blocks);
            sequence.read(Offset(from)..Offset(from + 10), &rows(from, 1), given(10, 1_000));
        }
        assert_eq!(blocks, [0, 2, 4, 8, 16, 16, 0, 2]);
    }

    #[test]
    fn without_a_limit_it_goes_as_far_as_there_is_anything() {
        let ahead = after(100, 10_000).ahead(Offset(100), &rows(100, 1));
        assert_eq!((ahead.until, ahead.bytes), (Offset(u64::MAX), u64::MAX - 1_000));
    }

    #[test]
    fn it_ends_where_the_credit_does_at_the_rate_of_what_was_read_last() {
        let reach = |gave: (u64, u64), credit: (u64, u64)| {
            let mut sequence = after(gave.0, gave.1);
            sequence.grant(given(credit.0, credit.1));
            let ahead = sequence.ahead(Offset(100), &rows(100, 1));
            (ahead.until.0, ahead.bytes)
        };
        let all = u64::MAX;
        assert_eq!(reach((100, 10_000), (1, 5_000)), (101, 4_000), "beside what is read now");
        assert_eq!(reach((100, 10_000), (7, 1_000)), (107, 0));
        assert_eq!(reach((100, 40_000), (50, 40_000)), (150, 9_000), "of compressed batches");
        assert_eq!(reach((2, 200), (1, 1_000)), (150, 49_000), "where a filter left one record of fifty");
        assert_eq!(reach((0, 0), (1, 1)), (all, all - 1_000), "where nothing was left");
        assert_eq!(reach((1, 1), (all, all)), (all, all - 1_000));
    }

    #[test]
    fn what_was_given_is_not_given_again_and_what_a_filter_left_out_still_may_be() {
        let mut sequence = after(100, 10_000);
        sequence.grant(given(150, 100_000));
        sequence.read(Offset(100)..Offset(200), &rows(100, 10), given(100, 10_000));
        assert_eq!(sequence.ahead(Offset(200), &[]).until, Offset(250));
        sequence.gave(given(10, 1_000));
        let ahead = sequence.ahead(Offset(200), &[]);
        assert_eq!((ahead.until, ahead.bytes), (Offset(200 + 1_400), 990_000), "ten of a hundred each");
    }

    #[test]
    fn what_was_read_of_a_batch_counts_and_not_the_batch() {
        let mut sequence = Sequence::default();
        sequence.read(Offset(3)..Offset(4), &rows(0, 1), given(1, 100));
        sequence.grant(given(5, 1_000));
        let ahead = sequence.ahead(Offset(4), &rows(0, 1));
        assert_eq!((ahead.until, ahead.bytes), (Offset(9), 400), "six records of the batch are read now");
    }
}
