//! Parts by when the first of what they hold ends.

use std::collections::{BTreeMap, BTreeSet};

use weir_protocol::ids::TimestampMs;

use crate::shard::state::PartKey;

/// When to look at which part. Of each at most one time, which may be too early and is never too late: who
/// looks says anew when. A part that holds nothing is not in it, so what is idle costs nothing.
#[derive(Debug, Default)]
pub struct DueParts {
    by_time: BTreeSet<(TimestampMs, PartKey)>,
    times: BTreeMap<PartKey, TimestampMs>,
}

impl DueParts {
    /// The part is to be looked at then, unless it is before.
    pub fn put(&mut self, key: PartKey, at: TimestampMs) {
        let before = self.times.get(&key).copied();
        if before.is_some_and(|before| before <= at) {
            return;
        }
        self.remove(&key);
        self.times.insert(key, at);
        self.by_time.insert((at, key));
    }

    /// Takes out the part that has been due for longest, if one is.
    pub fn pop(&mut self, now: TimestampMs) -> Option<PartKey> {
        let (_, key) = self.by_time.first().copied().filter(|(at, _)| *at <= now)?;
        self.remove(&key);
        Some(key)
    }

    /// There is nothing to look at any more.
    pub fn remove(&mut self, key: &PartKey) {
        if let Some(at) = self.times.remove(key) {
            self.by_time.remove(&(at, *key));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_protocol::ids::{Incarnation, PartitionId};

    use super::*;

    fn key(number: u64) -> PartKey {
        (Incarnation(number), (Incarnation(1), PartitionId(0)))
    }

    proptest! {
        #[test]
        fn each_part_is_due_once_at_the_earliest_of_its_times(
            steps in proptest::collection::vec((0u64..5, 0u64..50, 0u8..4), 1..80),
        ) {
            let (mut due, mut plain) = (DueParts::default(), BTreeMap::<PartKey, u64>::new());
            for (number, at, step) in steps {
                match step {
                    0 => {
                        due.remove(&key(number));
                        plain.remove(&key(number));
                    }
                    1 => {
                        let first = plain.iter().map(|(key, at)| (*at, *key)).min();
                        let expected = first.filter(|(due, _)| *due <= at).map(|(_, key)| key);
                        prop_assert_eq!(due.pop(TimestampMs(at)), expected);
                        expected.map(|key| plain.remove(&key));
                    }
                    _ => {
                        due.put(key(number), TimestampMs(at));
                        let earliest = plain.entry(key(number)).or_insert(at);
                        *earliest = at.min(*earliest);
                    }
                }
                prop_assert_eq!((due.by_time.len(), due.times.len()), (plain.len(), plain.len()));
            }
        }
    }
}
