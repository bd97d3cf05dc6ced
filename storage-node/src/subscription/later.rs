//! Records that wait for a time that is far away, or of which too many wait to keep each in its order.
//!
//! ```text
//!   put(due) ─▶ a set of those that are met again at about the same time ─▶ met again: leased as new ones, or looked at
//! ```

use std::collections::BTreeMap;

use roaring::RoaringTreemap;
use weir_protocol::ids::{Offset, TimestampMs};

/// What is due later than this is no more kept in order.
pub(super) const FAR_MS: u64 = 3_600_000;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const MONTH: u64 = 32 * DAY;

/// Offsets by when they are met again: 2 bytes each where they are scattered, 1 bit where they follow each
/// other, some 100 sets and some KiB for 65,536 records besides. Of what is far away only the month, the day or
/// the hour is kept; whoever meets it then finds out more, from the log or from the record. It comes at most a
/// second late, and only where it was put aside less than two minutes before it is due.
#[derive(Debug, Clone, Default)]
pub(super) struct Later {
    by_time: BTreeMap<TimestampMs, RoaringTreemap>,
    all: RoaringTreemap,
    len: u64,
}

impl Later {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn contains(&self, offset: Offset) -> bool {
        self.len > 0 && self.all.contains(offset.0)
    }

    /// The lowest.
    pub(super) fn lowest(&self) -> Option<Offset> {
        self.all.min().map(Offset)
    }

    /// All from an offset on, ascending.
    pub(super) fn from(&self, offset: Offset) -> impl Iterator<Item = Offset> {
        let mut all = self.all.iter();
        all.advance_to(offset.0);
        all.map(Offset)
    }

    /// A record that is not due yet at `now`.
    pub(super) fn put(&mut self, offset: Offset, due: TimestampMs, now: TimestampMs) {
        self.remove(offset);
        self.all.insert(offset.0);
        self.by_time.entry(met_at(due, now)).or_default().insert(offset.0);
        self.len += 1;
    }

    /// Takes a record out; false if it was not there.
    pub(super) fn remove(&mut self, offset: Offset) -> bool {
        if self.len == 0 || !self.all.remove(offset.0) {
            return false;
        }
        self.len -= 1;
        self.by_time.retain(|_, set| !set.remove(offset.0) || !set.is_empty());
        true
    }

    /// Forgets what is below `floor`.
    pub(super) fn forget_below(&mut self, floor: Offset) {
        if self.len > 0 && self.lowest().is_some_and(|lowest| lowest < floor) {
            self.len -= self.all.remove_range(..floor.0);
            self.by_time.retain(|_, set| set.remove_range(..floor.0) == 0 || !set.is_empty());
        }
    }

    /// When the first of them is met again.
    pub(super) fn first(&self) -> Option<TimestampMs> {
        self.by_time.first_key_value().map(|(at, _)| *at)
    }

    /// When a record is met again.
    pub(super) fn time_of(&self, offset: Offset) -> Option<TimestampMs> {
        self.by_time.iter().find(|(_, set)| set.contains(offset.0)).map(|(at, _)| *at)
    }

    /// How many are to be met again by now.
    pub(super) fn over(&self, now: TimestampMs) -> u64 {
        self.by_time.range(..=now).map(|(_, set)| set.len()).sum()
    }

    /// Takes out one that is to be met again by now.
    pub(super) fn pop(&mut self, now: TimestampMs) -> Option<Offset> {
        let mut first = self.by_time.first_entry().filter(|first| *first.key() <= now)?;
        let offset = first.get().min();
        if let Some(offset) = offset {
            first.get_mut().remove(offset);
            self.all.remove(offset);
            self.len -= 1;
        }
        if first.get().is_empty() {
            first.remove();
        }
        offset.map(Offset)
    }
}

