//! A set of offsets whose copy costs nothing.

use std::ops::Range;
use std::sync::Arc;

use roaring::RoaringTreemap;
use weir_protocol::ids::Offset;

/// Offsets that share one container of the bitmap.
const CONTAINER: u64 = 1 << 16;

/// A set of offsets: at most 8 KiB per 65,536 of them, 2 bytes each where they are few. A copy shares everything
/// until one of the two changes; then 10 million offsets cost a copy of at most 1.3 MB.
///
/// What is forgotten from below stays in the bitmap until its container is done with: taking it out costs a look at
/// every container, which a floor that moves with every ack cannot pay.
#[derive(Debug, Clone, Default)]
pub(super) struct OffsetSet {
    map: Arc<RoaringTreemap>,
    /// What the bitmap holds below is no member any more.
    start: Offset,
    /// Members.
    len: u64,
}

impl PartialEq for OffsetSet {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.to_map() == other.to_map()
    }
}

impl OffsetSet {
    /// Takes a bitmap as it was read.
    pub(super) fn new(map: RoaringTreemap) -> Self {
        // A checkpoint holds runs where they are shorter; they grow beyond 8 KiB when they are changed.
        let plain = RoaringTreemap::from_bitmaps(map.bitmaps().map(|(high, bitmap)| {
            let mut bitmap = bitmap.clone();
            bitmap.remove_run_compression();
            (high, bitmap)
        }));
        Self { len: plain.len(), start: Offset(0), map: Arc::new(plain) }
    }

