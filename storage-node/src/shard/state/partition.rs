//! One partition: its bounds, its configuration, and where its records lie in the shard's log.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use weir_protocol::ids::{ConfigVersion, LogIndex, Offset, TimestampMs};
use weir_protocol::rpc::TopicConfig;

use super::packs::{PackNo, Released};
use super::rows::{BatchRow, Rows};

/// A partition. Cheap to clone: full chunks of rows are shared.
///
/// ```text
///   start ≤ end      rows cover [start, end) without holes; the first may reach below start
///   └ oldest: the first row that reaches beyond start; none exactly when start = end
///   sealed end ≤ end      packs cover [start, sealed end) without holes; the first may reach below start
///   └ unsealed: the first row beyond start and sealed end: what pins the log
///   compacted to ≤ max(start, sealed end)      below it records may be missing in packs, above it none is
/// ```
#[derive(Debug, Clone)]
pub struct Partition {
    /// Oldest record that exists.
    pub start: Offset,
    /// One past the newest committed record.
    pub end: Offset,
    /// Encoded bytes of the batches that hold live records.
    pub bytes: u64,
    /// The topic's configuration, as far as this partition has seen it.
    pub config: Arc<TopicConfig>,
    /// Its version.
    pub version: ConfigVersion,
    kept: Kept,
}

const _: () = assert!(size_of::<Partition>() <= 48, "what a partition takes that never had a record");

/// What a partition knows of its records; apart, because many never have one.
#[derive(Debug, Clone)]
struct Contents {
    oldest: Option<BatchRow>,
    unsealed: Option<BatchRow>,
    rows: Rows,
    sealed: VecDeque<Sealed>,
    compacted_to: Offset,
    /// Of `bytes`, those that no pack holds.
    unsealed_bytes: u64,
    /// Bytes of batches in the first chunk that hold no live record any more: part of the chunk's sum, not of `bytes`.
    dead_bytes: u64,
}

impl Contents {
    const NONE: Self = Self {
        oldest: None,
        unsealed: None,
        rows: Rows::NONE,
        sealed: VecDeque::new(),
        compacted_to: Offset(0),
        unsealed_bytes: 0,
        dead_bytes: 0,
    };

    /// Nothing is left that is worth memory.
    fn is_none(&self) -> bool {
        self.rows.is_empty() && self.sealed.is_empty() && self.compacted_to == Offset(0)
    }
}

/// Contents that take no memory until they are changed.
#[derive(Debug, Clone, Default)]
struct Kept(Option<Box<Contents>>);

impl Deref for Kept {
    type Target = Contents;

    fn deref(&self) -> &Contents {
        static NONE: Contents = Contents::NONE;
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Kept {
    fn deref_mut(&mut self) -> &mut Contents {
        self.0.get_or_insert_with(|| Box::new(Contents::NONE))
    }
}

/// A run of a partition: consecutive records in one pack, from the end of the run before on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sealed {
    pub(super) pack: PackNo,
    pub(super) end: Offset,
    /// Bytes of its batches that hold live records; follows from the rows.
    pub(super) bytes: u64,
}

/// What the shard wants to know of a partition without visiting it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// From when on retention has something to remove.
    pub(super) due: Option<TimestampMs>,
    /// The entry of the oldest live record that no pack holds.
    pub(super) pin: Option<LogIndex>,
    /// Bytes of its batches.
    pub(super) bytes: u64,
    /// Of these, the bytes that no pack holds.
    pub(super) unsealed_bytes: u64,
}

impl Partition {
    /// An empty partition.
    #[must_use]
    pub fn new(config: Arc<TopicConfig>, version: ConfigVersion) -> Self {
        Self { start: Offset(0), end: Offset(0), bytes: 0, config, version, kept: Kept::default() }
    }

