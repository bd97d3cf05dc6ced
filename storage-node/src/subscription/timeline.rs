//! Offsets by the time at which something happens to them.

use std::collections::BTreeMap;
use std::ops::RangeFrom;

use weir_protocol::ids::{Offset, TimestampMs};

/// Offsets, each at a time, the earliest first. Those of one time are kept as ranges: what is leased together, and settled
/// together, mostly follows each other, and then costs what a range does, one record or thousands.
#[derive(Debug, Clone, Default)]
pub(super) struct Timeline {
    at: BTreeMap<TimestampMs, Ranges>,
    len: usize,
}

/// Disjoint ranges that do not meet: where each begins, and ends.
#[derive(Debug, Clone, Default)]
struct Ranges(BTreeMap<Offset, Offset>);

impl Timeline {
    /// Offsets, each as often as it is at a time.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The earliest, and of those the lowest.
    pub(super) fn first(&self) -> Option<(TimestampMs, Offset)> {
        let (at, ranges) = self.at.first_key_value()?;
        ranges.0.first_key_value().map(|(start, _)| (*at, *start))
    }

    /// Adds an offset that is not at this time yet.
    pub(super) fn insert(&mut self, at: TimestampMs, offset: Offset) {
        self.len += usize::from(self.at.entry(at).or_default().insert(offset));
    }

    /// Takes an offset out, if it is at this time.
    pub(super) fn remove(&mut self, at: TimestampMs, offset: Offset) {
        let Some(ranges) = self.at.get_mut(&at) else { return };
        self.len -= usize::from(ranges.remove(offset));
        if ranges.0.is_empty() {
            self.at.remove(&at);
        }
    }

    /// What is at a time or later, in order.
    pub(super) fn from(&self, times: RangeFrom<TimestampMs>) -> impl Iterator<Item = (TimestampMs, Offset)> {
        let later = self.at.range(times);
        let ranges = later.flat_map(|(at, ranges)| ranges.0.iter().map(|(start, end)| (*at, *start, *end)));
        ranges.flat_map(|(at, start, end)| (start.0..end.0).map(move |offset| (at, Offset(offset))))
    }

    #[cfg(test)]
    pub(super) fn contains(&self, at: TimestampMs, offset: Offset) -> bool {
        self.at.get(&at).is_some_and(|ranges| ranges.around(offset).is_some())
    }
}

impl Ranges {
    /// The range that holds an offset.
    fn around(&self, offset: Offset) -> Option<(Offset, Offset)> {
        let (start, end) = self.0.range(..=offset).next_back()?;
        (offset < *end).then_some((*start, *end))
    }

    /// True if it is new.
    fn insert(&mut self, offset: Offset) -> bool {
        let behind = offset.plus(1);
        if let Some((_, end)) = self.0.range_mut(..=offset).next_back()
            && *end >= offset
        {
            if *end > offset {
                return false;
            }
            *end = behind;
            if let Some(next_end) = self.0.remove(&behind) {
                let (_, end) = self.0.range_mut(..=offset).next_back().expect("it was there");
                *end = next_end;
            }
            return true;
        }
        let end = self.0.remove(&behind).unwrap_or(behind);
        self.0.insert(offset, end);
        true
    }

    /// True if it was there.
    fn remove(&mut self, offset: Offset) -> bool {
        let Some((start, end)) = self.around(offset) else { return false };
        let behind = offset.plus(1);
        if start < offset {
            self.0.insert(start, offset);
        } else {
            self.0.remove(&start);
        }
        if behind < end {
            self.0.insert(behind, end);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set_of_times_and_offsets(
            steps in prop::collection::vec((any::<bool>(), 0u64..4, 0u64..24), 0..400)
        ) {
            let (mut timeline, mut set) = (Timeline::default(), BTreeSet::new());
            for (is_insert, at, offset) in steps {
                let (at, offset) = (TimestampMs(at), Offset(offset));
                if is_insert {
                    timeline.insert(at, offset);
                    set.insert((at, offset));
                } else {
                    timeline.remove(at, offset);
                    set.remove(&(at, offset));
                }
                prop_assert_eq!(timeline.len(), set.len());
                prop_assert_eq!(timeline.first(), set.first().copied());
                prop_assert_eq!(timeline.contains(at, offset), is_insert);
            }
            for from in 0..5 {
                let later: Vec<_> = timeline.from(TimestampMs(from)..).collect();
                let expected: Vec<_> = set.range((TimestampMs(from), Offset(0))..).copied().collect();
                prop_assert_eq!(later, expected);
            }
            let meets = |ranges: &Ranges| ranges.0.iter().zip(ranges.0.iter().skip(1)).any(|(a, b)| a.1 >= b.0);
            prop_assert!(!timeline.at.values().any(|ranges| ranges.0.is_empty() || meets(ranges)));
        }
    }
}
