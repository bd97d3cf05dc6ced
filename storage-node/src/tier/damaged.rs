//! Objects that readers could not read because they are gone or not what was written: for those who ask.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_protocol::ids::{Offset, TimestampMs};
use weir_tier::store::PackName;

use crate::shard::state::PartitionKey;

/// What could not be read of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The object.
    pub object: PackName,
    /// The first record, or, where none of the partition can be read from the object, the first that was wanted.
    pub from: Offset,
    /// One past the last; none: nothing of the partition can be read from the object.
    pub end: Option<Offset>,
    /// What happened; names the object.
    pub why: String,
}

/// What became of reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// What failed last.
    pub lost: Lost,
    /// How often reading the partition from the object failed.
    pub times: u64,
    /// When it failed first.
    pub first: TimestampMs,
    /// When it failed last.
    pub last: TimestampMs,
}

/// The newest of what failed, each object once for each partition that was read from it. Forgotten once what
/// failed can be read, nothing needs it any more, or the node stops.
#[derive(Debug, Default)]
pub struct Damaged {
    damages: Mutex<BTreeMap<(PartitionKey, u128), Damage>>,
    reads: AtomicU64,
}

impl Damaged {
    /// Partitions and objects that are remembered; beyond, the one that failed longest ago is forgotten.
    pub const REMEMBERED_MAX: usize = 256;

    /// Reading a partition failed. True if that is news.
    pub(crate) fn failed(&self, key: PartitionKey, lost: Lost, now: TimestampMs) -> bool {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut damages = self.damages.lock();
        let place = (key, lost.object.id());
        if let Some(known) = damages.get_mut(&place) {
            *known = Damage { lost, times: known.times + 1, first: known.first, last: now };
            return false;
        }
        if damages.len() >= Self::REMEMBERED_MAX {
            let oldest = damages.iter().min_by_key(|(_, damage)| damage.last).map(|(place, _)| *place);
            oldest.and_then(|place| damages.remove(&place));
        }
        damages.insert(place, Damage { lost, times: 1, first: now, last: now });
        true
    }

    /// These records of a partition came from the object: it was brought back, or came damaged on its way only.
    pub(crate) fn read(&self, key: PartitionKey, object: &PackName, records: &Range<Offset>) {
        let mut damages = self.damages.lock();
        let place = (key, object.id());
        let failed = damages.get(&place).map(|damage| (damage.lost.from, damage.lost.end));
        let is_mended =
            failed.is_some_and(|(from, end)| end.is_none_or(|end| from < records.end && records.start < end));
        if is_mended {
            damages.remove(&place);
        }
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.damages.lock().is_empty()
    }

    /// Forgets what nothing needs any more.
    pub(crate) fn retain(&self, is_needed: impl Fn(PartitionKey, &Lost) -> bool) {
        self.damages.lock().retain(|(key, _), damage| is_needed(*key, &damage.lost));
    }

    /// What failed of a partition, newest first.
    #[must_use]
    pub fn of(&self, key: PartitionKey) -> Vec<Damage> {
        let damages = self.damages.lock();
        let of_partition = damages.range((key, 0)..).take_while(|((of, _), _)| *of == key);
        let mut found: Vec<_> = of_partition.map(|(_, damage)| damage.clone()).collect();
        found.sort_by_key(|damage| std::cmp::Reverse(damage.last));
        found
    }

    /// Objects among these, each once.
    #[must_use]
    pub fn objects(&self) -> usize {
        let damages = self.damages.lock();
        damages.keys().map(|(_, object)| *object).collect::<BTreeSet<_>>().len()
    }

    /// Reads that failed, since the start.
    #[must_use]
    pub fn failed_reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;
    use weir_protocol::ids::{ClusterId, Incarnation, LogIndex, PartitionId, ShardId, Term};

    use super::*;

    fn key(life: u64) -> PartitionKey {
        (Incarnation(life), PartitionId(0))
    }

    fn object(n: u128) -> PackName {
        let (cluster, shard, term) = (ClusterId(7), ShardId(1), Term(1));
        PackName { cluster, shard, first: LogIndex(0), last: LogIndex(9), term, attempt: Ulid(n) }
    }

    fn lost(n: u128, records: Option<Range<u64>>) -> Lost {
        let from = Offset(records.as_ref().map_or(0, |records| records.start));
        let end = records.map(|records| Offset(records.end));
        Lost { object: object(n), from, end, why: format!("object {} is missing", object(n)) }
    }

    fn objects(damaged: &Damaged, key: PartitionKey) -> Vec<(u128, u64)> {
        damaged.of(key).into_iter().map(|damage| (damage.lost.object.id(), damage.times)).collect()
    }

    #[test]
    fn what_failed_is_told_to_its_partition_newest_first_and_counted() {
        let damaged = Damaged::default();
        assert!(damaged.failed(key(1), lost(1, None), TimestampMs(10)));
        assert!(damaged.failed(key(1), lost(2, None), TimestampMs(20)));
        assert!(damaged.failed(key(2), lost(1, None), TimestampMs(30)));
        assert!(!damaged.failed(key(1), lost(1, Some(3..4)), TimestampMs(40)), "known already");
        assert_eq!(objects(&damaged, key(1)), [(1, 2), (2, 1)]);
        let newest = damaged.of(key(1)).remove(0);
        assert_eq!((newest.first, newest.last), (TimestampMs(10), TimestampMs(40)));
        assert_eq!((newest.lost.from, newest.lost.end), (Offset(3), Some(Offset(4))), "as it failed last");
        assert_eq!(objects(&damaged, key(2)), [(1, 1)]);
        assert_eq!((damaged.objects(), damaged.failed_reads()), (2, 4));
    }

    #[test]
    fn what_can_be_read_again_or_is_not_needed_is_forgotten_and_nothing_else() {
        let damaged = Damaged::default();
        let read = |n: u128, records: Range<u64>| {
            damaged.read(key(1), &object(n), &(Offset(records.start)..Offset(records.end)));
        };
        damaged.failed(key(1), lost(1, Some(10..20)), TimestampMs(1));
        read(1, 0..10);
        read(1, 20..30);
        read(2, 10..20);
        assert_eq!(damaged.of(key(1)).len(), 1, "others were read");
        read(1, 19..20);
        assert_eq!(damaged.of(key(1)), []);
        damaged.failed(key(1), lost(1, None), TimestampMs(1));
        damaged.failed(key(2), lost(1, None), TimestampMs(1));
        read(1, 500..501);
        assert_eq!((damaged.of(key(1)).len(), damaged.of(key(2)).len()), (0, 1));
        damaged.retain(|of, lost| of == key(2) && lost.object == object(1));
        assert_eq!(damaged.objects(), 1);
        damaged.retain(|_, _| false);
        assert!(damaged.is_empty());
    }

    #[test]
    fn no_more_than_so_many_are_remembered_and_the_newest_are() {
        let damaged = Damaged::default();
        for n in 0..2 * Damaged::REMEMBERED_MAX as u64 {
            damaged.failed(key(n), lost(1, None), TimestampMs(n));
            damaged.failed(key(0), lost(2, None), TimestampMs(n));
            assert!(damaged.damages.lock().len() <= Damaged::REMEMBERED_MAX);
        }
        assert_eq!(objects(&damaged, key(1)), []);
        assert_eq!(objects(&damaged, key(2 * Damaged::REMEMBERED_MAX as u64 - 1)).len(), 1);
        assert_eq!(objects(&damaged, key(0)), [(2, 2 * Damaged::REMEMBERED_MAX as u64)]);
    }
}