    /// A partition from a checkpoint; `None` if its rows do not cover its bounds, or its packs are not in order.
    pub(super) fn restored(
        bounds: std::ops::Range<Offset>,
        config: Arc<TopicConfig>,
        version: ConfigVersion,
        rows: Rows,
        (sealed, compacted_to): (VecDeque<Sealed>, Offset),
    ) -> Option<Self> {
        let ends = sealed.iter().map(|sealed| sealed.end);
        let is_ordered = ends.clone().is_sorted_by(|a, b| a < b)
            && ends.clone().all(|end| bounds.start < end && end <= bounds.end);
        let packed_to = sealed.back().map_or(bounds.start, |last| last.end.max(bounds.start));
        if !is_ordered || compacted_to > packed_to {
            return None;
        }
        let mut partition = Self { end: bounds.end, ..Self::new(config, version) };
        if rows.is_empty() && sealed.is_empty() && compacted_to == Offset(0) {
            // Covered exactly if it is empty; it takes no memory then.
            partition.start = bounds.start;
            return (bounds.start == bounds.end).then_some(partition);
        }
        (partition.kept.rows, partition.kept.compacted_to) = (rows, compacted_to);
        let mut chunks = partition.kept.rows.chunks();
        let covered_from = chunks.next().map_or(bounds.end, |chunk| chunk.first.0);
        let covered_to =
            chunks.last().or(partition.kept.rows.chunks().last()).map_or(bounds.end, |chunk| chunk.end);
        partition.bytes = partition.kept.rows.chunks().map(|chunk| chunk.batch_bytes).sum();
        partition.kept.unsealed_bytes = partition.bytes;
        let is_covered =
            covered_from <= bounds.start && bounds.start <= bounds.end && covered_to == bounds.end;
        is_covered.then(|| {
            partition.trim(bounds.start);
            partition.restore_sealed(sealed);
            partition
        })
    }

    /// Counts what each run holds, of the rows that are there.
    fn restore_sealed(&mut self, sealed: VecDeque<Sealed>) {
        let kept = &mut *self.kept;
        (kept.sealed, kept.unsealed_bytes) = (sealed, self.bytes);
        let mut from = self.start;
        for run in &mut kept.sealed {
            run.bytes = kept.rows.bytes_between(from, run.end);
            kept.unsealed_bytes -= run.bytes;
            from = run.end;
        }
        self.find_unsealed();
    }

    fn find_unsealed(&mut self) {
        let unsealed = self.kept.rows.from(self.unsealed_from()).next();
        self.kept.unsealed = unsealed;
    }

    pub(super) fn push(&mut self, row: &BatchRow) {
        assert_eq!(row.base_offset, self.end, "offsets of a partition are dense");
        self.end = row.end();
        self.bytes += u64::from(row.len);
        let kept = &mut *self.kept;
        kept.unsealed_bytes += u64::from(row.len);
        kept.oldest.get_or_insert(*row);
        kept.unsealed.get_or_insert(*row);
        kept.rows.push(row);
    }

    /// Removes records below `upto`, at most all; batches go when their last record goes. Gives what it needs
    /// no more of its packs.
    pub(super) fn trim(&mut self, upto: Offset) -> Vec<Released> {
        let before = self.bytes;
        self.start = self.start.max(upto.min(self.end));
        let dropped = self.kept.rows.drop_below(self.start);
        if dropped > 0 {
            self.bytes -= dropped - self.kept.dead_bytes;
            self.kept.dead_bytes = 0;
        }
        let oldest = self.kept.rows.from(self.start).next();
        self.kept.oldest = oldest;
        self.find_unsealed();
        let dead_bytes = match self.kept.rows.chunks().next() {
            Some(first) => {
                let dead = first.iter().take_while(|row| row.end() <= self.start);
                dead.map(|row| u64::from(row.len)).sum()
            }
            None => 0,
        };
        self.bytes -= dead_bytes - self.kept.dead_bytes;
        self.kept.dead_bytes = dead_bytes;
        let released = self.release(before - self.bytes);
        if self.start == self.end && self.kept.is_none() {
            self.kept = Kept::default();
        }
        released
    }

    /// Where it would begin after a trim, and how many offsets and bytes of batches that would take away.
    #[must_use]
    pub fn trimmed(&self, upto: Offset) -> (Offset, u64, u64) {
        // Rows are shared, so a copy is cheap.
        let mut after = self.clone();
        after.trim(upto);
        (after.start, after.start.0 - self.start.0, self.bytes - after.bytes)
    }

    /// So many bytes of its oldest batches went: runs without a live record go with them, then those of the first.
    fn release(&mut self, mut bytes: u64) -> Vec<Released> {
        let mut released = Vec::new();
        while let Some(run) = self.kept.sealed.pop_front_if(|run| run.end <= self.start) {
            bytes -= run.bytes;
            released.push(Released { pack: run.pack, bytes: run.bytes, is_whole: true });
        }
        match self.kept.sealed.front_mut() {
            Some(run) if bytes > 0 => {
                run.bytes -= bytes;
                released.push(Released { pack: run.pack, bytes, is_whole: false });
            }
            Some(_) => {}
            None => self.kept.unsealed_bytes -= bytes,
        }
        released
    }

