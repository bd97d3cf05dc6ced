//! Where the entries of a stream are: the newer ones row by row in memory, the older ones file by file.

use std::collections::VecDeque;
use std::ops::{AddAssign, Range};

use bytes::Bytes;

use crate::entry::{EntryKind, FileSeq, Location, LogPosition};

/// Memory that one entry takes in the index, its share of the ring buffer included.
pub(crate) const ROW_BYTES: u64 = size_of::<Row>() as u64;

/// Where an entry is.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) kind: EntryKind,
    pub(crate) term: u64,
    pub(crate) leader: u64,
    /// Names this very entry: one that was truncated and replaced has another.
    pub(crate) id: u64,
    /// On disk since its commit; `None` while it waits for the writer.
    pub(crate) at: Option<Location>,
    /// In memory while in flight and while recent.
    pub(crate) payload: Option<Bytes>,
}

impl Row {
    /// An entry found on disk.
    pub(crate) fn on_disk(kind: EntryKind, at: LogPosition, location: Location) -> Self {
        Self { kind, term: at.term, leader: at.leader, id: 0, at: Some(location), payload: None }
    }
}

/// Entries whose rows left memory: up to `end`, from where the segment before ends. The sidecar of `file` has
/// them. There are at most as many as journal files, so their memory is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    file: FileSeq,
    end: u64,
}

/// The entries of one stream, without a hole.
///
/// ```text
///   first          resident_start                      end
///     | segment | segment | row row row row row row row |
///       file 3    file 4    file 4 .. the current one, in flight
/// ```
///
/// Rows and segments are in the order of their files: an entry is appended after all that it follows, so the entries of
/// one stream that live in one file are one range.
#[derive(Debug, Default)]
pub(crate) struct EntryIndex {
    first: u64,
    segments: VecDeque<Segment>,
    rows: VecDeque<Row>,
}

/// What left memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Freed {
    pub(crate) rows: u64,
    pub(crate) payload_bytes: u64,
}

impl Freed {
    fn add_row(&mut self, row: &Row) {
        self.rows += 1;
        self.payload_bytes += row.payload.as_ref().map_or(0, |payload| payload.len() as u64);
    }
}

impl AddAssign for Freed {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.payload_bytes += other.payload_bytes;
    }
}

impl EntryIndex {
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn end(&self) -> u64 {
        self.resident_start() + self.rows.len() as u64
    }

    /// From here on each entry has its row in memory.
    pub(crate) fn resident_start(&self) -> u64 {
        self.segments.back().map_or(self.first, |segment| segment.end)
    }

    /// Rows in memory.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    /// The row of an entry that has one in memory.
    pub(crate) fn row(&self, index: u64) -> Option<&Row> {
        self.rows.get(usize::try_from(index.checked_sub(self.resident_start())?).ok()?)
    }

    pub(crate) fn row_mut(&mut self, index: u64) -> Option<&mut Row> {
        let start = self.resident_start();
        self.rows.get_mut(usize::try_from(index.checked_sub(start)?).ok()?)
    }

    /// The file whose sidecar has the entry `index`, and all entries of this stream for which that is so; `None` if its
    /// row is in memory, or if there is no such entry.
    pub(crate) fn evicted(&self, index: u64) -> Option<(FileSeq, Range<u64>)> {
        if index < self.first {
            return None;
        }
        let at = self.segments.partition_point(|segment| segment.end <= index);
        let segment = self.segments.get(at)?;
        let start = at.checked_sub(1).map_or(self.first, |before| self.segments[before].end);
        Some((segment.file, start..segment.end))
    }

    /// The file of the oldest entry that has its row in memory; `None` while that waits for the writer.
    pub(crate) fn oldest_resident_file(&self) -> Option<FileSeq> {
        self.rows.front().and_then(|row| row.at).map(|at| at.file)
    }

    /// The entries from `from` on that lie in `file` and have their rows in memory. All that are behind `from` and live
    /// in that file follow each other.
    pub(crate) fn resident_in(&self, file: FileSeq, from: u64) -> impl Iterator<Item = (u64, Location)> {
        let from = from.max(self.resident_start());
        let skip = usize::try_from(from - self.resident_start()).unwrap_or(usize::MAX);
        let at = move |row: &Row| row.at.filter(|at| at.file == file);
        (from..).zip(self.rows.iter().skip(skip).map_while(at))
    }

    /// Adds entries after the last.
    pub(crate) fn extend(&mut self, rows: impl Iterator<Item = Row>) {
        self.rows.extend(rows);
    }

    pub(crate) fn push(&mut self, row: Row) {
        self.rows.push_back(row);
    }

    /// Removes entries from `end` on.
    pub(crate) fn truncate(&mut self, end: u64) -> Freed {
        let mut freed = Freed::default();
        while self.end() > end.max(self.resident_start())
            && let Some(row) = self.rows.pop_back()
        {
            freed.add_row(&row);
        }
        // A sidecar keeps the rows of what was cut off here; nobody asks for them: new entries of these indexes lie in
        // later files.
        let end = end.max(self.first);
        while self.resident_start() > end
            && let Some(mut last) = self.segments.pop_back()
        {
            if self.resident_start() < end {
                last.end = end;
                self.segments.push_back(last);
            }
        }
        self.check();
        freed
    }

