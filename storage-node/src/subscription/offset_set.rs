//! A set of offsets whose copy costs nothing.

use std::ops::Range;
use std::sync::Arc;

use roaring::RoaringTreemap;
use weir_protocol::ids::Offset;

/// Offsets that share one container of the bitmap.
const CONTAINER: u64 = 1 << 16;

/// A set of offsets: at most 8 KiB per 65,536 of them, 2 bytes each where they are few. A copy shares everything
/// until one of the two changes; then 10 million offsets cost a copy of at most 1.3 MB.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct OffsetSet {
    map: Arc<RoaringTreemap>,
    len: u64,
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
        Self { len: plain.len(), map: Arc::new(plain) }
    }

    pub(super) fn map(&self) -> &RoaringTreemap {
        &self.map
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn contains(&self, offset: Offset) -> bool {
        self.len > 0 && self.map.contains(offset.0)
    }

    /// The highest.
    pub(super) fn max(&self) -> Option<Offset> {
        self.map.max().map(Offset)
    }

    /// Adds a range and returns how many of it were new.
    pub(super) fn insert(&mut self, range: Range<Offset>) -> u64 {
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

    /// Removes everything below `end`.
    pub(super) fn remove_below(&mut self, end: Offset) {
        if self.map.min().is_some_and(|min| min < end.0) {
            self.len -= Arc::make_mut(&mut self.map).remove_range(..end.0);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many lie in a range.
    pub(super) fn count(&self, range: &Range<Offset>) -> u64 {
        if self.is_empty() || range.start >= range.end {
            return 0;
        }
        self.map.range_cardinality(range.start.0..range.end.0)
    }

    /// The first member at or after `offset`.
    pub(super) fn next_member(&self, offset: Offset) -> Option<Offset> {
        if self.is_empty() {
            return None;
        }
        let mut members = self.map.iter();
        members.advance_to(offset.0);
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
            set.remove_below(Offset(below));
            prop_assert_eq!(copy.len(), plain.len() as u64);
            plain.retain(|offset| *offset >= below);
            let again = OffsetSet::new(set.map().clone());
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
        let runs: u32 = set.map().bitmaps().map(|(_, bitmap)| bitmap.statistics().n_run_containers).sum();
        assert_eq!((runs, set.map().bitmaps().count()), (0, 1));
    }
}