    /// Forgets the records that no pack holds; how many they were.
    pub(super) fn cut_to_packs(&mut self) -> u64 {
        let end = self.unsealed_from();
        let lost = self.end.0 - end.0;
        if lost == 0 {
            return 0;
        }
        let mut rows = Rows::default();
        if self.start < end {
            let left =
                self.kept.rows.chunks().flat_map(|chunk| chunk.iter()).take_while(|row| row.end() <= end);
            left.for_each(|row| rows.push(&row));
        }
        let sealed = std::mem::take(&mut self.kept.sealed);
        let config = Arc::clone(&self.config);
        let packed = (sealed, self.kept.compacted_to);
        let cut = Self::restored(self.start..end, config, self.version, rows, packed);
        *self = cut.expect("packs end where batches do");
        lost
    }

    /// A pack holds the records from [`Partition::unsealed_from`] to `end`; gives the bytes of their batches.
    pub(super) fn seal(&mut self, pack: PackNo, end: Offset) -> u64 {
        let from = self.unsealed_from();
        assert!(
            from < end && end <= self.end,
            "pack {pack} seals {from}..{end} of {}..{}",
            self.start,
            self.end
        );
        let bytes = self.kept.rows.bytes_between(from, end);
        self.kept.sealed.push_back(Sealed { pack, end, bytes });
        self.kept.unsealed_bytes -= bytes;
        self.find_unsealed();
        bytes
    }

    /// The runs that cover what is live of `range`, if all of them lie wholly within it and in packs among `replaced`.
    pub(super) fn runs_within(
        &self,
        range: Range<Offset>,
        replaced: &BTreeSet<PackNo>,
    ) -> Option<Range<usize>> {
        let from = range.start.max(self.start);
        let first = self.kept.sealed.partition_point(|run| run.end <= from);
        let begins =
            first.checked_sub(1).map_or(self.start, |before| self.kept.sealed[before].end.max(self.start));
        let behind = self.kept.sealed.partition_point(|run| run.end <= range.end);
        let is_whole = begins >= range.start
            && first < behind
            && self.kept.sealed[behind - 1].end == range.end
            && self.kept.sealed.range(first..behind).all(|run| replaced.contains(&run.pack));
        is_whole.then_some(first..behind)
    }

    /// These runs, of which there is one at least, are one in another pack from now on; gives what they
    /// needed of those before, and the bytes of the new one.
    pub(super) fn swap(&mut self, runs: Range<usize>, pack: PackNo) -> (Vec<Released>, u64) {
        let last = runs.end - 1;
        let moved = self.kept.sealed.range(runs.clone());
        let moved: Vec<_> =
            moved.map(|run| Released { pack: run.pack, bytes: run.bytes, is_whole: true }).collect();
        let bytes = moved.iter().map(|run| run.bytes).sum();
        self.kept.sealed[last] = Sealed { pack, bytes, ..self.kept.sealed[last] };
        self.kept.sealed.drain(runs.start..last);
        (moved, bytes)
    }

    /// Whether a pack may replace what there is from `start` on and leave records out.
    pub(super) fn may_compact_from(&self, start: Offset) -> bool {
        start <= self.kept.compacted_to.max(self.start)
    }

    /// Below `upto` records were left out. To be called with a range that [may](Self::may_compact_from) be,
    /// and is in packs.
    pub(super) fn compacted(&mut self, upto: Offset) {
        self.kept.compacted_to = self.kept.compacted_to.max(upto.min(self.unsealed_from()));
    }

    /// Below it records may have been dropped because their key has a newer one, or was deleted: what is
    /// there, packs alone say. No record beyond was.
    #[must_use]
    pub fn compacted_to(&self) -> Offset {
        self.kept.compacted_to
    }

    /// What it needs of all its packs, for when it goes.
    pub(super) fn all_released(&self) -> Vec<Released> {
        let run = |run: &Sealed| Released { pack: run.pack, bytes: run.bytes, is_whole: true };
        self.kept.sealed.iter().map(run).collect()
    }

    /// First live record that no pack holds, or the end.
    #[must_use]
    pub fn unsealed_from(&self) -> Offset {
        self.kept.sealed.back().map_or(self.start, |last| last.end.max(self.start))
    }