    /// Removes entries below `first`, where the stream then begins, be that beyond its end.
    pub(crate) fn purge(&mut self, first: u64) -> Freed {
        let mut freed = Freed::default();
        if first <= self.first {
            return freed;
        }
        let mut start = self.resident_start();
        while self.segments.front().is_some_and(|segment| segment.end <= first) {
            self.segments.pop_front();
        }
        while start < first
            && let Some(row) = self.rows.pop_front()
        {
            freed.add_row(&row);
            start += 1;
        }
        self.first = first;
        self.check();
        freed
    }

    /// Has the stream begin at `first`, before where it did, if it holds nothing.
    pub(crate) fn begin_at(&mut self, first: u64) {
        if self.first == self.end() {
            self.first = self.first.min(first);
        }
    }

    /// Takes up to `rows_max` of the oldest rows out of memory, which lie in `file`; its sidecar must have them.
    pub(crate) fn evict(&mut self, file: FileSeq, rows_max: u64) -> Freed {
        let (start, mut freed) = (self.resident_start(), Freed::default());
        while freed.rows < rows_max && self.oldest_resident_file() == Some(file) {
            let Some(row) = self.rows.pop_front() else { break };
            freed.add_row(&row);
        }
        let end = start + freed.rows;
        match self.segments.back_mut() {
            Some(last) if last.file == file => last.end = end,
            _ if freed.rows > 0 => self.segments.push_back(Segment { file, end }),
            _ => {}
        }
        // What was taken out shall also be given back; each move of the rest is paid for by as many rows that left.
        if self.rows.capacity() / 4 > self.rows.len() + 256 {
            self.rows.shrink_to(self.rows.len() * 2);
        }
        self.check();
        freed
    }

    /// What must hold after each change.
    fn check(&self) {
        let (mut start, mut file) = (self.first, None);
        for segment in &self.segments {
            debug_assert!(start < segment.end, "an empty segment at {start}: {:?}", self.segments);
            debug_assert!(file < Some(segment.file), "segments out of order: {:?}", self.segments);
            (start, file) = (segment.end, Some(segment.file));
        }
        let resident = self.oldest_resident_file();
        debug_assert!(
            resident.is_none() || file <= resident,
            "rows of {resident:?} after {:?}",
            self.segments
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(file: u64) -> Row {
        let (at, location) =
            (LogPosition { term: 1, leader: 1, index: 0 }, Location { file: FileSeq(file), pos: 0, len: 1 });
        Row::on_disk(EntryKind::Normal, at, location)
    }

    #[derive(Debug, Clone)]
    enum Step {
        Append(u64),
        Rotate,
        Evict(u64),
        Truncate(u64),
        Purge(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (1u64..9).prop_map(Step::Append),
            2 => Just(Step::Rotate),
            3 => (1u64..12).prop_map(Step::Evict),
            1 => (0u64..20).prop_map(Step::Truncate),
            1 => (0u64..20).prop_map(Step::Purge),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        /// A list of the live indexes and their files says the same, whatever of it is in memory.
        #[test]
        fn each_live_entry_has_a_row_or_a_segment_of_its_file(steps in steps()) {
            let (mut index, mut file) = (EntryIndex::default(), 1);
            let (mut live, mut next) = (VecDeque::<(u64, u64)>::new(), 0);
            for step in steps {
                match step {
                    Step::Append(count) => for _ in 0..count {
                        index.push(row(file));
                        live.push_back((next, file));
                        next += 1;
                    },
                    Step::Rotate => file += 1,
                    Step::Evict(rows) => {
                        let oldest = index.oldest_resident_file();
                        if let Some(oldest) = oldest.filter(|oldest| oldest.0 < file) {
                            let before = index.rows();
                            let freed = index.evict(oldest, rows);
                            prop_assert!(freed.rows > 0 && index.rows() + freed.rows == before);
                        }
                    }
                    Step::Truncate(back) => {
                        let end = next.saturating_sub(back);
                        index.truncate(end);
                        live.retain(|(at, _)| *at < end);
                        next = index.end();
                        prop_assert_eq!(next, end.max(index.first()));
                    }
                    Step::Purge(ahead) => {
                        let first = index.first() + ahead;
                        index.purge(first);
                        live.retain(|(at, _)| *at >= first);
                        next = next.max(first);
                    }
                }
                prop_assert_eq!(index.end(), next);
                prop_assert_eq!(live.front().map_or(next, |(at, _)| *at), index.first());
                for (at, file) in &live {
                    let found = match index.evicted(*at) {
                        Some((file, range)) => range.contains(at).then_some(file),
                        None => index.row(*at).and_then(|row| row.at).map(|at| at.file),
                    };
                    prop_assert_eq!(found, Some(FileSeq(*file)), "entry {} of {:?}", at, index);
                }
                prop_assert!(index.evicted(next).is_none() && index.row(next).is_none());
            }
        }
    }
}
