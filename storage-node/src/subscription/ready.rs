//! Records that may be leased now, in the order in which they go.

use std::collections::{BTreeMap, BTreeSet};

use weir_protocol::ids::{Offset, TimestampMs};

use super::offsets::Offsets;

/// Whose records take turns with those of others; 0 for all that are not told apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane(pub u128);

/// Records that may be leased now. Lanes take turns, one record each; within a lane records that were delivered
/// before take turns with those that were not. A lane that is empty does not exist: memory follows the records.
/// Of those that were not delivered only offsets are held, 64 of a lane one by one and the others as a bitmap,
/// so that a lane may have millions.
#[derive(Debug, Clone, Default)]
pub(super) struct Ready {
    lanes: BTreeMap<Lane, Records>,
    /// Whose turn it was last.
    last: Lane,
    len: usize,
    again: usize,
}

#[derive(Debug, Clone, Default)]
struct Records {
    /// Delivered before, by the time since which they are free.
    again: BTreeSet<(TimestampMs, Offset)>,
    /// Looked at, and not delivered.
    fresh: Offsets,
    /// The last one was delivered before.
    was_again: bool,
}

impl Ready {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Records that were delivered before, or waited.
    pub(super) fn again_len(&self) -> usize {
        self.again
    }

    /// Lanes that have a record.
    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Adds a record, free since a time; without one it was never delivered.
    pub(super) fn insert(&mut self, lane: Lane, since: Option<TimestampMs>, offset: Offset) {
        let records = self.lanes.entry(lane).or_default();
        let is_new = match since {
            Some(since) => records.again.insert((since, offset)),
            None => records.fresh.insert(offset),
        };
        self.again += usize::from(is_new && since.is_some());
        self.len += usize::from(is_new);
    }

    /// Takes a record out that is in it, as it was added.
    pub(super) fn remove(&mut self, lane: Lane, since: Option<TimestampMs>, offset: Offset) {
        let Some(records) = self.lanes.get_mut(&lane) else { return };
        let was_there = match since {
            Some(since) => records.again.remove(&(since, offset)),
            None => records.fresh.remove(offset),
        };
        self.len -= usize::from(was_there);
        self.again -= usize::from(was_there && since.is_some());
        if records.is_empty() {
            self.lanes.remove(&lane);
        }
    }

    /// Takes out the record whose turn it is, and says whose it is.
    pub(super) fn pop(&mut self) -> Option<(Lane, Offset)> {
        let lane = self.turn()?;
        self.last = lane;
        let records = self.lanes.get_mut(&lane).expect("it was found above");
        let (offset, was_again) = records.pop().expect("an empty lane does not exist");
        self.len -= 1;
        self.again -= usize::from(was_again);
        if records.is_empty() {
            self.lanes.remove(&lane);
        }
        Some((lane, offset))
    }

    /// Whose turn it is.
    fn turn(&self) -> Option<Lane> {
        let after = Lane(self.last.0.wrapping_add(1));
        self.lanes.range(after..).next().or_else(|| self.lanes.iter().next()).map(|(lane, _)| *lane)
    }

    /// The record whose turn it is, if it was never delivered, and whose it is.
    pub(super) fn first_fresh(&self) -> Option<(Lane, Offset)> {
        let lane = self.turn()?;
        let records = self.lanes.get(&lane)?;
        Some((lane, records.fresh.first().filter(|_| !records.is_again())?))
    }

    /// The lowest of those that were never delivered and still stand so.
    pub(super) fn lowest_fresh(&self, is_fresh: impl Fn(Offset) -> bool) -> Option<Offset> {
        self.lanes.values().filter_map(|records| records.fresh.iter().find(|offset| is_fresh(*offset))).min()
    }

    /// Forgets those that were never delivered.
    pub(super) fn forget_fresh(&mut self) {
        self.lanes.retain(|_, records| {
            records.fresh = Offsets::default();
            !records.is_empty()
        });
        self.len = self.again;
    }

    /// All records, for checks.
    #[cfg(test)]
    pub(super) fn contains(&self, lane: Lane, since: Option<TimestampMs>, offset: Offset) -> bool {
        self.lanes.get(&lane).is_some_and(|records| match since {
            Some(since) => records.again.contains(&(since, offset)),
            None => records.fresh.contains(offset),
        })
    }
}

impl Records {
    fn is_empty(&self) -> bool {
        self.again.is_empty() && self.fresh.is_empty()
    }

    /// Whether one that was delivered before is next.
    fn is_again(&self) -> bool {
        !self.again.is_empty() && (self.fresh.is_empty() || !self.was_again)
    }

    fn pop(&mut self) -> Option<(Offset, bool)> {
        let is_again = self.is_again();
        self.was_again = is_again;
        if is_again {
            return self.again.pop_first().map(|(_, offset)| (offset, true));
        }
        self.fresh.pop_first().map(|offset| (offset, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(ready: &mut Ready) -> Vec<u64> {
        std::iter::from_fn(|| ready.pop()).map(|(_, offset)| offset.0).collect()
    }

    #[test]
    fn lanes_take_turns_however_much_each_has() {
        let mut ready = Ready::default();
        (0..1_000).for_each(|at| ready.insert(Lane(7), None, Offset(at)));
        (1_000..1_003).for_each(|at| ready.insert(Lane(u128::MAX), None, Offset(at)));
        ready.insert(Lane(0), Some(TimestampMs(5)), Offset(2_000));
        let order = all(&mut ready);
        assert_eq!(order[..7], [0, 1_000, 2_000, 1, 1_001, 2, 1_002]);
        assert_eq!((order.len(), ready.len(), ready.again_len()), (1_004, 0, 0));
        assert!(ready.lanes.is_empty());
    }

    #[test]
    fn in_a_lane_what_comes_again_takes_turns_with_what_is_new() {
        let mut ready = Ready::default();
        for at in 0..4 {
            ready.insert(Lane(0), None, Offset(at));
            ready.insert(Lane(0), Some(TimestampMs(10 - at)), Offset(100 + at));
        }
        ready.remove(Lane(0), Some(TimestampMs(9)), Offset(101));
        ready.remove(Lane(0), None, Offset(2));
        ready.remove(Lane(0), None, Offset(2));
        assert_eq!(all(&mut ready), [103, 0, 102, 1, 100, 3]);
    }
}