    /// The first batch that no pack holds.
    #[must_use]
    pub fn oldest_unsealed(&self) -> Option<BatchRow> {
        self.kept.unsealed
    }

    /// Batches in these entries with live records that no pack holds.
    pub(super) fn living(&self, entries: Range<LogIndex>) -> impl Iterator<Item = BatchRow> {
        let from = self.unsealed_from();
        let rows = self.kept.rows.since_entry(entries.start).skip_while(move |row| row.end() <= from);
        rows.take_while(move |row| row.index < entries.end)
    }

    /// The pack that holds the live record `offset`, if one does.
    #[must_use]
    pub fn pack_of(&self, offset: Offset) -> Option<PackNo> {
        let at = self.kept.sealed.partition_point(|sealed| sealed.end <= offset);
        self.kept.sealed.get(at).filter(|_| offset >= self.start).map(|sealed| sealed.pack)
    }

    /// The packs that hold its live records, in order: which of them, and the bytes of their batches.
    pub fn packed_runs(&self) -> impl Iterator<Item = (PackNo, Range<Offset>, u64)> {
        let starts = std::iter::once(self.start).chain(self.kept.sealed.iter().map(|run| run.end));
        let run = |(run, start): (&Sealed, Offset)| (run.pack, start..run.end, run.bytes);
        self.kept.sealed.iter().zip(starts).map(run)
    }

    /// Of its bytes, those that no pack holds.
    #[must_use]
    pub fn unsealed_bytes(&self) -> u64 {
        self.kept.unsealed_bytes
    }

    /// The first live record of the entry `index` or a later one, or the end; and the bytes of the batches before it.
    #[must_use]
    pub fn split_at_entry(&self, index: LogIndex) -> (Offset, u64) {
        let at = self.kept.rows.at_entry(index).map_or(self.end, |row| row.base_offset).max(self.start);
        (at, self.kept.rows.bytes_between(self.start, at))
    }

    /// One past the last record of the entries before `index`. Decodes less than one chunk of rows.
    #[must_use]
    pub fn end_before(&self, index: LogIndex) -> Offset {
        self.kept.rows.at_entry(index).map_or(self.end, |row| row.base_offset)
    }

    pub(super) fn sealed(&self) -> &VecDeque<Sealed> {
        &self.kept.sealed
    }

    /// The batch that holds the oldest live record.
    #[must_use]
    pub fn oldest(&self) -> Option<BatchRow> {
        self.kept.oldest
    }

    /// The batches that hold records from `offset` on, in order; the first may hold earlier ones too.
    pub fn batches_from(&self, offset: Offset) -> impl Iterator<Item = BatchRow> {
        self.kept.rows.from(offset.max(self.start))
    }

    /// The batch that holds the live record `offset`.
    #[must_use]
    pub fn batch_at(&self, offset: Offset) -> Option<BatchRow> {
        self.kept.rows.from(offset).next().filter(|row| offset >= self.start && row.base_offset <= offset)
    }

    /// First record at or after `ts`; the end if there is none. Records of one batch share its time.
    #[must_use]
    pub fn offset_at(&self, ts: TimestampMs) -> Offset {
        self.kept.rows.at_time(ts).map_or(self.end, |row| row.base_offset.max(self.start))
    }

    /// How far retention allows to trim at `now`; `None` if nothing is due. By age and bytes whole batches go, by
    /// records it is exact. The newest batch stays, whatever its bytes.
    #[must_use]
    pub fn due_trim(&self, now: TimestampMs) -> Option<Offset> {
        let mut upto = self.start;
        if let Some(age) = self.config.retention_age_ms {
            let oldest = TimestampMs(now.0.saturating_sub(age));
            upto = upto.max(self.offset_at(oldest));
        }
        if let Some(records) = self.config.retention_records {
            upto = upto.max(Offset(self.end.0.saturating_sub(records)));
        }
        if let Some(limit) = self.config.retention_bytes {
            upto = upto.max(self.start_within(limit));
        }
        (upto > self.start).then_some(upto)
    }

    /// How far the batches reach that lie below `floor` as a whole; `None` if none does.
    pub(super) fn whole_batches_below(&self, floor: Offset) -> Option<Offset> {
        self.kept.oldest.filter(|oldest| oldest.end() <= floor)?;
        Some(self.batch_at(floor).map_or(floor.min(self.end), |row| row.base_offset))
    }