/// When to meet a record that is due then: at the beginning of its month, day, hour or minute if that is well ahead of
/// `now`, so that each time it waits it is put closer, and otherwise at the end of its second.
pub(super) fn met_at(due: TimestampMs, now: TimestampMs) -> TimestampMs {
    let ahead = due.0.saturating_sub(now.0);
    let wide = [MONTH, DAY, HOUR, MINUTE].into_iter().find(|wide| ahead >= 2 * wide);
    TimestampMs(match wide {
        Some(wide) => due.0 / wide * wide,
        None => due.0.div_ceil(SECOND).saturating_mul(SECOND),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each is met at most a second late, and never so often that meeting it early is work without end.
        #[test]
        fn what_waits_is_met_a_few_times_and_at_most_a_second_late(now in 0u64..1 << 42, ahead in 1u64..1 << 37) {
            let due = now + ahead;
            let (mut now, mut met) = (now, 0);
            while now < due {
                let next = met_at(TimestampMs(due), TimestampMs(now)).0;
                prop_assert!(next > now);
                (now, met) = (next, met + 1);
            }
            prop_assert!(now < due + SECOND && met <= 5, "{met} times, {} ms late", now - due);
        }

        #[test]
        fn it_answers_like_a_list(
            steps in proptest::collection::vec((0u64..60, 1u64..9 * HOUR, 0u8..9), 1..80),
        ) {
            let (mut later, mut plain, mut now) = (Later::default(), BTreeMap::new(), 0);
            for (at, ms, step) in steps {
                match step {
                    0 => {
                        later.forget_below(Offset(at));
                        plain.retain(|offset, _| *offset >= at);
                    }
                    1 => prop_assert_eq!(later.remove(Offset(at)), plain.remove(&at).is_some()),
                    2 => {
                        now += ms;
                        prop_assert_eq!(later.over(TimestampMs(now)), plain.values().filter(|at| **at <= now).count() as u64);
                        let met: BTreeSet<u64> =
                            std::iter::from_fn(|| later.pop(TimestampMs(now))).map(|offset| offset.0).collect();
                        let due = plain.iter().filter(|(_, at)| **at <= now).map(|(offset, _)| *offset);
                        prop_assert!(met.into_iter().eq(due));
                        plain.retain(|_, at| *at > now);
                    }
                    _ => {
                        later.put(Offset(at), TimestampMs(now + ms), TimestampMs(now));
                        plain.insert(at, met_at(TimestampMs(now + ms), TimestampMs(now)).0);
                    }
                }
                prop_assert_eq!((later.len(), later.lowest()), (plain.len() as u64, plain.keys().next().map(|at| Offset(*at))));
                prop_assert_eq!(later.first(), plain.values().min().map(|at| TimestampMs(*at)));
                prop_assert_eq!(later.time_of(Offset(at)), plain.get(&at).map(|at| TimestampMs(*at)));
                prop_assert!(later.from(Offset(at)).eq(plain.range(at..).map(|(at, _)| Offset(*at))));
            }
        }
    }

    /// What ten million take, as their sets say of themselves.
    fn bytes(later: &Later) -> u64 {
        let sets = later.by_time.values().chain([&later.all]).flat_map(RoaringTreemap::bitmaps);
        sets.map(|(_, set)| {
            let it = set.statistics();
            // It reckons 4 bytes for each place of a list, of which each has 2.
            let lists = it.n_bytes_array_containers / 2;
            lists + (u64::from(it.n_bitset_containers) << 13) + u64::from(it.n_containers) * 48
        })
        .sum()
    }

    #[test]
    fn ten_million_for_some_time_of_a_year_or_a_day_take_less_than_40_mib() {
        for within in [365 * DAY, 30 * DAY, DAY, 1] {
            let (mut later, mut random) = (Later::default(), 1u64);
            for at in 0..10_000_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let due = TimestampMs(DAY + HOUR + (random >> 20) % within);
                later.put(Offset(at), due, TimestampMs(HOUR));
            }
            // Lists of 2 bytes each may have grown to twice of what they hold.
            let bytes = bytes(&later);
            assert!(bytes < 40 << 20, "{} MiB within {within} ms", bytes >> 20);
        }
    }
}