    /// The members alone.
    pub(super) fn to_map(&self) -> RoaringTreemap {
        let mut map = (*self.map).clone();
        map.remove_range(..self.start.0);
        map
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn contains(&self, offset: Offset) -> bool {
        self.len > 0 && offset >= self.start && self.map.contains(offset.0)
    }

    /// The highest.
    pub(super) fn max(&self) -> Option<Offset> {
        if self.is_empty() { None } else { self.map.max().map(Offset) }
    }

    /// Adds a range of what was not forgotten and returns how many of it were new.
    pub(super) fn insert(&mut self, range: Range<Offset>) -> u64 {
        debug_assert!(range.start >= self.start, "{range:?} begins below {}", self.start);
        let map = Arc::make_mut(&mut self.map);
        let (mut at, mut added) = (range.start.0, 0);
        while at < range.end.0 {
            let piece_end = range.end.0.min((at / CONTAINER + 1) * CONTAINER);
            // The first one alone: a container that begins as a range would stay a list of runs, without bound.
            added += u64::from(map.insert(at));
            if at + 1 < piece_end {
                added += map.insert_range(at + 1..piece_end);
            }
            at = piece_end;
        }
        self.len += added;
        added
    }

    /// Removes everything below `end`, which is `members` of it; for good, until [`OffsetSet::clear`].
    pub(super) fn forget_below(&mut self, end: Offset, members: u64) {
        if !self.is_empty() {
            self.len -= members;
            if self.is_empty() || end.0 / CONTAINER > self.start.0 / CONTAINER {
                Arc::make_mut(&mut self.map).remove_range(..end.0);
            }
        }
        self.start = end;
    }

    /// From now on it may have members from `start` on, though what was below was forgotten.
    pub(super) fn lower_to(&mut self, start: Offset) {
        if start < self.start {
            // What was forgotten and is still in the bitmap must not come back.
            *self = Self { len: self.len, start, map: Arc::new(self.to_map()) };
        }
    }

    /// Takes a member out; false if it was none.
    pub(super) fn remove(&mut self, offset: Offset) -> bool {
        let was_there = self.contains(offset);
        if was_there {
            Arc::make_mut(&mut self.map).remove(offset.0);
            self.len -= 1;
        }
        was_there
    }

    /// Removes everything from `start` on.
    pub(super) fn forget_from(&mut self, start: Offset) {
        if self.max().is_some_and(|max| max >= start) {
            let map = Arc::make_mut(&mut self.map);
            map.remove_range(start.0..);
            self.len = map.len() - map.range_cardinality(..self.start.0);
        }
    }

    /// Members from `offset` on, ascending.
    pub(super) fn members(&self, offset: Offset) -> impl Iterator<Item = Offset> {
        let mut members = self.map.iter();
        members.advance_to(offset.max(self.start).0);
        members.map(Offset).take(if self.is_empty() { 0 } else { usize::MAX })
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many lie in a range.
    pub(super) fn count(&self, range: &Range<Offset>) -> u64 {
        let start = range.start.max(self.start);
        let wide = range.end.0.saturating_sub(start.0);
        match wide {
            0 => 0,
            _ if self.is_empty() => 0,
            // Counting counts the bits of two containers up to the range.
            1..=128 => (start.0..range.end.0).filter(|offset| self.map.contains(*offset)).count() as u64,
            _ => self.map.range_cardinality(start.0..range.end.0),
        }
    }

    /// The first member at or after `offset`.
    pub(super) fn next_member(&self, offset: Offset) -> Option<Offset> {
        if self.is_empty() {
            return None;
        }
        let mut members = self.map.iter();
        members.advance_to(offset.max(self.start).0);
        members.next().map(Offset)
    }

    /// The first offset at or after `offset` that is no member. Steps double while they are filled, then halve: a
    /// run of millions takes some dozen looks.
    pub(super) fn next_gap(&self, offset: Offset) -> Offset {
        let mut at = offset.0;
        if !self.contains(offset) {
            return offset;
        }
        let mut step = 1u64;
        while self.map.contains_range(at..at + step) {
            at += step;
            step *= 2;
        }
        while step > 0 {
            if self.map.contains_range(at..at + step) {
                at += step;
            }
            step /= 2;
        }
        Offset(at)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn any_ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let start =
            prop_oneof![3 => 0u64..300, 1 => 65_400u64..65_700, 1 => (1u64 << 32) - 50..(1 << 32) + 50];
        let len = prop_oneof![12 => 1u64..5, 5 => 1u64..200, 1 => 65_000u64..140_000];
        proptest::collection::vec((start, len), 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn it_answers_like_a_plain_set(ranges in any_ranges(), at in 0u64..700, below in 0u64..400) {
            let (mut set, mut plain) = (OffsetSet::default(), BTreeSet::new());
            for (start, len) in ranges {
                let added = (start..start + len).filter(|offset| plain.insert(*offset)).count() as u64;
                prop_assert_eq!(set.insert(Offset(start)..Offset(start + len)), added);
            }
            let copy = set.clone();
            set.forget_below(Offset(below), set.count(&(Offset(0)..Offset(below))));
            prop_assert_eq!(copy.len(), plain.len() as u64);
            plain.retain(|offset| *offset >= below);
            let again = OffsetSet::new(set.to_map());
            prop_assert_eq!(&set, &again);
            let at = at.max(below);
            for set in [&set, &again] {
                prop_assert_eq!(set.len(), plain.len() as u64);
                prop_assert_eq!(set.max().map(|max| max.0), plain.last().copied());
                let next = plain.range(at..).next().copied();
                prop_assert_eq!(set.next_member(Offset(at)).map(|next| next.0), next);
                prop_assert_eq!(set.next_gap(Offset(at)).0, (at..).find(|at| !plain.contains(at)).unwrap());
                let inside = plain.range(at..at + 100).count() as u64;
                prop_assert_eq!(set.count(&(Offset(at)..Offset(at + 100))), inside);
            }
        }
    }

    #[test]
    fn half_settled_at_random_holds_no_list_of_runs() {
        let mut set = OffsetSet::default();
        set.insert(Offset(0)..Offset(10));
        let mut number = 1u64;
        for _ in 0..600_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (number >> 33) % 1_000_000;
            set.insert(Offset(at)..Offset(at + 1));
        }
        // Lists and bitmaps take at most 8 KiB each, lists of runs may take 128.
        let runs: u32 = set.map.bitmaps().map(|(_, bitmap)| bitmap.statistics().n_run_containers).sum();
        assert_eq!((runs, set.map.bitmaps().count()), (0, 1));
    }
}
