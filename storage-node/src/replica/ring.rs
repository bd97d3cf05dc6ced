//! The newest entries of all data shards, in memory: what live readers are served from.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;
use parking_lot::Mutex;
use weir_protocol::ids::{LogIndex, ShardId};

/// What an entry costs besides its payload, about.
const ENTRY_BYTES: usize = 64;

/// Payloads of the newest applied entries, bounded in bytes. What came first goes first, whichever shard's it
/// is: memory is where the load is, not in equal parts.
#[derive(Debug)]
pub struct TailRings {
    held: Mutex<Held>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Held {
    rings: BTreeMap<ShardId, Ring>,
    /// Shards of all entries, the oldest first: each is the oldest of its ring when its turn comes.
    order: VecDeque<ShardId>,
    bytes: usize,
}

/// Of one shard. Indexes are contiguous but for entries without a payload, which are held as empty ones.
#[derive(Debug, Default)]
struct Ring {
    first: u64,
    entries: VecDeque<Bytes>,
}

/// Bytes held before a change, and after.
pub type Change = (usize, usize);

impl TailRings {
    /// Empty ones of at most `bytes_max` bytes; the newest entry is held even if it is larger.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { held: Mutex::default(), bytes_max }
    }

    /// Adds the entry `index` of a shard, and drops the oldest beyond the limit.
    pub fn push(&self, shard: ShardId, index: LogIndex, payload: Bytes) -> Change {
        let mut held = self.held.lock();
        let before = held.bytes;
        let is_next = held.rings.entry(shard).or_default().end() == index.0;
        if !is_next {
            held.forget(shard);
            held.rings.entry(shard).or_default().first = index.0;
        }
        held.bytes += cost(&payload);
        held.order.push_back(shard);
        held.rings.entry(shard).or_default().entries.push_back(payload);
        while held.bytes > self.bytes_max && held.order.len() > 1 {
            held.drop_oldest();
        }
        (before, held.bytes)
    }

    /// Parts of a shard's entries, of those that are held. A repair may have put a shorter entry in the place of one.
    #[must_use]
    pub fn parts(
        &self,
        shard: ShardId,
        wanted: impl Iterator<Item = (LogIndex, Range<usize>)>,
    ) -> Vec<Option<Bytes>> {
        let held = self.held.lock();
        let ring = held.rings.get(&shard);
        wanted.map(|(index, within)| part(ring?.get(index)?, within)).collect()
    }

    /// Forgets everything of a shard.
    pub fn clear(&self, shard: ShardId) -> Change {
        let mut held = self.held.lock();
        let before = held.bytes;
        held.forget(shard);
        (before, held.bytes)
    }
}

impl Held {
    fn drop_oldest(&mut self) {
        let ring = self.order.pop_front().and_then(|shard| self.rings.get_mut(&shard));
        let ring = ring.expect("what is in the order is in a ring");
        let oldest = ring.entries.pop_front().expect("what is in the order is in its ring");
        ring.first += 1;
        self.bytes -= cost(&oldest);
    }

    fn forget(&mut self, shard: ShardId) {
        let Some(ring) = self.rings.remove(&shard) else { return };
        self.bytes -= ring.entries.iter().map(cost).sum::<usize>();
        self.order.retain(|of| *of != shard);
    }
}

impl Ring {
    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn get(&self, index: LogIndex) -> Option<&Bytes> {
        let at = usize::try_from(index.0.checked_sub(self.first)?).ok()?;
        self.entries.get(at).filter(|payload| !payload.is_empty())
    }
}

/// A part of an entry, unless that is shorter.
pub(super) fn part(entry: &Bytes, within: Range<usize>) -> Option<Bytes> {
    (within.end <= entry.len()).then(|| entry.slice(within))
}

fn cost(payload: &Bytes) -> usize {
    payload.len() + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ShardId = ShardId(1);
    const TWO: ShardId = ShardId(2);

    fn payload(n: u8, len: usize) -> Bytes {
        vec![n; len].into()
    }

    /// What is held of an entry, by its first byte.
    fn get(rings: &TailRings, shard: ShardId, index: u64) -> Option<u8> {
        let parts = rings.parts(shard, std::iter::once((LogIndex(index), 0..1)));
        parts[0].as_ref().map(|part| part[0])
    }

    #[test]
    fn the_oldest_go_first_whichever_shard_s_they_are() {
        let max = 3 * (100 + ENTRY_BYTES);
        let rings = TailRings::new(max);
        let mut bytes = 0;
        for (n, shard, index) in [(0, ONE, 7), (1, TWO, 40), (2, ONE, 8), (3, ONE, 9)] {
            let (before, after) = rings.push(shard, LogIndex(index), payload(n + 1, 100));
            assert_eq!(before, bytes);
            assert!(after <= max);
            bytes = after;
        }
        let seen = [(ONE, 7), (TWO, 40), (ONE, 8), (ONE, 9), (TWO, 8)].map(|(of, at)| get(&rings, of, at));
        assert_eq!(seen, [None, Some(2), Some(3), Some(4), None]);
        let (_, after) = rings.push(ONE, LogIndex(10), payload(9, 5_000));
        assert_eq!((get(&rings, ONE, 10), get(&rings, TWO, 40), after), (Some(9), None, 5_000 + ENTRY_BYTES));
    }

    #[test]
    fn a_jump_in_a_log_forgets_what_was_before_it_and_nothing_of_others() {
        let rings = TailRings::new(1 << 20);
        rings.push(ONE, LogIndex(1), payload(1, 1));
        rings.push(TWO, LogIndex(1), payload(2, 1));
        rings.push(ONE, LogIndex(50), payload(3, 1));
        let seen = [(ONE, 1), (TWO, 1), (ONE, 50)].map(|(of, at)| get(&rings, of, at));
        assert_eq!(seen, [None, Some(2), Some(3)]);
        assert_eq!(rings.clear(ONE), (2 * (1 + ENTRY_BYTES), 1 + ENTRY_BYTES));
        assert_eq!((get(&rings, ONE, 50), get(&rings, TWO, 1)), (None, Some(2)));
        rings.push(ONE, LogIndex(50), payload(4, 1));
        assert_eq!(get(&rings, ONE, 50), Some(4));
    }

    #[test]
    fn an_entry_that_is_empty_or_too_short_has_no_part() {
        let rings = TailRings::new(1 << 20);
        rings.push(ONE, LogIndex(1), Bytes::new());
        rings.push(ONE, LogIndex(2), payload(2, 8));
        let wanted = [(1, 0..0), (2, 4..8), (2, 4..9)].map(|(at, it)| (LogIndex(at), it));
        let parts = rings.parts(ONE, wanted.into_iter());
        assert_eq!(parts, [None, Some(payload(2, 4)), None]);
    }
}
