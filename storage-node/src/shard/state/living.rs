//! What of the log is needed as storage of records: the batches in a range of entries that somebody may still ask for.

use std::ops::Range;

use weir_protocol::ids::LogIndex;

use super::apply::ShardState;
use super::rows::BatchRow;

impl ShardState {
    /// Batches in entries of `range` whose bytes are needed and in no pack: those with live records, and those on their
    /// way to another topic or shard. In no order, and one may come twice.
    ///
    /// It never grows: what is in none of these is needed by no state that follows from this one. Visits the partitions
    /// whose oldest such batch is below the range's end, and of these the batches within.
    pub fn living(&self, range: Range<LogIndex>) -> impl Iterator<Item = BatchRow> {
        let others = self.dead_letters.in_log(range.clone()).chain(self.outputs.in_log(range.clone()));
        let end = range.end;
        let pinned = self.floors.pins().take_while(move |(index, _)| *index < end);
        let partitions = pinned.filter_map(|(_, key)| self.partitions.get(&key));
        partitions.flat_map(move |partition| partition.living(range.clone())).chain(others)
    }

    /// Encoded bytes of the batches that partitions keep and that are in no pack. Visits each of them.
    pub fn kept_bytes(&self) -> u64 {
        let kept = self.floors.pins().filter_map(|(_, key)| self.partitions.get(&key));
        let batches = kept.flat_map(|partition| partition.living(LogIndex(0)..LogIndex(u64::MAX)));
        batches.map(|batch| u64::from(batch.len)).sum()
    }

    /// Checks that what lives of any part of the log is what partitions, dead letters and outputs say one by one.
    ///
    /// # Panics
    /// If it is not.
    pub(super) fn check_living(&self) {
        let of_partition = |(_, partition): (_, &std::sync::Arc<super::Partition>)| {
            partition.batches_from(partition.unsealed_from()).collect::<Vec<_>>()
        };
        let letters = self.dead_letters.iter().filter(|letter| letter.pack.is_none());
        let outputs = self.outputs.lanes.values().flat_map(|lane| &lane.rows).map(|output| output.batch);
        let records = self.partitions.iter().flat_map(of_partition);
        let sorted = |rows: Vec<BatchRow>| {
            let mut places: Vec<_> = rows.iter().map(|row| (row.index, row.pos, row.len)).collect();
            places.sort_unstable();
            places
        };
        let all = sorted(records.chain(letters.map(|letter| letter.batch)).chain(outputs).collect());
        assert_eq!(all.first().map(|first| first.0), self.needed_from(), "the oldest is needed");
        let middle = all.get(all.len() / 2).map_or(LogIndex(0), |middle| middle.0);
        let (before, behind) = (LogIndex(0)..middle, middle..LogIndex(u64::MAX));
        let found = sorted(self.living(before).chain(self.living(behind)).collect());
        assert_eq!(found, all, "what lives of the log");
    }
}
