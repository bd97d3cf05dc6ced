//! Which blocks are asked for more than once: only these are worth a place on disk. Who reads years of
//! messages once would have each byte of them written there, past those that others come back to.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::ops::Range;
use std::sync::Arc;

use foyer::{DefaultHasher, Statistics, StorageFilterCondition, StorageFilterResult};
use parking_lot::Mutex;
use weir_protocol::ids::Offset;

/// Blocks asked for last that are remembered at least, and half of what is remembered at most: 32 GiB of
/// them, in 4 MiB.
const BLOCKS_KEPT: usize = 64 << 10;

/// What was asked for of the blocks that were asked for last. Cheap to clone: all clones are one memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Again(Arc<Mutex<Generations>>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u64, Asked>,
    old: HashMap<u64, Asked>,
}

/// Of one block.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// Everything before it was asked for.
    upto: Offset,
    /// Some of it more than once.
    is_again: bool,
}

impl Again {
    /// Somebody asks for the `wanted` records of the block `key`. Who reads on within it asks for each but once.
    pub(crate) fn asked(&self, key: u128, wanted: &Range<Offset>) {
        self.0.lock().asked(hash(key), wanted);
    }
}

impl Generations {
    fn asked(&mut self, block: u64, wanted: &Range<Offset>) {
        let before = self.of(block);
        let is_again = before.is_some_and(|asked| asked.is_again || wanted.start < asked.upto);
        let upto = before.map_or(wanted.end, |asked| asked.upto.max(wanted.end));
        if self.young.len() >= BLOCKS_KEPT && !self.young.contains_key(&block) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(block, Asked { upto, is_again });
    }

    fn of(&self, block: u64) -> Option<Asked> {
        self.young.get(&block).or_else(|| self.old.get(&block)).copied()
    }
}

/// As the cache knows a block.
fn hash(key: u128) -> u64 {
    DefaultHasher::default().hash_one(key)
}

/// Lets onto the disk what was asked for again.
impl StorageFilterCondition for Again {
    fn filter(&self, _: &Arc<Statistics>, hash: u64, _: usize) -> StorageFilterResult {
        let is_again = self.0.lock().of(hash).is_some_and(|asked| asked.is_again);
        if is_again { StorageFilterResult::Admit } else { StorageFilterResult::Reject }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_again(again: &Again, key: u128) -> bool {
        again.0.lock().of(hash(key)).is_some_and(|asked| asked.is_again)
    }

    #[test]
    fn reading_on_within_a_block_is_once_and_any_of_it_once_more_is_again() {
        let again = Again::default();
        for start in [0, 10, 20] {
            again.asked(1, &(Offset(start)..Offset(start + 10)));
            again.asked(2, &(Offset(0)..Offset(30)));
        }
        assert_eq!([1, 2, 3].map(|key| is_again(&again, key)), [false, true, false]);
        again.asked(1, &(Offset(29)..Offset(40)));
        assert!(is_again(&again, 1));
        again.asked(1, &(Offset(40)..Offset(50)));
        assert!(is_again(&again, 1), "it stays so");
    }

    #[test]
    fn those_asked_for_last_are_remembered_and_no_more_than_twice_as_many() {
        let (again, all) = (Again::default(), Offset(0)..Offset(9));
        again.asked(0, &all);
        for key in 1..3 * BLOCKS_KEPT as u128 {
            again.asked(key, &all);
            if key % 1_000 == 0 {
                again.asked(0, &all);
            }
        }
        let known = again.0.lock();
        assert!(known.young.len() + known.old.len() <= 2 * BLOCKS_KEPT);
        assert!(known.of(hash(0)).is_some(), "it was asked for all along");
        let last = 3 * BLOCKS_KEPT as u128;
        assert!((last - BLOCKS_KEPT as u128..last).all(|key| known.of(hash(key)).is_some()));
        assert!(known.of(hash(1)).is_none(), "long ago");
    }
}