    /// The start that leaves at most `limit` bytes, or only the newest batch.
    fn start_within(&self, limit: u64) -> Offset {
        let (mut bytes, mut start) = (self.bytes, self.start);
        for row in self.kept.rows.from(self.start) {
            if bytes <= limit || row.end() == self.end {
                break;
            }
            bytes -= u64::from(row.len);
            start = row.end();
        }
        start
    }

    /// What retention and purging need to know.
    pub(super) fn marks(&self) -> Marks {
        let Some(oldest) = self.kept.oldest else { return Marks::default() };
        let records = self.config.retention_records.is_some_and(|most| self.end.0 - self.start.0 > most);
        let bytes = self.config.retention_bytes.is_some_and(|most| self.bytes > most);
        let due = if records || (bytes && oldest.end() < self.end) {
            Some(TimestampMs(0))
        } else {
            // Trimmed once it is older than the age, not when it just reaches it.
            let age = self.config.retention_age_ms;
            age.map(|age| TimestampMs(oldest.ts.0.saturating_add(age).saturating_add(1)))
        };
        let pin = self.kept.unsealed.map(|row| row.index);
        Marks { due, pin, bytes: self.bytes, unsealed_bytes: self.kept.unsealed_bytes }
    }

    pub(super) fn rows(&self) -> &Rows {
        &self.kept.rows
    }

    /// Checks the invariant in the type's drawing, by decoding at most the first chunk.
    ///
    /// # Panics
    /// If it does not hold: going on would invent or lose records.
    pub fn check(&self) {
        let (start, end) = (self.start, self.end);
        assert!(start <= end, "start {start} is beyond end {end}");
        assert_eq!(self.kept.oldest, self.kept.rows.from(start).next(), "oldest batch of {start}..{end}");
        assert_eq!(self.kept.oldest.is_none(), start == end, "live batches of {start}..{end}");
        assert!(
            self.kept.oldest.is_none_or(|row| row.base_offset <= start),
            "rows do not cover {start}..{end}"
        );
        let from = self.unsealed_from();
        assert_eq!(
            self.kept.unsealed,
            self.kept.rows.from(from).next(),
            "first batch beyond the packs of {start}..{end}"
        );
        assert!(from <= end, "packs reach to {from} of {start}..{end}");
        let compacted_to = self.kept.compacted_to;
        assert!(compacted_to <= from, "compacted to {compacted_to}, packs reach to {from} of {start}..{end}");
        let is_needed = self.kept.sealed.front().is_none_or(|first| first.end > start);
        assert!(is_needed, "a pack of {start}..{end} holds nothing");
        let sealed: u64 = self.kept.sealed.iter().map(|run| run.bytes).sum();
        assert_eq!(
            sealed + self.kept.unsealed_bytes,
            self.bytes,
            "bytes in packs and outside of {start}..{end}"
        );
        let last = self.kept.rows.chunks().last().map_or(end, |chunk| chunk.end);
        assert_eq!(last, end, "rows end elsewhere than {start}..{end}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_without_records_takes_no_memory_for_them_before_the_first_and_after_the_last() {
        let mut partition = Partition::new(Arc::default(), ConfigVersion(1));
        let row = BatchRow {
            base_offset: Offset(0),
            count: 3,
            len: 100,
            ts: TimestampMs(7),
            index: LogIndex(1),
            pos: 36,
        };
        partition.check();
        assert!(partition.kept.0.is_none());
        partition.push(&row);
        partition.trim(Offset(2));
        partition.check();
        assert!(partition.kept.0.is_some());
        partition.trim(Offset(3));
        partition.check();
        assert!(partition.kept.0.is_none());
        assert_eq!((partition.start, partition.end, partition.bytes), (Offset(3), Offset(3), 0));

        let none = (VecDeque::new(), Offset(0));
        let restored = |bounds, none| {
            Partition::restored(bounds, Arc::default(), ConfigVersion(1), Rows::default(), none)
        };
        let empty = restored(Offset(3)..Offset(3), none.clone()).unwrap();
        empty.check();
        assert!(empty.kept.0.is_none());
        assert!(restored(Offset(2)..Offset(3), none).is_none(), "a record without a row");
        partition.push(&BatchRow { base_offset: Offset(3), ..row });
        partition.check();
    }
}
